//! Store: a page goes in. A page is stored same-filled, compressed or raw, in this order of
//! preference, unless the knobs say otherwise. The page is coded and lies in the pool before its
//! shard's lock is taken.

use crate::pool::{Handle, Pool};
use coldpress_codec::{checksum, same_filled};
use coldpress_sys::{Bytes, PAGE_BYTES, Page};

use crate::base::Base;
use crate::codecs::{Coding, Pressed};
use crate::contexts::WorkGuard;
use crate::desk::Offer;
use crate::entry::PagePlace;
use crate::error::{StoreError, Warning};
use crate::key::Key;
use crate::knobs::Knobs;
use crate::limits::{Admission, compressed_max};
use crate::objects::Remains;
use crate::spot::Spot;
use crate::stats::Counted;
use crate::writeback::Writeback;

/// The form in which a page was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// As one word; the page takes no storage.
    SameFilled,
    /// Compressed to this many bytes.
    Compressed(Bytes),
    /// As it is, because it compresses poorly.
    Raw,
}

/// Progress of a store's search for room in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// The store has asked the pool alone.
    Asked,
    /// The store has waited for batches being written back, or had more written back.
    Waited,
}

/// A page that is being stored.
pub(crate) struct Storing<'z, P> {
    base: &'z Base<P>,
    spot: Spot,
    page: &'z Page,
    /// The counters of the page's shard.
    counted: &'z Counted,
}

impl<'z, P: Pool> Storing<'z, P> {
    /// Returns `page`, which is to be stored under `key` in `base`.
    pub(crate) fn new(base: &'z Base<P>, key: Key, page: &'z Page) -> Self {
        let spot = Spot::of(key);
        Self { base, spot, page, counted: &base.shards[spot.shard].counted }
    }

    /// Stores the page as the knobs demand. Uses `offer`, what a helper has made of the page, where
    /// possible, and keeps an incompressible page only if `keep_incompressible`.
    pub(crate) fn run(
        &self,
        keep_incompressible: bool,
        offer: Option<&Offer<'_>>,
    ) -> Result<Stored, StoreError> {
        // A helper makes no offer for a page of one repeated word.
        let word = if offer.is_some() { None } else { same_filled(self.page) };
        let mut admission = match word {
            Some(word) => {
                let knobs = self.base.knobs();
                if knobs.enabled && knobs.same_filled {
                    return self.store_word(word);
                }
                self.admit()
            }
            None => self.admit(),
        };
        if !admission.knobs.enabled {
            self.counted.reject_disabled.add(1);
            return Err(StoreError::Disabled);
        }
        if admission.refuses {
            // Writeback, as far as that is possible now, may make room.
            self.begin_to_shrink();
            admission = self.admit();
            if admission.refuses {
                self.counted.reject_accept_threshold.add(1);
                return Err(StoreError::PoolFull);
            }
        }
        admission.knobs.keep_incompressible &= keep_incompressible;
        self.store_object(&admission, offer)
    }

    /// Stores the page although knobs may refuse it, in a pool without a limit.
    pub(crate) fn run_anyhow(&self) -> Result<Stored, StoreError> {
        let knobs = self.base.knobs();
        if let Some(word) = same_filled(self.page).filter(|_| knobs.same_filled) {
            return self.store_word(word);
        }
        let objects = &self.base.objects;
        let mut work = objects.contexts.take();
        let longest = compressed_max(knobs.max_compression_ratio);
        let compressed = work.get().compress(self.page, longest);
        let handle = objects.alloc(length_of(compressed), None).ok_or(StoreError::PoolFull)?;
        self.fill_object(handle, compressed, work)
    }

    /// Stores a page that is a repeated word.
    fn store_word(&self, word: u64) -> Result<Stored, StoreError> {
        self.put(PagePlace::SameFilled { word })?;
        self.counted.stored_same_filled.add(1);
        Ok(Stored::SameFilled)
    }

    /// Begins to write back a batch, if there is a disk.
    fn begin_to_shrink(&self) {
        if let Some(writeback) = Writeback::of(self.base) {
            writeback.begin_to_shrink();
        }
    }

    /// Returns the number of bytes that have gone to the disk so far.
    fn flushed_bytes(&self) -> u64 {
        self.base.shards.counted().flushed_bytes.get()
    }

    /// Returns the knobs and limits that apply to a page stored now.
    fn admit(&self) -> Admission {
        let frames = self.base.objects.frames();
        self.base.limits.lock().admit(frames)
    }

    /// Stores a page compressed or raw, as the knobs demand.
    fn store_object(
        &self,
        admission: &Admission,
        offer: Option<&Offer<'_>>,
    ) -> Result<Stored, StoreError> {
        let (knobs, objects) = (&admission.knobs, &self.base.objects);
        let longest = compressed_max(knobs.max_compression_ratio);
        let mut work = objects.contexts.take();
        let made = offer.and_then(|offer| {
            work.get().take_over(offer.result, longest, |buffer| offer.copy(buffer))
        });
        let mut is_made = made.is_some();
        let mut compressed = made.unwrap_or_else(|| work.get().compress(self.page, longest));
        self.judge(knobs, compressed)?;
        self.counted.pool_limit_hit.add(u64::from(admission.is_at_max));
        if admission.must_shrink {
            self.begin_to_shrink();
        }
        let mut search = Search::Asked;
        let handle = loop {
            let flushed = self.flushed_bytes();
            if let Some(handle) = objects.alloc(length_of(compressed), Some(knobs.hard_pool)) {
                break handle;
            }
            // Other callers need a context more than a caller that waits for the disk, and
            // compressing the page again takes less time than waiting.
            drop(work);
            self.make_room(&mut search, flushed)?;
            work = objects.contexts.take();
            (compressed, is_made) = (work.get().compress(self.page, longest), false);
            // The codec may have changed meanwhile.
            self.judge(knobs, compressed)?;
        };
        self.counted.saved_by_flush.add(u64::from(search == Search::Waited));
        let stored = self.fill_object(handle, compressed, work)?;
        self.counted.stored_by_helper.add(u64::from(is_made));
        Ok(stored)
    }

    /// Refuses a page of a length that the knobs do not take; `None` is an incompressible page.
    fn judge(&self, knobs: &Knobs, compressed: Option<Pressed>) -> Result<(), StoreError> {
        if compressed.is_none() && !knobs.keep_incompressible {
            self.counted.reject_compress_poor.add(1);
            return Err(StoreError::Incompressible);
        }
        let limit = knobs.max_mean_zsize;
        if length_of(compressed) > limit {
            let pool = self.base.objects.pool.stats();
            // As zcache does: compare with the mean of the stored objects. An empty pool has no
            // mean.
            if pool.bytes_stored.0 > limit.0.saturating_mul(pool.objects) {
                self.counted.reject_mean_poor.add(1);
                return Err(StoreError::AboveMean);
            }
        }
        Ok(())
    }

    /// Writes the page into its object, from the context if it was compressed there, and puts it
    /// under its key. On an error the object is given back.
    fn fill_object(
        &self,
        handle: Handle,
        compressed: Option<Pressed>,
        mut work: WorkGuard<'_>,
    ) -> Result<Stored, StoreError> {
        let (bytes, coding, checksum) = match compressed {
            Some(Pressed { length, coding, checksum }) => {
                (&work.get().compressed[..length.0], coding, checksum)
            }
            None => (&self.page[..], Coding::Raw, checksum(self.page)),
        };
        // Lengths are at most PAGE_BYTES.
        debug_assert!((1..=PAGE_BYTES).contains(&bytes.len()), "{coding:?} to no object");
        let length = bytes.len() as u16;
        self.base.objects.fill(handle, bytes, coding);
        drop(work);
        if let Err(error) = self.put(PagePlace::new_in_pool(handle, checksum, length, coding)) {
            self.base.objects.give_up(Remains { handle: Some(handle), coding });
            return Err(error);
        }
        self.counted.note_size(Bytes(length.into()));
        Ok(match compressed {
            Some(Pressed { length, .. }) => {
                self.counted.stored_compressed.add(1);
                self.counted.compressed_bytes.add(length.0 as u64);
                Stored::Compressed(length)
            }
            None => {
                self.counted.stored_incompressible.add(1);
                Stored::Raw
            }
        })
    }

    /// Has pages written back and waits for that, so that the caller may ask the pool for room
    /// again. `flushed` is the number of bytes that had been written back when the pool was full.
    /// The caller has no lock and no context.
    fn make_room(&self, search: &mut Search, flushed: u64) -> Result<(), StoreError> {
        let is_first = *search == Search::Asked;
        self.counted.reject_flush_attempted.add(u64::from(is_first));
        *search = Search::Waited;
        let has_waited = Writeback::of(self.base).is_some_and(|writeback| {
            is_first && writeback.finish_writes() || writeback.write_batch()
        });
        // Or other callers have: then the pages they wrote have left the pool since it was asked.
        if has_waited || self.flushed_bytes() != flushed {
            return Ok(());
        }
        self.counted.reject_zsmalloc_fail.add(1);
        self.base.limits.lock().note_refused();
        self.base.warnings.lock().raise(Warning::PoolFull);
        Err(StoreError::PoolFull)
    }

    /// Puts a page that lies in `place` under its key. On an error nothing has changed, and the
    /// caller still owns `place`.
    fn put(&self, place: PagePlace) -> Result<(), StoreError> {
        let Base { objects, shards, disk, .. } = self.base;
        let mut locked = shards.lock_page(self.spot, disk.as_ref());
        let (tables, transfers) = (&mut *locked.tables, locked.transfers.as_deref_mut());
        let Some(id) = locked.id else {
            let id = tables.new_entry(self.spot.key, place).inspect_err(|_| {
                self.counted.reject_kmemcache_fail.add(1);
            })?;
            shards.occupy(tables, id, place);
            return Ok(());
        };
        self.counted.duplicate_entry.add(1);
        let remains = shards.vacate(self.spot.shard, tables, transfers, id);
        debug_assert!(!place.is_transferred(), "a page just stored is not on its way");
        shards.occupy(tables, id, place);
        drop(locked);
        objects.give_up(remains);
        Ok(())
    }
}

/// Returns the size of a page's object.
fn length_of(compressed: Option<Pressed>) -> Bytes {
    compressed.map_or(Bytes(PAGE_BYTES), |pressed| pressed.length)
}
