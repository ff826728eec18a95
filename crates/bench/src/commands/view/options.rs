//! The command line of `coldpress-bench view`.

use std::path::PathBuf;

use clap::Args;

use super::jobs;
use crate::commands::common::Common;
use crate::commands::programs::options::name_parser;

/// The options of `coldpress-bench view`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ViewArgs {
    /// The programs; all that are installed is the default
    #[arg(long, value_name = "NAME", value_delimiter = ',',
        value_parser = name_parser(jobs::ALL.map(|job| job.name)))]
    pub(crate) program: Vec<&'static str>,

    /// Seconds after which a run is stopped
    #[arg(long, value_name = "N", default_value_t = 120,
        value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) limit: u32,

    /// Directory for what programs read and write, and for the disk of coldpress
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) directory: PathBuf,

    #[command(flatten)]
    pub(crate) common: Common,
}
