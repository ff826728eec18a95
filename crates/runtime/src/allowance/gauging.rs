//! Gauging: how often a process looks at what it holds.
//!
//! How much memory can grow until the next look depends on how long the program runs until then. A
//! program that shares its processors with many others runs for only a part of the time, so its
//! service looks less often. Of sixteen compilers on two processors, each looked at a thousand
//! times a second, all looks took a tenth of the time, and what they drove out of the caches took
//! as much again.

use super::mean::Mean;
use crate::ledger::Millionths;

/// How long a program runs between two looks when use is near the limit, and when it is not.
pub(crate) const RUN_NS_NEAR: u64 = 1_000_000;
const RUN_NS_FAR: u64 = 5_000_000;
/// The longest interval between two looks.
const INTERVAL_NS_MAX: u64 = 8_000_000;
/// Time over which the mean of the running time follows: some time slices of a busy processor.
const MEAN_NS: u64 = 32_000_000;

/// How much a program runs.
#[derive(Debug)]
pub(crate) struct Running {
    mean: Mean<MEAN_NS>,
    ran_ns: u64,
}

impl Running {
    /// Begins with the assumption that the program runs all the time.
    pub(crate) fn begin(now_ns: u64, ran_ns: u64) -> Self {
        Self { mean: Mean::begin(now_ns, Millionths::ALL), ran_ns }
    }

    /// Records that by `now_ns` the program's threads have run for `ran_ns` in all.
    pub(crate) fn note(&mut self, now_ns: u64, ran_ns: u64) {
        let before = core::mem::replace(&mut self.ran_ns, ran_ns);
        self.mean.note(now_ns, ran_ns.saturating_sub(before));
    }

    /// Returns the part of the recent time that the program ran; of several threads, the sum.
    pub(crate) fn share(&self) -> Millionths {
        self.mean.share()
    }

    /// Returns the time until the next look, one of a few values.
    pub(crate) fn interval_ns(&self, is_near: bool) -> u64 {
        let run_ns = if is_near { RUN_NS_NEAR } else { RUN_NS_FAR };
        let share = self.mean.share().0;
        let mut interval = run_ns;
        while interval * 2 <= INTERVAL_NS_MAX && 2 * interval * share <= run_ns * Millionths::ALL.0
        {
            interval *= 2;
        }
        interval
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a budget that is passed between two looks, or processors that do nothing but look.

    use super::*;

    /// Creates the state after 200 ms in which the program ran for `share` millionths of the time.
    fn running(share: u64) -> Running {
        let mut running = Running::begin(0, 0);
        (1..=200).for_each(|ms| running.note(ms * 1_000_000, ms * share));
        running
    }

    #[test]
    fn a_program_is_looked_at_when_it_has_run_for_as_long() {
        let near = [2_000_000, 1_000_000, 490_000, 240_000, 120_000, 0]
            .map(|share| running(share).interval_ns(true) / 1_000_000);
        assert_eq!(near, [1, 1, 2, 4, 8, 8]);
        assert_eq!([1_000_000, 0].map(|share| running(share).interval_ns(false)), [RUN_NS_FAR; 2]);
        // Nothing is known.
        assert_eq!(Running::begin(7, 8).interval_ns(true), RUN_NS_NEAR);
    }

    #[test]
    fn slices_of_a_busy_processor_are_taken_together() {
        // Three milliseconds in twelve.
        let (mut running, mut ran) = (Running::begin(0, 0), 0);
        let mut seen = std::vec::Vec::new();
        for ms in 1..=1_200_u64 {
            ran += if ms % 12 < 3 { 1_000_000 } else { 0 };
            running.note(ms * 1_000_000, ran);
            seen.push(running.interval_ns(true));
        }
        assert!(seen[100..].iter().all(|interval| (2_000_000..=4_000_000).contains(interval)));
    }
}
