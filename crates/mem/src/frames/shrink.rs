//! Shrink: blocks are emptied by moving their frames, and go offline.
//!
//! Easy-reclaim blocks go first, then core blocks without immovable frames, each zone from the top.
//! A batch of blocks is isolated before any frame moves, so no frame moves to a place that it would
//! have to leave again. A frame freed into an isolated block is counted but not listed; the block
//! goes only when all its 512 frames are free.

use core::ops::Range;
use core::sync::atomic::Ordering;

use coldpress_sys::page::{BLOCK_BYTES, FRAMES_PER_BLOCK};
use coldpress_sys::{Bytes, PageCount};

use super::blocks::BlockState;
use super::zone::{Chunk, Locked};
use super::{Descriptor, FrameAllocator, FrameId, Mobility, ORDER_MAX, Spans};

/// Blocks isolated at a time, 128 MiB: the memory that allocations must do without meanwhile.
const BATCH_BLOCKS: usize = 64;

/// A user of frames that can move them.
pub trait Migrate {
    /// Returns whether the frame moved. A mover copies the bytes of `from` to `to`, or their
    /// contents anywhere, makes the owner use `to` and names it there
    /// ([`FrameAllocator::set_owner`]), and frees `from`. It may take other frames, and free others
    /// of its own. `false`: `from` cannot be left now, or another thread freed it, and `to` is not
    /// used.
    ///
    /// # Safety
    /// `from` had this `owner` and `index` a moment ago; `to` is handed out and no code uses it.
    unsafe fn migrate(&mut self, from: FrameId, to: FrameId, owner: u32, index: u8) -> bool;
}

/// The right to be the only owner of movable frames in an allocator, so that one [`Migrate`] speaks
/// for all of them. Released on drop.
pub(crate) struct MoveClaim<'f>(&'f FrameAllocator);

impl MoveClaim<'_> {
    /// Releases the claim while frames have an owner: from now on they have none, and stay where
    /// they are. Takes a microsecond for each MiB that is in use.
    ///
    /// # Safety
    /// No thread frees or moves a frame with an owner meanwhile, or names another one.
    pub(crate) unsafe fn disown(self) {
        let Some(Spans { tables, .. }) = self.0.spans() else { return };
        for (index, block) in tables.blocks().iter().enumerate() {
            if !matches!(block.state(), BlockState::Live(_) | BlockState::Isolated(_)) {
                continue;
            }
            for frame in Chunk::block(index).frames() {
                // No frame that other threads change meanwhile is movable.
                if let Descriptor::Movable { .. } = tables.get(frame) {
                    tables.set(frame, Descriptor::Core);
                }
            }
        }
    }
}

impl Drop for MoveClaim<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `claim_moves`.
        let was_claimed = self.0.moves_claimed.swap(false, Ordering::Release);
        assert!(was_claimed, "there is one claim");
    }
}

/// The result of [`FrameAllocator::shrink_to`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// The memory that is online now.
    pub online: Bytes,
    /// The frames in the blocks that could not go, if more memory is online than requested.
    pub held_back_by: Option<HeldBack>,
}

/// Frames that keep blocks online.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// Frames that have no mover.
    pub core: PageCount,
    /// Frames cut into slab objects.
    pub slab: PageCount,
    /// Frames whose owner would not move them, or for which there was no place.
    pub movable: PageCount,
    /// Free frames of blocks that the kernel did not take back.
    pub refused: PageCount,
}

impl FrameAllocator {
    /// Makes the caller the only owner of movable frames. Returns `None` while another claim
    /// exists.
    pub(crate) fn claim_moves(&self) -> Option<MoveClaim<'_>> {
        // Acquire pairs with the Release in the drop of the last claim.
        let claimed = self.moves_claimed.swap(true, Ordering::Acquire);
        // Made only if it is the caller's: dropping it would release the claim that exists.
        (!claimed).then(|| MoveClaim(self))
    }

    /// Takes memory offline until at most `bytes`, rounded up to whole blocks, are online, or
    /// nothing more can go. `mover` moves frames with an owner; blocks with other frames stay.
    ///
    /// # Safety
    /// `mover` moves for every owner that was set in this allocator ([`FrameAllocator::set_owner`])
    /// and whose frame is not freed. If other threads use or free such frames meanwhile, it knows
    /// how to wait for them, or to leave a frame alone.
    pub unsafe fn shrink_to(&self, bytes: Bytes, mover: &mut dyn Migrate) -> Shrunk {
        let target = Bytes(bytes.0.div_ceil(BLOCK_BYTES) * BLOCK_BYTES);
        let mut held_back = HeldBack::default();
        if let Some(spans) = self.spans() {
            for zone in [Mobility::EasyReclaim, Mobility::Core] {
                let mut shrink = Shrink { frames: self, spans, zone, held_back: &mut held_back };
                shrink.run(target, mover);
            }
        }
        let online = self.online();
        Shrunk { online, held_back_by: (online > target).then_some(held_back) }
    }

    /// Returns the memory that is online.
    pub fn online(&self) -> Bytes {
        self.zones.online()
    }
}

/// The shrinking of one zone.
struct Shrink<'a> {
    frames: &'a FrameAllocator,
    spans: &'a Spans,
    zone: Mobility,
    held_back: &'a mut HeldBack,
}

impl Shrink<'_> {
    fn run(&mut self, target: Bytes, mover: &mut dyn Migrate) {
        let mut below = self.spans.tables.blocks().len();
        loop {
            let excess = self.frames.online().0.saturating_sub(target.0) / BLOCK_BYTES;
            let mut batch = [0; BATCH_BLOCKS];
            let mut count = 0;
            while count < excess.min(BATCH_BLOCKS) && below > 0 {
                below -= 1;
                let block = below;
                // A statement of its own, so that the lock is released.
                let isolated = self.lock().isolate(block);
                match isolated {
                    Ok(()) => {
                        batch[count] = block;
                        count += 1;
                    }
                    Err(found) => self.held_back.add(found),
                }
            }
            if count == 0 {
                return;
            }
            self.frames.drain_all();
            for block in &batch[..count] {
                self.empty(*block, mover);
                self.take_offline(*block);
            }
        }
    }

    fn lock(&self) -> Locked<'_> {
        self.frames.zones.lock(self.spans, self.zone)
    }

    /// Moves the movable frames out of an isolated block, until one cannot be moved.
    fn empty(&self, block: usize, mover: &mut dyn Migrate) {
        let tables = &self.spans.tables;
        for frame in Chunk::block(block).frames() {
            let Descriptor::Movable { owner, index } = tables.get(frame) else { continue };
            let Some(to) = self.target() else { return };
            // SAFETY: `set_owner` set the descriptor; `to` was just handed to us.
            if unsafe { mover.migrate(FrameId(frame), to, owner, index) } {
                self.lock().zone.migrations += 1;
                continue;
            }
            // SAFETY: the mover did not use `to`.
            unsafe { self.frames.free(to) };
            // The owner may have freed the frame meanwhile. It has no new owner: the block is
            // isolated.
            if tables.get(frame).is_handed_out() {
                return;
            }
        }
    }

    /// Takes a frame outside the isolated blocks.
    fn target(&self) -> Option<FrameId> {
        loop {
            let frame = self.frames.alloc(Mobility::EasyReclaim)?;
            let state = self.spans.tables.block_of(frame.0).state();
            if !matches!(state, BlockState::Isolated(_)) {
                return Some(frame);
            }
            // A thread put the frame into a per-CPU list just when its block was isolated; freeing
            // the frame now takes it out.
            // SAFETY: the frame was just handed to us.
            unsafe { self.frames.free(frame) };
        }
    }

    /// Takes an isolated block offline if all its frames are free, or else puts it back into use.
    fn take_offline(&mut self, block: usize) {
        let entry = &self.spans.tables.blocks()[block];
        if entry.free() < FRAMES_PER_BLOCK {
            self.frames.drain_all();
        }
        {
            let mut zone = self.lock();
            if entry.free() < FRAMES_PER_BLOCK {
                zone.reuse(block);
                let left = zone.tally(block);
                drop(zone);
                self.held_back.add(left);
                return;
            }
            entry.set_state(BlockState::Busy);
        }
        let offset = Bytes(block * BLOCK_BYTES);
        // SAFETY: all frames of the block are free, so no code relies on their bytes, and Busy
        // blocks hand out none.
        let result = self
            .spans
            .tables
            .drop_descriptors(block)
            .and_then(|()| unsafe { self.spans.frames.decommit(offset, Bytes(BLOCK_BYTES)) });
        self.lock().settle_offline(block, result.is_ok());
        if result.is_err() {
            self.held_back.refused += PageCount(FRAMES_PER_BLOCK);
        }
    }
}

impl Locked<'_> {
    /// Takes the free chunks of a block out of the lists. Fails, and changes nothing, when a frame
    /// of the block cannot be moved, or when the block is not this zone's to isolate.
    pub(super) fn isolate(&mut self, block: usize) -> Result<(), HeldBack> {
        let entry = &self.tables.blocks()[block];
        let state = entry.state();
        if state == BlockState::Fresh(self.name) {
            self.make_live(block);
        } else if state == BlockState::Live(self.name) {
            let found = self.tally(block);
            if found.core + found.slab > PageCount(0) {
                return Err(found);
            }
            for head in Chunk::block(block).frames() {
                if let Descriptor::Free { order, .. } = self.tables.get(head) {
                    self.unlink(Chunk { head, order });
                }
            }
        } else {
            return Err(HeldBack::default());
        }
        entry.set_state(BlockState::Isolated(self.name));
        self.zone.aside += entry.free();
        Ok(())
    }

    /// Puts the free frames of an isolated block back into the lists.
    pub(super) fn reuse(&mut self, block: usize) {
        let entry = &self.tables.blocks()[block];
        entry.set_state(BlockState::Live(self.name));
        assert!(self.zone.aside >= entry.free(), "an isolated block has its frames aside");
        self.zone.aside -= entry.free();
        let is_free = |frame: u32| self.tables.get(frame) == Descriptor::FreeTail;
        let Range { start: mut frame, end } = Chunk::block(block).frames();
        while frame < end {
            let run = (frame..end).take_while(|frame| is_free(*frame)).count() as u32;
            if run == 0 {
                frame += 1;
                continue;
            }
            let aligned = frame.trailing_zeros().min(ORDER_MAX.into());
            let chunk = Chunk { head: frame, order: aligned.min(run.ilog2()) as u8 };
            self.insert(chunk);
            frame = chunk.frames().end;
        }
    }

    fn settle_offline(&mut self, block: usize, done: bool) {
        let entry = &self.tables.blocks()[block];
        let all = Chunk::block(block);
        assert_eq!(entry.free(), FRAMES_PER_BLOCK, "a frame of the block is in use");
        assert!(self.zone.aside >= FRAMES_PER_BLOCK, "an isolated block has its frames aside");
        self.zone.aside -= FRAMES_PER_BLOCK;
        entry.set_free(0);
        if done {
            assert!(self.zone.live > 0 && self.zone.online >= FRAMES_PER_BLOCK);
            let dropped = self.tables.unhold(all.frames());
            self.zone.held -= dropped;
            self.zone.blocks_returned += u64::from(dropped > 0);
            self.zone.live -= 1;
            self.zone.online -= FRAMES_PER_BLOCK;
            // The last step: from here on the block may be added again.
            entry.set_state(BlockState::Offline);
        } else {
            entry.set_state(BlockState::Live(self.name));
            self.put(all);
        }
    }

    /// Counts the frames of a block that are not free, by their use.
    fn tally(&self, block: usize) -> HeldBack {
        let mut found = HeldBack::default();
        for frame in Chunk::block(block).frames() {
            match self.tables.get(frame) {
                Descriptor::Core => found.core += PageCount(1),
                Descriptor::Slab { .. } => found.slab += PageCount(1),
                Descriptor::Movable { .. } => found.movable += PageCount(1),
                _ => {}
            }
        }
        found
    }
}

impl HeldBack {
    fn add(&mut self, other: Self) {
        self.core += other.core;
        self.slab += other.slab;
        self.movable += other.movable;
        self.refused += other.refused;
    }
}
