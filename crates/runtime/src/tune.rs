//! Tuning: taking over the knobs that the user turned, what they ask for as time passes, and what
//! they mean as other processes come and go.

use coldpress_sys::PageCount;

use crate::knobs::Knobs;
use crate::ledger::Ledger;
use crate::manager::Manager;
use crate::thaw::Thaw;

/// A share of the budget counts as another when it differs by more than this part of the one in
/// force: what others hold changes a little all the time.
const SHARE_STEP: usize = 16;

/// What was taken over so far.
pub(crate) struct Tuning {
    /// The knobs as last read.
    pub(crate) knobs: Knobs,
    /// Their generation then.
    generation: u64,
    /// The share of the budget that the pool's limit is of.
    share: PageCount,
    /// When the period began that the writeback limit holds for.
    renewed_at: u64,
    /// How far thawing has come.
    pub(crate) thaw: Thaw,
}

impl Tuning {
    /// The knobs of `ledger`, for a process with that `share` of the budget.
    pub(crate) fn begin(ledger: &Ledger, share: PageCount, now_ns: u64) -> Self {
        // Before the knobs are read: a change in between is seen again.
        let generation = ledger.generation();
        let thaw = Thaw::default();
        Self { knobs: ledger.knobs(), generation, share, renewed_at: now_ns, thaw }
    }

    /// What they are for a store in a run of that `budget`.
    pub(crate) fn for_store(&self, budget: PageCount) -> coldpress_zswap::Knobs {
        self.knobs.for_store(budget, self.share)
    }

    /// Takes over the share that the process has now; whether it is another.
    fn take_share(&mut self, now: PageCount) -> bool {
        let is_other = self.share.0.abs_diff(now.0) > self.share.0 / SHARE_STEP;
        if is_other {
            self.share = now;
        }
        is_other
    }
}

impl Manager {
    /// Tells zswap the time, takes over new knobs and a new share of the budget, begins a new
    /// period of writeback when the last is over, and, while nobody waits, empties a pool that is
    /// left and shrinks one that holds more than it should.
    pub(crate) fn tune(&mut self, nobody_waits: bool) {
        let now = self.time.now_ns();
        self.zswap.note_time(now / 1_000_000);
        let generation = self.ledger.generation();
        let has_other_share = self.tuning.take_share(self.budget.share());
        if has_other_share {
            self.pages.set_share(self.tuning.share);
        }
        if generation != self.tuning.generation {
            self.tuning.generation = generation;
            self.take_knobs();
        } else if has_other_share {
            let wanted = self.tuning.for_store(self.budget.total());
            // With the codec in force, which cannot be refused.
            let codec = self.zswap.knobs().codec;
            let _ = self.zswap.set_knobs(coldpress_zswap::Knobs { codec, ..wanted });
        }
        if now >= self.tuning.renewed_at + self.tuning.knobs.writeback_period_ns() {
            self.tuning.renewed_at = now;
            self.zswap.renew_writeback();
        }
        self.tend_pools(nobody_waits);
        if nobody_waits {
            self.zswap.shrink_to_limit();
        }
    }

    fn take_knobs(&mut self) {
        self.tuning.knobs = self.ledger.knobs();
        if !self.shall_thaw() {
            self.end_thaw();
        }
        // What was refused may be wanted now.
        self.stuck.until_ns = 0;
        let mut wanted = self.tuning.for_store(self.budget.total());
        let Err(error) = self.zswap.set_knobs(wanted) else { return };
        let (refused, codec) = (wanted.codec, self.zswap.knobs().codec);
        self.link.warn(format_args!(
            "pages are still compressed with {codec}, as {refused} cannot be had: {error}"
        ));
        wanted.codec = codec;
        // The codec in force cannot be refused.
        let _ = self.zswap.set_knobs(wanted);
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a limit that follows every page of others, or that does not follow them.

    use super::*;

    #[test]
    fn a_share_is_taken_over_when_it_is_clearly_another() {
        let share = PageCount(1600);
        let knobs = Knobs::default();
        let thaw = Thaw::default();
        let mut tuning = Tuning { knobs, generation: 0, share, renewed_at: 0, thaw };
        for near in [1500, 1700, 1600] {
            assert!(!tuning.take_share(PageCount(near)), "{near}");
        }
        assert_eq!(tuning.for_store(PageCount(8000)).max_pool, PageCount(800));
        assert!(tuning.take_share(PageCount(1499)));
        assert_eq!(tuning.for_store(PageCount(8000)).max_pool, PageCount(749));
        assert!(tuning.take_share(PageCount(8000)) && !tuning.take_share(PageCount(8000)));
        // Little by little it comes to the same.
        let mut far = 8000;
        while far > 4000 {
            far -= 100;
            tuning.take_share(PageCount(far));
        }
        assert!(tuning.share.0.abs_diff(4000) <= 4000 / SHARE_STEP);
    }
}
