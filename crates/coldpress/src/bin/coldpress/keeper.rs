//! A run has two processes beside its program: the launcher, which the user started, and the
//! keeper, a child of it, which does all the work.
//!
//! ```text
//! shell
//!   launcher        waits for the program, passes signals on, hands on its exit status
//!     keeper        reaper of the run; serves sockets, ledger and disk until all have ended
//!       program     in the process group of the launcher
//!       services, and orphans of the run
//! ```
//!
//! The launcher ends with the program, as `env` or `timeout` would. What the program leaves in the
//! background goes on as it did, as the keeper stays for it. And it does when the launcher is
//! killed.
//!
//! The keeper is in a process group of its own and blocks all signals, so that no terminal, and
//! nobody who ends a whole service by SIGTERM, ends it before those that it is there for. If it is
//! killed all the same, the launcher becomes their reaper.

use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use coldpress_sys::{beside, fork, raw};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::failure::{Failure, Result};
use crate::program::Program;
use crate::say;
use crate::supervise::{self, Ending, Signals};

/// What `ps` and `top` call it. A service is called `coldpress`, as is the launcher.
const NAME: &str = "coldpress-keep";

/// First bytes of what the keeper says: the program has this number; it has ended with this code.
const STARTED: u8 = b's';
const ENDED: u8 = b'e';
/// FD_CLOEXEC among the flags of proc_pid_fdinfo(5).
const CLOSED_BY_EXEC: u32 = 0o2_000_000;
/// Bytes of a word: the first, and a number.
const WORD_BYTES: usize = 1 + size_of::<u32>();

/// Which of the two the caller is.
pub(crate) enum Part {
    Launcher(Launcher),
    Keeper(Keeper),
}

/// The launcher's side.
pub(crate) struct Launcher {
    keeper: Pid,
    words: PipeReader,
    signals: Signals,
}

/// The keeper's side.
pub(crate) struct Keeper {
    words: PipeWriter,
    /// The process group of the launcher, and its signal mask.
    group: Pid,
    mask: u64,
}

/// Makes the keeper; from here on there are two processes.
pub(crate) fn part(waits_for_rest: bool) -> Result<Part> {
    let (receiver, words) = io::pipe()
        .map_err(|error| Failure::ours(format!("cannot make a pipe: {error}"), supervise::RAISE))?;
    // The keeper's children come to the launcher if it is killed.
    supervise::become_reaper()?;
    let group = rustix::process::getpgrp();
    // Those that come now wait.
    let mask = raw::block_signals();
    let child = fork::fork_here().map_err(|error| {
        let is_limit = error.is(Errno::AGAIN) || error.is(Errno::NOMEM);
        let way_out = "`coldpress doctor` says what this machine lacks";
        let way_out = if is_limit { supervise::RAISE } else { way_out };
        Failure::ours(format!("cannot start the keeper: {error}"), way_out)
    })?;
    let Some(keeper) = child else {
        drop(receiver);
        let _ = rustix::process::setpgid(None, None);
        // For people only.
        let _ = fs::write("/proc/self/comm", NAME);
        // A child inherits the handler, and not that it is a reaper.
        supervise::become_reaper()?;
        return Ok(Part::Keeper(Keeper { words, group, mask }));
    };
    drop(words);
    let signals = Signals::keep(waits_for_rest.then_some(keeper));
    raw::set_signal_mask(mask);
    Ok(Part::Launcher(Launcher { keeper, words: receiver, signals: signals? }))
}

impl Launcher {
    /// Waits until the program has ended; the exit status for the user.
    pub(crate) fn wait(mut self) -> Result<u8> {
        let mut program = None;
        let mut word = [0; WORD_BYTES];
        loop {
            // Those that come before the program are for the program, once it is there.
            if program.is_some() {
                self.signals.pass_on_until(self.words.as_fd());
            }
            if self.words.read_exact(&mut word).is_err() {
                break;
            }
            let [kind, number @ ..] = word;
            let number = u32::from_le_bytes(number);
            if kind == ENDED {
                // The rest goes on without the launcher.
                return Ok(number as u8);
            }
            program = Pid::from_raw(number.cast_signed());
            program.map_or(Ok(()), |pid| self.signals.are_for(pid))?;
        }
        let ending = supervise::wait_for(self.keeper)?;
        match (ending, program) {
            (Ending::Signaled(signal), Some(program)) => self.go_on_without(program, signal),
            _ => Ok(ending.exit_code()),
        }
    }

    /// The keeper was ended by a signal, so its children are ours now.
    fn go_on_without(mut self, program: Pid, signal: u8) -> Result<u8> {
        say(format!(
            "fatal: the keeper of this run was ended by signal {signal}; what it had started goes \
             on, and nobody tells whether its budget is kept"
        ));
        if let Ok(pidfd) = rustix::process::pidfd_open(program, PidfdFlags::empty()) {
            self.signals.pass_on_until(pidfd.as_fd());
        }
        Ok(supervise::wait_for(program)?.exit_code())
    }
}

impl Keeper {
    /// Starts `command`, made from `program`, in the group of the launcher.
    pub(crate) fn spawn(&mut self, program: &Program, mut command: Command) -> Result<Child> {
        command.process_group(self.group.as_raw_pid());
        // The program inherits the mask.
        raw::set_signal_mask(self.mask);
        let child = supervise::spawn(program, command);
        raw::block_signals();
        let child = child?;
        self.say(STARTED, child.id());
        Ok(child)
    }

    /// The program has ended, and the user shall have this exit status; other processes of the run
    /// have not.
    pub(crate) fn say_ended(mut self, code: u8) {
        self.say(ENDED, u32::from(code));
        // Whoever reads what the launcher wrote sees its end.
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        // Nor does what it was started with, a lock above all, stay open for it, or a directory.
        if let Ok(own) = own_files() {
            let _ = beside::close_files(own.into_iter());
        }
        let _ = rustix::process::chdir("/");
    }

    fn say(&mut self, kind: u8, number: u32) {
        let mut word = [kind; WORD_BYTES];
        word[1..].copy_from_slice(&number.to_le_bytes());
        // A launcher that was killed need not know.
        let _ = self.words.write_all(&word);
    }
}

/// The standard ones, and all that this process has opened itself: who started it can only have
/// handed on what an exec leaves open.
fn own_files() -> io::Result<Vec<i32>> {
    let is_own = |file: &i32| {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{file}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        *file <= 2 || flags.is_none_or(|flags| flags & CLOSED_BY_EXEC != 0)
    };
    let files = fs::read_dir("/proc/self/fd")?.flatten();
    let numbers = files.filter_map(|file| file.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(is_own).collect())
}
