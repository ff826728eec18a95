//! Recompression: making stored pages denser while the program needs none ([`Zswap::recompress`]).
//!
//! The service runs on the processor of the thread it serves, so any work that no thread asked for
//! takes time from the program. The service ages pages only when the program has hardly faulted
//! lately, and looks for faults after each page: a thread that touches a page waits at most 60 us
//! longer.
//!
//! - A program whose threads together hardly used the processors *rests*: pages are aged without
//!   pause.
//! - A program that computes, with the pages it has, gives a fiftieth of its time: the service pays
//!   for recompression by waiting 49 times as long.
//!
//! [`Zswap::recompress`]: coldpress_zswap::Zswap::recompress

use coldpress_sys::Bytes;

use super::Service;
use crate::ledger::Told;
use crate::tally::Counter;

/// Length of one watch over a program, in nanoseconds. A thread that has to share its processor
/// does not run for some milliseconds either.
const WATCHED_NS: u64 = 50_000_000;
/// Watches in a row in which the program must hardly have run, or hardly have faulted: half a
/// second. A shorter pause is no rest: the program waits for a child or a file and goes on with the
/// same pages.
const QUIET_TIMES: u32 = 10;
/// Divisor of the time: a program hardly runs when it uses at most this part of one processor. That
/// is less than a busy thread gets beside 14 others.
const RESTING_PART: u64 = 16;
/// Largest number of faults in [`WATCHED_NS`] of a program that needs no pages. A program that
/// waits for its pages, on a slow disk or in small steps, uses no processor either.
const RESTING_FAULTS: u32 = 1;
/// Divisor of the time of a program that computes: recompression takes this part. At 60 us each,
/// that is 330 pages a second.
const TAKEN_PART: u64 = 50;
/// Largest amount of unused time that is saved up: the steps that fall due over two readings of the
/// gauges, because the service does nothing between readings.
const KEPT_NS: u64 = 10_000_000;
/// Compressed bytes to move after each page, so that the room it frees does not stay scattered over
/// the pool. This is more than one page saves.
const COMPACTED: Bytes = Bytes::kib(4);

/// The time that the program leaves for work that no thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leisure {
    /// No time: the program needs pages.
    None,
    /// A part of its time: the program computes.
    Part,
    /// All of the time: the program rests.
    All,
}

/// How much the program needs its processor and its pages.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// When the program was last looked at, and how long it had run by then.
    looked_at_ns: u64,
    ran_ns: u64,
    /// Faults that the program had by then.
    faults: u32,
    /// Watches in a row in which the program hardly faulted.
    calm_times: u32,
    /// Watches in a row in which the program hardly ran either.
    quiet_times: u32,
    /// Time taken of the program while it computes.
    taken: Taken,
}

/// Time taken of a program that computes, which the service pays for by waiting.
#[derive(Debug, Default)]
pub(super) struct Taken {
    paid_at_ns: u64,
}

impl Taken {
    /// Returns whether all the time taken is paid for.
    pub(super) fn is_paid(&self, now_ns: u64) -> bool {
        now_ns >= self.paid_at_ns
    }

    /// Records time taken from `begun_ns` to `now_ns`, which may be one part in `parts` of all
    /// time.
    pub(super) fn note(&mut self, begun_ns: u64, now_ns: u64, parts: u64) {
        let since = self.paid_at_ns.max(begun_ns.saturating_sub(KEPT_NS));
        self.paid_at_ns = since + now_ns.saturating_sub(begun_ns) * parts;
    }
}

impl Rest {
    /// Records that by `now_ns` the program has had `faults` faults, a count that wraps around, and
    /// has run for `ran` nanoseconds in all.
    pub(super) fn note(&mut self, now_ns: u64, faults: u32, ran: u64) {
        let watched = now_ns.saturating_sub(self.looked_at_ns);
        if watched >= WATCHED_NS {
            let is_calm = faults.wrapping_sub(self.faults) <= RESTING_FAULTS;
            let is_quiet = ran.saturating_sub(self.ran_ns) * RESTING_PART <= watched && is_calm;
            let counted =
                |times: u32, goes_on: bool| if goes_on { times.saturating_add(1) } else { 0 };
            self.calm_times = counted(self.calm_times, is_calm);
            self.quiet_times = counted(self.quiet_times, is_quiet);
            (self.looked_at_ns, self.ran_ns, self.faults) = (now_ns, ran, faults);
        }
    }

    /// Returns how much of its time the program leaves.
    pub(super) fn leisure(&self) -> Leisure {
        if self.quiet_times >= QUIET_TIMES {
            Leisure::All
        } else if self.calm_times >= QUIET_TIMES {
            Leisure::Part
        } else {
            Leisure::None
        }
    }

    /// Returns whether a step of recompression may begin.
    fn allows_step(&self, now_ns: u64) -> bool {
        match self.leisure() {
            Leisure::None => false,
            Leisure::Part => self.taken.is_paid(now_ns),
            Leisure::All => true,
        }
    }

    /// Records that a step of recompression took from `begun_ns` to `now_ns`.
    fn note_step(&mut self, begun_ns: u64, now_ns: u64) {
        if self.leisure() == Leisure::Part {
            self.taken.note(begun_ns, now_ns, TAKEN_PART);
        }
    }
}

impl Service {
    /// Returns whether there may be more to do at once, after moving some pages out of a former
    /// pool, or else making one page denser, if the program leaves time for it.
    pub(super) fn recompress_step(&mut self) -> bool {
        let somebody_waits = self.pager.memory.faults.any();
        let begun = self.pager.allowance.time.now_ns();
        if somebody_waits
            || self.control.holds.is_held()
            || !self.pager.allowance.budget.is_worth_taking()
            || !self.rest.allows_step(begun)
        {
            return false;
        }
        let is_more =
            self.pager.store.empty_former_pool(&mut self.pager.allowance) || self.make_denser();
        self.rest.note_step(begun, self.pager.allowance.time.now_ns());
        is_more
    }

    /// Returns whether there may be more to do at once, after making one page denser.
    fn make_denser(&mut self) -> bool {
        let is_more = self.pager.store.zswap.recompress();
        if is_more {
            let moved = self.pager.store.zswap.compact(COMPACTED).moved;
            self.pager.allowance.count(Counter::BytesCompacted, moved.0);
            self.pager.store.charge_own_growth(&mut self.pager.allowance);
            self.report_recompression();
        }
        is_more
    }

    /// Notifies the user, once in a run, that pages become denser.
    fn report_recompression(&mut self) {
        if self.pager.allowance.ledger.is_first_to_tell(Told::Recompression) {
            let does = if self.rest.leisure() == Leisure::All { "rests" } else { "only computes" };
            self.ties.tell(format_args!(
                "process {} {does}: stored pages become denser, but for the youngest {} % of the \
                 {} MiB in the pool; this part grows and shrinks with what their loads cost",
                self.ties.process(),
                self.pager.store.zswap.young_percent(),
                self.pager.store.zswap.pool_frames().bytes().0 >> 20,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    //! Risk: time taken from a program that needs it.

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_program_that_waits_for_its_pages_leaves_nothing() {
        let mut rest = Rest::default();
        for time in 0..100 {
            rest.note(time * WATCHED_NS, 2 * time as u32, 0);
            assert_eq!(rest.leisure(), Leisure::None);
        }
    }

    #[test]
    fn a_program_rests_when_it_hardly_ran_for_half_a_second() {
        let mut rest = Rest::default();
        let mut faults = 0;
        let mut note = |now_ms: u64, ran_ms: u64, new_faults: u32| {
            faults += new_faults;
            rest.note(now_ms * 1_000_000, faults, ran_ms * 1_000_000);
            rest.leisure() == Leisure::All
        };
        // The first look has nothing to compare with, and the program had run for longer.
        assert!(!note(1000, 700, 9));
        for time in 1..10 {
            assert!(!note(1000 + 160 * time, 700 + 10 * time, 1));
        }
        assert!(note(2600, 800, 1));
        assert!(note(2601, 801, 9), "too early to say");
        assert!(!note(2650, 804, 0));
        assert!(!note(2700, 804, 0));
    }

    /// Creates the state of a program that uses two processors, and no pages, for `times` watches.
    fn computing(times: u64) -> Rest {
        let mut rest = Rest::default();
        for time in 1..=times {
            rest.note(time * WATCHED_NS, 7, 2 * time * WATCHED_NS);
        }
        rest
    }

    #[test]
    fn a_program_that_computes_leaves_a_part_after_half_a_second() {
        // There were many faults before the first look.
        assert_eq!(computing(10).leisure(), Leisure::None);
        let mut rest = computing(11);
        assert_eq!(rest.leisure(), Leisure::Part);
        let now = 11 * WATCHED_NS;
        assert!(rest.allows_step(now));
        rest.note_step(now, now + 1_000_000);
        assert!(!rest.allows_step(now + 39_999_999) && rest.allows_step(now + 40_000_000));
        rest.note(now + WATCHED_NS, 9, 3 * now);
        assert_eq!(rest.leisure(), Leisure::None);
    }

    #[test]
    fn a_program_that_rests_pays_for_nothing() {
        let mut rest = Rest::default();
        (1..12).for_each(|time| rest.note(time * WATCHED_NS, 7, 0));
        let now = 12 * WATCHED_NS;
        rest.note_step(now, now + 1_000_000_000);
        assert!(rest.allows_step(now + 1_000_000_000));
    }

    proptest! {
        /// Holds however long steps take and whenever they are tried.
        #[test]
        fn never_more_is_taken_than_the_part(
            tries in prop::collection::vec((0_u64..20_000_000, 1_000_u64..2_000_000), 1..400),
        ) {
            let mut rest = computing(11);
            let start = 11 * WATCHED_NS;
            let (mut now, mut taken) = (start, 0);
            for (waited, took) in tries {
                now += waited;
                if rest.allows_step(now) {
                    // The time taken so far is paid for.
                    prop_assert!(taken * TAKEN_PART <= now - start + KEPT_NS);
                    rest.note_step(now, now + took);
                    (now, taken) = (now + took, taken + took);
                }
            }
        }
    }
}
