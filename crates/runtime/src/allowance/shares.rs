//! Shares: which process gives memory up to which.
//!
//! A process over its limits gives up memory of its own, so processes that fault all the time would
//! hold for ever what they hold, whatever it is worth to each. So each process measures what a
//! little more memory would *gain* it. Its faults on pages in limbo are the faults that it would
//! have been spared by as much more memory as limbo has. Each of them would have cost what its
//! faults on pages that are away cost on average. A process that gains much less by a page than the
//! others do on the whole *yields*: its limits lie lower by a band, so it gives, and the others,
//! whose limits are where they were, take. A process that gave too much finds it in limbo, and
//! yields no more.
//!
//! Limbo is a part of the LRU stack, and its hits are the slope of the curve of misses by memory
//! (Mattson et al., Evaluation techniques for storage hierarchies, 1970). A process that goes
//! through far more memory than it can hold has no hits there, because a little more would not help
//! it. Hits of its walks are not counted, because runs that the queue keeps for a walk are taken in
//! an order of their own.

use coldpress_sys::PageCount;

use super::mean::Mean;
use crate::ledger::Gain;
use crate::ledger::Millionths;

/// Time over which the mean of the gain follows.
const MEAN_NS: u64 = 100_000_000;
/// Gain of the others below which they need no more memory.
const GAIN_MIN: Millionths = Millionths(5_000);
/// Divisor: a process yields if it gains less by a page than this part of what others do.
const PART: u128 = 2;

/// What the threads of a process have waited for since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waited {
    /// Faults on pages that were away.
    pub(crate) faults: u64,
    /// The faults among them on pages in limbo that belong to no walk.
    pub(crate) in_limbo: u64,
    /// How long threads have waited in these faults.
    pub(crate) ns: u64,
}

impl Gain {
    /// Returns whether memory is of more use to `others`.
    pub(crate) fn shall_yield_to(self, others: Self) -> bool {
        // Millionths times pages may pass 64 bits, if not by much.
        let product = |time: Millionths, pages: PageCount| u128::from(time.0) * pages.0 as u128;
        others.time >= GAIN_MIN
            && PART * product(self.time, others.pages) < product(others.time, self.pages)
    }
}

/// A meter of what a little more memory would gain a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    mean: Mean<MEAN_NS>,
    noted: Waited,
}

impl Meter {
    /// Records what was waited for until `now_ns`. Returns the part of the recent time that would
    /// not have been waited with as much more memory as limbo has.
    pub(crate) fn note(&mut self, now_ns: u64, waited: Waited) -> Millionths {
        let before = core::mem::replace(&mut self.noted, waited);
        let faults = waited.faults.saturating_sub(before.faults).max(1);
        let in_limbo = waited.in_limbo.saturating_sub(before.in_limbo);
        let ns = waited.ns.saturating_sub(before.ns);
        self.mean.note(now_ns, ns.saturating_mul(in_limbo.min(faults)) / faults)
    }
}

#[cfg(test)]
mod tests {
    //! The risk: memory that stays with a process that has no use for it, or that goes to and fro.

    use proptest::prelude::*;

    use super::*;

    fn gain(pages: usize, time: u64) -> Gain {
        Gain { pages: PageCount(pages), time: Millionths(time) }
    }

    #[test]
    fn who_gains_much_less_by_a_page_yields() {
        let busy = gain(1_000, 50_000);
        assert!(gain(1_000, 0).shall_yield_to(busy));
        assert!(gain(1_000, 20_000).shall_yield_to(busy));
        assert!(!gain(1_000, 30_000).shall_yield_to(busy));
        // The same gain in all, but by more pages.
        assert!(gain(3_000, 50_000).shall_yield_to(busy));
        assert!(!gain(100, 3_000).shall_yield_to(busy));
        // No process would gain anything, or there is no other.
        assert!(!gain(1_000, 0).shall_yield_to(gain(1_000, 4_000)));
        assert!(!gain(1_000, 0).shall_yield_to(Gain::default()));
        // Before a process is managed it has no limbo, and nothing to give.
        assert!(!Gain::default().shall_yield_to(busy));
    }

    #[test]
    fn what_limbo_would_have_spared_is_gained() {
        let (mut meter, mut waited) = (Meter::default(), Waited::default());
        let mut note = |from_ms: u64, to_ms: u64, in_limbo: u64| {
            let mut found = Millionths(0);
            for ms in from_ms + 1..=to_ms {
                waited.faults += 40;
                waited.in_limbo += in_limbo;
                waited.ns += 400_000;
                found = meter.note(ms * 1_000_000, waited);
            }
            found.0
        };
        let found = note(0, 2_000, 10);
        assert!((95_000..=100_000).contains(&found), "{found}");
        assert!(note(2_000, 3_000, 0) < 1_000);
    }

    proptest! {
        #[test]
        fn of_two_at_most_one_yields(
            first in (any::<u32>(), any::<u32>()), second in (any::<u32>(), any::<u32>()),
        ) {
            let of = |(pages, time): (u32, u32)| gain(pages as usize, u64::from(time));
            let (first, second) = (of(first), of(second));
            prop_assert!(!(first.shall_yield_to(second) && second.shall_yield_to(first)));
        }
    }
}
