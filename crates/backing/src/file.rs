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
//! taken is found by the owner's checksum.

use alloc::vec::Vec;

use coldpress_sys::file::SpillFile;
use coldpress_sys::{Bytes, SysError};

use crate::{Backing, BackingError, SLOT_BYTES, SlotCount, SlotId, check_range};

/// `EFBIG`: beyond the file size the process or the file system allows (asm-generic/errno-base.h).
const EFBIG: i32 = 27;
/// `ENOSPC` (asm-generic/errno-base.h).
const ENOSPC: i32 = 28;
/// `EDQUOT`: the user's share of the disk is used up (asm-generic/errno.h).
const EDQUOT: i32 = 122;

/// Slots in a file of limited size.
#[derive(Debug)]
pub struct FileBacking {
    file: SpillFile,
    slots_max: SlotCount,
    /// One bit for each slot that was discarded and still has its disk blocks, as far as any was.
    stale: Vec<u64>,
}

impl FileBacking {
    /// Keeps slots in `file`, up to `limit` bytes rounded down to whole slots. The contents of
    /// `file` are given up.
    pub fn new(file: SpillFile, limit: Bytes) -> Self {
        Self { file, slots_max: SlotCount::inside(limit), stale: Vec::new() }
    }
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

    fn write(&mut self, slot: SlotId, bytes: &[u8]) -> Result<(), BackingError> {
        check_range(self.slots_max, slot, Bytes(0), bytes.len())?;
        let (word, bit) = bit_of(slot);
        if let Some(word) = self.stale.get_mut(word) {
            *word &= !bit;
        }
        self.file.write_all_at(bytes, slot.position()).map_err(error_of)?;
        self.file.start_write_out(slot.position(), Bytes(bytes.len()));
        Ok(())
    }

    fn read(&mut self, slot: SlotId, offset: Bytes, out: &mut [u8]) -> Result<(), BackingError> {
        check_range(self.slots_max, slot, offset, out.len())?;
        self.file.read_exact_at(out, slot.position() + offset.0 as u64).map_err(error_of)
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
