//! segment: objects packed to the byte in large chunks of frames, holes filled to the byte.
//!
//! Idea: a segment is a run of frames side by side, up to a whole block of 2 MiB, so an object lies
//! across frame borders and is still read in one piece. A new object takes the best-fitting hole of
//! the pool, else the newest segment grows. When more than `WASTE` thousandths are lost, each call
//! drains the emptiest segment a little: its objects go into the best-fitting holes of the others,
//! so that a byte of hole costs about a byte of copying. (Cleaning a log, which writes live objects
//! to fresh space and leaves holes alone (Rosenblum and Ousterhout 1992), would cost about 20 at
//! this density.) `space` lays out a segment, `grow` and `holes` find room, `lists` orders
//! segments, `drain` empties them.
//!
//! Readers know an object's place from its pinned word. Everything else happens under one lock, a
//! little at a time, and an object being read stays where it is.
//!
//! Invariants, while no thread has the lock of the layout:
//! 1. Blocks and holes cover a segment without gaps. No two holes are side by side, and a hole is
//!    in its list, except in a segment being drained.
//! 2. A handle word names a block with its name in the tag, and each block is named by one.
//! 3. A segment that is not being drained is in the list of its fullness; `live` is the sum of its
//!    blocks. None is empty.
//! 4. After a failed allocation the objects and their bytes are as they were.

mod check;
mod drain;
mod grow;
mod holes;
mod lists;
mod space;
#[cfg(test)]
mod tests;

use coldpress_sys::sync::SpinLock;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use super::handle::Name;
use super::handles::HandleTable;
use super::{
    AllocError, ClassStats, Compacted, Handle, OBJECT_MAX, Pool, PoolStats, STEP, UnknownHandle,
    check_size,
};
use crate::frames::{Descriptor, FrameAllocator, FrameId, Migrate, MoveClaim, Shrunk};
use drain::Drain;
use holes::Holes;
use lists::bucket_of;
use space::{BLOCK_MIN, HEAD, Hole, Segment, Space, SpanOffset, TAG, Tag};

/// Number of lists of segments, by the share of holes in them.
const BUCKETS: usize = 128;
/// Bytes besides the objects, in thousandths of the objects' bytes, before segments are drained
/// unasked. A smaller share would cost more copying, because there would be fewer holes to choose
/// from.
const WASTE: usize = 27;
/// Thousandths of the pool that holes may take in any case, where small objects make tags costly.
const HOLES: usize = 10;
/// The place and size of an object, as kept in its handle word. The low 16 bits are never zero.
#[derive(Clone, Copy)]
struct Location {
    /// The place of its block.
    at: SpanOffset,
    /// The order of its segment.
    order: u8,
    /// The requested size, 1 to 4096.
    size: usize,
}

impl Location {
    const ORDER_SHIFT: u32 = 16;
    const PLACE_SHIFT: u32 = 20;

    fn to_word(self) -> u64 {
        self.at << Self::PLACE_SHIFT | u64::from(self.order) << Self::ORDER_SHIFT | self.size as u64
    }

    fn from_word(word: u64) -> Self {
        let order = (word >> Self::ORDER_SHIFT & 15) as u8;
        Self { at: word >> Self::PLACE_SHIFT, order, size: usize::from(word as u16) }
    }

    fn segment(self) -> Segment {
        Segment::of(self.at, self.order)
    }

    /// Returns the location of a name in use.
    fn of(handles: &HandleTable<'_>, name: Name) -> Self {
        Self::from_word(handles.get_named(name).expect("the name is in use"))
    }

    /// Returns the length of the object's block, with `slack` bytes of slack.
    fn block(self, slack: usize) -> usize {
        block_of(self.size) + slack
    }
}

/// Returns the length of the block of an object, without slack.
fn block_of(size: usize) -> usize {
    (TAG + size).max(BLOCK_MIN)
}

/// A pool of segments.
pub struct Segments<'f> {
    space: Space<'f>,
    handles: HandleTable<'f>,
    layout: SpinLock<Layout<'f>>,
}

/// The structures of the pool, under their lock.
struct Layout<'f> {
    space: Space<'f>,
    holes: Holes,
    /// The first segment of each share of holes, the fullest first.
    buckets: [Segment; BUCKETS],
    /// The sum of the sizes of all objects.
    bytes_stored: Bytes,
    frames_held: usize,
    segments: usize,
    /// Bytes of all blocks.
    live: usize,
    /// The segment that may grow.
    newest: Segment,
    drain: Option<Drain>,
    /// The number of rounds of [`Pool::compact`], and whether objects came or went since the last.
    round: u32,
    touched: bool,
    /// Frames that new segments took in this round, beyond those that the round gave back.
    owed: usize,
    /// Calls to skip before segments are drained unasked again, after frames ran out.
    wait: u32,
    moved: Bytes,
    /// As `moved`, with [`MOVE_COST`] added for each object.
    work: Bytes,
    /// Whether the last [`Pool::compact`] found nothing left to do, and nothing has changed since.
    settled: bool,
    /// The right to move frames, held while the pool has frames and was the first in their
    /// allocator.
    claim: Option<MoveClaim<'f>>,
}

impl<'f> Segments<'f> {
    /// Makes an empty pool; it holds no frame yet.
    ///
    /// The structure is about 36 KiB: make it in place, for example in a `static`.
    pub const fn new(frames: &'f FrameAllocator) -> Self {
        let layout = Layout {
            space: Space { frames },
            holes: Holes::new(),
            buckets: [Segment::NONE; BUCKETS],
            bytes_stored: Bytes(0),
            frames_held: 0,
            segments: 0,
            live: 0,
            newest: Segment::NONE,
            drain: None,
            round: 0,
            touched: false,
            owed: 0,
            wait: 0,
            moved: Bytes(0),
            work: Bytes(0),
            settled: false,
            claim: None,
        };
        Self {
            space: Space { frames },
            handles: HandleTable::new(frames),
            layout: SpinLock::new(layout),
        }
    }

    /// Returns the bytes of objects that were moved, by [`Pool::compact`] and unasked.
    pub fn bytes_moved(&self) -> Bytes {
        self.layout.lock().moved
    }

    /// Calls `f` with the object's bytes, which no other thread uses meanwhile.
    fn with_bytes<R>(
        &self,
        handle: Handle,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, UnknownHandle> {
        let pinned = self.handles.pin(handle)?;
        let Location { at, size, .. } = Location::from_word(pinned.word());
        // SAFETY: the word names a block of this size (invariant 2), which is pinned until `f`
        // returns.
        Ok(f(unsafe { self.space.object(at, size) }))
    }
}

impl Layout<'_> {
    /// Returns the bytes that no block takes.
    fn hole_bytes(&self) -> usize {
        self.frames_held * PAGE_BYTES - self.segments * HEAD - self.live
    }

    /// Makes a block in a hole that is in its list, and writes nothing but the tag.
    fn take(&mut self, hole: Hole, wanted: usize, name: Name) {
        assert!(hole.length >= wanted, "{wanted} bytes in {hole:?}");
        self.holes.remove(&mut self.space, hole);
        let rest = hole.length - wanted;
        let slack = if rest >= BLOCK_MIN {
            let at = hole.at + wanted as u64;
            let rest = Hole { at, length: rest, order: hole.order };
            self.space.park(rest);
            self.holes.insert(&mut self.space, rest);
            0
        } else {
            self.space.set_after_hole(hole, false);
            rest
        };
        self.space.set_block(hole.at, name, slack, false);
        self.add_live(hole.segment(), (wanted + slack) as isize);
    }

    /// Makes a hole of a block, and gives back the segment with the last block.
    fn release(&mut self, location: Location) {
        let Location { at, order, .. } = location;
        let segment = location.segment();
        let Tag::Block { slack, after_hole, .. } = self.space.tag(at) else {
            panic!("no block at {at:#x}");
        };
        let mut hole = Hole { at, length: location.block(slack), order };
        self.add_live(segment, -(hole.length as isize));
        let head = *self.space.head(segment);
        if head.draining {
            self.space.park(hole);
        } else {
            if hole.end() < self.space.end(segment)
                && let Tag::Hole { hole: next, .. } = self.space.tag(hole.end())
            {
                self.holes.remove(&mut self.space, next);
                hole.length += next.length;
            }
            if after_hole {
                let before = self.space.hole_before(at);
                self.holes.remove(&mut self.space, before);
                hole = Hole { at: before.at, length: before.length + hole.length, order };
            }
            self.space.park(hole);
            self.space.set_after_hole(hole, true);
            self.holes.insert(&mut self.space, hole);
        }
        if head.live == 0 {
            self.drop_segment(segment);
        }
    }

    /// Returns how full the pool is with this number of objects.
    fn class_stats(&self, objects: usize) -> ClassStats {
        let mut class = ClassStats {
            size: OBJECT_MAX,
            // Estimates the room for more objects of the mean size.
            obj_allocated: objects + self.hole_bytes() * objects / self.live.max(1),
            obj_used: objects,
            pages_used: PageCount(self.frames_held),
            pages_per_zspage: self.frames_held / self.segments,
            freeable: PageCount(self.hole_bytes() / PAGE_BYTES),
            ..ClassStats::default()
        };
        self.for_each_listed(|_, head| match bucket_of(head) {
            0 => {}
            bucket if bucket < BUCKETS * 3 / 4 => class.almost_full += 1,
            _ => class.almost_empty += 1,
        });
        class
    }
}

impl Pool for Segments<'_> {
    fn alloc(&self, size: Bytes) -> Result<Handle, AllocError> {
        check_size(size)?;
        let wanted = block_of(size.0);
        let layout = &mut *self.layout.lock();
        let hole = layout.hole(&self.handles, wanted).ok_or(AllocError::NoFrame)?;
        let location = Location { at: hole.at, order: hole.order, size: size.0 };
        let Some((handle, pinned)) = self.handles.insert(location.to_word()) else {
            layout.drop_empty();
            return Err(AllocError::NoFrame);
        };
        layout.take(hole, wanted, handle.name);
        drop(pinned);
        layout.bytes_stored += size;
        layout.touched = true;
        layout.clean(&self.handles);
        Ok(handle)
    }

    fn free(&self, handle: Handle) -> Result<(), UnknownHandle> {
        let pinned = self.handles.pin(handle)?;
        let location = Location::from_word(pinned.word());
        let layout = &mut *self.layout.lock();
        self.handles.remove(handle.name, pinned);
        layout.release(location);
        layout.bytes_stored -= Bytes(location.size);
        layout.touched = true;
        layout.clean(&self.handles);
        Ok(())
    }

    fn size(&self, handle: Handle) -> Result<Bytes, UnknownHandle> {
        let word = self.handles.get(handle)?;
        Ok(Bytes(Location::from_word(word).size))
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle> {
        self.with_bytes(handle, |object| {
            assert_eq!(bytes.len(), object.len(), "an object is written whole");
            object.copy_from_slice(bytes);
        })
    }

    fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle> {
        self.with_bytes(handle, |object| f(object))
    }

    fn stats(&self) -> PoolStats {
        PoolStats { frames: self.frames(), ..self.handles.stats::<Self>() }
    }

    fn frames(&self) -> PageCount {
        PageCount(self.layout.lock().frames_held)
    }

    fn classes(&self, visit: &mut dyn FnMut(ClassStats)) {
        let class = {
            let layout = self.layout.lock();
            let objects = self.handles.stats::<Self>().objects;
            (layout.segments > 0).then(|| layout.class_stats(objects))
        };
        class.into_iter().for_each(visit);
    }

    fn compact(&self, budget: Bytes) -> Compacted {
        self.layout.lock().begin_round();
        let (mut done, mut left) = (Compacted::default(), budget);
        loop {
            let asked = left.min(STEP);
            let (step, work) = self.layout.lock().compact(&self.handles, asked);
            (done.moved, done.freed) = (done.moved + step.moved, done.freed + step.freed);
            left = Bytes(left.0.saturating_sub(work.0));
            if work < asked || left == Bytes(0) {
                return done;
            }
        }
    }

    fn shrink_frames(&self, online: Bytes) -> Shrunk {
        let mut mover = self;
        // SAFETY: `migrate` moves for every owner while we have the claim, and nothing without it.
        let shrunk = unsafe { self.space.frames.shrink_to(online, &mut mover) };
        self.layout.lock().drop_empty();
        shrunk
    }

    fn give_up_moves(&mut self) {
        if let Some(claim) = self.layout.get_mut().claim.take() {
            // SAFETY: only frames of the pool with the claim have an owner, and we have it alone.
            unsafe { claim.disown() };
        }
    }

    fn check(&mut self) {
        let stats = self.stats();
        self.layout.lock().check(&self.handles, stats);
        self.handles.check();
    }
}

impl Migrate for &Segments<'_> {
    unsafe fn migrate(&mut self, from: FrameId, to: FrameId, owner: u32, index: u8) -> bool {
        let mut layout = self.layout.lock();
        // With the claim, all frames with an owner are ours, and keep it while we have the lock.
        let is_ours = self.space.frames.descriptor(from) == Descriptor::Movable { owner, index };
        // SAFETY: `to` is handed out to us.
        layout.claim.is_some()
            && is_ours
            && unsafe { layout.exchange(&self.handles, Segment(owner), to) }
    }
}
