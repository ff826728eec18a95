//! The command line of `coldpress-bench policy`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::commands::common::Common;

/// The options of `coldpress-bench policy`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PolicyArgs {
    /// A recorded trace of touches; several are possible
    ///
    /// zstd may have compressed it. The default is to record python3, perl, sort and sqlite3, as
    /// far as they and valgrind are installed. This takes some minutes. Traces made by models come
    /// beside them.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) trace: Vec<PathBuf>,

    /// Room for so many percent of the pages a trace touches
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [25, 50, 75],
        value_parser = clap::value_parser!(u32).range(25..=100))]
    pub(crate) budget: Vec<u32>,

    /// Record the program behind `--` into FILE instead
    ///
    /// This is by valgrind, and takes 100 to 1000 times as long. What the program prints goes to
    /// standard error.
    #[arg(long, value_name = "FILE", requires = "program", conflicts_with = "trace")]
    pub(crate) record: Option<PathBuf>,

    /// The program to record, and its arguments
    #[arg(last = true, value_name = "PROGRAM", requires = "record")]
    pub(crate) program: Vec<OsString>,

    #[command(flatten)]
    pub(crate) common: Common,
}
