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
//! Any number of threads may use a store. Its tables lie in shards with a lock each (`shard`, which
//! also says in what order locks are taken), codecs in contexts of which each caller takes one
//! (`contexts`), and what concerns the disk is behind a lock of its own (`disk`). Pages are coded
//! with no lock in hand: an object that is read is pinned in its pool. They may also be compressed
//! ahead, by a helper ([`desk`], `made`).
//!
//! It knows no addresses, has no threads of its own and contains no `unsafe`. The verbs, one file
//! each: [`Zswap::store`], [`Zswap::load`], [`Zswap::invalidate`] with its ranges and
//! [`Zswap::rename`], [`Zswap::shrink`] in `writeback`, [`Zswap::age`] in `tiers` and
//! [`Zswap::drain`]. Below them `index` (key to entry), `entry` (what is known of a page), `lru`
//! (the order of age) and `codecs` (how pages are coded).
//!
//! Invariants (`check` in `tests.rs` walks them):
//! 1. Each entry is under exactly one key, and each key has at most one entry.
//! 2. The LRU lists hold exactly the entries whose page is in the pool and not on its way out; an
//!    entry owns its handle.
//! 3. A slot has as many users as entries lie in it, and one for each page of a batch that is being
//!    written to it; a slot without users is free and discarded.
//! 4. A verb that fails has changed nothing that a later load could see.
//! 5. Bytes are given back only when their checksum is that of the bytes stored.
//! 6. No byte of a page goes to the backing store but sealed.
//! 7. A load gives what was stored under its key at some time between its call and its return.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;

use coldpress_backing::Backing;
#[cfg(not(loom))]
use coldpress_mem::frames::Shrunk;
#[cfg(not(loom))]
use coldpress_mem::pools::Compacted;
use coldpress_sys::sync::{SleepLock, SpinLock};
use coldpress_sys::{Bytes, PageCount};

mod codecs;
mod contexts;
mod dense;
pub mod desk;
mod disk;
mod drain;
mod entry;
mod eras;
mod error;
mod heir;
mod incoming;
mod index;
mod invalidate;
mod key;
mod knobs;
mod limits;
mod load;
#[cfg(test)]
#[cfg(loom)]
mod loom_model;
mod lru;
mod made;
mod outgoing;
mod pool;
mod room;
pub mod seal;
mod shard;
mod stats;
mod store;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod tiers;
mod writeback;

pub use error::{KnobsError, LoadError, NewError, RenameError, StoreError, Warning};
pub use key::{Area, Key, Offset};
pub use knobs::Knobs;
pub use load::{Loaded, Source};
pub use made::{Made, Maker};
pub use stats::{
    AGE_CLASS_MS, AGE_CLASSES, Ages, Counters, SIZE_CLASS_BYTES, SIZE_CLASSES, Sizes, Stats,
};
pub use store::Stored;

use contexts::Contexts;
use disk::Disk;
use eras::Eras;
use error::Warnings;
use limits::Limits;
use pool::Pool;
use seal::Sealer;
use shard::{SHARDS, Shard, Spot};
use stats::Counted;
use tiers::Tiers;

/// Why the pool knows the handle of an entry, or of what has just been allocated.
const HELD: &str = "an object stays until its entry lets go of it";

/// A store of pages, in the pool `P` and behind it in a backing store. Any thread may call any verb
/// at any time; a backing whose transfers are one thread's own, such as
/// [`coldpress_backing::FileBacking::new`] makes, wants the verbs that wait for the disk from that
/// thread.
pub struct Zswap<P> {
    limits: SpinLock<Limits>,
    contexts: Contexts,
    /// Held by who makes pages denser, or moves them to another pool: up to milliseconds.
    tiers: SleepLock<Tiers>,
    /// Boxed, for pools are large: tables of 10 to 40 KiB that should not be moved about.
    pool: Box<P>,
    disk: Option<Disk>,
    /// [`SHARDS`] of them, boxed for the same reason.
    shards: Box<[Shard]>,
    eras: Eras,
    /// Held by who has the pool grow, if it may.
    growth: SpinLock<()>,
    warnings: SpinLock<Warnings>,
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
        let disk = backing.map(|(backing, sealer)| Disk::new(backing, sealer)).transpose()?;
        Ok(Self {
            limits: SpinLock::new(Limits::of(knobs)),
            contexts: Contexts::new(knobs.codec)?,
            tiers: SleepLock::new(Tiers::new()?),
            pool: Box::new(pool),
            disk,
            shards: room::table(SHARDS, Shard::default)?,
            eras: Eras::default(),
            growth: SpinLock::new(()),
            warnings: SpinLock::new(Warnings::default()),
        })
    }

    /// Where compressed pages are kept.
    pub fn pool(&self) -> &P {
        &self.pool
    }

    /// The same, for who sets the pool up or switches it; what is stored must stay there.
    pub fn pool_mut(&mut self) -> &mut P {
        &mut self.pool
    }

    /// Whether a page is stored under `key`.
    pub fn contains(&self, key: Key) -> bool {
        let spot = Spot::of(key);
        self.shards[spot.shard].tables.lock().index.get(spot.key).is_some()
    }

    /// Takes frames offline until at most `online` bytes of them are, by moving stored pages
    /// together; nothing is written back for it.
    #[cfg(not(loom))]
    pub fn shrink_frames(&self, online: Bytes) -> Shrunk {
        self.pool.shrink_frames(online)
    }

    /// Moves pages of the pool closer together: [`Pool::compact`]. A small budget is a short time.
    #[cfg(not(loom))]
    pub fn compact(&self, budget: Bytes) -> Compacted {
        self.pool.compact(budget)
    }

    /// The next thing the user should hear, each kind at most once.
    pub fn take_warning(&self) -> Option<Warning> {
        self.warnings.lock().take()
    }

    /// Frames the pool holds.
    pub fn pool_frames(&self) -> PageCount {
        self.pool.frames()
    }

    /// All memory held outside the pool's frames: index, entries, slots, buffers, the key, the
    /// codecs' work memory and the pool's own tables.
    pub fn memory(&self) -> Bytes {
        let tables = self.shards.iter().fold(Bytes(0), |sum, shard| {
            let tables = shard.tables.lock();
            sum + tables.index.memory() + tables.entries.memory() + Bytes(size_of::<Shard>())
        });
        let disk = self.disk.as_ref().map_or(Bytes(0), |disk| {
            let transfers = disk.transfers.lock();
            let under_way = transfers.outgoing.memory() + transfers.incoming.memory();
            under_way + transfers.slots.memory() + disk.sealers.memory()
        });
        let work = self.contexts.memory() + self.tiers.lock().memory();
        tables + disk + work + self.pool.stats().metadata + Bytes(size_of::<Self>())
    }

    /// What happened, and what is held. While others use the store, each figure is of a moment of
    /// its own.
    pub fn stats(&self) -> Stats {
        let pool = self.pool.stats();
        let mut stats = Stats {
            pool_pages: pool.frames,
            pool_bytes: pool.bytes_stored,
            dense_pages: PageCount(self.contexts.dense_pages()),
            memory: self.memory(),
            ..Stats::default()
        };
        for shard in &self.shards {
            shard.counted.add_to(&mut stats.counters);
            shard.counted.add_classes(&mut stats);
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
        if let Some(disk) = &self.disk {
            let transfers = disk.transfers.lock();
            stats.outstanding_flushes = transfers.outgoing.under_way().count() as u32;
            stats.slots_used = transfers.slots.used().0;
        }
        stats
    }

    /// What happened.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        self.shards.iter().for_each(|shard| shard.counted.add_to(&mut counters));
        counters
    }

    /// Where what concerns no shard is counted.
    fn counted(&self) -> &Counted {
        &self.shards[0].counted
    }
}
