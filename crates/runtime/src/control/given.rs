//! Ranges that the program has for itself: they are given up, and not taken again.
//!
//! A page that is away is brought back when it is touched. That is not enough where the program
//! asks the kernel to watch a range by a userfaultfd of its own, which the kernel refuses for what
//! is watched already; nor for a mutex that the kernel looks at without waiting for a page.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Ranges that can be given up at a time. More stay as they are.
const RANGES: usize = 64;
/// The start of no range, and of one that is being written.
const FREE: usize = 0;
const BUSY: usize = 1;

/// The ranges, in no order.
pub struct Given {
    ranges: [(AtomicUsize, AtomicUsize); RANGES],
}

impl Given {
    /// None.
    pub const fn new() -> Self {
        Self { ranges: [const { (AtomicUsize::new(FREE), AtomicUsize::new(0)) }; RANGES] }
    }

    /// Adds a range, which is not empty. False when there is no room.
    pub fn add(&self, range: Range<usize>) -> bool {
        if self.has(&range) {
            return true;
        }
        let free = self.ranges.iter().find(|(start, _)| {
            // Acquire pairs with the Release in `remove`. Relaxed on failure: not ours.
            (start.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed)).is_ok()
        });
        let Some((start, end)) = free else { return false };
        // Relaxed: the store to `start` releases it.
        end.store(range.end, Ordering::Relaxed);
        // Release pairs with the Acquire in `iter`.
        start.store(range.start, Ordering::Release);
        true
    }

    /// Forgets the ranges that reach into `gone`.
    pub fn remove(&self, gone: &Range<usize>) {
        for (start, end) in &self.ranges {
            // Acquire pairs with the Release in `add`.
            let from = start.load(Ordering::Acquire);
            // Relaxed: ordered by the load of `start`.
            if from > BUSY && from < gone.end && gone.start < end.load(Ordering::Relaxed) {
                // Release pairs with the Acquire in `add`. One that changes meanwhile is another's.
                let _ = start.compare_exchange(from, FREE, Ordering::Release, Ordering::Relaxed);
            }
        }
    }

    /// The ranges. One that is added or removed meanwhile may be among them or not.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.ranges.iter().filter_map(|(start, end)| {
            // Acquire pairs with the Release in `add`.
            let start = start.load(Ordering::Acquire);
            // Relaxed: ordered by the load of `start`.
            (start > BUSY).then(|| start..end.load(Ordering::Relaxed))
        })
    }

    /// Whether all of `range` lies in one of them.
    pub fn has(&self, range: &Range<usize>) -> bool {
        self.iter().any(|given| given.start <= range.start && range.end <= given.end)
    }
}

impl Default for Given {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a range of the program's own is taken again, or memory that it has no more is
    //! never managed.

    use super::*;

    #[test]
    fn ranges_are_there_until_what_they_cover_is_gone() {
        let given = Given::new();
        assert!(given.add(4..8) && given.add(20..24) && given.add(5..7));
        assert!(given.has(&(4..8)) && given.has(&(21..22)) && !given.has(&(7..9)));
        assert_eq!(given.iter().count(), 2, "a part of one is no other");
        given.remove(&(8..20));
        assert_eq!(given.iter().count(), 2);
        given.remove(&(7..9));
        assert!(!given.has(&(4..5)) && given.has(&(20..24)));
        for index in 1..RANGES {
            assert!(given.add(100 * index..100 * index + 1), "{index}");
        }
        assert!(!given.add(50..51));
        given.remove(&(0..usize::MAX));
        assert_eq!(given.iter().count(), 0);
        assert!(given.add(50..51));
    }
}
