//! Programs, scratch places and fixtures: what the machine lends a test, and gets back.
//!
//! Invariant: a value holds whatever a test makes outside its process, and the value's drop removes
//! it. So a failed test leaves the machine as a passed one does.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

/// Returns the root folder of the workspace.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the path of the built command: `COLDPRESS_BIN`, else the one that `make build` leaves.
///
/// # Panics
/// When there is none.
pub fn coldpress() -> PathBuf {
    let named = env::var_os("COLDPRESS_BIN").map(PathBuf::from);
    let path = named.unwrap_or_else(|| workspace().join("target/release/coldpress"));
    assert!(path.is_file(), "{} is missing: run 'make build'", path.display());
    path
}

/// Returns the path of a file in the folder `fixtures`.
///
/// # Panics
/// When there is no file of that name.
pub fn fixture(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    assert!(path.is_file(), "no fixture {}", path.display());
    path
}

/// Returns the path of a file of the workspace, by its path from the top.
///
/// # Panics
/// When there is none.
pub fn workspace_file(name: &str) -> PathBuf {
    let path = workspace().join(name);
    assert!(path.is_file(), "{} is missing", path.display());
    path
}

/// Finds the program `name` in `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(is_program)
}

/// Finds the program `name`. Returns `None` with a printed line if it is missing: the test is then
/// skipped.
///
/// # Panics
/// When the program is missing and `CI=true`: there everything must be installed.
pub fn require(name: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        skip(&format!("{name} is not installed"));
    }
    found
}

/// Prints that a test is skipped, and why.
///
/// # Panics
/// With `CI=true`: there nothing may be skipped for lack of a program.
pub fn skip(reason: &str) {
    assert!(!env::var("CI").is_ok_and(|ci| ci == "true"), "CI must not skip: {reason}");
    println!("skipped: {reason}");
}

/// Returns whether this process is root, which some tests need. Prints a line when it is not.
pub fn is_root() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// Finds a process that runs the script `file`, the second word of its command line. In the
/// processes around it, the script is a later word.
pub fn running(file: &Path) -> Option<u32> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.find(|process: &u32| {
        let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(file.as_os_str().as_encoded_bytes())
    })
}

/// Sends `signal` (its name without SIG) to the processes or threads `targets`.
pub fn signal(signal: &str, targets: &[u32]) {
    let mut command = Command::new("sh");
    command.args(["-c", "kill -\"$@\"", "sh", signal]);
    command.args(targets.iter().map(u32::to_string));
    // A target that is already gone is what the caller wanted.
    drop(command.stdout(Stdio::null()).stderr(Stdio::null()).status());
}

/// A directory of the test's own, writable by everyone, removed with all it holds.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a new directory; `name` helps to recognise it.
    ///
    /// # Panics
    /// When the temporary directory refuses.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: only the number's uniqueness matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let unique = format!("coldpress-test-{}-{number}-{name}", std::process::id());
        let path = env::temp_dir().join(unique);
        fs::create_dir(&path).expect("the temporary directory takes a new one");
        // Tests that drop to another user let that user write here too.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("it is ours");
        Self(path)
    }

    /// Returns a path inside.
    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.0.join(name.as_ref())
    }

    /// Writes `contents` into a file inside, and returns the file's path.
    ///
    /// # Panics
    /// When the disk refuses.
    pub fn write(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, contents).expect("the scratch directory takes files");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A small tmpfs of the test's own, unmounted at the end.
#[derive(Debug)]
pub struct TinyDisk {
    scratch: Scratch,
}

impl TinyDisk {
    /// Mounts a tmpfs of `size` (as mount(8) takes it); `None` with a printed line where that is
    /// refused.
    pub fn mount(size: &str) -> Option<Self> {
        let scratch = Scratch::new("disk");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size},mode=1777"), "coldpress-test"]);
        if command.arg(&scratch.0).stderr(Stdio::null()).status().is_ok_and(|done| done.success()) {
            return Some(Self { scratch });
        }
        println!("skipped: mounting is not allowed here");
        None
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.scratch.0
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        // Lazy: a program that still holds a file there must not keep the mount.
        drop(Command::new("umount").arg("-l").arg(self.path()).status());
    }
}

/// A kernel setting changed for the time of a test.
#[derive(Debug)]
pub struct Setting {
    path: PathBuf,
    before: String,
}

impl Setting {
    /// Writes `value` to the file `path` below /proc/sys; `None` where that is refused.
    pub fn set(path: &str, value: &str) -> Option<Self> {
        let path = PathBuf::from(path);
        let before = fs::read_to_string(&path).ok()?;
        fs::write(&path, value).ok()?;
        Some(Self { path, before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if fs::write(&self.path, self.before.trim()).is_err() {
            eprintln!("could not restore {} to {}", self.path.display(), self.before.trim());
        }
    }
}
