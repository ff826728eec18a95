//! Tiers by age: while nobody waits, the oldest pages of the pool are compressed once more, with a
//! dictionary of the program's own pages. Young pages stay in the fast codec.
//!
//! ```text
//! youngest   store: fast codec         cheap to store and to load
//!    |       age: dense codec          a third to a half smaller, a load takes longer
//! oldest     write back, as they are   no memory
//! ```
//!
//! **When it begins.** When the pool holds so much that what is expected to be saved pays for the
//! memory of codec and trainer twice ([`POOL_MIN`]).
//!
//! **How old is old.** A dense page costs time when it is loaded, and the room it makes saves
//! faults. Both are counted, since ageing was last judged:
//!
//! ```text
//! lost:   loads of dense pages x EXTRA_LOAD_NS
//! gained: room made by dense pages / page x loads of a stored page, on average x FAULT_NS
//! ```
//!
//! A part of the list of age, from its young end, is left alone. When more is lost than gained the
//! part is doubled, when less than half it is halved, down to nothing: where nothing is loaded,
//! everything is old. It begins with a half. That a page of the room made would be faulted on like
//! the average stored page is careful: it would hold the hottest of them.
//!
//! **Dictionaries.** Samples come from all over the entries. When pages come to save less by a
//! quarter than the first ones with the dictionary, the program has changed, or other parts of it
//! have grown old, and a new dictionary is made for what follows. That takes 3 ms, as much as some
//! 50 pages, and one of four generations; pages on disk hold theirs, too.
//!
//! A page that is damaged, or hardly smaller, stays as it is; and so does one that was loaded since
//! writeback last looked at it. A new object is made before the old one is dropped.

use alloc::boxed::Box;
use alloc::vec::Vec;

use coldpress_codec::{Dictionary, Trainer, checksum};
use coldpress_mem::pools::{Handle, Pool};
use coldpress_sys::{Bytes, PAGE_BYTES, Page, PageCount};

use crate::entry::Place;
use crate::limits::ATTEMPTS_SKIPPED;
use crate::load::decode;
use crate::room::{self, NoMemory};
use crate::stats::Counters;
use crate::{HELD, Zswap};

/// Bytes of objects in the pool at which ageing begins: a quarter of them is twice the memory of
/// the dense codec (356 KiB) and of a trainer (195 KiB). At half of them it ends, and without dense
/// pages the codec's memory is given back.
const POOL_MIN: Bytes = Bytes::mib(4);
/// What a dense object must be smaller by: else its loads would have to be 8 times as rare as those
/// of the average page to be worth it.
const SAVED_MIN: Bytes = Bytes(128);
/// Room that zstd wants beyond a result, see [`coldpress_codec::DictionaryCodec::compress`].
const ZSTD_SPARE: Bytes = Bytes(16);
/// What a load of a dense page takes longer than one of a young page: 3 to 5 us at the median,
/// measured with pages of Python and SQLite that had left the caches.
const EXTRA_LOAD_NS: u64 = 5_000;
/// What a page that is not in memory costs: fault and load (11 to 17 us measured), and the store of
/// another in its place.
const FAULT_NS: u64 = 20_000;
/// The parts the list of age is divided in; some of them, at the young end, are left alone.
const PARTS: usize = 16;
/// Loads from the pool after which the part left alone is judged.
const LOADS_JUDGED: u64 = 256;
/// Calls in vain after which it is judged when there are fewer loads: a second or some, as who has
/// nothing to do asks again after milliseconds.
const VAIN_JUDGED: u32 = 1024;
/// Pages whose gain is compared to that of the first ones.
const GAIN_PAGES: u32 = 2048;
/// Frames that a pool at its hard limit may take beyond it for dense objects. They are of other
/// sizes than those they replace, so they may need frames before any is empty.
const FRAMES_BEYOND: PageCount = PageCount(64);
/// Entries looked at in one call, if nothing is to be done for them: some microseconds.
const LOOKS: usize = 64;
/// Entries looked at for samples in vain, before those there are must do.
const MISSES_MAX: usize = 8192;

/// What is known for ageing.
#[derive(Debug)]
pub(crate) struct Tiers {
    /// One page that is being compressed again.
    page: Box<[Page]>,
    training: Option<Training>,
    /// Entries looked at for samples, ever.
    drawn: u32,
    /// Parts at the young end that are left alone, below [`PARTS`].
    pub(crate) young_parts: usize,
    /// When `young_parts` was last judged: loads from the pool, those of dense pages, and calls in
    /// vain since.
    judged: (u64, u64),
    vain: u32,
    gain: Gain,
    /// Whether the newest dictionary does not fit any more.
    pub(crate) is_outdated: bool,
    /// Calls to be skipped, after memory or room in the pool was refused.
    pub(crate) skip: u32,
    pub(crate) pool_min: Bytes,
}

/// A dictionary in the making.
#[derive(Debug)]
struct Training {
    trainer: Trainer,
    /// Entries that gave no sample.
    misses: usize,
}

/// What pages became smaller by: lately, and the first ones with the newest dictionary.
#[derive(Debug, Default)]
struct Gain {
    pages: u32,
    before: u64,
    saved: u64,
    first_permille: Option<u64>,
}

impl Gain {
    /// Counts a page. Whether pages save clearly less than the first ones did.
    fn note(&mut self, before: Bytes, saved: Bytes) -> bool {
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

impl Tiers {
    /// Nothing is aged yet.
    pub(crate) fn new() -> Result<Self, NoMemory> {
        Ok(Self {
            page: room::table(1, || [0; PAGE_BYTES])?,
            training: None,
            drawn: 0,
            young_parts: PARTS / 2,
            judged: (0, 0),
            vain: 0,
            gain: Gain::default(),
            is_outdated: false,
            skip: 0,
            pool_min: POOL_MIN,
        })
    }

    /// The page's buffer, and a trainer while there is one.
    pub(crate) fn memory(&self) -> Bytes {
        let trainer = self.training.as_ref().map(|training| training.trainer.work_bytes());
        Bytes(PAGE_BYTES) + trainer.unwrap_or_default()
    }

    /// A position below `positions`, each time another, spread evenly (multiples of the golden
    /// ratio, Knuth volume 3 section 6.4).
    fn draw(&mut self, positions: usize) -> usize {
        self.drawn = self.drawn.wrapping_add(1);
        let fraction = u64::from(self.drawn.wrapping_mul(0x9e37_79b9));
        ((u128::from(fraction) * positions as u128) >> u32::BITS) as usize
    }

    /// Changes how much is left alone, when enough has happened since the last time. `aged` of
    /// `pages` in the pool were looked at.
    fn judge(&mut self, counters: &Counters, aged: usize, pages: usize) {
        let loads = counters.loaded_from_pool - self.judged.0;
        let dense_loads = counters.loaded_dense - self.judged.1;
        if loads < LOADS_JUDGED && self.vain < VAIN_JUDGED {
            return;
        }
        self.judged = (counters.loaded_from_pool, counters.loaded_dense);
        self.vain = 0;
        // Both sides times the pages in the pool, those looked at, and the bytes of a page.
        let looked_at = counters.aged_pages + counters.reject_age_poor + counters.reject_age_loaded;
        let lost = u128::from(dense_loads * EXTRA_LOAD_NS)
            * (pages as u128 * u128::from(looked_at) * PAGE_BYTES as u128);
        let gained =
            u128::from(loads * FAULT_NS) * (aged as u128 * u128::from(counters.aged_saved_bytes));
        if lost > gained {
            self.young_parts = (2 * self.young_parts).clamp(1, PARTS - 1);
        } else if 2 * lost <= gained {
            self.young_parts /= 2;
        }
    }
}

impl<P: Pool> Zswap<P> {
    /// Makes old pages of the pool denser: one small step of it, for a time when nobody waits. It
    /// takes as long as compressing a page, some 60 us; once for each dictionary, up to a
    /// millisecond. Whether there is more to do; if not, ask again in some milliseconds.
    pub fn age(&mut self) -> bool {
        if self.tiers.skip > 0 {
            self.tiers.skip -= 1;
            return false;
        }
        let pool = self.pool.stats().bytes_stored;
        let least = self.tiers.pool_min.0;
        if pool < if self.codecs.dense.is_made() { Bytes(least / 2) } else { Bytes(least) } {
            self.tiers.training = None;
            self.codecs.dense.drop_unneeded();
            return false;
        }
        self.tiers.judge(&self.counters, self.lru.aged(), self.lru.length());
        if self.tiers.training.is_some() {
            self.train();
            return true;
        }
        if !self.codecs.dense.is_made() || (self.tiers.is_outdated && self.codecs.dense.has_room())
        {
            return self.begin_training();
        }
        let is_more = self.age_next().is_some();
        self.tiers.vain += u32::from(!is_more);
        is_more
    }

    /// The youngest pages of the pool that ageing leaves alone now, in per cent.
    pub fn young_percent(&self) -> usize {
        self.tiers.young_parts * 100 / PARTS
    }

    fn begin_training(&mut self) -> bool {
        let trainer = room::allowed().ok().and_then(|()| Trainer::new().ok());
        self.tiers.training = trainer.map(|trainer| Training { trainer, misses: 0 });
        if self.tiers.training.is_none() {
            self.give_up_training();
        }
        self.tiers.training.is_some()
    }

    fn give_up_training(&mut self) {
        self.counters.reject_dictionary_fail += 1;
        self.tiers.skip = ATTEMPTS_SKIPPED;
    }

    /// A step towards a dictionary: a sample more, or a segment of the dictionary, or its use.
    fn train(&mut self) {
        let Some(mut training) = self.tiers.training.take() else { return };
        if training.trainer.wants_page() && training.misses < MISSES_MAX {
            self.sample(&mut training);
        } else if !training.trainer.step() {
            // Without anything in common, pages are still denser than by the fast codec.
            let dictionary =
                training.trainer.finish().unwrap_or_else(|| Dictionary::new(Vec::new()));
            self.tiers.is_outdated = false;
            self.tiers.gain = Gain::default();
            if room::allowed().is_ok() && self.codecs.dense.adopt(dictionary).is_ok() {
                self.counters.dictionaries += 1;
            } else {
                self.give_up_training();
            }
            return;
        }
        self.tiers.training = Some(training);
    }

    /// Offers a young page for a sample.
    fn sample(&mut self, training: &mut Training) {
        let positions = self.entries.positions();
        for _ in 0..LOOKS {
            let position = self.tiers.draw(positions);
            if let Some(place) = self.entries.place_at(position)
                && place.coding().is_fast()
                && self.read_for_ageing(place)
            {
                training.trainer.offer(&self.tiers.page[0]);
                return;
            }
            training.misses += 1;
        }
    }

    /// Looks at the next page and makes it denser, if that is possible. `None` when there is no
    /// such page, or no room for its object.
    fn age_next(&mut self) -> Option<()> {
        let left_alone = self.lru.length() * self.tiers.young_parts / PARTS;
        for _ in 0..LOOKS {
            let id = self.lru.next_to_age().filter(|_| self.lru.young() > left_alone)?;
            let place = self.entries[id].place;
            let Place::Pool { coding, referenced, .. } = place else { return None };
            // Dense already: writeback gave it a second chance.
            let is_tried = !referenced && !coding.is_dense();
            if is_tried {
                self.entries[id].place = self.make_denser(place)?;
            }
            self.counters.reject_age_loaded += u64::from(referenced);
            self.lru.note_aged(&mut self.entries);
            if is_tried {
                return Some(());
            }
        }
        Some(())
    }

    /// Compresses a page of the pool again. Where it is then, which is where it was if it is no
    /// smaller. `None` when there is no room for another object.
    fn make_denser(&mut self, place: Place) -> Option<Place> {
        let Place::Pool { handle: old, length, coding: old_coding, .. } = place else {
            return Some(place);
        };
        if !self.read_for_ageing(place) {
            self.counters.reject_age_corrupt += 1;
            return Some(place);
        }
        let length = usize::from(length);
        let longest = length.saturating_sub(SAVED_MIN.0);
        let room = &mut self.compressed[..(longest + ZSTD_SPARE.0).min(PAGE_BYTES)];
        let denser = self.codecs.dense.compress(&self.tiers.page[0], room);
        let Some((bytes, coding)) = denser.filter(|(bytes, _)| bytes.len() <= longest) else {
            self.counters.reject_age_poor += 1;
            self.tiers.is_outdated |= self.tiers.gain.note(Bytes(length), Bytes(0));
            return Some(place);
        };
        let (new_length, checksum) = (bytes.len(), checksum(bytes));
        let Some(handle) = self.alloc_denser(Bytes(new_length)) else {
            self.counters.reject_age_full += 1;
            self.tiers.skip = ATTEMPTS_SKIPPED;
            return None;
        };
        self.pool.write(handle, &self.compressed[..new_length]).expect(HELD);
        self.pool.free(old).expect(HELD);
        self.codecs.note_gone(old_coding);
        self.codecs.note_come(coding);
        let saved = length - new_length;
        self.counters.aged_pages += 1;
        self.counters.aged_saved_bytes += saved as u64;
        self.tiers.is_outdated |= self.tiers.gain.note(Bytes(length), Bytes(saved));
        // No longer than it was.
        Some(Place::new_in_pool(handle, checksum, new_length as u16, coding))
    }

    /// Room in the pool for a dense object.
    fn alloc_denser(&mut self, size: Bytes) -> Option<Handle> {
        let frames_before = self.pool_frames();
        let handle = self.pool.alloc(size).ok()?;
        let frames = self.pool_frames();
        if frames > self.knobs().hard_pool + FRAMES_BEYOND && frames > frames_before {
            self.pool.free(handle).expect(HELD);
            return None;
        }
        Some(handle)
    }

    /// Reads a page of the pool into the buffer. Whether it is there and undamaged.
    fn read_for_ageing(&mut self, place: Place) -> bool {
        let Place::Pool { handle, checksum, coding, .. } = place else { return false };
        let (codecs, page) = (&mut self.codecs, &mut self.tiers.page[0]);
        let read = |bytes: &[u8]| decode(codecs, bytes, checksum, coding, page);
        self.pool.read(handle, read).expect(HELD).is_ok()
    }
}
