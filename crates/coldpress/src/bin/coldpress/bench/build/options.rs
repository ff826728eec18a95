//! The command line of `coldpress bench build`.

use std::path::PathBuf;

use clap::Args;
use coldpress_sys::Bytes;

use crate::bench::options::parse_budget;
use crate::bench::pressure::Contestant;

/// Where `make bench` has the source.
pub(in crate::bench) const SOURCE: &str = "target/suites/postgresql";

/// The options of `coldpress bench build`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BuildArgs {
    /// The source of PostgreSQL 15, as `scripts/fetch-postgresql` leaves it
    #[arg(long, value_name = "DIR", default_value = SOURCE)]
    pub(crate) source: PathBuf,

    /// Compilers at a time; each number is measured
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,4,8,12,16",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) jobs: Vec<u32>,

    /// The memory of all, compressed pages included
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_budget)]
    pub(crate) memory: Bytes,

    /// Who is measured. The kernel's swap takes root, and a machine that does not swap
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        value_enum,
        default_value = "swap-file,kernel-zswap,kernel-zram,coldpress"
    )]
    pub(crate) contestant: Vec<Contestant>,

    /// Directory for objects, swap files and ours, on a disk
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) directory: PathBuf,

    /// Rounds; each contestant has a turn in each
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,

    /// Little work, to see that everything runs; its times say nothing
    #[arg(long)]
    pub(crate) quick: bool,

    /// Print one JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,

    /// Directory to keep the figures in, as `bench all` does
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
