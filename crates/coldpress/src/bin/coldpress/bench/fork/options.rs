//! The command lines of `coldpress bench fork` and of its workload.

use std::path::PathBuf;

use clap::Args;
use coldpress_sys::Bytes;

use crate::bench::against::AgainstArgs;
use crate::bench::options::parse_budget;
use crate::size::parse_size;

/// The options of `coldpress bench fork`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ForkArgs {
    /// Data of the program that forks, compressible 2.5 to 1
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub(crate) data: Bytes,

    /// Its budget; with the default, half of the data are away
    #[arg(long, value_name = "SIZE", default_value = "200M", value_parser = parse_budget)]
    pub(crate) memory: Bytes,

    /// Pairs of runs
    #[arg(long, value_name = "N", default_value_t = 15, conflicts_with = "against",
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,

    /// Another build to compare with.
    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    /// Forks in each run
    #[arg(long, value_name = "N", default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) forks: u32,

    /// Directory for the disk of coldpress
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) directory: PathBuf,

    /// Print one JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,

    /// Directory to keep the figures in, as `bench all` does
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// The options of the workload `forks`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ForksArgs {
    /// Bytes to fill
    #[arg(long, value_parser = parse_size)]
    pub(crate) data: Bytes,
    /// Children that end at once
    #[arg(long)]
    pub(crate) forks: u32,
}
