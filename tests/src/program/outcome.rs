//! What a case of a target program gives, and the judgements cases are made of.

use std::io;
use std::process::ExitCode;

/// Why a case ended early.
pub enum Stop {
    /// Something was wrong.
    Fail(String),
    /// This machine forbids the call.
    Skip(String),
}

/// What a case gives.
pub type Outcome = Result<(), Stop>;

/// What all cases gave.
#[derive(Default)]
pub struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    evicted: usize,
    pages: usize,
}

impl Counts {
    /// Counts a case and prints its line. Of its `pages`, so many were `evicted` when it began.
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

    /// Prints the sums; what the program ends with.
    pub fn finish(&self) -> ExitCode {
        println!("evicted_pages={} of {}", self.evicted, self.pages);
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The call failed: says so with `errno`.
pub fn failed(call: &str) -> Stop {
    Stop::Fail(format!("{call}: {}", io::Error::last_os_error()))
}

/// A wrong answer.
pub fn wrong<T>(text: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Fail(text.into()))
}

/// The call must give exactly this.
pub fn exactly(call: &str, got: impl TryInto<i64>, wanted: usize) -> Outcome {
    match got.try_into() {
        Ok(-1) => Err(failed(call)),
        Ok(got) if got == wanted as i64 => Ok(()),
        Ok(got) => wrong(format!("{call} gave {got}, not {wanted}")),
        Err(_) => wrong(format!("{call} gave no number")),
    }
}

/// The call must fail with this `errno`.
pub fn fails(call: &str, got: impl TryInto<i64>, errno: i32) -> Outcome {
    let error = io::Error::last_os_error();
    match got.try_into() {
        Ok(-1) if error.raw_os_error() == Some(errno) => Ok(()),
        Ok(-1) => wrong(format!("{call}: {error}")),
        Ok(got) => wrong(format!("{call} gave {got}, should have failed with {errno}")),
        Err(_) => wrong(format!("{call} gave no number")),
    }
}
