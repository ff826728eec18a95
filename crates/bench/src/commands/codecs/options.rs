//! The command line of `coldpress-bench codecs`.

use std::path::PathBuf;

use clap::Args;

use crate::commands::common::Common;

/// The options of `coldpress-bench codecs`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CodecsArgs {
    /// Pages to measure; several files are possible
    ///
    /// A file holds whole pages of 4 KiB, and zstd may have compressed it (.zst). The default is
    /// pages of python3, perl and node, as far as they are installed. Pages of a program of our own
    /// and text by a model come beside them.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) pages: Vec<PathBuf>,

    /// A running process whose pages to measure; several are possible
    #[arg(long, value_name = "PID", num_args = 1..)]
    pub(crate) pid: Vec<u32>,

    /// Pages of each program that are measured, and as many for training
    #[arg(long, value_name = "N", default_value_t = 2048,
        value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub(crate) count: u32,

    /// Draw bytes and load times of all codecs into FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) common: Common,
}
