//! Failures before, around or instead of the program, and the exit status that reports each.
//!
//! The numbers are those of `env`, `nice` and `timeout`: 125 the launcher itself failed, 126 the
//! program was found but cannot be executed, 127 it was not found.

use std::fmt;

/// The exit status when the launcher itself failed.
pub const EXIT_OURS: u8 = 125;
/// The exit status when the program was found but cannot be executed.
pub const EXIT_NOT_EXECUTABLE: u8 = 126;
/// The exit status when the program was not found.
pub const EXIT_NOT_FOUND: u8 = 127;

/// The result of a step of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// A failure for the user: what happened, and what the user can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit status of the command.
    pub code: u8,
    /// The cause, with the number or name that matters.
    pub cause: String,
    /// The action that mends it.
    pub way_out: String,
}

impl Failure {
    /// Makes a failure of the launcher, exit status 125.
    pub fn ours(cause: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { code: EXIT_OURS, cause: cause.into(), way_out: way_out.into() }
    }

    /// Makes the failure that the program was found but cannot be executed, exit status 126.
    pub fn not_executable(cause: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { code: EXIT_NOT_EXECUTABLE, ..Self::ours(cause, way_out) }
    }

    /// Makes the failure that the program was not found, exit status 127.
    pub fn not_found(cause: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { code: EXIT_NOT_FOUND, ..Self::ours(cause, way_out) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.cause, self.way_out)
    }
}

impl std::error::Error for Failure {}
