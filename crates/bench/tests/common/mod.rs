//! Helpers that the tests share: the benchmark and the command that it measures, without settings
//! from outside.
#![allow(dead_code, reason = "each test program uses its part")]

use std::path::Path;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The path of the benchmark.
pub(crate) const BENCH: &str = env!("CARGO_BIN_EXE_coldpress-bench");

/// Makes the command `coldpress-bench` with `args`.
pub(crate) fn command(args: &[&str]) -> Command {
    without_settings(Path::new(BENCH), args)
}

/// Makes the command `coldpress`, which lies beside the benchmark, with `args`.
pub(crate) fn coldpress(args: &[&str]) -> Command {
    without_settings(&Path::new(BENCH).with_file_name("coldpress"), args)
}

fn without_settings(file: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(file);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("COLDPRESS_") {
            command.env_remove(name);
        }
    }
    command.args(args);
    command
}

/// Waits until `process` has started a program with `word` in its command line, and returns its
/// number.
pub(crate) fn started_program(process: u32, word: &str) -> u32 {
    let begun = Instant::now();
    loop {
        let mut pgrep = Command::new("pgrep");
        pgrep.args(["-n", "-f", "-P", &process.to_string(), "--", word]);
        let output = pgrep.output().expect("there is a pgrep");
        if let Ok(found) = String::from_utf8_lossy(&output.stdout).trim().parse() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{word} is not started");
        sleep(Duration::from_millis(5));
    }
}

/// Returns the standard error of a command.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns whether programs can be managed here; if not, says so.
pub(crate) fn can_manage() -> bool {
    let doctor = coldpress(&["doctor"]).output().expect("cargo build --package coldpress-cli");
    let works = doctor.status.success();
    if !works {
        let said = String::from_utf8_lossy(&doctor.stdout);
        eprintln!("skipped: this machine cannot run coldpress:\n{said}");
    }
    works
}
