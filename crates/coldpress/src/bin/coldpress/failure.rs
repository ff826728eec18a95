//! What goes wrong before, around or instead of the program, and the exit status that says so.
//!
//! The numbers are those of `env`, `nice` and `timeout`: 125 the launcher itself failed, 126 the
//! program was found but cannot be executed, 127 it was not found.

use std::fmt;

/// The launcher itself failed.
pub(crate) const EXIT_OURS: u8 = 125;
/// The program was found but cannot be executed.
pub(crate) const EXIT_NOT_EXECUTABLE: u8 = 126;
/// The program was not found.
pub(crate) const EXIT_NOT_FOUND: u8 = 127;

/// The result of a step of the launcher.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A failure for the user: what happened, and what can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The exit status of the command.
    pub(crate) code: u8,
    /// What happened, with the number or name that matters.
    pub(crate) cause: String,
    /// What the user can do.
    pub(crate) way_out: String,
}

impl Failure {
    /// A failure of the launcher, exit status 125.
    pub(crate) fn ours(cause: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { code: EXIT_OURS, cause: cause.into(), way_out: way_out.into() }
    }

    /// The program was found but cannot be executed, exit status 126.
    pub(crate) fn not_executable(cause: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { code: EXIT_NOT_EXECUTABLE, ..Self::ours(cause, way_out) }
    }

    /// The program was not found, exit status 127.
    pub(crate) fn not_found(cause: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { code: EXIT_NOT_FOUND, ..Self::ours(cause, way_out) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.cause, self.way_out)
    }
}

impl std::error::Error for Failure {}
