//! Children as programs make them, by libc's `fork`: for the command, and for our own programs that
//! are measured. This is the only module that needs a libc, so the runtime must not use it.

use core::ffi::c_int;

use rustix::process::Pid;

use crate::errno;
use crate::error::{SysError, SysResult};
use crate::page::Page;

unsafe extern "C" {
    /// Forks as fork(2) does, and runs the handlers of pthread_atfork(3).
    fn fork() -> c_int;
    /// Ends the process as _exit(2) does.
    fn _exit(status: c_int) -> !;
    /// Returns where errno(3) is.
    fn __errno_location() -> *mut c_int;
}

/// Makes a child that runs `work` on its copy of `pages` and ends with the result as its status. In
/// a program of several threads, `work` must take no lock and allocate nothing: a lock that another
/// thread held stays taken in the child. The parent gets the child's number, to wait for.
pub fn fork_with(work: fn(&mut [Page]) -> u8, pages: &mut [Page]) -> SysResult<Pid> {
    // SAFETY: fork(2) has no preconditions. The child continues with a copy of everything, does
    // `work`, which uses nothing but these pages, and ends: it never returns into code of the
    // parent.
    match unsafe { fork() } {
        0 => {
            let status = c_int::from(work(pages));
            // SAFETY: the call only ends the process, without exit handlers and without flushing
            // buffers.
            unsafe { _exit(status) }
        }
        number if number > 0 => Ok(Pid::from_raw(number).expect("it is not zero")),
        // SAFETY: errno is this thread's own variable.
        _ => Err(SysError { call: "fork", errno: unsafe { *__errno_location() } }),
    }
}

/// Makes a child. The call returns `None` in the child, and the child's number in its parent. Fails
/// with EBUSY in a process with other threads: the child would lack the threads, but inherit the
/// locks they hold.
pub fn fork_here() -> SysResult<Option<Pid>> {
    // /proc has one directory a thread, beside "." and "..": proc(5).
    let threads =
        rustix::fs::stat("/proc/self/task").map_err(SysError::of("stat(/proc)"))?.st_nlink;
    if threads != 3 {
        return Err(SysError { call: "clone", errno: errno::EBUSY });
    }
    // SAFETY: fork(2) has no preconditions, and no other thread holds anything that the child would
    // miss.
    match unsafe { fork() } {
        0 => Ok(None),
        number if number > 0 => Ok(Pid::from_raw(number)),
        // `clone` is what libc's fork calls. SAFETY: errno is this thread's own variable.
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
