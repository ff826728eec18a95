//! Invalidate: pages are no longer wanted, or are wanted under another name.

use crate::pool::Pool;
use coldpress_sys::PageCount;

use crate::Zswap;
use crate::disk::Transfers;
use crate::entry::PagePlace;
use crate::error::RenameError;
use crate::ids::{EntryId, PageId, SHARDS};
use crate::key::{Area, Key, Offset};
use crate::objects::Remains;
use crate::shard::Tables;
use crate::spot::Spot;

impl<P: Pool> Zswap<P> {
    /// Returns whether a page was stored under `key`, after dropping it.
    pub fn invalidate(&self, key: Key) -> bool {
        self.invalidate_at(Spot::of(key))
    }

    /// Drops the pages of `count` offsets from `start`, and returns how many there were. Offsets
    /// without a page cost one step per leaf of the index. Some of the pages stored meanwhile may
    /// remain.
    pub fn invalidate_range(&self, area: Area, start: Offset, count: PageCount) -> PageCount {
        let Some(behind) = count.0.checked_sub(1) else { return PageCount(0) };
        self.invalidate_between(area, start, Offset(start.0.saturating_add(behind as u64)))
    }

    /// Drops all pages of `area`, and returns how many there were. Some of the pages stored
    /// meanwhile may remain.
    pub fn invalidate_area(&self, area: Area) -> PageCount {
        self.invalidate_between(area, Offset(0), Offset(u64::MAX))
    }

    /// Makes `to` name the page that `from` names, and `from` none; returns whether there was such
    /// a page. As for a page moved by mremap, what was stored under `to` is dropped even if there
    /// is nothing under `from`. On an error nothing has changed.
    ///
    /// A page that moves to another shard this way is as young as one just stored.
    pub fn rename(&self, from: Key, to: Key) -> Result<bool, RenameError> {
        if from == to {
            return Ok(self.base.shards.contains(Spot::of(from)));
        }
        let (from, to) = (Spot::of(from), Spot::of(to));
        let mut transfers = None;
        let renamed = loop {
            let taken = transfers.as_deref_mut();
            let attempt = if from.shard == to.shard {
                let tables = &mut *self.base.shards[from.shard].tables.lock();
                self.rename_inside(from, to, tables, taken)
            } else {
                // In the order of the shards' numbers, as every caller takes two.
                let (low, high) = (from.shard.min(to.shard), from.shard.max(to.shard));
                let mut low = self.base.shards[low].tables.lock();
                let mut high = self.base.shards[high].tables.lock();
                let (source, target) = if from.shard < to.shard {
                    (&mut *low, &mut *high)
                } else {
                    (&mut *high, &mut *low)
                };
                self.rename_across(from, to, source, target, taken)
            };
            match attempt {
                Attempt::Done(renamed) => break renamed,
                // Without a disk no page needs the transfers.
                Attempt::NeedsTransfers => {
                    transfers = self.base.disk.as_ref().map(|disk| disk.transfers.lock());
                }
            }
        };
        drop(transfers);
        let counted = &self.base.shards[from.shard].counted;
        let Ok((found, replaced)) = renamed else {
            counted.reject_kmemcache_fail.add(1);
            return Err(RenameError);
        };
        counted.renamed.add(u64::from(found));
        replaced.into_iter().for_each(|remains| self.base.objects.give_up(remains));
        Ok(found)
    }

    /// Renames a page within its shard, unless it needs the transfers and the caller does not hold
    /// them.
    fn rename_inside(
        &self,
        from: Spot,
        to: Spot,
        tables: &mut Tables,
        mut transfers: Option<&mut Transfers>,
    ) -> Attempt {
        let (id, replaced) = (tables.index.get(from.key), tables.index.get(to.key));
        let is_transferred =
            |id: Option<EntryId>| id.is_some_and(|id| tables.entries[id].place.is_transferred());
        if transfers.is_none() && (is_transferred(id) || is_transferred(replaced)) {
            return Attempt::NeedsTransfers;
        }
        if let Some(id) = id {
            if tables.index.set(to.key, id).is_err() {
                return Attempt::Done(Err(RenameError));
            }
            let removed = tables.index.remove(from.key);
            debug_assert_eq!(removed, Some(id), "the page had its former name until now");
            if let Some(transfers) = &mut transfers {
                // Perhaps no load ever asks for the page under its new name: the read must not keep
                // a buffer.
                transfers.incoming.forget(PageId::new(from.shard, id));
            }
        } else {
            tables.index.remove(to.key);
        }
        let drop = |replaced| self.base.shards.drop_entry(to.shard, tables, transfers, replaced);
        Attempt::Done(Ok((id.is_some(), replaced.map(drop))))
    }

    /// Renames a page into another shard, unless it needs the transfers and the caller does not
    /// hold them.
    fn rename_across(
        &self,
        from: Spot,
        to: Spot,
        source: &mut Tables,
        target: &mut Tables,
        mut transfers: Option<&mut Transfers>,
    ) -> Attempt {
        let (id, replaced) = (source.index.get(from.key), target.index.get(to.key));
        let is_transferred = |tables: &Tables, id: Option<EntryId>| {
            id.is_some_and(|id| tables.entries[id].place.is_transferred())
        };
        let is_needed = is_transferred(source, id) || is_transferred(target, replaced);
        if transfers.is_none() && is_needed {
            return Attempt::NeedsTransfers;
        }
        if let Some(id) = id {
            let place = source.entries[id].place;
            let Ok(new) = target.entries.alloc(place) else {
                return Attempt::Done(Err(RenameError));
            };
            if target.index.set(to.key, new).is_err() {
                target.entries.free(new);
                return Attempt::Done(Err(RenameError));
            }
            let removed = source.index.remove(from.key);
            debug_assert_eq!(removed, Some(id), "the page had its former name until now");
            source.leave(id);
            source.entries.free(id);
            self.base.shards.occupy(target, new, place);
            if let Some(transfers) = &mut transfers {
                transfers.incoming.forget(PageId::new(from.shard, id));
                if let PagePlace::Leaving { member, .. } = place {
                    transfers.outgoing.rename(member, PageId::new(to.shard, new));
                }
            }
        } else {
            target.index.remove(to.key);
        }
        let drop = |replaced| self.base.shards.drop_entry(to.shard, target, transfers, replaced);
        Attempt::Done(Ok((id.is_some(), replaced.map(drop))))
    }

    /// Returns whether a page lay at `spot`, after dropping it.
    fn invalidate_at(&self, spot: Spot) -> bool {
        let mut locked = self.base.shards.lock_page(spot, self.base.disk.as_ref());
        let Some(id) = locked.id else { return false };
        let removed = locked.tables.index.remove(spot.key);
        debug_assert_eq!(removed, Some(id), "the page had its name until now");
        let transfers = locked.transfers.as_deref_mut();
        let remains = self.base.shards.drop_entry(spot.shard, &mut locked.tables, transfers, id);
        drop(locked);
        self.base.objects.give_up(remains);
        true
    }

    /// Drops the pages at `first..=last`, and returns how many there were.
    fn invalidate_between(&self, area: Area, first: Offset, last: Offset) -> PageCount {
        let mut count = PageCount(0);
        for shard in 0..SHARDS {
            let Some((first, last)) = Spot::range(shard, first, last) else { continue };
            let mut next = Some(first);
            while let Some(first) = next
                && let Some(offset) = self.first_in(shard, area, first, last)
            {
                let spot = Spot { shard, key: Key { area, offset } };
                count.0 += usize::from(self.invalidate_at(spot));
                next = offset.0.checked_add(1).map(Offset);
            }
        }
        count
    }

    /// Returns the first name in `first..=last` of a shard that has a page.
    fn first_in(&self, shard: usize, area: Area, first: Offset, last: Offset) -> Option<Offset> {
        self.base.shards[shard].tables.lock().index.first_in(area, first, last)
    }
}

/// Outcome of an attempt to rename: whether there was a page, and what it replaced.
enum Attempt {
    Done(Result<(bool, Option<Remains>), RenameError>),
    /// Nothing has changed; the caller must hold the transfers.
    NeedsTransfers,
}
