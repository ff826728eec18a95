//! The progress of compaction: which frames it works on, and whether it pays.

#![forbid(unsafe_code)]

/// No frame: frame numbers are below 2^24.
pub(super) const NO_FRAME: u32 = u32::MAX;

/// The progress of compaction.
pub(super) struct Progress {
    /// The frame being emptied; kept between calls when the budget ended first.
    pub(super) victim: u32,
    /// The frame whose free blocks are on no list.
    pub(super) isolated: u32,
    /// The frame that was begun last and is being filled: it looks empty, but is no victim.
    pub(super) open: u32,
    /// Frames opened since the last gain and not yet made up for by an emptied one.
    pub(super) opened: usize,
    /// Bytes moved since the last gain.
    pub(super) fruitless: usize,
    /// Whether nothing can be gained until an object is freed.
    pub(super) settled: bool,
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

    /// Notes that a frame has no object left.
    pub(super) fn emptied(&mut self, frame: u32) {
        self.renamed(frame, NO_FRAME);
    }

    /// Notes that there may be something to gain.
    pub(super) fn wake(&mut self) {
        self.settled = false;
    }

    /// Notes that the blocks of a frame lie in another one.
    pub(super) fn renamed(&mut self, from: u32, to: u32) {
        for frame in [&mut self.victim, &mut self.isolated, &mut self.open] {
            if *frame == from {
                *frame = to;
            }
        }
    }

    /// Weighs a moved object against the change in the number of frames with objects.
    pub(super) fn moved(&mut self, size: usize, before: usize, after: usize) {
        debug_assert!(size > 0, "an object has bytes");
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
