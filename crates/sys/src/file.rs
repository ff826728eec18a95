//! Files: an unnamed spill file, written and read at offsets.

use core::ffi::CStr;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Advice, FallocateFlags, FlockOperation, Mode, OFlags, StatVfs};

use crate::errno;
use crate::error::{SysError, SysResult};
use crate::page::Bytes;
use crate::proc::write_path;

/// Writes `text` to the standard error of `process`, as far as that file accepts it.
pub fn append_to_stderr_of(process: u32, text: &[u8]) {
    let mut path = [0; 32];
    write_path(&mut path, b"/proc/", process, b"/fd/2\0");
    let path = CStr::from_bytes_until_nul(&path).unwrap_or_default();
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) {
        let _ = rustix::io::write(&file, text);
    }
}

/// A file used as numbered bytes. It is closed on drop; an unnamed file is then gone.
#[derive(Debug)]
pub struct SpillFile {
    fd: OwnedFd,
}

impl SpillFile {
    /// Makes a spill file of an open file, for example one that another process handed over.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Makes an unnamed file of mode 0600 in `directory`. Fails with `EOPNOTSUPP` where the file
    /// system has no unnamed files.
    pub fn unnamed_in(directory: &core::ffi::CStr) -> SysResult<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)
            .map(|fd| Self { fd })
            .map_err(SysError::of("open(O_TMPFILE)"))
    }

    /// Opens the file that `process` has open as `descriptor`, for reading, and keeps it lent
    /// ([`SpillFile::is_lent`]) until all copies of this descriptor are closed. Fails with `EACCES`
    /// where this process may not open it, with `ENOENT` without /proc.
    pub fn lent_by(process: u32, descriptor: i32) -> SysResult<Self> {
        let mut path = [0; 64];
        let length = write_path(&mut path, b"/proc/", process, b"/fd/");
        write_path(&mut path[length..], b"", descriptor.unsigned_abs(), b"\0");
        let path = CStr::from_bytes_until_nul(&path).unwrap_or_default();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(SysError::of("open"))?;
        rustix::fs::flock(&fd, FlockOperation::NonBlockingLockShared)
            .map_err(SysError::of("flock"))?;
        Ok(Self { fd })
    }

    /// Returns whether another process has the file from [`SpillFile::lent_by`]. Such a process
    /// holds a lock on it (flock(2)), which ends with the last copy of its descriptor, however the
    /// process ends.
    pub fn is_lent(&self) -> bool {
        match rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let _ = rustix::fs::flock(&self.fd, FlockOperation::NonBlockingUnlock);
                false
            }
            Err(_) => true,
        }
    }

    /// Hands the file over as its descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Writes all of `bytes` at `offset`. Fails with `ENOSPC` when the disk is full: nothing
    /// written can be relied on then.
    pub fn write_all_at(&self, mut bytes: &[u8], mut offset: Bytes) -> SysResult<()> {
        while !bytes.is_empty() {
            match rustix::io::pwrite(&self.fd, bytes, offset.0 as u64) {
                Ok(0) => return Err(SysError { call: "pwrite", errno: errno::EIO }),
                Ok(count) => {
                    bytes = &bytes[count..];
                    offset += Bytes(count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(SysError::of("pwrite")(errno)),
            }
        }
        Ok(())
    }

    /// Reads exactly `bytes.len()` bytes at `offset`. Fails with `EIO` when the file ends before.
    pub fn read_exact_at(&self, mut bytes: &mut [u8], mut offset: Bytes) -> SysResult<()> {
        while !bytes.is_empty() {
            match rustix::io::pread(&self.fd, &mut *bytes, offset.0 as u64) {
                Ok(0) => return Err(SysError { call: "pread", errno: errno::EIO }),
                Ok(count) => {
                    bytes = &mut bytes[count..];
                    offset += Bytes(count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(SysError::of("pread")(errno)),
            }
        }
        Ok(())
    }

    /// Returns the disk blocks of `offset..offset + length` to the file system. Fails with
    /// `EOPNOTSUPP` where files have no holes.
    pub fn punch_hole(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.fd, flags, offset.0 as u64, length.0 as u64)
            .map_err(SysError::of("fallocate"))
    }

    /// Asks the kernel to begin writing `offset..offset + length` to the disk, without waiting, so
    /// that the bytes stop counting as dirty memory. This is only a hint: a refusal changes
    /// nothing.
    ///
    /// `POSIX_FADV_DONTNEED` starts the write-out of dirty pages and drops clean ones (the kernel's
    /// mm/fadvise.c). It does what `SYNC_FILE_RANGE_WRITE` does, by a call that rustix offers.
    pub fn start_write_out(&self, offset: Bytes, length: Bytes) {
        if let Some(length) = core::num::NonZeroU64::new(length.0 as u64) {
            let _ = rustix::fs::fadvise(&self.fd, offset.0 as u64, Some(length), Advice::DontNeed);
        }
    }

    /// Returns the free space of the file's file system that this user may take.
    pub fn space_available(&self) -> SysResult<Bytes> {
        let stat: StatVfs = rustix::fs::fstatvfs(&self.fd).map_err(SysError::of("fstatvfs"))?;
        Ok(Bytes(stat.f_bavail.saturating_mul(stat.f_frsize) as usize))
    }
}

impl AsFd for SpillFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_the_end_is_an_error() {
        let file = SpillFile::unnamed_in(c"/var/tmp").unwrap();
        file.write_all_at(b"coldpress", Bytes(4096)).unwrap();
        let mut back = [0; 9];
        file.read_exact_at(&mut back, Bytes(4096)).unwrap();
        assert_eq!(&back, b"coldpress");
        assert_eq!(file.read_exact_at(&mut back, Bytes(4097)).unwrap_err().errno, errno::EIO);
        assert!(file.space_available().unwrap() > Bytes(0));
    }
}
