//! The risk: a wrong byte, a lost page, or memory that never comes back. Every test runs a store
//! beside a plain map of pages ([`World`]), compares every page it loads, walks all structures, and
//! at the end drops every page and expects nothing to be left.

mod check;
mod counters;
mod drain;
mod failures;
mod heirs;
mod knobs;
mod oracle;
mod recompress;
mod sealing;
mod threads;
mod verbs;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use coldpress_backing::{FileBacking, MemoryBacking, SlotCount, SlotId};
use coldpress_codec::{CodecChoice, CodecId};
use coldpress_mem::frames::{Config as Layout, FrameAllocator, Mobility, Shrunk};
use coldpress_mem::pools::{
    AllocError, ClassStats, Compacted, Handle, PoolStats, UnknownHandle, Zsmalloc,
};
use coldpress_sys::file::SpillFile;
use coldpress_sys::ring::Ring;
use coldpress_sys::{PAGE_BYTES, Page};

use super::*;
use crate::seal::{KEY_BYTES, TAG_BYTES, sealed_length};
use coldpress_backing::SLOT_BYTES;

/// The naive pool: its objects lie one behind the other, in at most `frames_max` frames.
#[derive(Default)]
struct Naive {
    held: Mutex<NaiveObjects>,
    frames_max: usize,
}

#[derive(Default)]
struct NaiveObjects {
    objects: HashMap<Handle, Vec<u8>>,
    names: u32,
    bytes: usize,
}

impl Naive {
    /// Makes an empty pool of at most `frames_max` frames.
    fn new(frames_max: usize) -> Self {
        Self { frames_max, ..Self::default() }
    }

    fn held(&self) -> MutexGuard<'_, NaiveObjects> {
        self.held.lock().unwrap()
    }
}

impl Pool for Naive {
    fn alloc(&self, size: Bytes) -> Result<Handle, AllocError> {
        assert!((1..=PAGE_BYTES).contains(&size.0));
        let mut held = self.held();
        if (held.bytes + size.0).div_ceil(PAGE_BYTES) > self.frames_max {
            return Err(AllocError::NoFrame);
        }
        held.names += 1;
        held.bytes += size.0;
        let handle = Handle::new(held.names);
        held.objects.insert(handle, vec![0xEE; size.0]);
        Ok(handle)
    }

    fn free(&self, handle: Handle) -> Result<(), UnknownHandle> {
        let mut held = self.held();
        held.bytes -= held.objects.remove(&handle).ok_or(UnknownHandle)?.len();
        Ok(())
    }

    fn size(&self, handle: Handle) -> Result<Bytes, UnknownHandle> {
        self.held().objects.get(&handle).map(|bytes| Bytes(bytes.len())).ok_or(UnknownHandle)
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle> {
        let mut held = self.held();
        held.objects.get_mut(&handle).ok_or(UnknownHandle)?.copy_from_slice(bytes);
        Ok(())
    }

    fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle> {
        self.held().objects.get(&handle).map(|bytes| f(bytes)).ok_or(UnknownHandle)
    }

    fn stats(&self) -> PoolStats {
        let held = self.held();
        PoolStats {
            objects: held.objects.len(),
            bytes_stored: Bytes(held.bytes),
            frames: Bytes(held.bytes).pages_up(),
            metadata: Bytes(0),
        }
    }

    fn classes(&self, _: &mut dyn FnMut(ClassStats)) {}

    fn compact(&self, _: Bytes) -> Compacted {
        Compacted::default()
    }

    fn shrink_frames(&self, online: Bytes) -> Shrunk {
        Shrunk { online, held_back_by: None }
    }

    fn check(&mut self) {}
}

/// Returns numbers that look random (splitmix64, Steele and others 2014), the same for the same
/// seed.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Makes a page with `noise` incompressible bytes among zeros. No such page is a repeated word.
fn page(seed: u64, noise: usize) -> Page {
    let mut next = random(seed);
    let mut page = [0; PAGE_BYTES];
    page[..noise].fill_with(|| next() as u8);
    page[PAGE_BYTES - 8..].copy_from_slice(&(seed | 1).to_le_bytes());
    page
}

/// Makes a page of records that other pages have, too, in another order and with other numbers: a
/// page that a dictionary makes smaller.
fn record_page(seed: u64) -> Page {
    let mut next = random(seed);
    let mut page = [0; PAGE_BYTES];
    for record in page.chunks_mut(32) {
        let (kind, number) = (next() % 64, next() % 10_000);
        let text = format!("{:016x} kind {kind:02} no {number:04}\n", random(kind)());
        record.copy_from_slice(&text.as_bytes()[..record.len()]);
    }
    page
}

/// Makes a page that is a repeated word.
fn word_page(word: u64) -> Page {
    let mut page = [0; PAGE_BYTES];
    coldpress_codec::fill(&mut page, word);
    page
}

/// Returns the default knobs with limits of `max` and `hard` frames.
fn knobs(codec: impl Into<CodecChoice>, max: usize, hard: usize) -> Knobs {
    Knobs { hard_pool: PageCount(hard), ..Knobs::new(codec, PageCount(max)) }
}

/// All codecs, at one level each, and the choice between them.
const CODECS: [CodecChoice; 5] = [
    CodecChoice::Always(CodecId::Wk),
    CodecChoice::Always(CodecId::Lz4),
    CodecChoice::Always(CodecId::Lzo),
    CodecChoice::Always(CodecId::Zstd { level: 1 }),
    CodecChoice::Auto,
];

/// The errors that a load may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    None,
    Corrupt,
    Backing,
}

/// Loads a page, and waits for it if it must be read back.
fn load<P: Pool>(zswap: &Zswap<P>, key: Key, page: &mut Page) -> Result<Loaded, LoadError> {
    loop {
        match zswap.load(key, page) {
            Ok(Loaded::Coming) => zswap.wait(),
            result => return result,
        }
    }
}

/// A store beside a map of what must be in it.
struct World<P> {
    zswap: Zswap<P>,
    pages: HashMap<Key, Page>,
    allowed: Allowed,
}

impl<P: Pool> World<P> {
    /// Makes a world whose store is empty, and whose loads may return the errors `allowed`.
    fn new(knobs: Knobs, pool: P, backing: Option<Box<dyn Backing>>, allowed: Allowed) -> Self {
        let mut zswap = Zswap::new(knobs, pool, backing.map(sealed)).unwrap();
        zswap.recompression.get_mut().pool_min = Bytes(2);
        Self { zswap, pages: HashMap::new(), allowed }
    }

    /// Stores a page in the store, and in the map if the store took it.
    fn store(&mut self, key: Key, page: &Page) -> Result<Stored, StoreError> {
        let result = self.zswap.store(key, page);
        if result.is_ok() {
            self.pages.insert(key, *page);
        }
        result
    }

    /// Loads a page and compares it. Returns the error, if there is one and it is allowed.
    fn load(&mut self, key: Key) -> Option<LoadError> {
        let mut loaded = [0xAB; PAGE_BYTES];
        let result = load(&self.zswap, key, &mut loaded);
        self.judge(key, result, &loaded)
    }

    /// Loads a page as [`World::load`] does, but does not wait for a page that is not here yet.
    fn ask_for(&mut self, key: Key) {
        let mut loaded = [0xAB; PAGE_BYTES];
        match self.zswap.load(key, &mut loaded) {
            Ok(Loaded::Coming) => {
                assert!(self.pages.contains_key(&key) && loaded == [0xAB; PAGE_BYTES]);
            }
            result => drop(self.judge(key, result, &loaded)),
        }
    }

    /// Compares what a load returned with the map.
    fn judge(
        &self,
        key: Key,
        result: Result<Loaded, LoadError>,
        loaded: &Page,
    ) -> Option<LoadError> {
        let expected = self.pages.get(&key);
        assert_eq!(self.zswap.contains(key), expected.is_some());
        match result {
            Ok(source) => {
                assert_eq!(source == Loaded::Missing, expected.is_none(), "{key:?}");
                let expected = expected.unwrap_or(&[0xAB; PAGE_BYTES]);
                assert!(loaded == expected, "wrong bytes for {key:?} from {source:?}");
                None
            }
            Err(error) => {
                let is_allowed = match error {
                    LoadError::Corrupt => self.allowed == Allowed::Corrupt,
                    LoadError::Backing(_) => self.allowed == Allowed::Backing,
                };
                assert!(is_allowed && expected.is_some(), "{key:?}: {error}");
                Some(error)
            }
        }
    }

    /// Drops a page.
    fn invalidate(&mut self, key: Key) {
        assert_eq!(self.zswap.invalidate(key), self.pages.remove(&key).is_some());
    }

    /// Forgets the pages for which `is_in` holds, of which the store must have dropped `dropped`.
    fn forget(&mut self, dropped: PageCount, is_in: impl Fn(Key) -> bool) {
        let before = self.pages.len();
        self.pages.retain(|&key, _| !is_in(key));
        assert_eq!(dropped, PageCount(before - self.pages.len()));
    }

    /// Loads and compares every page. Returns the number of loads with an allowed error.
    fn load_all(&mut self) -> usize {
        self.zswap.check();
        let keys: Vec<_> = self.pages.keys().copied().collect();
        let failed = keys.into_iter().filter(|&key| self.load(key).is_some()).count();
        assert_eq!(self.zswap.stats().stored_pages, PageCount(self.pages.len()));
        failed
    }

    /// Compares every page, drops it, and expects nothing to be left.
    fn finish(mut self) {
        self.load_all();
        self.zswap.finish_writes();
        for key in std::mem::take(&mut self.pages).into_keys() {
            assert!(self.zswap.invalidate(key));
        }
        while self.zswap.reads() > 0 {
            self.zswap.wait();
        }
        self.zswap.check();
        // Recompression gives back the memory of dense pages.
        while self.zswap.recompress() {}
        assert!(self.zswap.recompression.get_mut().skip > 0 || !self.zswap.has_encoder());
        let left = self.zswap.stats();
        let Stats { counters, sizes, loaded_ages, flushed_ages, memory, .. } = left;
        let happened = Stats { counters, sizes, loaded_ages, flushed_ages, ..Stats::default() };
        assert_eq!(left, Stats { memory, ..happened });
        let count = |ages: [u64; AGE_CLASSES]| ages.iter().sum::<u64>();
        // On its way out a page has no era; a page on its way may be dropped, or its write may
        // fail.
        assert!(count(loaded_ages) <= counters.loaded_from_pool);
        assert!(count(flushed_ages) >= counters.flushed_pages);
        assert_eq!(self.zswap.index_memory(), Bytes(0));
    }
}

/// Pairs a backing with a sealer, whose key is no secret.
fn sealed(backing: Box<dyn Backing>) -> (Box<dyn Backing>, Sealer) {
    (backing, Sealer::new(&[3; KEY_BYTES]).unwrap())
}

/// Raw pages that fit a slot.
const RAW_IN_SLOT: usize = SLOT_BYTES.0 / (PAGE_BYTES + TAG_BYTES);

/// Makes a backing of `slots` slots in memory.
fn in_memory(slots: u32) -> MemoryBacking {
    MemoryBacking::new(SlotCount(slots))
}

/// Makes a backing of `slots` slots in an unnamed file.
fn in_file(slots: u32) -> FileBacking {
    let file = SpillFile::unnamed_in(c"/var/tmp").unwrap();
    FileBacking::new(file, Bytes(slots as usize * SLOT_BYTES.0), Ring::new().ok())
}

/// Runs `test` with an empty zsmalloc pool whose frames are limited to `frames_max`.
fn with_zsmalloc(frames_max: usize, test: impl FnOnce(Zsmalloc<'_>)) {
    let frames = FrameAllocator::new();
    frames.init(Layout::one_zone(Bytes::mib(16))).unwrap();
    for _ in frames_max..Bytes::mib(16).pages_down().0 {
        frames.alloc(Mobility::Core).unwrap();
    }
    test(Zsmalloc::new(&frames, 8));
}
