//! What a run is asked to do, complete and checked: options, environment and defaults in one place.

use std::num::NonZero;
use std::path::PathBuf;

use coldpress_runtime::knobs::{Knob, Knobs, encode_codec, encode_pool};
use coldpress_runtime::ledger::Terms;
use coldpress_sys::Bytes;

use crate::args::{self, DiskChoice, RunArgs};
use crate::budget::Budget;
use crate::control::Changeable;
use crate::disk;
use crate::failure::{Failure, Result};
use crate::knobs::Setting;
use crate::view;

/// Where written-back pages go without `--disk`: on disk almost everywhere, and kept from reboot
/// cleaners.
pub(crate) const DEFAULT_DISK: &str = "/var/tmp";

/// What one run does.
#[derive(Clone, Debug)]
pub(crate) struct RunConfig {
    /// All memory the process tree may hold.
    pub(crate) budget: Budget,
    /// What may be changed while the run goes on.
    pub(crate) knobs: Knobs,
    /// What programs are shown as the memory of the machine.
    pub(crate) show_memory: view::Ask,
    /// The directory of the unnamed spill file; `None` for memory only.
    pub(crate) disk: Option<PathBuf>,
    /// The most the spill file may grow to; `None` for the free space but 5 %.
    pub(crate) disk_size: Option<Bytes>,
    /// Stay until the last process of the run has ended.
    pub(crate) waits: bool,
    /// No line of ours but errors.
    pub(crate) quiet: bool,
    /// Say what is done and found.
    pub(crate) verbose: bool,
    /// Run a program that cannot be managed all the same.
    pub(crate) allow_unmanaged: bool,
    /// Leave programs of other users unmanaged.
    pub(crate) no_lend: bool,
    /// End the run rather than leave a process that holds much unmanaged.
    pub(crate) require_managed: bool,
    /// It is no run of the user's, and what this process has is for one that may follow.
    pub(crate) is_trial: bool,
}

impl RunConfig {
    /// The configuration `args` ask for on this machine. Fails for a budget that cannot be.
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
            knobs: knobs(args, &args::given_for_a_run()),
            show_memory: args.show_memory,
            disk,
            disk_size: args.disk_size,
            waits: args.wait,
            quiet: args.quiet,
            verbose: args.verbose && !args.quiet,
            allow_unmanaged: args.allow_unmanaged,
            no_lend: args.no_lend,
            require_managed: args.require_managed,
            is_trial: false,
        })
    }

    /// Whether processes of other users than ours may join the run. Only root starts any, but for
    /// programs that are setuid, which are not managed.
    pub(crate) fn manages_others(&self) -> bool {
        !self.no_lend && rustix::process::geteuid().is_root()
    }

    /// What a trial does: `budget`, which may be below the floor, in memory only, without a word.
    pub(crate) fn for_trial(budget: Bytes) -> Self {
        Self {
            budget: Budget::fixed(budget),
            knobs: Knobs::default(),
            show_memory: view::Ask::Off,
            disk: None,
            disk_size: None,
            waits: false,
            quiet: true,
            verbose: false,
            allow_unmanaged: false,
            no_lend: false,
            require_managed: false,
            is_trial: true,
        }
    }

    /// What may be changed while the run goes on, as it is at the start.
    pub(crate) fn changeable(&self) -> Changeable {
        let budget = self.budget.clone();
        Changeable { budget, knobs: self.knobs, show_memory: self.show_memory }
    }

    /// The budget in bytes and what is shown, as its variable has them.
    pub(crate) fn budget_and_view(&self) -> String {
        format!("{}{}", self.budget.bytes.0, self.show_memory.view().suffix())
    }

    /// The terms of the run as its processes read them.
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

/// Processors that the launcher may use, and with it the program.
fn processors() -> u32 {
    let count = std::thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The knobs as the options want them, of which `given` are on the command line: they win over
/// variables, and `--set` over the options of single knobs.
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
    // Stable: the last of equals wins.
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
    //! The risk: a variable that was set long ago wins over what this command asks for.

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
