//! Starts the programs that are measured: as they are, or within a budget.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use coldpress_common::failure::{Failure, Result};
use serde_json::Value;

use crate::interrupt::{self, Signals};
use crate::statistics::Side;

/// Includes a file of the system tests, which run the same programs.
macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/", $name))
    };
}
pub(super) use fixture;

/// The name of the measured command, which lies beside this one.
const COMMAND: &str = "coldpress";
/// The hidden subcommand that holds the workloads.
const WORKLOAD: &str = "workload";

/// The time that a program took, and its output.
pub(super) struct Outcome {
    /// The seconds from before the start of the program until it was reaped.
    pub(super) seconds: f64,
    /// The JSON that the program printed; null when it printed none.
    pub(super) printed: Value,
}

impl Outcome {
    /// Returns the number `key` that the program printed. Fails when it printed none.
    pub(super) fn number(&self, key: &str) -> Result<f64> {
        number(&self.printed, key)
    }
}

/// Returns the number `key` of a JSON object. Fails when it is not there.
pub(super) fn number(object: &Value, key: &str) -> Result<f64> {
    object[key].as_f64().ok_or_else(|| failed(format!("a run told no `{key}`")))
}

/// Returns the statistics that `coldpress run --stats` left in a file, if any. The program has its
/// file name alone: figures are kept, and its folder is private.
pub(super) fn stats_in(file: &Path) -> Option<Value> {
    let mut stats: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    let name = Path::new(stats["program"].as_str()?).file_name()?.to_string_lossy().into_owned();
    stats["program"] = name.into();
    Some(stats)
}

/// Makes the failure of a benchmark from its cause.
pub(super) fn failed(cause: String) -> Failure {
    Failure::ours(cause, "see `coldpress doctor` and `coldpress-bench --help`")
}

/// Returns the command that runs a workload of this program.
pub(super) fn workload(arguments: &[&str]) -> Command {
    let this = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut command = Command::new(this);
    command.arg(WORKLOAD).args(arguments);
    command
}

/// The command `coldpress` that runs programs within budgets.
pub(super) struct Launcher {
    file: PathBuf,
    /// Programs that it starts end in order, and what was made for them is removed.
    _signals: Signals,
}

impl Launcher {
    /// Finds the command to measure: `given`, or the one beside this one. Fails with its name.
    pub(super) fn new(given: Option<&Path>) -> Result<Self> {
        let beside = std::env::current_exe().map(|this| this.with_file_name(COMMAND));
        let runner =
            given.map_or_else(|| beside.unwrap_or_else(|_| COMMAND.into()), Path::to_owned);
        let way_out = "build it by `make build`, or name one by --coldpress FILE";
        Self::at(&runner, "measure", way_out)
    }

    /// Returns the launcher of another build, at `file`. Fails with its name.
    pub(super) fn other(file: &Path) -> Result<Self> {
        let way_out = "name the command of another build, such as ./coldpress-before";
        Self::at(file, "compare with", way_out)
    }

    fn at(file: &Path, verb: &str, way_out: &str) -> Result<Self> {
        let found = fs::canonicalize(file).map_err(|error| {
            Failure::ours(format!("cannot {verb} {}: {error}", file.display()), way_out)
        })?;
        Ok(Self { file: found, _signals: Signals::keep() })
    }

    /// Returns the command that runs the program of `plain` under `coldpress run` with `options`.
    pub(super) fn managed<S: AsRef<OsStr>>(&self, options: &[S], plain: &Command) -> Command {
        self.run_saying("--quiet", options, plain)
    }

    /// As [`Launcher::managed`], and it says what it does.
    pub(super) fn verbose<S: AsRef<OsStr>>(&self, options: &[S], plain: &Command) -> Command {
        self.run_saying("--verbose", options, plain)
    }

    fn run_saying<S: AsRef<OsStr>>(&self, how: &str, options: &[S], plain: &Command) -> Command {
        let mut command = Command::new(&self.file);
        command.args(["run", how]).args(options).arg("--");
        command.arg(plain.get_program()).args(plain.get_args());
        command
    }

    /// Returns the command that has `coldpress advise` run the program of `plain`.
    pub(super) fn advise<S: AsRef<OsStr>>(&self, options: &[S], plain: &Command) -> Command {
        let mut command = Command::new(&self.file);
        command.arg("advise").args(options).arg("--");
        command.arg(plain.get_program()).args(plain.get_args());
        command
    }

    /// Returns the command that attaches to a process with a budget, and says so.
    pub(super) fn attach(&self, process: u32, budget_mib: usize) -> Command {
        let mut command = Command::new(&self.file);
        command.args(["attach", "--verbose", "--disk", "none", "--memory"]);
        command.args([format!("{budget_mib}Mi"), process.to_string()]);
        command
    }

    /// Runs the program of `plain` on one of the two sides.
    pub(super) fn run(&self, side: Side, options: &[&str], mut plain: Command) -> Result<Outcome> {
        match side {
            Side::Plain => run(&mut plain),
            Side::Managed => run(&mut self.managed(options, &plain)),
        }
    }
}

/// Returns the first of these commands that is not installed.
pub(super) fn absent<'a>(names: &[&'a str]) -> Option<&'a str> {
    let is_absent = |name: &&&str| {
        let words = ["-c", "command -v \"$0\"", name];
        let found = Command::new("/bin/sh").args(words).stdout(Stdio::null()).status();
        !found.is_ok_and(|status| status.success())
    };
    names.iter().find(is_absent).copied()
}

/// Returns whether valgrind is installed.
pub(super) fn is_valgrind_here() -> bool {
    let mut version = Command::new("valgrind");
    version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Removes the user's settings for other runs from a program's environment: they would change its
/// figures.
pub(super) fn forget_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("COLDPRESS_") {
            command.env_remove(name);
        }
    }
}

/// Runs a program to its end. Its standard error is that of this command.
pub(super) fn run(command: &mut Command) -> Result<Outcome> {
    forget_settings(command);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let started = Instant::now();
    let output = interrupt::output(command);
    let seconds = started.elapsed().as_secs_f64();
    let name = || command.get_program().display();
    let output = output.map_err(|error| failed(format!("cannot start {}: {error}", name())))?;
    if !output.status.success() {
        return Err(failed(format!("{} ended with {}", name(), output.status)));
    }
    let printed = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    Ok(Outcome { seconds, printed })
}
