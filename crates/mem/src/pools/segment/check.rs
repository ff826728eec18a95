//! A walk over all structures of a pool of segments.

use super::lists::bucket_of;
use super::space::{BLOCK_MIN, Segment, Tag};
use super::{HandleTable, Layout, Location, PoolStats};

/// The figures that a walk has counted.
#[derive(Default)]
struct SegmentCensus {
    segments: usize,
    frames: usize,
    live: usize,
    blocks: usize,
    listed: usize,
}

impl Layout<'_> {
    /// Checks all invariants, and panics when one is broken.
    pub(super) fn check(&self, handles: &HandleTable<'_>, stats: PoolStats) {
        let mut seen = SegmentCensus::default();
        for (bucket, first) in self.buckets.iter().enumerate() {
            let (mut segment, mut prev) = (*first, Segment::NONE);
            while segment.is_some() {
                let head = self.space.head(segment);
                assert_eq!(head.prev, prev, "broken list");
                assert_eq!((bucket_of(head), usize::from(head.bucket)), (bucket, bucket));
                assert!(!head.draining && head.live > 0, "{segment:?} {head:?}");
                self.check_segment(handles, segment, &mut seen);
                (prev, segment) = (segment, head.next);
            }
        }
        if let Some(drain) = self.drain {
            let head = self.space.head(drain.segment);
            assert!(head.draining && head.live > 0, "{head:?}");
            self.check_segment(handles, drain.segment, &mut seen);
        }
        assert_eq!((seen.segments, seen.frames), (self.segments, self.frames_held));
        assert_eq!(seen.live, self.live, "bytes of blocks");
        assert_eq!(seen.listed, self.holes.check(&self.space), "holes in lists");
        assert_eq!(seen.blocks, stats.objects, "blocks and objects");
        assert_eq!(self.bytes_stored, stats.bytes_stored, "bytes stored");
    }

    /// Checks the blocks and holes of a segment.
    fn check_segment(&self, handles: &HandleTable<'_>, segment: Segment, seen: &mut SegmentCensus) {
        let head = *self.space.head(segment);
        let (mut at, end) = (self.space.start(segment), self.space.end(segment));
        let (mut live, mut before) = (0, None);
        while at < end {
            match self.space.tag(at) {
                Tag::Hole { hole, parked } => {
                    assert_eq!(hole.order, head.order, "{hole:?}");
                    assert!(hole.length >= BLOCK_MIN, "{hole:?}");
                    assert!(head.draining || (!parked && before.is_none()), "{hole:?}");
                    seen.listed += usize::from(!parked);
                    (at, before) = (hole.end(), Some(hole));
                }
                Tag::Block { name, slack, after_hole } => {
                    let location = Location::of(handles, name);
                    assert_eq!((location.at, location.order), (at, head.order), "{name:?}");
                    if !head.draining {
                        assert_eq!(after_hole, before.is_some(), "{name:?}");
                        assert!(!after_hole || before == Some(self.space.hole_before(at)));
                    }
                    let length = location.block(slack);
                    (at, before, live) = (at + length as u64, None, live + length);
                    seen.blocks += 1;
                }
            }
        }
        assert_eq!(at, end, "the last block or hole of {segment:?} goes beyond its end");
        assert!(head.draining || head.ends_in_hole == before.is_some(), "{head:?}");
        assert_eq!(live, head.live as usize, "bytes of blocks of {segment:?}");
        seen.live += live;
        seen.segments += 1;
        seen.frames += head.frame_count();
    }
}
