//! The words by which processes take turns (`allowance/turns.rs`).

use core::sync::atomic::{AtomicU32, Ordering};

/// A word of the ledger that says nothing of any other.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Figure(pub(crate) AtomicU32);

impl Figure {
    /// Sets the word.
    pub(crate) fn set(&self, value: u32) {
        // Relaxed: as above.
        self.0.store(value, Ordering::Relaxed);
    }
}

/// What a process publishes in its seat. Times are in milliseconds of the monotonic clock, 0 for
/// none.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Turn {
    pub(crate) began_ms: Figure,
    /// When it last faulted, or asked for its turn.
    pub(crate) asked_ms: Figure,
    pub(crate) waits_ms: Figure,
    /// Millionths of the time in which it has faults served, and in which its threads run.
    pub(crate) busy: Figure,
    pub(crate) runs: Figure,
}

impl Turn {
    /// Clears the words for a process that is new in the seat.
    pub(crate) fn clear(&self) {
        for word in [&self.began_ms, &self.asked_ms, &self.waits_ms, &self.busy, &self.runs] {
            word.set(0);
        }
    }
}

/// What all processes share.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Table {
    /// How many may play; 0 for all.
    pub(crate) most: Figure,
    /// When that was last looked at.
    pub(crate) set_ms: Figure,
    /// When a process last came in.
    pub(crate) entered_ms: Figure,
}
