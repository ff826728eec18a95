//! Draining: objects are allocated anew, a few at a time, so that the pool they lie in becomes
//! empty.
//!
//! A pool that was switched ([`coldpress_mem::pools::Switch`]) has new objects lie elsewhere than
//! old ones. Loads, drops, writeback and ageing take the old ones in their own time; the rest is
//! moved here, for a time when nobody waits.
//!
//! Entries are gone through as they lie, round and round, as an entry that is renamed, or comes
//! back from a write that failed, may have been passed. An object is copied under its pin and
//! allocated anew; its entry gets the new handle if it still lies where it lay, as in ageing
//! (`Tables::ageing`), which does not go on meanwhile. The page keeps its place in the order of
//! age.

use core::mem;

use crate::pool::{Handle, Pool};
use coldpress_sys::sync::SpinGuard;
use coldpress_sys::{Bytes, Page};

use crate::entry::{Entry, EntryId, Place};
use crate::shard::{SHARDS, Tables};
use crate::tiers::FRAMES_BEYOND;
use crate::{HELD, Zswap};

/// Entries looked at while a shard is in hand: some hundred nanoseconds.
const LOOKS: usize = 64;
/// What moving an object costs beside its bytes, in bytes that could be copied meanwhile: twice
/// that of a move within a pool.
const MOVE_COST: Bytes = Bytes(512);

/// How far draining has come: an entry of a shard.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    shard: usize,
    position: usize,
}

/// A page whose object is to be moved.
struct Found<'z> {
    tables: SpinGuard<'z, Tables>,
    shard: usize,
    id: EntryId,
    handle: Handle,
    length: u16,
}

impl<P: Pool> Zswap<P> {
    /// Allocates objects anew that `is_former` says, until it has copied or looked at `budget`
    /// bytes: the first is the pool, see [`Zswap::pool`]. Returns the bytes it has moved. It stops
    /// when the pool has no room, and does nothing while others drain or age.
    pub fn drain(&self, budget: Bytes, is_former: impl Fn(&P, Handle) -> bool) -> Bytes {
        let (mut moved, mut done) = (Bytes(0), Bytes(0));
        let Some(mut tiers) = self.tiers.try_lock() else { return moved };
        let tiers = &mut *tiers;
        while done < budget {
            let (looks, found) = self.find_former(&mut tiers.drained, &is_former);
            done += Bytes((1 + looks) * size_of::<Entry>());
            let Some(found) = found else { continue };
            let length = Bytes(found.length.into());
            if self.move_over(found, &mut tiers.page[0]).is_none() {
                break;
            }
            moved += length;
            done += length + MOVE_COST;
        }
        moved
    }

    /// Looks at the next entries of a shard, at their number, for one whose object is to be moved.
    fn find_former(
        &self,
        at: &mut Cursor,
        is_former: impl Fn(&P, Handle) -> bool,
    ) -> (usize, Option<Found<'_>>) {
        let shard = at.shard;
        let tables = self.shards[shard].tables.lock();
        let positions = tables.entries.positions();
        for looks in 0..LOOKS {
            if at.position >= positions {
                *at = Cursor { shard: (shard + 1) % SHARDS, position: 0 };
                return (looks, None);
            }
            let position = at.position;
            at.position += 1;
            if let Some(Place::Pool { handle, length, .. }) = tables.entries.place_at(position)
                && is_former(&self.pool, handle)
                && let Some(id) = EntryId::at(position)
            {
                return (looks + 1, Some(Found { tables, shard, id, handle, length }));
            }
        }
        (LOOKS, None)
    }

    /// Allocates an object anew. `None`, and nothing is done, when there is no room for it.
    fn move_over(&self, found: Found<'_>, page: &mut Page) -> Option<()> {
        let Found { mut tables, shard, id, handle: old, length } = found;
        tables.ageing = Some(id);
        let bytes = &mut page[..usize::from(length)];
        let copy = |object: &[u8]| {
            drop(tables);
            bytes.copy_from_slice(object);
        };
        self.pool.read(old, copy).expect(HELD);
        let limit = self.knobs().hard_pool + FRAMES_BEYOND;
        let Some(new) = self.alloc(Bytes(length.into()), Some(limit)) else {
            self.counted().reject_drain_full.add(1);
            self.shards[shard].tables.lock().ageing = None;
            return None;
        };
        self.pool.write(new, bytes).expect(HELD);
        let unused = self.exchange(shard, id, new);
        self.pool.free(unused).expect(HELD);
        self.counted().drained_pages.add(u64::from(unused == old));
        Some(())
    }

    /// Gives the page that is being moved its new object, if it still lies where it lay: the object
    /// that has no page.
    fn exchange(&self, shard: usize, id: EntryId, new: Handle) -> Handle {
        let tables = &mut *self.shards[shard].tables.lock();
        if tables.ageing.take() != Some(id) {
            return new;
        }
        match &mut tables.entries[id].place {
            Place::Pool { handle, .. } => mem::replace(handle, new),
            _ => new,
        }
    }
}
