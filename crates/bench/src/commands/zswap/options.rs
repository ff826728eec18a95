//! The command lines of `coldpress-bench zswap` and of its workloads.

use clap::Args;
use coldpress_common::size::parse_size;
use coldpress_sys::Bytes;

use crate::commands::common::{Common, ContestArgs, parse_budget};

/// The options of `coldpress-bench zswap`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ZswapArgs {
    /// Jobs at a time; each number is measured
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8,12,16,20,24",
        value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) jobs: Vec<u32>,

    /// Jobs in all
    #[arg(long, value_name = "N", default_value_t = 48,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) total: u32,

    /// Memory of the largest job; the smallest takes a quarter of it
    #[arg(long, value_name = "SIZE", default_value = "40M", value_parser = parse_size)]
    pub(crate) largest: Bytes,

    /// The memory of all, compressed pages included
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_budget)]
    pub(crate) memory: Bytes,

    /// Jobs are threads of one process; else each is a process, as of make
    #[arg(long)]
    pub(crate) threads: bool,

    #[command(flatten)]
    pub(crate) contest: ContestArgs,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The options of the workload `jobs`.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobsArgs {
    /// Jobs at a time
    #[arg(long)]
    pub(crate) jobs: u32,
    /// Jobs in all
    #[arg(long)]
    pub(crate) total: u32,
    /// Memory of the largest job
    #[arg(long, value_parser = parse_size)]
    pub(crate) largest: Bytes,
    /// Jobs are threads of this process
    #[arg(long)]
    pub(crate) threads: bool,
}

/// The options of the workload `job`.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobArgs {
    /// Which one
    #[arg(long)]
    pub(crate) number: u32,
    /// Memory of the largest job
    #[arg(long, value_parser = parse_size)]
    pub(crate) largest: Bytes,
}
