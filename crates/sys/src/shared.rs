//! Memory shared between processes through a descriptor.

use core::ffi::CStr;
use core::ptr::NonNull;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::errno;
use crate::error::{SysError, SysResult};
use crate::map::hint;
use crate::page::Bytes;

/// Makes `length` bytes of zeroed memory that can be handed to other processes. `name` shows in
/// /proc.
pub fn create(name: &CStr, length: Bytes) -> SysResult<OwnedFd> {
    let fd = create_open(name, length)?;
    seal(fd.as_fd(), SealFlags::empty())?;
    Ok(fd)
}

fn create_open(name: &CStr, length: Bytes) -> SysResult<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create(name, flags).map_err(SysError::of("memfd_create"))?;
    rustix::fs::ftruncate(&fd, length.0 as u64).map_err(SysError::of("ftruncate"))?;
    Ok(fd)
}

/// Seals the length, and what `more` says, for ever. Otherwise a process that shortens the memory
/// could raise SIGBUS in those that have it mapped, and one that adds a seal could keep others from
/// mapping it.
fn seal(fd: BorrowedFd<'_>, more: SealFlags) -> SysResult<()> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | more;
    rustix::fs::fcntl_add_seals(fd, seals).map_err(SysError::of("fcntl(F_ADD_SEALS)"))
}

/// A mapping of shared memory that holds one `T` of atomics.
#[derive(Debug)]
pub struct Shared<T: 'static> {
    place: NonNull<T>,
}

// SAFETY: `map` requires `T: Sync`, and the mapping itself never moves.
unsafe impl<T: Sync> Send for Shared<T> {}
// SAFETY: a reference gives a `&T`, and `T: Sync` may be shared so.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T: Sync> Shared<T> {
    /// Maps `fd`, which must be at least as long as a `T`.
    ///
    /// # Safety
    /// A `T` must be valid for every bit pattern, and must consist of atomics only, as other
    /// processes write to it.
    pub unsafe fn map(fd: BorrowedFd<'_>) -> SysResult<Self> {
        // SAFETY: the caller promises that any bits are a `T` of atomics.
        unsafe { Self::map_as(fd, ProtFlags::READ | ProtFlags::WRITE) }
    }

    /// Makes memory for one `T`, all zeros, that only this mapping can write to. A process that
    /// gets the descriptor can map it by [`Shared::map_to_read`], and not otherwise
    /// (`F_SEAL_FUTURE_WRITE` of fcntl(2)).
    ///
    /// # Safety
    /// As for [`Shared::map`].
    pub unsafe fn create_to_be_read(name: &CStr) -> SysResult<(OwnedFd, Self)> {
        let fd = create_open(name, Bytes(size_of::<T>()))?;
        // SAFETY: the caller promises that any bits are a `T` of atomics, so zeros are.
        let shared = unsafe { Self::map(fd.as_fd())? };
        seal(fd.as_fd(), SealFlags::FUTURE_WRITE)?;
        Ok((fd, shared))
    }

    /// Maps `fd` as [`Shared::map`] does, but only to be read: a store to it is a fault that ends
    /// the process.
    ///
    /// # Safety
    /// As for [`Shared::map`].
    pub unsafe fn map_to_read(fd: BorrowedFd<'_>) -> SysResult<Self> {
        // SAFETY: the caller promises that any bits are a `T` of atomics.
        unsafe { Self::map_as(fd, ProtFlags::READ) }
    }

    /// Maps `fd` with this protection.
    ///
    /// # Safety
    /// As for [`Shared::map`].
    unsafe fn map_as(fd: BorrowedFd<'_>, protection: ProtFlags) -> SysResult<Self> {
        let size = rustix::fs::fstat(fd).map_err(SysError::of("fstat"))?.st_size;
        if (size as usize) < size_of::<T>() {
            return Err(SysError { call: "fstat(shared memory)", errno: errno::EINVAL });
        }
        let length = size_of::<T>();
        // SAFETY: a new mapping where there is none, of a file that is long enough.
        let pointer =
            unsafe { mmap(hint(length), length, protection, MapFlags::SHARED, fd.as_fd(), 0) }
                .map_err(SysError::of("mmap"))?;
        // A child of `fork` joins by itself, under its own name.
        // SAFETY: the advice changes no contents of the mapping just made.
        let _ = unsafe { madvise(pointer, size_of::<T>(), Advice::LinuxDontFork) };
        let place = NonNull::new(pointer.cast()).expect("mmap returns no null");
        Ok(Self { place })
    }
}

impl<T> core::ops::Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the mapping lives as long as `self`, and `map` was promised that any bits are a
        // `T`.
        unsafe { self.place.as_ref() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference outlives `self`.
        let _ = unsafe { munmap(self.place.as_ptr().cast(), size_of::<T>()) };
    }
}
