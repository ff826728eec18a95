//! The ways to make a process.

use std::ffi::{CStr, CString, c_int, c_void};
use std::io;
use std::process::{Command, ExitCode};

use crate::program::raw;

/// First argument of this program when it runs as the helper in a child.
const HELPER: &str = "helper";
/// Status of the helper when its arguments are right.
const HELPER_OK: i32 = 7;
/// Bytes of the stack for `clone`.
const STACK: usize = 1 << 20;

unsafe extern "C" {
    /// The environment, as libc keeps it (environ(7)).
    static mut environ: *const *const libc::c_char;
}

/// A way to make a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// libc's `fork`.
    Fork,
    /// libc's `fork`, and the child forks again.
    ForkTwice,
    /// `syscall(SYS_fork)`, or `SYS_clone` where there is no such call.
    RawFork,
    /// `_Fork` (POSIX 2024), where libc has it.
    BareFork,
    /// libc's `clone` without `CLONE_VM`.
    Clone,
    /// libc's `clone` as above, and the child, which is not managed, forks.
    CloneThenFork,
    /// `vfork` and `execve`.
    Vfork,
    /// `posix_spawn`.
    Spawn,
    /// `fork` and `execve`.
    ForkExec,
    /// The way that Rust's library takes for `Command`.
    Command,
}

impl Way {
    /// All ways.
    pub const ALL: &[Self] = &[
        Self::Fork,
        Self::ForkTwice,
        Self::RawFork,
        Self::BareFork,
        Self::Clone,
        Self::CloneThenFork,
        Self::Vfork,
        Self::Spawn,
        Self::ForkExec,
        Self::Command,
    ];

    /// Returns whether the child forks.
    pub fn forks_again(self) -> bool {
        matches!(self, Self::ForkTwice | Self::CloneThenFork)
    }

    /// Returns whether the child runs a program instead of going on with our memory.
    pub fn runs_program(self) -> bool {
        matches!(self, Self::Vfork | Self::Spawn | Self::ForkExec | Self::Command)
    }
}

/// Runs `work` in a child, and returns the child's exit status.
pub fn with_child(way: Way, work: &mut dyn FnMut() -> i32) -> Result<i32, String> {
    let pid = match way {
        Way::RawFork => raw_fork(),
        Way::BareFork => bare_fork(),
        Way::Clone | Way::CloneThenFork => return clone_child(work),
        _ => unsafe { libc::fork() },
    };
    if pid == 0 {
        let status = work();
        unsafe { libc::_exit(status) };
    }
    wait(pid)
}

#[cfg(target_arch = "x86_64")]
fn raw_fork() -> libc::pid_t {
    unsafe { libc::syscall(libc::SYS_fork) as libc::pid_t }
}

#[cfg(not(target_arch = "x86_64"))]
fn raw_fork() -> libc::pid_t {
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t }
}

fn bare_fork() -> libc::pid_t {
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_Fork".as_ptr()) };
    if symbol.is_null() {
        return unsafe { libc::fork() };
    }
    let call: extern "C" fn() -> libc::pid_t = unsafe { std::mem::transmute(symbol) };
    call()
}

fn clone_child(work: &mut dyn FnMut() -> i32) -> Result<i32, String> {
    extern "C" fn enter(argument: *mut c_void) -> c_int {
        let work = unsafe { &mut *argument.cast::<&mut dyn FnMut() -> i32>() };
        work()
    }
    let stack = raw::map(STACK).map_err(|error| error.to_string())?;
    let mut work = work;
    let argument = (&raw mut work).cast::<c_void>();
    let top = raw::pointer(stack + STACK).cast();
    let pid = unsafe { libc::clone(enter, top, libc::SIGCHLD, argument) };
    let status = wait(pid);
    let _ = unsafe { raw::unmap(stack, STACK) };
    status
}

fn wait(pid: libc::pid_t) -> Result<i32, String> {
    if pid < 0 {
        return Err(format!("no child: {}", io::Error::last_os_error()));
    }
    let mut status = 0;
    if unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {
        return Err(format!("waitpid: {}", io::Error::last_os_error()));
    }
    if libc::WIFSIGNALED(status) {
        return Err(format!("child killed by signal {}", libc::WTERMSIG(status)));
    }
    Ok(libc::WEXITSTATUS(status))
}

/// Runs this program as the helper in a child. Its arguments must arrive whole.
pub fn run_helper(way: Way, round: usize) -> Result<(), String> {
    let path = std::env::current_exe().map_err(|error| error.to_string())?;
    if way == Way::Command {
        let mut command = Command::new(path);
        command.args([HELPER, &round.to_string(), &check_word(round)]);
        let status = command.status().map_err(|error| error.to_string())?;
        return helper_status(status.code().ok_or_else(|| format!("helper: {status}"))?);
    }
    let path = path.into_os_string().into_encoded_bytes();
    let words = [path, HELPER.into(), round.to_string().into_bytes(), check_word(round).into()];
    let words: Vec<CString> = words.map(|word| CString::new(word).expect("no zero byte")).into();
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let pid = match way {
        Way::Vfork => vfork_exec(&words[0], &pointers),
        Way::Spawn => spawn(&words[0], &pointers)?,
        _ => fork_exec(&words[0], &pointers),
    };
    helper_status(wait(pid)?)
}

fn helper_status(status: i32) -> Result<(), String> {
    if status == HELPER_OK { Ok(()) } else { Err(format!("helper's status is {status}")) }
}

/// Makes a child by `vfork` whose only step is `execve`, with words made before: the parent's frame
/// stays whole.
#[inline(never)]
#[allow(deprecated, reason = "programs do call vfork; nothing is touched between it and execve")]
fn vfork_exec(path: &CStr, words: &[*const libc::c_char]) -> libc::pid_t {
    unsafe {
        let pid = libc::vfork();
        if pid == 0 {
            libc::execv(path.as_ptr(), words.as_ptr());
            libc::_exit(127);
        }
        pid
    }
}

fn fork_exec(path: &CStr, words: &[*const libc::c_char]) -> libc::pid_t {
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::execv(path.as_ptr(), words.as_ptr());
            libc::_exit(127);
        }
        pid
    }
}

fn spawn(path: &CStr, words: &[*const libc::c_char]) -> Result<libc::pid_t, String> {
    let mut pid = 0;
    let words = words.as_ptr().cast::<*mut libc::c_char>();
    let (none, plain) = (std::ptr::null(), std::ptr::null());
    let error = unsafe {
        libc::posix_spawn(&raw mut pid, path.as_ptr(), none, plain, words, environ.cast())
    };
    if error == 0 { Ok(pid) } else { Err(io::Error::from_raw_os_error(error).to_string()) }
}

fn check_word(round: usize) -> String {
    format!("word-of-round-{round}").repeat(50)
}

/// Returns the exit status of this process if it was started as the helper.
pub fn as_helper() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().collect();
    let [_, name, round, word] = words.as_slice() else { return None };
    if name != HELPER {
        return None;
    }
    let right = round.parse().is_ok_and(|round| *word == check_word(round));
    Some(ExitCode::from(if right { HELPER_OK as u8 } else { 1 }))
}
