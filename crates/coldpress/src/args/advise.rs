//! The options of `coldpress advise`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{help, of_run};

/// The fewest runs: without a limit, within one, and another that tries what these two tell.
const RUNS_MIN: u32 = 3;
/// The most runs.
const RUNS_MAX: u32 = 50;
/// The largest slow-down that may be asked for, in percent: a hundred times as long.
const SLOWER_MAX: f64 = 10_000.0;

/// The options of `coldpress advise`.
#[derive(Debug, Args)]
#[command(
    after_help = help::ADVISE_MORE,
    after_long_help = help::ADVISE_DETAILS,
    override_usage = "coldpress advise [OPTIONS] [--] PROGRAM [ARGS]..."
)]
pub(crate) struct AdviseArgs {
    /// How much longer the program may take, in percent
    ///
    /// It is compared with the run that nothing limits. The number is above 0 and at most 10000.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "5%",
        value_parser = parse_slower
    )]
    pub(crate) slower: f64,

    /// The most runs of the program, 3 to 50
    #[arg(
        long,
        value_name = "N",
        default_value = "5",
        value_parser = clap::value_parser!(u32).range(i64::from(RUNS_MIN)..=i64::from(RUNS_MAX))
    )]
    pub(crate) runs: u32,

    /// Spread the runs over all budgets, and print time against budget
    ///
    /// No budget is searched for then. The runs begin with the largest budget. They end early where
    /// the program takes more than ten times as long, and over a minute.
    #[arg(long, conflicts_with = "slower")]
    pub(crate) curve: bool,

    /// Print one JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,

    /// How cold pages are compressed, as of `run`
    #[arg(long, value_name = "CODEC")]
    codec: Option<String>,

    /// Directory for the file of the coldest pages, or none, as of `run`
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    disk: Option<PathBuf>,

    /// Turn a knob, as of `run`
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,

    /// What is shown as the machine's memory, as of `run`
    #[arg(long, value_name = "SIZE")]
    show_memory: Option<String>,

    /// The program and its arguments; put "--" in front to be safe
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM",
        hide_short_help = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<OsString>,
}

impl AdviseArgs {
    /// Returns the options that each run gets besides its budget. One that `run` does not take ends
    /// this process with the message of `run`.
    pub(crate) fn of_each_run(&self) -> Vec<OsString> {
        let options = self.given();
        let before = ["coldpress".into(), "run".into()].into_iter();
        let behind = ["--".into(), "advised".into()];
        let _ = of_run(before.chain(options.iter().cloned()).chain(behind).collect());
        options
    }

    fn given(&self) -> Vec<OsString> {
        let with = |option: &str, value: &OsStr| [OsStr::new(option), value].join(OsStr::new(""));
        let mut words = Vec::new();
        words.extend(self.codec.iter().map(|codec| with("--codec=", codec.as_ref())));
        words.extend(self.disk.iter().map(|disk| with("--disk=", disk.as_os_str())));
        words.extend(self.set.iter().map(|set| with("--set=", set.as_ref())));
        words.extend(self.show_memory.iter().map(|size| with("--show-memory=", size.as_ref())));
        words
    }
}

/// Reads a slow-down in percent, with or without the sign, as a part of the time.
fn parse_slower(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.strip_suffix('%').unwrap_or(text).trim_end().parse().ok();
    let wrong = || format!("\"{text}\" is not possible; write a percentage above 0, as 5%");
    let percent = number.filter(|it| *it > 0.0 && *it <= SLOWER_MAX).ok_or_else(wrong)?;
    Ok(percent / 100.0)
}

#[cfg(test)]
mod tests {
    //! The risk: a slow-down of 5 is taken for one of 500 %, or an option is lost on the way.

    use clap::Parser as _;

    use super::super::{Cli, Command};
    use super::*;

    #[test]
    fn a_slow_down_is_in_percent() {
        for (text, part) in [("5%", 0.05), ("5", 0.05), ("0.5%", 0.005), ("150 %", 1.5)] {
            assert_eq!(parse_slower(text), Ok(part), "{text}");
        }
        for wrong in ["0", "-1%", "10001%", "x", "", "%", "nan", "inf"] {
            assert!(parse_slower(wrong).is_err_and(|error| error.contains(wrong)), "{wrong}");
        }
    }

    #[test]
    fn each_run_gets_the_options_that_are_those_of_run() {
        let words =
            "coldpress advise --codec zstd --disk none --set writeback=off --set idle=1 -- x";
        let Command::Advise(args) = Cli::try_parse_from(words.split(' ')).unwrap().command else {
            panic!("it is advise");
        };
        let wanted = ["--codec=zstd", "--disk=none", "--set=writeback=off", "--set=idle=1"];
        assert_eq!(args.0.of_each_run(), wanted);
        assert_eq!((args.0.runs, args.0.slower), (5, 0.05));
        for wrong in ["--runs 2", "--runs 51", "--curve --slower 3", "--slower 0"] {
            let words = format!("coldpress advise {wrong} -- x");
            assert!(Cli::try_parse_from(words.split(' ')).is_err(), "{wrong}");
        }
    }
}
