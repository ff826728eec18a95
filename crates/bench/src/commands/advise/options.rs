//! The command line of `coldpress-bench advise`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::jobs;
use crate::commands::common::Common;
use crate::commands::programs::options::name_parser;

/// The options of `coldpress-bench advise`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AdviseArgs {
    /// The programs; all that are installed is the default
    #[arg(long, value_name = "NAME", value_delimiter = ',',
        value_parser = name_parser(jobs::NAMES))]
    pub(crate) program: Vec<&'static str>,

    /// Runs of each program that predict, as of `coldpress advise`
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(3..=50))]
    pub(crate) runs: u32,

    /// Add programs that were measured before, from what --json printed
    ///
    /// They are not measured again. So the work can be done in parts.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) with: Vec<PathBuf>,

    /// Directory for what programs read and write, and for the disk of coldpress
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/tmp",
        value_hint = ValueHint::DirPath
    )]
    pub(crate) directory: PathBuf,

    #[command(flatten)]
    pub(crate) common: Common,
}
