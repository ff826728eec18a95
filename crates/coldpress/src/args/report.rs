//! The options of `coldpress report`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::help;

/// The options of `coldpress report`.
#[derive(Debug, Args)]
#[command(after_long_help = help::REPORT_DETAILS)]
pub(crate) struct ReportArgs {
    /// The file that `run --stats` has written
    #[arg(value_name = "STATS", value_hint = ValueHint::FilePath)]
    pub(crate) statistics: PathBuf,

    /// The page to write, in place of standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}
