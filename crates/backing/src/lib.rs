//! Layer 1: slots outside memory, for compressed pages that are colder than the pool.
//!
//! A *slot* is one sequential batch of [`SLOT_BYTES`]; its owner writes it once, reads pieces of it
//! and discards it whole. This crate knows slots and bytes, and nothing of what the bytes mean:
//! lengths and checksums are the owner's. Modules: [`slots`] which slots are taken, [`mod@file`] on
//! disk, [`memory`] the specification, [`faulty`] a sibling that fails on request.
//!
//! What every backing promises, and the oracle test in `tests.rs` checks:
//! 1. What [`Backing::read`] gives after a successful write is what was written, or an error.
//! 2. A failed operation on one slot leaves every other slot as it was.
//! 3. [`Backing::trim`] changes no slot that was written since it was discarded.
//! 4. After a failed write or a discard the slot's bytes are unspecified until the next write.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

use core::fmt;

use coldpress_sys::{Bytes, SysError};

pub mod faulty;
pub mod file;
pub mod memory;
pub mod slots;
#[cfg(test)]
mod tests;

pub use faulty::{Fault, FaultyBacking};
pub use file::FileBacking;
pub use memory::MemoryBacking;
pub use slots::Slots;

/// Bytes in a slot: large enough that a disk works sequentially, small enough that one write does
/// not stall a fault (16 raw pages, about 50 compressed ones).
pub const SLOT_BYTES: Bytes = Bytes::kib(64);

/// The number of a slot, from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

impl SlotId {
    /// Where the slot begins in a store of consecutive slots, in bytes.
    pub const fn position(self) -> u64 {
        self.0 as u64 * SLOT_BYTES.0 as u64
    }
}

/// A number of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotCount(pub u32);

impl SlotCount {
    /// Whole slots inside `bytes`, at most what a [`SlotId`] can name.
    pub const fn inside(bytes: Bytes) -> Self {
        let count = bytes.0 / SLOT_BYTES.0;
        Self(if count > u32::MAX as usize { u32::MAX } else { count as u32 })
    }
}

/// Why a backing did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackingError {
    /// There is no room for the bytes now (`ENOSPC`, `EDQUOT`, `EFBIG`). Room may come later.
    Full,
    /// The slot, or the range in it, is outside the store.
    OutOfRange,
    /// The system refused.
    Sys(SysError),
}

impl fmt::Display for BackingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the backing store is full"),
            Self::OutOfRange => f.write_str("outside the backing store"),
            Self::Sys(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for BackingError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Sys(error) => Some(error),
            Self::Full | Self::OutOfRange => None,
        }
    }
}

/// A store of numbered slots. Which slots are taken is its user's business, see [`Slots`].
pub trait Backing: Send {
    /// The number of slots; ids below it are valid.
    fn slots_max(&self) -> SlotCount;

    /// Replaces the contents of `slot` by `bytes`, at most [`SLOT_BYTES`] of them. `OutOfRange` for
    /// a slot or a length too large; otherwise `Full` or `Sys`, after which the slot holds nothing
    /// to rely on.
    fn write(&mut self, slot: SlotId, bytes: &[u8]) -> Result<(), BackingError>;

    /// Fills `out` from `offset` in `slot`. Only bytes of the last successful write may be asked
    /// for; for others the answer is an error or unspecified bytes. After an error `out` is
    /// unspecified.
    fn read(&mut self, slot: SlotId, offset: Bytes, out: &mut [u8]) -> Result<(), BackingError>;

    /// Gives the contents of `slot` up, without waiting for anything. It cannot fail: what cannot
    /// be given back is overwritten later.
    fn discard(&mut self, slot: SlotId);

    /// Gives the room of up to `most` discarded slots back to the system; of how many it did. It
    /// may take milliseconds for each, so it is for a time when nobody waits. A backing that gives
    /// room back in [`Backing::discard`] has nothing to do.
    fn trim(&mut self, most: SlotCount) -> SlotCount {
        let _ = most;
        SlotCount(0)
    }
}

/// Whether `length` bytes at `offset` of `slot` lie in a store of `slots_max` slots: `OutOfRange`
/// if not.
pub(crate) fn check_range(
    slots_max: SlotCount,
    slot: SlotId,
    offset: Bytes,
    length: usize,
) -> Result<(), BackingError> {
    let end = offset.0.checked_add(length);
    if slot.0 < slots_max.0 && end.is_some_and(|end| end <= SLOT_BYTES.0) {
        Ok(())
    } else {
        Err(BackingError::OutOfRange)
    }
}
