//! For tests: a user that takes frames until other users run out of them.

use coldpress_sys::PageCount;

use super::{FrameAllocator, FrameId, Mobility};

/// A holder of frames, which it frees when dropped.
pub(crate) struct Hog<'f> {
    frames: &'f FrameAllocator,
    taken: Vec<FrameId>,
}

impl<'f> Hog<'f> {
    pub(crate) fn new(frames: &'f FrameAllocator) -> Self {
        Self { frames, taken: Vec::new() }
    }

    /// Takes or frees frames until exactly `free` are left, or all or none.
    pub(crate) fn leave(&mut self, free: usize) {
        let left = || self.frames.stats().zones.iter().map(|zone| zone.free.0).sum::<usize>();
        for _ in free..left() {
            self.taken.push(self.frames.alloc(Mobility::EasyReclaim).expect("it is free"));
        }
        while left() < free
            && let Some(frame) = self.taken.pop()
        {
            // SAFETY: the frame belongs to the hog and was never used.
            unsafe { self.frames.free(frame) };
        }
    }

    /// Returns the number of frames it holds.
    pub(crate) fn held(&self) -> PageCount {
        PageCount(self.taken.len())
    }
}

impl Drop for Hog<'_> {
    fn drop(&mut self) {
        self.leave(usize::MAX);
    }
}
