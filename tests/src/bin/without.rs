//! Runs a program where a system call is forbidden, as in many containers:
//! `without CALL PROGRAM ARGS`.

use std::env;
use std::ffi::OsStr;
use std::io::{Error, Result};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The code of the instruction that loads the number of the system call, `struct seccomp_data`'s
/// first field; below, those of the other instructions.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// The calls that a program can be denied without being unable to start.
const CALLS: [(&str, libc::c_long); 20] = [
    ("close_range", libc::SYS_close_range),
    ("connect", libc::SYS_connect),
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("eventfd2", libc::SYS_eventfd2),
    ("getrandom", libc::SYS_getrandom),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("ioctl", libc::SYS_ioctl),
    ("madvise", libc::SYS_madvise),
    ("prctl", libc::SYS_prctl),
    ("recvmsg", libc::SYS_recvmsg),
    ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("sendmsg", libc::SYS_sendmsg),
    ("sendto", libc::SYS_sendto),
    ("setpriority", libc::SYS_setpriority),
    ("socket", libc::SYS_socket),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("timerfd_settime", libc::SYS_timerfd_settime),
    ("unshare", libc::SYS_unshare),
    ("userfaultfd", libc::SYS_userfaultfd),
];

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// Denies the system call of number `call` to this process and to what it executes; all other calls
/// pass.
fn forbid(call: libc::c_long) -> Result<()> {
    let mut filter = [
        statement(LOAD, 0),
        libc::sock_filter { jf: 1, ..statement(JUMP_IF_EQUAL, call as u32) },
        statement(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(RETURN, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the first call takes numbers only; the second reads the filter, which outlives it.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
    };
    if refused { Err(Error::last_os_error()) } else { Ok(()) }
}

fn main() -> Result<()> {
    let mut words = env::args_os().skip(1);
    let name = words.next().ok_or_else(|| Error::other("no call was named"))?;
    let call = CALLS.iter().find(|(known, _)| name.as_os_str() == OsStr::new(known));
    let (_, call) = call.ok_or_else(|| Error::other("no such call can be forbidden"))?;
    let program = words.next().ok_or_else(|| Error::other("no program was named"))?;
    forbid(*call)?;
    Err(Command::new(program).args(words).exec())
}
