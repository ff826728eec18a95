//! Runs a program where io_uring is forbidden, as in many containers: `no_io_uring PROGRAM ARGS`.

use std::env;
use std::io::{Error, Result};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Loads the number of the system call, `struct seccomp_data`'s first field.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// Lets every call but io_uring_setup(2) pass, for this process and what it executes.
fn forbid() -> Result<()> {
    let mut filter = [
        statement(LOAD, 0),
        libc::sock_filter { jf: 1, ..statement(JUMP_IF_EQUAL, libc::SYS_io_uring_setup as u32) },
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
    let program = words.next().ok_or_else(|| Error::other("no program was named"))?;
    forbid()?;
    Err(Command::new(program).args(words).exec())
}
