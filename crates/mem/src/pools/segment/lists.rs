//! Lists of segments by the share of holes in them, and the end of a segment.

use super::space::{Head, Segment, Tag};
use super::{BUCKETS, Layout};
use crate::frames::FrameId;

impl Layout<'_> {
    /// Takes an empty segment out of all lists, and gives its frames back.
    pub(super) fn drop_segment(&mut self, segment: Segment) {
        assert_eq!(self.space.head(segment).live, 0, "a segment in use is not given back");
        if self.space.head(segment).draining {
            if let Some(drain) = self.drain.take_if(|drain| drain.segment == segment) {
                self.unlist_holes(drain);
            }
        } else {
            let Tag::Hole { hole, .. } = self.space.tag(self.space.start(segment)) else {
                panic!("an empty segment is a hole");
            };
            self.holes.remove(&mut self.space, hole);
            self.unlist(segment);
        }
        if self.newest == segment {
            self.newest = Segment::NONE;
        }
        let head = *self.space.head(segment);
        assert!(self.segments > 0 && self.frames_held >= head.frame_count(), "dropped twice");
        self.frames_held -= head.frame_count();
        self.segments -= 1;
        for frame in head.frames(segment) {
            // SAFETY: the frame belongs to the segment; no handle, list or hole refers to it any
            // more.
            unsafe { self.space.frames.free(FrameId::from_index(frame)) };
        }
        if self.frames_held == 0 {
            self.claim = None;
        }
    }

    /// Counts bytes of blocks that came or went, and moves the segment to its list.
    pub(super) fn add_live(&mut self, segment: Segment, change: isize) {
        self.live = self.live.strict_add_signed(change);
        let head = self.space.head_mut(segment);
        head.live = (head.live as usize).strict_add_signed(change) as u32;
        if !head.draining {
            self.relist(segment);
        }
    }

    /// Moves a segment to the list of its share of holes.
    pub(super) fn relist(&mut self, segment: Segment) {
        let head = self.space.head(segment);
        if bucket_of(head) != usize::from(head.bucket) {
            self.unlist(segment);
            self.list(segment);
        }
    }

    pub(super) fn list(&mut self, segment: Segment) {
        debug_assert!(!self.space.head(segment).draining, "{segment:?} is being drained");
        let bucket = bucket_of(self.space.head(segment));
        let next = core::mem::replace(&mut self.buckets[bucket], segment);
        if next.is_some() {
            self.space.head_mut(next).prev = segment;
        }
        let head = self.space.head_mut(segment);
        (head.next, head.prev, head.bucket) = (next, Segment::NONE, bucket as u8);
    }

    pub(super) fn unlist(&mut self, segment: Segment) {
        let Head { next, prev, bucket, .. } = *self.space.head(segment);
        debug_assert!(prev.is_some() || self.buckets[usize::from(bucket)] == segment);
        if next.is_some() {
            self.space.head_mut(next).prev = prev;
        }
        if prev.is_some() {
            self.space.head_mut(prev).next = next;
        } else {
            self.buckets[usize::from(bucket)] = next;
        }
    }

    /// Calls `visit` with every segment that is not being drained.
    pub(super) fn for_each_listed(&self, mut visit: impl FnMut(Segment, &Head)) {
        for bucket in &self.buckets {
            let mut segment = *bucket;
            while segment.is_some() {
                let head = self.space.head(segment);
                visit(segment, head);
                segment = head.next;
            }
        }
    }

    /// Gives back the segments that are empty.
    pub(super) fn drop_empty(&mut self) {
        let mut segment = self.buckets[BUCKETS - 1];
        while segment.is_some() {
            let Head { next, live, .. } = *self.space.head(segment);
            if live == 0 {
                self.drop_segment(segment);
            }
            segment = next;
        }
    }
}

/// Returns the list of a segment: by the share of holes in it.
pub(super) fn bucket_of(head: &Head) -> usize {
    let capacity = head.capacity();
    (capacity - head.live as usize) * (BUCKETS - 1) / capacity
}

impl Drop for Layout<'_> {
    fn drop(&mut self) {
        let drained = self.drain.map(|drain| drain.segment);
        for first in self.buckets.into_iter().chain(drained) {
            let mut segment = first;
            while segment.is_some() {
                let head = *self.space.head(segment);
                for frame in head.frames(segment) {
                    // SAFETY: the frame belongs to the segment, which ends with the pool.
                    unsafe { self.space.frames.free(FrameId::from_index(frame)) };
                }
                segment = head.next;
            }
        }
    }
}
