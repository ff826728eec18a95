//! A walk over all structures of a store, and other views of its inside that only tests need.

use super::*;
use crate::entry::PagePlace;
use crate::ids::PageId;
use crate::shard::Shard;
use crate::spot::Spot;

impl<P: Pool> Zswap<P> {
    /// Walks all structures and stops at a broken invariant. No other thread may use the store.
    pub(super) fn check(&self) {
        let mut pages = Vec::new();
        for (number, shard) in self.base.shards.iter().enumerate() {
            let tables = shard.tables.lock();
            tables.entries.check();
            assert_eq!(tables.recompressing, None);
            let all = tables.index.check();
            assert_eq!(all.len(), tables.entries.used());
            let mut in_pool = HashSet::new();
            let (mut same_filled, mut leaving) = (0, 0);
            for (key, id) in all {
                let place = tables.entries[id].place;
                match place {
                    PagePlace::SameFilled { .. } => same_filled += 1,
                    PagePlace::Pool { .. } => assert!(in_pool.insert(id)),
                    PagePlace::Leaving { .. } => leaving += 1,
                    PagePlace::Backing { .. } => {}
                }
                let spot = Spot { shard: number, key };
                assert_eq!(Spot::of(spot.key()), spot);
                pages.push((spot.key(), PageId::new(number, id), place));
            }
            assert_eq!((tables.same_filled, tables.leaving), (same_filled, leaving));
            let listed: HashSet<_> = tables.lru.check(&tables.entries).into_iter().collect();
            assert_eq!(listed, in_pool);
        }
        let codings = || pages.iter().map(|(_, _, place)| place.coding());
        self.base.objects.contexts.check(|coding| codings().filter(|&one| one == coding).count());
        self.check_places(&pages);
    }

    /// Compares the places of all pages with pool, slots and transfers.
    fn check_places(&self, pages: &[(Key, PageId, PagePlace)]) {
        let (mut ids, mut leaving, mut bytes, mut objects) = (HashMap::new(), HashSet::new(), 0, 0);
        let mut slots = BTreeMap::<SlotId, Vec<(u16, u16)>>::new();
        for &(key, id, place) in pages {
            assert!(ids.insert(id, place).is_none(), "{key:?} shares its entry");
            match place {
                PagePlace::SameFilled { .. } => {}
                PagePlace::Pool { handle, length, .. }
                | PagePlace::Leaving { handle, length, .. } => {
                    assert_eq!(self.base.objects.pool.size(handle), Ok(Bytes(length as usize)));
                    (objects, bytes) = (objects + 1, bytes + length as usize);
                }
                PagePlace::Backing { slot, offset, length, .. } => {
                    slots.entry(slot).or_default().push((offset, length));
                }
            }
            if let PagePlace::Leaving { .. } = place {
                leaving.insert(id);
            }
        }
        let pool = self.base.objects.pool.stats();
        assert_eq!((pool.objects, pool.bytes_stored.0), (objects, bytes));
        let Some(disk) = &self.base.disk else {
            assert!(slots.is_empty() && leaving.is_empty());
            return;
        };
        let transfers = disk.transfers.lock();
        let mut written = 0;
        for batch in transfers.outgoing.under_way() {
            written += 1;
            assert_eq!(transfers.slots.users(batch.slot) as usize, batch.members.len());
            assert!(!slots.contains_key(&batch.slot));
            for id in batch.members.iter().flatten() {
                assert!(leaving.remove(id), "not on its way, or twice");
            }
        }
        assert!(leaving.is_empty(), "on their way in no batch");
        for id in transfers.incoming.check() {
            assert!(matches!(ids.get(&id), Some(PagePlace::Backing { .. })), "read for nobody");
        }
        assert_eq!(transfers.slots.used().0 as usize, slots.len() + written);
        for (slot, mut pieces) in slots {
            assert_eq!(transfers.slots.users(slot) as usize, pieces.len());
            pieces.sort_unstable();
            let end = |&(offset, length): &(u16, u16)| offset as usize + sealed_length(length).0;
            let ends = pieces.iter().map(end);
            let nexts = pieces.iter().skip(1).map(|&(offset, _)| offset as usize);
            assert!(ends.zip(nexts.chain([SLOT_BYTES.0])).all(|(end, next)| end <= next));
        }
    }

    /// Waits for all writes that are under way.
    pub(super) fn finish_writes(&self) {
        if let Some(writeback) = Writeback::of(&self.base) {
            writeback.finish_writes();
        }
    }

    /// Returns where the page under `key` is, which must be stored.
    pub(super) fn place(&self, key: Key) -> PagePlace {
        let spot = Spot::of(key);
        let tables = self.base.shards[spot.shard].tables.lock();
        tables.entries[tables.index.get(spot.key).unwrap()].place
    }

    /// Returns the memory of index and entries.
    pub(super) fn tables_memory(&self) -> Bytes {
        let of = |shard: &Shard| {
            let tables = shard.tables.lock();
            tables.index.memory() + tables.entries.memory()
        };
        self.base.shards.iter().fold(Bytes(0), |sum, shard| sum + of(shard))
    }

    /// Returns the memory of the index.
    pub(super) fn index_memory(&self) -> Bytes {
        let of = |shard: &Shard| shard.tables.lock().index.memory();
        self.base.shards.iter().fold(Bytes(0), |sum, shard| sum + of(shard))
    }

    /// Returns the number of reads that are under way, or have ended and are not taken.
    pub(super) fn reads(&self) -> usize {
        self.base.disk.as_ref().map_or(0, |disk| disk.transfers.lock().incoming.used())
    }

    /// Returns whether there is an encoder of dense pages.
    pub(super) fn has_encoder(&self) -> bool {
        self.recompression.lock().encoder.is_made()
    }
}
