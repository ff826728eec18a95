//! The library inside the command, laid out as a file for the duration of a run.
//!
//! Each run makes a fresh directory of its own, so that two versions never meet and no other user
//! can have prepared it. Others may pass through the directory but not list it (0711), and may read
//! the library (0555): the program may have dropped to another user before its child loads it. The
//! directory goes with the run, also when the run fails.
//!
//! Invariants:
//! 1. The path holds none of the characters that `ld.so` splits or expands.
//! 2. The file system allows executing, or the loader could not map the library.

mod leftovers;
#[cfg(test)]
mod symbols;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use coldpress_common::failure::{Failure, Result};
use rustix::fs::StatVfsMountFlags;
use tempfile::TempDir;

use crate::directory::{LIBRARY_NAME, PUT_IN_NAME, directory_prefix};

/// The variable the loader reads (ld.so(8)).
pub(crate) const LD_PRELOAD: &str = "LD_PRELOAD";

/// The library, built by the build script.
pub(crate) static LIBRARY: &[u8] = include_bytes!(env!("COLDPRESS_PRELOAD_PATH"));
/// The longest place. A socket beside the library must fit into `sun_path`, 108 bytes (unix(7)),
/// after the directory's own name of up to 25 bytes.
const PLACE_BYTES_MAX: usize = 64;

/// Directories tried after the user's own runtime directory.
const PLACES: [&str; 3] = ["/tmp", "/dev/shm", "/var/tmp"];

/// The laid-out library. Dropping it removes the directory.
#[derive(Debug)]
pub(crate) struct Preload {
    directory: TempDir,
    library: PathBuf,
    put_in: PathBuf,
}

impl Preload {
    /// Lays the library out in the first place that can hold it.
    pub(crate) fn lay_out() -> Result<Self> {
        let mut refusals = Vec::new();
        for place in places() {
            match Self::lay_out_in(&place) {
                Ok(preload) => return Ok(preload),
                Err(error) => refusals.push(format!("{}: {error}", place.display())),
            }
        }
        Err(Failure::ours(
            format!("no place for the preload library ({})", refusals.join(", ")),
            "make one of these writable and mount it without noexec",
        ))
    }

    fn lay_out_in(place: &Path) -> io::Result<Self> {
        check_place(place)?;
        let prefix = directory_prefix(std::process::id());
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir_in(place)?;
        let library = directory.path().join(LIBRARY_NAME);
        fs::write(&library, LIBRARY)?;
        let put_in = directory.path().join(PUT_IN_NAME);
        fs::hard_link(&library, &put_in)?;
        // The modes are set afterwards, because the umask would take bits away from a mode given at
        // creation.
        fs::set_permissions(&library, fs::Permissions::from_mode(0o555))?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711))?;
        Ok(Self { directory, library, put_in })
    }

    /// Removes what killed launchers of the same user have left beside the directory of this run.
    pub(crate) fn remove_leftovers(&self) {
        leftovers::remove(self.directory().parent().expect("it was made in a place"));
    }

    /// Returns the directory of this run, for a socket beside the library.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the library's two names: for glibc's loader, and for programs into which the
    /// launcher puts it.
    pub(crate) fn names(&self) -> [&Path; 2] {
        [&self.library, &self.put_in]
    }

    /// Returns the value of LD_PRELOAD: our library first, then the existing entries, which the
    /// library gives back to the program. Leaves out `former`, the library of a run that is over.
    pub(crate) fn ld_preload(&self, existing: Option<&OsStr>, former: Option<&Path>) -> OsString {
        let mut value = self.library.clone().into_os_string();
        let Some(existing) = existing else { return value };
        let is_former = |entry: &OsStr| former.is_some_and(|former| former.as_os_str() == entry);
        if !listed(existing).any(is_former) {
            value.push(":");
            value.push(existing);
            return value;
        }
        for entry in listed(existing).filter(|entry| !is_former(entry)) {
            value.push(":");
            value.push(entry);
        }
        value
    }
}

/// Returns the entries of an LD_PRELOAD, which spaces or colons separate (ld.so(8)).
pub(crate) fn listed(value: &OsStr) -> impl Iterator<Item = &OsStr> {
    let entries = value.as_bytes().split(|byte| matches!(byte, b' ' | b':'));
    entries.filter(|entry| !entry.is_empty()).map(OsStr::from_bytes)
}

/// Returns the places in the order of trial. The user's runtime directory is closed to all others,
/// which is right except for root, whose programs drop to other users.
fn places() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let own = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|directory| {
        // After `su` the variable may still name another user's.
        uid != 0 && fs::metadata(directory).is_ok_and(|metadata| metadata.uid() == uid)
    });
    own.into_iter().chain(PLACES.map(PathBuf::from)).collect()
}

/// Checks that `place` fits invariants 1 and 2, and leaves room for a socket's path.
fn check_place(place: &Path) -> io::Result<()> {
    let splits = |byte: &u8| matches!(byte, b' ' | b':' | b'$');
    if !place.is_absolute() || place.as_os_str().as_bytes().iter().any(splits) {
        return Err(io::Error::other("the path is relative or has a space, \":\" or \"$\""));
    }
    if place.as_os_str().len() > PLACE_BYTES_MAX {
        return Err(io::Error::other("the path is too long for a socket"));
    }
    if rustix::fs::statvfs(place)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::Error::other("mounted noexec"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::is_directory_name;

    #[test]
    fn the_library_is_laid_out_readable_for_all_and_removed_again() {
        let place = tempfile::tempdir().unwrap();
        let preload = Preload::lay_out_in(place.path()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(preload.directory()), 0o711);
        assert_eq!(mode(&preload.library), 0o555);
        assert!(is_directory_name(preload.directory().file_name().unwrap()));
        assert_eq!(fs::read(&preload.library).unwrap(), LIBRARY);
        drop(preload);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_was_preloaded_stays_behind_ours() {
        let place = tempfile::tempdir().unwrap();
        let preload = Preload::lay_out_in(place.path()).unwrap();
        let ours = preload.library.as_os_str();
        assert_eq!(preload.ld_preload(None, None), ours);
        let empty = format!("{}:", ours.display());
        assert_eq!(preload.ld_preload(Some(OsStr::new("")), None), OsStr::new(&empty));
        let existing = Some(OsStr::new("/a.so b.so::/old/libcoldpress.so"));
        let all = format!("{}:/a.so b.so::/old/libcoldpress.so", ours.display());
        assert_eq!(preload.ld_preload(existing, None), OsStr::new(&all));
        let fewer = format!("{}:/a.so:b.so", ours.display());
        let former = Some(Path::new("/old/libcoldpress.so"));
        assert_eq!(preload.ld_preload(existing, former), OsStr::new(&fewer));
    }

    #[test]
    fn places_the_loader_could_not_read_are_refused() {
        let place = tempfile::tempdir().unwrap();
        for name in ["a b", "a:b", "$LIB"] {
            let directory = place.path().join(name);
            fs::create_dir(&directory).unwrap();
            assert!(Preload::lay_out_in(&directory).is_err(), "{name}");
        }
        assert!(Preload::lay_out_in(Path::new("/absent")).is_err());
        assert!(Preload::lay_out_in(Path::new("relative")).is_err());
        assert!(check_place(Path::new("/tmp/").join("x".repeat(64)).as_path()).is_err());
    }

    #[test]
    fn a_place_mounted_noexec_is_refused() {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let noexec = mounts.lines().find_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            fields[3].split(',').any(|option| option == "noexec").then(|| fields[1].to_owned())
        });
        let Some(mount_point) = noexec else {
            eprintln!("skipped: nothing is mounted noexec here");
            return;
        };
        assert!(check_place(Path::new(&mount_point)).is_err(), "{mount_point}");
    }
}
