//! The system calls that a managed program makes on our behalf. Each can be made once, without
//! effect, to find out whether a filter lets it through.
//!
//! A filter refuses a call before the kernel looks at its arguments, so each call gets arguments
//! with which it succeeds, or fails with a known error number. For programs of one thread.

use linux_raw_sys::general as linux;

use crate::errno::{EBADF, EFAULT, EINVAL};
use crate::error::SysResult;
use crate::page::PAGE_BYTES;
use crate::raw::{checked, syscall};

/// The errors of a call whose arguments are wrong.
const WRONG: &[i32] = &[EBADF, EFAULT, EINVAL];

/// A system call, by its name and number.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The name in the manual.
    pub name: &'static str,
    /// The number on this machine.
    pub number: u32,
    /// Whether nothing can be managed without this call. Without any other, a run is only slower or
    /// larger, or lacks some figure.
    pub is_needed: bool,
    make: fn(u32) -> isize,
    /// The error numbers that deliberately wrong arguments produce; none when all arguments are
    /// right.
    expected: &'static [i32],
}

impl Call {
    /// Makes the call. Fails with the error number of a refusal.
    pub fn make(&self) -> SysResult<()> {
        match checked(self.name, (self.make)(self.number)) {
            Err(error) if !self.expected.contains(&error.errno) => Err(error),
            _ => Ok(()),
        }
    }
}

const fn needed(name: &'static str, number: u32, make: fn(u32) -> isize) -> Call {
    Call { name, number, is_needed: true, make, expected: &[] }
}

/// Makes a needed call that has nothing to work on.
const fn needed_alone(name: &'static str, number: u32) -> Call {
    Call { name, number, is_needed: true, make: with_nothing, expected: WRONG }
}

const fn spare(name: &'static str, number: u32) -> Call {
    Call { is_needed: false, ..needed_alone(name, number) }
}

/// All calls that a managed program makes on our behalf. The calls that its loader makes before
/// cannot be refused: without them there is no program.
pub const ALL: &[Call] = &[
    needed("mmap", linux::__NR_mmap, map_a_page),
    needed("madvise", linux::__NR_madvise, |number| on_a_page(number, linux::MADV_DONTFORK)),
    needed("mprotect", linux::__NR_mprotect, |number| on_a_page(number, linux::PROT_READ)),
    needed("clone", linux::__NR_clone, split),
    needed("futex", linux::__NR_futex, wake_nobody),
    needed("clock_gettime", linux::__NR_clock_gettime, tell_time),
    needed("getpid", linux::__NR_getpid, with_nothing),
    needed("close_range", linux::__NR_close_range, |number| {
        // SAFETY: the arguments are numbers, and no file has the highest possible descriptor.
        unsafe { syscall(number, [u32::MAX as usize, u32::MAX as usize, 0, 0, 0, 0]) }
    }),
    needed("open", linux::__NR_open, open),
    needed_alone("close", linux::__NR_close),
    needed_alone("pread64", linux::__NR_pread64),
    needed_alone("read", linux::__NR_read),
    needed("socket", linux::__NR_socket, socket),
    needed_alone("connect", linux::__NR_connect),
    needed_alone("sendmsg", linux::__NR_sendmsg),
    needed_alone("recvmsg", linux::__NR_recvmsg),
    needed_alone("ioctl", linux::__NR_ioctl),
    needed_alone("epoll_create1", linux::__NR_epoll_create1),
    needed_alone("timerfd_create", linux::__NR_timerfd_create),
    needed_alone("epoll_ctl", linux::__NR_epoll_ctl),
    needed_alone("timerfd_settime", linux::__NR_timerfd_settime),
    needed_alone("epoll_pwait", linux::__NR_epoll_pwait),
    needed_alone("pidfd_open", linux::__NR_pidfd_open),
    needed_alone("ppoll", linux::__NR_ppoll),
    needed_alone("prctl", linux::__NR_prctl),
    needed_alone("capset", linux::__NR_capset),
    spare("chdir", linux::__NR_chdir),
    spare("clock_nanosleep", linux::__NR_clock_nanosleep),
    spare("eventfd2", linux::__NR_eventfd2),
    spare("exit", linux::__NR_exit),
    spare("fallocate", linux::__NR_fallocate),
    spare("fstat", linux::__NR_fstat),
    spare("getpriority", linux::__NR_getpriority),
    spare("getrandom", linux::__NR_getrandom),
    spare("getrusage", linux::__NR_getrusage),
    spare("gettid", linux::__NR_gettid),
    spare("io_uring_enter", linux::__NR_io_uring_enter),
    spare("io_uring_register", linux::__NR_io_uring_register),
    spare("io_uring_setup", linux::__NR_io_uring_setup),
    spare("mlock", linux::__NR_mlock),
    spare("munlock", linux::__NR_munlock),
    spare("munmap", linux::__NR_munmap),
    spare("poll", linux::__NR_poll),
    spare("readlinkat", linux::__NR_readlinkat),
    spare("setpgid", linux::__NR_setpgid),
    spare("unshare", linux::__NR_unshare),
    spare("wait4", linux::__NR_wait4),
    spare("nanosleep", linux::__NR_nanosleep),
    spare("pwrite64", linux::__NR_pwrite64),
    spare("rt_sigprocmask", linux::__NR_rt_sigprocmask),
    spare("sched_getaffinity", linux::__NR_sched_getaffinity),
    spare("sched_getscheduler", linux::__NR_sched_getscheduler),
    spare("sched_setaffinity", linux::__NR_sched_setaffinity),
    spare("sched_yield", linux::__NR_sched_yield),
    spare("setpriority", linux::__NR_setpriority),
    spare("tgkill", linux::__NR_tgkill),
    spare("userfaultfd", linux::__NR_userfaultfd),
];

/// Makes the call with arguments that are no descriptor, no address and no flags.
fn with_nothing(number: u32) -> isize {
    // SAFETY: the kernel has nothing to work on.
    unsafe { syscall(number, [usize::MAX; 6]) }
}

fn map_a_page(number: u32) -> isize {
    let protection = (linux::PROT_READ | linux::PROT_WRITE) as usize;
    let flags = (linux::MAP_PRIVATE | linux::MAP_ANONYMOUS) as usize;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    unsafe { syscall(number, [0, PAGE_BYTES, protection, flags, usize::MAX, 0]) }
}

/// Makes the call on a page that nothing else uses, with its address, its length, and `last`.
fn on_a_page(number: u32, last: u32) -> isize {
    let page = map_a_page(linux::__NR_mmap);
    // SAFETY: the page was mapped for this call, and nothing else uses it.
    unsafe { syscall(number, [page as usize, PAGE_BYTES, last as usize, 0, 0, 0]) }
}

/// Makes a child that ends at once.
fn split(number: u32) -> isize {
    // SAFETY: this works as fork does, in a process of one thread; the child makes one call, which
    // ends it.
    unsafe {
        let child = syscall(number, [linux::SIGCHLD as usize, 0, 0, 0, 0, 0]);
        if child == 0 {
            syscall(linux::__NR_exit_group, [0; 6]);
        } else if child > 0 {
            syscall(linux::__NR_wait4, [child as usize, 0, 0, 0, 0, 0]);
        }
        child
    }
}

fn wake_nobody(number: u32) -> isize {
    let word = 0_u32;
    // SAFETY: the word lives through the call, and no thread waits for it.
    unsafe { syscall(number, [&raw const word as usize, linux::FUTEX_WAKE as usize, 1, 0, 0, 0]) }
}

fn tell_time(number: u32) -> isize {
    let mut time = [0_usize; 2];
    // SAFETY: the buffer is as large as struct timespec.
    unsafe {
        syscall(number, [linux::CLOCK_MONOTONIC as usize, time.as_mut_ptr() as usize, 0, 0, 0, 0])
    }
}

fn open(number: u32) -> isize {
    let path = c"/proc/self/pagemap".as_ptr() as usize;
    // SAFETY: the path lives through the call; the other arguments are flags.
    unsafe { syscall(number, [path, linux::O_CLOEXEC as usize, 0, 0, 0, 0]) }
}

fn socket(number: u32) -> isize {
    const AF_UNIX: usize = 1;
    const SOCK_SEQPACKET: usize = 5;
    // SAFETY: all arguments are numbers, no address among them.
    unsafe { syscall(number, [AF_UNIX, SOCK_SEQPACKET, 0, 0, 0, 0]) }
}

#[cfg(test)]
mod tests {
    //! The risk: a call is reported as refused that is not.

    use super::*;

    #[test]
    fn calls_that_nobody_filters_are_made() {
        for call in ALL.iter().filter(|call| call.is_needed && call.name != "clone") {
            call.make().unwrap();
        }
    }

    #[test]
    fn a_call_that_is_not_there_is_told_by_its_number() {
        let call = Call { number: 0xffff, ..ALL[0] };
        assert_eq!(std::format!("{}", call.make().unwrap_err()), "mmap: ENOSYS");
    }
}
