//! Shards: the tables of pages, in parts that have a lock each.
//!
//! A stretch of 4 MiB of pages, a leaf of the index, lies in one shard, and the next stretch in the
//! next. So callers rarely meet, and ranges need not ask every shard. A lock is held for some
//! lookups and links, never while a page is coded: a reader of an object pins it under the lock
//! (`Pool::read`) and lets go of the lock before it looks at the bytes.
//!
//! The lock order: recompression, a context, the transfers, shards by their numbers, and then the
//! locks that are held for a few lines and take no other: limits, growth of the pool, warnings, and
//! the pool's own. A caller that waits for an object's pin may hold any of them, because the holder
//! of a pin takes none.
//!
//! Invariants:
//! 1. The places `Leaving` and `Backing` are made, and left, with the transfers in hand.
//! 2. The caller that takes an entry out of its place owns what the entry held: no other frees the
//!    object.

use core::array;

use crate::pool::Pool;
use coldpress_backing::SlotId;
use coldpress_sys::sync::{SleepGuard, SpinGuard, SpinLock};

use crate::Zswap;
use crate::disk::Transfers;
use crate::entry::{Entries, PagePlace};
use crate::ids::{EntryId, PageId, SHARDS};
use crate::index::{Index, LEAF_ENTRIES};
use crate::key::{Key, Offset};
use crate::lru::{Heads, Lru};
use crate::objects::Remains;
use crate::room::NoMemory;
use crate::stats::Counted;

/// Pages put into the list of one shard after which another era of the store begins.
const ERA_PAGES: u32 = 64;

/// Returns the number of the leaf of an offset, over all shards.
const fn leaf_of(offset: Offset) -> u64 {
    offset.0 / LEAF_ENTRIES as u64
}

/// The place of a key: the number of its shard, and its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) shard: usize,
    pub(crate) key: Key,
}

impl Spot {
    /// Returns the spot of `key`.
    pub(crate) const fn of(key: Key) -> Self {
        let leaf = leaf_of(key.offset);
        let offset =
            leaf / SHARDS as u64 * LEAF_ENTRIES as u64 + key.offset.0 % LEAF_ENTRIES as u64;
        let key = Key { area: key.area, offset: Offset(offset) };
        Self { shard: (leaf % SHARDS as u64) as usize, key }
    }

    /// Returns the key of this spot.
    #[cfg(test)]
    pub(crate) const fn key(self) -> Key {
        let Self { shard, key: Key { area, offset: Offset(offset) } } = self;
        let leaf = offset / LEAF_ENTRIES as u64 * SHARDS as u64 + shard as u64;
        let offset = leaf * LEAF_ENTRIES as u64 + offset % LEAF_ENTRIES as u64;
        Key { area, offset: Offset(offset) }
    }

    /// Returns the first and the last name that the pages in `first..=last` have in `shard`. `None`
    /// when there are none.
    pub(crate) fn range(shard: usize, first: Offset, last: Offset) -> Option<(Offset, Offset)> {
        let lane = |leaf: u64| (leaf % SHARDS as u64) as usize;
        let ahead = (shard + SHARDS - lane(leaf_of(first))) % SHARDS;
        let behind = (lane(leaf_of(last)) + SHARDS - shard) % SHARDS;
        let first_leaf = leaf_of(first) + ahead as u64;
        let last_leaf = leaf_of(last).checked_sub(behind as u64)?;
        if first_leaf > last_leaf {
            return None;
        }
        let inside = LEAF_ENTRIES as u64;
        let begin = if ahead == 0 { first.0 % inside } else { 0 };
        let end = if behind == 0 { last.0 % inside } else { inside - 1 };
        let name = |leaf: u64, entry| Offset(leaf / SHARDS as u64 * inside + entry);
        Some((name(first_leaf, begin), name(last_leaf, end)))
    }
}

/// A part of the store, on cache lines of its own, because different processors use different ones.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Shard {
    pub(crate) tables: SpinLock<Tables>,
    pub(crate) counted: Counted,
}

/// The pages of a shard.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) index: Index,
    pub(crate) entries: Entries,
    pub(crate) lru: Lru,
    pub(crate) same_filled: usize,
    /// Pages of the pool that are on their way out.
    pub(crate) leaving: usize,
    /// Pages ever put into the list; the count wraps.
    pub(crate) pushes: u32,
    /// The entry that is being made denser, or moved (`drain`), if it still lies where it lay.
    pub(crate) recompressing: Option<EntryId>,
}

impl Tables {
    /// Makes a new entry under `key`, which has none, for a page in `place`. The entry occupies
    /// nothing yet.
    pub(crate) fn new_entry(&mut self, key: Key, place: PagePlace) -> Result<EntryId, NoMemory> {
        debug_assert!(self.index.get(key).is_none(), "{key:?} has an entry");
        let id = self.entries.alloc(place)?;
        if let Err(error) = self.index.set(key, id) {
            self.entries.free(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Takes an entry out of its place, in lists and counts alone. The caller owns what the place
    /// held.
    pub(crate) fn leave(&mut self, id: EntryId) -> PagePlace {
        let place = self.entries[id].place;
        debug_assert!(self.is_counted(place), "more pages leave than came: {place:?}");
        match place {
            PagePlace::SameFilled { .. } => self.same_filled -= 1,
            PagePlace::Pool { .. } => {
                self.lru.unlink(&mut self.entries, id);
                if self.recompressing == Some(id) {
                    self.recompressing = None;
                }
            }
            PagePlace::Leaving { .. } => self.leaving -= 1,
            PagePlace::Backing { .. } => {}
        }
        place
    }

    /// Returns whether the counts have a page in such a place.
    fn is_counted(&self, place: PagePlace) -> bool {
        match place {
            PagePlace::SameFilled { .. } => self.same_filled > 0,
            PagePlace::Pool { .. } => self.lru.length() > 0,
            PagePlace::Leaving { .. } => self.leaving > 0,
            PagePlace::Backing { .. } => true,
        }
    }

    /// Notes the entry that is being made denser, or moved: one of the pool, and no other
    /// meanwhile.
    pub(crate) fn begin_recompressing(&mut self, id: EntryId) {
        assert!(self.entries[id].place.is_in_list(), "{id:?} is not in the pool");
        let former = self.recompressing.replace(id);
        assert!(former.is_none(), "{former:?} is being made denser");
    }

    /// Puts an entry that has no place back into the pool, as the oldest of the shard.
    pub(crate) fn occupy_as_oldest(&mut self, id: EntryId, place: PagePlace) {
        self.entries[id].place = place;
        self.lru.push_oldest(&mut self.entries, id);
    }

    /// Puts an entry that has no place into `place`; in the pool it is the youngest.
    fn occupy(&mut self, id: EntryId, place: PagePlace) {
        debug_assert!(self.entries[id].is_alone(), "{id:?} is in the LRU list");
        self.entries[id].place = place;
        match place {
            PagePlace::SameFilled { .. } => self.same_filled += 1,
            PagePlace::Pool { .. } => self.lru.push_youngest(&mut self.entries, id),
            PagePlace::Leaving { .. } => self.leaving += 1,
            PagePlace::Backing { .. } => {}
        }
    }
}

/// A shard in hand, and the entry under a key.
pub(crate) struct LockedPage<'z> {
    pub(crate) tables: SpinGuard<'z, Tables>,
    /// Also in hand if they take part in the page under the key.
    pub(crate) transfers: Option<SleepGuard<'z, Transfers>>,
    pub(crate) id: Option<EntryId>,
}

impl<P: Pool> Zswap<P> {
    /// Takes the shard of `spot` in hand, and the transfers if they take part in the page there.
    pub(crate) fn lock_page(&self, spot: Spot) -> LockedPage<'_> {
        let shard = &self.shards[spot.shard];
        let tables = shard.tables.lock();
        let id = tables.index.get(spot.key);
        if id.is_none_or(|id| !tables.entries[id].place.is_transferred()) {
            return LockedPage { tables, transfers: None, id };
        }
        drop(tables);
        let transfers = self.disk.as_ref().map(|disk| disk.transfers.lock());
        let tables = shard.tables.lock();
        // The page may be another by now, or none; with both in hand each will do.
        let id = tables.index.get(spot.key);
        LockedPage { tables, transfers, id }
    }

    /// Returns for each shard the era of the page that `of` finds there.
    pub(crate) fn heads(&self, mut of: impl FnMut(&Tables) -> Option<u16>) -> Heads {
        Heads(array::from_fn(|shard| of(&self.shards[shard].tables.lock())))
    }

    /// Puts an entry that has no place into `place`; in the pool it is the youngest of its shard.
    pub(crate) fn occupy(&self, tables: &mut Tables, id: EntryId, place: PagePlace) {
        let place = match place {
            PagePlace::Pool { handle, checksum, length, coding, referenced, tried, .. } => {
                tables.pushes = tables.pushes.wrapping_add(1);
                if tables.pushes.is_multiple_of(ERA_PAGES) {
                    self.eras.begin();
                }
                let era = self.era();
                PagePlace::Pool { handle, checksum, length, coding, referenced, tried, era }
            }
            place => place,
        };
        tables.occupy(id, place);
    }

    /// Takes an entry out of its place, and returns what it held. The transfers are in hand if they
    /// take part in the place.
    pub(crate) fn vacate(
        &self,
        shard: usize,
        tables: &mut Tables,
        transfers: Option<&mut Transfers>,
        id: EntryId,
    ) -> Remains {
        let place = tables.leave(id);
        debug_assert!(transfers.is_some() || !place.is_transferred(), "transfers not in hand");
        let handle = match place {
            PagePlace::SameFilled { .. } => None,
            PagePlace::Pool { handle, .. } => Some(handle),
            PagePlace::Leaving { handle, member, .. } => {
                if let Some(transfers) = transfers {
                    transfers.outgoing.forget(member);
                }
                Some(handle)
            }
            PagePlace::Backing { slot, .. } => {
                if let Some(transfers) = transfers {
                    transfers.incoming.forget(PageId::new(shard, id));
                    self.leave_slot(transfers, slot);
                }
                None
            }
        };
        Remains { handle, coding: place.coding() }
    }

    /// Drops an entry that no key leads to any more, and returns what it held.
    pub(crate) fn drop_entry(
        &self,
        shard: usize,
        tables: &mut Tables,
        transfers: Option<&mut Transfers>,
        id: EntryId,
    ) -> Remains {
        let remains = self.vacate(shard, tables, transfers, id);
        debug_assert!(tables.recompressing != Some(id), "a dropped page is not made denser");
        tables.entries.free(id);
        self.shards[shard].counted.invalidated.add(1);
        remains
    }

    /// Takes a page out of a slot, and gives the slot back after its last page.
    pub(crate) fn leave_slot(&self, transfers: &mut Transfers, slot: SlotId) {
        let is_given_back = transfers.leave_slot(slot);
        self.counted().slots_discarded.add(u64::from(is_given_back));
    }
}

#[cfg(test)]
mod tests {
    //! The risk: two keys with one name, or a range that misses a page.

    use proptest::prelude::*;

    use super::*;

    fn offset() -> impl Strategy<Value = u64> {
        let near = |border: u64| border.saturating_sub(3)..border.saturating_add(3);
        prop_oneof![near(1024), near(8 << 10), near(1 << 40), Just(u64::MAX), any::<u64>()]
    }

    proptest! {
        #[test]
        fn a_spot_is_one_keys_and_keeps_the_order(one in offset(), other in offset()) {
            let [one, other] = [one, other].map(|offset| Key::new(1, offset));
            prop_assert_eq!(Spot::of(one).key(), one);
            if Spot::of(one).shard == Spot::of(other).shard {
                let order = Spot::of(one).key.cmp(&Spot::of(other).key);
                prop_assert_eq!(order, one.cmp(&other));
            }
        }

        #[test]
        fn ranges_of_shards_are_the_range(
            first in offset(), last in offset(), at in offset(),
        ) {
            let (first, last) = (first.min(last), first.max(last));
            let Spot { shard, key } = Spot::of(Key::new(0, at));
            let range = Spot::range(shard, Offset(first), Offset(last));
            let is_in = range.is_some_and(|(first, last)| (first..=last).contains(&key.offset));
            prop_assert_eq!(is_in, (first..=last).contains(&at));
            if let Some((first, last)) = range {
                prop_assert!(first <= last);
            }
        }
    }
}
