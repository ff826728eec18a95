//! The program to run: found as `execvp` finds it, and judged before it is started.
//!
//! A script is judged by its interpreter, because that is what runs. A file that is neither ELF nor
//! `#!` is run by the shell, as `execvp` does. A program that takes on other ids or capabilities
//! ignores LD_PRELOAD (ld.so(8), secure-execution mode), so this module asks the same question as
//! the kernel.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use coldpress_common::failure::{Failure, Result};
use rustix::fs::{Access, StatVfsMountFlags};

use crate::elf::{self, Closed, Image};

/// The shell of `execvp` for files that are neither ELF nor a script with `#!`.
pub(crate) const SHELL: &str = "/bin/sh";

/// The path that glibc's `execvp` searches when PATH is not set (`_CS_PATH`, confstr(3)).
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// The number of interpreters of interpreters that the kernel follows before ELOOP (execve(2)).
const SCRIPT_LEVELS: usize = 4;

/// The set-user-id, set-group-id and group-execute bits of a file's mode (inode(7)).
const MODE_SETUID: u32 = 0o4000;
const MODE_SETGID: u32 = 0o2000;
const MODE_GROUP_EXECUTE: u32 = 0o010;

/// A program that was found, and its kind.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The file to execute.
    pub(crate) path: PathBuf,
    /// The name as the user wrote it: the program's own first argument.
    pub(crate) name: OsString,
    /// The kind of the file.
    pub(crate) image: Image,
    /// Whether no loader of glibc starts the program, so that the launcher puts the library in.
    pub(crate) is_foreign: bool,
    /// The reason why the program cannot be managed, if it cannot.
    pub(crate) obstacle: Option<Obstacle>,
}

/// The reason why a program cannot be managed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// The file with that reason: the program, or the interpreter of the script.
    file: PathBuf,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    Closed(Closed),
    SetUser(u32),
    SetGroup(u32),
    Capabilities,
    Unreadable(io::ErrorKind),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.file.display())?;
        match &self.reason {
            Reason::Closed(closed) => closed.fmt(f),
            Reason::SetUser(uid) => {
                write!(f, "is setuid to uid {uid}, so the library is kept out")
            }
            Reason::SetGroup(gid) => {
                write!(f, "is setgid to gid {gid}, so the library is kept out")
            }
            Reason::Capabilities => {
                f.write_str("gains file capabilities, so the library is kept out")
            }
            Reason::Unreadable(kind) => {
                write!(f, "cannot be read ({kind}), so nobody knows whether it can be managed")
            }
        }
    }
}

/// The rights that the launcher has; the kernel compares with the real ids.
#[derive(Clone, Copy, Debug)]
struct Rights {
    uid: u32,
    gid: u32,
    /// Whether no exec can gain anything (`PR_SET_NO_NEW_PRIVS`).
    no_new_privileges: bool,
}

impl Program {
    /// Finds `name` along PATH and judges it. Fails with 127 or 126 as `env` does.
    pub(crate) fn find(name: &OsStr) -> Result<Self> {
        let path = search(name, std::env::var_os("PATH").as_deref())?;
        let image = elf::examine(&path).unwrap_or(Image::Other);
        let (is_foreign, obstacle) = judge(&path, own_rights())?;
        Ok(Self { path, name: name.to_owned(), image, is_foreign, obstacle })
    }
}

/// Returns the file that `execvp` would execute for `name`.
fn search(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return match executable(Path::new(name)) {
            Ok(()) => Ok(PathBuf::from(name)),
            Err(error) if is_absent(&error) => Err(not_found(name)),
            Err(error) => Err(not_executable(Path::new(name), &error)),
        };
    }
    let mut refused = None;
    let directories = std::env::split_paths(path.unwrap_or(OsStr::new(PATH_DEFAULT)));
    for directory in directories.filter(|_| !name.is_empty()) {
        // An empty entry of PATH is the current directory.
        let file = Path::new(".").join(directory).join(name);
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(error) if is_absent(&error) => {}
            Err(error) => refused = refused.or(Some(not_executable(&file, &error))),
        }
    }
    Err(refused.unwrap_or_else(|| not_found(name)))
}

/// Checks that `file` is a regular file that this user may execute.
fn executable(file: &Path) -> io::Result<()> {
    let metadata = fs::metadata(file)?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(rustix::fs::access(file, Access::EXEC_OK)?)
}

/// Returns whether `execvp` looks on after this error.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn not_found(name: &OsStr) -> Failure {
    let text = name.as_bytes();
    let is_number =
        !text.is_empty() && text.iter().all(|byte| byte.is_ascii_digit() || b".%".contains(byte));
    let way_out = if text.contains(&b'/') {
        "check the path".to_owned()
    } else if is_number {
        format!("check its name; a value of --idle is written --idle={}", name.display())
    } else {
        "check its name and PATH".to_owned()
    };
    Failure::not_found(format!("program \"{}\" was not found", name.display()), way_out)
}

fn not_executable(file: &Path, error: &io::Error) -> Failure {
    let way_out = if error.kind() == io::ErrorKind::IsADirectory {
        "name a program in it".to_owned()
    } else {
        format!("make it executable: chmod +x {}", file.display())
    };
    Failure::not_executable(format!("cannot execute {}: {}", file.display(), error.kind()), way_out)
}

/// Returns whether the program that `path` leads to is foreign, and what keeps it from being
/// managed.
fn judge(path: &Path, rights: Rights) -> Result<(bool, Option<Obstacle>)> {
    let mut file = path.to_path_buf();
    for _ in 0..=SCRIPT_LEVELS {
        let image = elf::examine(&file);
        let is_foreign = matches!(image, Ok(Image::Foreign(_)));
        let reason = match image {
            Ok(Image::Dynamic | Image::Foreign(_)) => gains_rights(&file, rights),
            Ok(Image::Closed(closed)) => Some(Reason::Closed(closed)),
            Ok(Image::Script(interpreter)) => {
                check_interpreter(&file, &interpreter)?;
                file = interpreter;
                continue;
            }
            Ok(Image::Other) => {
                file = PathBuf::from(SHELL);
                continue;
            }
            Err(error) => Some(Reason::Unreadable(error.kind())),
        };
        return Ok((is_foreign, reason.map(|reason| Obstacle { file, reason })));
    }
    Err(Failure::not_executable(
        format!("{} has more than {SCRIPT_LEVELS} levels of interpreters", path.display()),
        "name a program as the interpreter in its first line",
    ))
}

fn check_interpreter(script: &Path, interpreter: &Path) -> Result<()> {
    let Err(error) = executable(interpreter) else { return Ok(()) };
    let cause = format!("the interpreter {} of {}", interpreter.display(), script.display());
    let way_out = "correct the first line of the script";
    if is_absent(&error) {
        Err(Failure::not_found(format!("{cause} was not found"), way_out))
    } else {
        Err(Failure::not_executable(
            format!("{cause} cannot be executed: {}", error.kind()),
            way_out,
        ))
    }
}

/// Returns the other ids or capabilities that executing `file` takes on, if any.
fn gains_rights(file: &Path, rights: Rights) -> Option<Reason> {
    let metadata = match fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(error) => return Some(Reason::Unreadable(error.kind())),
    };
    let is_nosuid = rustix::fs::statvfs(file)
        .is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::NOSUID));
    if is_nosuid || rights.no_new_privileges {
        return None;
    }
    let capabilities = rustix::fs::getxattr_query(file, "security.capability");
    new_ids(metadata.mode(), metadata.uid(), metadata.gid(), rights).or_else(|| {
        // Capabilities are nothing new for root (capabilities(7), secureexec in
        // security/commoncap.c).
        (rights.uid != 0 && capabilities.is_ok_and(|bytes| bytes > 0))
            .then_some(Reason::Capabilities)
    })
}

/// Returns the ids that the set-id bits of `mode` change for a process with `rights`, if any.
fn new_ids(mode: u32, owner: u32, group: u32, rights: Rights) -> Option<Reason> {
    // Without group-execute, the setgid bit once meant mandatory locking, and changes no id.
    let is_setgid = mode & MODE_SETGID != 0 && mode & MODE_GROUP_EXECUTE != 0;
    if mode & MODE_SETUID != 0 && owner != rights.uid {
        Some(Reason::SetUser(owner))
    } else if is_setgid && group != rights.gid {
        Some(Reason::SetGroup(group))
    } else {
        None
    }
}

fn own_rights() -> Rights {
    Rights {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        no_new_privileges: rustix::thread::no_new_privs().unwrap_or(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const USER: Rights = Rights { uid: 1000, gid: 1000, no_new_privileges: false };

    fn file(directory: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn obstacle(path: &Path, rights: Rights) -> Result<Option<Obstacle>> {
        judge(path, rights).map(|(_, obstacle)| obstacle)
    }

    fn code(found: Result<PathBuf>) -> u8 {
        found.unwrap_err().code
    }

    #[test]
    fn programs_are_found_as_execvp_finds_them() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("first"), directory.path().join("second"));
        fs::create_dir(&first).unwrap();
        fs::create_dir(&second).unwrap();
        file(&first, "tool", "", 0o644);
        fs::create_dir(first.join("folder")).unwrap();
        let good = file(&second, "tool", "", 0o755);
        let path = std::env::join_paths([&first, &second]).unwrap();
        let find = |name: &str, path: &OsStr| search(OsStr::new(name), Some(path));
        // A file that may not be executed is passed over, and reported only when nothing else is
        // found.
        assert_eq!(find("tool", &path).unwrap(), good);
        assert_eq!(code(find("tool", first.as_os_str())), 126);
        assert_eq!(code(find("folder", &path)), 126);
        assert_eq!(code(find("absent", &path)), 127);
        assert_eq!(code(find("", &path)), 127);
        assert_eq!(code(find("/absent/tool", &path)), 127);
        assert_eq!(code(find(first.to_str().unwrap(), &path)), 126);
        assert_eq!(find("sh", OsStr::new("/bin")).unwrap(), Path::new("/bin/sh"));
        assert!(search(OsStr::new("sh"), None).is_ok());
    }

    #[test]
    fn set_id_bits_count_only_when_they_change_something() {
        let root = Rights { uid: 0, gid: 0, no_new_privileges: false };
        assert_eq!(new_ids(0o4755, 0, 0, USER), Some(Reason::SetUser(0)));
        assert_eq!(new_ids(0o4755, 0, 0, root), None);
        assert_eq!(new_ids(0o4755, 1000, 0, USER), None);
        assert_eq!(new_ids(0o2755, 0, 42, USER), Some(Reason::SetGroup(42)));
        assert_eq!(new_ids(0o2745, 0, 42, USER), None);
        assert_eq!(new_ids(0o0755, 0, 0, USER), None);
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let plain = file(directory.path(), "plain", "echo\n", 0o755);
        assert_eq!(obstacle(&plain, USER).unwrap(), None);
        let script = file(directory.path(), "one", "#!/bin/sh\n", 0o755);
        assert_eq!(obstacle(&script, USER).unwrap(), None);
        let text = format!("#!{}\n", script.display());
        let nested = file(directory.path(), "two", &text, 0o755);
        assert_eq!(obstacle(&nested, USER).unwrap(), None);
        let orphan = file(directory.path(), "orphan", "#!/absent/interpreter\n", 0o755);
        assert_eq!(obstacle(&orphan, USER).unwrap_err().code, 127);
        let itself = directory.path().join("loop");
        let text = format!("#!{}\n", itself.display());
        file(directory.path(), "loop", &text, 0o755);
        assert_eq!(obstacle(&itself, USER).unwrap_err().code, 126);
    }

    #[test]
    fn a_setuid_program_is_an_obstacle_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("true");
        fs::copy("/bin/true", &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
        let owner = fs::metadata(&copy).unwrap().uid();
        let other = Rights { uid: owner + 1, ..USER };
        let mount = rustix::fs::statvfs(&copy).unwrap();
        if mount.f_flag.contains(StatVfsMountFlags::NOSUID) {
            eprintln!("skipped: the temporary directory is mounted nosuid");
            return;
        }
        let found = obstacle(&copy, other).unwrap().unwrap().to_string();
        assert!(found.contains(&format!("setuid to uid {owner}")), "{found}");
        let hardened = Rights { no_new_privileges: true, ..other };
        assert_eq!(obstacle(&copy, hardened).unwrap(), None);
    }
}
