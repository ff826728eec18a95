//! A backing in a file: slot `n` lies at byte `n * SLOT_BYTES`.
//!
//! The file is sparse and, by default, unnamed, so nothing is left behind however the program ends.
//! Lowest-first slot numbers keep it short. A written slot is sent to the disk at once: dirty bytes
//! would count as memory of the very program that is short of it.
//!
//! A discarded slot becomes a hole only on request, by [`Backing::trim`]. Making a hole waits for
//! the file system's journal and for writes still on their way (about 1 ms, up to 20, on ext4), and
//! a slot that is written again without one is written faster.
//!
//! Nothing is synced, for nothing has to outlive the process. A block the disk loses after it was
//! taken is found by its owner, by the seal of what was read.

use alloc::vec::Vec;

use coldpress_sys::file::SpillFile;
use coldpress_sys::ring::{Ring, Transfer};
use coldpress_sys::{AsFd, BorrowedFd, Bytes, SysError, cpu};

use crate::{
    Backing, BackingError, Ended, Queue, Request, SLOT_BYTES, SlotCount, SlotId, Way, check_range,
};

/// `EFBIG`: beyond the file size the process or the file system allows (asm-generic/errno-base.h).
const EFBIG: i32 = 27;
/// `ENOSPC` (asm-generic/errno-base.h).
const ENOSPC: i32 = 28;
/// `EDQUOT`: the user's share of the disk is used up (asm-generic/errno.h).
const EDQUOT: i32 = 122;

/// How long until the kernel is asked again for what it could not do.
const RETRY_NS: u64 = 1_000_000;

/// Slots in a file of limited size.
#[derive(Debug)]
pub struct FileBacking {
    /// Dropped before the file: it waits for its transfers.
    ring: Option<Ring>,
    file: SpillFile,
    slots_max: SlotCount,
    /// One bit for each slot that was discarded and still has its disk blocks, as far as any was.
    stale: Vec<u64>,
    /// What plain calls did.
    done: Queue,
}

impl FileBacking {
    /// Keeps slots in `file`, up to `limit` bytes rounded down to whole slots. The contents of
    /// `file` are given up. Transfers go through io_uring where the system has it, so this must be
    /// called on the thread that begins them; elsewhere by calls that wait.
    pub fn new(file: SpillFile, limit: Bytes) -> Self {
        Self { ring: Ring::new().ok(), ..Self::by_plain_calls(file, limit) }
    }

    /// As [`FileBacking::new`], by calls that wait.
    pub fn by_plain_calls(file: SpillFile, limit: Bytes) -> Self {
        let slots_max = SlotCount::inside(limit);
        Self { ring: None, file, slots_max, stale: Vec::new(), done: Queue::new() }
    }

    /// Makes a transfer while the caller waits.
    fn transfer_now(&mut self, mut transfer: Transfer) {
        let bytes = &mut transfer.buffer[..transfer.length.0];
        let result = match transfer.way {
            Way::Write => self.file.write_all_at(bytes, transfer.position).map(|()| {
                self.file.start_write_out(transfer.position, transfer.length);
            }),
            Way::Read => self.file.read_exact_at(bytes, transfer.position),
        };
        self.done.push(request_of(transfer), result.map_err(error_of));
    }
}

/// Where in the file a transfer takes place.
fn transfer_of(request: Request) -> Transfer {
    let Request { way, slot, offset, length, buffer, token } = request;
    Transfer { way, position: slot.position() + offset.0 as u64, length, buffer, token }
}

/// The inverse of [`transfer_of`]: a transfer lies in one slot.
fn request_of(transfer: Transfer) -> Request {
    let Transfer { way, position, length, buffer, token } = transfer;
    let slot_bytes = SLOT_BYTES.0 as u64;
    let slot = SlotId((position / slot_bytes) as u32);
    let offset = Bytes((position % slot_bytes) as usize);
    Request { way, slot, offset, length, buffer, token }
}

/// The word of [`FileBacking::stale`] a slot has its bit in, and the bit.
const fn bit_of(slot: SlotId) -> (usize, u64) {
    ((slot.0 / u64::BITS) as usize, 1 << (slot.0 % u64::BITS))
}

/// The error a full disk, or another one, stands for.
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
        let transfer = transfer_of(request);
        let refused = match &mut self.ring {
            Some(ring) => ring.begin(&self.file, transfer),
            None => Err(transfer),
        };
        if let Err(transfer) = refused {
            self.transfer_now(transfer);
        }
    }

    fn ended(&mut self) -> Option<Ended> {
        if let Some((transfer, done)) = self.ring.as_mut().and_then(Ring::ended) {
            if done == Ok(transfer.length) {
                return Some(Ended { request: request_of(transfer), result: Ok(()) });
            }
            // A plain call does the whole of it, or says why not.
            self.transfer_now(transfer);
        }
        self.done.pop()
    }

    fn wait(&mut self) {
        if self.done.is_empty()
            && let Some(ring) = &self.ring
            && ring.wait().is_err()
        {
            // The kernel is out of something: it is asked again a little later.
            cpu::sleep_ns(RETRY_NS);
        }
    }

    fn signal(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(Ring::as_fd)
    }

    fn discard(&mut self, slot: SlotId) {
        let (word, bit) = bit_of(slot);
        let missing = (word + 1).saturating_sub(self.stale.len());
        // Without memory for its bit the slot keeps its blocks until it is written again.
        if slot.0 < self.slots_max.0 && self.stale.try_reserve(missing).is_ok() {
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
            // Below `slots_max`, for only such slots got a bit.
            let slot = SlotId(word as u32 * u64::BITS + bits.ilog2());
            self.stale[word] &= !bit_of(slot).1;
            if self.file.punch_hole(slot.position(), SLOT_BYTES).is_err() {
                return trimmed;
            }
            trimmed.0 += 1;
        }
        trimmed
    }
}
