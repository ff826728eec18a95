//! A backing that goes wrong on request: around any other, for the operations of a chosen range.
//!
//! Writes and reads are numbered together, from zero. Failing "at operation N, for all N" then
//! walks every error path of a user.

use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::{Bytes, SysError};

use crate::{Backing, BackingError, SlotCount, SlotId};

/// `EIO` (asm-generic/errno-base.h), what a broken disk answers.
const EIO: i32 = 5;

/// How an operation goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation reports `EIO`; a write has left its first half behind, a read has spoiled its
    /// buffer.
    Fail,
    /// The operation reports success with one bit flipped in the middle.
    Corrupt,
    /// The operation reports success, but the second half of the bytes is zeros: a torn block.
    Tear,
    /// A write reports `Full`, having stored its first half; reads work.
    Full,
}

/// A backing whose operations in a range go wrong.
#[derive(Debug)]
pub struct FaultyBacking<B> {
    inner: B,
    fault: Fault,
    faulty: Range<u64>,
    operations: u64,
}

impl<B: Backing> FaultyBacking<B> {
    /// `inner`, with `fault` at each operation whose number lies in `faulty`: `n..n + 1` for once,
    /// `n..u64::MAX` for ever after.
    pub fn new(inner: B, fault: Fault, faulty: Range<u64>) -> Self {
        Self { inner, fault, faulty, operations: 0 }
    }

    /// Counts an operation; the fault to make in it, if any.
    fn next_fault(&mut self) -> Option<Fault> {
        let number = self.operations;
        self.operations += 1;
        self.faulty.contains(&number).then_some(self.fault)
    }
}

/// Changes `bytes` as `fault` does silently.
fn spoil(bytes: &mut [u8], fault: Fault) {
    let middle = bytes.len() / 2;
    match fault {
        Fault::Tear => bytes[middle..].fill(0),
        Fault::Fail | Fault::Corrupt | Fault::Full => {
            if let Some(byte) = bytes.get_mut(middle) {
                *byte ^= 0x10;
            }
        }
    }
}

impl<B: Backing> Backing for FaultyBacking<B> {
    fn slots_max(&self) -> SlotCount {
        self.inner.slots_max()
    }

    fn write(&mut self, slot: SlotId, bytes: &[u8]) -> Result<(), BackingError> {
        let Some(fault) = self.next_fault() else { return self.inner.write(slot, bytes) };
        match fault {
            Fault::Fail | Fault::Full => {
                self.inner.write(slot, &bytes[..bytes.len() / 2])?;
                Err(match fault {
                    Fault::Full => BackingError::Full,
                    _ => BackingError::Sys(SysError { call: "pwrite", errno: EIO }),
                })
            }
            Fault::Corrupt | Fault::Tear => {
                let mut spoiled = Vec::from(bytes);
                spoil(&mut spoiled, fault);
                self.inner.write(slot, &spoiled)
            }
        }
    }

    fn read(&mut self, slot: SlotId, offset: Bytes, out: &mut [u8]) -> Result<(), BackingError> {
        let fault = self.next_fault();
        self.inner.read(slot, offset, out)?;
        match fault {
            None | Some(Fault::Full) => Ok(()),
            Some(fault) => {
                spoil(out, fault);
                match fault {
                    Fault::Fail => Err(BackingError::Sys(SysError { call: "pread", errno: EIO })),
                    _ => Ok(()),
                }
            }
        }
    }

    fn discard(&mut self, slot: SlotId) {
        self.inner.discard(slot);
    }

    fn trim(&mut self, most: SlotCount) -> SlotCount {
        self.inner.trim(most)
    }
}
