//! zspages: chains of frames used as one range of bytes, cut into objects of one size.
//!
//! Idea: the descriptor of a zspage is a slab object that ends in the list of its frames. Free
//! objects are chained through their first two bytes; objects never handed out lie from `carved`
//! on, so a new zspage touches no more frames than it uses. Sizes are multiples of 16: an object
//! may cross a seam between two frames, at most one, and the two bytes of the chain never do.
//!
//! Invariants:
//! 1. A [`ZspageRef`] is made by [`Zspages::create`] only and forgotten at [`Zspages::destroy`];
//!    whoever keeps refs (class lists, handle words) drops them before.
//! 2. A zspage owns its frames, and nobody else reaches their bytes: they are borrowed with
//!    `Zspages`.
//! 3. Of the `carved` first objects, `in_use` are out and the others chained from `free`, each
//!    once.

use core::alloc::{GlobalAlloc, Layout};
use core::mem::size_of;
use core::ptr::NonNull;
use core::slice;

use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use super::size_class::{CLASS_STEP, OBJECTS_MAX, SizeClass};
use crate::frames::{FrameAllocator, FrameId, Mobility, MoveClaim};
use crate::slab::Heap;

/// No object, in a chain.
const END: u16 = u16::MAX;
/// Slab objects lie at multiples of this.
const REF_UNIT: usize = 16;

/// Names a zspage: where its descriptor lies in the span of frames, in units of 16 bytes. Zero is
/// none, as no slab object lies at the start of the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ZspageRef(u32);

impl ZspageRef {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn is_some(self) -> bool {
        self != Self::NONE
    }

    /// The number that stands for the ref in a handle word.
    pub(super) fn to_word(self) -> u32 {
        self.0
    }

    /// The ref a handle word keeps.
    pub(super) fn from_word(word: u32) -> Self {
        Self(word)
    }
}

/// The head of a descriptor; the frames, four bytes each, follow it.
#[repr(C)]
pub(super) struct Zspage {
    /// The neighbours on the list of the zspage's class and fullness.
    pub(super) next: ZspageRef,
    pub(super) prev: ZspageRef,
    pub(super) class: u8,
    pub(super) group: u8,
    pub(super) in_use: u16,
    carved: u16,
    free: u16,
    /// Scratch of [`super::Zsmalloc::check`]: objects seen, and the sum of their numbers.
    pub(super) seen: (u16, u32),
}

/// All zspages of a pool: their descriptors and their bytes.
pub(super) struct Zspages<'f> {
    frames: &'f FrameAllocator,
    descriptors: Heap<'f>,
    frames_held: usize,
    /// While the pool holds frames and was the first in their allocator to do so.
    claim: Option<MoveClaim<'f>>,
}

impl<'f> Zspages<'f> {
    pub(super) const fn new(frames: &'f FrameAllocator) -> Self {
        Self { frames, descriptors: Heap::new(frames), frames_held: 0, claim: None }
    }

    /// Where the frames come from.
    pub(super) fn frames(&self) -> &'f FrameAllocator {
        self.frames
    }

    /// Whether the frames of zspages can be moved: another pool's in the same allocator may be.
    pub(super) fn are_movable(&self) -> bool {
        self.claim.is_some()
    }

    /// Frames that hold objects.
    pub(super) fn frames_held(&self) -> PageCount {
        PageCount(self.frames_held)
    }

    /// Frames that hold descriptors.
    pub(super) fn descriptor_frames(&self) -> PageCount {
        self.descriptors.frames_held()
    }

    /// Makes an empty zspage, on no list. `None`, and nothing taken, when a frame is missing.
    pub(super) fn create(&mut self, number: usize, class: SizeClass) -> Option<ZspageRef> {
        let chain = usize::from(class.chain);
        // SAFETY: the layout is not empty.
        let descriptor = unsafe { self.descriptors.alloc(descriptor_layout(chain)) };
        let descriptor = NonNull::new(descriptor)?.cast::<Zspage>();
        if self.frames_held == 0 && self.claim.is_none() {
            self.claim = self.frames.claim_moves();
        }
        let zspage = Zspage {
            next: ZspageRef::NONE,
            prev: ZspageRef::NONE,
            class: number as u8,
            group: 0,
            in_use: 0,
            carved: 0,
            free: END,
            seen: (0, 0),
        };
        // SAFETY: the layout has room for the head and `chain` frame numbers behind it.
        let list = unsafe {
            descriptor.write(zspage);
            descriptor.add(1).cast::<u32>()
        };
        let offset = self.frames.offset_of(descriptor.cast());
        let zspage = ZspageRef((offset.0 / REF_UNIT) as u32);
        for index in 0..chain {
            let Ok(frame) = self.frames.alloc(Mobility::EasyReclaim) else {
                self.release(zspage, index, chain);
                return None;
            };
            // SAFETY: `index` is below `chain`.
            unsafe { list.add(index).write(frame.index()) };
            if self.claim.is_some() {
                // SAFETY: the frame was just handed to us, and `move_frame` moves it for this owner
                // as long as it is ours.
                unsafe { self.frames.set_owner(frame, zspage.to_word(), index as u8) };
            }
        }
        self.frames_held += chain;
        Some(zspage)
    }

    /// Gives a zspage's frames and descriptor back. No ref to it may be left, nor any object of it.
    pub(super) fn destroy(&mut self, zspage: ZspageRef, class: SizeClass) {
        let chain = usize::from(class.chain);
        self.frames_held -= chain;
        self.release(zspage, chain, chain);
    }

    /// Gives back the first `filled` frames and the descriptor of a zspage of `chain` frames.
    fn release(&mut self, zspage: ZspageRef, filled: usize, chain: usize) {
        for index in 0..filled {
            let frame = self.frame(zspage, index);
            // SAFETY: the frame is the zspage's own, and its bytes are borrowed only with `self`.
            unsafe { self.frames.free(frame) };
        }
        let descriptor = self.address(zspage).cast::<u8>().as_ptr();
        // SAFETY: `create` allocated the descriptor with this layout, and the ref to it is dropped.
        unsafe { self.descriptors.dealloc(descriptor, descriptor_layout(chain)) };
        if self.frames_held == 0 {
            self.claim = None;
            self.descriptors.trim();
        }
    }

    /// Copies the frame at `index` of a zspage to `to`, and makes the zspage use `to`. `false`, and
    /// nothing done, when the frame there is not `from`.
    ///
    /// # Safety
    /// The zspage is live and its chain longer than `index`; `to` is handed out and nobody uses it.
    pub(super) unsafe fn move_frame(
        &mut self,
        zspage: ZspageRef,
        index: usize,
        from: FrameId,
        to: FrameId,
    ) -> bool {
        if self.frame(zspage, index) != from {
            return false;
        }
        let (source, target) = (self.frames.address(from), self.frames.address(to));
        // SAFETY: `from` is the zspage's own and `to` is ours, so they differ and nobody else
        // reaches their bytes; the frame numbers follow the head of the descriptor.
        unsafe {
            target.copy_from_nonoverlapping(source, PAGE_BYTES);
            self.address(zspage).add(1).cast::<u32>().add(index).write(to.index());
        }
        true
    }

    /// The descriptor of a zspage.
    pub(super) fn get(&self, zspage: ZspageRef) -> &Zspage {
        // SAFETY: the ref names a live descriptor (invariant 1); it changes by `&mut self` only.
        unsafe { self.address(zspage).as_ref() }
    }

    /// The descriptor of a zspage, to change it.
    pub(super) fn get_mut(&mut self, zspage: ZspageRef) -> &mut Zspage {
        // SAFETY: as in `get`, and we are borrowed mutably.
        unsafe { self.address(zspage).as_mut() }
    }

    /// Takes an object out of a zspage that is not full; returns its number. The caller moves the
    /// zspage to the list of its new fullness.
    pub(super) fn take_object(&mut self, zspage: ZspageRef, class: SizeClass) -> u16 {
        let Zspage { carved, free, .. } = *self.get(zspage);
        let (object, next, carved) = if free == END {
            assert!(carved < class.objects, "a zspage that is not full has a free object");
            (carved, END, carved + 1)
        } else {
            (free, self.link(zspage, class, free), carved)
        };
        let head = self.get_mut(zspage);
        (head.free, head.carved, head.in_use) = (next, carved, head.in_use + 1);
        object
    }

    /// Takes an object back.
    pub(super) fn put_object(&mut self, zspage: ZspageRef, class: SizeClass, object: u16) {
        let next = self.get(zspage).free.to_ne_bytes();
        self.object_mut(zspage, class, object, next.len()).0.copy_from_slice(&next);
        let head = self.get_mut(zspage);
        (head.free, head.in_use) = (object, head.in_use - 1);
    }

    /// The successor of a free object in its chain.
    fn link(&self, zspage: ZspageRef, class: SizeClass, object: u16) -> u16 {
        let (link, _) = self.object(zspage, class, object, size_of::<u16>());
        u16::from_ne_bytes([link[0], link[1]])
    }

    /// The first `length` bytes of an object: what lies in its first frame, and what lies in the
    /// next.
    pub(super) fn object(
        &self,
        zspage: ZspageRef,
        class: SizeClass,
        object: u16,
        length: usize,
    ) -> (&[u8], &[u8]) {
        let ((first, first_length), (second, second_length)) =
            self.parts(zspage, class, object, length);
        // SAFETY: both parts are bytes of frames of the zspage (see `parts`), which change by
        // `&mut self` only.
        unsafe {
            (
                slice::from_raw_parts(first.as_ptr(), first_length),
                slice::from_raw_parts(second.as_ptr(), second_length),
            )
        }
    }

    /// As [`Zspages::object`], to change the bytes.
    pub(super) fn object_mut(
        &mut self,
        zspage: ZspageRef,
        class: SizeClass,
        object: u16,
        length: usize,
    ) -> (&mut [u8], &mut [u8]) {
        let ((first, first_length), (second, second_length)) =
            self.parts(zspage, class, object, length);
        // SAFETY: both parts are bytes of frames of the zspage (see `parts`), the frames differ,
        // and we are borrowed mutably.
        unsafe {
            (
                slice::from_raw_parts_mut(first.as_ptr(), first_length),
                slice::from_raw_parts_mut(second.as_ptr(), second_length),
            )
        }
    }

    /// Start and length of the two parts of an object, each inside one frame of the zspage.
    fn parts(
        &self,
        zspage: ZspageRef,
        class: SizeClass,
        object: u16,
        length: usize,
    ) -> ((NonNull<u8>, usize), (NonNull<u8>, usize)) {
        assert!(object < class.objects && length <= usize::from(class.size));
        let start = usize::from(object) * usize::from(class.size);
        let (index, inside) = (start / PAGE_BYTES, start % PAGE_BYTES);
        let first_length = length.min(PAGE_BYTES - inside);
        // SAFETY: `inside` is below the size of a frame.
        let first = unsafe { self.frames.address(self.frame(zspage, index)).add(inside) };
        let second = if first_length == length {
            NonNull::dangling()
        } else {
            // The object ends inside the chain, so there is a next frame.
            self.frames.address(self.frame(zspage, index + 1))
        };
        ((first, first_length), (second, length - first_length))
    }

    /// A frame of the zspage, by its place in the chain.
    fn frame(&self, zspage: ZspageRef, index: usize) -> FrameId {
        // SAFETY: the frame numbers follow the head of a live descriptor, and callers stay in the
        // chain.
        let number = unsafe { self.address(zspage).add(1).cast::<u32>().add(index).read() };
        FrameId::from_index(number)
    }

    fn address(&self, zspage: ZspageRef) -> NonNull<Zspage> {
        assert!(zspage.is_some(), "no zspage");
        self.frames.address_at(Bytes(zspage.0 as usize * REF_UNIT)).cast()
    }

    /// Checks invariant 3 of a zspage. Returns the sum of the numbers of its free objects, and that
    /// of all its carved objects.
    pub(super) fn check_chain(&self, zspage: ZspageRef, class: SizeClass) -> (u32, u32) {
        let Zspage { in_use, carved, mut free, .. } = *self.get(zspage);
        assert!(in_use > 0, "an empty zspage was not given back");
        assert!(carved <= class.objects);
        let mut seen = [false; OBJECTS_MAX];
        let (mut count, mut sum) = (0, 0);
        while free != END {
            assert!(free < carved, "the chain leaves the carved objects");
            assert!(!core::mem::replace(&mut seen[usize::from(free)], true), "the chain is a ring");
            count += 1;
            sum += u32::from(free);
            free = self.link(zspage, class, free);
        }
        assert_eq!(in_use + count, carved, "objects lost");
        (sum, (0..u32::from(carved)).sum())
    }

    /// Checks the heap of descriptors.
    pub(super) fn check_descriptors(&self) {
        self.descriptors.check();
    }
}

fn descriptor_layout(chain: usize) -> Layout {
    Layout::from_size_align(size_of::<Zspage>() + chain * size_of::<u32>(), REF_UNIT)
        .expect("a few dozen bytes")
}

const _: () = assert!(size_of::<Zspage>() == 24 && CLASS_STEP.is_multiple_of(size_of::<u16>()));
