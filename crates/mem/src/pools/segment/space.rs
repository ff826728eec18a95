//! The bytes of segments: where heads, blocks and holes lie, and how they are written.
//!
//! Layout: a segment is a run of frames at the start of a window of 2^order frames, aligned to its
//! length. Its [`Head`] comes first; blocks and holes follow without gaps up to the end. In a
//! partly drained segment, the frames between head and first block may be gone.
//!
//! ```text
//! block: tag | object | slack       tag:  name 25 bits, slack 5 bits, AFTER_HOLE
//! hole:  tag | next | prev | .. | length     tag: length 21 bits, order 4 bits, PARKED, HOLE
//! ```
//!
//! A hole is at least [`BLOCK_MIN`] bytes, so the remainder of a hole is either a hole again or the
//! slack of the block that took it. Nothing is aligned but heads.
//!
//! Invariants:
//! 1. A [`SpanOffset`] outside this file belongs to a block or hole of a live segment; a
//!    [`Segment`] is live. Both are made from others by lengths kept in the segment itself.

use core::mem::size_of;
use core::ptr::NonNull;
use core::slice;

use coldpress_sys::{Bytes, PAGE_BYTES};

use crate::frames::{FrameAllocator, FrameId, ORDER_MAX};
use crate::pools::handle::Name;
use crate::pools::handles::NAME_BITS;

/// Bytes of a tag: what a block costs besides its object.
pub(super) const TAG: usize = size_of::<u32>();
/// The smallest block and the smallest hole: a tag, two links, and a length at the end.
pub(super) const BLOCK_MIN: usize = TAG + 2 * size_of::<u64>() + LENGTH;
const LENGTH: usize = size_of::<u32>();

const HOLE: u32 = 1 << 31;
/// Flag of a hole that is in no list.
const PARKED: u32 = 1 << 30;
/// Flag of a block behind a hole that ends where the block starts. Not maintained while the segment
/// is drained.
const AFTER_HOLE: u32 = 1 << 30;
const SLACK_SHIFT: u32 = 25;
const NAME_MASK: u32 = (1 << SLACK_SHIFT) - 1;
const SLACK_MASK: u32 = 31;
const ORDER_SHIFT: u32 = 21;
const ORDER_MASK: u32 = 15;
const LENGTH_MASK: u32 = (1 << ORDER_SHIFT) - 1;

const _: () = assert!(NAME_BITS <= SLACK_SHIFT);
const _: () = assert!(BLOCK_MIN - 1 <= SLACK_MASK as usize);
const _: () = assert!(PAGE_BYTES << ORDER_MAX <= 1 << ORDER_SHIFT);

/// The start of a block or a hole: bytes from the first frame of the span.
pub(super) type SpanOffset = u64;

/// A segment, by the number of its first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment(pub(super) u32);

impl Segment {
    /// No segment, in a list. Frame numbers stay below 2^24.
    pub(super) const NONE: Self = Self(u32::MAX);

    /// Returns the segment in a window of 2^`order` frames that holds a place.
    pub(super) fn of(at: SpanOffset, order: u8) -> Self {
        Self((at / PAGE_BYTES as u64) as u32 & !((1 << order) - 1))
    }

    pub(super) fn is_some(self) -> bool {
        self != Self::NONE
    }

    fn base(self) -> SpanOffset {
        u64::from(self.0) * PAGE_BYTES as u64
    }
}

/// Bytes of a head.
pub(super) const HEAD: usize = size_of::<Head>();

/// The head of a segment.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// The neighbours in the list of the segment's fullness.
    pub(super) next: Segment,
    pub(super) prev: Segment,
    /// The start and the end of the blocks, in bytes from the first byte of the segment. The end is
    /// the end of a frame.
    pub(super) start: u32,
    pub(super) end: u32,
    /// Bytes of the segment's blocks.
    pub(super) live: u32,
    /// The round of compaction in which the segment was made, or could not be drained.
    pub(super) round: u32,
    pub(super) order: u8,
    /// The list that the segment is in.
    pub(super) bucket: u8,
    /// Whether the segment is in no list, gets no objects, and keeps its holes unmerged.
    pub(super) draining: bool,
    /// Whether a hole ends where the segment ends. Not maintained while the segment is drained.
    pub(super) ends_in_hole: bool,
}

impl Head {
    /// Returns the bytes for blocks and holes.
    pub(super) fn capacity(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Returns the frames of the segment that the head describes, as numbers.
    pub(super) fn frames(&self, segment: Segment) -> impl Iterator<Item = u32> + use<> {
        let page = PAGE_BYTES as u32;
        let rest = segment.0 + (self.start / page).max(1)..segment.0 + self.end / page;
        core::iter::once(segment.0).chain(rest)
    }

    /// Returns the number of these frames.
    pub(super) fn frame_count(&self) -> usize {
        let page = PAGE_BYTES as u32;
        1 + (self.end / page - (self.start / page).max(1)) as usize
    }
}

/// A hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) at: SpanOffset,
    pub(super) length: usize,
    /// The order of its segment.
    pub(super) order: u8,
}

impl Hole {
    pub(super) fn end(self) -> SpanOffset {
        self.at + self.length as u64
    }

    pub(super) fn segment(self) -> Segment {
        Segment::of(self.at, self.order)
    }
}

/// The block or hole at a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tag {
    Block { name: Name, slack: usize, after_hole: bool },
    Hole { hole: Hole, parked: bool },
}

/// The bytes of all segments of a pool. Heads, tags and holes are reached through the one in
/// [`super::Layout`], under its lock; an object only by the thread that has it pinned.
#[derive(Clone, Copy)]
pub(super) struct Space<'f> {
    pub(super) frames: &'f FrameAllocator,
}

impl Space<'_> {
    pub(super) fn tag(&self, at: SpanOffset) -> Tag {
        let tag = self.word(at);
        if tag & HOLE != 0 {
            let length = (tag & LENGTH_MASK) as usize;
            let order = (tag >> ORDER_SHIFT & ORDER_MASK) as u8;
            return Tag::Hole { hole: Hole { at, length, order }, parked: tag & PARKED != 0 };
        }
        let slack = (tag >> SLACK_SHIFT & SLACK_MASK) as usize;
        let name = Name(tag & NAME_MASK);
        Tag::Block { name, slack, after_hole: tag & AFTER_HOLE != 0 }
    }

    /// Returns whether this hole lies at its place, in a list or parked.
    pub(super) fn is_hole(&self, hole: Hole, is_parked: bool) -> bool {
        matches!(self.tag(hole.at), Tag::Hole { hole: found, parked }
            if found == hole && parked == is_parked)
    }

    /// Writes the tag of a block.
    pub(super) fn set_block(&mut self, at: SpanOffset, name: Name, slack: usize, after_hole: bool) {
        debug_assert!(name.0 <= NAME_MASK && slack <= SLACK_MASK as usize);
        let flag = if after_hole { AFTER_HOLE } else { 0 };
        self.set_word(at, name.0 | (slack as u32) << SLACK_SHIFT | flag);
    }

    /// Notes in the neighbour at the end of a hole, a block or the end of the segment, whether the
    /// hole is there.
    pub(super) fn set_after_hole(&mut self, hole: Hole, after_hole: bool) {
        let segment = hole.segment();
        if hole.end() == self.end(segment) {
            self.head_mut(segment).ends_in_hole = after_hole;
        } else if let Tag::Block { name, slack, .. } = self.tag(hole.end()) {
            self.set_block(hole.end(), name, slack, after_hole);
        }
    }

    /// Returns the place of the first block or hole of a segment.
    pub(super) fn start(&self, segment: Segment) -> SpanOffset {
        segment.base() + u64::from(self.head(segment).start)
    }

    /// Returns the end of the last block or hole of a segment.
    pub(super) fn end(&self, segment: Segment) -> SpanOffset {
        segment.base() + u64::from(self.head(segment).end)
    }

    /// Sets the start of the blocks of a segment to `at`, a place after all frames that are gone.
    pub(super) fn set_start(&mut self, segment: Segment, at: SpanOffset) {
        let former = self.start(segment);
        debug_assert!((former..=self.end(segment)).contains(&at), "{at:#x} is not in the segment");
        self.head_mut(segment).start = (at - segment.base()) as u32;
    }

    /// Writes tag and end of a hole that is in no list.
    pub(super) fn park(&mut self, hole: Hole) {
        self.set_tag(hole, PARKED);
        self.set_word(hole.end() - LENGTH as u64, hole.length as u32);
    }

    /// Writes the tag of a hole, before or after it goes into a list.
    pub(super) fn set_parked(&mut self, hole: Hole, parked: bool) {
        self.set_tag(hole, if parked { PARKED } else { 0 });
    }

    fn set_tag(&mut self, hole: Hole, flag: u32) {
        let lengths = BLOCK_MIN..=LENGTH_MASK as usize;
        debug_assert!(lengths.contains(&hole.length) && hole.order <= ORDER_MAX, "{hole:?}");
        let order = u32::from(hole.order) << ORDER_SHIFT;
        self.set_word(hole.at, hole.length as u32 | order | flag | HOLE);
    }

    /// Returns the hole that ends at `at`, for a block that has one before it.
    pub(super) fn hole_before(&self, at: SpanOffset) -> Hole {
        let length = self.word(at - LENGTH as u64);
        match self.tag(at - u64::from(length)) {
            Tag::Hole { hole, .. } if hole.end() == at => hole,
            found => panic!("no hole before {at:#x}: {found:?}"),
        }
    }

    /// Returns the neighbours of a hole in its list; zero is none.
    pub(super) fn links(&self, at: SpanOffset) -> (SpanOffset, SpanOffset) {
        (self.double(at + TAG as u64), self.double(at + TAG as u64 + 8))
    }

    pub(super) fn set_next(&mut self, at: SpanOffset, next: SpanOffset) {
        self.set_double(at + TAG as u64, next);
    }

    pub(super) fn set_prev(&mut self, at: SpanOffset, prev: SpanOffset) {
        self.set_double(at + TAG as u64 + 8, prev);
    }

    /// Returns the object in the block at `at`, if it is `size` bytes long.
    ///
    /// # Safety
    /// There is such a block in these frames, and the caller has its object pinned for as long as
    /// the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the pin is what makes the bytes the caller's")]
    pub(super) unsafe fn object(&self, at: SpanOffset, size: usize) -> &mut [u8] {
        let start = self.address(at + TAG as u64, size).as_ptr();
        // SAFETY: bytes of a block behind its tag, which only the thread reaches that has the
        // object pinned.
        unsafe { slice::from_raw_parts_mut(start, size) }
    }

    pub(super) fn head(&self, segment: Segment) -> &Head {
        let address = self.address(segment.base(), size_of::<Head>()).cast::<Head>();
        // SAFETY: a live segment starts with a head (invariant 1), at the start of a frame, and the
        // head changes by `&mut self` only.
        unsafe { address.as_ref() }
    }

    pub(super) fn head_mut(&mut self, segment: Segment) -> &mut Head {
        let mut address = self.address(segment.base(), size_of::<Head>()).cast::<Head>();
        // SAFETY: as in `head`, and we are borrowed mutably.
        unsafe { address.as_mut() }
    }

    /// Makes a segment of `frames` frames in a window of 2^`order`: a head, and a parked hole as
    /// long as the rest.
    ///
    /// # Safety
    /// The frames from the first of the segment on belong to the caller, and from now on to the
    /// segment.
    pub(super) unsafe fn found(&mut self, segment: Segment, order: u8, frames: usize) -> Hole {
        let end = frames * PAGE_BYTES;
        assert!((1..=1 << order).contains(&frames), "{frames} frames in a window of 2^{order}");
        let head = Head {
            next: Segment::NONE,
            prev: Segment::NONE,
            start: HEAD as u32,
            end: end as u32,
            live: 0,
            round: 0,
            order,
            bucket: 0,
            draining: false,
            ends_in_hole: true,
        };
        let address = self.address(segment.base(), HEAD).cast::<Head>();
        // SAFETY: the caller promises that the frame belongs to the segment, and it is long enough.
        unsafe { address.write(head) };
        let hole = Hole { at: segment.base() + HEAD as u64, length: end - HEAD, order };
        self.park(hole);
        hole
    }

    /// Adds frames to the end of a segment. Returns a parked hole that covers them, merged with the
    /// hole before them, which is then in no list.
    ///
    /// # Safety
    /// The frames behind the last of the segment belong to the caller, and from now on to the
    /// segment.
    pub(super) unsafe fn extend(
        &mut self,
        segment: Segment,
        frames: usize,
        tail: Option<Hole>,
    ) -> Hole {
        let (at, length, order) =
            (self.end(segment), frames * PAGE_BYTES, self.head(segment).order);
        let head = self.head_mut(segment);
        head.end += length as u32;
        assert!(head.end as usize <= PAGE_BYTES << order, "the segment leaves its window");
        head.ends_in_hole = true;
        let before = tail.unwrap_or(Hole { at, length: 0, order });
        let hole = Hole { length: before.length + length, ..before };
        self.park(hole);
        hole
    }

    fn word(&self, at: SpanOffset) -> u32 {
        // SAFETY: bytes of a segment of ours (invariant 1), which change by `&mut self` only.
        unsafe { self.address(at, 4).cast::<u32>().read_unaligned() }
    }

    fn set_word(&mut self, at: SpanOffset, word: u32) {
        // SAFETY: bytes of a segment of ours (invariant 1), and we are borrowed mutably.
        unsafe { self.address(at, 4).cast::<u32>().write_unaligned(word) };
    }

    fn double(&self, at: SpanOffset) -> u64 {
        // SAFETY: bytes of a segment of ours (invariant 1), which change by `&mut self` only.
        unsafe { self.address(at, 8).cast::<u64>().read_unaligned() }
    }

    fn set_double(&mut self, at: SpanOffset, double: u64) {
        // SAFETY: bytes of a segment of ours (invariant 1), and we are borrowed mutably.
        unsafe { self.address(at, 8).cast::<u64>().write_unaligned(double) };
    }

    fn address(&self, at: SpanOffset, length: usize) -> NonNull<u8> {
        debug_assert!(
            [at, at + length as u64 - 1].iter().all(|byte| {
                let frame = FrameId::from_index((byte / PAGE_BYTES as u64) as u32);
                self.frames.descriptor(frame).is_handed_out()
            }),
            "{at:#x} is not in a segment"
        );
        self.frames.address_at(Bytes(at as usize))
    }
}
