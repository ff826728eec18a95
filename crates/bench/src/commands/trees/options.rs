//! The command line of `coldpress-bench trees`.

use clap::Args;

use super::jobs;
use crate::commands::common::{Common, ContestArgs, Share};
use crate::commands::programs::options::name_parser;

/// The options of `coldpress-bench trees`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TreesArgs {
    /// The trees; all that are installed is the default
    #[arg(long, value_name = "NAME", value_delimiter = ',',
        value_parser = name_parser(jobs::all(false).map(|job| job.name)))]
    pub(crate) tree: Vec<&'static str>,

    /// The memory, of the most that the tree holds by itself
    #[arg(long, value_name = "SHARE", default_value = "total-50", value_enum)]
    pub(crate) share: Share,

    #[command(flatten)]
    pub(crate) contest: ContestArgs,

    #[command(flatten)]
    pub(crate) common: Common,
}
