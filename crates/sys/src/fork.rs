//! Children as programs make them, by libc's `fork`: for the command, and for programs of ours that
//! are measured. The only thing here that needs a libc, so the runtime must not use it.

use core::ffi::c_int;

use rustix::process::Pid;

use crate::error::{SysError, SysResult};
use crate::page::Page;

unsafe extern "C" {
    /// fork(2), with the handlers of pthread_atfork(3).
    fn fork() -> c_int;
    /// _exit(2).
    fn _exit(status: c_int) -> !;
    /// Where errno(3) is.
    fn __errno_location() -> *mut c_int;
}

/// Makes a child that does `work` on its copy of `pages`, and ends with what that returns as its
/// status. In a program of several threads, `work` must take no lock and no memory: a lock that
/// another thread had stays taken in the child. The parent gets the child's number, to wait for.
pub fn fork_with(work: fn(&mut [Page]) -> u8, pages: &mut [Page]) -> SysResult<Pid> {
    // SAFETY: fork(2) asks for nothing. The child goes on with a copy of everything, does `work`,
    // which holds nothing but these pages, and ends: it never returns into code of the parent.
    match unsafe { fork() } {
        0 => {
            let status = c_int::from(work(pages));
            // SAFETY: it only ends the process, without handlers and without writing out buffers.
            unsafe { _exit(status) }
        }
        number if number > 0 => Ok(Pid::from_raw(number).expect("it is not zero")),
        // SAFETY: it is this thread's own variable.
        _ => Err(SysError { call: "fork", errno: unsafe { *__errno_location() } }),
    }
}

/// Makes a child, in which the call returns `None`; its parent gets its number. Refused in a
/// process with other threads (EBUSY): the child would not have them, but the locks they hold.
pub fn fork_here() -> SysResult<Option<Pid>> {
    const EBUSY: i32 = 16;
    // A directory for each, beside "." and "..": proc(5).
    let threads =
        rustix::fs::stat("/proc/self/task").map_err(SysError::of("stat(/proc)"))?.st_nlink;
    if threads != 3 {
        return Err(SysError { call: "clone", errno: EBUSY });
    }
    // SAFETY: fork(2) asks for nothing, and no other thread has anything that the child would miss.
    match unsafe { fork() } {
        0 => Ok(None),
        number if number > 0 => Ok(Pid::from_raw(number)),
        // What libc's fork calls. SAFETY: it is this thread's own variable.
        _ => Err(SysError { call: "clone", errno: unsafe { *__errno_location() } }),
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a child that goes on as its parent, or does not see its memory.
    use super::*;
    use crate::PAGE_BYTES;
    use rustix::process::{WaitOptions, waitpid};

    #[test]
    fn a_child_works_on_a_copy_and_ends_with_what_it_found() {
        let mut pages = [[7; PAGE_BYTES]; 2];
        let work = |pages: &mut [Page]| {
            pages[1][0] += 1;
            pages[0][0] + pages[1][0]
        };
        let child = fork_with(work, &mut pages).unwrap();
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(15));
        assert_eq!(pages[1][0], 7);
    }
}
