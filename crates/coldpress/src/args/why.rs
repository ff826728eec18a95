//! The options of `coldpress why`.

use clap::Args;

use super::help;

/// The options of `coldpress why`.
#[derive(Debug, Args)]
#[command(after_help = help::WHY_MORE, after_long_help = help::WHY_DETAILS)]
pub(crate) struct WhyArgs {
    /// A process of a run
    #[arg(value_name = "PID")]
    pub(crate) process: u32,

    /// Print one JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
