//! The two processes of a run beside its program: the launcher, which the user started, and the
//! keeper, its child, which does all the work.
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
//! background goes on as before, because the keeper stays for it. The same holds when the launcher
//! is killed.
//!
//! Once the program has begun, the keeper is in a process group of its own, and blocks all signals.
//! So neither a terminal, nor a SIGTERM to a whole service, ends the keeper before the processes
//! that it serves. If the keeper is killed all the same, the launcher becomes their reaper.

use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::time::Duration;

use coldpress_common::failure::{Failure, Result};
use coldpress_sys::{beside, fork, raw};
use rustix::io::Errno;
use rustix::process::{Pid, getpgid, getpid, getppid, setpgid, setsid};

use crate::inject::{Ended, Injector, UNSEEN_FORKS};
use crate::own_number;
use crate::pause::pause;
use crate::program::Program;
use crate::say;
use crate::supervise::{self, Ending, Signals};

/// The keeper's name in `ps` and `top`. A service is called `coldpress`, as is the launcher.
const NAME: &str = "coldpress-keep";

/// The first bytes of the keeper's messages: the program has this number; it was reaped, with this
/// status; the launcher may end, with this status.
const STARTED: u8 = b's';
const REAPED: u8 = b'r';
const ENDED: u8 = b'e';
/// The signal reported for a program whose end is unknown.
const SIGKILL: u8 = 9;
/// The interval between two looks at what a killed keeper has left.
const REST_INTERVAL: Duration = Duration::from_millis(50);
/// FD_CLOEXEC among the flags of proc_pid_fdinfo(5).
const CLOSED_BY_EXEC: u32 = 0o2_000_000;
/// The length of a message: the first byte, and a number.
const WORD_BYTES: usize = 1 + size_of::<u32>();

/// The part that the caller plays.
pub(crate) enum Part {
    Launcher(Launcher),
    Keeper(Keeper),
}

/// The launcher's side.
pub(crate) struct Launcher {
    keeper: Pid,
    words: PipeReader,
    signals: Signals,
    waits_for_rest: bool,
}

/// The keeper's side.
pub(crate) struct Keeper {
    words: PipeWriter,
    launcher: Option<Pid>,
    /// The launcher's signal mask.
    mask: u64,
}

/// Makes the keeper. From here on there are two processes.
pub(crate) fn part(waits_for_rest: bool) -> Result<Part> {
    let (receiver, words) = io::pipe()
        .map_err(|error| Failure::ours(format!("cannot make a pipe: {error}"), supervise::RAISE))?;
    // The keeper's children come to the launcher if the keeper is killed.
    supervise::become_reaper()?;
    let mut signals = Signals::keep()?;
    // A handler that ran in both processes would speak for the other one.
    let mask = raw::block_signals();
    let child = fork::fork_here().map_err(|error| {
        let is_limit = error.is(Errno::AGAIN) || error.is(Errno::NOMEM);
        let way_out = "`coldpress doctor` says what this machine lacks";
        let way_out = if is_limit { supervise::RAISE } else { way_out };
        Failure::ours(format!("cannot start the keeper: {error}"), way_out)
    })?;
    let Some(keeper) = child else {
        drop((receiver, signals));
        // The name is for people only.
        let _ = fs::write("/proc/self/comm", NAME);
        // A child inherits the handler, but not the role of a reaper.
        supervise::become_reaper()?;
        return Ok(Part::Keeper(Keeper { words, launcher: getppid(), mask }));
    };
    drop(words);
    signals.set_keeper(keeper, waits_for_rest);
    raw::set_signal_mask(mask);
    Ok(Part::Launcher(Launcher { keeper, words: receiver, signals, waits_for_rest }))
}

impl Launcher {
    /// Waits until the program has ended, and returns the exit status for the user.
    pub(crate) fn wait(mut self) -> Result<u8> {
        let (mut program, mut code) = (None, None);
        let mut word = [0; WORD_BYTES];
        loop {
            self.signals.pass_on_until(self.words.as_fd());
            if self.words.read_exact(&mut word).is_err() {
                break;
            }
            let [kind, number @ ..] = word;
            let number = u32::from_le_bytes(number);
            match kind {
                // The rest of the run goes on without the launcher.
                ENDED => return Ok(number as u8),
                REAPED => {
                    code = Some(number as u8);
                    self.signals.are_for_rest(self.waits_for_rest.then_some(self.keeper));
                }
                _ => {
                    program = Pid::from_raw(number.cast_signed());
                    program.map_or(Ok(()), |pid| self.signals.are_for(pid))?;
                }
            }
        }
        match (supervise::wait_for(self.keeper)?, program) {
            (Ending::Signaled(signal), Some(program)) => {
                say(format!(
                    "fatal: the keeper of this run was ended by signal {signal}; what it had \
                     started goes on, and nobody tells whether its budget is kept"
                ));
                Ok(self.go_on_without(program, code))
            }
            (ending, _) => Ok(ending.exit_code()),
        }
    }

    /// Adopts the children of a killed keeper. Returns the exit status of the program, which is
    /// `code` if the program has ended before.
    fn go_on_without(mut self, program: Pid, code: Option<u8>) -> u8 {
        let code = code.unwrap_or_else(|| {
            self.signals.pass_on_until_end();
            // The keeper may have reaped the program, without time to say so.
            supervise::wait_for_alone(program).unwrap_or(Ending::Signaled(SIGKILL)).exit_code()
        });
        if self.waits_for_rest {
            self.signals.are_for_rest(Some(getpid()));
            while supervise::has_rest() {
                self.signals.pass_on();
                pause(REST_INTERVAL);
            }
        }
        code
    }
}

impl Keeper {
    /// Starts `command`, made from `program`, and leaves the group of the launcher to it. The
    /// library is put into a foreign program before it begins, if it `must`; also returns how long
    /// that took.
    pub(crate) fn spawn(
        &mut self,
        program: &Program,
        command: Command,
        injector: &Injector,
        must: bool,
    ) -> Result<(Child, Option<Duration>)> {
        // The program inherits the mask.
        raw::set_signal_mask(self.mask);
        let child = supervise::spawn(program, command);
        raw::block_signals();
        let mut child = child?;
        let _ = setpgid(None, None);
        self.say(STARTED, child.id());
        let is_it = |process| !own_number::is_in_place(process);
        if !program.is_foreign {
            return Ok((child, None));
        }
        match injector.put_in_at_exec(child.id(), self.mask, must, is_it) {
            Ok(took) => Ok((child, took)),
            Err(Ended) => {
                // It was killed before it began.
                let _ = child.wait();
                let cause = format!("{}: {UNSEEN_FORKS}", program.path.display());
                let way_out = "manage it all the same with --unsafe-fork, then children that it \
                               forks may end by SIGSEGV; or run it without a budget with \
                               --allow-unmanaged";
                Err(Failure::ours(cause, way_out))
            }
        }
    }

    /// Reports that the program has been reaped, and ended with this status.
    pub(crate) fn say_reaped(&mut self, code: u8) {
        self.say(REAPED, u32::from(code));
    }

    /// Reports the exit status that the user gets now, while processes of the run are left.
    pub(crate) fn say_ended(mut self, code: u8) {
        // The keeper moves to a session of its own. Then what is left in the launcher's group
        // becomes an orphan of the terminal as soon as the launcher has ended, as without a keeper.
        // The leader of a group cannot make a session, so the keeper joins the launcher's group
        // first.
        let group = self.launcher.and_then(|launcher| getpgid(Some(launcher)).ok());
        let _ = group.map(|group| setpgid(None, Some(group)));
        let _ = setsid();
        self.say(ENDED, u32::from(code));
        // Now a reader of the launcher's output sees the end of it.
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        // Nor does the keeper hold open the files the launcher was started with, above all locks,
        // or a directory.
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

/// Lists the standard files, and all that this process has opened itself. The process that started
/// it can only have handed on files that an exec leaves open.
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
