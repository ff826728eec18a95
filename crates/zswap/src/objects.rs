//! Objects: the pool that compressed pages lie in, and the contexts that make and read them.
//!
//! An object is allocated, filled with a page's bytes, and then owned by the entry of that page. It
//! is given up by the caller that has taken the entry out of its place. A page that was written
//! back has no object, but contexts must still decode it. So its coding is counted until its entry
//! leaves the disk.

use alloc::boxed::Box;

use coldpress_codec::CodecChoice;
use coldpress_sys::sync::SpinLock;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use crate::codecs::Coding;
use crate::contexts::Contexts;
use crate::error::NewError;
use crate::pool::{Handle, Pool};
use crate::stats::Stats;

/// Message of `expect`: why the pool knows the handle of an entry, or of an object just allocated.
const HELD: &str = "an object stays until its entry lets go of it";

/// The objects of a store, in the pool `P`.
pub(crate) struct Objects<P> {
    /// Boxed because pools are large: tables of 10 to 40 KiB that should not be moved about.
    pub(crate) pool: Box<P>,
    pub(crate) contexts: Contexts,
    /// Held while an allocation may make the pool grow.
    growth: SpinLock<()>,
}

/// The object and the coding that an entry held when it was taken out of its place, or dropped. To
/// be given up when no lock is in hand.
#[must_use]
pub(crate) struct Remains {
    pub(crate) handle: Option<Handle>,
    pub(crate) coding: Coding,
}

impl<P: Pool> Objects<P> {
    /// Returns no objects yet, in `pool`, with one context that codes pages by `choice`.
    pub(crate) fn new(pool: P, choice: CodecChoice) -> Result<Self, NewError> {
        let contexts = Contexts::new(choice)?;
        Ok(Self { pool: Box::new(pool), contexts, growth: SpinLock::new(()) })
    }

    /// Returns the number of frames that the pool holds.
    pub(crate) fn frames(&self) -> PageCount {
        self.pool.frames()
    }

    /// Returns an object of `size` if the pool has room for it without exceeding `limit`. Only the
    /// pool knows whether an object needs new frames, so the object is allocated first, and freed
    /// if the pool grew beyond the limit. One caller allocates at a time, because frames that
    /// another takes would count.
    pub(crate) fn alloc(&self, size: Bytes, limit: Option<PageCount>) -> Option<Handle> {
        debug_assert!((1..=PAGE_BYTES).contains(&size.0), "{size:?} is no object's size");
        let _growth = self.growth.lock();
        let frames_before = self.frames();
        let handle = self.pool.alloc(size).ok()?;
        let frames = self.frames();
        if limit.is_some_and(|limit| frames > limit) && frames > frames_before {
            self.free(handle);
            return None;
        }
        Some(handle)
    }

    /// Fills an object with a page's bytes and counts their coding. The caller has the context that
    /// coded the page.
    pub(crate) fn fill(&self, handle: Handle, bytes: &[u8], coding: Coding) {
        self.write(handle, bytes);
        self.contexts.come(coding);
    }

    /// Fills an object with bytes whose coding is counted already.
    pub(crate) fn write(&self, handle: Handle, bytes: &[u8]) {
        self.pool.write(handle, bytes).expect(HELD);
    }

    /// Lends an object's bytes to `f`. The object stays where it is meanwhile.
    pub(crate) fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> R {
        self.pool.read(handle, f).expect(HELD)
    }

    /// Frees an object whose page lies elsewhere now. Waits for its readers.
    pub(crate) fn free(&self, handle: Handle) {
        self.pool.free(handle).expect(HELD);
    }

    /// Gives up what an entry held. The caller has no lock and no context.
    pub(crate) fn give_up(&self, remains: Remains) {
        if let Some(handle) = remains.handle {
            self.free(handle);
        }
        self.contexts.gone(remains.coding);
    }

    /// Returns the memory of the contexts and of the pool's own tables.
    pub(crate) fn memory(&self) -> Bytes {
        self.contexts.memory() + self.pool.stats().metadata
    }

    /// Adds what is held now to the figures.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        let pool = self.pool.stats();
        (stats.pool_pages, stats.pool_bytes) = (pool.frames, pool.bytes_stored);
        stats.dense_pages = PageCount(self.contexts.dense_pages());
    }
}
