//! Compaction: the emptiest frames are emptied into the holes of others.
//!
//! Idea: the free blocks of one frame are taken off the lists, so that nothing new goes there, and
//! its objects are stored again like new ones: first into holes, then into an empty frame of the
//! reserve. The new blocks then trade places with the old ones, descriptor by descriptor, so the
//! object keeps its first descriptor and its handle word. An object moves as a whole, because its
//! blocks elsewhere may well fill a hole together with this one. Objects in use stay.
//!
//! Now and then, emptying a frame costs an opened one. So compaction keeps the balance of both, and
//! gives up when it has moved far more bytes than a frame should cost.
//!
//! Invariants:
//! 1. No frame is isolated except inside [`Blocks::compact`].
//! 2. Compaction takes no frame from the allocator for objects.

use coldpress_sys::{Bytes, PAGE_BYTES};

use super::super::MOVE_COST;
use super::super::bounce::Bounce;
use super::super::handles::HandleTable;
use super::super::pin::Pinned;
use super::blocks::Blocks;
use super::descriptor::{Block, BlockPlace, BlockRef, GRANULE_MIN};
use super::progress::{NO_FRAME, Progress};
use crate::frames::{Descriptor, FrameId};

/// Compaction begins when at least one in this many frames could be spared. To spare one, about as
/// many frames are emptied into each other, less the room that the emptiest have.
const WORTH: usize = 64;
/// The multiple of the expected bytes that compaction moves for a frame before it gives up.
const PATIENCE: usize = 4;
/// Free blocks that are looked at, from the largest on, to find the emptiest frame.
const CANDIDATES: usize = 16;

impl Blocks<'_> {
    /// Returns the number of frames with objects.
    pub(super) fn occupied(&self) -> usize {
        self.frames_held - self.empty
    }

    /// Returns how many frames could be spared if the others had no free granule.
    pub(super) fn freeable(&self) -> usize {
        self.occupied() - self.used.div_ceil(self.space.granules())
    }

    /// Moves objects out of the emptiest frames until the work reaches `budget`. Returns the bytes
    /// moved, and the work.
    pub(super) fn compact(&mut self, handles: &HandleTable<'_>, budget: Bytes) -> (Bytes, Bytes) {
        let (mut moved, mut work) = (Bytes(0), Bytes(0));
        while work < budget && !self.compaction.settled {
            let Some(frame) = self.victim() else {
                let Progress { settled, opened, fruitless, .. } = &mut self.compaction;
                (*settled, *opened, *fruitless) = (true, 0, 0);
                break;
            };
            self.isolate(frame);
            let mut stopped = false;
            while work < budget && !stopped && self.compaction.isolated == frame {
                let before = self.occupied();
                match self.relocate_one_of(frame, handles) {
                    MoveResult::Bytes(size) => {
                        self.compaction.moved(size, before, self.occupied());
                        (moved, work) = (moved + Bytes(size), work + Bytes(size) + MOVE_COST);
                    }
                    // The pool is settled until an object is freed.
                    MoveResult::NoRoom => (self.compaction.settled, stopped) = (true, true),
                    MoveResult::InUse => stopped = true,
                }
            }
            self.rejoin();
            if stopped {
                break;
            }
        }
        (moved, work)
    }

    /// Returns the frame to empty: the one already begun, else the emptiest of some with large
    /// holes. `None` when it is not worth it.
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
        let (mut end, mut looked_at) = (self.space.granules(), 0);
        'lists: while let Some(mut block) = self.largest_below(end) {
            end = self.get(block).length.into();
            while block.is_some() {
                let frame = self.get(block).place.frame();
                let candidate = (self.space.used_in(frame), frame);
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

    /// Takes the free blocks of a frame off their lists.
    fn isolate(&mut self, frame: u32) {
        assert_eq!(self.compaction.isolated, NO_FRAME, "another frame is isolated");
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
        let mut next = Some(self.space.block_at(BlockPlace::new(frame, 0)));
        while let Some(block) = next {
            next = self.space.after(block);
            if self.get(block).is_free() {
                f(self, block);
            }
        }
    }

    /// Stores an object of a frame elsewhere, one that no thread uses.
    fn relocate_one_of(&mut self, frame: u32, handles: &HandleTable<'_>) -> MoveResult {
        let pin = |block| {
            let first = self.space.first_of(block);
            Some((first, handles.try_pin(self.get(first).name())?))
        };
        let found = {
            let mut used = self.space.blocks_of(frame).filter(|block| !self.get(*block).is_free());
            used.find_map(pin)
        };
        let Some((first, _pinned)) = found else { return MoveResult::InUse };
        let mut bounce = Bounce::new();
        // SAFETY: the object is pinned until we return.
        unsafe { self.space.gather(first, &mut bounce) };
        let size = bounce.bytes().len();
        let Some(new) = self.take_chain(size) else { return MoveResult::NoRoom };
        // SAFETY: the chain is new, so no other thread uses it.
        unsafe { self.space.scatter(new, bounce.bytes()) };
        self.exchange(first, new);
        self.give_chain(new);
        MoveResult::Bytes(size)
    }

    /// Makes the first descriptors of an object and of a new chain trade blocks and the rest of
    /// their chains.
    fn exchange(&mut self, object: BlockRef, new: BlockRef) {
        debug_assert_ne!(object, new, "an object moves to another chain");
        let name = self.get(object).name();
        let (of_object, of_new) = (self.get(object).clone(), self.get(new).clone());
        for (name, block) in [(object, of_new), (new, of_object)] {
            self.set_header(block.place, name);
            if block.next.is_some() {
                self.get_mut(block.next).prev = name;
            }
            *self.get_mut(name) = block;
        }
        self.set_name(object, name);
    }

    /// Returns whether it moved a frame's blocks to `to`, and freed the frame. `false`, and nothing
    /// done, when the frame is not ours, or an object in it is in use.
    ///
    /// # Safety
    /// `from` had an owner a moment ago; `to` is handed out and no code uses it.
    pub(super) unsafe fn move_frame(
        &mut self,
        handles: &HandleTable<'_>,
        from: FrameId,
        to: FrameId,
    ) -> bool {
        let frames = self.space.frames;
        // With the claim, all frames with an owner are ours, and keep it while we have the lock.
        let has_owner = matches!(frames.descriptor(from), Descriptor::Movable { .. });
        if self.claim.is_none() || !has_owner {
            return false;
        }
        let mut pins = [const { None }; PAGE_BYTES / GRANULE_MIN];
        if !self.pin_all(handles, from.index(), &mut pins) {
            return false;
        }
        assert_ne!(from, to, "a frame moves to another");
        let (source, target) = (frames.address(from), frames.address(to));
        // SAFETY: `from` is ours and `to` is free for us, so they differ. No other thread reaches
        // their bytes: all objects are pinned.
        unsafe { target.copy_from_nonoverlapping(source, PAGE_BYTES) };
        let mut next = Some(self.space.block_at(BlockPlace::new(from.index(), 0)));
        while let Some(block) = next {
            next = self.space.after(block);
            let Block { place, .. } = self.get_mut(block);
            *place = BlockPlace::new(to.index(), place.granule());
        }
        self.compaction.renamed(from.index(), to.index());
        // SAFETY: as in `add_frame`: `to` is ours now, and `from` no longer.
        unsafe {
            frames.set_owner(to, 0, 0);
            frames.free(from);
        }
        true
    }

    /// Returns whether it pinned every object that has a block in a frame: not when one is in use.
    fn pin_all<'h>(
        &self,
        handles: &'h HandleTable<'_>,
        frame: u32,
        pins: &mut [Option<Pinned<'h>>],
    ) -> bool {
        let is_here = |block: &BlockRef| self.get(*block).place.frame() == frame;
        let used = self.space.blocks_of(frame).filter(|block| !self.get(*block).is_free());
        used.zip(pins).all(|(block, pin)| {
            // An object is pinned with the first of its blocks in this frame.
            let first = self.space.first_of(block);
            if self.space.chain(first).find(is_here) == Some(block) {
                *pin = handles.try_pin(self.get(first).name());
                return pin.is_some();
            }
            true
        })
    }
}

/// The result of moving an object.
enum MoveResult {
    /// The object lies elsewhere; this number of bytes was copied.
    Bytes(usize),
    /// There is no room for the object.
    NoRoom,
    /// All movable objects are in use.
    InUse,
}
