//! Layer 2: which page lives where. Pages come in by name, are compressed, and are packed into a
//! pool; the oldest are written, still compressed, to a backing store.
//!
//! ```text
//! store -> same-filled? -> codec -> pool -> lru, oldest first -> writeback -> seal -> backing
//! age   ->  the oldest of the pool -> codec -> page -> dense codec -> pool
//! load  -> index -> a word | pool | backing -> seal opened -> checksum -> codec -> page
//! ```
//!
//! Transfers to and from the backing store take time: `outgoing` and `incoming` hold those under
//! way, and [`Zswap::reap`] takes in those that have ended. A page stays in the pool until its
//! write has ended.
//!
//! Any number of threads may use a store. Its tables are split into shards with one lock each
//! (`shard`, which also defines the lock order). Codecs live in contexts, of which each caller
//! takes one (`contexts`). State of the disk has a lock of its own (`disk`). Pages are coded
//! without holding the lock of a shard or of the disk: a reader pins the object in its pool. A
//! helper may also compress pages ahead ([`desk`], `helped`).
//!
//! The store knows no addresses, has no threads of its own and contains no `unsafe`.
//!
//! The modules from below; none imports a module of a later group:
//!
//! 1. Names, numbers and what all others stand on: `key`, `ids`, `stats`, `room` (memory that may
//!    be refused) and `pool`.
//! 2. Parts of a store: `error`, `knobs`, `limits`, `eras`, `index` (key to entry), `spot`, `entry`
//!    (what is known of a page), `lru` (the LRU lists), `codecs` (how pages are coded), `contexts`
//!    and `objects`, [`seal`], `outgoing`, `incoming` and `disk`, `helped` and [`desk`].
//! 3. The tables with their locks: `shard`.
//! 4. The verbs: `store`, `load`, `invalidate` (with [`Zswap::rename`]), `writeback` (with
//!    [`Zswap::shrink`]), `heir`, `drain`, `recompress` and its `dictionaries`.
//!
//! Invariants (`check` in `tests/check.rs` walks them):
//! 1. Each entry is under exactly one key, and each key has at most one entry.
//! 2. The LRU lists hold exactly the entries whose page is in the pool and not on its way out; an
//!    entry owns its handle.
//! 3. A slot has one user for each entry that lies in it, and one for each page of a batch that is
//!    being written to it. A slot without users is free and discarded.
//! 4. A verb that fails has changed nothing that a later load could see.
//! 5. A load returns bytes only if their checksum equals that of the bytes stored.
//! 6. Every byte of a page that goes to the backing store is sealed.
//! 7. A load returns what was stored under its key at some time between its call and its return.
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
pub mod desk;
mod dictionaries;
mod disk;
mod drain;
mod entry;
mod eras;
mod error;
mod heir;
mod helped;
mod ids;
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
mod objects;
mod outgoing;
mod pool;
mod recompress;
mod room;
pub mod seal;
mod shard;
mod spot;
mod stats;
mod store;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod writeback;

pub use error::{LoadError, NewError, RenameError, StoreError, Warning};
pub use helped::{HelperAnswer, HelperCodec};
pub use key::{Area, Key, Offset};
pub use knobs::Knobs;
pub use load::{Loaded, Source};
pub use stats::{
    AGE_CLASS_MS, AGE_CLASSES, Ages, Counters, SIZE_CLASS_BYTES, SIZE_CLASSES, Sizes, Stats,
};
pub use store::Stored;

use disk::Disk;
use error::Warnings;
use limits::Limits;
use objects::Objects;
use pool::Pool;
use recompress::Recompression;
use seal::Sealer;
use shard::Shards;
use spot::Spot;

/// A store of pages in the pool `P`, with a backing store behind it.
///
/// Any thread may call any verb at any time. Some backings, such as those that
/// [`coldpress_backing::FileBacking::new`] makes, tie their transfers to one thread. The verbs that
/// wait for the disk must then be called from that thread.
pub struct Zswap<P> {
    limits: SpinLock<Limits>,
    /// Held for up to milliseconds by a caller that makes pages denser or moves them to another
    /// pool.
    recompression: SleepLock<Recompression>,
    objects: Objects<P>,
    disk: Option<Disk>,
    shards: Shards,
    warnings: SpinLock<Warnings>,
}

impl<P: Pool> Zswap<P> {
    /// Returns an empty store over an empty pool, and takes the memory that writeback and loads
    /// will need. `backing` is where the oldest pages go, if anywhere, with the sealer for them.
    /// Its slots must all be free.
    pub fn new(
        knobs: Knobs,
        pool: P,
        backing: Option<(Box<dyn Backing>, Sealer)>,
    ) -> Result<Self, NewError> {
        let disk = backing.map(|(backing, sealer)| Disk::new(backing, sealer)).transpose()?;
        Ok(Self {
            limits: SpinLock::new(Limits::of(knobs)),
            recompression: SleepLock::new(Recompression::new()?),
            objects: Objects::new(pool, knobs.codec)?,
            disk,
            shards: Shards::new()?,
            warnings: SpinLock::new(Warnings::default()),
        })
    }

    /// Returns the pool, where compressed pages are kept.
    pub fn pool(&self) -> &P {
        &self.objects.pool
    }

    /// Returns the pool to a caller that sets it up or switches it. Stored objects must stay in it.
    pub fn pool_mut(&mut self) -> &mut P {
        &mut self.objects.pool
    }

    /// Returns whether a page is stored under `key`.
    pub fn contains(&self, key: Key) -> bool {
        self.shards.contains(Spot::of(key))
    }

    /// Takes frames offline until at most `online` bytes of them are online. Moves stored pages
    /// together to empty frames, and writes none of them back.
    #[cfg(not(loom))]
    pub fn shrink_frames(&self, online: Bytes) -> Shrunk {
        self.objects.pool.shrink_frames(online)
    }

    /// Moves pages of the pool closer together: [`Pool::compact`]. A small budget takes little
    /// time.
    #[cfg(not(loom))]
    pub fn compact(&self, budget: Bytes) -> Compacted {
        self.objects.pool.compact(budget)
    }

    /// Takes the next warning for the user; each kind comes at most once.
    pub fn take_warning(&self) -> Option<Warning> {
        self.warnings.lock().take()
    }

    /// Returns the number of frames that the pool holds.
    pub fn pool_frames(&self) -> PageCount {
        self.objects.frames()
    }

    /// Returns the memory held outside the pool's frames: index, entries, slots, buffers, the key,
    /// the codecs' work memory and the pool's own tables.
    pub fn memory(&self) -> Bytes {
        let disk = self.disk.as_ref().map_or(Bytes(0), Disk::memory);
        let recompression = self.recompression.lock().memory();
        let parts = self.shards.memory() + disk + recompression + self.objects.memory();
        parts + Bytes(size_of::<Self>())
    }

    /// Returns all counters and what is held now. While other threads use the store, each figure is
    /// of a moment of its own.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats { memory: self.memory(), ..Stats::default() };
        self.objects.add_to(&mut stats);
        self.shards.add_to(&mut stats);
        if let Some(disk) = &self.disk {
            disk.add_to(&mut stats);
        }
        stats
    }

    /// Returns the counters alone, without a look at the tables.
    pub fn counters(&self) -> Counters {
        self.shards.counters()
    }

    /// Passes the time `now_ms`, in milliseconds of a clock that never goes back. To be called
    /// every few milliseconds: [`Ages`] is only as exact as these calls.
    pub fn note_time(&self, now_ms: u64) {
        self.shards.note_time(now_ms);
    }
}
