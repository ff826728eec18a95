//! zspages: chains of frames used as one range of bytes, cut into slots of one size.
//!
//! Idea: the descriptor of a zspage is a slab object: a head, the numbers of its frames, and a bit
//! for each slot. A frame is taken with the first object that needs it and given back with the
//! last, wherever it is in the chain; the kernel's zspages have all their frames all the time.
//!
//! ```text
//! frame 0             frame 1             frame 2
//! [slot 0 |h][slot 1 | |h][slot 2 |h][ free ..    ...   (none held)
//! ```
//!
//! Invariants:
//! 1. A [`ZspageRef`] is made by [`Zspages::create`] only and forgotten at [`Zspages::destroy`];
//!    whoever keeps refs (class lists, handle words) drops them before.
//! 2. A zspage owns its frames, and nobody else reaches their bytes: they are borrowed with
//!    `Zspages`.
//! 3. A zspage is passed together with its own class.

use core::alloc::{GlobalAlloc, Layout};
use core::mem::size_of;
use core::ptr::NonNull;
use core::slice;

use coldpress_sys::PageCount;

use super::super::descriptor_ref::{DescriptorRef, REF_UNIT};
use super::held::{HeldFrames, Owner};
use super::size_class::SizeClass;
use super::slots::{self, NO_FRAME, Slots};
use crate::frames::{FrameAllocator, FrameId};
use crate::slab::Heap;

/// Names a zspage, by its descriptor.
pub(super) type ZspageRef = DescriptorRef;

/// The head of a descriptor; the frames, four bytes each, and the words of [`Slots`] follow it.
#[repr(C)]
pub(super) struct Zspage {
    /// The neighbours on the list of the zspage's class and fullness.
    pub(super) next: ZspageRef,
    pub(super) prev: ZspageRef,
    pub(super) class: u8,
    pub(super) group: u8,
    pub(super) in_use: u16,
}

/// All zspages of a pool: their descriptors and their bytes.
pub(super) struct Zspages<'f> {
    pub(super) held: HeldFrames<'f>,
    descriptors: Heap<'f>,
}

impl<'f> Zspages<'f> {
    pub(super) const fn new(frames: &'f FrameAllocator) -> Self {
        Self { held: HeldFrames::new(frames), descriptors: Heap::new(frames) }
    }

    /// Frames that hold descriptors.
    pub(super) fn descriptor_frames(&self) -> PageCount {
        self.descriptors.frames_held()
    }

    /// Makes an empty zspage without frames, on no list. `None` when a frame for descriptors is
    /// missing.
    pub(super) fn create(&mut self, number: usize, class: SizeClass) -> Option<ZspageRef> {
        // SAFETY: the layout is not empty.
        let descriptor = unsafe { self.descriptors.alloc(descriptor_layout(class)) };
        let descriptor = NonNull::new(descriptor)?.cast::<Zspage>();
        let (next, prev) = (ZspageRef::NONE, ZspageRef::NONE);
        // SAFETY: the layout has room for the head, `chain` frame numbers and the bits behind it.
        unsafe {
            descriptor.write(Zspage { next, prev, class: number as u8, group: 0, in_use: 0 });
            let tail = descriptor.add(1).cast::<u32>();
            (0..class.chain.into()).for_each(|index| tail.add(index).write(NO_FRAME));
            tail.add(class.chain.into()).write_bytes(0, Slots::words(class));
        }
        Some(ZspageRef::of(descriptor.cast(), self.held.allocator))
    }

    /// Gives a zspage's frames and descriptor back. No ref to it may be left, nor any object of it.
    pub(super) fn destroy(&mut self, zspage: ZspageRef, class: SizeClass) {
        let number = usize::from(self.get(zspage).class);
        for index in 0..class.chain.into() {
            self.drop_frame(zspage, class, number, index);
        }
        let descriptor = self.address(zspage).cast::<u8>().as_ptr();
        // SAFETY: `create` allocated the descriptor with this layout, and the ref to it is dropped.
        unsafe { self.descriptors.dealloc(descriptor, descriptor_layout(class)) };
        self.trim_if_empty();
    }

    /// Takes a frame for a huge object, of the class of that number.
    pub(super) fn take_huge(&mut self, number: usize) -> Option<FrameId> {
        let frame = self.held.take(number)?;
        self.held.classes[number].objects += 1;
        Some(frame)
    }

    /// Takes the frame of a huge object back.
    pub(super) fn put_huge(&mut self, number: usize, frame: FrameId) {
        self.held.classes[number].objects -= 1;
        // SAFETY: the frame was the object's own, and who puts it drops its place.
        unsafe { self.held.put(number, frame) };
        self.trim_if_empty();
    }

    /// An empty pool keeps no descriptors ready.
    fn trim_if_empty(&self) {
        if self.held.count() == PageCount(0) {
            self.descriptors.trim();
        }
    }

    /// Takes a free slot before `end`, and the frames it lacks if `grow`. `None`, and nothing
    /// changed, when there is no slot, or a frame is missing. The caller moves the zspage to the
    /// list of its new fullness.
    pub(super) fn take_slot(
        &mut self,
        zspage: ZspageRef,
        class: SizeClass,
        end: u16,
        grow: bool,
    ) -> Option<u16> {
        let (slot, missing) = self.slots(zspage, class).best_free(end)?;
        if missing > 0 && !(grow && self.add_frames(zspage, class, slot)) {
            return None;
        }
        let (word, bit) = slots::place(slot);
        self.tail_mut(zspage, class).1[word] |= bit;
        let head = self.get_mut(zspage);
        head.in_use += 1;
        let number = usize::from(head.class);
        self.held.classes[number].objects += 1;
        Some(slot)
    }

    /// Takes a slot back, and the frames that are not needed without it.
    pub(super) fn put_slot(&mut self, zspage: ZspageRef, class: SizeClass, slot: u16) {
        let (word, bit) = slots::place(slot);
        let used = &mut self.tail_mut(zspage, class).1[word];
        assert!(*used & bit != 0, "the slot is used");
        *used &= !bit;
        let head = self.get_mut(zspage);
        head.in_use -= 1;
        let number = usize::from(head.class);
        self.held.classes[number].objects -= 1;
        self.drop_frames(zspage, class, slot);
    }

    /// Takes the frames that a slot lacks. `false`, and nothing changed, when one is missing.
    fn add_frames(&mut self, zspage: ZspageRef, class: SizeClass, slot: u16) -> bool {
        let number = usize::from(self.get(zspage).class);
        let (first, last) = class.frames_of(slot);
        for index in first..=last {
            if self.slots(zspage, class).frames[index] != NO_FRAME {
                continue;
            }
            let Some(frame) = self.held.take(number) else {
                self.drop_frames(zspage, class, slot);
                return false;
            };
            self.tail_mut(zspage, class).0[index] = frame.index();
            // SAFETY: the frame was just taken for the zspage, which keeps it until it is put.
            unsafe { self.held.set_owner(frame, Owner::Zspage(zspage, index)) };
        }
        true
    }

    /// Gives back the frames of a free slot that no used one needs.
    fn drop_frames(&mut self, zspage: ZspageRef, class: SizeClass, slot: u16) {
        let number = usize::from(self.get(zspage).class);
        let (first, last) = class.frames_of(slot);
        for index in first..=last {
            if !self.slots(zspage, class).needs(index) {
                self.drop_frame(zspage, class, number, index);
            }
        }
    }

    /// Gives back the frame at `index` of a zspage, if there is one. No object may be left in it.
    fn drop_frame(&mut self, zspage: ZspageRef, class: SizeClass, number: usize, index: usize) {
        let place = &mut self.tail_mut(zspage, class).0[index];
        let frame = core::mem::replace(place, NO_FRAME);
        if frame != NO_FRAME {
            // SAFETY: the frame was the zspage's own, its number is gone from the chain, and its
            // bytes are borrowed only with `self`.
            unsafe { self.held.put(number, FrameId::from_index(frame)) };
        }
    }

    /// Moves the frame at `index` of a zspage to `to`. `false`, and nothing done, when the frame
    /// there is not `from`.
    ///
    /// # Safety
    /// The zspage is live; `to` is handed out and nobody uses it.
    pub(super) unsafe fn move_frame(
        &mut self,
        (zspage, index): (ZspageRef, usize),
        class: SizeClass,
        (from, to): (FrameId, FrameId),
    ) -> bool {
        if self.slots(zspage, class).frames.get(index) != Some(&from.index()) {
            return false;
        }
        // SAFETY: `from` is the zspage's own; of `to` the caller promises it.
        unsafe { self.held.replace(from, to, Owner::Zspage(zspage, index)) };
        self.tail_mut(zspage, class).0[index] = to.index();
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

    /// The frames and used slots of a zspage.
    pub(super) fn slots(&self, zspage: ZspageRef, class: SizeClass) -> Slots<'_> {
        let chain = usize::from(class.chain);
        // SAFETY: the tail of a live descriptor of this class (invariants 1 and 3), which `create`
        // filled; it changes by `&mut self` only.
        let tail = unsafe {
            let tail = self.address(zspage).add(1).cast::<u32>();
            slice::from_raw_parts(tail.as_ptr(), chain + Slots::words(class))
        };
        let (frames, used) = tail.split_at(chain);
        Slots { class, frames, used }
    }

    /// The frames and the words of [`Slots`], to change them.
    fn tail_mut(&mut self, zspage: ZspageRef, class: SizeClass) -> (&mut [u32], &mut [u32]) {
        let chain = usize::from(class.chain);
        // SAFETY: as in `slots`, and we are borrowed mutably.
        let tail = unsafe {
            let tail = self.address(zspage).add(1).cast::<u32>();
            slice::from_raw_parts_mut(tail.as_ptr(), chain + Slots::words(class))
        };
        tail.split_at_mut(chain)
    }

    fn address(&self, zspage: ZspageRef) -> NonNull<Zspage> {
        zspage.address(self.held.allocator).cast()
    }

    /// Checks the heap of descriptors.
    pub(super) fn check_descriptors(&self) {
        self.descriptors.check();
    }
}

fn descriptor_layout(class: SizeClass) -> Layout {
    let words = usize::from(class.chain) + Slots::words(class);
    Layout::from_size_align(size_of::<Zspage>() + words * size_of::<u32>(), REF_UNIT)
        .expect("some 100 bytes at most")
}

const _: () = assert!(size_of::<Zspage>() == 12);
