//! Starts the program, stays out of its way, and hands on how it ended.
//!
//! The launcher stays in the program's process group, so the terminal treats both as one job:
//! Ctrl-C reaches the program by itself, Ctrl-Z stops and `fg` continues both. A signal that
//! somebody sends to the launcher alone is passed on; one that the kernel sends (terminal keys,
//! hang-up) is not, because the whole group gets it. Signals that were ignored at the start stay
//! ignored, as `nohup` asks.
//!
//! The launcher is the reaper of the program's orphans (PR_SET_CHILD_SUBREAPER). It waits for the
//! program only: what still runs in the background then goes on without it, as under `env` or
//! `timeout`. With `--wait` it stays until the last process of the run has ended, and signals of
//! any origin then go to those that are left: a server that has forked away is in no terminal's
//! group.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::signal::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

use crate::elf::Image;
use crate::failure::{Failure, Result};
use crate::program::{Program, SHELL};
use crate::tree;

/// The signals passed on. Those of job control (TSTP, TTIN, TTOU, CONT) keep their meaning for the
/// launcher itself.
const PASSED_ON: [i32; 8] = [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];

/// A shell shows a process ended by signal N as 128 + N.
const EXIT_SIGNAL_BASE: u8 = 128;

/// What services are called, and launchers, which may be among the orphans of a run.
const SERVICE_NAME: &str = "coldpress";
/// A service that has closed all it had will have ended in some microseconds.
const REAP_TRIES: usize = 50;
const REAP_INTERVAL: Duration = Duration::from_millis(1);

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with this exit status.
    Exited(u8),
    /// By this signal.
    Signaled(u8),
}

impl Ending {
    /// The exit status a shell would show.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => EXIT_SIGNAL_BASE.saturating_add(signal),
        }
    }
}

/// How the program ended, and after how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExitReport {
    /// Exit status or signal.
    pub(crate) ending: Ending,
    /// From before its start until it was reaped.
    pub(crate) wall_time: Duration,
}

/// The launcher, ready to start a program: signals are kept from now on and passed on from the
/// start.
pub(crate) struct Supervisor {
    signals: SignalsInfo<WithOrigin>,
    waits_for_rest: bool,
}

/// A program that runs, or has ended and is not yet reaped.
pub(crate) struct Running {
    pid: Pid,
    started: Instant,
}

impl Supervisor {
    /// Becomes the reaper of orphans and starts to keep signals; those after the program's end are
    /// for the rest, if that is to be waited for.
    pub(crate) fn prepare(waits_for_rest: bool) -> Result<Self> {
        let failed = |what: &str, error: io::Error| {
            Failure::ours(format!("cannot {what}: {error}"), "raise ulimit -n of this shell")
        };
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|errno| failed("become the reaper of orphans", errno.into()))?;
        let ignored = ignored_signals();
        let passed_on = PASSED_ON.iter().filter(|&&signal| ignored & (1 << (signal - 1)) == 0);
        // Where SIGCHLD is ignored, a child leaves no status; a handler of any kind ends that.
        let kept = passed_on.chain([&SIGCHLD]);
        let signals =
            SignalsInfo::<WithOrigin>::new(kept).map_err(|error| failed("keep signals", error))?;
        Ok(Self { signals, waits_for_rest })
    }

    /// Starts `command`, made from `program`, and passes signals on to it from now on. Fails with
    /// 126 or 127 when the kernel cannot execute it.
    pub(crate) fn start(self, program: &Program, command: Command) -> Result<Running> {
        let started = Instant::now();
        let mut child = spawn(program, command)?;
        let pid = Pid::from_child(&child);
        match follow(self.signals, pid, self.waits_for_rest) {
            Ok(()) => Ok(Running { pid, started }),
            Err(error) => {
                // It may not run on alone, without anybody who hands on its signals and its end.
                let _ = child.kill();
                let cause = format!("cannot follow the program: {error}");
                Err(Failure::ours(cause, "raise the limits of this shell (ulimit -n, ulimit -u)"))
            }
        }
    }
}

/// Passes `signals` on to the child `pid`, and then to the rest if that is waited for, in a thread
/// of its own.
fn follow(mut signals: SignalsInfo<WithOrigin>, pid: Pid, waits_for_rest: bool) -> io::Result<()> {
    // The child is not reaped yet, so the number is still its own; the descriptor stays its own.
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let pass_on_all = move || {
        for origin in signals.forever() {
            if origin.signal == SIGCHLD {
                continue;
            }
            if waits_for_rest && has_ended(&pidfd) {
                pass_on_to_rest(origin.signal);
            } else if origin.cause != Cause::Kernel {
                pass_on(&pidfd, origin.signal);
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(pass_on_all).map(|_| ())
}

impl Running {
    /// The program's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Waits until no process of the run is left, and reaps them.
    pub(crate) fn wait_for_rest(&self) {
        while !matches!(rustix::process::wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
    }

    /// Waits for the program, and reaps orphans on the way.
    pub(crate) fn wait(&self) -> Result<ExitReport> {
        loop {
            match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if pid == self.pid => {
                    if let Some(ending) = ending(status) {
                        return Ok(ExitReport { ending, wall_time: self.started.elapsed() });
                    }
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(Failure::ours(
                        format!("cannot wait for the program: {errno}"),
                        "report this: it cannot happen",
                    ));
                }
            }
        }
    }
}

/// Whether a process has the name of a service.
fn is_named_service(process: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    name.is_ok_and(|name| name.trim_end() == SERVICE_NAME)
}

/// Reaps what has ended, or is about to, of services that never joined: they find that their
/// program has ended first.
pub(crate) fn reap_unknown() {
    let children = tree::children(std::process::id());
    for child in children.into_iter().filter(|child| is_named_service(*child)) {
        let Some(pid) = Pid::from_raw(child.cast_signed()) else { continue };
        let is_there =
            || matches!(rustix::process::waitpid(Some(pid), WaitOptions::NOHANG), Ok(None));
        let mut tries = 0..REAP_TRIES;
        while is_there() && tries.next().is_some() {
            thread::sleep(REAP_INTERVAL);
        }
    }
}

/// Reaps these services, which are about to end, as far as they are children of ours that nobody
/// has waited for. One that does not end is ended: what shared its memory may have changed it.
pub(crate) fn reap(services: &[u32]) {
    for pid in services.iter().filter_map(|process| Pid::from_raw(process.cast_signed())) {
        let is_there =
            || matches!(rustix::process::waitpid(Some(pid), WaitOptions::NOHANG), Ok(None));
        let mut tries = 0..REAP_TRIES;
        while is_there() {
            if tries.next().is_none() {
                if !is_named_service(pid.as_raw_pid().unsigned_abs()) {
                    break;
                }
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            thread::sleep(REAP_INTERVAL);
        }
    }
}

/// Whether the process has ended.
fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    // An end stays readable (pidfd_open(2)).
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}

/// The command line of `program` with `arguments`: what the user named stays its first argument.
pub(crate) fn command(program: &Program, arguments: &[std::ffi::OsString]) -> Command {
    let mut command = Command::new(&program.path);
    command.arg0(&program.name).args(arguments);
    command
}

/// Puts the program in the launcher's place, with nothing changed. Returns only when that failed.
pub(crate) fn replace_by(program: &Program, mut command: Command) -> Failure {
    let mut error = command.exec();
    if let Some(mut shell) = shell_for(program, &command, &error) {
        error = shell.exec();
    }
    cannot_execute(program, &error)
}

fn spawn(program: &Program, mut command: Command) -> Result<Child> {
    command
        .spawn()
        .or_else(|error| match shell_for(program, &command, &error) {
            Some(mut shell) => shell.spawn(),
            None => Err(error),
        })
        .map_err(|error| cannot_execute(program, &error))
}

/// The shell for a text file without `#!`, as `execvp` runs it, when that is why `command` failed.
fn shell_for(program: &Program, command: &Command, error: &io::Error) -> Option<Command> {
    let is_text = program.image == Image::Other;
    if !is_text || error.raw_os_error() != Some(Errno::NOEXEC.raw_os_error()) {
        return None;
    }
    let mut shell = Command::new(SHELL);
    shell.arg(&program.path).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    Some(shell)
}

fn cannot_execute(program: &Program, error: &io::Error) -> Failure {
    let cause = format!("cannot execute {}: {error}", program.path.display());
    match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::not_found(cause, "check the path, and the loader or interpreter it names")
        }
        io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => {
            Failure::ours(cause, "raise the limits of this shell (ulimit -u, ulimit -v)")
        }
        _ => Failure::not_executable(cause, "check that it is a program for this machine"),
    }
}

/// Sends `signal` to the program. One that has ended needs no signal.
fn pass_on(pidfd: &OwnedFd, signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        let _ = rustix::process::pidfd_send_signal(pidfd, signal);
    }
}

/// Sends `signal` to every child: the program has ended, so they are its orphans, and hand on what
/// they see fit.
fn pass_on_to_rest(signal: i32) {
    let Some(signal) = Signal::from_named_raw(signal) else { return };
    for child in tree::children(std::process::id()) {
        if let Some(pid) = Pid::from_raw(child.cast_signed()) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

fn ending(status: WaitStatus) -> Option<Ending> {
    let byte =
        |number: i32| u8::try_from(number).expect("the kernel keeps status and signal in a byte");
    let exited = status.exit_status().map(|code| Ending::Exited(byte(code)));
    exited.or_else(|| status.terminating_signal().map(|signal| Ending::Signaled(byte(signal))))
}

/// The signals this process ignores, bit N-1 for signal N (`SigIgn` of proc_pid_status(5)).
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(Ending::Exited(3).exit_code(), 3);
        assert_eq!(Ending::Signaled(9).exit_code(), 137);
        assert_eq!(Ending::Signaled(64).exit_code(), 192);
    }

    #[test]
    fn rust_programs_ignore_sigpipe_and_that_is_seen() {
        assert_ne!(ignored_signals() & (1 << (13 - 1)), 0);
    }
}
