//! The command line of `coldpress-bench frames`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::commands::common::{Common, Rounds};

/// The name of the part about descriptors, and of its workload.
pub(super) const DESCRIPTORS: &str = "descriptors";

/// The options of `coldpress-bench frames`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FramesArgs {
    /// What to measure; several are possible, and all is the default
    #[arg(long, value_name = "PART", value_enum)]
    pub(crate) part: Vec<Part>,

    /// A recorded trace of frame allocations; several are possible
    ///
    /// Seven programs run, so traces are repeated. The default is traces made by a model.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl FramesArgs {
    /// Returns the number of rounds of each measurement of time.
    pub(super) fn turns(&self) -> u32 {
        self.rounds.or(9, &self.common)
    }
}

/// A part of `coldpress-bench frames`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Single frames, allocated and freed
    #[value(name = "order-0")]
    Order0,
    /// Descriptors of 64, 56, 32 and 8 bytes
    Descriptors,
    /// Huge pages with one zone and with two
    Huge,
}

impl Part {
    /// All parts.
    pub(super) const ALL: [Self; 3] = [Self::Order0, Self::Descriptors, Self::Huge];

    /// Returns the name of the part on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Order0 => "order-0",
            Self::Descriptors => DESCRIPTORS,
            Self::Huge => "huge",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_as_on_the_command_line() {
        for part in Part::ALL {
            assert_eq!(Part::from_str(part.name(), false), Ok(part));
        }
    }
}
