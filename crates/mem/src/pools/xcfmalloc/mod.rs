//! xcfmalloc: each object in one or two blocks of any frames.
//!
//! Idea (S. Jennings, "staging: zcache: xcfmalloc support", 2011): an object need not lie in one
//! piece. So a hole too small for an object is filled with its beginning, and little is lost where
//! objects are larger than half a frame. Blocks are whole granules. The object's handle word names
//! its first block and has its size, so the size is known without looking at blocks. The mail of
//! 2011 only planned compaction, which is done here: see `compact`.
//!
//! ```text
//! handle word --> descriptor --> descriptor        in slabs
//!                     |              '----------.
//! frame  [h| object ][h| the beginning ]        |
//! frame  [h| object      ][h| free ][h| the end ]   h: the name of the descriptor
//! ```
//!
//! The price: a descriptor of 16 bytes and a header of 4 for each block, half a granule lost in
//! each object, and a copy to read an object of two blocks.
//!
//! As in the mail of 2011, some empty frames are kept in reserve. They count as frames of the pool,
//! and go with its last object.
//!
//! Invariants:
//! 1. While no thread has the lock of the blocks, every used handle word names the first block of a
//!    chain in use, which holds as many bytes as the word says and knows the name.
//! 2. After a failed allocation nothing has changed but the reserve.

mod blocks;
mod chains;
mod check;
mod compact;
mod descriptor;
mod progress;
#[cfg(test)]
mod tests;

use coldpress_sys::sync::SpinLock;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use super::bounce::Bounce;
use super::handles::HandleTable;
use super::pin::Pinned;
use super::{
    AllocError, ClassStats, Compacted, Handle, OBJECT_MAX, Pool, PoolStats, STEP, UnknownHandle,
    check_size,
};
use crate::frames::{FrameAllocator, FrameId, Migrate, Shrunk};
use blocks::Blocks;
use descriptor::{BlockRef, GRANULE_MIN, Space};

/// The trade-offs of a pool between kinds of lost space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Config {
    /// Maximum blocks of an object, at least 1. With 1 only objects above 4092 bytes are in pieces.
    pub(super) max_blocks: usize,
    /// Bytes of a granule, of which all blocks are multiples: a power of two, 16 to 2048. Finer
    /// granules lose less in each object, and leave more small holes.
    pub(super) granularity: Bytes,
    /// Empty frames kept ready while there are objects, at least 1: where no holes fit together,
    /// compaction begins with one.
    pub(super) reserve: PageCount,
}

impl Config {
    /// The configuration of xcfmalloc's mail of 2011: two blocks, 64 bytes, 32 frames.
    const DEFAULT: Self =
        Self { max_blocks: 2, granularity: Xcfmalloc::GRANULARITY, reserve: PageCount(32) };
}

/// The first block and size of an object, as kept in its handle word. The low 16 bits are never
/// zero.
#[derive(Clone, Copy)]
struct Location {
    first: BlockRef,
    /// The requested size, 1 to 4096.
    size: u16,
}

impl Location {
    fn to_word(self) -> u64 {
        u64::from(self.first.to_word()) << 32 | u64::from(self.size)
    }

    fn from_word(word: u64) -> Self {
        Self { first: BlockRef::from_word((word >> 32) as u32), size: word as u16 }
    }

    fn size(self) -> usize {
        self.size.into()
    }
}

/// A pool of chains of blocks.
pub struct Xcfmalloc<'f> {
    space: Space<'f>,
    handles: HandleTable<'f>,
    blocks: SpinLock<Blocks<'f>>,
}

impl<'f> Xcfmalloc<'f> {
    /// The bytes of a granule in xcfmalloc's mail of 2011.
    pub const GRANULARITY: Bytes = Bytes(64);

    /// Makes an empty pool whose blocks are multiples of `granularity`; it holds no frame yet.
    /// Finer granules lose less in each object, and leave more small holes. Panics unless
    /// `granularity` is a power of two from 16 to 2048.
    ///
    /// The structure is about 4 KiB: make it in place, for example in a `static`.
    pub const fn new(frames: &'f FrameAllocator, granularity: Bytes) -> Self {
        Self::with(frames, Config { granularity, ..Config::DEFAULT })
    }

    /// Makes an empty pool. Panics on a `config` out of the bounds given there.
    pub(super) const fn with(frames: &'f FrameAllocator, config: Config) -> Self {
        let granularity = config.granularity.0;
        assert!(granularity.is_power_of_two());
        assert!(granularity >= GRANULE_MIN && granularity <= PAGE_BYTES / 2);
        assert!(config.max_blocks >= 1 && config.reserve.0 >= 1);
        let blocks = Blocks::new(frames, config);
        Self {
            space: blocks.space,
            handles: HandleTable::new(frames),
            blocks: SpinLock::new(blocks),
        }
    }

    /// Returns the number of blocks, free ones too: each has a descriptor.
    pub fn descriptors(&self) -> usize {
        self.blocks.lock().descriptors
    }

    /// Allocates as [`Pool::alloc`] does, and leaves the reserve of an empty pool to the caller.
    fn alloc_chain(&self, blocks: &mut Blocks<'f>, size: Bytes) -> Option<Handle> {
        blocks.refill();
        let first = blocks.take_chain(size.0)?;
        let word = Location { first, size: size.0 as u16 }.to_word();
        let Some((handle, _pinned)) = self.handles.insert(word) else {
            blocks.give_chain(first);
            return None;
        };
        blocks.set_name(first, handle.name);
        Some(handle)
    }

    /// Waits until no other thread uses an object, pins it, and returns its location.
    fn pin(&self, handle: Handle) -> Result<(Pinned<'_>, Location), UnknownHandle> {
        let pinned = self.handles.pin(handle)?;
        let location = Location::from_word(pinned.word());
        Ok((pinned, location))
    }
}

impl Pool for Xcfmalloc<'_> {
    fn alloc(&self, size: Bytes) -> Result<Handle, AllocError> {
        check_size(size)?;
        let mut blocks = self.blocks.lock();
        let handle = self.alloc_chain(&mut blocks, size);
        if handle.is_none() {
            blocks.release_if_unused();
        }
        handle.ok_or(AllocError::NoFrame)
    }

    fn free(&self, handle: Handle) -> Result<(), UnknownHandle> {
        let (pinned, location) = self.pin(handle)?;
        let mut blocks = self.blocks.lock();
        self.handles.remove(handle.name, pinned);
        blocks.give_chain(location.first);
        blocks.release_if_unused();
        blocks.compaction.wake();
        Ok(())
    }

    fn size(&self, handle: Handle) -> Result<Bytes, UnknownHandle> {
        let word = self.handles.get(handle)?;
        Ok(Bytes(Location::from_word(word).size()))
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle> {
        let (_pinned, location) = self.pin(handle)?;
        assert_eq!(bytes.len(), location.size(), "an object is written whole");
        // SAFETY: the object is pinned until we return.
        unsafe { self.space.scatter(location.first, bytes) };
        Ok(())
    }

    fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle> {
        let (_pinned, Location { first, .. }) = self.pin(handle)?;
        if !self.space.get(first).next.is_some() {
            // SAFETY: the object is pinned until we return.
            return Ok(f(unsafe { self.space.bytes(first) }));
        }
        let mut bounce = Bounce::new();
        // SAFETY: the object is pinned until we return.
        unsafe { self.space.gather(first, &mut bounce) };
        Ok(f(bounce.bytes()))
    }

    fn stats(&self) -> PoolStats {
        let names = self.handles.stats::<Self>();
        let blocks = self.blocks.lock();
        let metadata = names.metadata + blocks.descriptor_frames().bytes();
        PoolStats { frames: PageCount(blocks.frames_held), metadata, ..names }
    }

    /// Visits one class of all objects, in which a free block counts as one more object.
    fn classes(&self, visit: &mut dyn FnMut(ClassStats)) {
        let blocks = self.blocks.lock();
        let objects = self.handles.stats::<Self>().objects;
        if objects == 0 {
            return;
        }
        let mut class = ClassStats {
            size: OBJECT_MAX,
            obj_allocated: objects + blocks.empty,
            obj_used: objects,
            almost_empty: blocks.empty,
            pages_used: PageCount(blocks.frames_held),
            pages_per_zspage: 1,
            freeable: PageCount(blocks.freeable() + blocks.empty),
            ..ClassStats::default()
        };
        self.for_each_frame(&blocks, |frame| {
            let is_free = |block: &BlockRef| blocks.get(*block).is_free();
            let free = blocks.space.blocks_of(frame).filter(is_free).count();
            class.obj_allocated += free;
            let nearly_empty = blocks.space.used_in(frame) * 4 <= blocks.space.granules();
            class.almost_empty += usize::from(nearly_empty);
            class.almost_full += usize::from(free > 0 && !nearly_empty);
        });
        drop(blocks);
        visit(class);
    }

    fn compact(&self, budget: Bytes) -> Compacted {
        let (mut done, mut left) = (Compacted::default(), budget);
        loop {
            let mut blocks = self.blocks.lock();
            let before = blocks.frames_held;
            let (moved, work) = blocks.compact(&self.handles, left.min(STEP));
            done.moved += moved;
            done.freed += PageCount(before - blocks.frames_held);
            left = Bytes(left.0.saturating_sub(work.0));
            if left == Bytes(0) || moved == Bytes(0) {
                return done;
            }
        }
    }

    fn shrink_frames(&self, online: Bytes) -> Shrunk {
        let mut mover = self;
        // SAFETY: `migrate` moves for every owner while we have the claim, and nothing without it.
        unsafe { self.space.frames.shrink_to(online, &mut mover) }
    }

    fn give_up_moves(&mut self) {
        if let Some(claim) = self.blocks.get_mut().claim.take() {
            // SAFETY: only frames of the pool with the claim have an owner, and we have it alone.
            unsafe { claim.disown() };
        }
    }

    fn check(&mut self) {
        self.check_all();
        self.handles.check();
    }
}

impl Migrate for &Xcfmalloc<'_> {
    unsafe fn migrate(&mut self, from: FrameId, to: FrameId, _: u32, _: u8) -> bool {
        // SAFETY: `from` had an owner, and `to` is handed out to us.
        unsafe { self.blocks.lock().move_frame(&self.handles, from, to) }
    }
}

impl Drop for Xcfmalloc<'_> {
    fn drop(&mut self) {
        let Self { handles, blocks, .. } = self;
        let blocks = blocks.get_mut();
        handles.for_each(|_, word| blocks.give_chain(Location::from_word(word).first));
        blocks.release_if_unused();
    }
}
