//! Writeback: the oldest pages of the pool go to the backing store, compressed as they are and
//! sealed, a slot at a time.
//!
//! ```text
//! gather: seal the oldest objects into a batch, passing over those loaded since the last look
//! begin:  one sequential write of the batch into a free slot; its pages are leaving
//! end:    only now each entry's place becomes the slot, and its object is freed
//! ```
//!
//! A slot has no header; each entry knows its bytes' place, length and checksum. While a page is
//! leaving it is loaded and dropped like any page of the pool. A failed write therefore leaves
//! everything where it was, and what is written again is sealed again, in another batch.

use core::num::NonZeroU16;

use coldpress_backing::{BackingError, Ended, Request, SLOT_BYTES, SlotCount, SlotId, Way};
use coldpress_mem::pools::Pool;
use coldpress_sys::{BorrowedFd, Bytes, PageCount};

use crate::entry::Place;
use crate::error::Warning;
use crate::limits::ATTEMPTS_SKIPPED;
use crate::outgoing::{BATCHES, MEMBERS_MAX, Member};
use crate::seal::{Position, sealed_length};
use crate::{HELD, Zswap};

/// A pool may be above its limit by this part of it while batches are on their way: that is what
/// keeps a slow disk from holding up every page that is stored.
const SLACK_SHARE: usize = 8;

impl<P: Pool> Zswap<P> {
    /// Whether pages can be written back, as far as is known: there is a backing store, it has a
    /// free slot, it has not failed lately, and the knobs allow it.
    pub fn writeback_possible(&self) -> bool {
        let knobs_allow = self.limits.knobs().writeback && self.limits.may_spend_writeback();
        knobs_allow && self.backing.is_some() && !self.slots.is_full() && self.limits.skip == 0
    }

    /// Whether the pool is well above its limit because the backing store does not keep up. A
    /// caller that can wait should, by [`Zswap::wait`] or for [`Zswap::signal`], before it stores
    /// more.
    pub fn is_behind(&self) -> bool {
        let max_pool = self.limits.knobs().max_pool.0;
        let limit = max_pool.saturating_add(max_pool / SLACK_SHARE);
        self.backing.is_some() && self.outgoing.is_busy() && self.pool_frames().0 > limit
    }

    /// What becomes readable when [`Zswap::reap`] has something to take in. `None` when nothing
    /// outlasts the call that began it.
    pub fn signal(&self) -> Option<BorrowedFd<'_>> {
        self.backing.as_ref().and_then(|backing| backing.signal())
    }

    /// Takes in what the backing store has finished; whether there was anything.
    pub fn reap(&mut self) -> bool {
        let mut any = false;
        while let Some(Ended { request, result }) =
            self.backing.as_mut().and_then(|backing| backing.ended())
        {
            any = true;
            match (request.token as usize).checked_sub(BATCHES) {
                Some(number) => self.incoming.end(number, request.buffer, result),
                None => self.end_write(request, result),
            }
        }
        any
    }

    /// Waits until the backing store has finished something, if anything is under way, and takes it
    /// in.
    pub fn wait(&mut self) {
        if let Some(backing) = &mut self.backing {
            backing.wait();
        }
        self.reap();
    }

    /// Writes back the oldest pages, and waits for it, until the pool has let go of `frames_wanted`
    /// frames, or no more can be written. The number of frames it let go of.
    pub fn shrink(&mut self, frames_wanted: PageCount) -> PageCount {
        let before = self.pool_frames();
        self.finish_writes();
        while before.saturating_sub(self.pool_frames()) < frames_wanted && self.write_back_batch() {
        }
        before.saturating_sub(self.pool_frames())
    }

    /// Gives disk blocks of up to `most` free slots back to the system; of how many it did. It may
    /// take milliseconds for each, and waits for writes under way: for a time when nobody waits.
    pub fn trim_backing(&mut self, most: SlotCount) -> SlotCount {
        self.backing.as_mut().map_or(SlotCount(0), |backing| backing.trim(most))
    }

    /// Writes back one batch of the oldest pages and waits for it. Whether it was written; if not,
    /// nothing has changed.
    pub(crate) fn write_back_batch(&mut self) -> bool {
        self.finish_writes();
        let failed = self.counters.reject_flush_fail;
        let begun = self.begin_write_back();
        self.finish_writes();
        begun && self.counters.reject_flush_fail == failed
    }

    /// Waits for all batches under way; whether there was one.
    pub(crate) fn finish_writes(&mut self) -> bool {
        let mut any = false;
        while self.outgoing.under_way().next().is_some() {
            any = true;
            self.wait();
        }
        any
    }

    /// Begins to write back one batch of the oldest pages. Whether it did.
    pub(crate) fn begin_write_back(&mut self) -> bool {
        if self.backing.is_none() || self.lru.length() == 0 {
            return false;
        }
        if !self.limits.knobs().writeback {
            self.counters.reject_writeback_off += 1;
            return false;
        }
        if !self.limits.may_spend_writeback() {
            self.counters.reject_writeback_limit += 1;
            return false;
        }
        if self.outgoing.is_busy() {
            self.counters.reject_tmppage_fail += 1;
            return false;
        }
        if self.limits.skip > 0 {
            self.limits.skip -= 1;
            self.counters.flush_skipped += 1;
            return false;
        }
        if self.slots.is_full() {
            self.counters.reject_backing_full += 1;
            self.warnings.raise(Warning::BackingFull);
            return false;
        }
        let Some((number, mut buffer)) = self.outgoing.take() else { return false };
        let (count, length, stamp) = self.gather(&mut buffer);
        let slot = NonZeroU16::new(count).and_then(|users| self.slots.take(users, stamp));
        let (Some(slot), Some(backing)) = (slot, &mut self.backing) else {
            // No memory to count one more slot.
            self.outgoing.give_back(number, buffer);
            return false;
        };
        backing.begin(Request {
            way: Way::Write,
            slot,
            offset: Bytes(0),
            length: Bytes(length),
            buffer,
            token: number as u32,
        });
        self.send_off(number, slot, count);
        self.limits.spend_writeback(Bytes(length));
        true
    }

    /// Seals the oldest objects into the buffer, as many as fit: their number, the bytes they take
    /// and the number of the batch. Afterwards they are the first in the LRU list, in the order of
    /// the batch.
    fn gather(&mut self, buffer: &mut [u8]) -> (u16, usize, u64) {
        let (mut count, mut filled) = (0, 0);
        let Some(sealer) = &mut self.sealer else { return (0, 0, 0) };
        let batch = sealer.next_batch();
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
            let end = filled + sealed_length(*length).0;
            if end > SLOT_BYTES.0 || usize::from(count) == MEMBERS_MAX {
                break;
            }
            let sealed = &mut buffer[filled..end];
            // Offsets are below SLOT_BYTES, see the assertion in `entry`.
            let position = Position { batch, offset: filled as u16 };
            let seal = |bytes: &[u8]| sealer.seal(position, bytes, sealed);
            self.pool.read(*handle, seal).expect(HELD);
            (count, filled) = (count + 1, end);
            next = younger;
        }
        (count, filled, batch)
    }

    /// Makes the `count` oldest entries, which are in a batch, leave.
    fn send_off(&mut self, number: usize, slot: SlotId, count: u16) {
        let batch = self.outgoing.batch(number);
        batch.slot = slot;
        batch.members.clear();
        let mut filled = 0;
        for index in 0..usize::from(count) {
            let id = self.lru.oldest().expect("gathered entries are the oldest of the list");
            let Place::Pool { handle, checksum, length, coding, .. } = self.entries[id].place
            else {
                return;
            };
            self.lru.unlink(&mut self.entries, id);
            let (offset, member) = (filled as u16, Member::new(number, index));
            let place = Place::Leaving { handle, checksum, offset, length, coding, member };
            self.occupy(id, place);
            self.outgoing.batch(number).members.push(Some(id));
            filled += sealed_length(length).0;
        }
    }

    /// A batch is over: its pages lie in the slot, or stay in the pool.
    fn end_write(&mut self, request: Request, result: Result<(), BackingError>) {
        let Request { slot, length, buffer, token, .. } = request;
        match result {
            Ok(()) => {
                self.counters.flushed_bytes += length.0 as u64;
                self.commit(token as usize, slot);
            }
            Err(error) => {
                self.counters.reject_flush_fail += 1;
                self.limits.skip = ATTEMPTS_SKIPPED;
                self.warnings.raise(match error {
                    BackingError::Sys(error) => Warning::BackingError(error),
                    BackingError::Full | BackingError::OutOfRange => Warning::BackingFull,
                });
                self.take_back(token as usize, slot);
            }
        }
        self.outgoing.give_back(token as usize, buffer);
    }

    /// The pages of a batch are written: their objects are freed.
    fn commit(&mut self, number: usize, slot: SlotId) {
        for index in 0..self.outgoing.batch(number).members.len() {
            let left = match self.outgoing.batch(number).members[index] {
                None => self.slots.leave(slot),
                Some(id) => {
                    let Place::Leaving { checksum, offset, length, coding, .. } =
                        self.entries[id].place
                    else {
                        continue;
                    };
                    self.vacate(id);
                    self.occupy(id, Place::Backing { slot, checksum, offset, length, coding });
                    self.counters.flushed_pages += 1;
                    false
                }
            };
            if left {
                self.discard(slot);
            }
        }
    }

    /// The pages of a batch were not written: they are the oldest of the pool again.
    fn take_back(&mut self, number: usize, slot: SlotId) {
        let count = self.outgoing.batch(number).members.len();
        for index in (0..count).rev() {
            let Some(id) = self.outgoing.batch(number).members[index] else { continue };
            let Place::Leaving { handle, checksum, length, coding, .. } = self.entries[id].place
            else {
                continue;
            };
            self.leaving -= 1;
            self.entries[id].place = Place::new_in_pool(handle, checksum, length, coding);
            self.lru.push_oldest(&mut self.entries, id);
        }
        if let Some(users) = u16::try_from(count).ok().and_then(NonZeroU16::new) {
            self.slots.leave_many(slot, users);
        }
        if let Some(backing) = &mut self.backing {
            backing.discard(slot);
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
