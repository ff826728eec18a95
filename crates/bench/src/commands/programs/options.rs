//! The command line of `coldpress-bench programs`.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::jobs;
use crate::commands::common::{Common, ContestArgs, Share};

/// The options of `coldpress-bench programs`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProgramsArgs {
    /// The programs; all that are installed is the default
    #[arg(long, value_name = "NAME", value_delimiter = ',',
        value_parser = name_parser(jobs::ALL.map(|job| job.name)))]
    pub(crate) program: Vec<&'static str>,

    /// The memory, of the most that the program holds by itself
    #[arg(long, value_name = "SHARE", default_value = "resident-50", value_enum)]
    pub(crate) share: Share,

    #[command(flatten)]
    pub(crate) contest: ContestArgs,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Returns a parser that takes one of these names.
pub(crate) fn name_parser<const N: usize>(
    names: [&'static str; N],
) -> impl TypedValueParser<Value = &'static str> {
    PossibleValuesParser::new(names)
        .map(move |name| names.into_iter().find(|known| *known == name).expect("one of them"))
}
