//! What a process holds, and what more memory would gain it (`allowance/shares.rs`).

use coldpress_sys::PageCount;

/// A part of the time, in millionths. Of several threads or processes, the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Millionths(pub(crate) u64);

impl Millionths {
    /// All the time of one thread.
    pub(crate) const ALL: Self = Self(1_000_000);
}

/// The waiting that more memory would save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gain {
    /// Amount of additional memory.
    pub(crate) pages: PageCount,
    /// Part of the time that it would save.
    pub(crate) time: Millionths,
}

/// What one process or several hold, and what more memory would gain them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Pages held.
    pub used: PageCount,
    /// Pages that may be held besides.
    pub doubt: PageCount,
    /// What more memory would gain.
    pub(crate) gain: Gain,
}

impl core::ops::Add for Holding {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let time = Millionths(self.gain.time.0.saturating_add(other.gain.time.0));
        let gain = Gain { pages: self.gain.pages + other.gain.pages, time };
        Self { used: self.used + other.used, doubt: self.doubt + other.doubt, gain }
    }
}
