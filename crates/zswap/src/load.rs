//! Load: a page comes back. The copy stays stored until the caller invalidates it, so that a page
//! that cannot be placed, or is not changed, need not be stored again. A page that is read back
//! from a slow disk is asked for twice: the first load begins the read, a later one takes it.

use coldpress_backing::{Request, SlotId, Way};
use coldpress_codec::{checksum, fill};
use coldpress_mem::pools::{Handle, Pool};
use coldpress_sys::{Bytes, Page};

use crate::codecs::{Codecs, Coding};
use crate::entry::{EntryId, Place};
use crate::error::LoadError;
use crate::incoming::{Arrived, Progress};
use crate::key::Key;
use crate::outgoing::BATCHES;
use crate::seal::{Broken, Position, sealed_length};
use crate::{HELD, Zswap};

/// Where a page came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A repeated word.
    SameFilled,
    /// The pool.
    Pool,
    /// The backing store.
    Backing,
}

/// How a load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// There is no such page; the buffer is untouched.
    Missing,
    /// It is being read back, or will be when other reads have ended. Load it again after
    /// [`Zswap::wait`], or when there are [arrivals](Zswap::take_arrivals). The buffer is
    /// untouched.
    Coming,
    /// It is here.
    From(Source),
}

impl<P: Pool> Zswap<P> {
    /// Copies the page stored under `key` into `page`. After an error `page` is unspecified, and
    /// the page is still stored.
    pub fn load(&mut self, key: Key, page: &mut Page) -> Result<Loaded, LoadError> {
        let Some(id) = self.index.get(key) else {
            self.counters.load_missed += 1;
            return Ok(Loaded::Missing);
        };
        let result = match &mut self.entries[id].place {
            &mut Place::SameFilled { word } => {
                fill(page, word);
                Ok(Source::SameFilled)
            }
            Place::Pool { handle, checksum, coding, referenced, .. } => {
                *referenced = true;
                let (handle, checksum, coding) = (*handle, *checksum, *coding);
                self.load_from_pool(handle, checksum, coding, page)
            }
            &mut Place::Leaving { handle, checksum, coding, .. } => {
                self.load_from_pool(handle, checksum, coding, page)
            }
            &mut Place::Backing { slot, checksum, offset, length, coding } => {
                let (begin, length) = (Bytes(offset as usize), sealed_length(length));
                let Some(mut arrived) = self.read_back(id, slot, begin, length) else {
                    self.counters.load_coming += 1;
                    return Ok(Loaded::Coming);
                };
                let position = Position { batch: self.slots.stamp(slot), offset };
                let result = arrived.result.map_err(LoadError::Backing).and_then(|()| {
                    let sealer = self.sealer.as_ref().ok_or(LoadError::Corrupt)?;
                    let opened = sealer.open(position, &mut arrived.buffer[..length.0]);
                    let bytes = opened.map_err(|Broken| LoadError::Corrupt)?;
                    decode(&mut self.codecs, bytes, checksum, coding, page)
                });
                self.incoming.give_back(arrived.number, arrived.buffer);
                result.map(|()| Source::Backing)
            }
        };
        let counters = &mut self.counters;
        *match result {
            Ok(Source::SameFilled) => &mut counters.loaded_same_filled,
            Ok(Source::Pool) => &mut counters.loaded_from_pool,
            Ok(Source::Backing) => &mut counters.loaded_from_backing,
            Err(LoadError::Corrupt) => &mut counters.load_corrupt,
            Err(LoadError::Backing(_)) => &mut counters.load_backing_fail,
        } += 1;
        result.map(Loaded::From)
    }

    /// Whether a page that was coming may be here, or may be read now: a read has ended since
    /// [`Zswap::take_arrivals`].
    pub fn has_arrivals(&self) -> bool {
        self.incoming.any_ended()
    }

    /// Whether a read has ended since this was last asked: then every page that was coming is worth
    /// another load.
    pub fn take_arrivals(&mut self) -> bool {
        self.incoming.take_any_ended()
    }

    fn load_from_pool(
        &mut self,
        handle: Handle,
        checksum: u32,
        coding: Coding,
        page: &mut Page,
    ) -> Result<Source, LoadError> {
        let codecs = &mut self.codecs;
        let read = |bytes: &[u8]| decode(codecs, bytes, checksum, coding, page);
        self.pool.read(handle, read).expect(HELD)?;
        self.counters.loaded_dense += u64::from(coding.is_dense());
        Ok(Source::Pool)
    }

    /// The bytes of an entry's place in the backing store, if they have come. Otherwise begins the
    /// read, unless it is under way or there is no buffer.
    fn read_back(
        &mut self,
        id: EntryId,
        slot: SlotId,
        offset: Bytes,
        length: Bytes,
    ) -> Option<Arrived> {
        let mut progress = self.incoming.progress(id);
        if matches!(progress, Progress::None) {
            let (number, buffer) = self.incoming.begin(id)?;
            // A place in a backing store is only made with a backing store.
            self.backing.as_mut()?.begin(Request {
                way: Way::Read,
                slot,
                offset,
                length,
                buffer,
                token: (BATCHES + number) as u32,
            });
            // What lies in the page cache is here at once.
            self.reap();
            progress = self.incoming.progress(id);
        }
        match progress {
            Progress::Ready(arrived) => Some(arrived),
            Progress::None | Progress::Coming => None,
        }
    }
}

/// Makes the page of `bytes`, which are coded so, if they are what was stored.
pub(crate) fn decode(
    codecs: &mut Codecs,
    bytes: &[u8],
    expected: u32,
    coding: Coding,
    page: &mut Page,
) -> Result<(), LoadError> {
    if checksum(bytes) != expected {
        return Err(LoadError::Corrupt);
    }
    codecs.decompress(bytes, coding, page).map_err(|_| LoadError::Corrupt)
}
