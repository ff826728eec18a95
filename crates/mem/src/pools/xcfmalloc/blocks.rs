//! The frames of the pool, cut into blocks of whole granules, and chains of blocks.
//!
//! Idea: each block has a descriptor, and in its frame a header that names it (`descriptor`). Free
//! blocks are listed by their granules. A chain is filled from the largest holes that are too
//! small, and ends in a block that is cut to fit; freed blocks merge with their neighbours.
//!
//! Invariants:
//! 1. The blocks of a frame follow each other without a gap from its first byte to its last, and
//!    each header names the descriptor that names the block.
//! 2. No two free blocks lie side by side. A free block is on the list of its size, except in the
//!    isolated frame. Bit `i` of the bitmap is set when list `i` is not empty.
//! 3. A [`BlockRef`] in a header, in a chain, on a list or in a handle word names a live
//!    descriptor.
//! 4. While no block is in use, no frame is held.

use core::cell::Cell;
use core::mem::replace;

use coldpress_sys::{PAGE_BYTES, PageCount};

use super::super::bitmap::Bitmap;
use super::Config;
use super::compact::Progress;
use super::descriptor::{Block, BlockPlace, BlockRef, GRANULE_MIN, PAYLOAD_MAX, Role, Space};
use crate::frames::{FrameAllocator, FrameId, Mobility, MoveClaim};
use crate::slab::Heap;

/// Number of lists of free blocks: one for each number of granules.
const LISTS: usize = PAGE_BYTES / GRANULE_MIN;
/// No frame: frame numbers are below 2^24.
pub(super) const NO_FRAME: u32 = u32::MAX;

/// All blocks of a pool.
pub(super) struct Blocks<'f> {
    pub(super) space: Space<'f>,
    pub(super) slab: Heap<'f>,
    /// The first free block of each number of granules, less one.
    heads: [BlockRef; LISTS],
    lists: Bitmap<{ LISTS / 64 }>,
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

    /// Fills the reserve as far as there are frames.
    pub(super) fn refill(&mut self) {
        while self.empty < self.config.reserve.0 && self.add_frame().is_some() {}
    }

    /// Gives back the reserve if nothing else is left.
    pub(super) fn release_if_unused(&mut self) {
        if self.used > 0 {
            return;
        }
        while let Some(empty) = self.pop(self.space.granules()) {
            self.give_frame(empty);
        }
        assert_eq!(self.frames_held, 0, "a pool without objects keeps a frame");
        self.slab.trim();
        self.claim = None;
        self.compaction = Progress::NEW;
    }

    /// Makes a chain of blocks for `size` bytes, 1 to 4096, and returns the first. Returns `None`,
    /// and takes nothing, when there is no room for it.
    pub(super) fn take_chain(&mut self, size: usize) -> Option<BlockRef> {
        debug_assert!((1..=PAGE_BYTES).contains(&size), "{size} is no object's size");
        // An object that no block can hold gets two blocks in any case.
        let most = self.config.max_blocks.max(if size > PAYLOAD_MAX { 2 } else { 1 });
        let (mut first, mut last, mut left) = (BlockRef::NONE, BlockRef::NONE, size);
        for turn in 1..=most {
            let Some(block) = self.take_block(left, turn == most) else { break };
            let bytes = left.min(self.space.capacity(block));
            let descriptor = self.get_mut(block);
            descriptor.role = if first.is_some() { Role::Later } else { Role::First };
            descriptor.length = bytes as u16;
            (descriptor.prev, descriptor.next) = (last, BlockRef::NONE);
            self.used += self.space.granules_for(bytes);
            if last.is_some() {
                self.get_mut(last).next = block;
            } else {
                first = block;
            }
            (last, left) = (block, left - bytes);
            if left == 0 {
                return Some(first);
            }
        }
        if first.is_some() {
            self.give_chain(first);
        }
        None
    }

    /// Frees a chain.
    pub(super) fn give_chain(&mut self, first: BlockRef) {
        let mut block = first;
        while block.is_some() {
            let next = self.get(block).next;
            self.give_block(block);
            block = next;
        }
    }

    /// Takes a free block off its list for `bytes` bytes, or for as many of them as fit if more
    /// blocks may follow. Holes come before empty frames: a hole that fits, else the largest that
    /// is filled completely, else the smallest that is cut.
    fn take_block(&mut self, bytes: usize, is_last: bool) -> Option<BlockRef> {
        let (need, whole) = (self.space.granules_for(bytes), self.space.granules());
        if need < whole
            && let Some(block) = self.pop(need)
        {
            return Some(block);
        }
        if !is_last && let Some(list) = self.lists.last_below(need.min(whole) - 1) {
            return self.pop(list + 1);
        }
        let list = self.lists.first_from(need.min(whole) - 1);
        let block = match list {
            Some(list) => self.pop(list + 1)?,
            None => {
                // Compaction has to do with the frames it has.
                if self.compaction.isolated != NO_FRAME {
                    return None;
                }
                self.add_frame()?;
                self.pop(whole)?
            }
        };
        if self.space.granules_of(self.get(block)) == whole {
            self.compaction.open = self.get(block).place.frame();
        }
        if self.space.granules_of(self.get(block)) > need && self.split(block, need).is_none() {
            self.list(block);
            return None;
        }
        Some(block)
    }

    /// Cuts the part beyond `need` granules off the end of a free block. Returns `None`, and
    /// changes nothing, when there is no frame for the descriptor.
    fn split(&mut self, block: BlockRef, need: usize) -> Option<()> {
        let Block { place, length, .. } = *self.get(block);
        assert!((1..usize::from(length)).contains(&need), "{need} of {length} granules");
        let rest = Block {
            place: BlockPlace::new(place.frame(), place.granule() + need),
            next: BlockRef::NONE,
            prev: BlockRef::NONE,
            length: length - need as u16,
            before: Cell::new(need as u8),
            role: Role::Free,
        };
        let rest = self.add_descriptor(rest)?;
        self.get_mut(block).length = need as u16;
        self.tell_next(rest);
        self.list(rest);
        Some(())
    }

    /// Frees one block, merges it with its neighbours, and lists it or gives its frame back.
    fn give_block(&mut self, mut block: BlockRef) {
        let granules = self.space.granules_of(self.get(block));
        debug_assert!(self.used >= granules, "more granules are freed than are used");
        self.used -= granules;
        let descriptor = self.get_mut(block);
        assert!(!descriptor.is_free(), "a block is freed once");
        (descriptor.role, descriptor.length) = (Role::Free, granules as u16);
        if let Some(next) = self.space.after(block).filter(|next| self.get(*next).is_free()) {
            self.absorb(block, next);
        }
        if let Some(prev) = self.space.before(block).filter(|prev| self.get(*prev).is_free()) {
            if !self.is_isolated(prev) {
                self.unlist(prev);
            }
            // The block is off the lists, like the one it absorbs.
            let Block { length, .. } = *self.get(block);
            self.drop_descriptor(block);
            self.get_mut(prev).length += length;
            block = prev;
        }
        if usize::from(self.get(block).length) == self.space.granules() {
            self.compaction.emptied(self.get(block).place.frame());
            if self.empty >= self.config.reserve.0 {
                return self.give_frame(block);
            }
        }
        self.tell_next(block);
        if !self.is_isolated(block) {
            self.list(block);
        }
    }

    /// Makes the free block `next`, which lies behind `block`, a part of it.
    fn absorb(&mut self, block: BlockRef, next: BlockRef) {
        if !self.is_isolated(next) {
            self.unlist(next);
        }
        debug_assert_eq!(self.space.after(block), Some(next), "the blocks are no neighbours");
        let length = self.get(next).length;
        self.get_mut(block).length += length;
        self.drop_descriptor(next);
    }

    pub(super) fn is_isolated(&self, block: BlockRef) -> bool {
        self.get(block).place.frame() == self.compaction.isolated
    }

    /// Notes the length of a block in the block behind it.
    fn tell_next(&mut self, block: BlockRef) {
        if let Some(next) = self.space.after(block) {
            let granules = self.space.granules_of(self.get(block));
            debug_assert!((1..1 << u8::BITS).contains(&granules), "{granules} before a block");
            self.get(next).before.set(granules as u8);
        }
    }

    /// Takes one more frame and lists it as one free block.
    fn add_frame(&mut self) -> Option<()> {
        if self.frames_held == 0 && self.claim.is_none() {
            self.claim = self.space.frames.claim_moves();
        }
        let frame = self.space.frames.alloc(Mobility::EasyReclaim).ok()?;
        let block = Block {
            place: BlockPlace::new(frame.index(), 0),
            next: BlockRef::NONE,
            prev: BlockRef::NONE,
            length: self.space.granules() as u16,
            before: Cell::new(0),
            role: Role::Free,
        };
        let Some(block) = self.add_descriptor(block) else {
            // SAFETY: the frame was just handed to us and nothing refers to it.
            unsafe { self.space.frames.free(frame) };
            return None;
        };
        if self.claim.is_some() {
            // SAFETY: the frame was just handed to us, and `migrate` moves any frame of ours as
            // long as it is ours.
            unsafe { self.space.frames.set_owner(frame, 0, 0) };
        }
        self.frames_held += 1;
        self.list(block);
        Some(())
    }

    /// Gives back a frame that is one free block on no list.
    fn give_frame(&mut self, block: BlockRef) {
        let frame = self.get(block).place.frame();
        self.drop_descriptor(block);
        assert!(self.frames_held > 0, "a frame is given back once");
        self.frames_held -= 1;
        // SAFETY: the frame is ours, and the descriptor of its only block is gone.
        unsafe { self.space.frames.free(FrameId::from_index(frame)) };
    }

    /// Takes the first block off a list.
    fn pop(&mut self, granules: usize) -> Option<BlockRef> {
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
