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
//!    (what is known of a page), `lru` (the LRU lists), `codecs` (how pages are coded), `contexts`,
//!    `dictionaries` and `objects`, [`seal`], `outgoing`, `incoming` and `disk`, `helped` and
//!    [`desk`].
//! 3. The tables with their locks: `shard`; and `base`, which puts the parts together.
//! 4. The verbs: `store`, `load`, `invalidate`, `rename`, `writeback` (with [`Zswap::shrink`]),
//!    `heir`, `drain` and `recompress`. [`Zswap`] passes each on to its module.
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
use core::fmt;

use coldpress_backing::{Backing, SlotCount, SlotId};
use coldpress_codec::CodecError;
#[cfg(not(loom))]
use coldpress_mem::pools::Compacted;
use coldpress_sys::sync::SleepLock;
use coldpress_sys::{BorrowedFd, Bytes, Page, PageCount};

mod base;
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
mod rename;
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

pub use error::{LoadError, NewError, StoreError};
pub use helped::HelperCodec;
pub use key::{Area, Key, Offset};
pub use knobs::Knobs;
pub use load::Loaded;
pub use stats::{AGE_CLASS_MS, AGE_CLASSES, Counters, SIZE_CLASS_BYTES, SIZE_CLASSES, Stats};
pub use store::Stored;

use base::Base;
use desk::Offer;
use drain::Draining;
use load::Loading;
use pool::{Handle, Pool};
use recompress::{Recompressing, Recompression};
use seal::Sealer;
use spot::Spot;
use store::Storing;
use writeback::Writeback;

/// A store of pages in the pool `P`, with a backing store behind it.
///
/// Any thread may call any verb at any time. Some backings, such as those that
/// [`coldpress_backing::FileBacking::new`] makes, tie their transfers to one thread. The verbs that
/// wait for the disk must then be called from that thread.
pub struct Zswap<P> {
    base: Base<P>,
    /// Held for up to milliseconds by a caller that makes pages denser or moves them to another
    /// pool.
    recompression: SleepLock<Recompression>,
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
        let base = Base::new(knobs, pool, backing)?;
        Ok(Self { base, recompression: SleepLock::new(Recompression::new()?) })
    }

    /// Returns the pool, where compressed pages are kept.
    pub fn pool(&self) -> &P {
        &self.base.objects.pool
    }

    /// Returns the pool to a caller that sets it up or switches it. Stored objects must stay in it.
    pub fn pool_mut(&mut self) -> &mut P {
        &mut self.base.objects.pool
    }

    /// Returns the number of frames that the pool holds.
    pub fn pool_frames(&self) -> PageCount {
        self.base.objects.frames()
    }

    /// Returns whether a page is stored under `key`.
    pub fn contains(&self, key: Key) -> bool {
        self.base.shards.contains(Spot::of(key))
    }

    /// Stores a copy of `page` under `key`, in place of what was stored there.
    ///
    /// A pool at its limit first begins to write back a batch of its oldest pages; a pool at its
    /// hard limit waits for that. On an error nothing has changed: the page stored under `key`
    /// before is still there, so a caller whose page is newer should invalidate it.
    pub fn store(&self, key: Key, page: &Page) -> Result<Stored, StoreError> {
        self.store_offered(key, page, true, None)
    }

    /// Stores a page as [`Zswap::store`] does, and uses `offer`, what a helper has made of the
    /// page, where possible. `keep_incompressible` says whether to keep an incompressible page:
    /// such a page may be as well off where it is.
    pub fn store_offered(
        &self,
        key: Key,
        page: &Page,
        keep_incompressible: bool,
        offer: Option<&Offer<'_>>,
    ) -> Result<Stored, StoreError> {
        Storing::new(&self.base, key, page).run(keep_incompressible, offer)
    }

    /// Stores a page that has nowhere else to be: as [`Zswap::store`], but no knob refuses the page
    /// and the pool has no limit.
    pub fn store_anyhow(&self, key: Key, page: &Page) -> Result<Stored, StoreError> {
        Storing::new(&self.base, key, page).run_anyhow()
    }

    /// Copies the page stored under `key` into `page`. After an error `page` is unspecified, and
    /// the page is still stored.
    pub fn load(&self, key: Key, page: &mut Page) -> Result<Loaded, LoadError> {
        Loading::new(&self.base, key, page).run()
    }

    /// Returns whether a read has ended since [`Zswap::take_arrivals`]: then a page that was coming
    /// may be here, or its read may begin.
    pub fn has_arrivals(&self) -> bool {
        self.base.disk.as_ref().is_some_and(|disk| disk.transfers.lock().incoming.any_ended())
    }

    /// Returns whether a read has ended since the last call: then every page that was coming is
    /// worth another load.
    pub fn take_arrivals(&self) -> bool {
        self.base.disk.as_ref().is_some_and(|disk| disk.transfers.lock().incoming.take_any_ended())
    }

    /// Returns whether a page was stored under `key`, after dropping it.
    pub fn invalidate(&self, key: Key) -> bool {
        self.base.invalidate(Spot::of(key))
    }

    /// Drops the pages of `count` offsets from `start`, and returns how many there were. Offsets
    /// without a page cost one step per leaf of the index. Some of the pages stored meanwhile may
    /// remain.
    pub fn invalidate_range(&self, area: Area, start: Offset, count: PageCount) -> PageCount {
        let Some(behind) = count.0.checked_sub(1) else { return PageCount(0) };
        let last = Offset(start.0.saturating_add(behind as u64));
        self.base.invalidate_between(area, start, last)
    }

    /// Drops all pages of `area`, and returns how many there were. Some of the pages stored
    /// meanwhile may remain.
    pub fn invalidate_area(&self, area: Area) -> PageCount {
        self.base.invalidate_between(area, Offset(0), Offset(u64::MAX))
    }

    /// Makes `to` name the page that `from` names, and `from` none; returns whether there was such
    /// a page. As for a page moved by mremap, what was stored under `to` is dropped even if there
    /// is nothing under `from`. The only error is [`StoreError::NoMemory`], and then nothing has
    /// changed.
    ///
    /// A page that moves to another shard this way is as young as one just stored.
    pub fn rename(&self, from: Key, to: Key) -> Result<bool, StoreError> {
        self.base.rename(from, to)
    }

    /// Returns whether pages can be written back, as far as is known: there is a backing store, it
    /// has a free slot, it has not failed lately, and the knobs allow it.
    pub fn writeback_possible(&self) -> bool {
        Writeback::of(&self.base).is_some_and(|writeback| writeback.is_possible())
    }

    /// Returns whether the pool is well above its limit because the backing store does not keep up.
    /// A caller that can wait should wait, by [`Zswap::wait`] or for [`Zswap::signal`], before it
    /// stores more.
    pub fn is_behind(&self) -> bool {
        Writeback::of(&self.base).is_some_and(|writeback| writeback.is_behind())
    }

    /// Returns the descriptor that becomes readable when [`Zswap::reap`] has something to take in;
    /// `None` when every transfer ends within the call that began it. For setting the store up,
    /// before other threads use it.
    pub fn signal(&mut self) -> Option<BorrowedFd<'_>> {
        self.base.disk.as_mut().and_then(|disk| disk.transfers.get_mut().backing.signal())
    }

    /// Returns whether the backing store had finished anything, after taking that in.
    pub fn reap(&self) -> bool {
        Writeback::of(&self.base).is_some_and(|writeback| writeback.reap())
    }

    /// Waits until the backing store has finished something, if anything is under way, and takes it
    /// in. Other callers that need the disk wait meanwhile.
    pub fn wait(&self) {
        if let Some(writeback) = Writeback::of(&self.base) {
            writeback.wait();
        }
    }

    /// Makes the backing store work by blocking calls from now on.
    pub fn transfer_plainly(&self) {
        if let Some(disk) = &self.base.disk {
            disk.transfers.lock().backing.transfer_plainly();
        }
    }

    /// Writes back the oldest pages, and waits for the writes, until the pool has let go of
    /// `frames_wanted` frames or no more can be written. Returns the number of frames that it let
    /// go of.
    pub fn shrink(&self, frames_wanted: PageCount) -> PageCount {
        Writeback::of(&self.base).map_or(PageCount(0), |writeback| writeback.shrink(frames_wanted))
    }

    /// Begins to bring a pool that holds more than the knobs allow back to its limit: one batch a
    /// call. Waits for nothing, and does nothing while writeback is not possible.
    pub fn shrink_to_limit(&self) {
        if let Some(writeback) = Writeback::of(&self.base) {
            writeback.shrink_to_limit();
        }
    }

    /// Gives disk blocks of up to `most` free slots back to the system, and returns the number of
    /// slots. A slot may take milliseconds, and the call waits for writes under way: it is for
    /// times when no caller waits for the disk.
    pub fn trim_backing(&self, most: SlotCount) -> SlotCount {
        let disk = self.base.disk.as_ref();
        disk.map_or(SlotCount(0), |disk| disk.transfers.lock().backing.trim(most))
    }

    /// Prepares for a `fork`: waits until no transfer to or from the disk is under way, and lends
    /// all slots that are taken. Returns the first slot that is not lent; 0 when nothing is on
    /// disk. No other thread may use the store from here on to the fork.
    pub fn lend(&self) -> SlotId {
        Writeback::of(&self.base).map_or(SlotId(0), |writeback| writeback.lend())
    }

    /// Takes lent slots back, if no other process can read them any more.
    pub fn take_back_lent(&self) {
        if let Some(disk) = &self.base.disk {
            disk.take_back_lent();
        }
    }

    /// Makes the child's copy of a store that has lent its slots a store of its own, with nothing
    /// counted. `backing`, if there is one, reads the lent slots from where they are. `sealer`
    /// seals new slots; without it none are written. The former backing store is the parent's, and
    /// is neither used nor closed. On an error the child has no backing.
    pub fn become_own(
        &mut self,
        backing: Option<Box<dyn Backing>>,
        sealer: Option<Sealer>,
    ) -> Result<(), NewError> {
        self.recompression.get_mut().forget_counts();
        self.base.become_own(backing, sealer)
    }

    /// Returns whether there is more to do, after one small step of making old pages of the pool
    /// denser. For times when no caller waits. A step takes as long as compressing a page, some 60
    /// us; once for each dictionary, up to a millisecond. If there is no more to do, call again in
    /// some milliseconds. Nothing is done while another caller ages or drains, or while
    /// [`Knobs::dense`] is off.
    pub fn recompress(&self) -> bool {
        let Some(mut state) = self.recompression.try_lock() else { return false };
        Recompressing::new(&self.base, &mut state).run()
    }

    /// Returns how many of the pool's pages, at the young end, recompression leaves alone now, in
    /// per cent.
    pub fn young_percent(&self) -> usize {
        self.recompression.lock().young_percent()
    }

    /// Allocates anew the objects for which `is_former` holds, until `budget` bytes have been
    /// copied or looked at. Returns the bytes it has moved. The first argument of `is_former` is
    /// the pool, see [`Zswap::pool`]. Stops when the pool has no room, and does nothing while
    /// another caller drains or ages.
    pub fn drain(&self, budget: Bytes, is_former: impl Fn(&P, Handle) -> bool) -> Bytes {
        let Some(mut state) = self.recompression.try_lock() else { return Bytes(0) };
        let Recompression { drained, page, .. } = &mut *state;
        Draining::new(&self.base, drained, &mut page[0]).run(budget, is_former)
    }

    /// Moves pages of the pool closer together: [`Pool::compact`]. A small budget takes little
    /// time.
    #[cfg(not(loom))]
    pub fn compact(&self, budget: Bytes) -> Compacted {
        self.base.objects.pool.compact(budget)
    }

    /// Returns the knobs in force.
    pub fn knobs(&self) -> Knobs {
        self.base.knobs()
    }

    /// Puts `knobs` in force. A pool that holds more than they allow shrinks as pages are stored,
    /// or at once by [`Zswap::shrink`]. Only a codec that could not be made is an error, and then
    /// nothing has changed.
    pub fn set_knobs(&self, knobs: Knobs) -> Result<(), CodecError> {
        self.base.set_knobs(knobs)
    }

    /// Begins another period of [`Knobs::writeback_limit`].
    pub fn renew_writeback(&self) {
        self.base.limits.lock().renew_writeback();
    }

    /// Passes the time `now_ms`, in milliseconds, which should not go back. To be called every few
    /// milliseconds: the classes of ages ([`AGE_CLASSES`]) are only as exact as these calls.
    pub fn note_time(&self, now_ms: u64) {
        self.base.shards.note_time(now_ms);
    }

    /// Takes the text of the next warning for the user; each kind comes at most once. Nothing has
    /// been lost.
    pub fn take_warning(&self) -> Option<impl fmt::Display + use<P>> {
        self.base.warnings.lock().take()
    }

    /// Returns the memory held outside the pool's frames: index, entries, slots, buffers, the key,
    /// the codecs' work memory and the pool's own tables.
    pub fn memory(&self) -> Bytes {
        let recompression = self.recompression.lock().memory();
        self.base.memory() + recompression + Bytes(size_of::<Self>())
    }

    /// Returns all counters and what is held now. While other threads use the store, each figure is
    /// of a moment of its own.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats { memory: self.memory(), ..Stats::default() };
        self.base.add_to(&mut stats);
        stats
    }

    /// Returns the counters alone, without a look at the tables.
    pub fn counters(&self) -> Counters {
        self.base.shards.counters()
    }
}
