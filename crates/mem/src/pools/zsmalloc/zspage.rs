//! zspages: chains of frames used as one range of bytes, cut into slots of one size.
//!
//! Idea: the descriptor of a zspage is a slab object: a head, the numbers of its frames, and a bit
//! for each slot. A frame is taken with the first object that needs it and given back with the
//! last, wherever it is in the chain; zspages of Linux's zsmalloc have all their frames all the
//! time.
//!
//! ```text
//! frame 0             frame 1             frame 2
//! [slot 0 |h][slot 1 | |h][slot 2 |h][ free ..    ...   (none held)
//! ```
//!
//! Invariants:
//! 1. A [`ZspageRef`] is made by [`Locked::create`] only and forgotten at [`Locked::destroy`]; code
//!    that keeps refs (class lists, handle words) drops them before. A ref is used with its own
//!    class.
//! 2. A zspage owns its frames. Only the thread that has an object pinned reaches the bytes of its
//!    slot; the name in it, and the bytes of a free slot, only the thread that has the class.
//! 3. Only the thread that has the class ([`Locked`]) reads or changes a descriptor. Other threads
//!    read two parts of it: its class, which stays as long as the zspage, and the frames of an
//!    object that they have pinned, which stay as long as the pin.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::mem::size_of;
use core::ptr::NonNull;
use core::slice;

use coldpress_sys::sync::SpinGuard;
use coldpress_sys::{PAGE_BYTES, PageCount};

use super::super::descriptor_ref::REF_UNIT;
use super::super::handles::HandleTable;
use super::super::pin::Pinned;
use super::held::{HeldFrames, Owner};
use super::lists::{Lists, ZspageRef};
use super::size_class::{CLASS_MIN, SizeClass};
use super::slots::{self, NO_FRAME, Slots};
use crate::frames::{FrameAllocator, FrameId};
use crate::slab::Heap;

/// Maximum objects that lie in a frame, or partly.
const FRAME_OBJECTS: usize = PAGE_BYTES / CLASS_MIN + 1;

/// The head of a descriptor; the frames, four bytes each, and the words of [`Slots`] follow it.
#[repr(C)]
pub(super) struct Zspage {
    /// The neighbours on the list of the zspage's class and fullness.
    pub(super) next: Cell<ZspageRef>,
    pub(super) prev: Cell<ZspageRef>,
    pub(super) class: u8,
    pub(super) group: Cell<u8>,
    pub(super) in_use: Cell<u16>,
}

/// All zspages of a pool: their descriptors and their bytes.
pub(super) struct Zspages<'f> {
    pub(super) held: HeldFrames<'f>,
    descriptors: Heap<'f>,
}

/// A class under its lock: its zspages may be changed.
pub(super) struct Locked<'a, 'f> {
    pub(super) zspages: &'a Zspages<'f>,
    pub(super) lists: SpinGuard<'a, Lists>,
    pub(super) number: usize,
    pub(super) class: SizeClass,
}

impl<'f> Zspages<'f> {
    pub(super) const fn new(frames: &'f FrameAllocator) -> Self {
        Self { held: HeldFrames::new(frames), descriptors: Heap::new(frames) }
    }

    /// Returns the frames that hold descriptors.
    pub(super) fn descriptor_frames(&self) -> PageCount {
        self.descriptors.frames_held()
    }

    /// Trims the heap of descriptors if the pool is empty.
    fn trim_if_empty(&self) {
        if self.held.count() == PageCount(0) {
            self.descriptors.trim();
        }
    }

    /// Returns the number of the class of a zspage.
    pub(super) fn class_of(&self, zspage: ZspageRef) -> usize {
        // SAFETY: the ref names a live descriptor (invariant 1), whose class never changes.
        unsafe { (*self.address(zspage).as_ptr()).class }.into()
    }

    /// Returns the first byte of a frame that a used slot lies in.
    pub(super) fn frame(&self, zspage: ZspageRef, index: usize) -> NonNull<u8> {
        // SAFETY: the ref names a live descriptor (invariant 1), which has a frame at this index,
        // because a used slot lies in it; the frame does not change meanwhile (invariant 3).
        let frame = unsafe { self.address(zspage).add(1).cast::<u32>().add(index).read() };
        assert!(frame != NO_FRAME, "a used slot has its frames");
        self.held.allocator.address(FrameId::from_index(frame))
    }

    fn address(&self, zspage: ZspageRef) -> NonNull<Zspage> {
        zspage.address(self.held.allocator).cast()
    }

    /// Checks the heap of descriptors.
    pub(super) fn check_descriptors(&self) {
        self.descriptors.check();
    }
}

impl Locked<'_, '_> {
    /// Makes an empty zspage without frames, on no list. Returns `None` when there is no frame for
    /// descriptors.
    pub(super) fn create(&mut self) -> Option<ZspageRef> {
        debug_assert!(!self.class.is_huge(), "huge objects have no zspage");
        // SAFETY: the layout is not empty.
        let descriptor = unsafe { self.zspages.descriptors.alloc(descriptor_layout(self.class)) };
        let descriptor = NonNull::new(descriptor)?.cast::<Zspage>();
        let (next, prev) = (Cell::new(ZspageRef::NONE), Cell::new(ZspageRef::NONE));
        let (class, group, in_use) = (self.number as u8, Cell::new(0), Cell::new(0));
        let chain = usize::from(self.class.chain);
        // SAFETY: the layout has room for the head, `chain` frame numbers and the bits behind it.
        unsafe {
            descriptor.write(Zspage { next, prev, class, group, in_use });
            let tail = descriptor.add(1).cast::<u32>();
            (0..chain).for_each(|index| tail.add(index).write(NO_FRAME));
            tail.add(chain).write_bytes(0, Slots::words(self.class));
        }
        Some(ZspageRef::of(descriptor.cast(), self.zspages.held.allocator))
    }

    /// Gives back a zspage's frames and descriptor. No ref to it may be left, nor any object of it.
    pub(super) fn destroy(&mut self, zspage: ZspageRef) {
        (0..self.class.chain.into()).for_each(|index| self.drop_frame(zspage, index));
        let descriptor = self.zspages.address(zspage).cast::<u8>().as_ptr();
        let layout = descriptor_layout(self.class);
        // SAFETY: `create` allocated the descriptor with this layout, and the ref to it is dropped.
        unsafe { self.zspages.descriptors.dealloc(descriptor, layout) };
        self.zspages.trim_if_empty();
    }

    /// Takes a frame for a huge object, of this class.
    pub(super) fn take_huge(&mut self) -> Option<FrameId> {
        let frame = self.zspages.held.take(None)?;
        self.lists.counts.add(1, 1);
        Some(frame)
    }

    /// Gives back the frame of a huge object.
    pub(super) fn put_huge(&mut self, frame: FrameId) {
        self.lists.counts.take(1, 1);
        // SAFETY: the frame belonged to the object, and the caller drops its place.
        unsafe { self.zspages.held.put(frame) };
        self.zspages.trim_if_empty();
    }

    /// Takes a free slot before `end`, and the frames it lacks if `grow`. Returns `None`, and
    /// changes nothing, when there is no slot, or a frame is missing. The caller moves the zspage
    /// to the list of its new fullness.
    pub(super) fn take_slot(&mut self, zspage: ZspageRef, end: u16, grow: bool) -> Option<u16> {
        let (slot, missing) = self.slots(zspage).best_free(end)?;
        if missing > 0 && !(grow && self.add_frames(zspage, slot)) {
            return None;
        }
        let (word, bit) = slots::place(slot);
        let used = &mut self.used_mut(zspage)[word];
        assert!(*used & bit == 0, "the slot is free");
        *used |= bit;
        let in_use = &self.get(zspage).in_use;
        in_use.set(in_use.get() + 1);
        self.lists.counts.objects += 1;
        Some(slot)
    }

    /// Frees a slot, and the frames that are not needed without it.
    pub(super) fn put_slot(&mut self, zspage: ZspageRef, slot: u16) {
        let (word, bit) = slots::place(slot);
        let used = &mut self.used_mut(zspage)[word];
        assert!(*used & bit != 0, "the slot is used");
        *used &= !bit;
        let in_use = &self.get(zspage).in_use;
        debug_assert!(in_use.get() > 0, "the zspage counts its objects");
        in_use.set(in_use.get() - 1);
        self.lists.counts.take(1, 0);
        if self.lists.counts.objects == 0 {
            self.lists.given_away = 0;
        }
        self.drop_frames(zspage, slot);
    }

    /// Returns whether it could take the frames that a slot lacks. `false`, and nothing changed,
    /// when one is missing.
    fn add_frames(&mut self, zspage: ZspageRef, slot: u16) -> bool {
        let (first, last) = self.class.frames_of(slot);
        for index in first..=last {
            if self.slots(zspage).frames[index] != NO_FRAME {
                continue;
            }
            let owner = Owner::Zspage(zspage, index);
            let Some(frame) = self.zspages.held.take(Some(owner)) else {
                self.drop_frames(zspage, slot);
                return false;
            };
            self.lists.counts.frames += 1;
            self.set_frame(zspage, index, frame.index());
        }
        true
    }

    /// Gives back the frames of a free slot that no used one needs.
    fn drop_frames(&mut self, zspage: ZspageRef, slot: u16) {
        let (first, last) = self.class.frames_of(slot);
        for index in first..=last {
            if !self.slots(zspage).needs(index) {
                self.drop_frame(zspage, index);
            }
        }
    }

    /// Gives back the frame at `index` of a zspage, if there is one. No object may be left in it.
    fn drop_frame(&mut self, zspage: ZspageRef, index: usize) {
        let frame = self.slots(zspage).frames[index];
        if frame != NO_FRAME {
            self.set_frame(zspage, index, NO_FRAME);
            self.lists.counts.take(0, 1);
            // SAFETY: the frame belonged to the zspage, its number is gone from the chain, and
            // there is no object in it that a thread could have pinned.
            unsafe { self.zspages.held.put(FrameId::from_index(frame)) };
        }
    }

    /// Returns whether it moved the frame at `index` of a zspage to `to`. `false`, and nothing
    /// done, when the frame there is not `from`, or an object in it is in use.
    ///
    /// # Safety
    /// `to` is handed out and no code uses it.
    pub(super) unsafe fn move_frame(
        &mut self,
        handles: &HandleTable<'_>,
        (zspage, index): (ZspageRef, usize),
        (from, to): (FrameId, FrameId),
    ) -> bool {
        if self.slots(zspage).frames.get(index) != Some(&from.index()) {
            return false;
        }
        let mut pins = [const { None }; FRAME_OBJECTS];
        if !self.pin_all(handles, zspage, index, &mut pins) {
            return false;
        }
        // SAFETY: `from` belongs to the zspage, all its objects are pinned, and its slots change
        // under the lock only; the caller promises that `to` is unused.
        unsafe { self.zspages.held.replace(from, to, Owner::Zspage(zspage, index)) };
        self.set_frame(zspage, index, to.index());
        true
    }

    /// Returns whether it pinned every object that lies in a frame, or partly: not when one is in
    /// use.
    fn pin_all<'h>(
        &self,
        handles: &'h HandleTable<'_>,
        zspage: ZspageRef,
        index: usize,
        pins: &mut [Option<Pinned<'h>>],
    ) -> bool {
        let slots = self.slots(zspage);
        let used = self.class.slots_in(index).filter(|slot| slots.is_used(*slot));
        used.zip(pins).all(|(slot, pin)| {
            *pin = handles.try_pin(self.name(zspage, slot as u16));
            pin.is_some()
        })
    }

    /// Returns the descriptor of a zspage.
    pub(super) fn get(&self, zspage: ZspageRef) -> &Zspage {
        debug_assert_eq!(self.zspages.class_of(zspage), self.number, "another class");
        // SAFETY: the ref names a live descriptor (invariant 1), whose cells no other thread looks
        // at (invariant 3).
        unsafe { self.zspages.address(zspage).as_ref() }
    }

    /// Returns the frames and used slots of a zspage.
    pub(super) fn slots(&self, zspage: ZspageRef) -> Slots<'_> {
        let chain = usize::from(self.class.chain);
        // SAFETY: the tail of a live descriptor of this class (invariant 1), which `create` filled;
        // it changes by `&mut self` only, because we have the class.
        let tail = unsafe {
            let tail = self.zspages.address(zspage).add(1).cast::<u32>();
            slice::from_raw_parts(tail.as_ptr(), chain + Slots::words(self.class))
        };
        let (frames, used) = tail.split_at(chain);
        Slots { class: self.class, frames, used }
    }

    /// Returns the words of [`Slots`], to change them.
    fn used_mut(&mut self, zspage: ZspageRef) -> &mut [u32] {
        let chain = usize::from(self.class.chain);
        // SAFETY: as in `slots`, we are borrowed mutably, and no other thread looks at these words.
        unsafe {
            let used = self.zspages.address(zspage).add(1).cast::<u32>().add(chain);
            slice::from_raw_parts_mut(used.as_ptr(), Slots::words(self.class))
        }
    }

    /// Changes the frame at `index`, in which no object lies, or none that other threads can use.
    fn set_frame(&mut self, zspage: ZspageRef, index: usize, frame: u32) {
        assert!(index < self.class.chain.into());
        // SAFETY: as in `slots`, and we are borrowed mutably; no other thread looks at this frame
        // now.
        unsafe { self.zspages.address(zspage).add(1).cast::<u32>().add(index).write(frame) };
    }
}

fn descriptor_layout(class: SizeClass) -> Layout {
    let words = usize::from(class.chain) + Slots::words(class);
    Layout::from_size_align(size_of::<Zspage>() + words * size_of::<u32>(), REF_UNIT)
        .expect("some 100 bytes at most")
}

const _: () = assert!(size_of::<Zspage>() == 12);
