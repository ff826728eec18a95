//! Layer 2: which page lives where. Pages come in by name, are compressed, and are packed into a
//! pool; the oldest are written, still compressed, to a backing store.
//!
//! ```text
//! store -> same-filled? -> codec -> pool -> lru, oldest first -> writeback -> seal -> backing
//! age   ->  the oldest of the pool -> codec -> page -> dense codec -> pool
//! load  -> index -> a word | pool | backing -> seal opened -> checksum -> codec -> page
//! ```
//!
//! What goes to the backing store or comes from it takes its time: `outgoing` and `incoming` hold
//! what is under way, and [`Zswap::reap`] takes in what has ended. Until a page is written it stays
//! in the pool.
//!
//! It knows no addresses, has no threads of its own and contains no `unsafe`. The verbs, one file
//! each: [`Zswap::store`], [`Zswap::load`], [`Zswap::invalidate`] with its ranges and
//! [`Zswap::rename`], [`Zswap::shrink`] in `writeback`, and [`Zswap::age`] in `tiers`. Below them
//! `index` (key to entry), `entry` (what is known of a page), `lru` (the order of age), `codecs`
//! and `dense` (the codecs of young pages, and of those that stay).
//!
//! Invariants (`check` in `tests.rs` walks them):
//! 1. Each entry is under exactly one key, and each key has at most one entry.
//! 2. The LRU list holds exactly the entries whose page is in the pool and not on its way out; an
//!    entry owns its handle.
//! 3. A slot has as many users as entries lie in it, and one for each page of a batch that is being
//!    written to it; a slot without users is free and discarded.
//! 4. A verb that fails has changed nothing that a later load could see.
//! 5. Bytes are given back only when their checksum is that of the bytes stored.
//! 6. No byte of a page goes to the backing store but sealed.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;

use coldpress_backing::{Backing, SlotCount, Slots};
use coldpress_mem::frames::Shrunk;
use coldpress_mem::pools::{Compacted, Pool};
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

mod codecs;
mod dense;
mod entry;
mod error;
mod incoming;
mod index;
mod invalidate;
mod key;
mod knobs;
mod limits;
mod load;
mod lru;
mod outgoing;
mod room;
pub mod seal;
mod stats;
mod store;
#[cfg(test)]
mod tests;
mod tiers;
mod writeback;

pub use error::{KnobsError, LoadError, NewError, RenameError, StoreError, Warning};
pub use key::{Area, Key, Offset};
pub use knobs::Knobs;
pub use load::{Loaded, Source};
pub use stats::{Counters, SIZE_CLASS_BYTES, SIZE_CLASSES, Sizes, Stats};
pub use store::Stored;

use codecs::Codecs;
use entry::{Entries, EntryId, Place};
use error::Warnings;
use incoming::Incoming;
use index::Index;
use limits::Limits;
use lru::Lru;
use outgoing::Outgoing;
use seal::Sealer;
use tiers::Tiers;

/// Why the pool knows the handle of an entry, or of what has just been allocated.
const HELD: &str = "an object stays until its entry lets go of it";

/// A store of pages, in the pool `P` and behind it in a backing store.
pub struct Zswap<P> {
    limits: Limits,
    codecs: Codecs,
    tiers: Tiers,
    /// Boxed, for pools are large: tables of 10 to 40 KiB that should not be moved about.
    pool: Box<P>,
    backing: Option<Box<dyn Backing>>,
    /// There is one where there is a backing store.
    sealer: Option<Sealer>,
    /// Each stamped with the number of the batch that lies in it.
    slots: Slots,
    index: Index,
    entries: Entries,
    lru: Lru,
    same_filled: usize,
    counters: Counters,
    sizes: Sizes,
    warnings: Warnings,
    /// One page, compressed on its way in.
    compressed: Box<[u8]>,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Pages of the pool that are on their way out.
    leaving: usize,
}

impl<P: Pool> Zswap<P> {
    /// An empty store over an empty pool; `backing` is where the oldest pages go, if anywhere, and
    /// what seals them. Its slots must all be free. Takes the memory that writing back and loading
    /// will need.
    pub fn new(
        knobs: Knobs,
        pool: P,
        backing: Option<(Box<dyn Backing>, Sealer)>,
    ) -> Result<Self, NewError> {
        let (backing, sealer) = backing.unzip();
        let slots_max = backing.as_ref().map_or(SlotCount(0), |backing| backing.slots_max());
        let (outgoing, incoming) = match backing {
            Some(_) => (Outgoing::new()?, Incoming::new()?),
            None => Default::default(),
        };
        Ok(Self {
            limits: Limits::of(knobs),
            codecs: Codecs::new(knobs.codec).map_err(NewError::Codec)?,
            tiers: Tiers::new()?,
            pool: Box::new(pool),
            backing,
            sealer,
            slots: Slots::new(slots_max),
            index: Index::default(),
            entries: Entries::default(),
            lru: Lru::default(),
            same_filled: 0,
            counters: Counters::default(),
            sizes: Sizes::default(),
            warnings: Warnings::default(),
            compressed: room::table(PAGE_BYTES, || 0)?,
            outgoing,
            incoming,
            leaving: 0,
        })
    }

    /// Where compressed pages are kept.
    pub fn pool(&self) -> &P {
        &self.pool
    }

    /// Whether a page is stored under `key`.
    pub fn contains(&self, key: Key) -> bool {
        self.index.get(key).is_some()
    }

    /// Takes frames offline until at most `online` bytes of them are, by moving stored pages
    /// together; nothing is written back for it.
    pub fn shrink_frames(&mut self, online: Bytes) -> Shrunk {
        self.pool.shrink_frames(online)
    }

    /// Moves pages of the pool closer together: [`Pool::compact`]. A small budget is a short time.
    pub fn compact(&mut self, budget: Bytes) -> Compacted {
        self.pool.compact(budget)
    }

    /// The next thing the user should hear, each kind at most once.
    pub fn take_warning(&mut self) -> Option<Warning> {
        self.warnings.take()
    }

    /// Frames the pool holds.
    pub fn pool_frames(&self) -> PageCount {
        self.pool.stats().frames
    }

    /// All memory held outside the pool's frames: index, entries, slots, buffers, the key, the
    /// codecs' work memory and the pool's own tables.
    pub fn memory(&self) -> Bytes {
        let tables = self.index.memory() + self.entries.memory() + self.slots.memory();
        let key = self.sealer.as_ref().map_or(Bytes(0), Sealer::memory);
        let buffers = Bytes(self.compressed.len() + size_of::<Self>()) + key;
        let transfers = self.outgoing.memory() + self.incoming.memory();
        let codecs = self.codecs.work_bytes() + self.tiers.memory();
        tables + buffers + transfers + codecs + self.pool.stats().metadata
    }

    /// What happened, and what is held.
    pub fn stats(&self) -> Stats {
        let pool = self.pool.stats();
        let in_pool = self.lru.length() + self.leaving;
        Stats {
            counters: self.counters,
            sizes: self.sizes,
            pool_pages: pool.frames,
            pool_bytes: pool.bytes_stored,
            stored_pages: PageCount(self.entries.used()),
            outstanding_flushes: self.outgoing.under_way().count() as u32,
            same_filled_pages: PageCount(self.same_filled),
            in_pool_pages: PageCount(in_pool),
            written_back_pages: PageCount(self.entries.used() - self.same_filled - in_pool),
            dense_pages: PageCount(self.codecs.dense.pages()),
            young_pages: PageCount(self.lru.young()),
            slots_used: self.slots.used().0,
            index_leaves: self.index.leaves(),
            memory: self.memory(),
        }
    }

    /// Makes an entry's place `place`: counts it, and links it when it is in the pool.
    fn occupy(&mut self, id: EntryId, place: Place) {
        self.entries[id].place = place;
        match place {
            Place::SameFilled { .. } => self.same_filled += 1,
            Place::Pool { .. } => self.lru.push_youngest(&mut self.entries, id),
            Place::Leaving { .. } => self.leaving += 1,
            Place::Backing { .. } => {}
        }
    }

    /// Gives back what an entry's place holds. The caller then occupies another place, or frees the
    /// entry.
    fn vacate(&mut self, id: EntryId) {
        match self.entries[id].place {
            Place::SameFilled { .. } => self.same_filled -= 1,
            Place::Pool { handle, .. } => {
                self.lru.unlink(&mut self.entries, id);
                self.pool.free(handle).expect(HELD);
            }
            Place::Leaving { handle, member, .. } => {
                self.leaving -= 1;
                self.outgoing.forget(member);
                self.pool.free(handle).expect(HELD);
            }
            Place::Backing { slot, .. } => {
                self.incoming.forget(id);
                if self.slots.leave(slot) {
                    self.discard(slot);
                }
            }
        }
    }
}
