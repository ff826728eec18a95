//! Ageing: while the program rests, its stored pages are made denser ([`Zswap::age`]).
//!
//! The service thread runs on the processor of the thread it serves, so what it does without being
//! asked is taken from the program. It ages pages only when the program hardly faulted and its
//! threads together hardly used the processors lately; then without pause, looking for faults after
//! each page: who touches a page waits 60 us longer at most.
//!
//! [`Zswap::age`]: coldpress_zswap::Zswap::age

use coldpress_sys::{Bytes, cpu, raw};

use crate::manager::Manager;
use crate::tally::Counter;

/// How long a program is watched at a time, in nanoseconds. A thread that has to share its
/// processor does not run for some milliseconds either.
const WATCHED_NS: u64 = 50_000_000;
/// Times in a row in which it must hardly have run: half a second. A shorter pause is no rest, it
/// waits for a child or a file and goes on with the same pages.
const QUIET_TIMES: u32 = 10;
/// A program hardly runs when it uses at most this part of one processor: less than what a busy
/// thread gets beside 14 others.
const RESTING_PART: u64 = 16;
/// Faults in [`WATCHED_NS`] of a program at rest: one that waits for its pages, on a slow disk or
/// in small steps, uses no processor either.
const RESTING_FAULTS: u32 = 1;
/// Compressed bytes moved after each page, so that the room it made is not scattered over the pool:
/// more than a page saves.
const COMPACTED: Bytes = Bytes::kib(4);

/// Whether the program rests.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// When it was last looked at, and what it had run for by then.
    looked_at_ns: u64,
    ran_ns: u64,
    /// Faults it had by then.
    faults: u32,
    /// Times in a row in which it hardly ran.
    quiet_times: u32,
}

impl Rest {
    /// It is `now_ns`; the program has had `faults`, counted around, and `ran_ns` says what it has
    /// run for, ever.
    fn note(&mut self, now_ns: u64, faults: u32, ran_ns: impl FnOnce() -> u64) {
        let watched = now_ns.saturating_sub(self.looked_at_ns);
        if watched >= WATCHED_NS {
            let ran = ran_ns();
            let is_quiet = ran.saturating_sub(self.ran_ns) * RESTING_PART <= watched
                && faults.wrapping_sub(self.faults) <= RESTING_FAULTS;
            self.quiet_times = if is_quiet { self.quiet_times.saturating_add(1) } else { 0 };
            (self.looked_at_ns, self.ran_ns, self.faults) = (now_ns, ran, faults);
        }
    }

    fn is_resting(&self) -> bool {
        self.quiet_times >= QUIET_TIMES
    }
}

impl Manager {
    /// Notes whether the program rests. For a call every few milliseconds.
    pub(crate) fn look_whether_it_rests(&mut self, now_ns: u64) {
        self.rest.note(now_ns, self.clock, cpu::others_ran_ns);
    }

    /// Makes a page denser, if the program rests. Whether there is more to do at once.
    pub(crate) fn age_step(&mut self) -> bool {
        let somebody_waits = !self.pending.is_empty() || !self.reading.is_empty();
        if somebody_waits || self.control.is_held() || !self.rest.is_resting() {
            return false;
        }
        if !self.zswap.age() {
            return false;
        }
        let moved = self.zswap.compact(COMPACTED).moved;
        self.count(Counter::BytesCompacted, moved.0);
        self.charge_own_growth();
        if !self.told.ageing {
            self.told.ageing = true;
            self.link.tell(format_args!(
                "process {} rests: stored pages become denser, but for the youngest {} % of the \
                 {} MiB in the pool; this part grows and shrinks with what their loads cost",
                raw::process_id(),
                self.zswap.young_percent(),
                self.zswap.pool_frames().bytes().0 >> 20,
            ));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    //! Risk: time taken from a program that does not rest.

    use super::*;

    #[test]
    fn a_program_that_waits_for_its_pages_does_not_rest() {
        let mut rest = Rest::default();
        for time in 0..100 {
            rest.note(time * WATCHED_NS, 2 * time as u32, || 0);
            assert!(!rest.is_resting());
        }
    }

    #[test]
    fn a_program_rests_when_it_hardly_ran_for_half_a_second() {
        let mut rest = Rest::default();
        let mut faults = 0;
        let mut note = |now_ms: u64, ran_ms: u64, new_faults: u32| {
            faults += new_faults;
            rest.note(now_ms * 1_000_000, faults, || ran_ms * 1_000_000);
            rest.is_resting()
        };
        // The first look knows nothing, and it had run for more.
        assert!(!note(1000, 700, 9));
        for time in 1..10 {
            assert!(!note(1000 + 160 * time, 700 + 10 * time, 1));
        }
        assert!(note(2600, 800, 1));
        assert!(note(2601, 801, 9), "too early to say");
        assert!(!note(2650, 804, 0));
        assert!(!note(2700, 804, 0));
    }
}
