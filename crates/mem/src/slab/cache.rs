//! One size class: frames cut into objects of one size.
//!
//! Idea: a frame starts with a header; the objects are counted from the frame's end. Freed objects
//! are chained through their first two bytes, objects never handed out lie beyond `carved`. The
//! header of an object is found by clearing the low bits of its address.
//!
//! Invariants:
//! 1. A frame of this class is on exactly one list: `full` when all its objects are out, `partial`
//!    when some are, `spare` when none is. There is at most one spare frame.
//! 2. `in_use` of a header counts the objects that are out; in `carved` objects, the others are
//!    chained from `free`, each once.

use core::mem::{self, size_of};
use core::ptr::NonNull;

use coldpress_sys::PAGE_BYTES;

use super::size_class::{GRANULE, HEADER_BYTES, capacity, object_bytes};
use crate::frames::{FrameAllocator, FrameId};

/// No frame, in a link.
const NONE: u32 = u32::MAX;
/// No object, in a chain: the place of the header.
const END: u16 = 0;

/// The head of a slab frame.
#[repr(C, align(16))]
struct Header {
    next: u32,
    prev: u32,
    frame: u32,
    in_use: u16,
    /// The first freed object, as its distance from the frame's start in granules.
    free: u16,
    /// Objects ever handed out.
    carved: u16,
    class: u16,
}

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

/// The frames of one class. The methods must always get the same allocator and class.
pub(super) struct Cache {
    partial: u32,
    full: u32,
    spare: u32,
    pub(super) frames: usize,
    pub(super) objects: usize,
}

impl Cache {
    pub(super) const EMPTY: Self =
        Self { partial: NONE, full: NONE, spare: NONE, frames: 0, objects: 0 };

    /// An object with undefined contents. `None` when there is no frame.
    pub(super) fn alloc(&mut self, frames: &FrameAllocator, class: usize) -> Option<NonNull<u8>> {
        let frame = if self.partial != NONE {
            self.partial
        } else {
            let frame = self.empty_frame(frames, class)?;
            link(frames, &mut self.partial, frame);
            frame
        };
        let header = header_of(frames, frame);
        let base = header.cast::<u8>();
        // SAFETY: the frame is ours and starts with a header (invariant 1), and we hold the cache
        // mutably. It is partial, so there is a chained object or one not yet carved, inside the
        // frame.
        let object = unsafe {
            let header = &mut *header.as_ptr();
            let object = if header.free != END {
                let object = base.add(usize::from(header.free) * GRANULE);
                header.free = object.cast::<u16>().read();
                object
            } else {
                header.carved += 1;
                base.add(PAGE_BYTES - usize::from(header.carved) * object_bytes(class))
            };
            header.in_use += 1;
            if usize::from(header.in_use) == capacity(class) {
                unlink(frames, &mut self.partial, frame);
                link(frames, &mut self.full, frame);
            }
            object
        };
        self.objects += 1;
        Some(object)
    }

    /// The spare frame, or a new one.
    fn empty_frame(&mut self, frames: &FrameAllocator, class: usize) -> Option<u32> {
        if self.spare != NONE {
            return Some(mem::replace(&mut self.spare, NONE));
        }
        let frame = frames.alloc()?.index();
        let class = class as u16;
        let header =
            Header { next: NONE, prev: NONE, frame, in_use: 0, free: END, carved: 0, class };
        // SAFETY: the frame was just handed to us, and is large and aligned enough for a header.
        unsafe { header_of(frames, frame).write(header) };
        self.frames += 1;
        Some(frame)
    }

    /// Takes an object back.
    ///
    /// # Safety
    /// `object` came from [`Cache::alloc`] of this cache, was not freed since, and is not used any
    /// more.
    pub(super) unsafe fn free(
        &mut self,
        frames: &FrameAllocator,
        class: usize,
        object: NonNull<u8>,
    ) {
        let address = object.as_ptr().addr();
        let header = object.as_ptr().map_addr(|address| address & !(PAGE_BYTES - 1));
        // SAFETY: the object lies in a frame of ours behind its header, by the caller's promise,
        // and its own bytes are free to hold the chain.
        let (frame, was_full, empty) = unsafe {
            let header = &mut *header.cast::<Header>();
            assert_eq!(usize::from(header.class), class, "freed with another layout");
            let was_full = usize::from(header.in_use) == capacity(class);
            object.cast::<u16>().write(header.free);
            header.free = (address % PAGE_BYTES / GRANULE) as u16;
            header.in_use -= 1;
            (header.frame, was_full, header.in_use == 0)
        };
        self.objects -= 1;
        if was_full {
            unlink(frames, &mut self.full, frame);
            link(frames, &mut self.partial, frame);
        }
        if empty {
            unlink(frames, &mut self.partial, frame);
            if self.spare == NONE {
                self.spare = frame;
            } else {
                self.frames -= 1;
                // SAFETY: the frame is ours, is on no list any more, and none of its objects is
                // out.
                unsafe { frames.free(FrameId::from_index(frame)) };
            }
        }
    }

    /// Gives the spare frame back.
    pub(super) fn trim(&mut self, frames: &FrameAllocator) {
        let spare = mem::replace(&mut self.spare, NONE);
        if spare != NONE {
            self.frames -= 1;
            // SAFETY: the spare frame is ours, on no list any more, and none of its objects is out.
            unsafe { frames.free(FrameId::from_index(spare)) };
        }
    }

    /// Gives all frames back, those with objects too.
    ///
    /// # Safety
    /// Nobody uses an object of this cache any more.
    pub(super) unsafe fn release(&mut self, frames: &FrameAllocator) {
        for head in [self.partial, self.full, self.spare] {
            let mut frame = head;
            while frame != NONE {
                // SAFETY: a listed frame is ours and starts with a header; nobody uses its objects,
                // by the caller's promise. The link is read before the frame goes.
                unsafe {
                    let next = header_of(frames, frame).as_ref().next;
                    frames.free(FrameId::from_index(frame));
                    frame = next;
                }
            }
        }
        *self = Self::EMPTY;
    }

    /// Walks all lists and chains. Panics when an invariant is broken.
    pub(super) fn check(&self, frames: &FrameAllocator, class: usize) {
        let full = capacity(class)..=capacity(class);
        let lists =
            [(self.partial, 1..=capacity(class) - 1), (self.full, full), (self.spare, 0..=0)];
        let (mut frame_count, mut object_count) = (0, 0);
        for (head, expected) in lists {
            let (mut frame, mut prev) = (head, NONE);
            while frame != NONE {
                // SAFETY: a listed frame is ours and starts with a header; nobody changes it while
                // we have the cache.
                let header = unsafe { header_of(frames, frame).as_ref() };
                assert_eq!((header.prev, header.frame), (prev, frame), "broken list");
                assert_eq!(usize::from(header.class), class);
                let in_use = usize::from(header.in_use);
                assert!(expected.contains(&in_use), "{in_use} objects out on the wrong list");
                check_chain(header, class);
                frame_count += 1;
                object_count += in_use;
                (frame, prev) = (header.next, frame);
                assert!(head != self.spare || frame == NONE, "more than one spare frame");
            }
        }
        assert_eq!((frame_count, object_count), (self.frames, self.objects));
    }
}

/// Follows the chain of freed objects: inside the frame, on object starts, each once, none missing.
fn check_chain(header: &Header, class: usize) {
    let base = core::ptr::from_ref(header).cast::<u8>();
    let mut seen = [false; PAGE_BYTES / GRANULE];
    let (mut free, mut count) = (header.free, 0);
    while free != END {
        let from_end = PAGE_BYTES - usize::from(free) * GRANULE;
        assert!(from_end.is_multiple_of(object_bytes(class)), "the chain leaves the objects");
        assert!(from_end / object_bytes(class) <= usize::from(header.carved), "not yet carved");
        assert!(!mem::replace(&mut seen[usize::from(free)], true), "the chain is a ring");
        // SAFETY: the place is an object of this frame (asserted), and free ones start with a link.
        free = unsafe { base.add(usize::from(free) * GRANULE).cast::<u16>().read() };
        count += 1;
    }
    assert_eq!(count + usize::from(header.in_use), usize::from(header.carved), "objects lost");
}

fn header_of(frames: &FrameAllocator, frame: u32) -> NonNull<Header> {
    frames.address(FrameId::from_index(frame)).cast()
}

/// Puts a frame of ours, which is on no list, at the head of `list`.
fn link(frames: &FrameAllocator, list: &mut u32, frame: u32) {
    // SAFETY: both frames are ours, start with a header, and are different as `frame` is on no
    // list; headers are changed by the holder of the cache only.
    unsafe {
        if *list != NONE {
            header_of(frames, *list).as_mut().prev = frame;
        }
        let header = header_of(frames, frame).as_ptr();
        (*header).next = *list;
        (*header).prev = NONE;
    }
    *list = frame;
}

/// Takes a frame off the list it is on.
fn unlink(frames: &FrameAllocator, list: &mut u32, frame: u32) {
    // SAFETY: the frame and its neighbours are ours, start with a header, and are different;
    // headers are changed by the holder of the cache only.
    unsafe {
        let (next, prev) = {
            let header = header_of(frames, frame).as_mut();
            (mem::replace(&mut header.next, NONE), mem::replace(&mut header.prev, NONE))
        };
        if next != NONE {
            header_of(frames, next).as_mut().prev = prev;
        }
        if prev != NONE {
            header_of(frames, prev).as_mut().next = next;
        } else {
            *list = next;
        }
    }
}
