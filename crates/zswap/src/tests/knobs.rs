//! The risk: a knob that does nothing, or one that loses a page stored before it was turned.

use super::*;
use crate::codecs::Coding;

/// Returns a key of area 0.
fn key(number: u64) -> Key {
    Key::new(0, number)
}

/// Makes a world of `max` and `hard` frames over `slots` slots.
fn world(max: usize, hard: usize, slots: u32) -> World<Naive> {
    let backing = Some(Box::new(in_memory(slots)) as Box<dyn Backing>);
    World::new(knobs(CodecId::Lz4, max, hard), Naive::new(1000), backing, Allowed::None)
}

/// Changes one or more knobs.
fn turn(world: &mut World<Naive>, change: impl FnOnce(&mut Knobs)) {
    let mut knobs = world.zswap.knobs();
    change(&mut knobs);
    world.zswap.set_knobs(knobs).unwrap();
}

#[test]
fn pages_of_every_codec_stay_readable_and_a_codec_goes_with_its_last_page() {
    let mut world = world(1000, 1000, 8);
    let ids = [
        CodecId::Lz4,
        CodecId::Zstd { level: 1 },
        CodecId::Lzo,
        CodecId::Zstd { level: 19 },
        CodecId::Zstd { level: -7 },
        CodecId::Lz4,
    ];
    let alone = world.zswap.memory();
    for (round, id) in ids.into_iter().enumerate() {
        turn(&mut world, |knobs| knobs.codec = id.into());
        for number in 0..20 {
            let number = round as u64 * 20 + number;
            world.store(key(number), &page(number, number as usize * 30)).unwrap();
        }
        // Part of each codec's pages is written back.
        world.zswap.shrink(PageCount(3));
        world.load_all();
    }
    assert_eq!(world.zswap.counters().codec_switched, 5);
    let zstd = coldpress_codec::Codec::new(CodecId::Zstd { level: 1 }).unwrap().work_bytes();
    assert!(world.zswap.memory() > alone + zstd, "all three are kept and counted");
    for number in 0..100 {
        world.invalidate(key(number));
    }
    let tables = world.zswap.tables_memory();
    assert!(world.zswap.memory() < alone + tables + Bytes::kib(20), "the unused are dropped");
    world.finish();
}

#[test]
fn auto_is_wk_and_zstd_for_pages_of_which_wk_makes_too_little() {
    let mut world = world(80, 80, 64);
    turn(&mut world, |knobs| knobs.codec = CodecChoice::Auto);
    let coded = |world: &World<Naive>| {
        Coding::FAST.map(|coding| world.zswap.base.objects.contexts.pages(coding))
    };
    // Four bits of each byte, at random: nothing repeats.
    let digits = page(1, PAGE_BYTES).map(|byte| b'0' + byte % 16);
    let stored = [page(0, 100), digits, page(2, PAGE_BYTES)];
    let expected = [[1, 0, 0, 0], [1, 0, 0, 1], [1, 0, 0, 1]];
    for (number, (page, expected)) in stored.iter().zip(expected).enumerate() {
        world.store(key(number as u64), page).unwrap();
        assert_eq!(coded(&world), expected, "page {number}");
    }
    assert_eq!(world.zswap.stats().counters.stored_incompressible, 1);
    turn(&mut world, |knobs| knobs.codec = CodecId::Wk.into());
    world.store(key(3), &digits).unwrap();
    assert_eq!(world.zswap.stats().counters.stored_incompressible, 2);
    world.load_all();
    // Without pages, only codecs that new pages may have stay.
    for choice in [CodecChoice::Auto, CodecId::Lzo.into(), CodecChoice::Auto] {
        turn(&mut world, |knobs| knobs.codec = choice);
        world.zswap.check();
    }
    (0..4).for_each(|number| world.invalidate(key(number)));
    assert_eq!(coded(&world), [0; 4]);
    world.finish();
}

#[test]
fn a_codec_that_cannot_be_had_changes_nothing() {
    let mut world = world(10, 10, 1);
    world.store(key(0), &page(0, 100)).unwrap();
    let before = world.zswap.knobs();
    let codec = CodecId::Zstd { level: 99 }.into();
    let error = world.zswap.set_knobs(Knobs { codec, enabled: false, ..before }).unwrap_err();
    assert!(error.to_string().contains("99"), "{error}");
    assert_eq!(world.zswap.knobs(), before);
    world.store(key(1), &page(1, 100)).unwrap();
    world.finish();
}

#[test]
fn a_store_that_is_switched_off_takes_nothing_and_gives_everything() {
    let mut world = world(10, 10, 1);
    world.store(key(0), &page(0, 100)).unwrap();
    turn(&mut world, |knobs| knobs.enabled = false);
    for page in [page(1, 100), page(2, 4000), word_page(0)] {
        assert_eq!(world.store(key(1), &page), Err(StoreError::Disabled));
    }
    assert_eq!(world.store(key(0), &page(3, 5)), Err(StoreError::Disabled));
    assert!(!StoreError::Disabled.is_of_the_page());
    world.load_all();
    turn(&mut world, |knobs| knobs.enabled = true);
    world.store(key(1), &page(1, 100)).unwrap();
    world.finish();
}

#[test]
fn poor_pages_are_kept_raw_or_refused_from_the_ratio_on() {
    let mut world = world(100, 100, 1);
    let (good, poor) = (page(1, 3200), page(2, 3600));
    assert_eq!(world.store(key(0), &poor), Ok(Stored::Raw));
    turn(&mut world, |knobs| knobs.keep_incompressible = false);
    assert_eq!(world.store(key(1), &poor), Err(StoreError::Incompressible));
    assert!(StoreError::Incompressible.is_of_the_page());
    assert!(matches!(world.store(key(1), &good), Ok(Stored::Compressed(_))));
    turn(&mut world, |knobs| knobs.max_compression_ratio = 100);
    assert!(matches!(world.store(key(2), &poor), Ok(Stored::Compressed(_))));
    turn(&mut world, |knobs| knobs.max_compression_ratio = 50);
    assert_eq!(world.store(key(3), &good), Err(StoreError::Incompressible));
    world.finish();
}

#[test]
fn a_page_that_is_as_well_off_where_it_is_must_compress() {
    let mut world = world(100, 100, 1);
    let (good, poor) = (page(1, 3200), page(2, 3600));
    let refused = world.zswap.store_offered(key(0), &poor, false, None);
    assert_eq!(refused, Err(StoreError::Incompressible));
    assert_eq!(world.zswap.stats().counters.reject_compress_poor, 1);
    let stored = world.zswap.store_offered(key(1), &good, false, None);
    assert!(matches!(stored, Ok(Stored::Compressed(_))), "{stored:?}");
    world.pages.insert(key(1), good);
    assert_eq!(
        world.zswap.store_offered(key(2), &word_page(3), false, None),
        Ok(Stored::SameFilled)
    );
    world.pages.insert(key(2), word_page(3));
    // Other pages are kept as before.
    assert_eq!(world.store(key(0), &poor), Ok(Stored::Raw));
    world.finish();
}

#[test]
fn the_mean_is_brought_down_by_better_pages() {
    let mut world = world(100, 100, 1);
    turn(&mut world, |knobs| knobs.max_mean_zsize = Bytes(1500));
    // For the first page there is no mean to compare with.
    world.store(key(0), &page(0, 3000)).unwrap();
    assert_eq!(world.store(key(1), &page(1, 2000)), Err(StoreError::AboveMean));
    assert!(StoreError::AboveMean.is_of_the_page());
    // Pages below the limit are always taken, and bring the mean to some 1050 bytes.
    for number in 2..4 {
        world.store(key(number), &page(number, 10)).unwrap();
    }
    world.store(key(1), &page(1, 2000)).unwrap();
    turn(&mut world, |knobs| knobs.max_mean_zsize = Bytes(PAGE_BYTES));
    for number in 10..20 {
        assert_eq!(world.store(key(number), &page(number, 4000)), Ok(Stored::Raw));
    }
    world.finish();
}

#[test]
fn words_are_compressed_when_they_are_not_kept_as_words() {
    let mut world = world(100, 100, 1);
    world.store(key(0), &word_page(7)).unwrap();
    turn(&mut world, |knobs| knobs.same_filled = false);
    assert!(matches!(world.store(key(1), &word_page(7)), Ok(Stored::Compressed(_))));
    assert_eq!(world.zswap.stats().same_filled_pages, PageCount(1));
    world.finish();
}

/// Stores raw pages `numbers`, and returns how many were refused.
fn store_raw(world: &mut World<Naive>, numbers: core::ops::Range<u64>) -> usize {
    numbers.filter(|&number| world.store(key(number), &page(number, 4000)).is_err()).count()
}

#[test]
fn a_pool_at_its_limit_is_written_back_down_to_the_threshold() {
    for (percent, left) in [(100, 86), (80, 72), (50, 44)] {
        let mut world = world(100, 100, 64);
        turn(&mut world, |knobs| knobs.accept_threshold_percent = percent);
        assert_eq!(store_raw(&mut world, 0..100), 0);
        assert_eq!(world.zswap.pool_frames(), PageCount(100));
        // Each store writes 15 pages back and adds one, down to the threshold.
        let mut lowest = 100;
        for number in 100..110 {
            world.store(key(number), &page(number, 4000)).unwrap();
            lowest = lowest.min(world.zswap.pool_frames().0);
        }
        assert_eq!(lowest, left, "{percent} per cent");
        world.finish();
    }
}

#[test]
fn after_a_refusal_nothing_is_taken_until_the_pool_is_below_the_threshold() {
    for (percent, refused_until) in [(100, 10), (70, 7)] {
        let mut world = world(10, 10, 0);
        turn(&mut world, |knobs| knobs.accept_threshold_percent = percent);
        assert_eq!(store_raw(&mut world, 0..11), 1);
        for gone in 0..4 {
            world.invalidate(key(gone));
            let frames = world.zswap.pool_frames().0;
            let result = world.store(key(20 + gone), &page(1, 4000));
            assert_eq!(result.is_ok(), frames <= refused_until, "{percent}, {frames} frames");
            world.invalidate(key(20 + gone));
        }
        // A word takes no room.
        world.store(key(30), &word_page(1)).unwrap();
        world.finish();
    }
}

#[test]
fn writeback_is_off_when_it_is_switched_off_and_on_again() {
    let mut world = world(10, 30, 64);
    turn(&mut world, |knobs| knobs.writeback = false);
    assert!(!world.zswap.writeback_possible());
    // The pool grows to its hard limit, as if there were no disk.
    assert_eq!(store_raw(&mut world, 0..40), 10);
    assert_eq!(world.zswap.stats().slots_used, 0);
    turn(&mut world, |knobs| knobs.writeback = true);
    assert!(world.zswap.writeback_possible());
    assert_eq!(store_raw(&mut world, 40..50), 0);
    assert!(world.zswap.stats().slots_used > 0);
    world.finish();
}

#[test]
fn no_period_writes_back_more_than_its_limit() {
    let slot = (RAW_IN_SLOT * sealed_length(PAGE_BYTES as u16).0) as u64;
    let mut world = world(20, 1000, 64);
    turn(&mut world, |knobs| knobs.writeback_limit = Some(Bytes(2 * SLOT_BYTES.0 + 100)));
    let written = |world: &World<Naive>| world.zswap.counters().flushed_bytes;
    store_raw(&mut world, 0..100);
    assert_eq!(written(&world), 2 * slot);
    assert!(!world.zswap.writeback_possible());
    // Turning another knob is no new period, and a higher limit counts what was written.
    turn(&mut world, |knobs| knobs.max_compression_ratio = 70);
    turn(&mut world, |knobs| knobs.writeback_limit = Some(Bytes(3 * SLOT_BYTES.0)));
    assert_eq!(world.zswap.shrink(PageCount(1000)), PageCount(RAW_IN_SLOT));
    assert_eq!(written(&world), 3 * slot);
    world.zswap.renew_writeback();
    world.zswap.shrink(PageCount(1000));
    assert_eq!(written(&world), 6 * slot);
    turn(&mut world, |knobs| knobs.writeback_limit = None);
    world.zswap.shrink(PageCount(1000));
    assert_eq!(world.zswap.pool_frames(), PageCount(0));
    world.finish();
}

#[test]
fn a_limit_below_what_is_stored_loses_nothing() {
    for slots in [0, 64] {
        let mut world = world(100, 100, slots);
        assert_eq!(store_raw(&mut world, 0..90), 0);
        turn(&mut world, |knobs| (knobs.max_pool, knobs.hard_pool) = (PageCount(5), PageCount(7)));
        let refused = store_raw(&mut world, 90..120);
        assert_eq!(refused > 0, slots == 0);
        assert_eq!(world.zswap.pool_frames() > PageCount(7), slots == 0);
        world.finish();
    }
}

#[test]
fn pages_become_no_denser_when_recompression_is_switched_off() {
    let mut world = world(1000, 1000, 1);
    turn(&mut world, |knobs| knobs.dense = false);
    for number in 0..200 {
        world.store(key(number), &record_page(number)).unwrap();
    }
    assert!(!world.zswap.recompress());
    turn(&mut world, |knobs| knobs.dense = true);
    while world.zswap.recompress() {}
    assert_eq!(world.zswap.stats().dense_pages, PageCount(100));
    // Dense pages stay dense, and the encoder goes with the last of them.
    turn(&mut world, |knobs| knobs.dense = false);
    assert!(!world.zswap.recompress() && world.zswap.has_encoder());
    assert_eq!(world.zswap.stats().dense_pages, PageCount(100));
    assert_eq!(world.load_all(), 0);
    for number in 0..200 {
        world.store(key(number), &record_page(number + 1)).unwrap();
    }
    assert!(!world.zswap.recompress() && !world.zswap.has_encoder());
    world.finish();
}

#[test]
fn what_has_nowhere_else_to_be_is_stored_whatever_the_knobs_say() {
    let mut world = world(2, 2, 0);
    turn(&mut world, |knobs| {
        *knobs = Knobs { keep_incompressible: false, max_mean_zsize: Bytes(1), ..*knobs };
    });
    store_raw(&mut world, 0..3);
    turn(&mut world, |knobs| knobs.enabled = false);
    for (number, noise) in [(10, 4000), (11, 100), (12, 4000), (10, 50)] {
        let page = page(number, noise);
        world.zswap.store_anyhow(key(number), &page).unwrap();
        world.pages.insert(key(number), page);
    }
    world.zswap.store_anyhow(key(13), &word_page(3)).unwrap();
    world.pages.insert(key(13), word_page(3));
    world.finish();
}
