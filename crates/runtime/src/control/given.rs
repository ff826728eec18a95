//! What the program has for itself: the service gives it up, and does not take it again.
//!
//! The service brings a page that is away back when a thread touches it. That is not enough in two
//! cases. The program may ask the kernel to watch a range with a userfaultfd of its own, which the
//! kernel refuses for a range that is watched already. And the kernel looks at certain mutexes
//! without waiting for a page.
//!
//! A thread that adds an entry then looks whether pages may be away. The service declares that they
//! may, then reads the entries. All of these accesses are sequentially consistent, so at least one
//! side sees the other.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use coldpress_sys::PAGE_BYTES;

/// The most ranges that are watched, and the most mutexes, that there can be at a time. Any more
/// stay as they are.
const RANGES: usize = 64;
const MUTEXES: usize = 192;
/// `sizeof(pthread_mutex_t)` on x86-64.
const MUTEX_BYTES: usize = 40;
/// SeqCst of each access pairs with that of the others, and with `Control::set_stage` and
/// `give_up`: see the head of this file.
const AGREED: Ordering = Ordering::SeqCst;
/// The word of an unused entry, and that of a range that is being changed.
const FREE: usize = 0;
const BUSY: usize = 1;

/// Everything that the program has for itself, in no order.
pub(crate) struct Given {
    watched: Ranges,
    mutexes: [AtomicUsize; MUTEXES],
    /// Whether there ever was an entry. Most programs have none, and need no search.
    is_used: AtomicBool,
}

/// Ranges, in no order, at most 64 at a time.
pub(crate) struct Ranges([(AtomicUsize, AtomicUsize); RANGES]);

/// Returns the pages on which the mutex at `address` lies.
pub(crate) fn pages_of(address: usize) -> Range<usize> {
    let end = (address + MUTEX_BYTES).next_multiple_of(PAGE_BYTES);
    address & !(PAGE_BYTES - 1)..end
}

impl Given {
    /// Creates an empty set.
    pub(crate) const fn new() -> Self {
        Self {
            watched: Ranges::new(),
            mutexes: [const { AtomicUsize::new(FREE) }; MUTEXES],
            is_used: AtomicBool::new(false),
        }
    }

    /// Adds a range, not empty, that the program is about to watch. Returns `None` when there is no
    /// room, else whether the range is new.
    pub(crate) fn watch(&self, range: Range<usize>) -> Option<bool> {
        let is_new = self.watched.add(range)?;
        self.is_used.store(true, AGREED);
        Some(is_new)
    }

    /// Removes the part `gone` from the watched ranges.
    pub(crate) fn unwatch(&self, gone: &Range<usize>) {
        self.watched.remove(gone);
    }

    /// Returns whether the mutex at `address` is in the set now: adds it if there is room.
    pub(crate) fn add_mutex(&self, address: usize) -> bool {
        self.is_used.store(true, AGREED);
        // The program has initialised this mutex before, and has not destroyed it.
        let is_known = self.mutexes.iter().any(|mutex| mutex.load(AGREED) == address);
        is_known
            || self
                .mutexes
                .iter()
                .any(|mutex| (mutex.compare_exchange(FREE, address, AGREED, AGREED)).is_ok())
    }

    /// Returns whether there was a mutex at `address`, and removes it.
    pub(crate) fn remove_mutex(&self, address: usize) -> bool {
        self.is_used.load(AGREED)
            && self.mutexes.iter().any(|mutex| {
                // Relaxed: a thread that destroys a mutex has seen it made. Only the exchange
                // counts.
                mutex.load(Ordering::Relaxed) == address
                    && (mutex.compare_exchange(address, FREE, AGREED, AGREED)).is_ok()
            })
    }

    /// Removes what was in a range where something else is mapped now.
    pub(crate) fn forget(&self, gone: &Range<usize>) {
        if !self.is_used.load(AGREED) {
            return;
        }
        self.unwatch(gone);
        for mutex in &self.mutexes {
            let address = mutex.load(AGREED);
            if gone.contains(&address) {
                // An entry that changes meanwhile belongs to another thread.
                let _ = mutex.compare_exchange(address, FREE, AGREED, AGREED);
            }
        }
    }

    /// Returns all ranges, those of mutexes included. An entry that is added or removed meanwhile
    /// may be among them or not.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        let addresses = self.mutexes.iter().map(|mutex| mutex.load(AGREED));
        self.watched.iter().chain(addresses.filter(|address| *address != FREE).map(pages_of))
    }

    /// Whether all of `range` lies within one of the entries.
    pub(crate) fn has(&self, range: &Range<usize>) -> bool {
        self.iter().any(|given| given.start <= range.start && range.end <= given.end)
    }
}

impl Ranges {
    /// Creates an empty set of ranges.
    pub(crate) const fn new() -> Self {
        Self([const { (AtomicUsize::new(FREE), AtomicUsize::new(0)) }; RANGES])
    }

    /// Adds a range that is not empty. Returns `None` when there is no room, else whether the range
    /// is new.
    pub(crate) fn add(&self, range: Range<usize>) -> Option<bool> {
        if self.iter().any(|other| other.start <= range.start && range.end <= other.end) {
            return Some(false);
        }
        let (start, end) = self
            .0
            .iter()
            .find(|(start, _)| (start.compare_exchange(FREE, BUSY, AGREED, AGREED)).is_ok())?;
        end.store(range.end, AGREED);
        start.store(range.start, AGREED);
        Some(true)
    }

    /// Removes the part `gone` from all ranges.
    pub(crate) fn remove(&self, gone: &Range<usize>) {
        for (start, end) in &self.0 {
            let from = start.load(AGREED);
            let to = end.load(AGREED);
            let is_hit = from > BUSY && from < gone.end && gone.start < to;
            // A range that changes meanwhile belongs to another thread.
            if !is_hit || start.compare_exchange(from, BUSY, AGREED, AGREED).is_err() {
                continue;
            }
            start.store(FREE, AGREED);
            // The rest of the range is added again. Where there is no room for it, it is no longer
            // in the set.
            for rest in [from..gone.start, gone.end..to] {
                if rest.start < rest.end {
                    self.add(rest);
                }
            }
        }
    }

    /// Returns all ranges. A range that is added or removed meanwhile may be among them or not.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().filter_map(|(start, end)| {
            let start = start.load(AGREED);
            (start > BUSY).then(|| start..end.load(AGREED))
        })
    }
}

impl Default for Ranges {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Given {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a range of the program's own is taken again, or memory that the program no longer
    //! has for itself is never managed.

    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn there_is_room_for_both_and_it_comes_back() {
        // The user documentation names both figures.
        assert_eq!((RANGES, MUTEXES), (64, 192));
        let given = Given::new();
        for index in 1..=RANGES {
            assert_eq!(given.watch(100 * index..100 * index + 1), Some(true), "{index}");
        }
        assert_eq!((given.watch(50..51), given.watch(100..101)), (None, Some(false)));
        let address = |index: usize| (1 + index) * PAGE_BYTES;
        assert!((0..MUTEXES).all(|index| given.add_mutex(address(index))));
        assert!(!given.add_mutex(64) && given.remove_mutex(address(7)) && given.add_mutex(64));
        assert!(!given.remove_mutex(address(7)));
        given.forget(&(0..usize::MAX));
        assert_eq!(given.iter().count(), 0);
    }

    #[test]
    fn the_pages_of_a_mutex_are_those_that_it_lies_in() {
        assert_eq!(pages_of(2 * PAGE_BYTES), 2 * PAGE_BYTES..3 * PAGE_BYTES);
        assert_eq!(pages_of(3 * PAGE_BYTES - 8), 2 * PAGE_BYTES..4 * PAGE_BYTES);
    }

    proptest! {
        /// Compares with a set of numbers. The ranges are few and lie close together, so that their
        /// parts find room.
        #[test]
        fn what_is_watched_is_what_was_and_is_no_longer(
            steps in prop::collection::vec((any::<bool>(), 2_usize..60, 1_usize..12), 1..24)
        ) {
            let (given, mut model) = (Given::new(), BTreeSet::new());
            for (adds, start, length) in steps {
                let range = start..start + length;
                if adds {
                    prop_assert!(given.watch(range.clone()).is_some());
                    model.extend(range);
                } else {
                    given.unwatch(&range);
                    model.retain(|number| !range.contains(number));
                }
                let numbers: BTreeSet<usize> = given.iter().flatten().collect();
                prop_assert_eq!(numbers, model.clone());
            }
            let all: Vec<_> = given.iter().collect();
            prop_assert!(all.len() < RANGES);
        }
    }
}
