//! What a case of a target program gives, and the judgements cases are made of.

use std::io;

/// Why a case ended early.
pub enum Stop {
    /// Something was wrong.
    Fail(String),
    /// This machine forbids the call.
    Skip(String),
}

/// What a case gives.
pub type Outcome = Result<(), Stop>;

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
