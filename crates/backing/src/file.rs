//! A backing in a file: slot `n` lies at byte `n * SLOT_BYTES`. In a child of `fork` the slots of
//! its ancestors are still read from their files, and the child's own slots lie in a file of its
//! own.
//!
//! The file is sparse and, by default, unnamed, so nothing is left behind however the program ends.
//! Lowest-first slot numbers keep it short. A written slot is sent to the disk at once: dirty bytes
//! would count as memory of the very program that is short of memory.
//!
//! A discarded slot becomes a hole only on request, by [`Backing::trim`]. Punching a hole waits for
//! the file system's journal and for writes still on their way (about 1 ms, up to 20, on ext4), and
//! a slot that is written again without a hole is written faster.
//!
//! Nothing is synced, because nothing has to outlive the process. If the disk loses a block after
//! it was taken, the owner finds out by the seal of the bytes read.

use alloc::vec::Vec;

use coldpress_sys::errno::{EDQUOT, EFBIG, ENOSPC};
use coldpress_sys::file::SpillFile;
use coldpress_sys::ring::{Ring, Transfer};
use coldpress_sys::{AsFd, BorrowedFd, Bytes, SysError, cpu};

use crate::{
    Backing, BackingError, EndedRequest, Queue, Request, SLOT_BYTES, SlotCount, SlotId, Way,
    check_range,
};

/// Bits of a transfer's token for its caller's token; the number of its layer is above them.
const LAYER_SHIFT: u32 = 16;

/// Time until the kernel is asked again for something that it could not do.
const RETRY_NS: u64 = 1_000_000;

/// Slots in a file of limited size.
#[derive(Debug)]
pub struct FileBacking {
    /// Dropped before the file, because dropping the ring waits for its transfers.
    ring: Option<Ring>,
    /// The layers by their first slots, the lowest first.
    layers: Vec<Layer>,
    /// The first slot that is not an ancestor's.
    own: SlotId,
    slots_max: SlotCount,
    /// One bit for each slot that was discarded and still has its disk blocks, up to the highest.
    stale: Vec<u64>,
    /// Transfers that plain calls have made.
    done: Queue,
}

/// A file and the first of its slots; the next layer's first slot is beyond its last.
#[derive(Debug)]
pub struct Layer {
    /// The file.
    pub file: SpillFile,
    /// The slot at the file's beginning.
    pub first: SlotId,
}

impl FileBacking {
    /// Makes a backing that keeps slots in `file`, up to `limit` bytes rounded down to whole slots.
    /// The contents of `file` are given up. Transfers go through `ring`, if there is one; otherwise
    /// by blocking calls.
    pub fn new(file: SpillFile, limit: Bytes, ring: Option<Ring>) -> Self {
        Self { ring, ..Self::by_plain_calls(file, limit) }
    }

    /// Makes a backing as [`FileBacking::new`] does, with blocking calls.
    pub fn by_plain_calls(file: SpillFile, limit: Bytes) -> Self {
        let layers = alloc::vec![Layer { file, first: SlotId(0) }];
        let slots_max = SlotCount::inside(limit);
        let (stale, done) = (Vec::new(), Queue::new());
        Self { ring: None, layers, own: SlotId(0), slots_max, stale, done }
    }

    /// Makes a backing for a child, which reads the slots below `own` from the files of its
    /// ancestors. From there on slots are kept in `file`, up to `limit` bytes, if there is one. The
    /// rest is as for [`FileBacking::new`]. A child without a file of its own passes no `ring`, and
    /// reads by blocking calls.
    pub fn of_heir(
        ancestors: Vec<Layer>,
        own: SlotId,
        file: Option<(SpillFile, Bytes)>,
        ring: Option<Ring>,
    ) -> Self {
        let mut layers = ancestors;
        let mut slots_max = SlotCount(own.0);
        if let Some((file, limit)) = file {
            slots_max = SlotCount(own.0.saturating_add(SlotCount::inside(limit).0));
            layers.push(Layer { file, first: own });
        }
        let (stale, done) = (Vec::new(), Queue::new());
        Self { ring, layers, own, slots_max, stale, done }
    }

    /// Returns the number of the layer that has `slot`. The first layer begins with the first slot.
    fn layer_of(&self, slot: SlotId) -> usize {
        self.layers.iter().rposition(|layer| layer.first <= slot).unwrap_or(0)
    }

    /// Turns a request into a transfer at its place in a file.
    fn transfer_of(&self, request: Request) -> Transfer {
        let Request { way, slot, offset, length, buffer, token } = request;
        let number = self.layer_of(slot);
        let in_file = SlotId(slot.0 - self.layers[number].first.0);
        let position = in_file.position() + offset;
        let token = token | (number as u32) << LAYER_SHIFT;
        Transfer { way, position, length, buffer, token }
    }

    /// Turns a transfer, which lies in one slot, back: the inverse of [`FileBacking::transfer_of`].
    fn request_of(&self, transfer: Transfer) -> Request {
        let Transfer { way, position, length, buffer, token } = transfer;
        let first = self.layers[(token >> LAYER_SHIFT) as usize].first;
        let slot = SlotId(first.0 + (position.0 / SLOT_BYTES.0) as u32);
        let offset = Bytes(position.0 % SLOT_BYTES.0);
        let token = token & ((1 << LAYER_SHIFT) - 1);
        Request { way, slot, offset, length, buffer, token }
    }

    /// Makes a transfer while the caller waits.
    fn transfer_now(&mut self, mut transfer: Transfer) {
        let bytes = &mut transfer.buffer[..transfer.length.0];
        let file = &self.layers[(transfer.token >> LAYER_SHIFT) as usize].file;
        let result = match transfer.way {
            Way::Write => file.write_all_at(bytes, transfer.position).map(|()| {
                file.start_write_out(transfer.position, transfer.length);
            }),
            Way::Read => file.read_exact_at(bytes, transfer.position),
        };
        let request = self.request_of(transfer);
        self.done.push(request, result.map_err(error_of));
    }
}

/// Returns the word of [`FileBacking::stale`] that a slot has its bit in, and the bit.
const fn bit_of(slot: SlotId) -> (usize, u64) {
    ((slot.0 / u64::BITS) as usize, 1 << (slot.0 % u64::BITS))
}

/// Returns the error that a failed call stands for: a full disk, or another error.
fn error_of(error: SysError) -> BackingError {
    match error.errno {
        EFBIG | ENOSPC | EDQUOT => BackingError::Full,
        _ => BackingError::Sys(error),
    }
}

impl Backing for FileBacking {
    fn slots_max(&self) -> SlotCount {
        self.slots_max
    }

    fn begin(&mut self, request: Request) {
        if let Err(error) = check_range(self.slots_max, &request) {
            self.done.push(request, Err(error));
            return;
        }
        if request.way == Way::Write {
            let (word, bit) = bit_of(request.slot);
            if let Some(word) = self.stale.get_mut(word) {
                *word &= !bit;
            }
        }
        let file = &self.layers[self.layer_of(request.slot)].file;
        let transfer = self.transfer_of(request);
        let refused = match &mut self.ring {
            Some(ring) => ring.begin(file, transfer),
            None => Err(transfer),
        };
        if let Err(transfer) = refused {
            self.transfer_now(transfer);
        }
    }

    fn ended(&mut self) -> Option<EndedRequest> {
        if let Some((transfer, done)) = self.ring.as_mut().and_then(Ring::ended) {
            if done == Ok(transfer.length) {
                return Some(EndedRequest { request: self.request_of(transfer), result: Ok(()) });
            }
            // A plain call makes the whole transfer, or gives the reason why not.
            self.transfer_now(transfer);
        }
        self.done.pop()
    }

    fn wait(&mut self) {
        if self.done.is_empty()
            && let Some(ring) = &self.ring
            && ring.wait().is_err()
        {
            // The kernel lacks some resource: ask it again a little later.
            cpu::sleep_ns(RETRY_NS);
        }
    }

    fn transfer_plainly(&mut self) {
        let Some(mut ring) = self.ring.take() else { return };
        while ring.count() > 0 {
            match ring.ended() {
                Some((transfer, Ok(length))) if length == transfer.length => {
                    let request = self.request_of(transfer);
                    self.done.push(request, Ok(()));
                }
                Some((transfer, _)) => self.transfer_now(transfer),
                None if ring.wait().is_err() => cpu::sleep_ns(RETRY_NS),
                None => {}
            }
        }
    }

    fn is_lent(&self) -> bool {
        self.layers.last().is_some_and(|own| own.first == self.own && own.file.is_lent())
    }

    fn signal(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(Ring::as_fd)
    }

    fn discard(&mut self, slot: SlotId) {
        let (word, bit) = bit_of(slot);
        let missing = (word + 1).saturating_sub(self.stale.len());
        // Without memory for its bit the slot keeps its blocks until it is written again.
        if slot >= self.own && slot.0 < self.slots_max.0 && self.stale.try_reserve(missing).is_ok()
        {
            self.stale.resize(self.stale.len() + missing, 0);
            self.stale[word] |= bit;
        }
    }

    fn trim(&mut self, most: SlotCount) -> SlotCount {
        let mut trimmed = SlotCount(0);
        // The highest first: the lowest are the next to be written again.
        while trimmed < most
            && let Some(&bits) = self.stale.last()
        {
            if bits == 0 {
                self.stale.pop();
                continue;
            }
            let word = self.stale.len() - 1;
            // Below `slots_max`, because only such slots got a bit.
            let slot = SlotId(word as u32 * u64::BITS + bits.ilog2());
            self.stale[word] &= !bit_of(slot).1;
            // Only the store's own slots were discarded, and its own file is the last.
            let position = SlotId(slot.0 - self.own.0).position();
            let punched = self.layers.last().map(|own| own.file.punch_hole(position, SLOT_BYTES));
            if !matches!(punched, Some(Ok(()))) {
                return trimmed;
            }
            trimmed.0 += 1;
        }
        trimmed
    }
}
