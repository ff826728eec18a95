//! The command line of `coldpress bench programs`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use coldpress_bench::kernel::Peer;

use super::jobs;
use crate::bench::swap::options::{Share, parse_peer};

/// The options of `coldpress bench programs`.
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

    /// Print one JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Who runs them, where, and how often.
#[derive(Clone, Debug, Args)]
pub(crate) struct ContestArgs {
    /// The kernel's swap to compare with: zram-lz4, zram-lzo-rle, zswap-lzo or swapfile; all is the
    /// default. It takes root, a kernel with zram or zswap, and a machine that does not swap
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_peer)]
    pub(crate) peer: Vec<Peer>,

    /// Directory for swap files, for the disk of coldpress, and for what programs read and write
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) directory: PathBuf,

    /// Rounds; each contestant has a turn in each
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
}

/// Takes one of these names.
pub(in crate::bench) fn name_parser<const N: usize>(
    names: [&'static str; N],
) -> impl TypedValueParser<Value = &'static str> {
    PossibleValuesParser::new(names)
        .map(move |name| names.into_iter().find(|known| *known == name).expect("one of them"))
}
