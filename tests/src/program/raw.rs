//! The system calls on memory that the target programs make, with errors as `io::Error`.
//!
//! # Safety
//! All functions here act on raw address ranges. The caller owns the range, and holds no Rust
//! reference into it across the call.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "a thin skin over libc: every function is unsafe to call wrongly and says so"
)]
#![allow(clippy::missing_safety_doc, reason = "the module says it once")]

use std::ffi::c_int;
use std::io;
use std::ptr;

/// Maps private anonymous memory, readable and writable.
pub fn map(bytes: usize) -> io::Result<usize> {
    unsafe { map_at(0, bytes, libc::PROT_READ | libc::PROT_WRITE, 0) }
}

/// Maps private anonymous memory at a hint or, with `MAP_FIXED` in `flags`, over what is there.
pub unsafe fn map_at(addr: usize, bytes: usize, prot: c_int, flags: c_int) -> io::Result<usize> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let at = unsafe { libc::mmap(ptr::without_provenance_mut(addr), bytes, prot, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(at.expose_provenance())
    }
}

/// Unmaps whole pages.
pub unsafe fn unmap(addr: usize, bytes: usize) -> io::Result<()> {
    checked(unsafe { libc::munmap(pointer(addr).cast(), bytes) }).map(drop)
}

/// Calls `mremap`; `to` is used with `MREMAP_FIXED` only.
pub unsafe fn remap(
    addr: usize,
    old: usize,
    new: usize,
    flags: c_int,
    to: usize,
) -> io::Result<usize> {
    let at = unsafe { libc::mremap(pointer(addr).cast(), old, new, flags, pointer(to)) };
    if at == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(at.expose_provenance())
    }
}

/// Calls `madvise`.
pub unsafe fn advise(addr: usize, bytes: usize, advice: c_int) -> io::Result<()> {
    checked(unsafe { libc::madvise(pointer(addr).cast(), bytes, advice) }).map(drop)
}

/// Calls `mprotect`.
pub unsafe fn protect(addr: usize, bytes: usize, prot: c_int) -> io::Result<()> {
    checked(unsafe { libc::mprotect(pointer(addr).cast(), bytes, prot) }).map(drop)
}

/// Makes a pointer from an address that some mapping call gave.
#[must_use]
pub fn pointer(addr: usize) -> *mut u8 {
    ptr::with_exposed_provenance_mut(addr)
}

/// Checks a libc result: -1 becomes the error of `errno`.
pub fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Checks a libc byte count: -1 becomes the error of `errno`.
pub fn counted(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Returns the bytes of a mapping.
pub unsafe fn bytes<'a>(addr: usize, length: usize) -> &'a [u8] {
    unsafe { std::slice::from_raw_parts(pointer(addr), length) }
}

/// Returns the bytes of a mapping, to write.
pub unsafe fn bytes_mut<'a>(addr: usize, length: usize) -> &'a mut [u8] {
    unsafe { std::slice::from_raw_parts_mut(pointer(addr), length) }
}

/// Counts the pages of the range that are in memory, without touching them (`mincore`).
pub unsafe fn resident_pages(addr: usize, bytes: usize) -> io::Result<usize> {
    let mut states = vec![0u8; bytes.div_ceil(super::PAGE)];
    checked(unsafe { libc::mincore(pointer(addr).cast(), bytes, states.as_mut_ptr()) })?;
    Ok(states.iter().filter(|state| **state & 1 != 0).count())
}
