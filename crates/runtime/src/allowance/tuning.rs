//! Tuning: the knobs that are in force, and what they mean as other processes come and go.

use coldpress_mem::frames::SPAN_MAX;
use coldpress_sys::{Bytes, PageCount};

use super::budget::Budget;
use crate::knobs::Knobs;
use crate::ledger::Ledger;

/// Divisor: a budget, or a share of it, counts as another when it differs by more than this part of
/// the one in force. What others hold changes a little all the time.
const SHARE_STEP: usize = 16;
/// Largest budget of which the pool's limits are parts, whatever the budget is: an eighth of the
/// frames there can be is left, so that tables find some when the pool is full.
const ROOM_MAX: PageCount = Bytes(SPAN_MAX.0 / 8 * 7).pages_down();

/// What was taken over so far.
pub(crate) struct Tuning {
    /// The knobs as last read.
    pub(crate) knobs: Knobs,
    /// The generation of the knobs at that time.
    generation: u64,
    /// The share of the budget of which the pool's limit is a part.
    pub(crate) share: PageCount,
    /// The budget.
    pub(crate) budget: PageCount,
    /// The budget that the frames were laid out for: the pool's limits are never parts of more.
    room: PageCount,
    /// When the current period of the writeback limit began.
    renewed_at: u64,
}

impl Tuning {
    /// Begins with the knobs of `ledger`, for a process whose frames are laid out for `budget`, as
    /// it is now.
    pub(crate) fn begin(ledger: &Ledger, budget: &Budget, now_ns: u64) -> Self {
        // Before the knobs are read: a change in between is seen again.
        let generation = ledger.generation();
        let (share, budget) = (budget.share(), budget.total());
        let (knobs, room) = (ledger.knobs(), budget);
        Self { knobs, generation, share, budget, room, renewed_at: now_ns }
    }

    /// Returns the knobs as the store has them.
    pub(crate) fn for_store(&self) -> coldpress_zswap::Knobs {
        let room = self.room.min(ROOM_MAX);
        self.knobs.for_store(self.budget.min(room), self.share.min(room))
    }

    /// Returns whether the share of the process, or the budget, differs from the one in force; if
    /// so, takes both over.
    pub(crate) fn take_share(&mut self, share: PageCount, budget: PageCount) -> bool {
        let differs = |was: PageCount, now: PageCount| was.0.abs_diff(now.0) > was.0 / SHARE_STEP;
        let is_other = differs(self.share, share) || differs(self.budget, budget);
        if is_other {
            (self.share, self.budget) = (share, budget);
        }
        is_other
    }

    /// Returns whether the user has turned a knob since the last call, after reading all of them.
    pub(crate) fn take_knobs(&mut self, ledger: &Ledger) -> bool {
        let generation = ledger.generation();
        let has_changed = generation != self.generation;
        if has_changed {
            self.generation = generation;
            self.knobs = ledger.knobs();
        }
        has_changed
    }

    /// Returns whether a new period of the writeback limit begins at `now_ns`.
    pub(crate) fn renews(&mut self, now_ns: u64) -> bool {
        let is_over = now_ns >= self.renewed_at + self.knobs.writeback_period_ns();
        if is_over {
            self.renewed_at = now_ns;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a limit that follows every page of others, or that does not follow others at all.

    use super::*;

    /// Creates the tuning of a process with that `share` of `budget`, with all its frames laid out
    /// for it.
    fn tuning(share: usize, budget: usize) -> Tuning {
        let (share, budget) = (PageCount(share), PageCount(budget));
        let knobs = Knobs::default();
        Tuning { knobs, generation: 0, share, budget, room: budget, renewed_at: 0 }
    }

    #[test]
    fn a_share_is_taken_over_when_it_is_clearly_another() {
        let budget = PageCount(8000);
        let mut tuning = tuning(1600, budget.0);
        for near in [1500, 1700, 1600] {
            assert!(!tuning.take_share(PageCount(near), budget), "{near}");
        }
        assert_eq!(tuning.for_store().max_pool, PageCount(800));
        assert!(tuning.take_share(PageCount(1499), budget));
        assert_eq!(tuning.for_store().max_pool, PageCount(749));
        assert!(tuning.take_share(budget, budget) && !tuning.take_share(budget, budget));
        // Small steps come to the same.
        let mut far = 8000;
        while far > 4000 {
            far -= 100;
            tuning.take_share(PageCount(far), budget);
        }
        assert!(tuning.share.0.abs_diff(4000) <= 4000 / SHARE_STEP);
    }

    #[test]
    fn the_pool_follows_the_budget_as_far_as_there_are_frames() {
        let mut tuning = tuning(8000, 8000);
        let mut limits = |share, budget| {
            assert!(tuning.take_share(PageCount(share), PageCount(budget)));
            let knobs = tuning.for_store();
            (knobs.max_pool.0, knobs.hard_pool.0)
        };
        assert_eq!(limits(4000, 4000), (2000, 3600));
        assert_eq!(limits(4000, 8000), (2000, 7200));
        assert_eq!(limits(80_000, 80_000), (4000, 7200));
        assert_eq!(limits(1000, 80_000), (500, 7200));
    }

    #[test]
    fn the_largest_pool_leaves_frames_for_tables() {
        for gib in [60, 100, 256, 1024] {
            let budget = Bytes::mib(gib << 10).pages_down().0;
            let knobs = tuning(budget, budget).for_store();
            assert!(knobs.max_pool < knobs.hard_pool && knobs.hard_pool < ROOM_MAX, "{knobs:?}");
            // As docs/limits.md says.
            assert_eq!(knobs.hard_pool.bytes().0 >> 30, 50, "{knobs:?}");
        }
    }
}
