//! The risk: one of many threads that sees a page never stored under its key, or one not there any
//! more; or loses one of its own; or threads that wait for each other for ever.
//!
//! Each key has an owner: the only thread that changes the key, so it knows exactly what is there.
//! All other threads load the key, too. They must find a page of that owner as it was stored; and
//! if the owner changed nothing meanwhile, the very page that is there. Each key has a count for
//! that: it goes up when a change begins and when it ends, so it is odd while one goes on. One more
//! thread does whatever a store must allow at any time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use coldpress_backing::{Fault, FaultyBacking};
use coldpress_mem::pools::{AnyPool, PoolKind};
use proptest::prelude::*;

use super::oracle::key;
use super::*;

/// Keys of one owner; those of the next owner follow.
const OWN_KEYS: u64 = 40;
/// Owners, which together have all keys that [`key`] makes.
const OWNERS: u64 = 4;
/// Changes of each owner.
const CHANGES: u64 = 600;
/// The number that stands for no page.
const NONE: u64 = u64::MAX;

/// The record of one key, which its owner keeps.
struct Cell {
    /// Twice the number of ended changes, plus one while another goes on.
    changes: AtomicU64,
    /// The number of the page under the key.
    page: AtomicU64,
}

/// The state that all threads share.
struct Shared<'z, P> {
    zswap: &'z Zswap<P>,
    cells: Vec<Cell>,
    allowed: Allowed,
    is_over: AtomicBool,
}

/// Makes the page of that number, which implies its owner and its kind; all kinds occur.
fn page_of(number: u64) -> Page {
    let mut page = match number / OWNERS % 5 {
        0 => return word_page(number),
        1 | 2 => record_page(number),
        3 => page(number, 4000),
        _ => page(number, number as usize * 7 % 3000),
    };
    page[..8].copy_from_slice(&number.to_le_bytes());
    page
}

/// Returns the number that a page bears.
fn number_of(page: &Page) -> u64 {
    u64::from_le_bytes(page[..8].try_into().unwrap())
}

impl<P: Pool> Shared<'_, P> {
    /// Loads the page under any key, and checks what a thread that is not its owner can know.
    fn look(&self, key_number: u64) {
        let cell = &self.cells[key_number as usize];
        let changes = cell.changes.load(Ordering::SeqCst);
        let expected = cell.page.load(Ordering::SeqCst);
        let mut found = [0xAB; PAGE_BYTES];
        let result = load(self.zswap, key(key_number), &mut found);
        let is_quiet = changes.is_multiple_of(2) && cell.changes.load(Ordering::SeqCst) == changes;
        match result {
            Ok(Loaded::Missing) => assert!(!is_quiet || expected == NONE, "a page is lost"),
            Ok(_) => {
                let number = number_of(&found);
                assert_eq!(number % OWNERS, key_number / OWN_KEYS, "another's page");
                assert!(found == page_of(number), "wrong bytes of page {number}");
                assert!(!is_quiet || expected == number, "page {number} instead of {expected}");
            }
            Err(LoadError::Backing(_)) => assert_eq!(self.allowed, Allowed::Backing),
            Err(LoadError::Corrupt) => panic!("damage that nobody did"),
        }
    }

    /// Changes a key of the caller's: `change` does it and returns the number of the page there
    /// then.
    fn change(&self, key_number: u64, change: impl FnOnce(u64) -> u64) {
        let cell = &self.cells[key_number as usize];
        cell.changes.fetch_add(1, Ordering::SeqCst);
        let before = cell.page.load(Ordering::SeqCst);
        cell.page.store(change(before), Ordering::SeqCst);
        cell.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Stores, drops and renames pages of one owner, and looks at all keys.
    fn own(&self, owner: u64, seed: u64) {
        let mut next = random(seed);
        let mut drawn = || next() % OWN_KEYS + owner * OWN_KEYS;
        for round in 0..CHANGES {
            let (one, other) = (drawn(), drawn());
            let number = round * OWNERS + owner;
            match drawn() % 8 {
                0..4 => self.change(one, |before| self.store(one, number, before)),
                4 => self.change(one, |before| {
                    assert_eq!(self.zswap.invalidate(key(one)), before != NONE);
                    NONE
                }),
                5 if one != other => self.change(one, |before| {
                    self.change(other, |_| {
                        let renamed = self.zswap.rename(key(one), key(other));
                        assert_eq!(renamed, Ok(before != NONE));
                        before
                    });
                    NONE
                }),
                _ => {
                    self.look(one);
                    self.look(drawn());
                }
            }
            // A key of any owner.
            self.look((one * 31 + round * 7) % (OWNERS * OWN_KEYS));
        }
    }

    /// Stores a page, and returns the number of the page there then.
    fn store(&self, key_number: u64, number: u64, before: u64) -> u64 {
        let page = page_of(number);
        match self.zswap.store(key(key_number), &page) {
            Ok(_) => number,
            Err(StoreError::NoMemory) => panic!("there is memory"),
            // The page there before is still there.
            Err(_) => before,
        }
    }

    /// Calls all other verbs, until the owners are done.
    fn disturb(&self, seed: u64) {
        let mut next = random(seed);
        let zswap = self.zswap;
        while !self.is_over.load(Ordering::SeqCst) {
            let amount = next() as usize % 5;
            match next() % 18 {
                0..6 => drop((0..20 * amount).take_while(|_| zswap.recompress()).count()),
                6 => drop(zswap.shrink(PageCount(amount))),
                7 => drop(zswap.reap()),
                8 => zswap.wait(),
                9 => drop(zswap.compact(Bytes(amount << 14))),
                10 => drop(zswap.trim_backing(SlotCount(1))),
                11 => {
                    let codec = CODECS[amount % CODECS.len()];
                    let writeback = !next().is_multiple_of(8);
                    zswap.set_knobs(Knobs { codec, writeback, ..zswap.knobs() }).unwrap();
                    zswap.renew_writeback();
                }
                12 => zswap.shrink_to_limit(),
                13 => {
                    let stats = zswap.stats();
                    assert!(stats.stored_pages <= PageCount((OWNERS * OWN_KEYS) as usize));
                    assert!(stats.memory > Bytes(0) && zswap.young_percent() <= 100);
                }
                14 => drop((zswap.take_warning(), zswap.take_arrivals(), zswap.is_behind())),
                // Every third object moves, in the same pool.
                15 | 16 => drop(zswap.drain(Bytes(amount << 14), |_, it| it.name() % 3 == 0)),
                _ => zswap.recompression.lock().is_outdated = true,
            }
        }
    }
}

/// Runs the owners and the disturber, and expects all owners' pages and nothing else.
fn run<P: Pool>(seed: u64, pool: P, backing: Option<Box<dyn Backing>>, allowed: Allowed) {
    let codec = CODECS[seed as usize % CODECS.len()];
    let mut world = World::new(knobs(codec, 24, 40), pool, backing, allowed);
    let cell = |_| Cell { changes: AtomicU64::new(0), page: AtomicU64::new(NONE) };
    let shared = Shared {
        zswap: &world.zswap,
        cells: (0..OWNERS * OWN_KEYS).map(cell).collect(),
        allowed,
        is_over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let shared = &shared;
        let owners: Vec<_> =
            (0..OWNERS).map(|owner| scope.spawn(move || shared.own(owner, seed ^ owner))).collect();
        let disturber = scope.spawn(move || shared.disturb(seed ^ OWNERS));
        let results: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        shared.is_over.store(true, Ordering::SeqCst);
        disturber.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
    });
    let pages = (0..).zip(&shared.cells).map(|(number, cell)| (key(number), &cell.page));
    let pages = pages.map(|(key, page)| (key, page.load(Ordering::SeqCst)));
    let left = pages.filter(|&(_, number)| number != NONE);
    world.pages = left.map(|(key, number)| (key, page_of(number))).collect();
    world.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn naive_pool_and_memory(seed: u64) {
        run(seed, Naive::new(60), Some(Box::new(in_memory(4))), Allowed::None);
    }

    #[test]
    fn naive_pool_and_no_backing(seed: u64) {
        run(seed, Naive::new(60), None, Allowed::None);
    }

    #[test]
    fn every_pool_and_a_slow_disk(seed: u64) {
        let kind = PoolKind::ALL[seed as usize / 8 % PoolKind::ALL.len()];
        let frames = FrameAllocator::new();
        frames.init(Layout::one_zone(Bytes::mib(16))).unwrap();
        let backing = FaultyBacking::new(in_memory(6), Fault::Delay, 0..u64::MAX);
        run(seed, AnyPool::new(kind, &frames), Some(Box::new(backing)), Allowed::None);
    }

    #[test]
    fn zsmalloc_and_a_file(seed: u64) {
        with_zsmalloc(100, |pool| {
            let file = SpillFile::unnamed_in(c"/var/tmp").unwrap();
            let backing = FileBacking::by_plain_calls(file, Bytes(6 * SLOT_BYTES.0));
            run(seed, pool, Some(Box::new(backing)), Allowed::None);
        });
    }

    #[test]
    fn zsmalloc_and_a_broken_disk(seed: u64, at in 0_u64..40, count in 1_u64..20) {
        with_zsmalloc(100, |pool| {
            let backing = FaultyBacking::new(in_memory(6), Fault::Fail, at..at + count);
            run(seed, pool, Some(Box::new(backing)), Allowed::Backing);
        });
    }
}

/// Checks that a store waits for a pool that is full only while others are writing back.
#[test]
fn nobody_is_refused_while_pages_are_written_back() {
    for (percent, fault) in [(100, None), (50, None), (100, Some(Fault::Delay))] {
        let backing: Box<dyn Backing> = match fault {
            Some(fault) => Box::new(FaultyBacking::new(in_memory(2000), fault, 0..u64::MAX)),
            None => Box::new(in_memory(2000)),
        };
        let knobs = Knobs { accept_threshold_percent: percent, ..knobs(CodecId::Lz4, 40, 40) };
        let world = World::new(knobs, Naive::new(200), Some(backing), Allowed::None);
        std::thread::scope(|scope| {
            for owner in 0..12 {
                let zswap = &world.zswap;
                scope.spawn(move || {
                    for number in (owner..3000).step_by(12) {
                        let stored = zswap.store(Key::new(0, number * 97), &page(number, 4000));
                        assert!(stored.is_ok(), "page {number}: {stored:?}; {percent} %");
                    }
                });
            }
        });
        assert_eq!(world.zswap.counters().reject_zsmalloc_fail, 0);
    }
}
