//! The configuration of a run, complete and checked: options, environment and defaults in one
//! place.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use coldpress_common::failure::{Failure, Result};
use coldpress_runtime::knobs::{Knob, Knobs, encode_codec, encode_pool};
use coldpress_runtime::ledger::Terms;
use coldpress_sys::Bytes;

use crate::args::{self, DiskChoice, RunArgs};
use crate::budget::Budget;
use crate::control::Changeable;
use crate::disk;
use crate::export::Target;
use crate::knobs::Setting;
use crate::text::printable;
use crate::view;

/// The directory for written-back pages without `--disk`: on disk almost everywhere, and spared by
/// cleaners at reboot.
pub(crate) const DEFAULT_DISK: &str = "/var/tmp";

/// Which foreign programs may have the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forks {
    /// Those whose forks come to it.
    Seen,
    /// All: a child of another fork ends where it touches what was away.
    Any,
}

/// The configuration of one run.
#[derive(Clone, Debug)]
pub(crate) struct RunConfig {
    /// All memory the process tree may hold.
    pub(crate) budget: Budget,
    /// The name of the program.
    pub(crate) program: String,
    /// Where metrics go, if anywhere.
    pub(crate) metrics: Option<Target>,
    /// The knobs, which may be changed while the run goes on.
    pub(crate) knobs: Knobs,
    /// The memory of the machine that programs are shown.
    pub(crate) show_memory: view::Ask,
    /// The directory of the unnamed spill file; `None` for memory only.
    pub(crate) disk: Option<PathBuf>,
    /// The most the spill file may grow to; `None` for the free space less 5 %.
    pub(crate) disk_size: Option<Bytes>,
    /// Whether to tell systemd that the service is ready.
    pub(crate) tells_ready: bool,
    /// Whether the launcher stays until the last process of the run has ended.
    pub(crate) waits: bool,
    /// Whether to print no line of ours but errors.
    pub(crate) quiet: bool,
    /// Whether to say what is done and found.
    pub(crate) verbose: bool,
    /// Whether to run a program that cannot be managed all the same.
    pub(crate) allow_unmanaged: bool,
    /// Whether to leave programs of other users unmanaged.
    pub(crate) no_lend: bool,
    /// Which foreign programs are managed.
    pub(crate) forks: Forks,
    /// Whether to end the run rather than leave a process that holds much unmanaged.
    pub(crate) require_managed: bool,
    /// Whether this is a trial and no run of the user's. What this process has is then for a run
    /// that may follow.
    pub(crate) is_trial: bool,
}

impl RunConfig {
    /// Returns the configuration that `args` ask for on this machine. Fails for an impossible
    /// budget.
    pub(crate) fn from_args(args: &RunArgs) -> Result<Self> {
        if args.require_managed && args.allow_unmanaged {
            let cause = "--require-managed and --allow-unmanaged contradict each other";
            return Err(Failure::ours(cause, "give one of them; each may also be a variable"));
        }
        let disk = match &args.disk {
            None => Some(PathBuf::from(DEFAULT_DISK)),
            Some(DiskChoice::Directory(path)) => Some(path.clone()),
            Some(DiskChoice::None) => None,
        };
        Ok(Self {
            budget: Budget::find(args.memory)?,
            program: name_of(args.command.first()),
            metrics: args.metrics.clone(),
            knobs: knobs(args, &args::given_for_a_run()),
            show_memory: args.show_memory,
            disk,
            disk_size: args.disk_size,
            tells_ready: args.ready,
            waits: args.wait,
            quiet: args.quiet,
            verbose: args.verbose && !args.quiet,
            allow_unmanaged: args.allow_unmanaged,
            no_lend: args.no_lend,
            forks: if args.unsafe_fork { Forks::Any } else { Forks::Seen },
            require_managed: args.require_managed,
            is_trial: false,
        })
    }

    /// Returns whether processes of other users than ours may join the run. Only root starts such
    /// processes, except through setuid programs, which are not managed.
    pub(crate) fn manages_others(&self) -> bool {
        !self.no_lend && rustix::process::geteuid().is_root()
    }

    /// Returns the configuration of a trial: `budget`, which may be below the floor, in memory
    /// only, and without output.
    pub(crate) fn for_trial(budget: Bytes) -> Self {
        Self {
            budget: Budget::fixed(budget),
            program: "trial".to_owned(),
            metrics: None,
            knobs: Knobs::default(),
            show_memory: view::Ask::Off,
            disk: None,
            disk_size: None,
            tells_ready: false,
            waits: false,
            quiet: true,
            verbose: false,
            allow_unmanaged: false,
            no_lend: false,
            forks: Forks::Seen,
            require_managed: false,
            is_trial: true,
        }
    }

    /// Returns the settings that may be changed while the run goes on, with their values at the
    /// start.
    pub(crate) fn changeable(&self) -> Changeable {
        let budget = self.budget.clone();
        Changeable { budget, knobs: self.knobs, show_memory: self.show_memory }
    }

    /// Returns the budget in bytes and the view, in the form of the environment variable.
    pub(crate) fn budget_and_view(&self) -> String {
        format!("{}{}", self.budget.bytes.0, self.show_memory.view().suffix())
    }

    /// Returns the terms of the run as its processes read them.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            budget: self.budget.bytes.pages_down(),
            spill_max: self.disk.as_ref().map_or(Bytes(0), |directory| {
                self.disk_size.unwrap_or_else(|| disk::most_of_free_space(directory))
            }),
            verbose: self.verbose,
            processors: processors(),
        }
    }
}

/// Returns the name of a program, without the folder that it is in.
fn name_of(program: Option<&OsString>) -> String {
    let name = program.and_then(|program| Path::new(program).file_name());
    name.map(|name| printable(&name.to_string_lossy())).unwrap_or_default()
}

/// Returns the number of processors that the launcher, and with it the program, may use.
fn processors() -> u32 {
    let count = std::thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the knobs as the options set them. Options `given` on the command line win over
/// variables, and `--set` wins over the options of single knobs.
fn knobs(args: &RunArgs, given: &[String]) -> Knobs {
    let is_given = |option: &str| given.iter().any(|name| name == option);
    let options = [
        ("--codec", (Knob::Codec, encode_codec(args.codec))),
        ("--pool", (Knob::Pool, encode_pool(args.pool))),
        ("--max-pool-percent", (Knob::MaxPoolPercent, args.max_pool_percent)),
        ("--idle", (Knob::Idle, args.idle)),
    ];
    let of_options = options.map(|(name, setting)| (if is_given(name) { 2 } else { 0 }, setting));
    let rank = if is_given("--set") { 3 } else { 1 };
    let set = args.set.iter().map(|setting| (rank, *setting));
    let mut all: Vec<(u32, Setting)> = of_options.into_iter().chain(set).collect();
    // The sort is stable, so the last of equals wins.
    all.sort_by_key(|(rank, _)| *rank);
    let mut knobs = Knobs::default();
    for (_, (knob, word)) in all {
        let allowed = knobs.set(knob, word);
        assert!(allowed, "{knob:?} was checked when it was read");
    }
    knobs
}

#[cfg(test)]
mod tests {
    //! The risk: a variable that was set long ago wins over an option of this command.

    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn what_is_on_the_command_line_wins_over_variables_and_set_over_other_options() {
        let line = ["coldpress", "run", "--max-pool-percent", "30", "--set", "max_pool_percent=10"];
        let Command::Run(args) = Cli::parse_from(line.into_iter().chain(["true"])).command else {
            panic!("not a run");
        };
        let percent = |given: &[&str]| {
            let given: Vec<_> = given.iter().map(|option| (*option).to_owned()).collect();
            knobs(&args, &given).get(Knob::MaxPoolPercent)
        };
        for (given, expected) in [
            (&["--max-pool-percent", "--set"][..], 10),
            (&["--max-pool-percent"], 30),
            (&["--set"], 10),
            (&[], 10),
        ] {
            assert_eq!(percent(given), expected, "{given:?}");
        }
    }
}
