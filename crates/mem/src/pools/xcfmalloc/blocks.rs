//! The blocks that frames of the pool are cut into, and the lists of the free ones.
//!
//! Idea: each block has a descriptor, and in its frame a header that names it (`descriptor`). Free
//! blocks are listed by their granules. The code that cuts and merges blocks (`chains`) and the
//! code that empties frames (`compact`) stand above.
//!
//! Invariants:
//! 1. The blocks of a frame follow each other without a gap from its first byte to its last, and
//!    each header names the descriptor that names the block.
//! 2. No two free blocks lie side by side. A free block is on the list of its size, except in the
//!    isolated frame. Bit `i` of the bitmap is set when list `i` is not empty.
//! 3. A [`BlockRef`] in a header, in a chain, on a list or in a handle word names a live
//!    descriptor.
//! 4. While no block is in use, no frame is held.

use core::alloc::{GlobalAlloc, Layout};
use core::mem::replace;
use core::ptr::NonNull;

use coldpress_sys::{PAGE_BYTES, PageCount};

use super::super::bitmap::Bitmap;
use super::super::handle::Name;
use super::Config;
use super::descriptor::{Block, BlockPlace, BlockRef, GRANULE_MIN, Role, Space};
use super::progress::Progress;
use crate::frames::{FrameAllocator, MoveClaim};
use crate::slab::Heap;

/// Number of lists of free blocks: one for each number of granules.
const LISTS: usize = PAGE_BYTES / GRANULE_MIN;
const DESCRIPTOR: Layout = Layout::new::<Block>();

/// All blocks of a pool.
pub(super) struct Blocks<'f> {
    pub(super) space: Space<'f>,
    pub(super) slab: Heap<'f>,
    /// The first free block of each number of granules, less one.
    heads: [BlockRef; LISTS],
    pub(super) lists: Bitmap<{ LISTS / 64 }>,
    pub(super) config: Config,
    pub(super) frames_held: usize,
    /// Frames that are one free block: the reserve.
    pub(super) empty: usize,
    pub(super) descriptors: usize,
    /// Granules of blocks in use.
    pub(super) used: usize,
    pub(super) compaction: Progress,
    /// The right to move frames, held while the pool has frames and was the first in their
    /// allocator.
    pub(super) claim: Option<MoveClaim<'f>>,
}

impl<'f> Blocks<'f> {
    pub(super) const fn new(frames: &'f FrameAllocator, config: Config) -> Self {
        Self {
            space: Space { frames, granularity: config.granularity },
            slab: Heap::new(frames),
            heads: [BlockRef::NONE; LISTS],
            lists: Bitmap::new(),
            config,
            frames_held: 0,
            empty: 0,
            descriptors: 0,
            used: 0,
            compaction: Progress::NEW,
            claim: None,
        }
    }

    /// Returns the frames that hold descriptors.
    pub(super) fn descriptor_frames(&self) -> PageCount {
        self.slab.frames_held()
    }

    /// Makes a descriptor and names it in the frame.
    pub(super) fn add_descriptor(&mut self, block: Block) -> Option<BlockRef> {
        // SAFETY: the layout is not empty.
        let descriptor = NonNull::new(unsafe { self.slab.alloc(DESCRIPTOR) })?;
        let name = BlockRef::of(descriptor, self.space.frames);
        self.set_header(block.place, name);
        // SAFETY: the slab object has this layout, and no other code knows it yet.
        unsafe { descriptor.cast::<Block>().write(block) };
        self.descriptors += 1;
        Some(name)
    }

    /// Drops a descriptor that nothing names any more.
    pub(super) fn drop_descriptor(&mut self, block: BlockRef) {
        assert!(self.descriptors > 0, "a descriptor is dropped once");
        self.descriptors -= 1;
        let descriptor = self.space.address(block).cast::<u8>().as_ptr();
        // SAFETY: `add_descriptor` allocated it with this layout; no header, chain or list names it
        // any more.
        unsafe { self.slab.dealloc(descriptor, DESCRIPTOR) };
    }

    /// Names the block that begins at a place.
    pub(super) fn set_header(&mut self, place: BlockPlace, block: BlockRef) {
        // SAFETY: as in `block_at`, and we are borrowed mutably.
        unsafe { self.space.start(place).cast().write(block) }
    }

    /// Returns the descriptor of a block.
    pub(super) fn get(&self, block: BlockRef) -> &Block {
        self.space.get(block)
    }

    /// Returns the descriptor of a block, to change it. The block must be free, new, or part of an
    /// object that the caller has pinned.
    pub(super) fn get_mut(&mut self, block: BlockRef) -> &mut Block {
        // SAFETY: the ref names a live descriptor (invariant 3). We are borrowed mutably, and
        // readers of objects do not look at such a descriptor.
        unsafe { self.space.address(block).as_mut() }
    }

    /// Notes the name of a new object.
    pub(super) fn set_name(&mut self, first: BlockRef, name: Name) {
        debug_assert_eq!(self.get(first).role, Role::First, "the first block knows the name");
        self.get_mut(first).prev = BlockRef::from_word(name.0);
    }

    /// Returns whether a block lies in the frame whose free blocks are on no list.
    pub(super) fn is_isolated(&self, block: BlockRef) -> bool {
        self.get(block).place.frame() == self.compaction.isolated
    }

    /// Takes the first block off a list.
    pub(super) fn pop(&mut self, granules: usize) -> Option<BlockRef> {
        let block = Some(self.heads[granules - 1]).filter(|block| block.is_some())?;
        self.unlist(block);
        Some(block)
    }

    /// Returns the first free block on the largest list below `end` granules that is not empty.
    pub(super) fn largest_below(&self, end: usize) -> Option<BlockRef> {
        self.lists.last_below(end - 1).map(|list| self.heads[list])
    }

    /// Puts a free block on the list of its size.
    pub(super) fn list(&mut self, block: BlockRef) {
        debug_assert!(self.get(block).is_free(), "{block:?} is in use");
        let granules = usize::from(self.get(block).length);
        let next = replace(&mut self.heads[granules - 1], block);
        if next.is_some() {
            self.get_mut(next).prev = block;
        }
        let descriptor = self.get_mut(block);
        (descriptor.next, descriptor.prev) = (next, BlockRef::NONE);
        self.lists.insert(granules - 1);
        self.empty += usize::from(granules == self.space.granules());
    }

    /// Takes a free block off the list of its size.
    pub(super) fn unlist(&mut self, block: BlockRef) {
        let Block { next, prev, length, .. } = *self.get(block);
        let granules = usize::from(length);
        debug_assert!(prev.is_some() || self.heads[granules - 1] == block, "not on its list");
        if next.is_some() {
            self.get_mut(next).prev = prev;
        }
        if prev.is_some() {
            self.get_mut(prev).next = next;
        } else {
            self.heads[granules - 1] = next;
        }
        if !self.heads[granules - 1].is_some() {
            self.lists.remove(granules - 1);
        }
        self.empty -= usize::from(granules == self.space.granules());
    }

    /// Checks the bits of the lists and the slab of descriptors.
    pub(super) fn check_descriptors(&self) {
        for (list, head) in self.heads.iter().enumerate() {
            assert_eq!(self.lists.contains(list), head.is_some(), "bit {list}");
        }
        self.slab.check();
    }
}
