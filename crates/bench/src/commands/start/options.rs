//! The command line of `coldpress-bench start`.

use clap::{Args, ValueEnum};

use super::super::against::AgainstArgs;
use super::super::common::{Common, Rounds};

/// The options of `coldpress-bench start`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StartArgs {
    /// What to measure; several are possible, and all is the default
    #[arg(long, value_name = "PART", value_enum)]
    pub(crate) part: Vec<Part>,

    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl StartArgs {
    /// Returns whether `part` is to be measured.
    pub(super) fn wants(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }
}

/// A part of `coldpress-bench start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// A program that does nothing, and a script of many
    Script,
    /// Programs of each kind, static ones among them, and their first touches
    Kinds,
    /// How long programs stand still that are attached to and left
    Attach,
    /// A program that starts 200 static ones a second
    Children,
}
