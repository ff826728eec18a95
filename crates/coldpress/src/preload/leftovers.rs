//! Directories of launchers that were killed and could not tidy up. A later run of the same user
//! removes them.
//!
//! Programs that went on without their launcher keep the library that they have loaded. What they
//! execute afterwards runs without it, as when a launcher ends before its programs.

use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::directory::{SOCKET_NAME, is_directory_name};

/// The age below which a directory stays. A launcher listens within milliseconds after it has made
/// its directory.
const AGE_MIN: Duration = Duration::from_secs(60);

/// Removes from `place` the directories of runs whose launcher no longer listens. What cannot be
/// examined or removed stays.
pub(crate) fn remove(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if is_directory_name(&entry.file_name()) && is_left(&entry) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns whether this is a directory of our user, old enough, in which no launcher listens.
fn is_left(entry: &DirEntry) -> bool {
    let Ok(metadata) = entry.metadata() else { return false };
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    let is_old = metadata
        .modified()
        .is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age >= AGE_MIN));
    metadata.is_dir() && is_ours && is_old && !listens(&entry.path().join(SOCKET_NAME))
}

/// Returns whether a launcher listens at `socket`, also in another container, or that is unknown.
fn listens(socket: &Path) -> bool {
    // A launcher's socket is of another type, so this does not wake the launcher (EPROTOTYPE,
    // connect(2)).
    match UnixStream::connect(socket) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound),
    }
}

#[cfg(test)]
mod tests {
    //! The risk: the directory of a run that goes on is removed, or another user's; or the
    //! leftovers of killed launchers fill up a machine.

    use std::ffi::CString;
    use std::time::SystemTime;

    use coldpress_sys::net;

    use super::*;

    /// Makes a directory in `place` that was last changed an hour ago.
    fn directory(place: &Path, name: &str, prepare: impl FnOnce(&Path)) {
        let path = place.join(name);
        fs::create_dir(&path).unwrap();
        prepare(&path);
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        fs::File::open(&path).unwrap().set_modified(hour_ago).unwrap();
    }

    fn listener(path: &Path) -> coldpress_sys::OwnedFd {
        let path = CString::new(path.join(SOCKET_NAME).as_os_str().as_encoded_bytes()).unwrap();
        net::listen(&path).unwrap()
    }

    fn names(place: &Path) -> Vec<String> {
        let entries = fs::read_dir(place).unwrap().map(Result::unwrap);
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_nobody_listens_in_goes_and_all_else_stays() {
        let place = tempfile::tempdir().unwrap();
        let mut live = None;
        directory(place.path(), "coldpress-1-abcdef", |path| live = Some(listener(path)));
        directory(place.path(), "coldpress-2-abcdef", |path| {
            fs::write(path.join("libcoldpress.so"), "library").unwrap();
            drop(listener(path));
        });
        directory(place.path(), "coldpress-3-abcdef", |_| {});
        for name in ["coldpress-test-abcdef", "coldpress-4", "coldpress-5-abcdefg", "other"] {
            directory(place.path(), name, |_| {});
        }
        fs::create_dir(place.path().join("coldpress-6-abcdef")).unwrap();
        fs::write(place.path().join("coldpress-7-abcdef"), "a file").unwrap();
        remove(place.path());
        let left = [
            "coldpress-1-abcdef",
            "coldpress-4",
            "coldpress-5-abcdefg",
            "coldpress-6-abcdef",
            "coldpress-7-abcdef",
            "coldpress-test-abcdef",
            "other",
        ];
        assert_eq!(names(place.path()), left);
        drop(live);
        remove(place.path());
        assert_eq!(names(place.path()), left[1..]);
        remove(Path::new("/absent"));
    }
}
