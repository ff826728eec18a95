//! Compaction: the emptiest frames are emptied into the holes of others.
//!
//! Idea: the free blocks of one frame are taken off the lists, so that nothing new goes there, and
//! the objects in it are stored again like new ones: first into holes, then into an empty frame of
//! the reserve. The new blocks then trade places with the old ones, descriptor by descriptor, so
//! the object keeps its first descriptor and its handle. An object moves whole, as its blocks
//! elsewhere may well fill a hole together with this one.
//!
//! An emptied frame costs an opened one now and then, so compaction goes by the balance of both,
//! and gives up when it has moved far more than a frame should cost.
//!
//! Invariants:
//! 1. No frame is isolated but inside [`Blocks::compact`].
//! 2. Compaction takes no frame from the allocator for objects.

use coldpress_sys::{Bytes, PAGE_BYTES, Page};

use super::super::MOVE_COST;
use super::blocks::{Blocks, NO_FRAME};
use super::descriptor::{Block, BlockRef, Place};
use crate::frames::FrameId;

/// Compaction begins when one of so many frames could be spared. To spare it, about as many are
/// emptied into each other, less what the emptiest lack.
const WORTH: usize = 64;
/// How many times more than expected is moved for a frame before compaction gives up.
const PATIENCE: usize = 4;
/// Free blocks that are looked at, from the largest on, to find the emptiest frame.
const CANDIDATES: usize = 16;

/// How far compaction has come.
pub(super) struct Progress {
    /// The frame being emptied; between calls, when the budget ended first.
    victim: u32,
    /// The frame whose free blocks are on no list.
    pub(super) isolated: u32,
    /// The frame that was begun last and is being filled: it looks empty, but it is no victim.
    pub(super) open: u32,
    /// Frames opened since the last gain that were not made up for by an emptied one.
    opened: usize,
    /// Bytes moved since the last gain.
    fruitless: usize,
    /// Nothing is to be gained until something is freed.
    settled: bool,
}

impl Progress {
    pub(super) const NEW: Self = Self {
        victim: NO_FRAME,
        isolated: NO_FRAME,
        open: NO_FRAME,
        opened: 0,
        fruitless: 0,
        settled: false,
    };

    /// Notes that a frame has no object any more.
    pub(super) fn emptied(&mut self, frame: u32) {
        self.renamed(frame, NO_FRAME);
    }

    /// Notes that there may be something to gain.
    pub(super) fn wake(&mut self) {
        self.settled = false;
    }

    fn renamed(&mut self, from: u32, to: u32) {
        for frame in [&mut self.victim, &mut self.isolated, &mut self.open] {
            if *frame == from {
                *frame = to;
            }
        }
    }

    /// Weighs an object moved against the change in the number of frames with objects.
    fn moved(&mut self, size: usize, before: usize, after: usize) {
        self.fruitless += size;
        self.opened += after.saturating_sub(before);
        let emptied = before.saturating_sub(after);
        if emptied > self.opened {
            (self.opened, self.fruitless) = (0, 0);
        } else {
            self.opened -= emptied;
        }
    }
}

impl Blocks<'_> {
    /// Frames with objects.
    pub(super) fn occupied(&self) -> usize {
        self.frames_held - self.empty
    }

    /// Frames that the objects would not need if nothing were free in the others.
    pub(super) fn freeable(&self) -> usize {
        self.occupied() - self.used.div_ceil(self.granules())
    }

    /// Moves objects out of the emptiest frames until the work comes to `budget`, and returns how
    /// many bytes were moved.
    pub(super) fn compact(&mut self, budget: Bytes, bounce: &mut Page) -> Bytes {
        let (mut moved, mut work) = (Bytes(0), Bytes(0));
        while work < budget && !self.compaction.settled {
            let Some(frame) = self.victim() else {
                let Progress { settled, opened, fruitless, .. } = &mut self.compaction;
                (*settled, *opened, *fruitless) = (true, 0, 0);
                break;
            };
            self.isolate(frame);
            let mut has_room = true;
            while work < budget && has_room && self.compaction.isolated == frame {
                let before = self.occupied();
                let size = self.relocate_one_of(frame, bounce);
                has_room = size > 0;
                self.compaction.moved(size, before, self.occupied());
                (moved, work) = (moved + Bytes(size), work + Bytes(size) + MOVE_COST);
            }
            self.rejoin();
            if !has_room {
                // Until something is freed.
                self.compaction.settled = true;
                break;
            }
        }
        moved
    }

    /// The frame to be emptied: the one begun, else the emptiest of some with large holes. `None`
    /// when it is not worth it.
    fn victim(&mut self) -> Option<u32> {
        if self.compaction.victim != NO_FRAME {
            return Some(self.compaction.victim);
        }
        let (occupied, gain) = (self.occupied(), self.freeable());
        let expected = occupied.checked_div(gain)?;
        if expected > WORTH || self.compaction.fruitless > PATIENCE * (expected + 1) * PAGE_BYTES {
            return None;
        }
        let mut best: Option<(usize, u32)> = None;
        let (mut end, mut looked_at) = (self.granules(), 0);
        'lists: while let Some(mut block) = self.largest_below(end) {
            end = self.get(block).length.into();
            while block.is_some() {
                let frame = self.get(block).place.frame();
                let candidate = (self.used_in(frame), frame);
                if frame != self.compaction.open && best.is_none_or(|best| candidate < best) {
                    best = Some(candidate);
                }
                looked_at += 1;
                if looked_at >= CANDIDATES && best.is_some() {
                    break 'lists;
                }
                block = self.get(block).next;
            }
        }
        let (_, frame) = best?;
        self.compaction.victim = frame;
        Some(frame)
    }

    /// The blocks of a frame, in order.
    pub(super) fn blocks_of(&self, frame: u32) -> impl Iterator<Item = BlockRef> {
        core::iter::successors(Some(self.block_at(Place::new(frame, 0))), |block| {
            self.after(*block)
        })
    }

    /// Granules of a frame that are in use.
    pub(super) fn used_in(&self, frame: u32) -> usize {
        let blocks = self.blocks_of(frame).map(|block| self.get(block));
        blocks.filter(|block| !block.is_free).map(|block| self.granules_of(block)).sum()
    }

    /// Takes the free blocks of a frame off their lists.
    fn isolate(&mut self, frame: u32) {
        self.for_each_free(frame, Self::unlist);
        self.compaction.isolated = frame;
    }

    /// Puts the free blocks of the isolated frame, if there still is one, back on their lists.
    fn rejoin(&mut self) {
        let frame = core::mem::replace(&mut self.compaction.isolated, NO_FRAME);
        if frame != NO_FRAME {
            self.for_each_free(frame, Self::list);
        }
    }

    fn for_each_free(&mut self, frame: u32, mut f: impl FnMut(&mut Self, BlockRef)) {
        let mut next = Some(self.block_at(Place::new(frame, 0)));
        while let Some(block) = next {
            next = self.after(block);
            if self.get(block).is_free {
                f(self, block);
            }
        }
    }

    /// Stores an object of a frame elsewhere and returns its size; zero when there is no room.
    fn relocate_one_of(&mut self, frame: u32, bounce: &mut Page) -> usize {
        let used = self.blocks_of(frame).find(|block| !self.get(*block).is_free);
        let mut first = used.expect("a frame that is not empty has an object");
        while self.get(first).prev.is_some() {
            first = self.get(first).prev;
        }
        let size = self.gather(first, bounce);
        let Some(new) = self.take_chain(size) else { return 0 };
        self.scatter(new, &bounce[..size]);
        self.exchange(first, new);
        self.give_chain(new);
        size
    }

    /// Copies an object to the start of `bytes`, and returns its size.
    pub(super) fn gather(&self, first: BlockRef, bytes: &mut Page) -> usize {
        let (mut block, mut end) = (first, 0);
        while block.is_some() {
            let part = self.bytes(block);
            bytes[end..end + part.len()].copy_from_slice(part);
            (end, block) = (end + part.len(), self.get(block).next);
        }
        end
    }

    /// Fills an object of this size.
    pub(super) fn scatter(&mut self, first: BlockRef, mut bytes: &[u8]) {
        let mut block = first;
        while block.is_some() {
            let part = self.bytes_mut(block);
            let here = bytes.split_off(..part.len()).expect("an object is as long as its blocks");
            part.copy_from_slice(here);
            block = self.get(block).next;
        }
    }

    /// Makes the first descriptors of two chains trade blocks and the rest of their chains.
    fn exchange(&mut self, one: BlockRef, other: BlockRef) {
        let (of_one, of_other) = (*self.get(one), *self.get(other));
        for (name, block) in [(one, of_other), (other, of_one)] {
            *self.get_mut(name) = block;
            self.set_header(block.place, name);
            if block.next.is_some() {
                self.get_mut(block.next).prev = name;
            }
        }
    }

    /// Copies a frame to `to`, makes its blocks lie there, and frees it.
    ///
    /// # Safety
    /// `from` is a frame of this pool; `to` is handed out and nobody uses it.
    pub(super) unsafe fn move_frame(&mut self, from: FrameId, to: FrameId) {
        let (source, target) = (self.frames.address(from), self.frames.address(to));
        // SAFETY: `from` is ours and `to` is free for us, so they differ and nobody else reaches
        // their bytes.
        unsafe { target.copy_from_nonoverlapping(source, PAGE_BYTES) };
        let mut next = Some(self.block_at(Place::new(from.index(), 0)));
        while let Some(block) = next {
            next = self.after(block);
            let Block { place, .. } = self.get_mut(block);
            *place = Place::new(to.index(), place.granule());
        }
        self.compaction.renamed(from.index(), to.index());
        // SAFETY: as in `add_frame`: `to` is ours now. `from` is not any more.
        unsafe {
            self.frames.set_owner(to, 0, 0);
            self.frames.free(from);
        }
    }
}
