//! Chains of blocks, one for each object, and the frames that they are cut from.
//!
//! Idea: a chain is filled from the largest holes that are too small, and ends in a block that is
//! cut to fit; freed blocks merge with their neighbours.

use core::cell::Cell;

use coldpress_sys::PAGE_BYTES;

use super::blocks::Blocks;
use super::descriptor::{Block, BlockPlace, BlockRef, PAYLOAD_MAX, Role};
use super::progress::{NO_FRAME, Progress};
use crate::frames::{FrameId, Mobility};

impl Blocks<'_> {
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
        let frame = self.space.frames.alloc(Mobility::EasyReclaim)?;
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
}
