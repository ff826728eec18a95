//! The directory for written-back pages: can it hold an unnamed file, and is it on a disk at all?

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use coldpress_sys::Bytes;
use coldpress_sys::errno::ENOENT;
use coldpress_sys::file::SpillFile;
use coldpress_sys::{OwnedFd, SysError};

/// File systems that live in memory, by `f_type` (statfs(2)): tmpfs and ramfs.
const TMPFS_MAGIC: u32 = 0x0102_1994;
const RAMFS_MAGIC: u32 = 0x8584_58f6;

/// The use of a directory for written-back pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// A directory on a disk, with this much free.
    Usable(Bytes),
    /// A file system in memory, with this much free.
    IsMemory(Bytes),
    /// A directory in which no unnamed file can be made.
    Unusable(SysError),
}

/// Tries `directory` by making an unnamed file in it.
pub(crate) fn examine(directory: &Path) -> Disk {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else {
        // A path with a zero byte cannot come from a command line; the kernel would call it
        // unknown.
        return Disk::Unusable(SysError { call: "open", errno: ENOENT });
    };
    let free = match SpillFile::unnamed_in(&path).and_then(|file| file.space_available()) {
        Ok(free) => free,
        Err(error) => return Disk::Unusable(error),
    };
    let kind = rustix::fs::statfs(directory).map_or(0, |mount| mount.f_type as u32);
    if matches!(kind, TMPFS_MAGIC | RAMFS_MAGIC) {
        Disk::IsMemory(free)
    } else {
        Disk::Usable(free)
    }
}

/// Returns the free space of the disk less 5 %, which are left to others.
pub(crate) fn most_of_free_space(directory: &Path) -> Bytes {
    let free = rustix::fs::statvfs(directory)
        .map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) as usize)
        .unwrap_or(0);
    Bytes(free / 100 * 95)
}

/// Makes an unnamed file for the pages of one process.
pub(crate) fn make_spill(directory: &Path) -> Option<OwnedFd> {
    let name = CString::new(directory.as_os_str().as_bytes()).ok()?;
    SpillFile::unnamed_in(&name).ok().map(SpillFile::into_fd)
}

/// Returns the warning about a directory in memory.
pub(crate) fn memory_warning(directory: &Path) -> String {
    format!("{} is tmpfs, which is memory: pages written there free nothing", directory.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_told_apart() {
        assert!(
            matches!(examine(Path::new("/absent")), Disk::Unusable(error) if error.errno == ENOENT)
        );
        assert!(matches!(examine(Path::new("/proc")), Disk::Unusable(_)));
        let shared_memory = Path::new("/dev/shm");
        match rustix::fs::statfs(shared_memory) {
            Ok(mount) if mount.f_type as u32 == TMPFS_MAGIC => {
                assert!(matches!(examine(shared_memory), Disk::IsMemory(_)));
            }
            _ => eprintln!("skipped: no tmpfs at /dev/shm"),
        }
    }
}
