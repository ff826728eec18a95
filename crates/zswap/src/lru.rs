//! The LRU list: all entries whose page is in the pool, oldest first.
//!
//! Only pages in the pool are in the list, because only they can be written back. A load does not
//! move its entry; it marks the entry, and writeback gives a marked one a second chance at the
//! young end.
//!
//! Each shard has a list. Their oldest pages are compared by *era*, a number of 16 bits that grows
//! with the pages put into lists (`eras`). Some 64 pages, or those of a second, are of one era, and
//! within it the order of different shards is not known. A page older than 2^16 eras, or about 4
//! million pages, is taken for a young one, and so its shard's turn comes later than it should.
//!
//! Recompression walks the list from its old end. Entries that it has looked at are `tried`, those
//! beyond are young:
//!
//! ```text
//! oldest <-> tried <-> tried <-> young <-> young <-> youngest
//!                                ^ next_to_age
//! ```
//!
//! Invariants (`check` walks them):
//! 1. Every entry older than `next_to_age` is tried; that entry and all younger ones are not. If
//!    there is no `next_to_age`, all entries are tried.
//! 2. `tried` is the number of tried entries.

use crate::entry::Entries;
use crate::ids::{EntryId, SHARDS};

/// The era of one page of each shard that has such a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads(pub(crate) [Option<u16>; SHARDS]);

impl Heads {
    /// Returns the shard whose page is of the oldest era; `now` is the present era.
    pub(crate) fn oldest(&self, now: u16) -> Option<usize> {
        let mut oldest = None;
        for (shard, era) in self.0.iter().enumerate() {
            let age = era.map(|era| now.wrapping_sub(era));
            if age > oldest.map(|(age, _)| age) {
                oldest = age.map(|age| (age, shard));
            }
        }
        oldest.map(|(_, shard)| shard)
    }
}

/// The ends of the list, its length, and the progress of recompression.
#[derive(Debug, Default)]
pub(crate) struct Lru {
    oldest: Option<EntryId>,
    youngest: Option<EntryId>,
    next_to_age: Option<EntryId>,
    length: usize,
    tried: usize,
}

impl Lru {
    /// Returns the entry to be written back first.
    pub(crate) fn oldest(&self) -> Option<EntryId> {
        self.oldest
    }

    /// Returns the era of the entry to be written back first.
    pub(crate) fn oldest_era(&self, entries: &Entries) -> Option<u16> {
        self.oldest.map(|id| entries[id].era())
    }

    /// Returns the era of the oldest entry that recompression has not looked at.
    pub(crate) fn next_to_age_era(&self, entries: &Entries) -> Option<u16> {
        self.next_to_age.map(|id| entries[id].era())
    }

    /// Returns the number of entries in the list.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Returns the oldest entry that recompression has not looked at.
    pub(crate) fn next_to_age(&self) -> Option<EntryId> {
        self.next_to_age
    }

    /// Returns the number of entries that recompression has looked at.
    pub(crate) fn tried(&self) -> usize {
        self.tried
    }

    /// Returns the number of entries that recompression has not looked at.
    pub(crate) fn young(&self) -> usize {
        self.length - self.tried
    }

    /// Notes that recompression has looked at the next entry.
    pub(crate) fn note_tried(&mut self, entries: &mut Entries) {
        if let Some(id) = self.next_to_age {
            debug_assert!(!entries[id].is_tried() && self.tried < self.length);
            entries[id].set_tried(true);
            self.tried += 1;
            self.next_to_age = entries[id].younger;
        }
    }

    /// Puts an entry that is in no list at the young end.
    pub(crate) fn push_youngest(&mut self, entries: &mut Entries, id: EntryId) {
        self.check_unlinked(entries, id);
        entries[id].set_tried(false);
        entries[id].older = self.youngest;
        entries[id].younger = None;
        match self.youngest.replace(id) {
            Some(before) => entries[before].younger = Some(id),
            None => self.oldest = Some(id),
        }
        self.next_to_age = self.next_to_age.or(Some(id));
        self.length += 1;
    }

    /// Puts an entry that is in no list at the old end.
    pub(crate) fn push_oldest(&mut self, entries: &mut Entries, id: EntryId) {
        self.check_unlinked(entries, id);
        entries[id].set_tried(self.tried > 0);
        entries[id].younger = self.oldest;
        entries[id].older = None;
        match self.oldest.replace(id) {
            Some(before) => entries[before].older = Some(id),
            None => self.youngest = Some(id),
        }
        if self.tried > 0 {
            self.tried += 1;
        } else {
            self.next_to_age = Some(id);
        }
        self.length += 1;
    }

    /// Takes an entry out of the list.
    pub(crate) fn unlink(&mut self, entries: &mut Entries, id: EntryId) {
        self.check_linked(entries, id);
        let (older, younger) = (entries[id].older.take(), entries[id].younger.take());
        match older {
            Some(older) => entries[older].younger = younger,
            None => self.oldest = younger,
        }
        match younger {
            Some(younger) => entries[younger].older = older,
            None => self.youngest = older,
        }
        if self.next_to_age == Some(id) {
            self.next_to_age = younger;
        }
        self.tried -= usize::from(entries[id].is_tried());
        self.length -= 1;
    }

    /// Checks that an entry is in the list: its neighbours name it, or the list's ends do.
    fn check_linked(&self, entries: &Entries, id: EntryId) {
        if !cfg!(debug_assertions) {
            return;
        }
        let (older, younger) = (entries[id].older, entries[id].younger);
        let from_older = older.map_or(self.oldest, |older| entries[older].younger);
        let from_younger = younger.map_or(self.youngest, |younger| entries[younger].older);
        assert_eq!((from_older, from_younger), (Some(id), Some(id)), "not in the list");
        assert!(self.length > 0 && self.tried >= usize::from(entries[id].is_tried()));
    }

    /// Checks that an entry may come into the list: its page is in the pool, and it is in no list.
    fn check_unlinked(&self, entries: &Entries, id: EntryId) {
        if !cfg!(debug_assertions) {
            return;
        }
        let entry = &entries[id];
        assert!(entry.place.is_in_list(), "{:?} is not in the pool", entry.place);
        assert!(entry.is_alone() && self.oldest != Some(id), "{id:?} is in a list");
    }

    /// Returns the whole list, oldest first, after a walk from both ends.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn check(&self, entries: &Entries) -> alloc::vec::Vec<EntryId> {
        let walk = |start, next: fn(&crate::entry::Entry) -> Option<EntryId>| {
            core::iter::successors(start, move |&id| next(&entries[id])).take(self.length + 1)
        };
        let mut from_youngest: alloc::vec::Vec<_> =
            walk(self.youngest, |entry| entry.older).collect();
        from_youngest.reverse();
        assert!(walk(self.oldest, |entry| entry.younger).eq(from_youngest.iter().copied()));
        assert_eq!(from_youngest.len(), self.length);
        for (number, id) in from_youngest.iter().enumerate() {
            assert_eq!(entries[*id].is_tried(), number < self.tried, "{number} of {}", self.length);
        }
        assert_eq!(self.next_to_age, from_youngest.get(self.tried).copied());
        from_youngest
    }
}
