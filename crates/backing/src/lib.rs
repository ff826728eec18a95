//! Layer 1: slots outside memory, for compressed pages that are colder than the pool.
//!
//! A *slot* is one sequential batch of [`SLOT_BYTES`]; its owner writes it once, reads pieces of it
//! and discards it whole. This crate knows slots and bytes, and nothing of what the bytes mean:
//! lengths and seals are the owner's. [`Backing::begin`] begins a transfer and takes its buffer;
//! [`Backing::ended`] gives it back. Modules: `slots` which slots are taken, `file` on
//! disk, `memory` the specification, `faulty` a sibling that fails on request.
//!
//! Promises of every backing, which the oracle test in `tests.rs` checks:
//! 1. A read after a write that ended well gives the bytes written, or an error.
//! 2. A failed transfer of one slot leaves every other slot as it was.
//! 3. Every transfer begun ends once, with its own buffer and token.
//! 4. [`Backing::trim`] changes no slot that was written since it was discarded.
//! 5. After a failed write or a discard the slot's bytes are unspecified until the next write.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::fmt;

pub use coldpress_sys::ring::{TRANSFERS_MAX, Way};
use coldpress_sys::{BorrowedFd, Bytes, SysError};

mod faulty;
mod file;
mod memory;
mod slots;
#[cfg(test)]
mod tests;

pub use faulty::{Fault, FaultyBacking};
pub use file::{FileBacking, Layer};
pub use memory::MemoryBacking;
pub use slots::Slots;

/// Bytes in a slot: large enough that a disk works sequentially, small enough that one write does
/// not stall a fault (16 raw pages, about 50 compressed ones).
pub const SLOT_BYTES: Bytes = Bytes::kib(64);

/// The number of a slot, from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

impl SlotId {
    /// Returns where the slot begins in a store of consecutive slots.
    pub const fn position(self) -> Bytes {
        Bytes(self.0 as usize * SLOT_BYTES.0)
    }
}

/// A number of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotCount(pub u32);

impl SlotCount {
    /// Returns the number of whole slots inside `bytes`, at most as many as a [`SlotId`] can name.
    pub const fn inside(bytes: Bytes) -> Self {
        let count = bytes.0 / SLOT_BYTES.0;
        Self(if count > u32::MAX as usize { u32::MAX } else { count as u32 })
    }
}

/// The reason why a backing did not do what was asked.
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

/// A transfer between a buffer and a slot.
#[derive(Debug)]
pub struct Request {
    /// Which way the bytes go. A write replaces the slot's contents and begins at its start.
    pub way: Way,
    /// The slot.
    pub slot: SlotId,
    /// The offset in the slot, for a read.
    pub offset: Bytes,
    /// The number of bytes, from the front of the buffer, that take part.
    pub length: Bytes,
    /// The buffer, which is the backing's until the transfer has ended. Afterwards it holds the
    /// bytes read; its contents are unspecified after a write or an error.
    pub buffer: Box<[u8]>,
    /// The caller's own number for the transfer.
    pub token: u32,
}

/// A transfer that has ended.
#[derive(Debug)]
pub struct EndedRequest {
    /// The request, as it was begun.
    pub request: Request,
    /// `OutOfRange` for a slot or a length too large; otherwise `Full` or `Sys`. After a failed
    /// write the slot holds nothing to rely on.
    pub result: Result<(), BackingError>,
}

/// A store of numbered slots. The user decides which slots are taken, see [`Slots`].
pub trait Backing: Send {
    /// Returns the number of slots; ids below it are valid.
    fn slots_max(&self) -> SlotCount;

    /// Begins a transfer, without waiting for it where the system allows. At most [`TRANSFERS_MAX`]
    /// transfers may be under way, or ended and not taken; they end in any order. Only bytes of the
    /// last write that ended well may be read; for other bytes the result is an error or
    /// unspecified bytes.
    fn begin(&mut self, request: Request);

    /// Takes the next transfer that has ended.
    fn ended(&mut self) -> Option<EndedRequest>;

    /// Waits until a transfer has ended. Returns at once if an ended one is not taken yet, or if
    /// none is under way.
    fn wait(&mut self);

    /// Returns the descriptor that becomes readable when a transfer ends, if transfers outlast
    /// [`Backing::begin`].
    fn signal(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Makes transfers end within [`Backing::begin`] from now on. Those under way end before.
    fn transfer_plainly(&mut self) {}

    /// Returns whether a child of `fork` may still read from slots that were taken before it.
    fn is_lent(&self) -> bool {
        false
    }

    /// Gives up the contents of `slot`, without waiting for anything. This cannot fail: room that
    /// cannot be given back is overwritten later. No write to the slot may be under way.
    fn discard(&mut self, slot: SlotId);

    /// Gives the room of up to `most` discarded slots back to the system, and returns the number of
    /// slots. A slot may take milliseconds, so this is for times when no caller waits. A backing
    /// that gives room back in [`Backing::discard`] has nothing to do.
    fn trim(&mut self, most: SlotCount) -> SlotCount {
        let _ = most;
        SlotCount(0)
    }
}

/// The queue of transfers that ended when they were begun, in a backing that does not wait.
#[derive(Debug)]
pub(crate) struct Queue(VecDeque<EndedRequest>);

impl Queue {
    pub(crate) fn new() -> Self {
        Self(VecDeque::with_capacity(TRANSFERS_MAX))
    }

    pub(crate) fn push(&mut self, request: Request, result: Result<(), BackingError>) {
        self.0.push_back(EndedRequest { request, result });
    }

    pub(crate) fn pop(&mut self) -> Option<EndedRequest> {
        self.0.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Checks that a transfer lies in a store of `slots_max` slots: `OutOfRange` if not.
pub(crate) fn check_range(slots_max: SlotCount, request: &Request) -> Result<(), BackingError> {
    let end = request.offset.0.checked_add(request.length.0);
    let is_inside = request.slot.0 < slots_max.0 && end.is_some_and(|end| end <= SLOT_BYTES.0);
    if is_inside && request.length.0 <= request.buffer.len() {
        Ok(())
    } else {
        Err(BackingError::OutOfRange)
    }
}
