//! The command line of `coldpress-bench build`.

use std::path::PathBuf;

use clap::Args;
use coldpress_sys::Bytes;

use crate::commands::common::{Common, ContestArgs, parse_budget};

/// The folder in which `make bench` puts the source.
pub(crate) const SOURCE: &str = "target/suites/postgresql";

/// The options of `coldpress-bench build`.
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

    #[command(flatten)]
    pub(crate) contest: ContestArgs,

    #[command(flatten)]
    pub(crate) common: Common,
}
