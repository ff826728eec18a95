//! What a run is asked to do, complete and checked: options, environment and defaults in one place.

use std::path::PathBuf;

use coldpress_runtime::knobs::{Knob, Knobs, encode_codec, encode_pool};
use coldpress_sys::Bytes;

use crate::args::{DiskChoice, RunArgs};
use crate::cgroup::{self, Limit};
use crate::failure::{Failure, Result};
use crate::size::{Size, show};

/// The smallest budget: below it the launcher's parts, the pool's first blocks and the code, stacks
/// and libraries of even a small program leave nothing to manage. Eight blocks of 2 MiB.
pub(crate) const BUDGET_FLOOR: Bytes = Bytes::mib(16);

/// Where written-back pages go without `--disk`: on disk almost everywhere, and kept from reboot
/// cleaners.
pub(crate) const DEFAULT_DISK: &str = "/var/tmp";

/// What one run does.
#[derive(Clone, Debug)]
pub(crate) struct RunConfig {
    /// All memory the process tree may hold.
    pub(crate) budget: Bytes,
    /// Where the budget comes from.
    pub(crate) budget_origin: BudgetOrigin,
    /// What may be changed while the run goes on.
    pub(crate) knobs: Knobs,
    /// The directory of the unnamed spill file; `None` for memory only.
    pub(crate) disk: Option<PathBuf>,
    /// The most the spill file may grow to; `None` for the free space but 5 %.
    pub(crate) disk_size: Option<Bytes>,
    /// No line of ours but errors.
    pub(crate) quiet: bool,
    /// Say what is done and found.
    pub(crate) verbose: bool,
    /// Run a program that cannot be managed all the same.
    pub(crate) allow_unmanaged: bool,
}

/// Where a budget comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BudgetOrigin {
    /// The user named it.
    Asked,
    /// 90 % of this limit.
    Cgroup(Limit),
    /// Half of the machine's memory, which is this much.
    Machine(Bytes),
}

impl BudgetOrigin {
    /// Words for the line that says where a budget comes from.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Asked => "as asked".to_owned(),
            Self::Cgroup(limit) => {
                let limit_size = show(limit.bytes);
                format!("90 % of the cgroup's limit of {limit_size} ({})", limit.file.display())
            }
            Self::Machine(total) => format!("half of the machine's {}", show(*total)),
        }
    }
}

impl RunConfig {
    /// The configuration `args` ask for on this machine. Fails for a budget below [`BUDGET_FLOOR`]
    /// or when the machine's memory cannot be found out.
    pub(crate) fn from_args(args: &RunArgs) -> Result<Self> {
        let machine = cgroup::machine_memory().map_err(|error| {
            Failure::ours(format!("cannot read /proc/meminfo: {error}"), "mount /proc")
        })?;
        let (budget, budget_origin) = budget(args.memory, cgroup::own_limit(), machine);
        if budget < BUDGET_FLOOR {
            return Err(below_floor(budget, &budget_origin));
        }
        let disk = match &args.disk {
            None => Some(PathBuf::from(DEFAULT_DISK)),
            Some(DiskChoice::Directory(path)) => Some(path.clone()),
            Some(DiskChoice::None) => None,
        };
        Ok(Self {
            budget,
            budget_origin,
            knobs: knobs(args),
            disk,
            disk_size: args.disk_size,
            quiet: args.quiet,
            verbose: args.verbose && !args.quiet,
            allow_unmanaged: args.allow_unmanaged,
        })
    }
}

/// The knobs as the options want them; `--set` wins over the options of single knobs.
fn knobs(args: &RunArgs) -> Knobs {
    let mut knobs = Knobs::default();
    let options = [
        (Knob::Codec, encode_codec(args.codec)),
        (Knob::Pool, encode_pool(args.pool)),
        (Knob::MaxPoolPercent, args.max_pool_percent),
    ];
    for (knob, word) in options.into_iter().chain(args.set.iter().copied()) {
        let allowed = knobs.set(knob, word);
        assert!(allowed, "{knob:?} was checked when it was read");
    }
    knobs
}

/// The budget: as asked, where a share is one of the memory there is; else by default 90 % of the
/// cgroup's limit if that is below the machine's memory, else half of the machine's memory.
fn budget(asked: Option<Size>, limit: Option<Limit>, machine: Bytes) -> (Bytes, BudgetOrigin) {
    let limit = limit.filter(|limit| limit.bytes < machine);
    match (asked, limit) {
        (Some(size), limit) => {
            (size.of(limit.map_or(machine, |limit| limit.bytes)), BudgetOrigin::Asked)
        }
        // Ten percent are left for what cannot be managed: page tables, files, the kernel's own.
        (None, Some(limit)) => (Bytes(limit.bytes.0 / 10 * 9), BudgetOrigin::Cgroup(limit)),
        (None, None) => (Bytes(machine.0 / 2), BudgetOrigin::Machine(machine)),
    }
}

fn below_floor(budget: Bytes, origin: &BudgetOrigin) -> Failure {
    let way_out = match origin {
        BudgetOrigin::Asked => format!("ask for at least --memory {}M", BUDGET_FLOOR.0 >> 20),
        _ => "raise the limit, or name a budget with --memory".to_owned(),
    };
    Failure::ours(
        format!(
            "a budget of {} ({} bytes, {}) is below the floor of {}",
            show(budget),
            budget.0,
            origin.words(),
            show(BUDGET_FLOOR)
        ),
        way_out,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(bytes: Bytes) -> Limit {
        Limit { bytes, file: "/sys/fs/cgroup/memory.max".into() }
    }

    #[test]
    fn a_limit_below_the_machine_gives_ninety_percent() {
        let (size, origin) = budget(None, Some(limit(Bytes::mib(1000))), Bytes::mib(8192));
        assert_eq!(size, Bytes(1000 * (1 << 20) / 10 * 9));
        assert!(origin.words().contains("memory.max"), "{}", origin.words());
    }

    #[test]
    fn without_a_real_limit_half_of_the_machine_is_taken() {
        let machine = Bytes::mib(8192);
        for limit in [None, Some(limit(Bytes(usize::MAX / 2))), Some(limit(machine))] {
            let expected = (Bytes::mib(4096), BudgetOrigin::Machine(machine));
            assert_eq!(budget(None, limit, machine), expected);
        }
    }

    #[test]
    fn a_share_is_one_of_the_limit() {
        let share = Size::Share { billionths: 250_000_000 };
        let machine = Bytes::mib(8192);
        assert_eq!(budget(Some(share), None, machine).0, Bytes::mib(2048));
        assert_eq!(budget(Some(share), Some(limit(Bytes::mib(400))), machine).0, Bytes::mib(100));
    }

    #[test]
    fn the_floor_is_named_with_both_numbers() {
        let failure = below_floor(Bytes(4096), &BudgetOrigin::Asked).to_string();
        for part in ["4096 bytes", "16 MiB", "--memory 16M"] {
            assert!(failure.contains(part), "{failure}");
        }
    }
}
