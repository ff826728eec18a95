//! The frames of the pool, cut into blocks of any size.
//!
//! Idea: a block is a header of four bytes and its payload. The header has the length of the block,
//! the start of the block before it, and whether either is free, so neighbours are found without a
//! table (D. Knuth's boundary tags). Free blocks keep the links of their list in themselves.
//!
//! Invariants:
//! 1. The blocks of a frame follow each other without a gap from its first byte to its last.
//! 2. No two free blocks lie side by side, and no frame is one free block.
//! 3. A free block is on the list of its size, or too small for any list. Bit `i` of the bitmap is
//!    set when list `i` is not empty.

use core::mem::{replace, size_of};
use core::ptr::NonNull;
use core::slice;

use coldpress_sys::{PAGE_BYTES, PageCount};

use super::super::bitmap::Bitmap;
use crate::frames::{FrameAllocator, FrameId, Mobility};

/// Alignment of blocks and of their lengths: `XV_ALIGN` of Linux's xvmalloc.
const ALIGN: usize = 4;
const HEADER: usize = size_of::<Header>();
/// Bytes of the smallest free block on a list: `XV_MIN_ALLOC_SIZE` of Linux's xvmalloc.
const LISTED_MIN: usize = 32;
/// Difference between the sizes of neighbouring lists: `FL_DELTA` of Linux's xvmalloc.
const STEP: usize = 8;
/// The maximum bytes that a block holds: `XV_MAX_ALLOC_SIZE` of Linux's xvmalloc.
pub(super) const PAYLOAD_MAX: usize = PAGE_BYTES - HEADER;
const LISTS: usize = (PAYLOAD_MAX - LISTED_MIN) / STEP + 1;

/// Flags of a header, in the low bits of `before`.
const FREE: u16 = 1;
const BEFORE_FREE: u16 = 2;

/// The header before each block.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Header {
    /// Bytes that the block holds, without the header.
    pub(super) size: u16,
    /// The start of the block before this one, and the flags.
    before: u16,
}

impl Header {
    pub(super) fn is_free(self) -> bool {
        self.before & FREE != 0
    }
}

/// The place of a block's header.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockPlace {
    pub(super) frame: u32,
    pub(super) offset: u16,
}

impl BlockPlace {
    const NONE: Self = Self { frame: u32::MAX, offset: 0 };

    fn is_some(self) -> bool {
        self != Self::NONE
    }

    fn at(self, offset: u16) -> Self {
        Self { offset, ..self }
    }

    fn address(self, frames: &FrameAllocator) -> NonNull<u8> {
        let frame = frames.address(FrameId::from_index(self.frame));
        assert!(usize::from(self.offset) < PAGE_BYTES);
        // SAFETY: the offset is inside the frame.
        unsafe { frame.add(self.offset.into()) }
    }

    /// Returns the payload of the block here, if it is `size` bytes long.
    ///
    /// # Safety
    /// The block lies in these frames, holds an object of this size, and the caller has it pinned
    /// for as long as the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the pin is what makes the bytes the caller's")]
    pub(super) unsafe fn bytes(self, frames: &FrameAllocator, size: usize) -> &mut [u8] {
        let header = if size > PAYLOAD_MAX { 0 } else { HEADER };
        assert!(usize::from(self.offset) + header + size <= PAGE_BYTES);
        // SAFETY: the bytes are inside a frame, behind the header if there is one. By the caller's
        // promise, only the thread that has the object pinned reaches them.
        unsafe { slice::from_raw_parts_mut(self.address(frames).add(header).as_ptr(), size) }
    }
}

/// The links in a free block that is on a list.
#[repr(C)]
#[derive(Clone, Copy)]
struct Links {
    next: BlockPlace,
    prev: BlockPlace,
}

const _: () = assert!(size_of::<Links>() <= LISTED_MIN && align_of::<Links>() <= ALIGN);

/// All blocks of a pool.
pub(super) struct Blocks<'f> {
    frames: &'f FrameAllocator,
    heads: [BlockPlace; LISTS],
    lists: Bitmap<{ LISTS.div_ceil(64) }>,
    frames_held: usize,
}

impl<'f> Blocks<'f> {
    pub(super) const fn new(frames: &'f FrameAllocator) -> Self {
        Self { frames, heads: [BlockPlace::NONE; LISTS], lists: Bitmap::new(), frames_held: 0 }
    }

    /// Returns the frames that hold objects.
    pub(super) fn frames_held(&self) -> PageCount {
        PageCount(self.frames_held)
    }

    /// Takes a block for `size` bytes, 1 to 4096. Returns `None`, and changes nothing, without a
    /// frame.
    pub(super) fn take(&mut self, size: usize) -> Option<BlockPlace> {
        debug_assert!((1..=PAGE_BYTES).contains(&size), "{size} is no object's size");
        if size > PAYLOAD_MAX {
            // Such an object leaves no room for a header. It needs none: no other block lies in its
            // frame.
            return self.take_frame();
        }
        let size = size.next_multiple_of(ALIGN);
        let list = size.max(LISTED_MIN).next_multiple_of(STEP) - LISTED_MIN;
        let place = match self.lists.first_from(list / STEP) {
            Some(list) => {
                let place = self.heads[list];
                self.unlist(place);
                place
            }
            None => {
                let place = self.take_frame()?;
                self.set_header(place, Header { size: PAYLOAD_MAX as u16, before: FREE });
                place
            }
        };
        self.split(place, size);
        Some(place)
    }

    /// Frees the block that [`Blocks::take`] returned for this size.
    pub(super) fn give(&mut self, place: BlockPlace, size: usize) {
        if size > PAYLOAD_MAX {
            return self.give_frame(place);
        }
        let mut place = place;
        let mut header = self.header(place);
        assert!(!header.is_free(), "a block is freed once");
        if let Some(next) = self.after(place, header) {
            let neighbour = self.header(next);
            if neighbour.is_free() {
                self.unlist_if_listed(next, neighbour);
                header.size += neighbour.size + HEADER as u16;
            }
        }
        if header.before & BEFORE_FREE != 0 {
            let first = place.at(header.before & !(FREE | BEFORE_FREE));
            let neighbour = self.header(first);
            self.unlist_if_listed(first, neighbour);
            header = Header { size: neighbour.size + HEADER as u16 + header.size, ..neighbour };
            place = first;
        }
        if usize::from(header.size) == PAYLOAD_MAX {
            return self.give_frame(place);
        }
        header.before |= FREE;
        self.set_header(place, header);
        if let Some(next) = self.after(place, header) {
            let size = self.header(next).size;
            self.set_header(next, Header { size, before: place.offset | BEFORE_FREE });
        }
        self.list_if_large(place, header);
    }

    /// Returns the blocks of a frame, which must not be one object, in order.
    pub(super) fn blocks_of(&self, frame: u32) -> impl Iterator<Item = (BlockPlace, Header)> {
        let mut next = Some(BlockPlace { frame, offset: 0 });
        core::iter::from_fn(move || {
            let place = next?;
            let header = self.header(place);
            next = self.after(place, header);
            Some((place, header))
        })
    }

    /// Cuts the part beyond `size` off the end of a block, and marks the block as used.
    fn split(&mut self, place: BlockPlace, size: usize) {
        let whole = self.header(place);
        assert!(whole.is_free() && usize::from(whole.size) >= size, "no block for {size} bytes");
        let header = Header { size: size as u16, before: whole.before & !FREE };
        let beyond = usize::from(whole.size) - size;
        let next = self.after(place, whole);
        // The rest is at least a header, because all lengths are multiples of its size.
        self.set_header(place, header);
        let before = if beyond == 0 {
            place.offset
        } else {
            let rest = place.at(place.offset + (HEADER + size) as u16);
            let size = (beyond - HEADER) as u16;
            let header = Header { size, before: place.offset | FREE };
            self.set_header(rest, header);
            self.list_if_large(rest, header);
            rest.offset | BEFORE_FREE
        };
        if let Some(next) = next {
            let size = self.header(next).size;
            self.set_header(next, Header { size, before });
        }
    }

    fn take_frame(&mut self) -> Option<BlockPlace> {
        let frame = self.frames.alloc(Mobility::Core)?.index();
        self.frames_held += 1;
        Some(BlockPlace { frame, offset: 0 })
    }

    fn give_frame(&mut self, place: BlockPlace) {
        assert!(self.frames_held > 0, "a frame is given back once");
        self.frames_held -= 1;
        // SAFETY: the frame is ours and whole: its blocks are freed, and on no list.
        unsafe { self.frames.free(FrameId::from_index(place.frame)) };
    }

    fn list_if_large(&mut self, place: BlockPlace, Header { size, .. }: Header) {
        if usize::from(size) < LISTED_MIN {
            return;
        }
        debug_assert!(self.header(place).is_free(), "{place:?} is in use");
        let list = list_of(size);
        let next = replace(&mut self.heads[list], place);
        if next.is_some() {
            self.links_mut(next).prev = place;
        }
        *self.links_mut(place) = Links { next, prev: BlockPlace::NONE };
        self.lists.insert(list);
    }

    fn unlist_if_listed(&mut self, place: BlockPlace, Header { size, .. }: Header) {
        if usize::from(size) >= LISTED_MIN {
            self.unlist(place);
        }
    }

    fn unlist(&mut self, place: BlockPlace) {
        let list = list_of(self.header(place).size);
        let Links { next, prev } = *self.links_mut(place);
        debug_assert!(prev.is_some() || self.heads[list] == place, "{place:?} is not on its list");
        if next.is_some() {
            self.links_mut(next).prev = prev;
        }
        if prev.is_some() {
            self.links_mut(prev).next = next;
            return;
        }
        self.heads[list] = next;
        if !next.is_some() {
            self.lists.remove(list);
        }
    }

    /// Returns the block behind `place` in the same frame.
    fn after(&self, place: BlockPlace, header: Header) -> Option<BlockPlace> {
        let end = usize::from(place.offset) + HEADER + usize::from(header.size);
        assert!(end <= PAGE_BYTES, "a block ends in its frame");
        (end < PAGE_BYTES).then(|| place.at(end as u16))
    }

    fn address(&self, place: BlockPlace) -> NonNull<u8> {
        place.address(self.frames)
    }

    /// Returns the header of a block. Only places of blocks are passed in.
    pub(super) fn header(&self, place: BlockPlace) -> Header {
        // SAFETY: a block begins there, in a frame of ours (invariant 1), aligned to four bytes.
        unsafe { self.address(place).cast().read() }
    }

    fn set_header(&mut self, place: BlockPlace, header: Header) {
        debug_assert!(usize::from(place.offset).is_multiple_of(ALIGN), "{place:?} is misaligned");
        // SAFETY: the place is a multiple of four in a frame of ours, so four bytes fit.
        unsafe { self.address(place).cast().write(header) }
    }

    /// Returns the links of a free block of at least [`LISTED_MIN`] bytes.
    fn links_mut(&mut self, place: BlockPlace) -> &mut Links {
        let header = self.header(place);
        debug_assert!(header.is_free() && usize::from(header.size) >= LISTED_MIN, "{place:?}");
        // SAFETY: that many bytes of the block lie behind its header in a frame of ours, aligned to
        // four; no thread uses a free block's bytes, and we are borrowed mutably. Any bytes are
        // valid links.
        unsafe { self.address(place).add(HEADER).cast::<Links>().as_mut() }
    }

    /// Checks the blocks of a frame, and returns how many are on lists.
    pub(super) fn check_frame(&self, frame: u32) -> usize {
        let (mut offset, mut free, mut listed, mut end) = (0, false, 0, 0);
        for (place, header) in self.blocks_of(frame) {
            assert_eq!(header.before & !(FREE | BEFORE_FREE), offset, "lost the block before");
            assert_eq!(header.before & BEFORE_FREE != 0, free, "whether the one before is free");
            assert!(!(free && header.is_free()), "free neighbours were not merged");
            (offset, free) = (place.offset, header.is_free());
            listed += usize::from(free && usize::from(header.size) >= LISTED_MIN);
            end = usize::from(offset) + HEADER + usize::from(header.size);
        }
        assert_eq!(end, PAGE_BYTES, "the blocks do not fill their frame");
        listed
    }

    /// Checks the lists, and returns how many blocks are on them.
    pub(super) fn check_lists(&mut self) -> usize {
        let mut count = 0;
        for list in 0..LISTS {
            let (mut place, mut last) = (self.heads[list], BlockPlace::NONE);
            assert_eq!(self.lists.contains(list), place.is_some(), "bit {list}");
            while place.is_some() {
                let header = self.header(place);
                assert!(header.is_free() && list_of(header.size) == list, "on the wrong list");
                let Links { next, prev } = *self.links_mut(place);
                assert_eq!(prev, last, "broken list");
                (last, place, count) = (place, next, count + 1);
            }
        }
        count
    }
}

/// Returns the list of free blocks of this size, at least [`LISTED_MIN`]: every block on it holds
/// the smallest size that belongs there.
fn list_of(size: u16) -> usize {
    (usize::from(size) - LISTED_MIN) / STEP
}

const _: () = assert!(LISTS == 508);
