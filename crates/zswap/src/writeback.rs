//! Writeback: the oldest pages of the pool go to the backing store, compressed as they are, a slot
//! at a time.
//!
//! ```text
//! gather: copy the oldest objects into the batch, passing over those loaded since the last look
//! write:  one sequential write of the batch into a free slot
//! commit: only now each entry's place becomes the slot, and its object is freed
//! ```
//!
//! A slot has no header; each entry knows its bytes' place, length and checksum. A failed write
//! therefore leaves everything where it was. One write at a time, through a buffer reserved at the
//! start.

use core::num::NonZeroU16;

use coldpress_backing::{BackingError, SLOT_BYTES, SlotCount, SlotId};
use coldpress_mem::pools::Pool;
use coldpress_sys::PageCount;

use crate::Zswap;
use crate::entry::Place;
use crate::error::Warning;
use crate::limits::ATTEMPTS_SKIPPED;

impl<P: Pool> Zswap<P> {
    /// Whether pages can be written back, as far as is known: there is a backing store, it has a
    /// free slot, and it has not failed lately.
    pub fn writeback_possible(&self) -> bool {
        self.backing.is_some() && !self.slots.is_full() && self.limits.skip == 0
    }

    /// Writes back the oldest pages until the pool has let go of `frames_wanted` frames, or no more
    /// can be written. The number of frames it let go of.
    pub fn shrink(&mut self, frames_wanted: PageCount) -> PageCount {
        let before = self.pool_frames();
        loop {
            let freed = before.saturating_sub(self.pool_frames());
            if freed >= frames_wanted || !self.write_back_batch() {
                return freed;
            }
        }
    }

    /// Gives disk blocks of up to `most` free slots back to the system; of how many it did. It may
    /// take milliseconds for each: for a time when nobody waits.
    pub fn trim_backing(&mut self, most: SlotCount) -> SlotCount {
        self.backing.as_mut().map_or(SlotCount(0), |backing| backing.trim(most))
    }

    /// Writes back one batch of the oldest pages. Whether it did; if not, nothing has changed.
    pub(crate) fn write_back_batch(&mut self) -> bool {
        if self.backing.is_none() || self.lru.length() == 0 {
            return false;
        }
        if self.limits.skip > 0 {
            self.limits.skip -= 1;
            return false;
        }
        if self.slots.is_full() {
            self.warnings.raise(Warning::BackingFull);
            return false;
        }
        let (count, length) = self.gather();
        match self.write(count, length) {
            Ok(slot) => {
                self.commit(slot, count);
                self.counters.flushed_pages += u64::from(count);
                self.counters.flushed_bytes += length as u64;
                true
            }
            Err(error) => {
                self.counters.reject_flush_fail += 1;
                self.limits.skip = ATTEMPTS_SKIPPED;
                self.warnings.raise(match error {
                    BackingError::Sys(error) => Warning::BackingError(error),
                    BackingError::Full | BackingError::OutOfRange => Warning::BackingFull,
                });
                false
            }
        }
    }

    /// Copies the oldest objects into the batch, as many as fit: their number and the bytes they
    /// take. Afterwards they are the first in the LRU list, in the order of the batch.
    fn gather(&mut self) -> (u16, usize) {
        let (mut count, mut filled) = (0, 0);
        let mut next = self.lru.oldest();
        while let Some(id) = next {
            let entry = &mut self.entries[id];
            let younger = entry.younger;
            let Place::Pool { handle, length, referenced, .. } = &mut entry.place else { break };
            if *referenced {
                *referenced = false;
                self.counters.second_chances += 1;
                self.lru.unlink(&mut self.entries, id);
                self.lru.push_youngest(&mut self.entries, id);
                // The youngest, passed over, is still the last to look at.
                next = younger.or(Some(id));
                continue;
            }
            let end = filled + *length as usize;
            if end > SLOT_BYTES.0 || count == u16::MAX {
                break;
            }
            let batch = &mut self.batch[filled..end];
            self.pool.read(*handle, |bytes| batch.copy_from_slice(bytes));
            (count, filled) = (count + 1, end);
            next = younger;
        }
        (count, filled)
    }

    /// Writes `length` bytes of the batch into a free slot, for `count` users.
    fn write(&mut self, count: u16, length: usize) -> Result<SlotId, BackingError> {
        let backing = self.backing.as_mut().ok_or(BackingError::Full)?;
        let users = NonZeroU16::new(count).ok_or(BackingError::Full)?;
        let slot = self.slots.take(users).ok_or(BackingError::Full)?;
        if let Err(error) = backing.write(slot, &self.batch[..length]) {
            self.slots.leave_many(slot, users);
            backing.discard(slot);
            return Err(error);
        }
        Ok(slot)
    }

    /// Makes the `count` oldest entries, which are written in `slot`, lie there.
    fn commit(&mut self, slot: SlotId, count: u16) {
        let mut filled = 0;
        for _ in 0..count {
            let id = self.lru.oldest().expect("gathered entries are the oldest of the list");
            let Place::Pool { checksum, length, .. } = self.entries[id].place else { return };
            self.vacate(id);
            // Offsets are below SLOT_BYTES, see the assertion in `entry`.
            self.occupy(id, Place::Backing { slot, checksum, offset: filled as u16, length });
            filled += length as usize;
        }
    }

    /// Gives a slot back that nobody uses any more. There is room again, so writing back is tried
    /// again.
    pub(crate) fn discard(&mut self, slot: SlotId) {
        if let Some(backing) = &mut self.backing {
            backing.discard(slot);
            self.counters.slots_discarded += 1;
            self.limits.skip = 0;
        }
    }
}
