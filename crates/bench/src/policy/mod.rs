//! The policy laboratory: which page to evict, tried on traces of touches.
//!
//! A [`Policy`] has room for a number of pages. It sees each touch and says where it has the page.
//! [`replay`] counts the pages that are not in memory. No policy can avoid the first touch of a
//! page. All other faults are *major*, because the page must be decompressed. A page that a policy
//! has set aside and takes back costs a *minor* fault; only our policy sets pages aside.
//!
//! 1. Room is for pages as they are; the memory of compressed pages counts for no policy.
//! 2. A policy brings in the touched page and no other, unless it says so: then it may have fewer
//!    faults than the optimum.

mod active;
mod belady;
mod clock;
pub(crate) mod generate;
pub(crate) mod lackey;
mod lru;
mod s3_fifo;
#[cfg(test)]
mod tests;
pub(crate) mod trace;

pub(crate) use active::ActiveInactive;
pub(crate) use belady::Belady;
pub(crate) use clock::Clock;
pub(crate) use coldpress_runtime::replay::TouchOutcome;
pub(crate) use lru::Lru;
pub(crate) use s3_fifo::S3Fifo;

use trace::Trace;

/// A way to choose the page to evict.
pub(crate) trait Policy {
    /// Touches the page of that rank. Returns where the policy had it.
    fn touch(&mut self, rank: usize) -> TouchOutcome;
}

/// The counts of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Faults on pages that were never touched before.
    pub first: u64,
    /// Faults on pages that were evicted.
    pub major: u64,
    /// Faults on pages that were set aside.
    pub minor: u64,
}

/// Replays a trace with a policy, and counts.
pub(crate) fn replay(trace: &Trace, policy: &mut dyn Policy) -> Counts {
    let mut counts = Counts::default();
    let mut is_known = vec![false; trace.distinct()];
    for (rank, _) in trace.touches() {
        let was_known = std::mem::replace(&mut is_known[rank], true);
        match policy.touch(rank) {
            TouchOutcome::Here => {}
            TouchOutcome::Aside => counts.minor += 1,
            TouchOutcome::Away if was_known => counts.major += 1,
            TouchOutcome::Away => counts.first += 1,
        }
    }
    counts
}

/// The policies to compare ours with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Evicts the page whose next touch is farthest away (Belady 1966): no policy can do better.
    Belady,
    /// Evicts the page touched least recently.
    Lru,
    /// [`Clock`].
    Clock,
    /// [`ActiveInactive`].
    ActiveInactive,
    /// [`S3Fifo`].
    S3Fifo,
}

impl Peer {
    /// All policies, the optimum first.
    pub(crate) const ALL: [Self; 5] =
        [Self::Belady, Self::Lru, Self::Clock, Self::ActiveInactive, Self::S3Fifo];

    /// Returns the name of the policy.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Belady => "belady",
            Self::Lru => "lru",
            Self::Clock => "clock",
            Self::ActiveInactive => "active/inactive",
            Self::S3Fifo => "s3-fifo",
        }
    }

    /// Makes the policy, with room for `room` pages, which is not 0.
    pub(crate) fn policy(self, trace: &Trace, room: usize) -> Box<dyn Policy> {
        assert!(room > 0, "a page that is touched must be somewhere");
        let pages = trace.distinct();
        match self {
            Self::Belady => Box::new(Belady::new(trace, room)),
            Self::Lru => Box::new(Lru::new(pages, room)),
            Self::Clock => Box::new(Clock::new(pages, room)),
            Self::ActiveInactive => Box::new(ActiveInactive::new(pages, room)),
            Self::S3Fifo => Box::new(S3Fifo::new(pages, room)),
        }
    }
}
