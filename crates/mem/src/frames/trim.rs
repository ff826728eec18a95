//! Trim: giving the memory of free frames back to the system.
//!
//! A claimed chunk is Cached and in no list, so no thread gets or merges it while the lock is
//! released for the system call. The largest chunks go first: a call frees most memory there, and
//! allocations would fill the small ones. A block whose frames are all free goes back as a whole,
//! with its descriptors, and is Fresh afterwards.

use core::ops::Range;

use coldpress_sys::page::FRAMES_PER_BLOCK;
use coldpress_sys::{PageCount, SysResult};

use super::blocks::BlockState;
use super::zone::{Chunk, HELD, Locked};
use super::{Descriptor, FrameAllocator, FrameId, Mobility, ORDER_MAX, Spans};

/// A free chunk set aside, and the frames of it whose memory is to go.
struct Claim {
    chunk: Chunk,
    frames: Range<u32>,
}

impl Claim {
    fn is_block(&self) -> bool {
        self.frames.len() == FRAMES_PER_BLOCK
    }

    fn give_back(&self, spans: &Spans) -> SysResult<()> {
        let offset = PageCount(self.frames.start as usize).bytes();
        // SAFETY: the frames were free, so no code relies on their bytes, and the claim keeps them
        // from being handed out until it is settled.
        unsafe { spans.frames.discard(offset, PageCount(self.frames.len()).bytes()) }?;
        if self.is_block() {
            spans.tables.drop_descriptors(self.chunk.head as usize / FRAMES_PER_BLOCK)?;
        }
        Ok(())
    }
}

impl FrameAllocator {
    /// Gives memory of free frames back to the system until at most `keep` free frames hold memory,
    /// those in per-CPU lists included. Returns the number of frames given back; it is lower than
    /// requested only when the kernel refuses, as it does for locked memory.
    pub fn trim(&self, keep: PageCount) -> PageCount {
        let mut given_back = PageCount(0);
        let Some(spans) = self.spans() else { return given_back };
        self.drain_all();
        for name in [Mobility::EasyReclaim, Mobility::Core] {
            loop {
                let excess = self.frames_idle().saturating_sub(keep);
                // A statement of its own, so that the lock is not held below.
                let claim = self.zones.lock(spans, name).claim_idle(excess.0);
                let Some(claim) = claim else { break };
                let done = claim.give_back(spans).is_ok();
                given_back += self.zones.lock(spans, name).settle(claim, done);
                if !done {
                    return given_back;
                }
            }
        }
        given_back
    }
}

impl Locked<'_> {
    /// Sets the largest chunk with memory aside, to free up to `excess` of its frames.
    fn claim_idle(&mut self, excess: usize) -> Option<Claim> {
        let lists = &self.zone.lists[HELD];
        let order = (0..=ORDER_MAX).rev().find(|order| lists[usize::from(*order)].chunks > 0)?;
        let FrameId(head) = lists[usize::from(order)].first.filter(|_| excess > 0)?;
        let chunk = Chunk { head, order };
        self.unlink(chunk);
        self.zone.aside += chunk.len();
        chunk.frames().for_each(|frame| self.tables.set(frame, Descriptor::Cached));
        let block = self.tables.block_of(head);
        block.set_free(block.free() - chunk.len());
        if order == ORDER_MAX && self.tables.held(chunk.frames()) <= excess {
            block.set_state(BlockState::Busy);
            return Some(Claim { chunk, frames: chunk.frames() });
        }
        let holds = |frame: &u32| self.tables.held(*frame..frame + 1) > 0;
        let mut highest = chunk.frames().rev().filter(holds).take(excess);
        let last = highest.next().unwrap_or(head);
        let first = highest.last().unwrap_or(last);
        debug_assert!((chunk.frames().start..=last).contains(&first), "{first} to {last}");
        Some(Claim { chunk, frames: first..last + 1 })
    }

    /// Puts a claimed chunk back, without memory where that was given back. Returns the number of
    /// frames given back.
    fn settle(&mut self, claim: Claim, done: bool) -> PageCount {
        let Claim { chunk, ref frames } = claim;
        let dropped = if done { self.tables.unhold(frames.clone()) } else { 0 };
        assert!(self.zone.held >= dropped && self.zone.aside >= chunk.len(), "a claim is counted");
        self.zone.held -= dropped;
        self.zone.aside -= chunk.len();
        let block = chunk.head as usize / FRAMES_PER_BLOCK;
        if claim.is_block() && done {
            self.zone.live -= 1;
            self.zone.blocks_returned += 1;
            self.make_fresh(block);
        } else {
            if claim.is_block() {
                self.tables.blocks()[block].set_state(BlockState::Live(self.name));
            }
            self.put(chunk);
        }
        PageCount(dropped)
    }
}
