//! A backing that goes wrong on request: around any other, for operations of a chosen range.
//!
//! Writes and reads are numbered together, from zero. Failing "at operation N, for all N" then
//! walks every error path of a user.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::errno::EIO;
use coldpress_sys::{BorrowedFd, Bytes, SysError};

use crate::{Backing, BackingError, EndedRequest, Request, SlotCount, SlotId, Way};

/// The ways in which an operation goes wrong.
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
    /// The operation is reported as ended only when the caller waits for it: later than all others,
    /// in the reverse order of their beginnings.
    Delay,
}

/// A backing whose operations in a range go wrong.
#[derive(Debug)]
pub struct FaultyBacking<B> {
    inner: B,
    fault: Fault,
    faulty: Range<u64>,
    operations: u64,
    /// Faulty operations under way: their token, and the length that was asked for.
    under_way: Vec<(u32, Bytes)>,
    /// Operations that have not ended in `inner`.
    inside: usize,
    /// Operations that have ended there: those not to be reported yet, and those to be reported.
    delayed: Vec<EndedRequest>,
    told: VecDeque<EndedRequest>,
}

impl<B: Backing> FaultyBacking<B> {
    /// Wraps `inner`, with `fault` at each operation whose number lies in `faulty`: `n..n + 1` for
    /// once, `n..u64::MAX` for ever after. Tokens under way must differ.
    pub fn new(inner: B, fault: Fault, faulty: Range<u64>) -> Self {
        let (under_way, delayed, told) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { inner, fault, faulty, operations: 0, under_way, inside: 0, delayed, told }
    }

    /// Takes the operations that have ended in `inner`.
    fn take_ended(&mut self) {
        while let Some(mut ended) = self.inner.ended() {
            self.inside -= 1;
            let token = ended.request.token;
            let place = self.under_way.iter().position(|&(other, _)| other == token);
            if let Some(place) = place {
                self.end(&mut ended);
                ended.request.length = self.under_way.swap_remove(place).1;
            }
            match self.fault {
                Fault::Delay if place.is_some() => self.delayed.push(ended),
                _ => self.told.push_back(ended),
            }
        }
    }

    /// Changes the outcome of a faulty operation that has ended in `inner` to what the caller gets.
    fn end(&self, ended: &mut EndedRequest) {
        let errno = EIO;
        let (way, inside) = (ended.request.way, ended.result.is_ok());
        let bytes = &mut ended.request.buffer[..ended.request.length.0];
        match (self.fault, way) {
            _ if !inside => {}
            (Fault::Fail, Way::Write) => {
                ended.result = Err(BackingError::Sys(SysError { call: "pwrite", errno }));
            }
            (Fault::Fail, Way::Read) => {
                spoil(bytes, self.fault);
                ended.result = Err(BackingError::Sys(SysError { call: "pread", errno }));
            }
            (Fault::Full, Way::Write) => ended.result = Err(BackingError::Full),
            (Fault::Corrupt | Fault::Tear, Way::Read) => spoil(bytes, self.fault),
            (Fault::Corrupt | Fault::Tear, Way::Write)
            | (Fault::Full, Way::Read)
            | (Fault::Delay, _) => {}
        }
    }
}

/// Changes `bytes` silently, as `fault` does.
fn spoil(bytes: &mut [u8], fault: Fault) {
    let middle = bytes.len() / 2;
    match fault {
        Fault::Tear => bytes[middle..].fill(0),
        Fault::Fail | Fault::Corrupt | Fault::Full | Fault::Delay => {
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

    fn begin(&mut self, mut request: Request) {
        let number = self.operations;
        self.operations += 1;
        if self.faulty.contains(&number) {
            self.under_way.push((request.token, request.length));
            let length = request.length.0.min(request.buffer.len());
            match (self.fault, request.way) {
                (Fault::Fail | Fault::Full, Way::Write) => request.length = Bytes(length / 2),
                (Fault::Corrupt | Fault::Tear, Way::Write) => {
                    spoil(&mut request.buffer[..length], self.fault);
                }
                (_, Way::Read) | (Fault::Delay, Way::Write) => {}
            }
        }
        self.inside += 1;
        self.inner.begin(request);
    }

    fn ended(&mut self) -> Option<EndedRequest> {
        self.take_ended();
        self.told.pop_front()
    }

    fn wait(&mut self) {
        self.take_ended();
        while self.told.is_empty() && self.inside > 0 {
            self.inner.wait();
            self.take_ended();
        }
        if self.told.is_empty() {
            self.told.extend(self.delayed.pop());
        }
    }

    fn signal(&self) -> Option<BorrowedFd<'_>> {
        self.inner.signal()
    }

    fn transfer_plainly(&mut self) {
        self.inner.transfer_plainly();
    }

    fn discard(&mut self, slot: SlotId) {
        self.inner.discard(slot);
    }

    fn trim(&mut self, most: SlotCount) -> SlotCount {
        self.inner.trim(most)
    }
}
