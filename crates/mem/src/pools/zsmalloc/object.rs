//! Places of objects, and their bytes.
//!
//! A slot holds the object and, in its last four bytes, the object's name. Sizes of slots are
//! multiples of 16: an object may cross a seam between two frames, at most one, and its name never
//! does. A huge object is a frame alone, without a descriptor; the frame's owner is the object's
//! name.
//!
//! Invariant: an [`ObjectPlace`] is made by `take_place` of the pool only and forgotten at
//! `put_place`; code that keeps places (handle words) drops them before. A place is passed with its
//! own class.

use core::ptr::NonNull;
use core::slice;

use coldpress_sys::{Bytes, PAGE_BYTES};

use super::super::handle::Name;
use super::held::Owner;
use super::lists::ZspageRef;
use super::size_class::{CLASS_STEP, NAME_BYTES, SizeClass};
use super::zspage::{Locked, Zspages};
use crate::frames::{Descriptor, FrameId};

/// The value in place of a slot's number in the handle word of a huge object.
const HUGE_SLOT: u16 = u16::MAX;

/// The place of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectPlace {
    /// In a slot of a zspage.
    Slot(ZspageRef, u16),
    /// Huge: in a frame of its own.
    Frame(FrameId),
}

/// The location of an object, as its handle word has it. The low 16 bits are never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) place: ObjectPlace,
    /// The requested size, 1 to 4096.
    pub(super) size: u16,
}

impl Location {
    pub(super) fn to_word(self) -> u64 {
        let (name, slot) = match self.place {
            ObjectPlace::Slot(zspage, slot) => (zspage.to_word(), slot),
            ObjectPlace::Frame(frame) => (frame.index(), HUGE_SLOT),
        };
        u64::from(name) << 32 | u64::from(slot) << 16 | u64::from(self.size)
    }

    pub(super) fn from_word(word: u64) -> Self {
        let (name, slot) = ((word >> 32) as u32, (word >> 16) as u16);
        let place = match slot {
            HUGE_SLOT => ObjectPlace::Frame(FrameId::from_index(name)),
            _ => ObjectPlace::Slot(ZspageRef::from_word(name), slot),
        };
        Self { place, size: word as u16 }
    }

    pub(super) fn bytes(self) -> Bytes {
        Bytes(self.size.into())
    }
}

/// Writes the two parts of an object, which are as long as `bytes`.
pub(super) fn fill((first, second): (&mut [u8], &mut [u8]), bytes: &[u8]) {
    let (start, end) = bytes.split_at(first.len());
    first.copy_from_slice(start);
    second.copy_from_slice(end);
}

/// Start and length of bytes inside one frame.
type Part = (NonNull<u8>, usize);

impl Zspages<'_> {
    /// Returns the first `length` bytes of an object: the part in its first frame, and the part in
    /// the next.
    ///
    /// # Safety
    /// The caller has the object pinned for as long as the slices live, or has just taken its
    /// place.
    #[expect(clippy::mut_from_ref, reason = "the pin is what makes the bytes the caller's")]
    pub(super) unsafe fn object(
        &self,
        place: ObjectPlace,
        class: SizeClass,
        length: usize,
    ) -> (&mut [u8], &mut [u8]) {
        let ((first, first_length), (second, second_length)) = self.parts(place, class, length);
        // SAFETY: both parts are bytes of frames of the pool (see `parts`), and the frames differ.
        // Only the thread that has the object pinned reaches them.
        unsafe {
            (
                slice::from_raw_parts_mut(first.as_ptr(), first_length),
                slice::from_raw_parts_mut(second.as_ptr(), second_length),
            )
        }
    }

    /// Returns the two parts of an object.
    fn parts(&self, place: ObjectPlace, class: SizeClass, length: usize) -> (Part, Part) {
        assert!(length <= usize::from(class.size));
        let nothing = (NonNull::dangling(), 0);
        let (zspage, slot) = match place {
            ObjectPlace::Frame(frame) => {
                return ((self.held.allocator.address(frame), length), nothing);
            }
            ObjectPlace::Slot(zspage, slot) => (zspage, slot),
        };
        let start = usize::from(slot) * usize::from(class.size);
        let (index, inside) = (start / PAGE_BYTES, start % PAGE_BYTES);
        let first_length = length.min(PAGE_BYTES - inside);
        // SAFETY: `inside` is below the size of a frame.
        let first = unsafe { self.frame(zspage, index).add(inside) };
        if first_length == length {
            return ((first, length), nothing);
        }
        let second = self.frame(zspage, index + 1);
        ((first, first_length), (second, length - first_length))
    }
}

impl Locked<'_, '_> {
    /// Notes the name of an object.
    pub(super) fn set_name(&mut self, place: ObjectPlace, name: Name) {
        match place {
            // SAFETY: the frame belongs to the huge object until the object is freed.
            ObjectPlace::Frame(frame) => unsafe {
                self.zspages.held.set_owner(frame, Owner::Huge(name));
            },
            ObjectPlace::Slot(zspage, slot) => {
                let address = self.name_address(zspage, slot);
                // SAFETY: bytes of the slot, which are reached under the lock of the class only.
                unsafe { address.write(name.0) };
            }
        }
    }

    /// Returns the name of the object in a slot.
    pub(super) fn name(&self, zspage: ZspageRef, slot: u16) -> Name {
        // SAFETY: bytes of the slot, which change by `&mut self` only. `set_name` wrote them when
        // the object was placed.
        Name(unsafe { self.name_address(zspage, slot).read() })
    }

    /// Returns the name that an object knows. `None` when it is huge and its frame does not move.
    pub(super) fn name_of(&self, place: ObjectPlace) -> Option<Name> {
        let frame = match place {
            ObjectPlace::Slot(zspage, slot) => return Some(self.name(zspage, slot)),
            ObjectPlace::Frame(frame) => frame,
        };
        let Descriptor::Movable { owner, index } = self.zspages.held.allocator.descriptor(frame)
        else {
            return None;
        };
        match Owner::decode(owner, index) {
            Owner::Huge(name) => Some(name),
            Owner::Zspage(zspage, _) => panic!("{frame:?} is that of {zspage:?}"),
        }
    }

    /// Returns the address of a used slot's last bytes.
    fn name_address(&self, zspage: ZspageRef, slot: u16) -> NonNull<u32> {
        debug_assert!(self.slots(zspage).is_used(slot.into()), "slot {slot} has no object");
        let start = (usize::from(slot) + 1) * usize::from(self.class.size) - NAME_BYTES;
        let frame = self.zspages.frame(zspage, start / PAGE_BYTES);
        // SAFETY: the offset is below the size of a frame. Slots and frames end at multiples of 16,
        // so all four bytes are in it, and aligned.
        unsafe { frame.add(start % PAGE_BYTES).cast() }
    }
}

const _: () = assert!(CLASS_STEP.is_multiple_of(NAME_BYTES) && CLASS_STEP > NAME_BYTES);
