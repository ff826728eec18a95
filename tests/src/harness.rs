//! One job, run plain and within a budget, and the two compared.
//!
//! ```text
//! plain = run(job)                    output, status, files, peak of anonymous memory
//! for fraction in [1/2, 1/4]:
//!     managed = coldpress run --memory (plain.peak * fraction) -- job
//!     managed must equal plain, and must have stayed within the budget
//! ```
//!
//! Output is compared byte for byte, never by a digest of it, and every run has a time limit: a
//! program that hangs fails its test.
//!
//! Invariants:
//! 1. Both halves see the same environment, directory and input.
//! 2. No process of a run outlives it: a failed or dropped run kills its tree.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{env, thread};

use coldpress_sys::Bytes;

use crate::machine::{self, Scratch};
use crate::watch::{self, Measure, Memory, Watch};

mod outcome;
mod stream;

pub use outcome::{Run, Stats};
use stream::Stream;

/// The memory that a managed tree may hold beyond its budget: the promise the tests keep coldpress
/// to.
pub const SLACK: Bytes = Bytes::mib(4);
/// Time limit of a job: no job takes longer, on a busy machine and within a quarter of its memory.
const RUN_MAX: Duration = Duration::from_secs(180);
/// Time limit for a program's pipes to close after its end. They close at once, unless a process of
/// the program lives on.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// The smallest budget that coldpress takes.
const BUDGET_FLOOR: Bytes = Bytes::mib(16);

/// A part of a job's own peak, as its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fraction {
    /// 1/2.
    Half,
    /// 1/4.
    Quarter,
}

impl Fraction {
    /// Returns this part of `peak`, in whole MiB and no less than coldpress takes: what a user
    /// would type.
    pub fn of(self, peak: Bytes) -> Bytes {
        let divisor = match self {
            Self::Half => 2,
            Self::Quarter => 4,
        };
        Bytes::mib((peak.0 / divisor) >> 20).max(BUDGET_FLOOR)
    }
}

/// The proof that a managed run must give beside the right output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Pages were stored, and memory stayed within budget and [`SLACK`].
    Budget,
    /// Pages were stored; a forked child, which is not managed, may hold more than the budget.
    Stored,
    /// Nothing more: all memory of this job is in forked children, or it may fit.
    Output,
}

/// A command with its surroundings.
#[derive(Clone, Debug)]
pub struct Job {
    name: &'static str,
    words: Vec<OsString>,
    before: Vec<OsString>,
    launcher: Option<PathBuf>,
    options: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    stdin: Option<PathBuf>,
    artefacts: Vec<PathBuf>,
    proof: Proof,
    measure: Measure,
    rate_hz: u32,
}

impl Job {
    /// Makes the job `name`, which runs `program`.
    pub fn new(name: &'static str, program: impl Into<OsString>) -> Self {
        Self {
            name,
            words: vec![program.into()],
            before: Vec::new(),
            launcher: None,
            options: Vec::new(),
            environment: Vec::new(),
            directory: None,
            stdin: None,
            artefacts: Vec::new(),
            proof: Proof::Budget,
            measure: Measure::Resident,
            rate_hz: watch::RATE_HZ,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, words: impl IntoIterator<Item = A>) -> Self {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(self, word: impl Into<OsString>) -> Self {
        self.args([word])
    }

    /// Puts words in front of everything, the launcher included; they must end in an exec.
    #[must_use]
    pub fn before<A: Into<OsString>>(mut self, words: impl IntoIterator<Item = A>) -> Self {
        self.before = words.into_iter().map(Into::into).collect();
        self
    }

    /// Uses another copy of the built command, for a user that cannot read where it was built.
    #[must_use]
    pub fn launcher(mut self, path: impl Into<PathBuf>) -> Self {
        self.launcher = Some(path.into());
        self
    }

    /// Adds options of `coldpress run`, for managed runs.
    #[must_use]
    pub fn options<A: Into<OsString>>(mut self, words: impl IntoIterator<Item = A>) -> Self {
        self.options.extend(words.into_iter().map(Into::into));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn environment(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Runs the job in `directory`.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Reads standard input from `file`; without, it is empty.
    #[must_use]
    pub fn stdin(mut self, file: impl Into<PathBuf>) -> Self {
        self.stdin = Some(file.into());
        self
    }

    /// Adds a file that the job writes, compared like its output.
    #[must_use]
    pub fn artefact(mut self, file: impl Into<PathBuf>) -> Self {
        self.artefacts.push(file.into());
        self
    }

    /// Sets what a managed run must show; [`Proof::Budget`] unless set.
    #[must_use]
    pub fn proof(mut self, proof: Proof) -> Self {
        self.proof = proof;
        self
    }

    /// Notes that the job forks children that do not exec. Parent and child share pages until one
    /// writes, so peaks count shares. Such a child is not managed, so no budget is checked.
    #[must_use]
    pub fn forks(mut self) -> Self {
        self.proof = Proof::Stored;
        self.measure = Measure::Shares;
        self.rate_hz = watch::RATE_SHARES_HZ;
        self
    }

    /// Notes that the job has shared memory: peaks count it, each page once.
    #[must_use]
    pub fn shares(mut self) -> Self {
        self.measure = Measure::Shares;
        self.rate_hz = watch::RATE_SHARES_HZ;
        self
    }

    /// Sets the samples of memory a second.
    #[must_use]
    pub fn rate_hz(mut self, rate_hz: u32) -> Self {
        self.rate_hz = rate_hz;
        self
    }

    /// Runs the job without coldpress.
    pub fn plain(&self) -> Run {
        Live::start(self, None).finish(RUN_MAX)
    }

    /// Runs the job within `budget`.
    pub fn managed(&self, budget: Bytes) -> Run {
        Live::start(self, Some(budget)).finish(RUN_MAX)
    }

    /// Returns the program's words, with the launcher's in front for a managed run.
    fn command_line(&self, budget: Option<Bytes>, stats: &Path) -> Vec<OsString> {
        let mut line = self.before.clone();
        if let Some(budget) = budget {
            let launcher = self.launcher.clone().unwrap_or_else(machine::coldpress);
            line.push(launcher.into());
            // Budgets here are whole MiB, so nothing is lost.
            let size = format!("{}Mi", budget.0 >> 20);
            line.extend(["run".into(), "--memory".into(), size.into()]);
            line.extend(["--stats".into(), stats.into()]);
            line.extend(self.options.iter().cloned());
            line.push("--".into());
        }
        line.extend(self.words.iter().cloned());
        line
    }
}

/// A running job; end it with [`Live::finish`].
#[derive(Debug)]
pub struct Live {
    root: u32,
    name: &'static str,
    budget: Option<Bytes>,
    begin: Instant,
    status: Receiver<std::process::ExitStatus>,
    stdout: Stream,
    stderr: Stream,
    watch: Option<Watch>,
    artefacts: Vec<PathBuf>,
    scratch: Scratch,
    orphans: Vec<u32>,
    ended: bool,
}

impl Live {
    /// Starts `job`, within `budget` if there is one.
    ///
    /// # Panics
    /// When the command cannot be started.
    pub fn start(job: &Job, budget: Option<Bytes>) -> Self {
        let scratch = Scratch::new("run");
        let line = job.command_line(budget, &scratch.path("stats.json"));
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(job.stdin.as_ref().map_or_else(Stdio::null, |path| {
            File::open(path).expect("the test made its input").into()
        }));
        // Words and numbers stay the same whatever the machine's language, seed and day.
        let fixed = [("LC_ALL", "C.UTF-8"), ("PYTHONHASHSEED", "0"), ("SOURCE_DATE_EPOCH", "0")];
        for (name, _) in env::vars_os() {
            // Options of coldpress can be variables too: a user's own must not change a test.
            if name.as_bytes().starts_with(b"COLDPRESS_") {
                command.env_remove(name);
            }
        }
        command.envs(fixed).envs(job.environment.iter().cloned());
        if let Some(directory) = &job.directory {
            command.current_dir(directory);
        }
        for path in &job.artefacts {
            // A file that an earlier run left must not pass for this run's; usually there is none.
            drop(fs::remove_file(path));
        }
        let begin = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", line[0]));
        let root = child.id();
        let stdout = Stream::collect(child.stdout.take().expect("asked for a pipe above"));
        let stderr = Stream::collect(child.stderr.take().expect("asked for a pipe above"));
        let watch =
            Watch::start(root, job.measure, job.rate_hz, budget.map(|budget| budget + SLACK));
        let (sender, status) = mpsc::channel();
        thread::spawn(move || {
            let status = child.wait().expect("nothing else waits for this child");
            // The receiver is gone when the run was given up: then nothing waits for the status.
            sender.send(status).ok();
        });
        Self {
            root,
            name: job.name,
            budget,
            begin,
            status,
            stdout,
            stderr,
            watch: Some(watch),
            artefacts: job.artefacts.clone(),
            scratch,
            orphans: Vec::new(),
            ended: false,
        }
    }

    /// Returns the launcher's process number, or the program's in a plain run.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// Waits until standard output holds `word`.
    ///
    /// # Panics
    /// When the output ends, or `limit` passes, without it.
    pub fn wait_for_output(&self, word: &str, limit: Duration) {
        let seen = self.stdout.wait_for(word.as_bytes(), limit);
        assert!(seen, "{}: no {word:?} in the output; {}", self.name, self.stderr.text());
    }

    /// Waits for the end, and returns what the run came to.
    ///
    /// # Panics
    /// When `limit` passes first, or a process of the run lives on and holds its output.
    pub fn finish(mut self, limit: Duration) -> Run {
        let status = match self.status.recv_timeout(limit) {
            Ok(status) => status,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{}: hangs, not done after {limit:?}; {}", self.name, self.stderr.text())
            }
            Err(RecvTimeoutError::Disconnected) => panic!("{}: lost its status", self.name),
        };
        let wall = self.begin.elapsed();
        let memory = self.stop_watch();
        let closed = self.stdout.wait_end(CLOSE_MAX) && self.stderr.wait_end(CLOSE_MAX);
        assert!(closed, "{}: something of it lives on", self.name);
        self.ended = true;
        Run {
            name: self.name,
            budget: self.budget,
            code: outcome::code(status),
            stdout: self.stdout.take(),
            stderr: self.stderr.text(),
            files: self.artefacts.iter().map(|path| fs::read(path).ok()).collect(),
            wall,
            memory,
            stats: Stats::read(&self.scratch.path("stats.json")),
        }
    }

    /// Kills the root alone, and remembers its tree. The drop of this run then ends the tree.
    pub fn kill_root(&mut self) {
        self.orphans = watch::descendants(self.root);
        machine::signal("KILL", &[self.root]);
    }

    /// Waits for the end of everything that holds the output, whether or not the root still lives.
    /// Returns whether that came within `limit`.
    pub fn wait_output_end(&self, limit: Duration) -> bool {
        self.stdout.wait_end(limit)
    }

    /// Returns the standard output so far.
    pub fn output(&self) -> Vec<u8> {
        self.stdout.take()
    }

    fn stop_watch(&mut self) -> Memory {
        self.watch.take().map(Watch::stop).unwrap_or_default()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop_watch();
        if !self.ended {
            let mut tree = watch::descendants(self.root);
            tree.append(&mut self.orphans);
            tree.push(self.root);
            machine::signal("KILL", &tree);
        }
    }
}

/// Runs `job` plain, then within each of `fractions` of its own peak, and compares.
///
/// # Panics
/// When anything differs, a page count says nothing was managed, or memory was over the budget.
pub fn check(job: &Job, fractions: &[Fraction]) {
    let plain = job.plain();
    assert_eq!(plain.code, 0, "{}: fails without coldpress: {}", job.name, plain.stderr);
    println!("{plain}");
    for &fraction in fractions {
        let run = job.managed(fraction.of(plain.memory.peak_total));
        println!("{run}");
        run.assert_same(&plain);
        if job.proof != Proof::Output {
            run.assert_stored();
        }
        if job.proof == Proof::Budget {
            run.assert_within_budget();
        }
    }
}
