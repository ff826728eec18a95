//! Draining: objects are allocated anew, a few at a time, so that the pool they lie in becomes
//! empty.
//!
//! After a pool was switched ([`coldpress_mem::pools::Switch`]), new objects lie in another pool
//! than old ones. Loads, drops, writeback and recompression remove old objects in their own time.
//! Draining moves the rest, at times when no caller waits.
//!
//! Draining visits the entries in the order in which they lie, again and again, because it may have
//! passed an entry that is renamed or that comes back from a failed write. An object is copied
//! under its pin and allocated anew. Its entry gets the new handle if the page still lies where it
//! lay, as in recompression (`Tables::recompressing`), which does not run meanwhile. The page keeps
//! its place in the LRU list.

use core::mem;

use crate::pool::{Handle, Pool};
use coldpress_sys::sync::SpinGuard;
use coldpress_sys::{Bytes, Page, PageCount};

use crate::base::Base;
use crate::entry::{Entry, PagePlace};
use crate::ids::{EntryId, SHARDS};
use crate::limits::FRAMES_BEYOND;
use crate::objects::Objects;
use crate::shard::{Shards, Tables};

/// Entries looked at under one hold of a shard's lock: some hundred nanoseconds.
const LOOKS: usize = 64;
/// Cost of moving an object apart from its bytes, in bytes that could be copied in that time: twice
/// the cost of a move within a pool.
const MOVE_COST: Bytes = Bytes(512);

/// Progress of draining: the next entry of a shard.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    shard: usize,
    position: usize,
}

/// A page whose object is to be moved.
struct FormerObject<'z> {
    tables: SpinGuard<'z, Tables>,
    shard: usize,
    id: EntryId,
    handle: Handle,
    length: u16,
}

/// Draining of the pool, and what it uses.
pub(crate) struct Draining<'z, P> {
    objects: &'z Objects<P>,
    shards: &'z Shards,
    /// Frames that the pool may have with a new object.
    frames_max: PageCount,
    cursor: &'z mut Cursor,
    /// Buffer for the object being moved.
    page: &'z mut Page,
}

impl<'z, P: Pool> Draining<'z, P> {
    /// Returns draining of the pool of `base` from `cursor` on, by way of the buffer `page`.
    pub(crate) fn new(base: &'z Base<P>, cursor: &'z mut Cursor, page: &'z mut Page) -> Self {
        let frames_max = base.knobs().hard_pool + FRAMES_BEYOND;
        Self { objects: &base.objects, shards: &base.shards, frames_max, cursor, page }
    }

    /// Allocates anew the objects for which `is_former` holds, until `budget` bytes have been
    /// copied or looked at. Returns the bytes it has moved. Stops when the pool has no room.
    pub(crate) fn run(&mut self, budget: Bytes, is_former: impl Fn(&P, Handle) -> bool) -> Bytes {
        let (mut moved, mut done) = (Bytes(0), Bytes(0));
        while done < budget {
            let (looks, found) = self.find_former(&is_former);
            done += Bytes((1 + looks) * size_of::<Entry>());
            let Some(found) = found else { continue };
            let length = Bytes(found.length.into());
            if self.move_over(found).is_none() {
                break;
            }
            moved += length;
            done += length + MOVE_COST;
        }
        moved
    }

    /// Looks at the next entries of a shard. Returns how many, and the last one if its object is to
    /// be moved.
    fn find_former(
        &mut self,
        is_former: impl Fn(&P, Handle) -> bool,
    ) -> (usize, Option<FormerObject<'z>>) {
        let Cursor { shard, .. } = *self.cursor;
        debug_assert!(shard < SHARDS, "there is no shard {shard}");
        let shards = self.shards;
        let tables = shards[shard].tables.lock();
        let positions = tables.entries.positions();
        for looks in 0..LOOKS {
            let position = self.cursor.position;
            if position >= positions {
                *self.cursor = Cursor { shard: (shard + 1) % SHARDS, position: 0 };
                return (looks, None);
            }
            self.cursor.position += 1;
            if let Some(PagePlace::Pool { handle, length, .. }) = tables.entries.place_at(position)
                && is_former(&self.objects.pool, handle)
                && let Some(id) = EntryId::at(position)
            {
                return (looks + 1, Some(FormerObject { tables, shard, id, handle, length }));
            }
        }
        (LOOKS, None)
    }

    /// Allocates an object anew. `None`, with nothing done, when there is no room for it.
    fn move_over(&mut self, found: FormerObject<'_>) -> Option<()> {
        let FormerObject { mut tables, shard, id, handle: old, length } = found;
        tables.begin_recompressing(id);
        let bytes = &mut self.page[..usize::from(length)];
        let copy = |object: &[u8]| {
            drop(tables);
            bytes.copy_from_slice(object);
        };
        self.objects.read(old, copy);
        let counted = self.shards.counted();
        let Some(new) = self.objects.alloc(Bytes(length.into()), Some(self.frames_max)) else {
            counted.reject_drain_full.add(1);
            self.shards[shard].tables.lock().recompressing = None;
            return None;
        };
        self.objects.write(new, bytes);
        let unused = self.exchange(shard, id, new);
        self.objects.free(unused);
        counted.drained_pages.add(u64::from(unused == old));
        Some(())
    }

    /// Gives the page that is being moved its new object, if the page still lies where it lay.
    /// Returns the object that no page has now.
    fn exchange(&self, shard: usize, id: EntryId, new: Handle) -> Handle {
        let tables = &mut *self.shards[shard].tables.lock();
        if tables.recompressing.take() != Some(id) {
            return new;
        }
        debug_assert!(tables.entries[id].place.is_in_list(), "the page lies where it lay");
        match &mut tables.entries[id].place {
            PagePlace::Pool { handle, .. } => mem::replace(handle, new),
            _ => new,
        }
    }
}
