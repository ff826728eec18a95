//! The allowance: how much memory this process may hold, what it holds, and when its faults are
//! served, all by what it and the other processes of the run publish in the ledger.
//!
//! Nothing here makes a system call: what the kernel has to say comes through [`Gauges`].

mod budget;
mod gauges;
mod gauging;
mod mapped;
mod mean;
mod pressure;
mod shares;
mod sharing;
mod tuning;
mod turns;
mod waits;

use coldpress_sys::PageCount;

pub(crate) use budget::{Budget, PastActivity};
#[cfg(test)]
pub(crate) use gauges::Answers;
pub(crate) use gauges::{Gauges, ResidentPages};
pub(crate) use gauging::{RUN_NS_NEAR, Running};
pub(crate) use pressure::Pressure;
pub(crate) use shares::Waited;
pub(crate) use tuning::Tuning;
pub(crate) use turns::Turns;
pub(crate) use waits::Waits;

use crate::clock::Clock;
use crate::knobs::Knob;
use crate::ledger::Ledger;
use crate::tally::{Counter, Tally};

/// Faults on pages that were away, since this process began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refaults {
    pub(crate) faults: u64,
    /// The faults among them on pages in limbo that belong to no walk.
    pub(crate) in_limbo: u64,
    /// How long threads have waited in these faults, without waiting for their turn.
    pub(crate) ticks: u64,
}

/// How long threads have waited in their faults, altogether.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitedTicks {
    /// While the fault was served.
    pub(crate) served_ticks: u64,
    /// For the process's turn.
    pub(crate) for_turn_ticks: u64,
    /// For room for a copy.
    pub(crate) for_room_ticks: u64,
}

/// What this process may hold and do, and what it has done.
pub(crate) struct Allowance {
    pub(crate) budget: Budget,
    pub(crate) ledger: Ledger,
    pub(crate) seat: usize,
    pub(crate) tuning: Tuning,
    pub(crate) turns: Turns,
    pub(crate) running: Running,
    pub(crate) time: Clock,
    pub(crate) refaults: Refaults,
    pub(crate) waited: WaitedTicks,
    /// What was last seen of the time that threads have waited.
    pub(crate) waits: Waits,
}

impl Allowance {
    /// Begins for the process in `seat`, with the knobs of `ledger`, when the program's threads
    /// have run for `ran_ns`.
    pub(crate) fn new(
        budget: Budget,
        ledger: Ledger,
        seat: usize,
        time: Clock,
        ran_ns: u64,
    ) -> Self {
        let tuning = Tuning::begin(&ledger, &budget, time.now_ns());
        Self {
            budget,
            ledger,
            seat,
            tuning,
            turns: Turns::default(),
            running: Running::begin(time.now_ns(), ran_ns),
            time,
            refaults: Refaults::default(),
            waited: WaitedTicks::default(),
            waits: Waits::default(),
        }
    }

    /// Goes on in a child, which has a budget, a ledger and a seat of its own, and has waited for
    /// nothing yet.
    pub(crate) fn inherit(&mut self, mut budget: Budget, ledger: Ledger, seat: usize) {
        budget.inherit(&mut self.budget);
        // The parent's ledger stays mapped: the child has a copy of the mapping, not of the owner.
        core::mem::forget(core::mem::replace(&mut self.ledger, ledger));
        (self.budget, self.seat) = (budget, seat);
        self.turns = Turns::default();
        self.running = Running::begin(self.time.now_ns(), 0);
        self.refaults = Refaults::default();
        (self.waited, self.waits) = (WaitedTicks::default(), Waits::default());
    }

    pub(crate) fn tally(&self) -> &Tally {
        self.ledger.tally(self.seat)
    }

    /// Adds to a counter of this process.
    pub(crate) fn count(&self, counter: Counter, amount: usize) {
        self.tally().add(counter, amount as u64);
    }

    /// Returns the time in milliseconds, which wrap around.
    pub(crate) fn now_ms(&self) -> u32 {
        (self.time.now_ns() / 1_000_000) as u32
    }

    /// Returns the pages that may come before the hard limit (the min watermark) is reached.
    pub(crate) fn room(&self) -> PageCount {
        self.budget.hard().saturating_sub(self.budget.used())
    }

    /// Returns how long threads have waited for their faults, together.
    pub(crate) fn stalled_ns(&self) -> u64 {
        let WaitedTicks { served_ticks, for_turn_ticks, for_room_ticks } = self.waited;
        self.time.span_ns(served_ticks + for_turn_ticks + for_room_ticks)
    }

    /// Returns whether the user wants every page in the program.
    pub(crate) fn shall_thaw(&self) -> bool {
        self.tuning.knobs.get(Knob::Thawed) != 0
    }

    /// Returns what the meters have of the past, for a reading of the budget.
    pub(crate) fn past(&self) -> PastActivity {
        PastActivity {
            now_ns: self.time.now_ns(),
            faults: self.tally().get(Counter::Faults),
            waited: Waited {
                faults: self.refaults.faults,
                in_limbo: self.refaults.in_limbo,
                ns: self.time.span_ns(self.refaults.ticks),
            },
            ..PastActivity::default()
        }
    }
}
