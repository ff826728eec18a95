//! Waiting on a word of memory.

use core::sync::atomic::AtomicU32;

use linux_raw_sys::general as linux;

use crate::raw;

/// Waits until `word` is woken, is not `expected`, or `timeout_ns` has passed (`None`: for ever).
/// May return early.
pub fn wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) {
    let time = timeout_ns.map(|ns| [ns / 1_000_000_000, ns % 1_000_000_000]);
    let pointer = time.as_ref().map_or(0, |time| time.as_ptr() as usize);
    // SAFETY: the word lives through the call; the timeout is a struct timespec or null. Not
    // FUTEX_PRIVATE, because the kernel's own wake at thread exit is not.
    unsafe {
        let operation = linux::FUTEX_WAIT as usize;
        let arguments = [word.as_ptr() as usize, operation, expected as usize, pointer, 0, 0];
        raw::syscall(linux::__NR_futex, arguments);
    }
}

/// Wakes all threads that wait on `word`.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: waking touches no memory of ours.
    unsafe {
        let operation = linux::FUTEX_WAKE as usize;
        let arguments = [word.as_ptr() as usize, operation, i32::MAX as usize, 0, 0, 0];
        raw::syscall(linux::__NR_futex, arguments);
    }
}
