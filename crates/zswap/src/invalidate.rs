//! Invalidate: pages are no longer wanted, or are wanted under another name.

use coldpress_mem::pools::Pool;
use coldpress_sys::PageCount;

use crate::Zswap;
use crate::entry::EntryId;
use crate::error::RenameError;
use crate::key::{Area, Key, Offset};

impl<P: Pool> Zswap<P> {
    /// Drops the page stored under `key`. Whether there was one.
    pub fn invalidate(&mut self, key: Key) -> bool {
        let Some(id) = self.index.remove(key) else { return false };
        self.drop_entry(id);
        true
    }

    /// Drops the pages of `count` offsets from `start`; how many there were. What is not stored
    /// costs nothing but a step per leaf of the index.
    pub fn invalidate_range(&mut self, area: Area, start: Offset, count: PageCount) -> PageCount {
        let Some(behind) = count.0.checked_sub(1) else { return PageCount(0) };
        self.invalidate_between(area, start, Offset(start.0.saturating_add(behind as u64)))
    }

    /// Drops all pages of `area`; how many there were.
    pub fn invalidate_area(&mut self, area: Area) -> PageCount {
        self.invalidate_between(area, Offset(0), Offset(u64::MAX))
    }

    /// Makes `to` name what `from` names, and `from` nothing; whether that is a page. Like a page
    /// that is moved by mremap: what was stored under `to` is dropped, also when there is nothing
    /// under `from`. On an error nothing has changed.
    pub fn rename(&mut self, from: Key, to: Key) -> Result<bool, RenameError> {
        if from == to {
            return Ok(self.contains(from));
        }
        let Some(id) = self.index.get(from) else {
            self.invalidate(to);
            return Ok(false);
        };
        let replaced = self.index.set(to, id).inspect_err(|_| {
            self.counters.reject_kmemcache_fail += 1;
        })?;
        self.index.remove(from);
        // Nobody may ask for it under its new name.
        self.incoming.forget(id);
        self.counters.renamed += 1;
        if let Some(id) = replaced {
            self.drop_entry(id);
        }
        Ok(true)
    }

    /// Drops the pages at `first..=last`.
    fn invalidate_between(&mut self, area: Area, first: Offset, last: Offset) -> PageCount {
        let mut count = PageCount(0);
        let mut next = Some(first);
        while let Some(first) = next
            && let Some(offset) = self.index.first_in(area, first, last)
        {
            count.0 += usize::from(self.invalidate(Key { area, offset }));
            next = offset.0.checked_add(1).map(Offset);
        }
        count
    }

    /// Drops an entry that no key leads to any more.
    fn drop_entry(&mut self, id: EntryId) {
        let coding = self.entries[id].place.coding();
        self.vacate(id);
        self.codecs.note_gone(coding);
        self.entries.free(id);
        self.counters.invalidated += 1;
    }
}
