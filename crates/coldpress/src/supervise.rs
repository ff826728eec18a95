//! Starts the program, stays out of its way, and hands on how it ended.
//!
//! The launcher stays in the program's process group, so the terminal treats both as one job:
//! Ctrl-C reaches the program by itself, Ctrl-Z stops and `fg` continues both. The launcher passes
//! on a signal that a process sends to it alone. It does not pass on signals of the kernel
//! (terminal keys, hang-up), because the whole group gets those. The program ignores the signals
//! that were ignored at the start, as `nohup` asks, unless it asks otherwise: a script has its jobs
//! in the background ignore SIGINT. So the launcher passes these on too.
//!
//! With `--wait` the launcher stays until the last process of the run has ended. Signals of any
//! origin then go to the processes that are left: a server that has forked away is in no terminal's
//! group.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use coldpress_common::failure::{Failure, Result};
use coldpress_sys::{signals, trace};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::signal::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

use crate::elf::Image;
use crate::pause::pause;
use crate::proc;
use crate::program::{Program, SHELL};

/// The signals that are passed on. Those of job control (TSTP, TTIN, TTOU, CONT) keep their meaning
/// for the launcher itself.
const PASSED_ON: [i32; 8] = [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];

/// The way out when the launcher lacks something it needs to follow the program.
pub(crate) const RAISE: &str = "raise the limits of this shell (ulimit -n, ulimit -u)";

/// The base of exit statuses for signals: a shell shows a process ended by signal N as 128 + N.
const EXIT_SIGNAL_BASE: u8 = 128;

/// For children of this thread alone (`__WNOTHREAD`, wait(2)): other threads wait for processes
/// that they have started themselves.
const BY_THIS_THREAD: WaitOptions = WaitOptions::from_bits_retain(0x2000_0000);

/// The number of looks at a service, and their interval. A service that has closed all it had ends
/// within some microseconds.
const REAP_TRIES: usize = 50;
const REAP_INTERVAL: Duration = Duration::from_millis(1);

/// The way the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with this exit status.
    Exited(u8),
    /// By this signal.
    Signaled(u8),
}

impl Ending {
    /// Returns the exit status that a shell would show.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => EXIT_SIGNAL_BASE.saturating_add(signal),
        }
    }
}

/// The way the program ended, and the time it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExitReport {
    /// The exit status or signal.
    pub(crate) ending: Ending,
    /// The time from before the program's start until it was reaped.
    pub(crate) wall_time: Duration,
}

/// Makes the calling process the reaper of orphans below it, and of children that leave a status.
pub(crate) fn become_reaper() -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(io::Error::from)
        // Where SIGCHLD is ignored, a child leaves no status; a handler of any kind ends that.
        .and_then(|()| signal_hook::flag::register(SIGCHLD, Arc::default()))
        .map(|_| ())
        .map_err(|error| Failure::ours(format!("cannot become a reaper (prctl): {error}"), RAISE))
}

/// The signals for the program: kept from now on, and passed on once it has started.
pub(crate) struct Signals {
    kept: SignalDelivery<UnixStream, WithOrigin>,
    target: Target,
    /// The child that is not reaped on the way.
    keeper: Option<Pid>,
    /// Whether signals go to the keeper's children when the program has ended.
    waits_for_rest: bool,
}

/// The processes that signals go to.
enum Target {
    /// The program, which has not started.
    Coming,
    /// The program, by a descriptor, and its number.
    Program(OwnedFd, Pid),
    /// The children of this process.
    ChildrenOf(Pid),
    Nobody,
}

impl Signals {
    /// Starts to keep signals.
    pub(crate) fn keep() -> Result<Self> {
        // If a filter refused `poll`, the launcher would not wait, but loop for ever.
        if let Err(errno) = poll(&mut [], Some(&Timespec::default()))
            && errno != Errno::INTR
        {
            return Err(Failure::ours(
                format!("cannot wait for signals (ppoll): {errno}"),
                "allow that call in the seccomp filter that refuses it",
            ));
        }
        // SIGCHLD reports children of others, which come to the first process of a name space.
        let numbers = PASSED_ON.iter().chain([&SIGCHLD]);
        let kept = UnixStream::pair()
            .and_then(|(read, write)| {
                SignalDelivery::with_pipe(read, write, WithOrigin::default(), numbers)
            })
            .map_err(|error| Failure::ours(format!("cannot keep signals: {error}"), RAISE))?;
        Ok(Self { kept, target: Target::Coming, keeper: None, waits_for_rest: false })
    }

    /// Sets the keeper, which is not reaped on the way as other children are. When the program has
    /// ended, signals go to the keeper's children if the launcher waits for them.
    pub(crate) fn set_keeper(&mut self, keeper: Pid, waits_for_rest: bool) {
        (self.keeper, self.waits_for_rest) = (Some(keeper), waits_for_rest);
    }

    /// Directs signals to `program`, which has started, also those that came before, from any
    /// origin. A program that cannot be followed is killed: it must not run on when no process
    /// hands on its signals and its end.
    pub(crate) fn are_for(&mut self, program: Pid) -> Result<()> {
        match rustix::process::pidfd_open(program, PidfdFlags::empty()) {
            Ok(pidfd) => {
                for origin in self.kept.pending().filter(|origin| origin.signal != SIGCHLD) {
                    pass_on(&pidfd, origin.signal);
                }
                self.target = Target::Program(pidfd, program);
                self.reap_others();
            }
            // The program has ended already.
            Err(Errno::SRCH) => self.target = Target::Nobody,
            Err(errno) => {
                let _ = rustix::process::kill_process(program, Signal::KILL);
                return Err(Failure::ours(format!("cannot follow the program: {errno}"), RAISE));
            }
        }
        Ok(())
    }

    /// Directs signals to the children of `reaper`, or nowhere, after the program has ended.
    pub(crate) fn are_for_rest(&mut self, reaper: Option<Pid>) {
        self.target = reaper.map_or(Target::Nobody, Target::ChildrenOf);
    }

    /// Passes signals on until there is something to read from `words`, or its other end is closed.
    pub(crate) fn pass_on_until(&mut self, words: BorrowedFd<'_>) {
        loop {
            let pipe = self.kept.get_read();
            let fds = [words, pipe.as_fd()];
            let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            // Signals that come before the program has started are kept for it.
            let count = if matches!(self.target, Target::Coming) { 1 } else { 2 };
            // An interrupted wait is as good as one that has ended.
            let _ = poll(&mut fds[..count], None);
            let [has_word, has_signal] = fds.map(|fd| !fd.revents().is_empty());
            if has_signal {
                self.pass_on();
            }
            if has_word {
                return;
            }
        }
    }

    /// Passes signals on until the program has ended.
    pub(crate) fn pass_on_until_end(&mut self) {
        if let Target::Program(pidfd, _) = &self.target
            && let Ok(pidfd) = pidfd.try_clone()
        {
            self.pass_on_until(pidfd.as_fd());
        }
    }

    /// Passes on the signals that have come.
    pub(crate) fn pass_on(&mut self) {
        // The program may have ended before the keeper has said so.
        if let (Target::Program(pidfd, _), true) = (&self.target, self.waits_for_rest)
            && proc::is_over(pidfd)
        {
            self.are_for_rest(self.keeper);
        }
        for origin in self.kept.pending() {
            match &self.target {
                _ if origin.signal == SIGCHLD => self.reap_others(),
                // The whole group gets the signals of the kernel.
                Target::Program(pidfd, _) if origin.cause != Cause::Kernel => {
                    pass_on(pidfd, origin.signal);
                }
                Target::ChildrenOf(reaper) => pass_on_to_rest(*reaper, origin.signal),
                _ => {}
            }
        }
    }

    /// Reaps children that have ended, except the keeper and, when the keeper was killed, the
    /// program.
    fn reap_others(&self) {
        let program = match &self.target {
            Target::Program(_, pid) => Some(*pid),
            _ => None,
        };
        let children = proc::children(std::process::id());
        let pids = children.filter_map(|child| Pid::from_raw(child.cast_signed()));
        for pid in pids.filter(|pid| Some(*pid) != self.keeper && Some(*pid) != program) {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// Waits for the child `pid`, and reaps others meanwhile.
pub(crate) fn wait_for(pid: Pid) -> Result<Ending> {
    loop {
        match rustix::process::wait(BY_THIS_THREAD) {
            Ok(Some((other, status))) if other == pid => {
                if let Some(ending) = ending(status) {
                    return Ok(ending);
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(Failure::ours(
                    format!("cannot wait for process {pid}: {errno}"),
                    "report this: it cannot happen",
                ));
            }
        }
    }
}

/// Waits for the child `pid` alone. Returns how it ended, unless it was reaped before.
pub(crate) fn wait_for_alone(pid: Pid) -> Option<Ending> {
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                if let Some(ending) = ending(status) {
                    return Some(ending);
                }
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Waits until no child is left, and reaps all.
pub(crate) fn wait_for_rest() {
    while !matches!(rustix::process::wait(BY_THIS_THREAD), Err(Errno::CHILD)) {}
}

/// Returns whether any child is left that has not ended.
pub(crate) fn has_rest() -> bool {
    loop {
        match rustix::process::wait(BY_THIS_THREAD | WaitOptions::NOHANG) {
            // This child had ended, and is reaped now.
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Reaps services that never joined, and have ended or are about to: they must first notice that
/// their program has ended.
pub(crate) fn reap_unknown() {
    let children = proc::children(std::process::id());
    for child in children.filter(|child| proc::is_named_service(*child)) {
        let Some(pid) = Pid::from_raw(child.cast_signed()) else { continue };
        let is_there =
            || matches!(rustix::process::waitpid(Some(pid), WaitOptions::NOHANG), Ok(None));
        let mut tries = 0..REAP_TRIES;
        while is_there() && tries.next().is_some() {
            pause(REAP_INTERVAL);
        }
    }
}

/// Reaps these services, which are about to end, as far as they are children of ours that were not
/// reaped yet. A service that does not end is killed: a process that shared its memory may have
/// changed it.
pub(crate) fn reap(services: &[u32]) {
    for pid in services.iter().filter_map(|process| Pid::from_raw(process.cast_signed())) {
        let is_there =
            || matches!(rustix::process::waitpid(Some(pid), WaitOptions::NOHANG), Ok(None));
        let mut tries = 0..REAP_TRIES;
        while is_there() {
            if tries.next().is_none() {
                if !proc::is_named_service(pid.as_raw_pid().unsigned_abs()) {
                    break;
                }
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            pause(REAP_INTERVAL);
        }
    }
}

/// Returns the command line of `program` with `arguments`. The name that the user gave stays its
/// first argument.
pub(crate) fn command(program: &Program, arguments: &[std::ffi::OsString]) -> Command {
    let mut command = Command::new(&program.path);
    command.arg0(&program.name).args(arguments);
    signals::hand_on_ignored(&mut command);
    command
}

/// Puts the program in the launcher's place, with nothing changed. Returns only on failure.
pub(crate) fn replace_by(program: &Program, mut command: Command) -> Failure {
    let mut error = command.exec();
    if let Some(mut shell) = shell_for(program, &command, &error) {
        error = shell.exec();
    }
    cannot_execute(program, &error)
}

/// Starts `command`, made from `program`, which stops at its exec if it is foreign. Fails with 126
/// or 127 when the kernel cannot execute it.
pub(crate) fn spawn(program: &Program, mut command: Command) -> Result<Child> {
    let spawn = |command: &mut Command| {
        if program.is_foreign {
            trace::stop_at_exec(command);
        }
        command.spawn()
    };
    spawn(&mut command)
        .or_else(|error| match shell_for(program, &command, &error) {
            Some(mut shell) => spawn(&mut shell),
            None => Err(error),
        })
        .map_err(|error| cannot_execute(program, &error))
}

/// Returns the shell for a text file without `#!`, as `execvp` runs it, if that is why `command`
/// failed.
fn shell_for(program: &Program, command: &Command, error: &io::Error) -> Option<Command> {
    let is_text = program.image == Image::Other;
    if !is_text || error.raw_os_error() != Some(Errno::NOEXEC.raw_os_error()) {
        return None;
    }
    let mut shell = Command::new(SHELL);
    shell.arg(&program.path).args(command.get_args());
    signals::hand_on_ignored(&mut shell);
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

/// Sends `signal` to the program. A program that has ended needs no signal.
fn pass_on(pidfd: &OwnedFd, signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        let _ = rustix::process::pidfd_send_signal(pidfd, signal);
    }
}

/// Sends `signal` to every child of `reaper`. The program has ended, so they are its orphans, and
/// hand the signal on as they see fit.
fn pass_on_to_rest(reaper: Pid, signal: i32) {
    let Some(signal) = Signal::from_named_raw(signal) else { return };
    for child in proc::children(reaper.as_raw_pid().unsigned_abs()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(Ending::Exited(3).exit_code(), 3);
        assert_eq!(Ending::Signaled(9).exit_code(), 137);
        assert_eq!(Ending::Signaled(64).exit_code(), 192);
    }
}
