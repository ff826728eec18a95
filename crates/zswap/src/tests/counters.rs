//! The risk: a counter that is never incremented, which makes users believe that all is well. Each
//! counter is driven here, by its own outcome and exactly as often as that happened.

use std::mem;

use coldpress_backing::{Fault, FaultyBacking};

use super::*;
use crate::desk::{Desk, Posted, Ticket};
use crate::helped::HelperCodec;
use crate::room::failing;

/// The counters at the last look, and the names of those that have ever moved.
#[derive(Default)]
struct Meter {
    before: Counters,
    moved: HashSet<&'static str>,
}

impl Meter {
    /// Expects exactly the counters in `expected`, in their order, to have moved, each by its
    /// number.
    fn expect(&mut self, zswap: &Zswap<Naive>, expected: &[(&'static str, u64)]) {
        zswap.check();
        let grown = zswap.counters().values().into_iter().zip(self.before.values());
        let added: Vec<_> = (Counters::NAMES.iter().copied())
            .zip(grown.map(|(now, before)| now - before))
            .filter(|&(_, added)| added > 0)
            .collect();
        assert_eq!(added, expected);
        self.before = zswap.counters();
        self.moved.extend(added.iter().map(|&(name, _)| name));
    }

    /// Makes a new store in a pool of `frames` frames, with limits of 2 and 3 frames.
    fn start(&mut self, frames: usize, backing: impl Backing + 'static) -> Zswap<Naive> {
        self.before = Counters::default();
        let knobs = knobs(CodecId::Lz4, 2, 3);
        Zswap::new(knobs, Naive::new(frames), Some(sealed(Box::new(backing)))).unwrap()
    }
}

/// Returns a key of area 0.
fn key(number: u64) -> Key {
    Key::new(0, number)
}

/// Makes a page that is kept raw.
fn raw(seed: u64) -> Page {
    page(seed, 4000)
}

/// Drives the verbs, when all goes well.
fn verbs(meter: &mut Meter) {
    let zswap = meter.start(100, in_memory(2));
    let mut out = [0; PAGE_BYTES];
    zswap.store(key(0), &word_page(0)).unwrap();
    meter.expect(&zswap, &[("stored_same_filled", 1)]);
    zswap.store(key(1), &raw(1)).unwrap();
    meter.expect(&zswap, &[("stored_incompressible", 1)]);
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
            ("stored_incompressible", 1),
            ("pool_limit_hit", 1),
            ("flushed_pages", 2),
            ("flushed_bytes", (length + PAGE_BYTES + 2 * TAG_BYTES) as u64),
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

/// Drives offers: pages that a helper has made, or failed to make.
fn offers(meter: &mut Meter) {
    let zswap = meter.start(100, in_memory(1));
    let (desk, mut posted, mut seen) = (Desk::empty(), Posted::new(4), 0);
    let mut maker = HelperCodec::new(CodecId::Lz4.into(), 80).unwrap();
    let mut other = HelperCodec::new(CodecId::Wk.into(), 80).unwrap();
    let pages = [page(1, 1000), page(3, 1000), raw(2)];
    let mut store = |number: usize, maker: &mut HelperCodec| {
        posted.post(&desk, Ticket(number as u64), number);
        desk.answer(desk.claim(&mut seen).unwrap(), maker.make(&pages[number]));
        let offer = posted.collect(&desk, Ticket(number as u64));
        zswap.store_offered(key(number as u64), &pages[number], true, offer.as_ref()).unwrap()
    };
    let Stored::Compressed(Bytes(length)) = store(0, &mut maker) else { panic!() };
    let length = length as u64;
    meter.expect(
        &zswap,
        &[("stored_compressed", 1), ("compressed_bytes", length), ("stored_by_helper", 1)],
    );
    let Stored::Compressed(Bytes(length)) = store(1, &mut other) else { panic!() };
    meter.expect(&zswap, &[("stored_compressed", 1), ("compressed_bytes", length as u64)]);
    assert_eq!(store(2, &mut maker), Stored::Raw);
    meter.expect(&zswap, &[("stored_incompressible", 1), ("stored_by_helper", 1)]);
    for (number, page) in pages.iter().enumerate() {
        let mut out = [0; PAGE_BYTES];
        zswap.load(key(number as u64), &mut out).unwrap();
        assert!(out == *page);
    }
}

/// Drives refusals: a pool without room, and memory without room.
fn refusals(meter: &mut Meter) {
    let zswap = meter.start(1, in_memory(1));
    zswap.store(key(0), &raw(0)).unwrap();
    meter.expect(&zswap, &[("stored_incompressible", 1)]);
    zswap.store(key(1), &raw(1)).unwrap();
    meter.expect(
        &zswap,
        &[
            ("stored_incompressible", 1),
            ("reject_flush_attempted", 1),
            ("saved_by_flush", 1),
            ("flushed_pages", 1),
            ("flushed_bytes", (PAGE_BYTES + TAG_BYTES) as u64),
        ],
    );
    zswap.store(key(2), &raw(2)).unwrap_err();
    meter.expect(
        &zswap,
        &[("reject_flush_attempted", 1), ("reject_zsmalloc_fail", 1), ("reject_backing_full", 1)],
    );
    failing::after(Some(0));
    zswap.store(Key::new(1, 0), &word_page(0)).unwrap_err();
    zswap.rename(key(0), Key::new(1, 0)).unwrap_err();
    failing::after(None);
    meter.expect(&zswap, &[("reject_kmemcache_fail", 2)]);
}

/// Drives a backing that fails.
fn faults(meter: &mut Meter) {
    let mut out = [0; PAGE_BYTES];
    // The write is the first operation, the read the second.
    let zswap = meter.start(100, FaultyBacking::new(in_memory(1), Fault::Fail, 0..1));
    zswap.store(key(0), &raw(0)).unwrap();
    meter.expect(&zswap, &[("stored_incompressible", 1)]);
    zswap.shrink(PageCount(1));
    meter.expect(&zswap, &[("reject_flush_fail", 1)]);
    zswap.shrink(PageCount(1));
    meter.expect(&zswap, &[("flush_skipped", 1)]);
    for (fault, counter) in [(Fault::Fail, "load_backing_fail"), (Fault::Corrupt, "load_corrupt")] {
        let zswap = meter.start(100, FaultyBacking::new(in_memory(1), fault, 1..2));
        zswap.store(key(0), &raw(0)).unwrap();
        zswap.shrink(PageCount(1));
        meter.before = zswap.counters();
        zswap.load(key(0), &mut out).unwrap_err();
        meter.expect(&zswap, &[(counter, 1)]);
    }
}

/// Drives a backing that is slow.
fn slow(meter: &mut Meter) {
    let zswap = meter.start(100, FaultyBacking::new(in_memory(9), Fault::Delay, 0..u64::MAX));
    zswap.set_knobs(Knobs { hard_pool: PageCount(100), ..zswap.knobs() }).unwrap();
    for number in 0..4 {
        zswap.store(key(number), &raw(number)).unwrap();
    }
    meter.expect(&zswap, &[("stored_incompressible", 4), ("pool_limit_hit", 2)]);
    assert_eq!(zswap.stats().outstanding_flushes, 2);
    zswap.store(key(4), &raw(4)).unwrap();
    let busy = [("stored_incompressible", 1), ("pool_limit_hit", 1), ("reject_tmppage_fail", 1)];
    meter.expect(&zswap, &busy);
    zswap.finish_writes();
    let written = 3 * (PAGE_BYTES + TAG_BYTES) as u64;
    meter.expect(&zswap, &[("flushed_pages", 3), ("flushed_bytes", written)]);
    assert_eq!(zswap.stats().outstanding_flushes, 0);
    assert_eq!(zswap.load(key(0), &mut [0; PAGE_BYTES]), Ok(Loaded::Coming));
    meter.expect(&zswap, &[("load_coming", 1)]);
}

/// Drives each refusal by a knob, one after the other.
fn by_knobs(meter: &mut Meter) {
    let mut zswap = meter.start(100, in_memory(1));
    let normal = zswap.knobs();
    let set = |zswap: &mut Zswap<Naive>, knobs| zswap.set_knobs(knobs).unwrap();
    set(&mut zswap, Knobs { enabled: false, ..normal });
    zswap.store(key(0), &word_page(0)).unwrap_err();
    meter.expect(&zswap, &[("reject_disabled", 1)]);
    set(&mut zswap, Knobs { keep_incompressible: false, ..normal });
    zswap.store(key(0), &raw(0)).unwrap_err();
    meter.expect(&zswap, &[("reject_compress_poor", 1)]);
    set(&mut zswap, Knobs { max_mean_zsize: Bytes(2000), ..normal });
    zswap.store(key(0), &raw(0)).unwrap();
    meter.expect(&zswap, &[("stored_incompressible", 1)]);
    zswap.store(key(1), &raw(1)).unwrap_err();
    meter.expect(&zswap, &[("reject_mean_poor", 1)]);
    let codec = CodecId::Lzo.into();
    set(&mut zswap, Knobs { codec, ..normal });
    meter.expect(&zswap, &[("codec_switched", 1)]);
    zswap.set_knobs(Knobs { codec: CodecId::Zstd { level: 99 }.into(), ..normal }).unwrap_err();
    meter.expect(&zswap, &[("reject_codec_fail", 1)]);
    set(&mut zswap, Knobs { writeback: false, codec, ..normal });
    zswap.shrink(PageCount(1));
    meter.expect(&zswap, &[("reject_writeback_off", 1)]);
    set(&mut zswap, Knobs { writeback_limit: Some(Bytes(1)), ..normal });
    meter.expect(&zswap, &[("codec_switched", 1)]);
    zswap.shrink(PageCount(1));
    meter.expect(&zswap, &[("reject_writeback_limit", 1)]);
    set(&mut zswap, normal);
    zswap.shrink(PageCount(1));
    meter.expect(
        &zswap,
        &[("flushed_pages", 1), ("flushed_bytes", (PAGE_BYTES + TAG_BYTES) as u64)],
    );
    // The only slot is taken, and the limit is 3 frames: two more pages fit, and no third.
    set(&mut zswap, Knobs { accept_threshold_percent: 50, ..normal });
    for number in 1..4 {
        zswap.store(key(number), &raw(number)).unwrap();
    }
    meter.before = zswap.counters();
    zswap.store(key(4), &raw(4)).unwrap_err();
    meter.expect(
        &zswap,
        &[
            ("pool_limit_hit", 1),
            ("reject_flush_attempted", 1),
            ("reject_zsmalloc_fail", 1),
            ("reject_backing_full", 2),
        ],
    );
    zswap.store(key(4), &raw(4)).unwrap_err();
    meter.expect(&zswap, &[("reject_accept_threshold", 1), ("reject_backing_full", 1)]);
}

/// Drives recompression.
fn recompression(meter: &mut Meter) {
    let mut zswap = meter.start(100, in_memory(1));
    let mut out = [0; PAGE_BYTES];
    zswap.set_knobs(Knobs::new(CodecId::Lz4, PageCount(90))).unwrap();
    zswap.recompression.get_mut().pool_min = Bytes(1);
    zswap.recompression.get_mut().young_parts = 0;
    let store = |zswap: &mut Zswap<Naive>, number, page: &Page| {
        zswap.store(key(number), page).unwrap();
        zswap.counters()
    };
    meter.before = store(&mut zswap, 0, &record_page(0));
    failing::after(Some(0));
    assert!(!zswap.recompress());
    failing::after(None);
    meter.expect(&zswap, &[("reject_dictionary_fail", 1)]);
    while !zswap.has_encoder() {
        zswap.recompress();
    }
    meter.expect(&zswap, &[("dictionaries", 1)]);
    let before = zswap.stats().pool_bytes;
    zswap.recompress();
    let saved = before.0 - zswap.stats().pool_bytes.0;
    meter.expect(&zswap, &[("recompressed_pages", 1), ("recompressed_saved_bytes", saved as u64)]);
    zswap.load(key(0), &mut out).unwrap();
    meter.expect(&zswap, &[("loaded_from_pool", 1), ("loaded_dense", 1)]);
    meter.before = store(&mut zswap, 1, &raw(1));
    zswap.recompress();
    meter.expect(&zswap, &[("reject_recompress_poor", 1)]);
    store(&mut zswap, 2, &record_page(2));
    zswap.load(key(2), &mut out).unwrap();
    meter.before = zswap.counters();
    zswap.recompress();
    meter.expect(&zswap, &[("reject_recompress_loaded", 1)]);
    meter.before = store(&mut zswap, 3, &record_page(3));
    zswap.pool_mut().frames_max = 0;
    zswap.recompress();
    meter.expect(&zswap, &[("reject_recompress_full", 1)]);
    assert!(
        mem::take(&mut zswap.recompression.get_mut().skip) > 0,
        "a full pool is asked again at once"
    );
    for object in zswap.pool().held().objects.values_mut() {
        object[0] ^= 1;
    }
    zswap.recompress();
    meter.expect(&zswap, &[("reject_recompress_corrupt", 1)]);
}

/// Drives pages that move within the pool.
fn draining(meter: &mut Meter) {
    let mut zswap = meter.start(100, in_memory(1));
    zswap.store(key(0), &raw(0)).unwrap();
    meter.before = zswap.counters();
    // A few times more than all entries.
    let budget = Bytes::kib(64);
    let old = zswap.pool().held().objects.keys().copied().next();
    assert_eq!(zswap.drain(budget, |_, handle| Some(handle) == old), Bytes(PAGE_BYTES));
    meter.expect(&zswap, &[("drained_pages", 1)]);
    zswap.pool_mut().frames_max = 0;
    assert_eq!(zswap.drain(budget, |_, _| true), Bytes(0));
    meter.expect(&zswap, &[("reject_drain_full", 1)]);
}

#[test]
fn every_counter_counts_its_outcome() {
    let mut meter = Meter::default();
    verbs(&mut meter);
    offers(&mut meter);
    refusals(&mut meter);
    faults(&mut meter);
    slow(&mut meter);
    by_knobs(&mut meter);
    recompression(&mut meter);
    draining(&mut meter);
    let all: HashSet<_> = Counters::NAMES.iter().copied().collect();
    assert_eq!(meter.moved, all, "a counter no outcome has moved");
}

#[test]
fn the_figures_of_the_reference_have_their_names() {
    let stats = Stats::default();
    let _ = (stats.pool_pages, stats.stored_pages, stats.outstanding_flushes);
    for name in [
        "saved_by_flush",
        "pool_limit_hit",
        "reject_flush_attempted",
        "reject_tmppage_fail",
        "reject_flush_fail",
        "reject_zsmalloc_fail",
        "reject_kmemcache_fail",
        "reject_compress_poor",
        "flushed_pages",
        "duplicate_entry",
    ] {
        assert!(Counters::NAMES.contains(&name), "{name}");
    }
}

#[test]
fn sizes_are_counted_in_their_classes() {
    let (counted, mut stats) = (crate::stats::Counted::default(), Stats::default());
    for length in [1, 256, 257, PAGE_BYTES] {
        counted.note_size(Bytes(length));
    }
    counted.add_classes(&mut stats);
    let sizes = stats.sizes;
    assert_eq!((sizes[0], sizes[1], sizes[SIZE_CLASSES - 1]), (2, 1, 1));
    let mut world = World::new(knobs(CodecId::Lz4, 90, 90), Naive::new(90), None, Allowed::None);
    for (number, noise) in [0, 1000, 2000, 4000].into_iter().enumerate() {
        world.store(key(number as u64), &page(number as u64, noise)).unwrap();
    }
    world.store(key(9), &word_page(0)).unwrap();
    let sizes = world.zswap.stats().sizes;
    assert_eq!(sizes.iter().sum::<u64>(), 4, "words take no storage");
    assert_eq!((sizes[0], sizes[SIZE_CLASSES - 1]), (1, 1));
    world.finish();
}

#[test]
fn ages_are_counted_when_pages_leave_the_pool() {
    let mut world = World::new(
        knobs(CodecId::Lz4, 90, 90),
        Naive::new(90),
        Some(Box::new(in_memory(4))),
        Allowed::None,
    );
    let old = RAW_IN_SLOT as u64;
    world.zswap.note_time(1_000);
    for number in 0..old {
        world.store(key(number), &page(number, 4000)).unwrap();
    }
    // A second later pages are of another era.
    world.zswap.note_time(2_000);
    world.store(key(old), &page(old, 100)).unwrap();
    for now in 2_000..6_000 {
        world.zswap.note_time(now);
    }
    // 5 and 4 seconds: the classes below 8 and 4, as three quarters of a class may pass for all of
    // it.
    for (number, class) in [(0, 9), (old, 8)] {
        let before = world.zswap.stats().loaded_ages;
        world.load(key(number));
        let mut after = before;
        after[class] += 1;
        assert_eq!(world.zswap.stats().loaded_ages, after, "{number}");
    }
    assert_eq!(world.zswap.stats().flushed_ages, [0; AGE_CLASSES]);
    world.zswap.shrink(PageCount(1));
    let ages = world.zswap.stats().flushed_ages;
    assert_eq!(ages.iter().sum::<u64>(), world.zswap.counters().flushed_pages);
    assert!(ages[9] > 0, "{ages:?}");
    // A page from disk has no age, nor has a word.
    world.store(key(99), &word_page(1)).unwrap();
    let before = world.zswap.stats().loaded_ages;
    world.load(key(1));
    world.load(key(99));
    assert_eq!(world.zswap.stats().loaded_ages, before);
    world.finish();
}
