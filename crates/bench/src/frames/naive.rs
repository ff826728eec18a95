//! Frames by the simplest means: a byte for each frame, the lowest free frame first.
//!
//! The tests compare with this allocator, and it shows what two zones give without any other idea.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{BLOCK_FRAMES, BLOCK_ORDER, FrameSource, Migrate, Mobility};

/// The state of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    Free,
    Used,
    /// A frame of an owner that can use another frame instead.
    Owned(u32),
}

/// A frame allocator with one zone or two.
pub(super) struct NaiveFrames {
    state: Mutex<State>,
    /// The number of blocks in the core zone; all blocks when there is one zone.
    core: usize,
}

struct State {
    frames: Vec<Frame>,
    /// The number of free frames of each block.
    free: Vec<u16>,
}

impl NaiveFrames {
    /// Makes `blocks` blocks, the first `core` of them for frames that cannot move; `None` for one
    /// zone.
    pub(super) fn new(blocks: usize, core: Option<usize>) -> Self {
        let frames = vec![Frame::Free; blocks * BLOCK_FRAMES];
        let free = vec![BLOCK_FRAMES as u16; blocks];
        Self { state: Mutex::new(State { frames, free }), core: core.unwrap_or(blocks) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the blocks to look in: easily reclaimed frames may take core blocks, never the
    /// reverse.
    fn zonelist(&self, mobility: Mobility, blocks: usize) -> [Range<usize>; 2] {
        let core = 0..self.core;
        match mobility {
            Mobility::Core => [core, 0..0],
            Mobility::EasyReclaim => [self.core..blocks, core],
        }
    }
}

impl State {
    /// Returns the first free aligned chunk in `blocks`.
    fn find(&self, mut blocks: Range<usize>, order: u8) -> Option<usize> {
        let length = 1_usize << order;
        blocks.find_map(|block| {
            if usize::from(self.free[block]) < length {
                return None;
            }
            let frames = block * BLOCK_FRAMES..(block + 1) * BLOCK_FRAMES;
            let is_free = |start: &usize| {
                self.frames[*start..*start + length].iter().all(|frame| *frame == Frame::Free)
            };
            frames.step_by(length).find(is_free)
        })
    }

    fn take(&mut self, start: usize, order: u8) {
        self.frames[start..start + (1 << order)].fill(Frame::Used);
        self.free[start / BLOCK_FRAMES] -= 1 << order;
    }

    fn put(&mut self, start: usize, order: u8) {
        let chunk = &mut self.frames[start..start + (1 << order)];
        assert!(chunk.iter().all(|frame| *frame != Frame::Free), "freed twice: {start}");
        chunk.fill(Frame::Free);
        self.free[start / BLOCK_FRAMES] += 1 << order;
    }
}

impl FrameSource for NaiveFrames {
    fn alloc(&self, mobility: Mobility, order: u8) -> Option<u32> {
        assert!(order <= BLOCK_ORDER);
        let mut state = self.state();
        let zonelist = self.zonelist(mobility, state.free.len());
        let start = zonelist.into_iter().find_map(|blocks| state.find(blocks, order))?;
        state.take(start, order);
        Some(start as u32)
    }

    unsafe fn free(&self, chunk: u32, order: u8) {
        self.state().put(chunk as usize, order);
    }

    unsafe fn set_owner(&self, frame: u32, owner: u32) {
        self.state().frames[frame as usize] = Frame::Owned(owner);
    }

    fn drain(&self) {}

    unsafe fn compact(&self, migrate: &mut Migrate<'_>) {
        let mut state = self.state();
        let mut lowest = 0;
        for from in (0..state.frames.len()).rev() {
            let Frame::Owned(owner) = state.frames[from] else { continue };
            let zone = if from / BLOCK_FRAMES < self.core { 0 } else { self.core };
            lowest = lowest.max(zone * BLOCK_FRAMES);
            // The lowest free frames of the zone fill up; the blocks at its end become empty.
            let Some(to) = (lowest..from).find(|to| state.frames[*to] == Frame::Free) else {
                lowest = if zone == 0 { from } else { 0 };
                continue;
            };
            lowest = to;
            if migrate(from as u32, to as u32, owner) {
                state.put(from, 0);
                state.take(to, 0);
                state.frames[to] = Frame::Owned(owner);
            }
        }
    }

    fn free_frames(&self) -> usize {
        self.state().free.iter().map(|count| usize::from(*count)).sum()
    }

    fn check(&self) {
        let state = self.state();
        for (frames, count) in state.frames.chunks(BLOCK_FRAMES).zip(&state.free) {
            let free = frames.iter().filter(|frame| **frame == Frame::Free).count();
            assert_eq!(free, usize::from(*count));
        }
    }
}
