//! The runs of the program: each a `coldpress run` of its own, with the same input.
//!
//! What the program prints goes nowhere, so that it is not mixed with what `advise` prints. What it
//! writes on standard error is kept until the run ends, for the case that it fails. A file on
//! standard input is opened again for each run, so that each reads all of it; nothing else can be
//! read twice, so then standard input is empty.
//!
//! A run is a process group of its own. So a key on the terminal reaches `advise` alone, which ends
//! the run first.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use coldpress_common::failure::{EXIT_OURS, Failure, Result};
use rustix::process::{Pid, Signal};
use tempfile::NamedTempFile;

use crate::ctl::interrupt::Interrupt;
use crate::pause::pause;
use crate::report::Figures;
use crate::text::printable;

/// The interval between two looks at a run.
const INTERVAL: Duration = Duration::from_millis(20);
/// The time that a program is given to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);
/// The part of what a program has written on standard error that a failure shows.
const LAST_BYTES: u64 = 2000;
/// The variables that ask a run for more than a budget. The others hold for each run too.
const NOT_FOR_RUNS: [&str; 9] = [
    "COLDPRESS_STATS",
    "COLDPRESS_REPORT",
    "COLDPRESS_METRICS",
    "COLDPRESS_RECORD",
    "COLDPRESS_IDLE",
    "COLDPRESS_READY",
    "COLDPRESS_WAIT",
    "COLDPRESS_VERBOSE",
    "COLDPRESS_ALLOW_UNMANAGED",
];
/// What mends a program that fails.
const WELL: &str = "advise needs a program that ends with status 0, each time";

/// A program that is run again and again.
pub(super) struct Attempts<'a> {
    words: &'a [OsString],
    options: Vec<OsString>,
    input: Input,
    interrupt: &'a Interrupt,
}

/// Standard input of each run.
enum Input {
    Nothing,
    /// This file, read from this offset on.
    File(u64),
}

impl<'a> Attempts<'a> {
    /// Makes runs of the program `words` with these options of `run` for each.
    pub(super) fn new(
        words: &'a [OsString],
        options: Vec<OsString>,
        interrupt: &'a Interrupt,
    ) -> Self {
        Self { words, options, input: Input::find(), interrupt }
    }

    /// Returns whether standard input holds what cannot be read twice.
    pub(super) fn loses_input() -> bool {
        use rustix::fs::FileType;
        let stat = rustix::fs::fstat(rustix::stdio::stdin());
        let kind = stat.ok().map(|stat| FileType::from_raw_mode(stat.st_mode));
        matches!(kind, Some(FileType::Fifo | FileType::Socket))
    }

    /// Runs the program once within a budget, and returns the figures of the run. Calls `look`
    /// while it waits.
    pub(super) fn run(&self, memory: &str, look: impl Fn()) -> Result<Figures> {
        let no_file = |error: io::Error| {
            Failure::ours(
                format!("cannot keep what a run tells: {error}"),
                "make room in the directory for temporary files (TMPDIR)",
            )
        };
        let stats = NamedTempFile::new().map_err(no_file)?;
        let mut said = tempfile::tempfile().map_err(no_file)?;
        let mut command = self.command(memory, &stats, &said).map_err(no_file)?;
        let child = command.spawn().map_err(|error| {
            let cause = format!("cannot start a run: {error}");
            Failure::ours(cause, "raise the limits of this shell (ulimit -n, ulimit -u)")
        })?;
        let status = self.wait(child, look)?;
        let told = io::read_to_string(stats).map_err(no_file)?;
        let mut last = || last_lines(&mut said);
        if told.is_empty() {
            return Err(not_run(status, last()));
        }
        let figures = Figures::read(&told).map_err(|error| {
            Failure::ours(format!("a run told what is not known here: {error}"), "report it")
        })?;
        match ended(figures.exit_status()) {
            Some(how) => {
                let cause = format!("the program {how} within {memory}{}", last());
                Err(Failure::ours(cause, WELL))
            }
            None => Ok(figures),
        }
    }

    fn command(&self, memory: &str, stats: &NamedTempFile, said: &File) -> io::Result<Command> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0(crate::NAME).args(["run", "--quiet"]);
        command.arg(format!("--memory={memory}"));
        command.arg("--stats").arg(stats.path());
        command.args(&self.options).arg("--").args(self.words);
        NOT_FOR_RUNS.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.stdin(self.input.open()?).stdout(Stdio::null()).stderr(said.try_clone()?);
        command.process_group(0);
        Ok(command)
    }

    /// Waits until the run has ended. A signal ends it, and fails.
    fn wait(&self, mut child: Child, look: impl Fn()) -> Result<ExitStatus> {
        let lost = |error: io::Error| {
            Failure::ours(format!("cannot wait for a run: {error}"), "see what else reaps it")
        };
        loop {
            if let Some(status) = child.try_wait().map_err(lost)? {
                return Ok(status);
            }
            if self.interrupt.has_come() {
                end(&mut child);
                return Err(Failure::ours("interrupted", "the program has ended, too"));
            }
            look();
            pause(INTERVAL);
        }
    }
}

impl Input {
    fn find() -> Self {
        let stdin = rustix::stdio::stdin();
        let is_file = rustix::fs::fstat(stdin)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file());
        match rustix::fs::tell(stdin) {
            Ok(offset) if is_file => Self::File(offset),
            _ => Self::Nothing,
        }
    }

    fn open(&self) -> io::Result<Stdio> {
        match self {
            Self::Nothing => Ok(Stdio::null()),
            Self::File(offset) => {
                let mut file = File::open("/proc/self/fd/0")?;
                file.seek(SeekFrom::Start(*offset))?;
                Ok(file.into())
            }
        }
    }
}

/// Ends a run: by SIGTERM, which its launcher passes on, and after a while by SIGKILL.
fn end(child: &mut Child) {
    let Some(group) = Pid::from_raw(child.id().cast_signed()) else { return };
    let _ = rustix::process::kill_process(group, Signal::TERM);
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            return;
        }
        pause(INTERVAL);
    }
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

/// Returns how a program ended that did not end well.
fn ended(status: u8) -> Option<String> {
    match status {
        0 => None,
        129..=192 => Some(format!("was ended by signal {}", status - 128)),
        status => Some(format!("ended with status {status}")),
    }
}

/// Returns the failure of a run that has told nothing: it has said why.
fn not_run(status: ExitStatus, last: String) -> Failure {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("a run failed with status {code}"),
        (_, signal) => format!("a run was ended by signal {}", signal.unwrap_or(0)),
    };
    let way_out = "`coldpress run` with these options says more";
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_OURS);
    Failure { code, ..Failure::ours(format!("{how}{last}"), way_out) }
}

/// Returns the end of what a run wrote on standard error, as the end of a sentence.
fn last_lines(said: &mut File) -> String {
    let mut bytes = Vec::new();
    let end = said.seek(SeekFrom::End(0)).unwrap_or(0);
    let _ = said.seek(SeekFrom::Start(end.saturating_sub(LAST_BYTES)));
    let _ = said.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.map_or_else(String::new, |line| format!(", and last said: {}", printable(line.trim())))
}

#[cfg(test)]
mod tests {
    //! The risk: a program that failed counts as one that was fast.

    use super::*;

    #[test]
    fn what_did_not_end_well_is_named() {
        assert_eq!(ended(0), None);
        assert_eq!(ended(3).unwrap(), "ended with status 3");
        assert_eq!(ended(137).unwrap(), "was ended by signal 9");
        assert_eq!(ended(193).unwrap(), "ended with status 193");
    }
}
