//! The policy laboratory: which page to give up, tried on traces of touches.
//!
//! A [`Policy`] has room for so many pages. It is told of each touch and says where it has the
//! page. [`replay`] counts what is not there: the first touch of a page is nobody's fault, all
//! others are *major* faults, for the page must be decompressed. What a policy has set aside and
//! takes back costs a *minor* fault; only ours has that.
//!
//! 1. Room is for pages as they are; what they take compressed counts for nobody.
//! 2. A policy brings in what is touched and nothing else, unless it says so: then it may have
//!    fewer faults than the optimum.

mod active;
mod belady;
mod clock;
pub mod generate;
pub mod lackey;
mod lru;
mod s3_fifo;
#[cfg(test)]
mod tests;
pub mod trace;

pub use active::ActiveInactive;
pub use belady::Belady;
pub use clock::Clock;
pub use lru::Lru;
pub use s3_fifo::S3Fifo;

use trace::Trace;

/// Where a policy has a page that is touched. Afterwards it has it in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In memory.
    Here,
    /// Set aside, but not compressed yet.
    Aside,
    /// Nowhere: it was given up, or never touched.
    Away,
}

/// A way to choose which page to give up.
pub trait Policy {
    /// The page of that rank is touched.
    fn touch(&mut self, rank: usize) -> Found;
}

/// What a replay counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Faults on pages that were never touched before.
    pub first: u64,
    /// Faults on pages that were given up.
    pub major: u64,
    /// Faults on pages that were set aside.
    pub minor: u64,
}

/// Plays a trace.
pub fn replay(trace: &Trace, policy: &mut dyn Policy) -> Counts {
    let mut counts = Counts::default();
    let mut is_known = vec![false; trace.distinct()];
    for (rank, _) in trace.touches() {
        let was_known = std::mem::replace(&mut is_known[rank], true);
        match policy.touch(rank) {
            Found::Here => {}
            Found::Aside => counts.minor += 1,
            Found::Away if was_known => counts.major += 1,
            Found::Away => counts.first += 1,
        }
    }
    counts
}

/// The policies to hold ours against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The page whose next touch is farthest (Belady 1966): nobody can do better.
    Belady,
    /// The page touched least recently.
    Lru,
    /// [`Clock`].
    Clock,
    /// [`ActiveInactive`].
    ActiveInactive,
    /// [`S3Fifo`].
    S3Fifo,
}

impl Peer {
    /// All of them, the optimum first.
    pub const ALL: [Self; 5] =
        [Self::Belady, Self::Lru, Self::Clock, Self::ActiveInactive, Self::S3Fifo];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Belady => "belady",
            Self::Lru => "lru",
            Self::Clock => "clock",
            Self::ActiveInactive => "active/inactive",
            Self::S3Fifo => "s3-fifo",
        }
    }

    /// It, with room for `room` pages, which is not 0.
    pub fn policy(self, trace: &Trace, room: usize) -> Box<dyn Policy> {
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
