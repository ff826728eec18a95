//! For tests: somebody who takes frames, so that others run out of them.

use coldpress_sys::PageCount;

use super::{FrameAllocator, FrameId, Mobility};

/// Holds frames, and gives them back when dropped.
pub(crate) struct Hog<'f> {
    frames: &'f FrameAllocator,
    taken: Vec<FrameId>,
}

impl<'f> Hog<'f> {
    pub(crate) fn new(frames: &'f FrameAllocator) -> Self {
        Self { frames, taken: Vec::new() }
    }

    /// Takes or gives back frames until exactly `free` are left, or all or none.
    pub(crate) fn leave(&mut self, free: usize) {
        let left = || self.frames.stats().zones.iter().map(|zone| zone.free.0).sum::<usize>();
        for _ in free..left() {
            self.taken.push(self.frames.alloc(Mobility::EasyReclaim).expect("it is free"));
        }
        while left() < free
            && let Some(frame) = self.taken.pop()
        {
            // SAFETY: the frame is ours and was never used.
            unsafe { self.frames.free(frame) };
        }
    }

    /// The number of frames it holds.
    pub(crate) fn held(&self) -> PageCount {
        PageCount(self.taken.len())
    }
}

impl Drop for Hog<'_> {
    fn drop(&mut self) {
        self.leave(usize::MAX);
    }
}
