//! Store: a page goes in. Same-filled, compressed or raw, in this order of preference.

use coldpress_codec::{checksum, same_filled};
use coldpress_mem::pools::{Handle, Pool};
use coldpress_sys::{Bytes, PAGE_BYTES, Page};

use crate::entry::Place;
use crate::error::{StoreError, Warning};
use crate::key::Key;
use crate::room::NoMemory;
use crate::{Zswap, entry::EntryId};

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
    /// hard limit waits for it. On an error nothing has
    /// changed: what was stored under `key` before is still there, so a caller whose page is newer
    /// should invalidate it.
    pub fn store(&mut self, key: Key, page: &Page) -> Result<Stored, StoreError> {
        if let Some(word) = same_filled(page) {
            self.put(key, Place::SameFilled { word })?;
            self.counters.stored_same_filled += 1;
            return Ok(Stored::SameFilled);
        }
        if self.pool_frames() >= self.limits.max_pool {
            self.counters.pool_limit_hit += 1;
            self.reap();
            if self.begin_write_back() {
                // It may be over by now.
                self.reap();
            }
        }
        let longest = self.limits.compressed_max.0;
        let length = self.codec.compress(page, &mut self.compressed[..longest]).map(<[u8]>::len);
        let handle = self.alloc_object(Bytes(length.unwrap_or(PAGE_BYTES)))?;
        let bytes = length.map_or(&page[..], |length| &self.compressed[..length]);
        let checksum = checksum(bytes);
        self.pool.write(handle, bytes);
        // Lengths are at most PAGE_BYTES.
        let place = Place::Pool { handle, checksum, length: bytes.len() as u16, referenced: false };
        if let Err(error) = self.put(key, place) {
            self.pool.free(handle);
            return Err(error);
        }
        Ok(match length {
            Some(length) => {
                self.counters.stored_compressed += 1;
                self.counters.compressed_bytes += length as u64;
                Stored::Compressed(Bytes(length))
            }
            None => {
                self.counters.reject_compress_poor += 1;
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
        self.warnings.raise(Warning::PoolFull);
        Err(StoreError::PoolFull)
    }

    /// Room in the pool, if the pool has it without exceeding its hard limit. Only the pool knows
    /// whether an object needs new frames, so it is asked first and taken at its word.
    fn alloc_within_limit(&mut self, size: Bytes) -> Option<Handle> {
        let frames_before = self.pool_frames();
        let handle = self.pool.alloc(size).ok()?;
        let frames = self.pool_frames();
        if frames > self.limits.hard_pool && frames > frames_before {
            self.pool.free(handle);
            return None;
        }
        Some(handle)
    }

    /// Puts a page that lies in `place` under `key`. On an error nothing has changed, and `place`
    /// is still the caller's.
    fn put(&mut self, key: Key, place: Place) -> Result<(), StoreError> {
        let id = match self.index.get(key) {
            Some(id) => {
                self.counters.duplicate_entry += 1;
                self.vacate(id);
                id
            }
            None => self.new_entry(key, place).inspect_err(|_| {
                self.counters.reject_kmemcache_fail += 1;
            })?,
        };
        self.occupy(id, place);
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
