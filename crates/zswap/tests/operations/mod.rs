//! Verbs of a store as bytes say, beside a map of what must be in it. [`run`] is the body of a fuzz
//! target, and of a property test.
//!
//! The first bytes choose pool, codec, limits and what is wrong with the backing; then each verb is
//! a byte and those of its arguments, until there are none.

use std::collections::BTreeMap;

use coldpress_backing::{Backing, Fault, FaultyBacking, MemoryBacking, SlotCount};
use coldpress_codec::{CodecChoice, CodecId};
use coldpress_mem::frames::{Config, FrameAllocator};
use coldpress_mem::pools::{AnyPool, PoolKind, Switch};
use coldpress_sys::{Bytes, PAGE_BYTES, Page, PageCount};
use coldpress_zswap::seal::Sealer;
use coldpress_zswap::{Area, Key, Knobs, LoadError, Loaded, Offset, StoreError, Stored, Zswap};

/// Keys are few, so that verbs meet: in three areas, at borders of what tables and shards hold.
const OFFSETS: [u64; 12] =
    [0, 1, 2, 1023, 1024, 8191, 8192, (1 << 18) - 1, 1 << 18, 1 << 40, u64::MAX - 1, u64::MAX];

/// The bytes that are left; none are zeros.
struct Input<'b>(&'b [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn key(&mut self) -> Key {
        let byte = self.byte();
        Key::new(u16::from(byte / 64 % 3), OFFSETS[usize::from(byte) % OFFSETS.len()])
    }

    fn codec(&mut self) -> CodecChoice {
        match self.byte() % 6 {
            0 => CodecId::Lz4.into(),
            1 => CodecId::Lzo.into(),
            2 => CodecId::Zstd { level: 1 }.into(),
            3 => CodecId::Zstd { level: -3 }.into(),
            4 => CodecId::Wk.into(),
            _ => CodecChoice::Auto,
        }
    }

    fn frames(&mut self) -> PageCount {
        PageCount(usize::from(self.byte() % 64))
    }

    /// A page: a word, text that others have too, or some bytes of noise among zeros.
    fn page(&mut self) -> Page {
        let (kind, seed) = (self.byte(), self.byte());
        let mut page = [0; PAGE_BYTES];
        match kind % 4 {
            0 => page.fill(seed % 3),
            1 => {
                for (index, line) in page.chunks_mut(32).enumerate() {
                    let number = usize::from(seed).wrapping_mul(31).wrapping_add(index * index);
                    let text = format!("a line of the number {:09}\n.", number % 97);
                    line.copy_from_slice(&text.as_bytes()[..line.len()]);
                }
            }
            _ => {
                let mut state = u32::from(kind) << 8 | u32::from(seed);
                for byte in &mut page[..usize::from(kind) * 16] {
                    state = state.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
                    *byte = (state >> 24) as u8;
                }
                page[PAGE_BYTES - 1] = seed;
            }
        }
        page
    }
}

/// A store, and what must be in it.
struct World<'f> {
    zswap: Zswap<Switch<Box<AnyPool<'f>>>>,
    frames: &'f FrameAllocator,
    pages: BTreeMap<Key, Page>,
    /// Whether loads may fail, for the backing does.
    may_fail: bool,
}

impl World<'_> {
    fn store(&mut self, key: Key, page: Page, result: Result<Stored, StoreError>) {
        match result {
            Ok(_) => drop(self.pages.insert(key, page)),
            Err(error) => assert_ne!(error, StoreError::NoMemory),
        }
    }

    /// Loads a page, waits for it if `is_patient`, and compares it.
    fn load(&self, key: Key, is_patient: bool) {
        let mut found = [0xAB; PAGE_BYTES];
        let result = loop {
            match self.zswap.load(key, &mut found) {
                Ok(Loaded::Coming) if is_patient => self.zswap.wait(),
                result => break result,
            }
        };
        let expected = self.pages.get(&key);
        match result {
            Ok(Loaded::Missing) => assert!(expected.is_none(), "{key:?} is lost"),
            Ok(Loaded::Coming) => assert!(expected.is_some(), "{key:?} comes from nowhere"),
            Ok(Loaded::SameFilled | Loaded::FromPool | Loaded::FromBacking) => {
                assert!(expected == Some(&found), "wrong bytes of {key:?}: {result:?}");
            }
            Err(LoadError::Corrupt | LoadError::Backing(_)) => {
                assert!(self.may_fail && expected.is_some(), "{key:?}: {result:?}");
            }
        }
    }

    /// Drops the keys that `is_in` says; there must have been `dropped`.
    fn forget(&mut self, dropped: PageCount, is_in: impl Fn(Key) -> bool) {
        let before = self.pages.len();
        self.pages.retain(|key, _| !is_in(*key));
        assert_eq!(dropped, PageCount(before - self.pages.len()));
    }

    fn rename(&mut self, from: Key, to: Key) {
        assert_eq!(self.zswap.rename(from, to), Ok(self.pages.contains_key(&from)));
        if from != to {
            self.pages.remove(&to);
            if let Some(page) = self.pages.remove(&from) {
                self.pages.insert(to, page);
            }
        }
    }

    /// Turns all knobs that matter here.
    fn turn(&self, input: &mut Input<'_>) {
        let (codec, max_pool, hard_pool) = (input.codec(), input.frames(), input.frames());
        let bits = input.byte();
        let knobs = Knobs {
            enabled: bits & 7 != 0,
            hard_pool,
            accept_threshold_percent: 40 + bits % 61,
            max_compression_ratio: 50 + bits % 51,
            keep_incompressible: bits & 8 == 0,
            same_filled: bits & 16 == 0,
            dense: bits & 192 != 192,
            writeback: bits & 96 != 0,
            ..Knobs::new(codec, max_pool)
        };
        self.zswap.set_knobs(knobs).expect("the levels are valid and there is memory");
    }

    /// Does the next verb.
    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 22 {
            0..6 => {
                let (key, page) = (input.key(), input.page());
                self.store(key, page, self.zswap.store(key, &page));
            }
            6 => {
                let (key, page) = (input.key(), input.page());
                self.store(key, page, self.zswap.store_anyhow(key, &page));
            }
            7..9 => self.load(input.key(), true),
            9 => self.load(input.key(), false),
            10 => {
                let key = input.key();
                assert_eq!(self.zswap.invalidate(key), self.pages.remove(&key).is_some());
            }
            11 => {
                let (Key { area, offset }, length) = (input.key(), input.byte());
                let count = 1_usize << (length % 64);
                let dropped = self.zswap.invalidate_range(area, offset, PageCount(count));
                let end = u128::from(offset.0) + count as u128;
                self.forget(dropped, |key| {
                    let is_in = key.offset >= offset && u128::from(key.offset.0) < end;
                    key.area == area && is_in
                });
            }
            12 => {
                let Key { area, .. } = input.key();
                let dropped = self.zswap.invalidate_area(area);
                self.forget(dropped, |key| key.area == area);
            }
            13 => {
                let (from, to) = (input.key(), input.key());
                self.rename(from, to);
            }
            14 => drop(self.zswap.shrink(input.frames())),
            15 => self.turn(input),
            16 => drop((0..input.byte()).take_while(|_| self.zswap.recompress()).count()),
            17 => drop(self.zswap.compact(Bytes(usize::from(input.byte()) << 8))),
            18 => drop((self.zswap.reap(), self.zswap.trim_backing(SlotCount(1)))),
            19 => {
                // Refused while the one before is not empty.
                let kind = PoolKind::ALL[usize::from(input.byte()) % PoolKind::ALL.len()];
                let pool = Box::new(AnyPool::new(kind, self.frames));
                let _ = self.zswap.pool_mut().switch(pool);
            }
            20 => {
                self.zswap.drain(Bytes(usize::from(input.byte()) << 8), Switch::is_former);
                self.zswap.pool_mut().finish();
            }
            _ => self.zswap.shrink_to_limit(),
        }
    }

    /// Compares and drops all pages, and expects nothing to be left.
    fn finish(mut self) {
        self.pages.keys().for_each(|key| self.load(*key, true));
        let stored = self.zswap.stats().stored_pages;
        assert_eq!(stored, PageCount(self.pages.len()));
        self.zswap.shrink(PageCount(usize::MAX));
        for area in 0..3 {
            let dropped = self.zswap.invalidate_range(Area(area), Offset(0), PageCount(1));
            self.forget(dropped, |key| key == Key::new(area, 0));
            let dropped = self.zswap.invalidate_area(Area(area));
            self.forget(dropped, |key| key.area == Area(area));
        }
        let left = self.zswap.stats();
        assert_eq!((left.stored_pages, left.in_pool_pages), (PageCount(0), PageCount(0)));
        assert_eq!((left.pool_bytes, left.slots_used), (Bytes(0), 0));
        assert!(self.pages.is_empty());
    }
}

/// Does what `bytes` say, and panics when the store does not as a map would.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let kind = PoolKind::ALL[usize::from(input.byte()) % PoolKind::ALL.len()];
    let frames = FrameAllocator::new();
    frames.init(Config::one_zone(Bytes::mib(16))).expect("there is address space");
    let slots = MemoryBacking::new(SlotCount(u32::from(input.byte() % 9)));
    let choice = input.byte();
    let (fault, may_fail) = match choice % 6 {
        0 => (Some(Fault::Delay), false),
        1 => (Some(Fault::Full), false),
        2 => (Some(Fault::Fail), true),
        3 => (Some(Fault::Corrupt), true),
        4 => (Some(Fault::Tear), true),
        _ => (None, false),
    };
    let first = u64::from(choice / 6);
    let backing: Box<dyn Backing> = match fault {
        Some(Fault::Delay) => Box::new(FaultyBacking::new(slots, Fault::Delay, 0..u64::MAX)),
        Some(fault) => Box::new(FaultyBacking::new(slots, fault, first..first + 9)),
        None => Box::new(slots),
    };
    let sealer = Sealer::random().expect("there is a key");
    let knobs = Knobs { hard_pool: PageCount(60), ..Knobs::new(input.codec(), input.frames()) };
    let pool = Switch::new(Box::new(AnyPool::new(kind, &frames)));
    let zswap = Zswap::new(knobs, pool, Some((backing, sealer)));
    let zswap = zswap.unwrap_or_else(|error| panic!("{error}"));
    let mut world = World { zswap, frames: &frames, pages: BTreeMap::new(), may_fail };
    while !input.0.is_empty() {
        world.step(&mut input);
    }
    world.finish();
}
