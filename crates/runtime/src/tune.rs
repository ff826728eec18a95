//! Tuning: taking over the knobs that the user turned, and what they ask for as time passes.

use crate::knobs::Knobs;
use crate::ledger::Ledger;
use crate::manager::Manager;

/// What was taken over so far.
pub(crate) struct Tuning {
    /// The knobs as last read.
    pub(crate) knobs: Knobs,
    /// Their generation then.
    generation: u64,
    /// When the period began that the writeback limit holds for.
    renewed_at: u64,
}

impl Tuning {
    /// The knobs of `ledger`.
    pub(crate) fn begin(ledger: &Ledger, now_ns: u64) -> Self {
        // Before the knobs are read: a change in between is seen again.
        let generation = ledger.generation();
        Self { knobs: ledger.knobs(), generation, renewed_at: now_ns }
    }
}

impl Manager {
    /// Takes over new knobs, begins a new period of writeback when the last is over, and shrinks a
    /// pool that holds more than it should, while nobody waits.
    pub(crate) fn tune(&mut self, nobody_waits: bool) {
        let now = self.time.now_ns();
        let generation = self.ledger.generation();
        if generation != self.tuning.generation {
            self.tuning.generation = generation;
            self.take_knobs();
        }
        if now >= self.tuning.renewed_at + self.tuning.knobs.writeback_period_ns() {
            self.tuning.renewed_at = now;
            self.zswap.renew_writeback();
        }
        if nobody_waits {
            self.zswap.shrink_to_limit();
        }
    }

    fn take_knobs(&mut self) {
        let knobs = self.ledger.knobs();
        self.tuning.knobs = knobs;
        // What was refused may be wanted now.
        self.stuck.until_ns = 0;
        let mut wanted = knobs.for_store(self.budget.total());
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
