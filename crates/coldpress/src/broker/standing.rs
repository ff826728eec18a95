//! The standing of a run: what it holds and has counted at one moment.
//!
//! It is the one place from which reports take their figures: the line at the end, `--stats`,
//! `coldpress ctl PID get`, and the timeline. So they cannot disagree.

use coldpress_sys::Bytes;

use super::totals::Totals;
use crate::control::Changeable;

/// What a run holds and has counted.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) totals: Totals,
    /// The budget and the knobs.
    pub(crate) settings: Changeable,
    /// All memory that the run holds.
    pub(crate) used: Bytes,
    /// The most that all processes held at one time.
    pub(crate) peak: Bytes,
    /// Private memory of processes that have not joined.
    pub(crate) unmanaged: Bytes,
    /// Shared memory, each page once.
    pub(crate) shared: Bytes,
    /// The processes that have joined and have not ended, and those of them with pages away.
    pub(crate) members: usize,
    pub(crate) not_thawed: usize,
}

impl Standing {
    /// Returns the standing of a run that has not begun.
    pub(crate) fn at_start(settings: Changeable) -> Self {
        let (used, peak, unmanaged, shared) = (Bytes(0), Bytes(0), Bytes(0), Bytes(0));
        let totals = Totals::default();
        Self { totals, settings, used, peak, unmanaged, shared, members: 0, not_thawed: 0 }
    }
}
