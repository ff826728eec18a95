//! The command lines of `coldpress-bench fork` and of its workload.

use std::path::PathBuf;

use clap::Args;
use coldpress_common::size::parse_size;
use coldpress_sys::Bytes;

use crate::commands::against::AgainstArgs;
use crate::commands::common::{Common, Rounds, parse_budget};

/// The options of `coldpress-bench fork`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ForkArgs {
    /// Data of the program that forks, compressible 2.5 to 1
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub(crate) data: Bytes,

    /// Its budget; with the default, half of the data are away
    #[arg(long, value_name = "SIZE", default_value = "200M", value_parser = parse_budget)]
    pub(crate) memory: Bytes,

    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    /// Forks in each run
    #[arg(long, value_name = "N", default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) forks: u32,

    /// Directory for the disk of coldpress
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) directory: PathBuf,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) common: Common,
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
