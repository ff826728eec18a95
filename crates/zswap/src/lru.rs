//! The order of age: a list through the entries whose page is in the pool, oldest first.
//!
//! Only pages in the pool are in it, for only they can be written back. A load does not move its
//! entry; it marks it, and writeback gives a marked one a second chance at the young end.

use crate::entry::{Entries, EntryId};

/// The ends of the list, and its length.
#[derive(Debug, Default)]
pub(crate) struct Lru {
    oldest: Option<EntryId>,
    youngest: Option<EntryId>,
    length: usize,
}

impl Lru {
    /// The entry to be written back first.
    pub(crate) fn oldest(&self) -> Option<EntryId> {
        self.oldest
    }

    /// The number of entries in the list.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Puts an entry that is in no list at the young end.
    pub(crate) fn push_youngest(&mut self, entries: &mut Entries, id: EntryId) {
        entries[id].older = self.youngest;
        entries[id].younger = None;
        match self.youngest.replace(id) {
            Some(before) => entries[before].younger = Some(id),
            None => self.oldest = Some(id),
        }
        self.length += 1;
    }

    /// Puts an entry that is in no list at the old end.
    pub(crate) fn push_oldest(&mut self, entries: &mut Entries, id: EntryId) {
        entries[id].younger = self.oldest;
        entries[id].older = None;
        match self.oldest.replace(id) {
            Some(before) => entries[before].older = Some(id),
            None => self.youngest = Some(id),
        }
        self.length += 1;
    }

    /// Takes an entry of the list out of it.
    pub(crate) fn unlink(&mut self, entries: &mut Entries, id: EntryId) {
        let (older, younger) = (entries[id].older.take(), entries[id].younger.take());
        match older {
            Some(older) => entries[older].younger = younger,
            None => self.oldest = younger,
        }
        match younger {
            Some(younger) => entries[younger].older = older,
            None => self.youngest = older,
        }
        self.length -= 1;
    }

    /// The whole list, oldest first, after a walk from both ends.
    #[cfg(test)]
    pub(crate) fn check(&self, entries: &Entries) -> alloc::vec::Vec<EntryId> {
        let walk = |start, next: fn(&crate::entry::Entry) -> Option<EntryId>| {
            core::iter::successors(start, move |&id| next(&entries[id])).take(self.length + 1)
        };
        let mut from_youngest: alloc::vec::Vec<_> =
            walk(self.youngest, |entry| entry.older).collect();
        from_youngest.reverse();
        assert!(walk(self.oldest, |entry| entry.younger).eq(from_youngest.iter().copied()));
        assert_eq!(from_youngest.len(), self.length);
        from_youngest
    }
}
