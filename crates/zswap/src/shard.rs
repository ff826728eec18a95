//! Shards: the tables of pages, in parts that have a lock each.
//!
//! A stretch of 4 MiB of pages lies in one shard, and the next stretch in the next (`spot`). So
//! callers rarely meet, and ranges need not ask every shard. A lock is held for some lookups and
//! links, never while a page is coded: a reader of an object pins it under the lock (`Pool::read`)
//! and lets go of the lock before it looks at the bytes.
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

use alloc::boxed::Box;
use core::{array, ops};

use coldpress_backing::SlotId;
use coldpress_sys::Bytes;
use coldpress_sys::sync::{SleepGuard, SpinGuard, SpinLock};

use crate::disk::{Disk, Transfers};
use crate::entry::{Entries, PagePlace};
use crate::eras::Eras;
use crate::ids::{EntryId, PageId, SHARDS};
use crate::index::Index;
use crate::key::Key;
use crate::lru::{Heads, Lru};
use crate::objects::Remains;
use crate::room::{self, NoMemory};
use crate::spot::Spot;
use crate::stats::{Counted, Counters, Stats};

/// Pages put into the list of one shard after which another era of the store begins.
const ERA_PAGES: u32 = 64;

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

/// All shards, and the eras that their pages are compared by.
#[derive(Debug)]
pub(crate) struct Shards {
    /// [`SHARDS`] of them, boxed because they are large.
    shards: Box<[Shard]>,
    pub(crate) eras: Eras,
}

/// A shard in hand, and the entry under a key.
pub(crate) struct LockedPage<'z> {
    pub(crate) tables: SpinGuard<'z, Tables>,
    /// Also in hand if they take part in the page under the key.
    pub(crate) transfers: Option<SleepGuard<'z, Transfers>>,
    pub(crate) id: Option<EntryId>,
}

// What verbs do for each page is `inline`: they are generic over the pool, so they are compiled in
// the crate that uses the store.
impl Shards {
    /// Returns shards without pages.
    pub(crate) fn new() -> Result<Self, NoMemory> {
        Ok(Self { shards: room::table(SHARDS, Shard::default)?, eras: Eras::default() })
    }

    /// Returns all shards, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter()
    }

    /// Returns whether a page is stored at `spot`.
    pub(crate) fn contains(&self, spot: Spot) -> bool {
        self[spot.shard].tables.lock().index.get(spot.key).is_some()
    }

    /// Takes the shard of `spot` in hand, and the transfers of `disk` if they take part in the page
    /// there.
    #[inline]
    pub(crate) fn lock_page<'z>(&'z self, spot: Spot, disk: Option<&'z Disk>) -> LockedPage<'z> {
        let shard = &self[spot.shard];
        let tables = shard.tables.lock();
        let id = tables.index.get(spot.key);
        if id.is_none_or(|id| !tables.entries[id].place.is_transferred()) {
            return LockedPage { tables, transfers: None, id };
        }
        drop(tables);
        let transfers = disk.map(|disk| disk.transfers.lock());
        let tables = shard.tables.lock();
        // The page may be another by now, or none; with both in hand each will do.
        let id = tables.index.get(spot.key);
        LockedPage { tables, transfers, id }
    }

    /// Returns for each shard the era of the page that `of` finds there.
    pub(crate) fn heads(&self, mut of: impl FnMut(&Tables) -> Option<u16>) -> Heads {
        Heads(array::from_fn(|shard| of(&self[shard].tables.lock())))
    }

    /// Passes the time `now_ms` on to the eras, with the number of pages that came to the pool.
    pub(crate) fn note_time(&self, now_ms: u64) {
        let came = self.iter().map(|shard| shard.tables.lock().pushes);
        self.eras.note_time(now_ms, came.fold(0, u32::wrapping_add));
    }

    /// Puts an entry that has no place into `place`; in the pool it is the youngest of its shard.
    #[inline]
    pub(crate) fn occupy(&self, tables: &mut Tables, id: EntryId, place: PagePlace) {
        let place = match place {
            PagePlace::Pool { handle, checksum, length, coding, referenced, tried, .. } => {
                tables.pushes = tables.pushes.wrapping_add(1);
                if tables.pushes.is_multiple_of(ERA_PAGES) {
                    self.eras.begin();
                }
                let era = self.eras.now();
                PagePlace::Pool { handle, checksum, length, coding, referenced, tried, era }
            }
            place => place,
        };
        tables.occupy(id, place);
    }

    /// Takes an entry out of its place, and returns what it held. The transfers are in hand if they
    /// take part in the place.
    #[inline]
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
    #[inline]
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
        self[shard].counted.invalidated.add(1);
        remains
    }

    /// Takes a page out of a slot, and gives the slot back after its last page.
    #[inline]
    pub(crate) fn leave_slot(&self, transfers: &mut Transfers, slot: SlotId) {
        let is_given_back = transfers.leave_slot(slot);
        self.counted().slots_discarded.add(u64::from(is_given_back));
    }

    /// Returns the counters that take events of no particular shard.
    pub(crate) fn counted(&self) -> &Counted {
        &self[0].counted
    }

    /// Returns the sums of the counters.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        self.iter().for_each(|shard| shard.counted.add_to(&mut counters));
        counters
    }

    /// Begins again with counters at zero.
    pub(crate) fn forget_counts(&mut self) {
        self.shards.iter_mut().for_each(|shard| shard.counted = Counted::default());
    }

    /// Returns the memory of all tables.
    pub(crate) fn memory(&self) -> Bytes {
        self.iter().fold(Bytes(0), |sum, shard| {
            let tables = shard.tables.lock();
            sum + tables.index.memory() + tables.entries.memory() + Bytes(size_of::<Shard>())
        })
    }

    /// Adds the counters and what is held now to the figures.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        for shard in self.iter() {
            shard.counted.add_to(&mut stats.counters);
            shard.counted.add_classes(stats);
            let tables = shard.tables.lock();
            let (stored, same_filled) = (tables.entries.used(), tables.same_filled);
            let in_pool = tables.lru.length() + tables.leaving;
            stats.stored_pages.0 += stored;
            stats.same_filled_pages.0 += same_filled;
            stats.in_pool_pages.0 += in_pool;
            stats.written_back_pages.0 += stored - same_filled - in_pool;
            stats.young_pages.0 += tables.lru.young();
            stats.index_leaves += tables.index.leaves();
        }
    }
}

impl ops::Index<usize> for Shards {
    type Output = Shard;
    fn index(&self, shard: usize) -> &Shard {
        &self.shards[shard]
    }
}
