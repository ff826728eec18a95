//! Starts what is measured: a program as it is, or within a budget.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::failure::{Failure, Result};
use coldpress_bench::statistics::Side;

/// The hidden subcommand that holds the workloads.
const WORKLOAD: &str = "bench-workload";

/// How long a program took, and what it printed.
pub(super) struct Outcome {
    /// From before its start until it was reaped.
    pub(super) seconds: f64,
    /// The JSON it printed; null when it printed none.
    pub(super) printed: Value,
}

impl Outcome {
    /// A number the program printed. Fails when it did not.
    pub(super) fn number(&self, key: &str) -> Result<f64> {
        number(&self.printed, key)
    }
}

/// A number in a JSON object. Fails when it is not there.
pub(super) fn number(object: &Value, key: &str) -> Result<f64> {
    object[key].as_f64().ok_or_else(|| failed(format!("a run told no `{key}`")))
}

/// What `coldpress run --stats` left in a file, if anything, with the program by its name alone:
/// figures are kept, and where it lay is nobody's business.
pub(super) fn stats_in(file: &Path) -> Option<Value> {
    let mut stats: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    let name = Path::new(stats["program"].as_str()?).file_name()?.to_string_lossy().into_owned();
    stats["program"] = name.into();
    Some(stats)
}

/// A failure of a benchmark.
pub(super) fn failed(cause: String) -> Failure {
    Failure::ours(cause, "see `coldpress doctor` and `coldpress bench --help`")
}

/// The command that runs now; it measures itself.
pub(super) struct Launcher {
    /// It has the workloads.
    command: PathBuf,
    /// What runs them within a budget: the same, or another build.
    runner: PathBuf,
}

impl Launcher {
    /// Finds the command.
    pub(super) fn new() -> Result<Self> {
        let command = std::env::current_exe()
            .map_err(|error| failed(format!("cannot find the command itself: {error}")))?;
        Ok(Self { runner: command.clone(), command })
    }

    /// The same workloads, run within budgets by the build `file`.
    pub(super) fn by(&self, file: &Path) -> Result<Self> {
        let runner = fs::canonicalize(file).map_err(|error| {
            let cause = format!("cannot compare with {}: {error}", file.display());
            Failure::ours(cause, "name the command of another build, such as ./coldpress-before")
        })?;
        Ok(Self { command: self.command.clone(), runner })
    }

    /// A workload of ours as a program.
    pub(super) fn workload(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.command);
        command.arg(WORKLOAD).args(arguments);
        command
    }

    /// The program of `plain` under `coldpress run` with `options`.
    pub(super) fn managed<S: AsRef<OsStr>>(&self, options: &[S], plain: &Command) -> Command {
        let mut command = Command::new(&self.runner);
        command.args(["run", "--quiet"]).args(options).arg("--");
        command.arg(plain.get_program()).args(plain.get_args());
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

/// The first of these commands that is not installed.
pub(super) fn absent<'a>(names: &[&'a str]) -> Option<&'a str> {
    let is_absent = |name: &&&str| {
        let words = ["-c", "command -v \"$0\"", name];
        let found = Command::new("/bin/sh").args(words).stdout(Stdio::null()).status();
        !found.is_ok_and(|status| status.success())
    };
    names.iter().find(is_absent).copied()
}

/// Whether valgrind is installed.
pub(super) fn is_valgrind_here() -> bool {
    let mut version = Command::new("valgrind");
    version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Keeps from a program what the user set for other runs: it would change what is measured.
pub(super) fn forget_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("COLDPRESS_") {
            command.env_remove(name);
        }
    }
}

/// Runs a program to its end. Its errors go to ours.
pub(super) fn run(command: &mut Command) -> Result<Outcome> {
    forget_settings(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let started = Instant::now();
    let output = command.output();
    let seconds = started.elapsed().as_secs_f64();
    let name = || command.get_program().display();
    let output = output.map_err(|error| failed(format!("cannot start {}: {error}", name())))?;
    if !output.status.success() {
        return Err(failed(format!("{} ended with {}", name(), output.status)));
    }
    let printed = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    Ok(Outcome { seconds, printed })
}
