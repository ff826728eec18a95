//! Runs a program whose COPYs, MOVEs and ZEROPAGEs of a userfaultfd are refused with EAGAIN, a
//! third of them at random, as Linux refuses them while the address space is changing: `again FILE
//! PROGRAM ARGS`. The number of refused calls is written to FILE when the last process of the
//! program has ended.
//!
//! A filter (seccomp_unotify(2)) hands these calls to a process that lives beside the program. That
//! process decides for each call whether it goes on or fails.
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../program/mod.rs"]
mod program;

use std::fs;
use std::io::{Error, Read, Result, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{env, io};

use program::random::mix;

/// One of this many calls is refused.
const REFUSED: u64 = 3;
/// `UFFDIO_COPY`, `UFFDIO_MOVE` and `UFFDIO_ZEROPAGE` (linux/userfaultfd.h).
const CALLS: [u32; 3] = [0xc028_aa03, 0xc028_aa05, 0xc020_aa04];
/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND` (linux/seccomp.h).
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

/// The code of the instruction that loads a word of `struct seccomp_data`; below, those of the
/// other instructions.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Offset of the number of the call in that structure; the next is that of the low half of its
/// second argument.
const NUMBER: u32 = 0;
const REQUEST: u32 = 24;

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

fn unless(equal: u32, skip: u8) -> libc::sock_filter {
    libc::sock_filter { jf: skip, ..statement(JUMP_IF_EQUAL, equal) }
}

fn when(equal: u32, skip: u8) -> libc::sock_filter {
    libc::sock_filter { jt: skip, ..statement(JUMP_IF_EQUAL, equal) }
}

/// Puts the filter on this process and on what it executes. Returns the descriptor on which the
/// filter reports calls.
fn install() -> Result<i32> {
    let mut filter = [
        statement(LOAD, NUMBER),
        unless(libc::SYS_ioctl as u32, 4),
        statement(LOAD, REQUEST),
        when(CALLS[0], 3),
        when(CALLS[1], 2),
        when(CALLS[2], 1),
        statement(RETURN, libc::SECCOMP_RET_ALLOW),
        statement(RETURN, libc::SECCOMP_RET_USER_NOTIF),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // SAFETY: the first call takes numbers only; the second reads the filter, which outlives it.
    let listener = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(Error::last_os_error());
        }
        libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program)
    };
    if listener < 0 { Err(Error::last_os_error()) } else { Ok(listener as i32) }
}

/// Makes a child that shares this process's descriptors, and returns its number; 0 in the child.
fn split() -> Result<i32> {
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: does what fork does, in a process of one thread.
    let process = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if process < 0 { Err(Error::last_os_error()) } else { Ok(process as i32) }
}

/// Decides about calls until the last process under the filter has ended. Returns how many it
/// refused.
fn decide(listener: i32) -> u64 {
    let (mut calls, mut refused) = (0_u64, 0);
    loop {
        let mut asked = libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which lives through the call.
        unsafe { libc::poll(&raw mut asked, 1, -1) };
        if asked.revents & libc::POLLIN == 0 {
            return refused;
        }
        // SAFETY: the structure is zero, as the kernel demands, and the kernel fills in what it
        // says it does.
        let (call, got) = unsafe {
            let mut call: libc::seccomp_notif = std::mem::zeroed();
            let got = libc::ioctl(listener, RECEIVE, &raw mut call);
            (call, got)
        };
        // The caller may have been killed meanwhile.
        if got < 0 {
            continue;
        }
        calls += 1;
        // At random: every third call might be the same one of three that are made again and again.
        let is_refused = mix(calls).is_multiple_of(REFUSED);
        refused += u64::from(is_refused);
        let (error, flags) = if is_refused {
            (-libc::EAGAIN, 0)
        } else {
            (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32)
        };
        let mut answer = libc::seccomp_notif_resp { id: call.id, val: 0, error, flags };
        // SAFETY: one structure, which lives through the call. For a caller that is gone the call
        // fails, rightly.
        unsafe { libc::ioctl(listener, SEND, &raw mut answer) };
    }
}

/// Runs the process beside the program. The pipe `told` brings the number of the listener.
fn stand_by(mut told: io::PipeReader, file: &str) -> Result<()> {
    let mut number = [0; 4];
    told.read_exact(&mut number)?;
    // SAFETY: numbers only. From here on the descriptors are this process's own. So it holds no
    // output open whose end another process waits for.
    unsafe {
        if libc::unshare(libc::CLONE_FILES) != 0 {
            return Err(Error::last_os_error());
        }
        for number in 0..3 {
            libc::close(number);
        }
    }
    fs::write(file, decide(i32::from_le_bytes(number)).to_string())
}

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [file, program, arguments @ ..] = &words[..] else {
        return Err(Error::other("a file and a program are missing"));
    };
    let (told, mut tell) = io::pipe()?;
    // Splits twice, so that the program has no child that it did not make.
    let child = split()?;
    if child == 0 {
        if split()? == 0 {
            return stand_by(told, file);
        }
        // SAFETY: ends this process, whose descriptors belong to the other processes too.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: passes no address to write to.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    tell.write_all(&install()?.to_le_bytes())?;
    Err(Command::new(program).args(arguments).exec())
}
