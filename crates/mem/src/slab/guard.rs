//! The marks that debug builds keep in and behind every object, to catch its misuse. Release builds
//! call none of this: there, a double free, a free of foreign memory, and a write beyond an
//! object's end are undefined behaviour.
//!
//! ```text
//!  out:   | the caller's bytes | RED ... | LIVE ^ name |
//!  free:  | link | POISON ............. | FREE ^ name |
//! ```

use core::ptr::NonNull;

use super::descriptor::Object;

const MARK_BYTES: usize = size_of::<u64>();
const LIVE: u64 = 0x11fe_0b1e_c701_11fe;
const FREE: u64 = 0xf4ee_0b1e_c70f_4ee5;
/// Fills the space behind the caller's bytes; the value of Linux's SLUB_RED_ACTIVE.
const RED: u8 = 0xcc;
/// Fills free objects; the value of Linux's POISON_FREE.
const POISON: u8 = 0x6b;
/// Fills an object just handed out; the value of Linux's POISON_INUSE.
const NEW: u8 = 0x5a;
/// Bytes at the start of a free object that a chain may use.
const LINK_BYTES: usize = 8;

/// An object: its name, its first byte, and the size that its class gives it.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) object: Object,
    pub(super) start: NonNull<u8>,
    pub(super) bytes: usize,
}

impl Slot {
    /// Returns the mark.
    ///
    /// # Safety
    /// The slot must be memory of the heap that no other code changes.
    unsafe fn mark(self) -> u64 {
        // SAFETY: the mark is the last word of the slot, whose size is a multiple of 16.
        unsafe { self.start.add(self.bytes - MARK_BYTES).cast::<u64>().read() }
    }

    /// Sets the mark.
    ///
    /// # Safety
    /// As for `mark`.
    unsafe fn set_mark(self, mark: u64) {
        let word = mark ^ u64::from(self.object.0);
        // SAFETY: as in `mark`: the last word of the slot.
        unsafe { self.start.add(self.bytes - MARK_BYTES).cast::<u64>().write(word) };
    }

    /// Returns whether the slot has this mark.
    ///
    /// # Safety
    /// As for `mark`.
    unsafe fn is_marked(self, mark: u64) -> bool {
        // SAFETY: the caller's promise for the slot.
        unsafe { self.mark() == mark ^ u64::from(self.object.0) }
    }

    /// Fills the slot from `from` to the mark.
    ///
    /// # Safety
    /// As for `mark`; `from` is below the mark.
    unsafe fn fill(self, from: usize, byte: u8) {
        let length = self.bytes - MARK_BYTES - from;
        // SAFETY: the bytes from `from` to the mark are inside the slot.
        unsafe { self.start.add(from).write_bytes(byte, length) };
    }

    /// Returns whether the slot is filled with `byte` from `from` to the mark.
    ///
    /// # Safety
    /// As for `fill`, and the bytes were written before.
    unsafe fn is_filled(self, from: usize, byte: u8) -> bool {
        let length = self.bytes - MARK_BYTES - from;
        // SAFETY: as in `fill`: the bytes are inside the slot.
        let bytes = unsafe { core::slice::from_raw_parts(self.start.add(from).as_ptr(), length) };
        bytes.iter().all(|found| *found == byte)
    }
}

/// Prepares an object of a new slab.
///
/// # Safety
/// The slot is a new object that no code uses.
pub(super) unsafe fn make(slot: Slot) {
    // SAFETY: the caller's promise: the slot is ours.
    unsafe {
        slot.fill(0, POISON);
        slot.set_mark(FREE);
    }
}

/// Checks an object before it is handed out for `size` bytes.
///
/// # Safety
/// The slot is a free object, which [`make`] prepared once.
pub(super) unsafe fn hand_out(slot: Slot, size: usize) {
    // SAFETY: the caller promises that the slot is ours, and it was written.
    unsafe {
        assert!(slot.is_marked(FREE), "written behind its end after it was freed");
        assert!(slot.is_filled(LINK_BYTES, POISON), "written after it was freed");
        slot.start.write_bytes(NEW, size);
        slot.fill(size, RED);
        slot.set_mark(LIVE);
    }
}

/// Checks an object of `size` bytes that is freed.
///
/// # Safety
/// The slot is an object of the heap, and belongs to the caller unless it was freed already.
pub(super) unsafe fn take_back(slot: Slot, size: usize) {
    // SAFETY: the caller promises that the slot is ours, and it was written.
    unsafe {
        assert!(!slot.is_marked(FREE), "freed twice");
        assert!(slot.is_marked(LIVE), "written far beyond its end");
        assert!(slot.is_filled(size, RED), "written beyond its end, or freed with another size");
        slot.fill(0, POISON);
        slot.set_mark(FREE);
    }
}

/// Checks an object whose size changes in its place.
///
/// # Safety
/// The slot is the caller's object of `size` bytes.
pub(super) unsafe fn resize(slot: Slot, size: usize, new_size: usize) {
    // SAFETY: the caller promises that the slot is its own object.
    unsafe {
        assert!(slot.is_marked(LIVE) && slot.is_filled(size, RED), "written beyond its end");
        slot.fill(new_size, RED);
    }
}
