//! A share of the time, as a moving mean.

use crate::ledger::Millionths;

/// A moving mean of a share of the time, over `OVER_NS`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean<const OVER_NS: u64> {
    share: Millionths,
    noted_at_ns: u64,
}

impl<const OVER_NS: u64> Mean<OVER_NS> {
    /// Begins with a mean that was `share` until `now_ns`.
    pub(crate) fn begin(now_ns: u64, share: Millionths) -> Self {
        Self { share, noted_at_ns: now_ns }
    }

    /// Records that `measured_ns` nanoseconds of the time since the last call, until `now_ns`, were
    /// what is measured, and returns the mean. A long time counts as if each part of it brought the
    /// same.
    pub(crate) fn note(&mut self, now_ns: u64, measured_ns: u64) -> Millionths {
        let passed = now_ns.saturating_sub(self.noted_at_ns).max(1);
        let share = measured_ns.saturating_mul(Millionths::ALL.0) / passed;
        let part = passed.min(OVER_NS);
        self.share.0 = (self.share.0 * (OVER_NS - part) + share * part) / OVER_NS;
        self.noted_at_ns = now_ns;
        self.share
    }

    /// Returns the mean.
    pub(crate) fn share(&self) -> Millionths {
        self.share
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a mean that sees only the latest value, or never a new one.

    use super::*;

    #[test]
    fn it_follows_in_its_time() {
        let mut mean = Mean::<100_000_000>::begin(0, Millionths(0));
        let mut note = |from_ms: u64, to_ms: u64, each_ns: u64| {
            (from_ms + 1..=to_ms).for_each(|ms| {
                mean.note(ms * 1_000_000, each_ns);
            });
            mean.share().0
        };
        let halfway = note(0, 69, 500_000);
        assert!((240_000..260_000).contains(&halfway), "{halfway}");
        assert!(note(69, 1_000, 500_000) > 490_000);
        assert!(note(1_000, 1_500, 0) < 5_000);
        // One look after a second of nothing says as much as a thousand looks.
        assert_eq!(mean.note(9_000_000_000, 0), Millionths(0));
        assert_eq!(mean.note(9_000_000_000, 7).0, 0, "no time has passed");
    }
}
