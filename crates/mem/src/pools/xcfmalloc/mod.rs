//! xcfmalloc: each object in one or two blocks of any frames.
//!
//! Idea (S. Jennings, "staging: zcache: xcfmalloc support", 2011): an object need not lie in one
//! piece, so holes too small for it are filled with its beginning, and little is lost where
//! objects are larger than half a frame. Blocks are whole granules; the object's handle word says
//! which block is its first, and how long it is, so its size is known without looking at blocks.
//! What the reference only planned is done here: compaction, see `compact`.
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
//! As in the reference, some empty frames are kept in reserve. They count as frames of the pool,
//! and go with its last object.
//!
//! Invariants:
//! 1. Every used handle word names the first block of a chain in use, which holds as many bytes as
//!    it says; no two words name the same.
//! 2. After a failed allocation nothing has changed but the reserve.

mod blocks;
mod check;
mod compact;
mod descriptor;
#[cfg(test)]
mod tests;

use coldpress_sys::{Bytes, PAGE_BYTES, Page, PageCount};

use super::handles::HandleTable;
use super::{
    AllocError, ClassStats, Compacted, Handle, Nobody, OBJECT_MAX, Pool, PoolStats, check_size,
};
use crate::frames::{FrameAllocator, FrameId, Migrate, Shrunk};
use blocks::Blocks;
use descriptor::{BlockRef, GRANULE_MIN};

/// What space is traded against what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most blocks of an object, at least 1. With 1 no object is in pieces, but those above 4092
    /// bytes.
    pub max_blocks: usize,
    /// Bytes that all blocks are multiples of: a power of two, 16 to 2048. Finer granules lose
    /// less in each object, and leave more small holes.
    pub granularity: Bytes,
    /// Empty frames kept ready while there are objects, at least 1: where no holes fit together,
    /// compaction begins with one.
    pub reserve: PageCount,
}

impl Config {
    /// That of the reference: two blocks, 64 bytes, 32 frames.
    pub const DEFAULT: Self =
        Self { max_blocks: 2, granularity: Bytes(64), reserve: PageCount(32) };
}

impl Default for Config {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Where an object lies, as kept in its handle word. The low 16 bits are never zero.
#[derive(Clone, Copy)]
struct Location {
    first: BlockRef,
    /// The size asked for, 1 to 4096.
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
    blocks: Blocks<'f>,
    handles: HandleTable<'f>,
    /// Where an object of several blocks is put together to be read or moved.
    bounce: Page,
}

impl<'f> Xcfmalloc<'f> {
    /// An empty pool; it holds no frame yet. Panics on a `config` out of the bounds given there.
    ///
    /// The structure is about 8 KiB: make it in place, for example in a `static`.
    pub const fn new(frames: &'f FrameAllocator, config: Config) -> Self {
        let granularity = config.granularity.0;
        assert!(granularity.is_power_of_two());
        assert!(granularity >= GRANULE_MIN && granularity <= PAGE_BYTES / 2);
        assert!(config.max_blocks >= 1 && config.reserve.0 >= 1);
        Self {
            blocks: Blocks::new(frames, config),
            handles: HandleTable::new(frames),
            bounce: [0; PAGE_BYTES],
        }
    }

    /// Blocks, free ones too: each has a descriptor.
    pub fn descriptors(&self) -> usize {
        self.blocks.descriptors
    }

    fn locate(&self, handle: Handle) -> Location {
        Location::from_word(self.handles.get(handle).expect("the handle is allocated"))
    }

    /// As [`Pool::alloc`], leaving the reserve of an empty pool to the caller.
    fn alloc_chain(&mut self, size: Bytes) -> Option<Handle> {
        self.blocks.refill();
        let first = self.blocks.take_chain(size.0)?;
        let word = Location { first, size: size.0 as u16 }.to_word();
        let handle = self.handles.insert(word);
        if handle.is_none() {
            self.blocks.give_chain(first);
        }
        handle
    }
}

impl Pool for Xcfmalloc<'_> {
    fn alloc(&mut self, size: Bytes) -> Result<Handle, AllocError> {
        check_size(size)?;
        let Some(handle) = self.alloc_chain(size) else {
            self.blocks.release_if_unused();
            return Err(AllocError::NoFrame);
        };
        Ok(handle)
    }

    fn free(&mut self, handle: Handle) {
        let word = self.handles.take(handle).expect("the handle is allocated");
        let location = Location::from_word(word);
        self.blocks.give_chain(location.first);
        self.blocks.release_if_unused();
        self.blocks.compaction.wake();
    }

    fn size(&self, handle: Handle) -> Bytes {
        Bytes(self.locate(handle).size())
    }

    fn write(&mut self, handle: Handle, bytes: &[u8]) {
        let location = self.locate(handle);
        assert_eq!(bytes.len(), location.size(), "an object is written whole");
        self.blocks.scatter(location.first, bytes);
    }

    fn read<R>(&mut self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> R {
        let Location { first, size } = self.locate(handle);
        if !self.blocks.get(first).next.is_some() {
            return f(self.blocks.bytes(first));
        }
        self.blocks.gather(first, &mut self.bounce);
        f(&self.bounce[..usize::from(size)])
    }

    fn stats(&self) -> PoolStats {
        let names = self.handles.stats::<Self>();
        let metadata = names.metadata + self.blocks.descriptor_frames().bytes();
        PoolStats { frames: PageCount(self.blocks.frames_held), metadata, ..names }
    }

    /// All objects are of one class; a free block counts as one more.
    fn classes(&self, visit: &mut dyn FnMut(ClassStats)) {
        let objects = self.stats().objects;
        if objects == 0 {
            return;
        }
        let mut class = ClassStats {
            size: OBJECT_MAX,
            obj_allocated: objects + self.blocks.empty,
            obj_used: objects,
            almost_empty: self.blocks.empty,
            pages_used: PageCount(self.blocks.frames_held),
            pages_per_zspage: 1,
            freeable: PageCount(self.blocks.freeable() + self.blocks.empty),
            ..ClassStats::default()
        };
        self.for_each_frame(|frame| {
            let is_free = |block: &BlockRef| self.blocks.get(*block).is_free;
            let free = self.blocks.blocks_of(frame).filter(is_free).count();
            class.obj_allocated += free;
            let nearly_empty = self.blocks.used_in(frame) * 4 <= self.blocks.granules();
            class.almost_empty += usize::from(nearly_empty);
            class.almost_full += usize::from(free > 0 && !nearly_empty);
        });
        visit(class);
    }

    fn compact(&mut self, budget: Bytes) -> Compacted {
        let before = self.blocks.frames_held;
        let moved = self.blocks.compact(budget, &mut self.bounce);
        Compacted { moved, freed: PageCount(before - self.blocks.frames_held) }
    }

    fn shrink_frames(&mut self, online: Bytes) -> Shrunk {
        let frames = self.blocks.frames;
        let mover: &mut dyn Migrate = if self.blocks.claim.is_some() { self } else { &mut Nobody };
        // SAFETY: with the claim, the movable frames of the allocator are all ours, and we are
        // borrowed mutably, so nobody else uses them; without it, nothing is moved.
        unsafe { frames.shrink_to(online, mover) }
    }

    fn check(&mut self) {
        self.check_all();
    }
}

impl Migrate for Xcfmalloc<'_> {
    unsafe fn migrate(&mut self, from: FrameId, to: FrameId, _: u32, _: u8) -> bool {
        // SAFETY: with the claim, all frames with an owner are ours; `to` is handed out to us.
        unsafe { self.blocks.move_frame(from, to) };
        true
    }
}

impl Drop for Xcfmalloc<'_> {
    fn drop(&mut self) {
        let Self { handles, blocks, .. } = self;
        handles.for_each(|_, word| blocks.give_chain(Location::from_word(word).first));
        blocks.release_if_unused();
    }
}
