//! Finding room: the best-fitting hole, more frames for the newest segment, or a new segment.
//!
//! Idea: a segment lies at the start of a larger free chunk, its window, and grows into it a few
//! frames at a time, so that many frames lie side by side and few are unused.

use coldpress_sys::PAGE_BYTES;

use super::super::handles::HandleTable;
use super::Layout;
use super::drain::WAIT;
use super::space::{HEAD, Hole, Segment};
use crate::frames::{FrameId, Mobility, ORDER_MAX};

/// A segment grows by one part in this many of the pool, which is what its last frames may waste.
const STEP_SHARE: usize = 1024;
/// A segment is at most one part in this many of the pool, when it is larger than
/// [`SEGMENT_FRAMES`]. This bounds the work of draining one.
const SEGMENT_SHARE: usize = 16;
/// Frames that any segment may have: at this length, the room that the last object did not fit into
/// is a small share.
const SEGMENT_FRAMES: usize = 16;

impl Layout<'_> {
    /// Returns log2 of the frames by which a segment grows.
    pub(super) fn step_order(&self) -> u8 {
        (self.frames_held / STEP_SHARE).checked_ilog2().unwrap_or(0).min(ORDER_MAX.into()) as u8
    }

    /// Returns a hole of at least `length` bytes, in its list: the best fit there is, else the hole
    /// of a new segment. The last resort is the remainder of a segment being drained.
    pub(super) fn hole(&mut self, handles: &HandleTable<'_>, length: usize) -> Option<Hole> {
        if let Some(hole) = self.find_or_grow(length) {
            return Some(hole);
        }
        if self.drain.is_some() {
            self.stop_draining(handles);
            self.wait = WAIT;
        }
        self.find(length)
    }

    /// Returns the best-fitting hole. Holes that it meets in a segment being drained leave their
    /// list.
    pub(super) fn find(&mut self, length: usize) -> Option<Hole> {
        loop {
            let hole = self.holes.find(&self.space, length)?;
            debug_assert!(hole.length >= length, "{length} bytes in {hole:?}");
            if !self.space.head(hole.segment()).draining {
                return Some(hole);
            }
            self.holes.remove(&mut self.space, hole);
        }
    }

    /// Returns the best-fitting hole there is, or one of new frames.
    pub(super) fn find_or_grow(&mut self, length: usize) -> Option<Hole> {
        if let Some(hole) = self.find(length) {
            return Some(hole);
        }
        self.grow(length).or_else(|| self.add_segment(length))
    }

    /// Makes a hole of this length at the end of the newest segment.
    pub(super) fn grow(&mut self, length: usize) -> Option<Hole> {
        let segment = Some(self.newest).filter(|segment| segment.is_some())?;
        loop {
            let head = *self.space.head(segment);
            let (count, frames) = (head.end as usize / PAGE_BYTES, self.space.frames);
            if count == 1 << head.order {
                return None;
            }
            let aligned = count.trailing_zeros() as u8;
            let next = FrameId::from_index(segment.0 + count as u32);
            let extend = |order: &u8| frames.extend_run(next, *order, Mobility::EasyReclaim);
            let order = (0..=self.step_order().min(aligned)).rev().find(extend)?;
            self.own(segment, next, order, head.order);
            let tail = head.ends_in_hole.then(|| self.space.hole_before(self.space.end(segment)));
            if let Some(tail) = tail {
                self.holes.remove(&mut self.space, tail);
            }
            // SAFETY: the frames were just handed to us.
            let hole = unsafe { self.space.extend(segment, 1 << order, tail) };
            self.holes.insert(&mut self.space, hole);
            self.frames_held += 1 << order;
            self.relist(segment);
            if hole.length >= length {
                return Some(hole);
            }
        }
    }

    /// Makes a segment for a block of this length.
    pub(super) fn add_segment(&mut self, length: usize) -> Option<Hole> {
        let frames = self.space.frames;
        if self.frames_held == 0 && self.claim.is_none() {
            self.claim = frames.claim_moves();
        }
        let least = (HEAD + length).div_ceil(PAGE_BYTES).next_power_of_two().ilog2() as u8;
        let order = least.max(self.step_order());
        let window = SEGMENT_FRAMES.max(self.frames_held / SEGMENT_SHARE);
        let window = order.max(ORDER_MAX.min(window.ilog2() as u8));
        let run = |order| frames.alloc_run(order, window, Mobility::EasyReclaim);
        let found = run(order).map(|run| (run, order)).or_else(|| Some((run(least)?, least)));
        let Some(((frame, window), order)) = found else {
            if self.frames_held == 0 {
                self.claim = None;
            }
            return None;
        };
        // SAFETY: the frames were just handed to us, aligned to the window.
        let hole = unsafe { self.found(frame, window, order) };
        debug_assert!(hole.length >= length, "{length} bytes in {hole:?}");
        self.newest = hole.segment();
        Some(hole)
    }

    /// Makes a segment of the 2^`order` frames from `frame` on; the segment is empty and in its
    /// list.
    ///
    /// # Safety
    /// The frames belong to the caller, and from now on to the segment. The first is a multiple of
    /// 2^`window`.
    pub(super) unsafe fn found(&mut self, frame: FrameId, window: u8, order: u8) -> Hole {
        debug_assert!(frame.index().is_multiple_of(1 << window) && order <= window, "{frame:?}");
        let segment = Segment(frame.index());
        // SAFETY: the caller promises that the frames are ours and aligned.
        let hole = unsafe { self.space.found(segment, window, 1 << order) };
        self.space.head_mut(segment).round = self.round;
        self.own(segment, frame, order, window);
        self.holes.insert(&mut self.space, hole);
        self.frames_held += 1 << order;
        self.segments += 1;
        self.list(segment);
        hole
    }

    /// Makes a segment the owner of 2^`order` frames, if the pool's frames can be moved.
    pub(super) fn own(&self, segment: Segment, first: FrameId, order: u8, window: u8) {
        if self.claim.is_some() {
            for frame in first.index()..first.index() + (1 << order) {
                let frame = FrameId::from_index(frame);
                // SAFETY: the frame was handed to us for the segment, and `migrate` moves it by
                // this owner until it is freed.
                unsafe { self.space.frames.set_owner(frame, segment.0, window) };
            }
        }
    }
}
