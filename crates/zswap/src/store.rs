//! Store: a page goes in. Same-filled, compressed or raw, in this order of preference, unless the
//! knobs say otherwise.

use coldpress_codec::{checksum, same_filled};
use coldpress_mem::pools::{Handle, Pool};
use coldpress_sys::{Bytes, PAGE_BYTES, Page};

use crate::codecs::Coding;
use crate::entry::Place;
use crate::error::{StoreError, Warning};
use crate::key::Key;
use crate::room::NoMemory;
use crate::{HELD, Zswap, entry::EntryId};

/// How a page was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// As one word; it takes no storage.
    SameFilled,
    /// Compressed to this many bytes.
    Compressed(Bytes),
    /// As it is, because it compresses poorly.
    Raw,
}

impl<P: Pool> Zswap<P> {
    /// Stores a copy of `page` under `key`, in place of what was stored there.
    ///
    /// A pool at its limit first begins to write back a batch of its oldest pages, and one at its
    /// hard limit waits for it. On an error nothing has changed: what was stored under `key` before
    /// is still there, so a caller whose page is newer should invalidate it.
    pub fn store(&mut self, key: Key, page: &Page) -> Result<Stored, StoreError> {
        if !self.knobs().enabled {
            self.counters.reject_disabled += 1;
            return Err(StoreError::Disabled);
        }
        if let Some(stored) = self.store_word(key, page)? {
            return Ok(stored);
        }
        if self.still_refuses() {
            self.counters.reject_accept_threshold += 1;
            return Err(StoreError::PoolFull);
        }
        let compressed = self.compress(page);
        self.judge(compressed.map(|(length, _)| length))?;
        let frames = self.pool_frames();
        self.counters.pool_limit_hit += u64::from(self.limits.is_at_max(frames));
        if self.limits.must_shrink(frames) {
            self.begin_to_shrink();
        }
        let length = compressed.map_or(Bytes(PAGE_BYTES), |(length, _)| length);
        let handle = self.alloc_object(length)?;
        self.fill_object(key, page, handle, compressed)
    }

    /// As [`Zswap::store`], for a page that has nowhere else to be: no knob refuses it, and the
    /// pool has no limit.
    pub fn store_anyhow(&mut self, key: Key, page: &Page) -> Result<Stored, StoreError> {
        if let Some(stored) = self.store_word(key, page)? {
            return Ok(stored);
        }
        let compressed = self.compress(page);
        let length = compressed.map_or(Bytes(PAGE_BYTES), |(length, _)| length);
        let handle = self.pool.alloc(length).map_err(|_| StoreError::PoolFull)?;
        self.fill_object(key, page, handle, compressed)
    }

    /// Stores a page that is a repeated word, if it is one and the knobs want it so.
    fn store_word(&mut self, key: Key, page: &Page) -> Result<Option<Stored>, StoreError> {
        let Some(word) = same_filled(page).filter(|_| self.knobs().same_filled) else {
            return Ok(None);
        };
        self.put(key, Place::SameFilled { word })?;
        self.counters.stored_same_filled += 1;
        Ok(Some(Stored::SameFilled))
    }

    /// Whether the pool, which had to refuse a page, has to go on with that. If so, it is written
    /// back as far as that is possible.
    fn still_refuses(&mut self) -> bool {
        let frames = self.pool_frames();
        if !self.limits.still_refuses(frames) {
            return false;
        }
        self.begin_to_shrink();
        let frames = self.pool_frames();
        self.limits.still_refuses(frames)
    }

    /// Compresses `page` into the buffer: to how much, and how. `None` when it is incompressible.
    fn compress(&mut self, page: &Page) -> Option<(Bytes, Coding)> {
        let longest = self.limits.compressed_max().0;
        let (bytes, coding) = self.codecs.compress(page, &mut self.compressed[..longest])?;
        Some((Bytes(bytes.len()), coding))
    }

    /// Whether the knobs take a page of this length; `None` for an incompressible one.
    fn judge(&mut self, compressed: Option<Bytes>) -> Result<(), StoreError> {
        let knobs = self.limits.knobs();
        if compressed.is_none() && !knobs.keep_incompressible {
            self.counters.reject_compress_poor += 1;
            return Err(StoreError::Incompressible);
        }
        let limit = knobs.max_mean_zsize;
        if compressed.unwrap_or(Bytes(PAGE_BYTES)) > limit {
            let pool = self.pool.stats();
            // As zcache has it: by the mean of those stored, which an empty pool has not.
            if pool.bytes_stored.0 > limit.0.saturating_mul(pool.objects) {
                self.counters.reject_mean_poor += 1;
                return Err(StoreError::AboveMean);
            }
        }
        Ok(())
    }

    /// Writes the page into its object, from the buffer if it was compressed, and puts it under
    /// `key`. On an error the object is given back.
    fn fill_object(
        &mut self,
        key: Key,
        page: &Page,
        handle: Handle,
        compressed: Option<(Bytes, Coding)>,
    ) -> Result<Stored, StoreError> {
        let (bytes, coding) = match compressed {
            Some((length, coding)) => (&self.compressed[..length.0], coding),
            None => (&page[..], Coding::Raw),
        };
        let checksum = checksum(bytes);
        self.pool.write(handle, bytes).expect(HELD);
        // Lengths are at most PAGE_BYTES.
        let length = bytes.len() as u16;
        let place = Place::new_in_pool(handle, checksum, length, coding);
        if let Err(error) = self.put(key, place) {
            self.pool.free(handle).expect(HELD);
            return Err(error);
        }
        self.sizes.note(Bytes(length.into()));
        Ok(match compressed {
            Some((length, _)) => {
                self.counters.stored_compressed += 1;
                self.counters.compressed_bytes += length.0 as u64;
                Stored::Compressed(length)
            }
            None => {
                self.counters.stored_incompressible += 1;
                Stored::Raw
            }
        })
    }

    /// Room in the pool, after writing back as much as it takes.
    fn alloc_object(&mut self, size: Bytes) -> Result<Handle, StoreError> {
        if let Some(handle) = self.alloc_within_limit(size) {
            return Ok(handle);
        }
        self.counters.reject_flush_attempted += 1;
        let mut under_way = self.finish_writes();
        while under_way || self.write_back_batch() {
            under_way = false;
            if let Some(handle) = self.alloc_within_limit(size) {
                self.counters.saved_by_flush += 1;
                return Ok(handle);
            }
        }
        self.counters.reject_zsmalloc_fail += 1;
        self.limits.note_refused();
        self.warnings.raise(Warning::PoolFull);
        Err(StoreError::PoolFull)
    }

    /// Room in the pool, if the pool has it without exceeding its hard limit. Only the pool knows
    /// whether an object needs new frames, so it is asked first and taken at its word.
    fn alloc_within_limit(&mut self, size: Bytes) -> Option<Handle> {
        let frames_before = self.pool_frames();
        let handle = self.pool.alloc(size).ok()?;
        let frames = self.pool_frames();
        if frames > self.knobs().hard_pool && frames > frames_before {
            self.pool.free(handle).expect(HELD);
            return None;
        }
        Some(handle)
    }

    /// Puts a page that lies in `place` under `key`. On an error nothing has changed, and `place`
    /// is still the caller's.
    fn put(&mut self, key: Key, place: Place) -> Result<(), StoreError> {
        let mut replaced = Coding::Raw;
        let id = match self.index.get(key) {
            Some(id) => {
                self.counters.duplicate_entry += 1;
                replaced = self.entries[id].place.coding();
                self.vacate(id);
                id
            }
            None => self.new_entry(key, place).inspect_err(|_| {
                self.counters.reject_kmemcache_fail += 1;
            })?,
        };
        self.occupy(id, place);
        self.codecs.note_come(place.coding());
        self.codecs.note_gone(replaced);
        Ok(())
    }

    /// A new entry under `key`, which has none.
    fn new_entry(&mut self, key: Key, place: Place) -> Result<EntryId, NoMemory> {
        let id = self.entries.alloc(place)?;
        if let Err(error) = self.index.set(key, id) {
            self.entries.free(id);
            return Err(error);
        }
        Ok(id)
    }
}
