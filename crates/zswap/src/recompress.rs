//! Recompression by age: while no caller waits, the oldest pages of the pool are compressed once
//! more, with a dictionary of the program's own pages. Young pages stay in the fast codec.
//!
//! ```text
//! youngest   store: fast codec         cheap to store and to load
//!    |       age: dense codec          a tenth to a half smaller, a load takes 3 to 4 us more
//! oldest     write back, as they are   no memory
//! ```
//!
//! **When it begins.** When the pool is large enough for the expected saving to pay twice for the
//! memory of codec and trainer ([`POOL_MIN`]).
//!
//! **How old is old.** A dense page costs time when it is loaded, and the room it makes saves
//! faults. Both are counted from one judgement to the next:
//!
//! ```text
//! lost:   loads of dense pages x EXTRA_LOAD_NS
//! gained: room made by dense pages / page x loads of a stored page, on average x FAULT_NS
//! ```
//!
//! A part of the LRU list, at its young end, is left alone. When more is lost than gained, that
//! part is doubled; when less than half is lost, it is halved, down to nothing: where nothing is
//! loaded, everything is old. The part begins as a half. The estimate is careful: it assumes that a
//! page in the room made would be faulted on like the average stored page. In truth the room would
//! hold the hottest of them.
//!
//! **Dictionaries.** Samples come from all over the entries. When pages save less by a quarter than
//! the first ones did with the dictionary, the program has changed, or other parts of it have grown
//! old. A new dictionary is then made for the pages that follow. That takes 3 ms, as long as some
//! 50 pages, and one of four generations; pages on disk hold theirs, too.
//!
//! A page that is damaged, or hardly smaller, stays as it is; so does a page that was loaded since
//! writeback last looked at it. A new object is made before the old one is dropped. One caller ages
//! at a time. Other callers may use the page meanwhile: if it was dropped, stored anew or written
//! back, the new object is dropped instead (`Tables::recompressing`).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::array;

use crate::pool::Pool;
use coldpress_codec::{Dictionary, Trainer, checksum};
use coldpress_sys::sync::SpinGuard;
use coldpress_sys::{Bytes, PAGE_BYTES, Page};

use crate::base::Base;
use crate::codecs::decode;
use crate::contexts::WorkGuard;
use crate::dictionaries::DenseEncoder;
use crate::drain::Cursor;
use crate::entry::PagePlace;
use crate::ids::{EntryId, SHARDS};
use crate::knobs::Knobs;
use crate::limits::{ATTEMPTS_SKIPPED, FRAMES_BEYOND};
use crate::objects::{Objects, Remains};
use crate::room::{self, NoMemory};
use crate::shard::{Shards, Tables};
use crate::stats::Counters;

/// Bytes of objects in the pool at which recompression begins: a quarter of them is twice the
/// memory of the dense codec (356 KiB) and of a trainer (195 KiB). At half of them recompression
/// ends, and without dense pages the codec's memory is given back.
const POOL_MIN: Bytes = Bytes::mib(4);
/// Bytes by which a dense object must be smaller. With less, its loads would have to be 8 times as
/// rare as those of the average page for it to be worth its cost.
const SAVED_MIN: Bytes = Bytes(128);
/// Room that zstd needs beyond a result, see [`coldpress_codec::DictionaryCodec::compress`].
const ZSTD_SPARE: Bytes = Bytes(16);
/// Extra time of a load of a dense page over a load of a young page. Measured: 3 to 4 us at the
/// median, with pages of Python and SQLite that had left the caches.
const EXTRA_LOAD_NS: u64 = 5_000;
/// Cost of a page that is not in memory: fault and load (11 to 17 us measured), and the store of
/// another page in its place.
const FAULT_NS: u64 = 20_000;
/// Parts that the LRU list is divided into; some of them, at the young end, are left alone.
const PARTS: usize = 16;
/// Loads from the pool after which the part left alone is judged again.
const LOADS_JUDGED: u64 = 256;
/// Idle calls after which that part is judged although there were fewer loads: a second or a few,
/// because a caller with nothing to do asks again after milliseconds.
const VAIN_JUDGED: u32 = 1024;
/// Pages in a comparison of the gain with that of the first pages.
const GAIN_PAGES: u32 = 2048;
/// Entries looked at in one call if there is nothing to do for them: some microseconds.
const LOOKS: usize = 64;
/// Entries that may give no sample before the samples so far must do.
const MISSES_MAX: usize = 8192;

/// The state of recompression.
#[derive(Debug)]
pub(crate) struct Recompression {
    /// Buffer of one page, for a page being compressed again or an object being moved.
    pub(crate) page: Box<[Page]>,
    /// Made while old pages are made dense.
    pub(crate) encoder: DenseEncoder,
    training: Option<Training>,
    /// Entries looked at for samples, ever.
    drawn: u32,
    /// Parts at the young end that are left alone, below [`PARTS`].
    pub(crate) young_parts: usize,
    /// Loads from the pool, and those of dense pages, when `young_parts` was last judged; and idle
    /// calls since.
    judged: (u64, u64),
    vain: u32,
    gain: Gain,
    /// Whether the newest dictionary does not fit the pages any more.
    pub(crate) is_outdated: bool,
    /// Calls to be skipped, after memory or room in the pool was refused.
    pub(crate) skip: u32,
    pub(crate) pool_min: Bytes,
    /// Progress of draining: one caller at a time drains or ages, in the same buffer.
    pub(crate) drained: Cursor,
}

/// A dictionary in the making.
#[derive(Debug)]
struct Training {
    trainer: Trainer,
    /// Entries that gave no sample.
    misses: usize,
}

/// Bytes that pages became smaller by: lately, and the first ones with the newest dictionary.
#[derive(Debug, Default)]
struct Gain {
    pages: u32,
    before: u64,
    saved: u64,
    first_permille: Option<u64>,
}

impl Gain {
    /// Returns whether pages save clearly less than the first ones did, after counting one more.
    fn note(&mut self, before: Bytes, saved: Bytes) -> bool {
        debug_assert!(saved <= before, "a page saves at most all of its bytes");
        self.pages += 1;
        self.before += before.0 as u64;
        self.saved += saved.0 as u64;
        if self.pages < GAIN_PAGES {
            return false;
        }
        let permille = self.saved * 1000 / self.before.max(1);
        let first = *self.first_permille.get_or_insert(permille);
        *self = Self { first_permille: Some(first), ..Self::default() };
        permille * 4 < first * 3
    }
}

impl Recompression {
    /// Returns the state in which nothing is tried yet.
    pub(crate) fn new() -> Result<Self, NoMemory> {
        Ok(Self {
            page: room::table(1, || [0; PAGE_BYTES])?,
            encoder: DenseEncoder::default(),
            training: None,
            drawn: 0,
            young_parts: PARTS / 2,
            judged: (0, 0),
            vain: 0,
            gain: Gain::default(),
            is_outdated: false,
            skip: 0,
            pool_min: POOL_MIN,
            drained: Cursor::default(),
        })
    }

    /// Returns the memory of the page's buffer, and of encoder and trainer while there are any.
    pub(crate) fn memory(&self) -> Bytes {
        let trainer = self.training.as_ref().map(|training| training.trainer.work_bytes());
        Bytes(PAGE_BYTES) + trainer.unwrap_or_default() + self.encoder.memory()
    }

    /// Returns how many of the pool's pages, at the young end, are left alone now, in per cent.
    pub(crate) fn young_percent(&self) -> usize {
        self.young_parts * 100 / PARTS
    }

    /// Returns a position below `positions`, another one each time, spread evenly (multiples of the
    /// golden ratio, Knuth volume 3 section 6.4).
    fn draw(&mut self, positions: usize) -> usize {
        self.drawn = self.drawn.wrapping_add(1);
        let fraction = u64::from(self.drawn.wrapping_mul(0x9e37_79b9));
        let position = ((u128::from(fraction) * positions as u128) >> u32::BITS) as usize;
        debug_assert!(position < positions.max(1), "{position} of {positions}");
        position
    }

    /// Begins again with counters at zero.
    pub(crate) fn forget_counts(&mut self) {
        (self.judged, self.vain) = ((0, 0), 0);
    }

    /// Changes the part left alone, when enough has happened since the last judgement.
    /// Recompression has looked at `tried` of the `pages` in the LRU lists.
    fn judge(&mut self, counters: &Counters, tried: usize, pages: usize) {
        debug_assert!(tried <= pages, "of {pages} pages {tried} were looked at");
        let loads = counters.loaded_from_pool - self.judged.0;
        let dense_loads = counters.loaded_dense - self.judged.1;
        if loads < LOADS_JUDGED && self.vain < VAIN_JUDGED {
            return;
        }
        self.judged = (counters.loaded_from_pool, counters.loaded_dense);
        self.vain = 0;
        // Both sides are times the pages in the pool, the pages looked at, and the bytes of a page.
        let looked_at = counters.recompressed_pages
            + counters.reject_recompress_poor
            + counters.reject_recompress_loaded;
        let lost = u128::from(dense_loads * EXTRA_LOAD_NS)
            * (pages as u128 * u128::from(looked_at) * PAGE_BYTES as u128);
        let gained = u128::from(loads * FAULT_NS)
            * (tried as u128 * u128::from(counters.recompressed_saved_bytes));
        if lost > gained {
            self.young_parts = (2 * self.young_parts).clamp(1, PARTS - 1);
        } else if 2 * lost <= gained {
            self.young_parts /= 2;
        }
        debug_assert!(self.young_parts < PARTS, "a part is old");
    }
}

/// A page in the pool that is to be made denser.
struct Candidate<'z> {
    shard: usize,
    id: EntryId,
    place: PagePlace,
    /// The lock of its shard, until the object is pinned.
    tables: SpinGuard<'z, Tables>,
    work: WorkGuard<'z>,
}

/// A step of recompression, with its state in hand, and what it uses.
pub(crate) struct Recompressing<'z, P> {
    state: &'z mut Recompression,
    objects: &'z Objects<P>,
    shards: &'z Shards,
    knobs: Knobs,
}

impl<'z, P: Pool> Recompressing<'z, P> {
    /// Returns a step of recompression of the pages of `base`.
    pub(crate) fn new(base: &'z Base<P>, state: &'z mut Recompression) -> Self {
        Self { state, objects: &base.objects, shards: &base.shards, knobs: base.knobs() }
    }

    /// Returns whether there is more to do, after making a page denser, or some of the work for a
    /// dictionary.
    pub(crate) fn run(&mut self) -> bool {
        if self.state.skip > 0 {
            self.state.skip -= 1;
            return false;
        }
        let pool = self.objects.pool.stats().bytes_stored;
        let least = self.state.pool_min.0;
        let least = if self.state.encoder.is_made() { Bytes(least / 2) } else { Bytes(least) };
        if pool < least || !self.knobs.dense {
            self.state.training = None;
            self.state.encoder.drop_if_unneeded(&self.objects.contexts);
            return false;
        }
        let (tried, length) = self.lengths();
        self.state.judge(&self.shards.counters(), tried, length);
        if self.state.training.is_some() {
            self.train();
            return true;
        }
        let encoder = &self.state.encoder;
        let may_renew = self.state.is_outdated && encoder.has_room(&self.objects.contexts);
        if !encoder.is_made() || may_renew {
            return self.begin_training();
        }
        let is_more = self.next(length - tried, length).is_some();
        self.state.vain += u32::from(!is_more);
        is_more
    }

    /// Returns the number of pages in the LRU lists that recompression has looked at, and of all.
    fn lengths(&self) -> (usize, usize) {
        let of = |tables: &Tables| (tables.lru.tried(), tables.lru.length());
        self.shards
            .iter()
            .map(|shard| of(&shard.tables.lock()))
            .fold((0, 0), |(tried, length), (more_aged, more)| (tried + more_aged, length + more))
    }

    fn begin_training(&mut self) -> bool {
        debug_assert!(self.state.training.is_none(), "a dictionary is in the making");
        let trainer = room::allowed().ok().and_then(|()| Trainer::new().ok());
        self.state.training = trainer.map(|trainer| Training { trainer, misses: 0 });
        if self.state.training.is_none() {
            self.give_up_training();
        }
        self.state.training.is_some()
    }

    fn give_up_training(&mut self) {
        self.shards.counted().reject_dictionary_fail.add(1);
        self.state.skip = ATTEMPTS_SKIPPED;
    }

    /// Takes a step towards a dictionary: one more sample, one more segment, or the dictionary's
    /// first use.
    fn train(&mut self) {
        let Some(mut training) = self.state.training.take() else { return };
        if training.trainer.wants_page() && training.misses < MISSES_MAX {
            self.sample(&mut training);
        } else if !training.trainer.step() {
            // Even with nothing in common, pages become denser than by the fast codec.
            let dictionary =
                training.trainer.finish().unwrap_or_else(|| Dictionary::new(Vec::new()));
            debug_assert!(!self.state.encoder.is_made() || self.state.is_outdated);
            self.state.is_outdated = false;
            self.state.gain = Gain::default();
            let contexts = &self.objects.contexts;
            let encoder = &mut self.state.encoder;
            if room::allowed().is_ok() && encoder.adopt(dictionary, contexts).is_ok() {
                self.shards.counted().dictionaries.add(1);
            } else {
                self.give_up_training();
            }
            return;
        }
        self.state.training = Some(training);
    }

    /// Offers a young page as a sample.
    fn sample(&mut self, training: &mut Training) {
        let positions: [usize; SHARDS] =
            array::from_fn(|shard| self.shards[shard].tables.lock().entries.positions());
        let all = positions.iter().sum();
        for _ in 0..LOOKS {
            let mut position = self.state.draw(all);
            let mut shard = 0;
            while shard + 1 < SHARDS && position >= positions[shard] {
                position -= positions[shard];
                shard += 1;
            }
            debug_assert!(all == 0 || position < positions[shard], "{position} in shard {shard}");
            let work = self.objects.contexts.take();
            let tables = self.shards[shard].tables.lock();
            if let Some(place) = tables.entries.place_at(position)
                && place.coding().is_fast()
                && self.read(place, tables, work).is_some()
            {
                training.trainer.offer(&self.state.page[0]);
                return;
            }
            training.misses += 1;
        }
    }

    /// Looks at the next page, and makes it denser if that is possible. `None` when there is no
    /// such page, or no room for its object. Recompression has not looked at `young` of the
    /// `length` pages in the LRU lists.
    fn next(&mut self, mut young: usize, length: usize) -> Option<()> {
        debug_assert!(young <= length, "{young} young pages of {length}");
        let left_alone = length * self.state.young_parts / PARTS;
        let mut heads = self.shards.heads(|tables| tables.lru.next_to_age_era(&tables.entries));
        for _ in 0..LOOKS {
            let shard = heads.oldest(self.shards.eras.now()).filter(|_| young > left_alone)?;
            let work = self.objects.contexts.take();
            let mut guard = self.shards[shard].tables.lock();
            let tables = &mut *guard;
            let Some(id) = tables.lru.next_to_age() else {
                // Other callers have taken the page.
                heads.0[shard] = None;
                continue;
            };
            let place = tables.entries[id].place;
            let PagePlace::Pool { coding, referenced, .. } = place else { return None };
            // A page that is dense already has had a second chance from writeback.
            if !referenced && !coding.is_dense() {
                tables.begin_recompressing(id);
                let candidate = Candidate { shard, id, place, tables: guard, work };
                return self.make_denser(candidate);
            }
            self.shards.counted().reject_recompress_loaded.add(u64::from(referenced));
            tables.lru.note_tried(&mut tables.entries);
            heads.0[shard] = tables.lru.next_to_age_era(&tables.entries);
            young -= 1;
        }
        Some(())
    }

    /// Compresses a page of the pool again, and keeps the result if it is smaller. `None` when
    /// there is no room for another object.
    fn make_denser(&mut self, candidate: Candidate<'_>) -> Option<()> {
        let Candidate { shard, id, place, tables, work } = candidate;
        let PagePlace::Pool { handle: old, length, coding: old_coding, .. } = place else {
            return Some(());
        };
        let Some(mut work) = self.read(place, tables, work) else {
            self.shards.counted().reject_recompress_corrupt.add(1);
            self.end(shard, id, None);
            return Some(());
        };
        let length = usize::from(length);
        let longest = length.saturating_sub(SAVED_MIN.0);
        let room = &mut work.get().compressed[..(longest + ZSTD_SPARE.0).min(PAGE_BYTES)];
        let denser = self.state.encoder.compress(&self.state.page[0], room);
        let Some((bytes, coding)) = denser.filter(|(bytes, _)| bytes.len() <= longest) else {
            self.shards.counted().reject_recompress_poor.add(1);
            self.state.is_outdated |= self.state.gain.note(Bytes(length), Bytes(0));
            self.end(shard, id, None);
            return Some(());
        };
        let (new_length, checksum) = (bytes.len(), checksum(bytes));
        debug_assert!(new_length > 0 && new_length + SAVED_MIN.0 <= length, "hardly denser");
        let limit = self.knobs.hard_pool + FRAMES_BEYOND;
        let Some(handle) = self.objects.alloc(Bytes(new_length), Some(limit)) else {
            self.shards.counted().reject_recompress_full.add(1);
            self.state.skip = ATTEMPTS_SKIPPED;
            self.shards[shard].tables.lock().recompressing = None;
            return None;
        };
        self.objects.fill(handle, bytes, coding);
        drop(work);
        // The length is at most the old one.
        let place = PagePlace::new_in_pool(handle, checksum, new_length as u16, coding);
        let unused = if self.end(shard, id, Some(place)) {
            let saved = length - new_length;
            self.shards.counted().recompressed_pages.add(1);
            self.shards.counted().recompressed_saved_bytes.add(saved as u64);
            self.state.is_outdated |= self.state.gain.note(Bytes(length), Bytes(saved));
            Remains { handle: Some(old), coding: old_coding }
        } else {
            Remains { handle: Some(handle), coding }
        };
        self.objects.give_up(unused);
        Some(())
    }

    /// Returns whether the page still lies where it lay, after noting that recompression has looked
    /// at it. The page then gets the object of `denser`, if there is one; otherwise nothing has
    /// changed.
    fn end(&self, shard: usize, id: EntryId, denser: Option<PagePlace>) -> bool {
        let tables = &mut *self.shards[shard].tables.lock();
        if tables.recompressing.take() != Some(id) {
            return false;
        }
        debug_assert!(tables.entries[id].place.is_in_list(), "the page lies where it lay");
        if let Some(PagePlace::Pool { handle, checksum, length, coding, .. }) = denser
            && let PagePlace::Pool { referenced, tried, era, .. } = tables.entries[id].place
        {
            tables.entries[id].place =
                PagePlace::Pool { handle, checksum, length, coding, referenced, tried, era };
        }
        // A page that came back from a failed write may be next instead.
        if tables.lru.next_to_age() == Some(id) {
            tables.lru.note_tried(&mut tables.entries);
        }
        true
    }

    /// Reads a page of the pool into the buffer, and lets go of its shard meanwhile. `None` when
    /// the page is not there or damaged.
    fn read<'w>(
        &mut self,
        place: PagePlace,
        tables: SpinGuard<'_, Tables>,
        mut work: WorkGuard<'w>,
    ) -> Option<WorkGuard<'w>> {
        let PagePlace::Pool { handle, checksum, coding, .. } = place else { return None };
        let read = |bytes: &[u8]| {
            drop(tables);
            decode(Some(work.get()), bytes, checksum, coding, &mut self.state.page[0])
        };
        let is_read = self.objects.read(handle, read).is_ok();
        is_read.then_some(work)
    }
}
