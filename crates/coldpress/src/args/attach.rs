//! The options of `coldpress attach` and `coldpress detach`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{RunArgs, help, of_run};

/// The options of `coldpress attach`.
#[derive(Debug, Args)]
#[command(
    after_long_help = help::ATTACH_DETAILS,
    override_usage = "coldpress attach [OPTIONS] PID..."
)]
pub(crate) struct AttachArgs {
    /// Memory for the programs and their children, as of `run`
    #[arg(short, long, value_name = "SIZE", default_value = "auto")]
    memory: String,

    /// Take memory that is not touched for long, as of `run`
    #[arg(
        long,
        value_name = "PERCENT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on"
    )]
    idle: Option<String>,

    /// Directory for the file of the coldest pages, or none
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    disk: Option<OsString>,

    /// Turn a knob; `coldpress help ctl` lists them
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,

    /// Write at the end what happened, as JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    stats: Option<PathBuf>,

    /// Write at the end a report to read, as of `run`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    report: Option<PathBuf>,

    /// Export metrics, as of `run`
    #[arg(long, value_name = "TARGET", value_hint = ValueHint::FilePath)]
    metrics: Option<OsString>,

    /// Manage programs also when their forks are not seen, as of `run`
    #[arg(long)]
    unsafe_fork: bool,

    /// Print nothing of our own but errors
    #[arg(short, long)]
    quiet: bool,

    /// Say what is done and found; --quiet wins over it
    #[arg(short, long)]
    verbose: bool,

    /// The processes of the programs
    #[arg(required = true, value_name = "PID")]
    pub(crate) processes: Vec<u32>,
}

/// The options of `coldpress detach`.
#[derive(Debug, Args)]
pub(crate) struct DetachArgs {
    /// A process that was attached to; all of the same `attach` are left
    #[arg(value_name = "PID")]
    pub(crate) process: u32,
}

/// Returns the options of `run` that mean the same as these. A value that `run` does not take ends
/// this process with the message of `run`.
pub(crate) fn as_run(args: &AttachArgs) -> RunArgs {
    let mut words: Vec<OsString> = vec!["coldpress".into(), "run".into()];
    words.push(format!("--memory={}", args.memory).into());
    words.extend(args.idle.iter().map(|idle| format!("--idle={idle}").into()));
    let with = |option: &str, value: &OsStr| [OsStr::new(option), value].join(OsStr::new(""));
    words.extend(args.disk.iter().map(|disk| with("--disk=", disk)));
    words.extend(args.set.iter().map(|set| format!("--set={set}").into()));
    words.extend(args.stats.iter().map(|stats| with("--stats=", stats.as_os_str())));
    words.extend(args.report.iter().map(|report| with("--report=", report.as_os_str())));
    words.extend(args.metrics.iter().map(|metrics| with("--metrics=", metrics)));
    words.extend(args.unsafe_fork.then(|| "--unsafe-fork".into()));
    words.extend(args.quiet.then(|| "--quiet".into()));
    words.extend(args.verbose.then(|| "--verbose".into()));
    words.extend(["--".into(), "attached".into()]);
    of_run(words)
}
