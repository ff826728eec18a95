//! The options of `coldpress ctl`.

use clap::{Args, Subcommand};

use super::help;

/// The options of `coldpress ctl`.
#[derive(Debug, Args)]
#[command(
    after_help = help::CTL_MORE,
    after_long_help = help::ctl_details(),
    override_usage = "coldpress ctl PID COMMAND [--json]"
)]
pub(crate) struct CtlArgs {
    /// The process of `coldpress run`, or of the program, or of any below it
    #[arg(value_name = "PID")]
    pub(crate) process: u32,

    /// What to do
    #[command(subcommand)]
    pub(crate) verb: CtlVerb,

    /// Print one JSON document on standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What `coldpress ctl` does.
#[derive(Debug, Subcommand)]
pub(crate) enum CtlVerb {
    /// Print the knobs and all counters, one a line, or one of them
    Get {
        /// The knob or counter to print alone
        name: Option<String>,
    },
    /// Turn knobs: all of them, or none when one is wrong
    Set {
        /// Where to turn a knob
        #[arg(required = true, value_name = "NAME=VALUE")]
        settings: Vec<String>,
    },
    /// Print how the run stood from its beginning on, and what happened
    ///
    /// That is one JSON document. It has memory, page faults and stalls at 2,000 moments at most.
    /// Between them are warnings, changes of the settings, and processes that came and went.
    Timeline,
    /// Print the metrics of now, as OpenMetrics
    Metrics,
    /// Bring every page back, to stay
    ///
    /// This is for a debugger that attaches, or a core that is dumped. `coldpress ctl PID set
    /// thawed=off` ends it. An interrupt, as by Ctrl-C, gives it up.
    Thaw {
        /// Bring them back whatever memory is free
        #[arg(long)]
        force: bool,
    },
}
