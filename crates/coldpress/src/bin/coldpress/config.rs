//! What a run is asked to do, complete and checked: options, environment and defaults in one place.

use std::num::NonZero;
use std::path::PathBuf;

use coldpress_runtime::knobs::{Knob, Knobs, encode_codec, encode_pool};
use coldpress_runtime::ledger::Terms;
use coldpress_sys::Bytes;

use crate::args::{DiskChoice, RunArgs};
use crate::budget::Budget;
use crate::disk;
use crate::failure::Result;

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
}

impl RunConfig {
    /// The configuration `args` ask for on this machine. Fails for a budget that cannot be.
    pub(crate) fn from_args(args: &RunArgs) -> Result<Self> {
        let disk = match &args.disk {
            None => Some(PathBuf::from(DEFAULT_DISK)),
            Some(DiskChoice::Directory(path)) => Some(path.clone()),
            Some(DiskChoice::None) => None,
        };
        Ok(Self {
            budget: Budget::find(args.memory)?,
            knobs: knobs(args),
            disk,
            disk_size: args.disk_size,
            waits: args.wait,
            quiet: args.quiet,
            verbose: args.verbose && !args.quiet,
            allow_unmanaged: args.allow_unmanaged,
        })
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

/// The knobs as the options want them; `--set` wins over the options of single knobs.
fn knobs(args: &RunArgs) -> Knobs {
    let mut knobs = Knobs::default();
    let options = [
        (Knob::Codec, encode_codec(args.codec)),
        (Knob::Pool, encode_pool(args.pool)),
        (Knob::MaxPoolPercent, args.max_pool_percent),
        (Knob::Idle, args.idle),
    ];
    for (knob, word) in options.into_iter().chain(args.set.iter().copied()) {
        let allowed = knobs.set(knob, word);
        assert!(allowed, "{knob:?} was checked when it was read");
    }
    knobs
}
