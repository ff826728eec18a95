//! Writeback: the oldest pages of the pool go to the backing store, compressed as they are and
//! sealed, a slot at a time.
//!
//! ```text
//! gather: seal the oldest objects into a batch, passing over those loaded since the last look;
//!         each page is leaving from then on
//! begin:  one sequential write of the batch into a free slot
//! end:    only now each entry's place becomes the slot, and its object is freed
//! ```
//!
//! A slot has no header; each entry records the place, length and checksum of its bytes. A page
//! that is leaving is loaded and dropped like any page of the pool. A failed write therefore leaves
//! every page where it was. Objects that are written again are sealed again, in another batch.
//!
//! Objects are sealed under their pins, without holding a lock. Several callers may write back at a
//! time, each its own batch.

use alloc::boxed::Box;
use core::num::NonZeroU16;

use crate::pool::Pool;
use coldpress_backing::{BackingError, EndedRequest, Request, SLOT_BYTES, SlotId, Way};
use coldpress_sys::sync::Backoff;
use coldpress_sys::{Bytes, PageCount};

use crate::base::Base;
use crate::disk::{Disk, Transfers};
use crate::entry::PagePlace;
use crate::error::Warning;
use crate::ids::{BATCHES, MEMBERS_MAX, Member, PageId};
use crate::incoming::READS;
use crate::limits::ATTEMPTS_SKIPPED;
use crate::lru::Heads;
use crate::seal::{Sealer, sealed_length};

/// Divisor of the limit that gives the slack: how far a pool may exceed its limit while batches are
/// under way. The slack keeps a slow disk from holding up every page that is stored.
const SLACK_SHARE: usize = 8;

/// The age in eras that pages of a failed write are given: older than the pages that stayed behind.
const TAKEN_BACK_ERAS: u16 = 1 << 15;

/// A batch that was begun: its place and its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BegunBatch {
    place: usize,
    number: u64,
}

/// Writeback of the pages in `base` to its `disk`.
pub(crate) struct Writeback<'z, P> {
    pub(crate) base: &'z Base<P>,
    pub(crate) disk: &'z Disk,
}

impl<'z, P: Pool> Writeback<'z, P> {
    /// Returns the writeback of `base`, if it has a disk.
    pub(crate) fn of(base: &'z Base<P>) -> Option<Self> {
        base.disk.as_ref().map(|disk| Self { base, disk })
    }

    /// Returns whether pages can be written back, as far as is known: the disk has a free slot and
    /// has not failed lately, and the knobs allow it.
    pub(crate) fn is_possible(&self) -> bool {
        let disk_allows = {
            let transfers = self.disk.transfers.lock();
            !transfers.slots.is_full() && transfers.skip == 0
        };
        let limits = self.base.limits.lock();
        disk_allows && limits.knobs().writeback && limits.may_spend_writeback()
    }

    /// Returns whether the pool is well above its limit because the disk does not keep up.
    pub(crate) fn is_behind(&self) -> bool {
        let max_pool = self.base.knobs().max_pool.0;
        let limit = max_pool.saturating_add(max_pool / SLACK_SHARE);
        self.base.objects.frames().0 > limit && self.disk.transfers.lock().outgoing.is_busy()
    }

    /// Returns whether the disk had finished anything, after taking that in.
    pub(crate) fn reap(&self) -> bool {
        self.take_in(&mut self.disk.transfers.lock())
    }

    /// Waits until the disk has finished something, if anything is under way, and takes it in.
    pub(crate) fn wait(&self) {
        let transfers = &mut *self.disk.transfers.lock();
        transfers.backing.wait();
        self.take_in(transfers);
    }

    /// Writes back the oldest pages, and waits for the writes, until the pool has let go of
    /// `frames_wanted` frames or no more can be written. Returns the number of frames that it let
    /// go of.
    pub(crate) fn shrink(&self, frames_wanted: PageCount) -> PageCount {
        let before = self.base.objects.frames();
        let gone = || before.saturating_sub(self.base.objects.frames());
        self.finish_writes();
        while gone() < frames_wanted && self.write_batch() {}
        gone()
    }

    /// Begins to bring a pool that holds more than the knobs allow back to its limit: one batch a
    /// call. Waits for nothing, and does nothing while writeback is not possible.
    pub(crate) fn shrink_to_limit(&self) {
        let is_over = self.base.objects.frames() > self.base.knobs().max_pool;
        if is_over && self.is_possible() && !self.disk.transfers.lock().outgoing.is_busy() {
            self.begin_to_shrink();
        }
    }

    /// Begins to write back a batch, and takes in batches that have ended.
    pub(crate) fn begin_to_shrink(&self) {
        self.reap();
        if self.begin_batch().is_some() {
            // The batch may have ended already.
            self.reap();
        }
    }

    /// Returns whether the pool may have changed, after writing back one batch of the oldest pages
    /// and waiting for it. If the batches of other callers hold all there is to write, waits for
    /// those.
    pub(crate) fn write_batch(&self) -> bool {
        self.finish_writes();
        match self.begin_batch() {
            Some(begun) => self.wait_for(begun),
            None => self.finish_writes(),
        }
    }

    /// Returns whether any batch was under way at the call, after waiting for all of them.
    pub(crate) fn finish_writes(&self) -> bool {
        let mut any = false;
        for place in 0..BATCHES {
            let number = self.disk.transfers.lock().outgoing.batch(place).number;
            let begun = BegunBatch { place, number };
            if self.disk.transfers.lock().outgoing.is_under_way(place, number) {
                any = true;
                self.wait_for(begun);
            }
        }
        any
    }

    /// Returns whether this batch, or a later one in its place, was written, after waiting for it.
    fn wait_for(&self, begun: BegunBatch) -> bool {
        let mut backoff = Backoff::default();
        loop {
            let mut guard = self.disk.transfers.lock();
            let transfers = &mut *guard;
            if !transfers.outgoing.is_under_way(begun.place, begun.number) {
                return transfers.outgoing.batch(begun.place).written >= begun.number;
            }
            transfers.backing.wait();
            if !self.take_in(transfers) {
                drop(guard);
                // Another caller is still gathering the batch.
                backoff.wait();
            }
        }
    }

    /// Begins to write back one batch of the oldest pages. Returns which, or `None` if it could
    /// not.
    pub(crate) fn begin_batch(&self) -> Option<BegunBatch> {
        let mut heads = self.base.shards.heads(|tables| tables.lru.oldest_era(&tables.entries));
        heads.oldest(self.base.shards.eras.now())?;
        let sealer = self.disk.sealers.own()?;
        let (begun, mut buffer) = self.take_batch(sealer)?;
        let length = self.gather(sealer, begun, &mut buffer, &mut heads);
        let transfers = &mut *self.disk.transfers.lock();
        let count = transfers.outgoing.batch(begun.place).members.len();
        debug_assert_eq!(length == Bytes(0), count == 0, "a batch of {count} pages");
        let users = u16::try_from(count).ok().and_then(NonZeroU16::new);
        let slot = users.and_then(|users| transfers.slots.take(users, begun.number));
        let Some(slot) = slot else {
            // Other callers have taken the last slot, or all pages; or there is no memory to count
            // one more slot.
            self.take_back(transfers, begun.place);
            transfers.outgoing.give_back(begun.place, buffer);
            self.base.limits.lock().refund_writeback(SLOT_BYTES);
            return None;
        };
        transfers.outgoing.batch(begun.place).slot = slot;
        transfers.backing.begin(Request {
            way: Way::Write,
            slot,
            offset: Bytes(0),
            length,
            buffer,
            token: begun.place as u32,
        });
        self.base.limits.lock().refund_writeback(SLOT_BYTES - length);
        Some(begun)
    }

    /// Takes the buffer of a new batch, if one may be written back, and a slot's worth of this
    /// period's bytes.
    fn take_batch(&self, sealer: &Sealer) -> Option<(BegunBatch, Box<[u8]>)> {
        let counted = self.base.shards.counted();
        let transfers = &mut *self.disk.transfers.lock();
        let limits = &mut *self.base.limits.lock();
        if !limits.knobs().writeback {
            counted.reject_writeback_off.add(1);
            return None;
        }
        if !limits.may_spend_writeback() {
            counted.reject_writeback_limit.add(1);
            return None;
        }
        if transfers.outgoing.is_busy() {
            counted.reject_tmppage_fail.add(1);
            return None;
        }
        if transfers.skip > 0 {
            transfers.skip -= 1;
            counted.flush_skipped.add(1);
            return None;
        }
        if transfers.slots.is_full() {
            counted.reject_backing_full.add(1);
            self.base.warnings.lock().raise(Warning::BackingFull);
            return None;
        }
        let number = sealer.next_batch();
        let (place, buffer) = transfers.outgoing.take(number)?;
        limits.spend_writeback(SLOT_BYTES);
        Some((BegunBatch { place, number }, buffer))
    }

    /// Seals the oldest objects into the buffer, as many as fit, and makes their pages leave.
    /// Returns the bytes they take. `heads` holds the eras of the oldest pages.
    fn gather(
        &self,
        sealer: &Sealer,
        begun: BegunBatch,
        buffer: &mut [u8],
        heads: &mut Heads,
    ) -> Bytes {
        let (mut count, mut filled) = (0, 0);
        // One chance per object: otherwise a few pages that are loaded all the time would keep the
        // loop going.
        let mut chances = self.base.objects.pool.stats().objects;
        while count < MEMBERS_MAX
            && let Some(shard) = heads.oldest(self.base.shards.eras.now())
        {
            let mut transfers = self.disk.transfers.lock();
            let mut guard = self.base.shards[shard].tables.lock();
            let tables = &mut *guard;
            let oldest = tables.lru.oldest().map(|id| (id, tables.entries[id].place));
            let Some((id, place)) = oldest else {
                // Other callers have taken the last page.
                heads.0[shard] = None;
                continue;
            };
            let PagePlace::Pool { handle, checksum, length, coding, referenced, tried, era } =
                place
            else {
                break;
            };
            let end = filled + sealed_length(length).0;
            let has_chance = referenced && chances > 0;
            if !has_chance && end > SLOT_BYTES.0 {
                break;
            }
            tables.leave(id);
            if has_chance {
                chances -= 1;
                let referenced = false;
                let again =
                    PagePlace::Pool { handle, checksum, length, coding, referenced, tried, era };
                self.base.shards.occupy(tables, id, again);
                heads.0[shard] = tables.lru.oldest_era(&tables.entries);
                self.base.shards.counted().second_chances.add(1);
                continue;
            }
            assert!(end <= SLOT_BYTES.0, "the batch takes more than a slot");
            // Offsets are below SLOT_BYTES, see the assertion in `entry`.
            let (offset, member) = (filled as u16, Member::new(begun.place, count));
            let leaving = PagePlace::Leaving { handle, checksum, offset, length, coding, member };
            self.base.shards.occupy(tables, id, leaving);
            heads.0[shard] = tables.lru.oldest_era(&tables.entries);
            let members = &mut transfers.outgoing.batch(begun.place).members;
            debug_assert_eq!(members.len(), count, "a batch is gathered by one caller");
            members.push(Some(PageId::new(shard, id)));
            drop(transfers);
            let sealed = &mut buffer[filled..end];
            let seal = |bytes: &[u8]| {
                drop(guard);
                sealer.seal(begun.number, offset, bytes, sealed);
            };
            self.base.objects.read(handle, seal);
            self.base.shards.counted().note_flushed_age(self.base.shards.eras.class(era));
            (count, filled) = (count + 1, end);
        }
        Bytes(filled)
    }

    /// Returns whether the disk had finished anything, in either direction, after taking that in.
    /// The caller has the transfers in hand.
    pub(crate) fn take_in(&self, transfers: &mut Transfers) -> bool {
        let mut any = false;
        while let Some(EndedRequest { request, result }) = transfers.backing.ended() {
            any = true;
            assert!((request.token as usize) < BATCHES + READS, "no transfer has this token");
            match (request.token as usize).checked_sub(BATCHES) {
                Some(number) => transfers.incoming.end(number, request.buffer, result),
                None => self.end_write(transfers, request, result),
            }
        }
        any
    }

    /// Ends a batch: its pages lie in the slot from now on, or stay in the pool.
    fn end_write(
        &self,
        transfers: &mut Transfers,
        request: Request,
        result: Result<(), BackingError>,
    ) {
        let Request { slot, length, buffer, token, .. } = request;
        let place = token as usize;
        let batch = transfers.outgoing.batch(place);
        assert_eq!(batch.slot, slot, "a batch ends in the slot that it began in");
        match result {
            Ok(()) => {
                self.base.shards.counted().flushed_bytes.add(length.0 as u64);
                self.commit(transfers, place, slot);
            }
            Err(error) => {
                self.base.shards.counted().reject_flush_fail.add(1);
                transfers.skip = ATTEMPTS_SKIPPED;
                self.base.warnings.lock().raise(match error {
                    BackingError::Sys(error) => Warning::BackingError(error),
                    BackingError::Full | BackingError::OutOfRange => Warning::BackingFull,
                });
                let count = self.take_back(transfers, place);
                if let Some(users) = u16::try_from(count).ok().and_then(NonZeroU16::new) {
                    transfers.slots.leave_many(slot, users);
                }
                transfers.backing.discard(slot);
            }
        }
        transfers.outgoing.give_back(place, buffer);
    }

    /// Moves the pages of a written batch to their slot, and frees their objects.
    fn commit(&self, transfers: &mut Transfers, place: usize, slot: SlotId) {
        let batch = transfers.outgoing.batch(place);
        assert!(batch.written < batch.number, "a batch is written once");
        batch.written = batch.number;
        for index in 0..batch.members.len() {
            let Some(page) = transfers.outgoing.batch(place).members[index] else {
                self.base.shards.leave_slot(transfers, slot);
                continue;
            };
            let (shard, id) = page.parts();
            let mut guard = self.base.shards[shard].tables.lock();
            let tables = &mut *guard;
            debug_assert!(tables.entries[id].place.is_leaving(), "{page:?} is no member");
            if let PagePlace::Leaving { handle, checksum, offset, length, coding, .. } =
                tables.entries[id].place
            {
                tables.leave(id);
                let backing = PagePlace::Backing { slot, checksum, offset, length, coding };
                self.base.shards.occupy(tables, id, backing);
                drop(guard);
                // A load under way has pinned the object; `free` waits for it.
                self.base.objects.free(handle);
                self.base.shards.counted().flushed_pages.add(1);
            }
        }
    }

    /// Makes the pages of a failed batch the oldest of the pool again. Returns the number of pages
    /// that the batch had.
    fn take_back(&self, transfers: &mut Transfers, place: usize) -> usize {
        let members = &transfers.outgoing.batch(place).members;
        for page in members.iter().rev().flatten() {
            let (shard, id) = page.parts();
            let tables = &mut *self.base.shards[shard].tables.lock();
            debug_assert!(tables.entries[id].place.is_leaving(), "{page:?} is no member");
            if let PagePlace::Leaving { handle, checksum, length, coding, .. } =
                tables.entries[id].place
            {
                tables.leave(id);
                let era = self.base.shards.eras.now().wrapping_sub(TAKEN_BACK_ERAS);
                let (referenced, tried) = (false, false);
                let place =
                    PagePlace::Pool { handle, checksum, length, coding, referenced, tried, era };
                tables.occupy_as_oldest(id, place);
            }
        }
        members.len()
    }
}
