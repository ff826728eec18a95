//! The outcome of a case of a target program, and the checks that cases are made of.

use std::io;
use std::process::ExitCode;

/// The reason why a case ended early.
pub enum Stop {
    /// Something was wrong.
    Fail(String),
    /// This machine forbids the call.
    Skip(String),
}

/// The outcome of a case.
pub type Outcome = Result<(), Stop>;

/// The outcomes of all cases.
#[derive(Default)]
pub struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    evicted: usize,
    pages: usize,
}

impl Counts {
    /// Counts a case and prints its line: `evicted` of its `pages` were not in memory when it
    /// began.
    pub fn add(&mut self, name: &str, outcome: Outcome, (evicted, pages): (usize, usize)) {
        (self.evicted, self.pages) = (self.evicted + evicted, self.pages + pages);
        match outcome {
            Ok(()) => {
                println!("ok {name} evicted={evicted}/{pages}");
                self.passed += 1;
            }
            Err(Stop::Skip(text)) => {
                println!("skip {name}: {text}");
                self.skipped += 1;
            }
            Err(Stop::Fail(text)) => {
                println!("FAIL {name} evicted={evicted}/{pages}: {text}");
                self.failed += 1;
            }
        }
    }

    /// Prints the sums. Returns the exit status of the program.
    pub fn finish(&self) -> ExitCode {
        println!("evicted_pages={} of {}", self.evicted, self.pages);
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Makes the failure of a call, with `errno`.
pub fn failed(call: &str) -> Stop {
    Stop::Fail(format!("{call}: {}", io::Error::last_os_error()))
}

/// Makes the failure of a wrong answer.
pub fn wrong<T>(text: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Fail(text.into()))
}

/// Checks that the call gave exactly `wanted`.
pub fn exactly(call: &str, got: impl TryInto<i64>, wanted: usize) -> Outcome {
    match got.try_into() {
        Ok(-1) => Err(failed(call)),
        Ok(got) if got == wanted as i64 => Ok(()),
        Ok(got) => wrong(format!("{call} gave {got}, not {wanted}")),
        Err(_) => wrong(format!("{call} gave no number")),
    }
}

/// Checks that the call failed with this `errno`.
pub fn fails(call: &str, got: impl TryInto<i64>, errno: i32) -> Outcome {
    let error = io::Error::last_os_error();
    match got.try_into() {
        Ok(-1) if error.raw_os_error() == Some(errno) => Ok(()),
        Ok(-1) => wrong(format!("{call}: {error}")),
        Ok(got) => wrong(format!("{call} gave {got}, should have failed with {errno}")),
        Err(_) => wrong(format!("{call} gave no number")),
    }
}
