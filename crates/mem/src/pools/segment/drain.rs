//! Draining: a segment is emptied object by object, and its frames are given back.
//!
//! Idea: the objects go into the best-fitting holes of other segments, wherever these are; only
//! objects that fit nowhere go to a new segment, where they lie as dense as when first stored. So
//! moving L bytes out of a segment of S bytes fills L bytes of holes and gains S. Only one segment
//! at a time is drained, and its frames go back as they become empty. It takes no objects
//! meanwhile, so its holes need not be merged: each block that leaves becomes a parked hole, for
//! the cursor to skip.
//!
//! Invariants:
//! 1. Between calls at most one segment is being drained. Before the cursor it has no block, and no
//!    hole that is in a list.
//! 2. Within a round of [`crate::pools::Pool::compact`], no segment made in that round is drained,
//!    so a round ends.

use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use super::super::MOVE_COST;
use super::super::handles::HandleTable;
use super::space::{Hole, Segment, SpanOffset, Tag};
use super::{BUCKETS, Compacted, HOLES, Layout, Location, STEP, WASTE, block_of};
use crate::frames::FrameId;

/// Holes that [`crate::pools::Pool::compact`] leaves alone, in thousandths.
const HOLES_ASKED: usize = 5;
/// Calls to skip after frames ran out, before segments are drained unasked again.
pub(super) const WAIT: u32 = 256;

/// The segment that is being drained.
#[derive(Clone, Copy)]
pub(super) struct Drain {
    pub(super) segment: Segment,
    /// The next place to look at.
    cursor: SpanOffset,
}

/// The result of moving the block or hole at a place.
enum MoveResult {
    /// The next block or hole lies there.
    Next(SpanOffset),
    /// There is no place for the object.
    NoPlace,
    /// The object is in use.
    InUse,
}

/// The result of a piece of draining.
enum DrainResult {
    /// The budget is spent.
    Paused,
    /// The segment is gone.
    Done,
    /// An object finds no place.
    Stuck,
    /// An object is in use.
    InUse,
}

impl Layout<'_> {
    /// Drains a little when there are too many holes. Called at the end of each change.
    pub(super) fn clean(&mut self, handles: &HandleTable<'_>) {
        if !self.is_wasteful() {
            return;
        }
        if self.wait > 0 {
            self.wait -= 1;
            return;
        }
        let end = self.work + STEP;
        while self.work < end && self.is_wasteful() {
            if self.drain.is_none() && !self.begin(|_, _| true) {
                return;
            }
            match self.drain_until(handles, end) {
                DrainResult::Paused | DrainResult::Done => {}
                DrainResult::InUse => return,
                DrainResult::Stuck => {
                    self.stop_draining(handles);
                    self.wait = WAIT;
                    return;
                }
            }
        }
    }

    /// Begins a round of [`crate::pools::Pool::compact`], if objects came or went since the last
    /// round.
    pub(super) fn begin_round(&mut self) {
        if core::mem::take(&mut self.touched) {
            self.round = self.round.wrapping_add(1);
            (self.owed, self.settled) = (0, false);
        }
    }

    /// Does a piece of a round, until the work reaches `budget`. Returns the result, and the work
    /// done.
    pub(super) fn compact(
        &mut self,
        handles: &HandleTable<'_>,
        budget: Bytes,
    ) -> (Compacted, Bytes) {
        let (moved, frames, work) = (self.moved, self.frames_held, self.work);
        let end = work + budget;
        while !self.settled && self.work < end {
            let older = |pool: &Self, segment| pool.is_older(segment);
            if self.drain.is_none() && !(self.is_loose() && self.begin(older)) {
                self.settled = true;
                break;
            }
            match self.drain_until(handles, end) {
                DrainResult::Paused | DrainResult::Done => {}
                DrainResult::InUse => break,
                DrainResult::Stuck => {
                    if let Some(Drain { segment, .. }) = self.drain {
                        self.stop_draining(handles);
                        self.space.head_mut(segment).round = self.round;
                    }
                    // Other segments would hardly find more room, and each costs a walk to put it
                    // back.
                    break;
                }
            }
        }
        // New segments made on the way count against frames given back later.
        let (before, after) = (frames, self.frames_held + self.owed);
        self.owed = after.saturating_sub(before);
        let freed = PageCount(before.saturating_sub(after));
        (Compacted { moved: self.moved - moved, freed }, self.work - work)
    }

    /// Returns whether the cost of holes is high enough to drain segments unasked.
    fn is_wasteful(&self) -> bool {
        let stored = self.bytes_stored.0;
        let allowed = (stored / 1000 * WASTE).saturating_sub(self.live - stored);
        self.hole_bytes() > allowed.max(stored / 1000 * HOLES + self.step_bytes())
    }

    /// Returns whether [`crate::pools::Pool::compact`] has something to do.
    fn is_loose(&self) -> bool {
        self.hole_bytes() > self.live / 1000 * HOLES_ASKED + self.step_bytes()
    }

    /// Returns the bytes that the newest segment grew by and may not have used.
    fn step_bytes(&self) -> usize {
        PAGE_BYTES << self.step_order()
    }

    /// Returns whether a segment was made before this round.
    fn is_older(&self, segment: Segment) -> bool {
        self.space.head(segment).round != self.round
    }

    /// Returns whether it began to drain a segment: the emptiest one for which `may` holds. The
    /// newest segment, where new objects go, is taken only when there is no other. `false` if none
    /// has a hole worth draining for.
    fn begin(&mut self, may: impl Fn(&Self, Segment) -> bool) -> bool {
        let mut found = Segment::NONE;
        'search: for bucket in (1..BUCKETS).rev() {
            let mut segment = self.buckets[bucket];
            while segment.is_some() {
                if may(self, segment) {
                    found = segment;
                    if segment != self.newest {
                        break 'search;
                    }
                }
                segment = self.space.head(segment).next;
            }
        }
        if found.is_some() {
            self.begin_with(found);
            self.drain = Some(Drain { segment: found, cursor: self.space.start(found) });
        }
        found.is_some()
    }

    fn begin_with(&mut self, segment: Segment) {
        assert!(self.drain.is_none(), "another segment is being drained");
        self.unlist(segment);
        let head = self.space.head_mut(segment);
        (head.draining, head.next, head.prev) = (true, Segment::NONE, Segment::NONE);
        if self.newest == segment {
            self.newest = Segment::NONE;
        }
    }

    /// Moves objects out of the segment that is being drained, until the total work reaches `end`.
    fn drain_until(&mut self, handles: &HandleTable<'_>, end: Bytes) -> DrainResult {
        while let Some(Drain { segment, cursor }) = self.drain {
            if self.work >= end {
                return DrainResult::Paused;
            }
            let next = match self.move_out(handles, cursor) {
                MoveResult::Next(next) => next,
                MoveResult::NoPlace => return DrainResult::Stuck,
                MoveResult::InUse => return DrainResult::InUse,
            };
            self.drain = Some(Drain { segment, cursor: next });
            self.drop_frames(segment, next);
            if self.space.head(segment).live == 0 {
                self.drop_segment(segment);
                return DrainResult::Done;
            }
        }
        DrainResult::Done
    }

    /// Gives back the frames of a segment before `at`, where nothing is left, except for the first
    /// frame, which has the head.
    fn drop_frames(&mut self, segment: Segment, at: SpanOffset) {
        let before = *self.space.head(segment);
        self.space.set_start(segment, at);
        let kept = self.space.head(segment).frame_count();
        debug_assert!(kept <= before.frame_count() && kept > 0, "the head's frame stays");
        let count = before.frame_count() - kept;
        for frame in before.frames(segment).skip(1).take(count) {
            // SAFETY: the frame belongs to the segment, and no block or hole of it starts or ends
            // there.
            unsafe { self.space.frames.free(FrameId::from_index(frame)) };
        }
        self.frames_held -= count;
    }

    /// Moves the object at `at`, in a segment that is being drained, or takes the hole there off
    /// its list.
    fn move_out(&mut self, handles: &HandleTable<'_>, at: SpanOffset) -> MoveResult {
        let (name, slack) = match self.space.tag(at) {
            Tag::Hole { hole, parked } => {
                if !parked {
                    self.holes.remove(&mut self.space, hole);
                }
                return MoveResult::Next(hole.end());
            }
            Tag::Block { name, slack, .. } => (name, slack),
        };
        let Some(mut pinned) = handles.try_pin(name) else { return MoveResult::InUse };
        let from = Location::from_word(pinned.word());
        assert_eq!(from.at, at, "a block is named by its name");
        let wanted = block_of(from.size);
        let Some(hole) = self.find_or_grow(wanted) else { return MoveResult::NoPlace };
        let to = Location { at: hole.at, order: hole.order, size: from.size };
        self.take(hole, wanted, name);
        // SAFETY: the object is pinned. Nothing names its new block yet.
        unsafe {
            self.space.object(to.at, to.size).copy_from_slice(self.space.object(at, to.size))
        };
        pinned.set(to.to_word());
        drop(pinned);
        let left = Hole { at, length: from.block(slack), order: from.order };
        self.space.park(left);
        self.add_live(from.segment(), -(left.length as isize));
        self.moved += Bytes(from.size);
        self.work += Bytes(from.size) + MOVE_COST;
        MoveResult::Next(left.end())
    }

    /// Takes the holes of an empty segment out of their lists, from the cursor on.
    pub(super) fn unlist_holes(&mut self, drain: Drain) {
        let (mut at, segment) = (drain.cursor, drain.segment);
        let end = self.space.end(segment);
        while at < end {
            let Tag::Hole { hole, parked } = self.space.tag(at) else {
                panic!("a block at {at:#x} of an empty segment");
            };
            if !parked {
                self.holes.remove(&mut self.space, hole);
            }
            at = hole.end();
        }
    }

    /// Puts the segment that is being drained back into use, with what is left in it.
    pub(super) fn stop_draining(&mut self, handles: &HandleTable<'_>) {
        if let Some(Drain { segment, .. }) = self.drain.take() {
            self.reopen(handles, segment);
        }
    }

    /// Merges and lists the holes of a segment that was drained, and lists the segment.
    fn reopen(&mut self, handles: &HandleTable<'_>, segment: Segment) {
        debug_assert!(self.space.head(segment).draining, "{segment:?} is in use");
        let (mut at, end) = (self.space.start(segment), self.space.end(segment));
        let mut open: Option<Hole> = None;
        while at < end {
            match self.space.tag(at) {
                Tag::Hole { hole, parked } => {
                    if !parked {
                        self.holes.remove(&mut self.space, hole);
                    }
                    let before = open.unwrap_or(Hole { length: 0, ..hole });
                    open = Some(Hole { length: before.length + hole.length, ..before });
                    at = hole.end();
                }
                Tag::Block { name, slack, .. } => {
                    self.space.set_block(at, name, slack, open.is_some());
                    self.close(open.take());
                    at += Location::of(handles, name).block(slack) as u64;
                }
            }
        }
        let head = self.space.head_mut(segment);
        (head.draining, head.ends_in_hole) = (false, open.is_some());
        self.close(open);
        self.list(segment);
    }

    /// Lists a hole that `reopen` has merged.
    fn close(&mut self, hole: Option<Hole>) {
        if let Some(hole) = hole {
            self.space.park(hole);
            self.holes.insert(&mut self.space, hole);
        }
    }

    /// Returns whether it could empty a segment, free it, and make a segment of frame `to` instead.
    /// `false`, and nothing taken, when its objects find no place or are in use.
    ///
    /// # Safety
    /// `to` is handed out and no code uses it.
    pub(super) unsafe fn exchange(
        &mut self,
        handles: &HandleTable<'_>,
        segment: Segment,
        to: FrameId,
    ) -> bool {
        self.stop_draining(handles);
        self.begin_with(segment);
        let (mut at, end) = (self.space.start(segment), self.space.end(segment));
        while at < end {
            let MoveResult::Next(next) = self.move_out(handles, at) else {
                self.reopen(handles, segment);
                return false;
            };
            at = next;
        }
        // SAFETY: `to` is ours. The new segment is empty, and listed until `shrink_frames` ends.
        unsafe { self.found(to, 0, 0) };
        self.drop_segment(segment);
        true
    }
}
