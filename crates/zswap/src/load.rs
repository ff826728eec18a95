//! Load: a page comes back. The copy stays stored until the caller invalidates it, so that a page
//! that cannot be placed, or is not changed, need not be stored again. A page on a slow disk takes
//! two loads: the first begins the read, a later one takes the bytes.
//!
//! Bytes are decoded without holding the lock of a shard or of the disk: those of an object under
//! its pin, those from the disk when they lie in a buffer. A caller that drops the page meanwhile
//! waits for the pin before the object is freed; the load then counts as the earlier of the two.

use crate::pool::Pool;
use coldpress_backing::{Request, SLOT_BYTES, SlotId, Way};
use coldpress_codec::fill;
use coldpress_sys::{Bytes, Page};

use crate::base::Base;
use crate::codecs::{Coding, decode};
use crate::contexts::WorkGuard;
use crate::disk::{Disk, Transfers};
use crate::entry::PagePlace;
use crate::error::LoadError;
use crate::ids::{BATCHES, PageId};
use crate::incoming::{ArrivedRead, Progress};
use crate::key::Key;
use crate::seal::sealed_length;
use crate::spot::Spot;
use crate::writeback::Writeback;

/// Outcome of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// There is no such page; the buffer is untouched.
    Missing,
    /// The page is being read back, or will be when other reads have ended. Load it again after
    /// [`crate::Zswap::wait`], or when there are [arrivals](crate::Zswap::take_arrivals). The
    /// buffer is untouched.
    Coming,
    /// The page is in the buffer: a repeated word.
    SameFilled,
    /// The page is in the buffer, and came from the pool.
    FromPool,
    /// The page is in the buffer, and came from the backing store.
    FromBacking,
}

/// A page that is being loaded.
pub(crate) struct Loading<'z, P> {
    base: &'z Base<P>,
    spot: Spot,
    /// Where the page goes.
    page: &'z mut Page,
    /// Taken as soon as it is known that decoding needs one.
    work: Option<WorkGuard<'z>>,
}

impl<'z, P: Pool> Loading<'z, P> {
    /// Returns the load of the page under `key` in `base` into `page`.
    pub(crate) fn new(base: &'z Base<P>, key: Key, page: &'z mut Page) -> Self {
        Self { base, spot: Spot::of(key), page, work: None }
    }

    /// Loads the page from where it lies.
    pub(crate) fn run(&mut self) -> Result<Loaded, LoadError> {
        let Base { objects, shards, .. } = self.base;
        let shard = &shards[self.spot.shard];
        let result = loop {
            let mut guard = shard.tables.lock();
            let tables = &mut *guard;
            let Some(id) = tables.index.get(self.spot.key) else {
                break Ok(Loaded::Missing);
            };
            let place = &mut tables.entries[id].place;
            if place.coding().needs_work() && self.work.is_none() {
                self.work = objects.contexts.try_take();
                if self.work.is_none() {
                    drop(guard);
                    self.work = Some(objects.contexts.take());
                    continue;
                }
            }
            let mut came_in = None;
            if let PagePlace::Pool { referenced, era, .. } = place {
                *referenced = true;
                came_in = Some(*era);
            }
            match *place {
                PagePlace::SameFilled { word } => {
                    drop(guard);
                    fill(self.page, word);
                    break Ok(Loaded::SameFilled);
                }
                PagePlace::Pool { handle, checksum, coding, .. }
                | PagePlace::Leaving { handle, checksum, coding, .. } => {
                    let read = |bytes: &[u8]| {
                        drop(guard);
                        self.decode(bytes, checksum, coding)
                    };
                    let read = objects.read(handle, read);
                    if let Some(era) = came_in.filter(|_| read.is_ok()) {
                        shard.counted.note_loaded_age(shards.eras.class(era));
                    }
                    shard.counted.loaded_dense.add(u64::from(read.is_ok() && coding.is_dense()));
                    break read.map(|()| Loaded::FromPool);
                }
                PagePlace::Backing { .. } => {
                    drop(guard);
                    match self.load_from_disk() {
                        DiskLoad::Moved => {}
                        DiskLoad::Coming => break Ok(Loaded::Coming),
                        DiskLoad::Here(result) => break result.map(|()| Loaded::FromBacking),
                    }
                }
            }
        };
        let counted = match result {
            Ok(Loaded::Missing) => &shard.counted.load_missed,
            Ok(Loaded::Coming) => &shard.counted.load_coming,
            Ok(Loaded::SameFilled) => &shard.counted.loaded_same_filled,
            Ok(Loaded::FromPool) => &shard.counted.loaded_from_pool,
            Ok(Loaded::FromBacking) => &shard.counted.loaded_from_backing,
            Err(LoadError::Corrupt) => &shard.counted.load_corrupt,
            Err(LoadError::Backing(_)) => &shard.counted.load_backing_fail,
        };
        counted.add(1);
        result
    }

    /// Decodes the page's bytes into the page.
    fn decode(&mut self, bytes: &[u8], checksum: u32, coding: Coding) -> Result<(), LoadError> {
        decode(self.work.as_mut().map(WorkGuard::get), bytes, checksum, coding, self.page)
    }

    /// Loads a page that was in the backing store a moment ago.
    fn load_from_disk(&mut self) -> DiskLoad {
        let Spot { shard, key } = self.spot;
        let Some(writeback) = Writeback::of(self.base) else {
            return DiskLoad::Here(Err(LoadError::Corrupt));
        };
        let Disk { sealers, transfers } = writeback.disk;
        let mut transfers_guard = transfers.lock();
        let tables = self.base.shards[shard].tables.lock();
        let Some(id) = tables.index.get(key) else { return DiskLoad::Moved };
        let PagePlace::Backing { slot, checksum, offset, length, coding } =
            tables.entries[id].place
        else {
            return DiskLoad::Moved;
        };
        if coding.needs_work() && self.work.is_none() {
            return DiskLoad::Moved;
        }
        // The page stays there as long as this caller holds the transfers.
        drop(tables);
        let id = PageId::new(shard, id);
        let (begin, length) = (Bytes(offset as usize), sealed_length(length));
        let arrived = writeback.read_back(&mut transfers_guard, id, slot, begin, length);
        let batch = transfers_guard.slots.stamp(slot);
        drop(transfers_guard);
        let Some(mut arrived) = arrived else { return DiskLoad::Coming };
        let result = arrived.result.map_err(LoadError::Backing).and_then(|()| {
            let sealer = sealers.of(slot).ok_or(LoadError::Corrupt)?;
            let bytes = sealer.open(batch, offset, &mut arrived.buffer[..length.0])?;
            self.decode(bytes, checksum, coding)
        });
        transfers.lock().incoming.give_back(arrived.number, arrived.buffer);
        DiskLoad::Here(result)
    }
}

impl<P: Pool> Writeback<'_, P> {
    /// Returns the bytes at an entry's place in the backing store, if they have come. Otherwise
    /// begins the read, unless it is under way or there is no buffer.
    fn read_back(
        &self,
        transfers: &mut Transfers,
        id: PageId,
        slot: SlotId,
        offset: Bytes,
        length: Bytes,
    ) -> Option<ArrivedRead> {
        let mut progress = transfers.incoming.progress(id);
        if matches!(progress, Progress::None) {
            let (number, buffer) = transfers.incoming.begin(id)?;
            assert!(length.0 <= buffer.len() && offset + length <= SLOT_BYTES, "beyond the slot");
            transfers.backing.begin(Request {
                way: Way::Read,
                slot,
                offset,
                length,
                buffer,
                token: (BATCHES + number) as u32,
            });
            // A read from the page cache has ended already.
            self.take_in(transfers);
            progress = transfers.incoming.progress(id);
        }
        match progress {
            Progress::Ready(arrived) => Some(arrived),
            Progress::None | Progress::Coming => None,
        }
    }
}

/// Outcome of a load from the backing store.
enum DiskLoad {
    /// The page is elsewhere by now, or needs a context: look it up again.
    Moved,
    /// The page is being read back.
    Coming,
    /// The page is here, or cannot be read.
    Here(Result<(), LoadError>),
}
