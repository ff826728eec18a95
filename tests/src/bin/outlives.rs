//! Memory that outlives the process whose service served it: `outlives clone|vfork MEBIBYTES FILE`.
//!
//! Fills memory, then lets a child that shares it go on when this process has ended, and read it: a
//! child of `clone` when this process returns, or one of `vfork` that kills this process. The child
//! writes a word to FILE: `right` if it could read all, `sigbus` if a signal reported that it
//! cannot, or `wrong` if a byte differed.

use std::env;
use std::ffi::{CString, c_int, c_void};
use std::io::{Error, Result};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

/// Time that the child waits for the end of this process, and for the end of its service.
const WAIT_US: libc::useconds_t = 900_000;
const STACK_BYTES: usize = 256 << 10;

static FILE: AtomicI32 = AtomicI32::new(-1);
static START: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);

fn byte(at: usize) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7] | 1
}

/// Writes the word and ends: by system calls alone, because the process that libc knows has ended.
fn end(word: &[u8]) -> ! {
    // SAFETY: the word lives through the call, and the descriptor is the file's.
    unsafe {
        libc::write(FILE.load(Ordering::Relaxed), word.as_ptr().cast(), word.len());
        libc::_exit(0);
    }
}

extern "C" fn on_sigbus(_: c_int) {
    end(b"sigbus");
}

/// Does the work of the child.
fn check() -> ! {
    // SAFETY: a plain system call.
    unsafe { libc::usleep(WAIT_US) };
    let start = START.load(Ordering::Relaxed);
    for at in (0..LENGTH.load(Ordering::Relaxed)).step_by(509) {
        // SAFETY: all of it was written by the process that shares its memory with this one.
        if unsafe { start.add(at).read_volatile() } != byte(at) {
            end(b"wrong");
        }
    }
    end(b"right")
}

extern "C" fn child(_: *mut c_void) -> c_int {
    check()
}

fn main() -> Result<()> {
    let mut words = env::args().skip(1);
    let mut next = || words.next().ok_or_else(|| Error::other("a word is missing"));
    let (way, mebibytes, file) = (next()?, next()?, next()?);
    let length = mebibytes.parse::<usize>().map_err(Error::other)? << 20;
    let file = CString::new(file)?;
    // SAFETY: the path is a C string; the handler only makes system calls.
    unsafe {
        FILE.store(libc::open(file.as_ptr(), libc::O_WRONLY), Ordering::Relaxed);
        libc::signal(libc::SIGBUS, on_sigbus as *const () as libc::sighandler_t);
    }
    let memory: &'static mut [u8] = vec![0; length].leak();
    for (at, place) in memory.iter_mut().enumerate() {
        *place = byte(at);
    }
    START.store(memory.as_mut_ptr(), Ordering::Relaxed);
    LENGTH.store(length, Ordering::Relaxed);
    let own = std::process::id().cast_signed();
    if way == "clone" {
        let stack: &'static mut [u8] = vec![1; STACK_BYTES].leak();
        let flags = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::SIGCHLD;
        // SAFETY: the stack is the child's alone, and its end is aligned; this process ends at once
        // and leaves the memory as it is.
        unsafe {
            let top = stack.as_mut_ptr().add(STACK_BYTES - 64);
            let top = top.wrapping_sub(top as usize % 64);
            if libc::clone(child, top.cast(), flags, ptr::null_mut()) < 0 {
                return Err(Error::last_os_error());
            }
            libc::_exit(0);
        }
    }
    // SAFETY: the child only makes system calls and reads, and this process never goes on.
    #[expect(deprecated, reason = "a child that shares memory is what this is about")]
    if unsafe { libc::vfork() } == 0 {
        // SAFETY: a plain system call.
        unsafe { libc::kill(own, libc::SIGKILL) };
        check();
    }
    Err(Error::other("the parent of vfork was not killed"))
}
