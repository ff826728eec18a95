//! Giving up every right that a process no longer needs.
//!
//! A process that shares its memory with another is under the control of that other process: code
//! that writes to its stack decides what it does next. So it must be allowed no more than the other
//! process is, whatever becomes of that one. It keeps no capability, gains none by an exec, and a
//! filter (seccomp(2)) allows only the calls that serve faults: nothing that opens, connects,
//! signals, traces, makes a process, or maps memory to execute.
//!
//! The filter answers all other calls with EPERM: a call forgotten here fails, and does not end the
//! program.

use linux_raw_sys::general as linux;
use linux_raw_sys::prctl;

use crate::error::SysResult;
use crate::raw::{checked, syscall};

/// Calls that are allowed whatever their arguments.
const ALLOWED: [u32; 41] = [
    // The uses of open descriptors.
    linux::__NR_read,
    linux::__NR_pread64,
    linux::__NR_pwrite64,
    linux::__NR_ioctl,
    linux::__NR_close,
    linux::__NR_sendmsg,
    linux::__NR_recvmsg,
    linux::__NR_io_uring_enter,
    linux::__NR_fallocate,
    linux::__NR_fadvise64,
    linux::__NR_flock,
    linux::__NR_fstatfs,
    // Memory; see `WITHOUT_EXECUTION` for more.
    linux::__NR_munmap,
    linux::__NR_madvise,
    linux::__NR_mlock,
    linux::__NR_munlock,
    linux::__NR_getrandom,
    // Waiting, and the clock.
    linux::__NR_epoll_pwait,
    linux::__NR_epoll_pwait2,
    linux::__NR_epoll_ctl,
    linux::__NR_poll,
    linux::__NR_ppoll,
    linux::__NR_futex,
    linux::__NR_timerfd_settime,
    linux::__NR_timer_create,
    linux::__NR_timer_settime,
    linux::__NR_signalfd4,
    linux::__NR_clock_gettime,
    linux::__NR_nanosleep,
    linux::__NR_sched_yield,
    // Processors.
    linux::__NR_getcpu,
    linux::__NR_sched_getaffinity,
    linux::__NR_sched_setaffinity,
    linux::__NR_sched_getscheduler,
    linux::__NR_getrusage,
    // The process itself, and its end.
    linux::__NR_getpid,
    linux::__NR_gettid,
    linux::__NR_rt_sigprocmask,
    linux::__NR_rt_sigaction,
    linux::__NR_exit,
    linux::__NR_exit_group,
];

/// Calls whose third argument must not ask for memory to execute.
const WITHOUT_EXECUTION: [u32; 2] = [linux::__NR_mmap, linux::__NR_mprotect];

/// Calls that are allowed if two arguments have these values: the call, then pairs of an argument's
/// index and its value.
const WITH_VALUES: [(u32, [(usize, u32); 2]); 4] = [
    // To ask whether a thread exists.
    (linux::__NR_tgkill, [(2, 0); 2]),
    // To ask whether the memory is shared.
    (linux::__NR_unshare, [(0, linux::CLONE_VM); 2]),
    // To end the program that is served, through a descriptor that the process has.
    (linux::__NR_pidfd_send_signal, [(1, linux::SIGKILL), (3, 0)]),
    // To set its own nice value.
    (linux::__NR_setpriority, [(0, linux::PRIO_PROCESS), (1, 0)]),
];

/// One instruction of a filter: `struct sock_filter`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// A filter: `struct sock_fprog`.
#[repr(C)]
struct Filter {
    length: u16,
    instructions: *const Instruction,
}

/// Instructions of linux/bpf_common.h: load a word at a fixed place, compare, return.
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
/// Offsets in `struct seccomp_data`: number, architecture, instruction pointer, arguments of 8
/// bytes.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;
/// `AUDIT_ARCH_X86_64` of linux/audit.h.
const ARCHITECTURE: u32 = 0xc000_003e;
/// Constants of linux/seccomp.h.
const SECCOMP_MODE_FILTER: usize = 2;
const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0001;
const END: u32 = 0x8000_0000;

const LENGTH: usize = 5 + 2 * ALLOWED.len() + 5 * WITHOUT_EXECUTION.len() + 7 * WITH_VALUES.len();

/// The filter's instructions.
const FILTER: [Instruction; LENGTH] = {
    const fn load(value: u32) -> Instruction {
        Instruction { code: LOAD, if_true: 0, if_false: 0, value }
    }
    const fn answer(value: u32) -> Instruction {
        Instruction { code: RETURN, if_true: 0, if_false: 0, value }
    }
    // Compares; skips `if_true` instructions when the condition holds, else `if_false`.
    const fn test(code: u16, value: u32, if_true: u8, if_false: u8) -> Instruction {
        Instruction { code, if_true, if_false, value }
    }
    let mut filter = [answer(REFUSE); LENGTH];
    filter[0] = load(ARCHITECTURE_AT);
    filter[1] = test(IF_EQUAL, ARCHITECTURE, 1, 0);
    filter[2] = answer(END);
    filter[3] = load(NUMBER_AT);
    let (mut at, mut index) = (4, 0);
    while index < ALLOWED.len() {
        filter[at] = test(IF_EQUAL, ALLOWED[index], 0, 1);
        filter[at + 1] = answer(ALLOW);
        (at, index) = (at + 2, index + 1);
    }
    index = 0;
    while index < WITHOUT_EXECUTION.len() {
        filter[at] = test(IF_EQUAL, WITHOUT_EXECUTION[index], 0, 4);
        filter[at + 1] = load(ARGUMENTS_AT + 2 * 8);
        filter[at + 2] = test(IF_ANY_BIT, linux::PROT_EXEC, 0, 1);
        filter[at + 3] = answer(REFUSE);
        filter[at + 4] = answer(ALLOW);
        (at, index) = (at + 5, index + 1);
    }
    index = 0;
    while index < WITH_VALUES.len() {
        let (number, [(first, wanted), (second, too)]) = WITH_VALUES[index];
        filter[at] = test(IF_EQUAL, number, 0, 6);
        filter[at + 1] = load(ARGUMENTS_AT + 8 * first as u32);
        filter[at + 2] = test(IF_EQUAL, wanted, 0, 3);
        filter[at + 3] = load(ARGUMENTS_AT + 8 * second as u32);
        filter[at + 4] = test(IF_EQUAL, too, 0, 1);
        filter[at + 5] = answer(ALLOW);
        filter[at + 6] = answer(REFUSE);
        (at, index) = (at + 7, index + 1);
    }
    // A call that is in no list falls through to the last instruction, which refuses.
    assert!(at == LENGTH - 1);
    filter
};

/// Gives up, for the calling process, all capabilities, the way to new ones, and every call that is
/// not in the lists above. The process must have one thread. Fails where there is no seccomp.
pub fn give_up_rights() -> SysResult<()> {
    let call = |name, number, arguments| {
        // SAFETY: the arguments below are numbers, or point to data that the kernel only reads.
        checked(name, unsafe { syscall(number, arguments) }).map(|_| ())
    };
    let no_new = [prctl::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0, 0];
    call("prctl(PR_SET_NO_NEW_PRIVS)", linux::__NR_prctl, no_new)?;
    /// capget(2), version 3: two of each set of 32 bits.
    const VERSION: u32 = 0x2008_0522;
    let (head, none) = ([VERSION, 0], [0_u32; 6]);
    let arguments =
        [head.as_ptr().expose_provenance(), none.as_ptr().expose_provenance(), 0, 0, 0, 0];
    call("capset", linux::__NR_capset, arguments)?;
    let filter = Filter { length: LENGTH as u16, instructions: FILTER.as_ptr() };
    // Set by prctl: services of systemd may not call seccomp(2) (SystemCallFilter=@system-service).
    let filter = (&raw const filter).expose_provenance();
    let arguments = [prctl::PR_SET_SECCOMP as usize, SECCOMP_MODE_FILTER, filter, 0, 0, 0];
    call("prctl(PR_SET_SECCOMP)", linux::__NR_prctl, arguments)
}

#[cfg(test)]
mod tests {
    //! The risk: a call that should be refused is allowed, or one that is needed is refused.

    use rustix::process::{WaitOptions, waitpid};

    use super::*;
    use crate::errno;
    use crate::page::Page;

    /// Gives up rights in a child, and returns the number of the first call with a wrong outcome,
    /// or 0.
    fn confined(_pages: &mut [Page]) -> u8 {
        if give_up_rights().is_err() {
            return 100;
        }
        // SAFETY: none of these calls touches memory of ours, except for pages that are mapped
        // anew.
        let call = |number, arguments| unsafe { syscall(number, arguments) };
        const EPERM: isize = -(errno::EPERM as isize);
        let path = c"/etc/passwd".as_ptr().expose_provenance();
        let private = (linux::MAP_PRIVATE | linux::MAP_ANONYMOUS) as usize;
        let map = |protection: u32| {
            call(linux::__NR_mmap, [0, 4096, protection as usize, private, usize::MAX, 0])
        };
        let data = map(linux::PROT_READ | linux::PROT_WRITE);
        let own = crate::raw::process_id() as usize;
        let refused = [
            call(linux::__NR_openat, [0_usize.wrapping_sub(100), path, 0, 0, 0, 0]),
            call(linux::__NR_socket, [1, 1, 0, 0, 0, 0]),
            call(linux::__NR_fork, [0; 6]),
            call(linux::__NR_clone, [0; 6]),
            call(linux::__NR_kill, [own, 0, 0, 0, 0, 0]),
            call(linux::__NR_tgkill, [own, own, 9, 0, 0, 0]),
            call(linux::__NR_ptrace, [0; 6]),
            call(linux::__NR_setresuid, [0; 6]),
            call(linux::__NR_execve, [path, 0, 0, 0, 0, 0]),
            call(linux::__NR_io_uring_setup, [0; 6]),
            call(linux::__NR_unshare, [linux::CLONE_NEWUSER as usize, 0, 0, 0, 0, 0]),
            map(linux::PROT_READ | linux::PROT_EXEC),
            call(linux::__NR_mprotect, [data as usize, 4096, linux::PROT_EXEC as usize, 0, 0, 0]),
        ];
        if let Some(index) = refused.iter().position(|result| *result != EPERM) {
            return 1 + index as u8;
        }
        let allowed = [
            data,
            call(linux::__NR_mprotect, [data as usize, 4096, linux::PROT_READ as usize, 0, 0, 0]),
            call(linux::__NR_tgkill, [own, own, 0, 0, 0, 0]),
            call(linux::__NR_unshare, [linux::CLONE_VM as usize, 0, 0, 0, 0, 0]),
            call(linux::__NR_sched_yield, [0; 6]),
        ];
        allowed.iter().position(|result| *result < 0).map_or(0, |index| 50 + index as u8)
    }

    #[test]
    fn what_serves_faults_is_allowed_and_nothing_else() {
        let child = crate::fork::fork_with(confined, &mut []).unwrap();
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
    }
}
