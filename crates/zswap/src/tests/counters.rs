//! A counter that nobody increments tells users that all is well. Each is driven here, by its own
//! outcome and exactly as often as that happened.

use coldpress_backing::{Fault, FaultyBacking};

use super::*;
use crate::room::failing;

/// What the counters were when last looked at, and which of them have ever moved.
#[derive(Default)]
struct Meter {
    before: Counters,
    moved: HashSet<&'static str>,
}

impl Meter {
    /// Expects exactly the counters in `expected` to have moved, by so much each, in their order.
    fn expect(&mut self, zswap: &Zswap<Naive>, expected: &[(&'static str, u64)]) {
        zswap.check();
        let added: Vec<_> = zswap
            .counters
            .each()
            .zip(self.before.each())
            .map(|((name, now), (_, before))| (name, now - before))
            .filter(|&(_, added)| added > 0)
            .collect();
        assert_eq!(added, expected);
        self.before = zswap.counters;
        self.moved.extend(added.iter().map(|&(name, _)| name));
    }

    /// A new store in a pool of `frames` frames, with limits of 2 and 3 frames.
    fn start(&mut self, frames: usize, backing: impl Backing + 'static) -> Zswap<Naive> {
        self.before = Counters::default();
        let config = config(CodecId::Lz4, 2, 3);
        Zswap::new(config, Naive::new(frames), Some(Box::new(backing))).unwrap()
    }
}

/// A key of area 0.
fn key(number: u64) -> Key {
    Key::new(0, number)
}

/// A page that is kept raw.
fn raw(seed: u64) -> Page {
    page(seed, 4000)
}

/// The verbs, when all goes well.
fn verbs(meter: &mut Meter) {
    let mut zswap = meter.start(100, in_memory(2));
    let mut out = [0; PAGE_BYTES];
    zswap.store(key(0), &word_page(0)).unwrap();
    meter.expect(&zswap, &[("stored_same_filled", 1)]);
    zswap.store(key(1), &raw(1)).unwrap();
    meter.expect(&zswap, &[("reject_compress_poor", 1)]);
    let Ok(Stored::Compressed(Bytes(length))) = zswap.store(key(2), &page(2, 3000)) else {
        panic!("the page is compressible")
    };
    meter.expect(&zswap, &[("stored_compressed", 1), ("compressed_bytes", length as u64)]);
    zswap.load(key(1), &mut out).unwrap();
    meter.expect(&zswap, &[("loaded_from_pool", 1)]);
    zswap.load(key(0), &mut out).unwrap();
    meter.expect(&zswap, &[("loaded_same_filled", 1)]);
    zswap.load(key(9), &mut out).unwrap();
    meter.expect(&zswap, &[("load_missed", 1)]);
    zswap.store(key(3), &raw(3)).unwrap();
    meter.expect(
        &zswap,
        &[
            ("reject_compress_poor", 1),
            ("pool_limit_hit", 1),
            ("flushed_pages", 2),
            ("flushed_bytes", (length + PAGE_BYTES) as u64),
            ("second_chances", 1),
        ],
    );
    zswap.load(key(1), &mut out).unwrap();
    meter.expect(&zswap, &[("loaded_from_backing", 1)]);
    zswap.store(key(1), &word_page(5)).unwrap();
    meter.expect(&zswap, &[("stored_same_filled", 1), ("duplicate_entry", 1)]);
    zswap.invalidate(key(2));
    meter.expect(&zswap, &[("slots_discarded", 1), ("invalidated", 1)]);
    zswap.invalidate(key(2));
    meter.expect(&zswap, &[]);
    zswap.rename(key(3), key(4)).unwrap();
    meter.expect(&zswap, &[("renamed", 1)]);
    zswap.rename(key(4), key(0)).unwrap();
    meter.expect(&zswap, &[("invalidated", 1), ("renamed", 1)]);
}

/// A pool without room, and memory without room.
fn refusals(meter: &mut Meter) {
    let mut zswap = meter.start(1, in_memory(1));
    zswap.store(key(0), &raw(0)).unwrap();
    meter.expect(&zswap, &[("reject_compress_poor", 1)]);
    zswap.store(key(1), &raw(1)).unwrap();
    meter.expect(
        &zswap,
        &[
            ("reject_compress_poor", 1),
            ("reject_flush_attempted", 1),
            ("saved_by_flush", 1),
            ("flushed_pages", 1),
            ("flushed_bytes", PAGE_BYTES as u64),
        ],
    );
    zswap.store(key(2), &raw(2)).unwrap_err();
    meter.expect(&zswap, &[("reject_flush_attempted", 1), ("reject_zsmalloc_fail", 1)]);
    failing::after(Some(0));
    zswap.store(Key::new(1, 0), &word_page(0)).unwrap_err();
    zswap.rename(key(0), Key::new(1, 0)).unwrap_err();
    failing::after(None);
    meter.expect(&zswap, &[("reject_kmemcache_fail", 2)]);
}

/// A backing that goes wrong.
fn faults(meter: &mut Meter) {
    let mut out = [0; PAGE_BYTES];
    // The write is the first operation, the read the second.
    let mut zswap = meter.start(100, FaultyBacking::new(in_memory(1), Fault::Fail, 0..1));
    zswap.store(key(0), &raw(0)).unwrap();
    meter.expect(&zswap, &[("reject_compress_poor", 1)]);
    zswap.shrink(PageCount(1));
    meter.expect(&zswap, &[("reject_flush_fail", 1)]);
    for (fault, counter) in [(Fault::Fail, "load_backing_fail"), (Fault::Corrupt, "load_corrupt")] {
        let mut zswap = meter.start(100, FaultyBacking::new(in_memory(1), fault, 1..2));
        zswap.store(key(0), &raw(0)).unwrap();
        zswap.shrink(PageCount(1));
        meter.before = zswap.counters;
        zswap.load(key(0), &mut out).unwrap_err();
        meter.expect(&zswap, &[(counter, 1)]);
    }
}

#[test]
fn every_counter_counts_its_outcome() {
    let mut meter = Meter::default();
    verbs(&mut meter);
    refusals(&mut meter);
    faults(&mut meter);
    let all: HashSet<_> = Counters::default().each().map(|(name, _)| name).collect();
    assert_eq!(meter.moved, all, "a counter no outcome has moved");
}
