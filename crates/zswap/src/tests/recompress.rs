//! The risk: a page that becomes unreadable because its dictionary is gone, room that is missing
//! when it is needed to save room, and time spent on pages that are not old.

use coldpress_codec::GENERATIONS;

use super::oracle::key;
use super::*;
use crate::codecs::Coding;
use crate::entry::PagePlace;
use crate::room::failing;

/// Makes a world without limits over `slots` slots in memory.
fn world(slots: u32) -> World<Naive> {
    let backing = Some(Box::new(in_memory(slots)) as Box<dyn Backing>);
    World::new(knobs(CodecId::Lz4, 5000, 5000), Naive::new(5000), backing, Allowed::None)
}

/// Ages until there is nothing to do, and returns how many calls did something.
fn age<P: Pool>(zswap: &mut Zswap<P>) -> usize {
    let mut calls = 0;
    while zswap.recompress() {
        calls += 1;
        assert!(calls < 100_000, "recompression without end");
    }
    zswap.check();
    calls
}

/// Stores record pages under the keys `numbers`.
fn store_records(world: &mut World<Naive>, numbers: core::ops::Range<u64>) {
    for number in numbers {
        world.store(Key::new(0, number), &record_page(number)).unwrap();
    }
}

/// Returns how the page of that number is coded.
fn coding(world: &World<Naive>, number: u64) -> Coding {
    world.zswap.place(Key::new(0, number)).coding()
}

fn is_dense(world: &World<Naive>, number: u64) -> bool {
    matches!(coding(world, number), Coding::Dense(_))
}

#[test]
fn the_oldest_become_dense_and_the_youngest_half_does_not() {
    let mut world = world(1);
    store_records(&mut world, 0..400);
    let before = world.zswap.stats();
    age(&mut world.zswap);
    for number in 0..400 {
        assert_eq!(is_dense(&world, number), number < 200, "{number}");
    }
    let after = world.zswap.stats();
    assert_eq!((after.dense_pages, after.young_pages), (PageCount(200), PageCount(200)));
    assert_eq!((after.counters.recompressed_pages, after.counters.dictionaries), (200, 1));
    let saved = after.counters.recompressed_saved_bytes as usize;
    assert_eq!(before.pool_bytes, after.pool_bytes + Bytes(saved));
    // Records: LZ4 brings them to half a page, the dictionary to a quarter.
    assert!(saved > before.pool_bytes.0 / 2 / 4, "{saved} of {:?}", before.pool_bytes);
    // Younger pages make more of them old.
    store_records(&mut world, 400..600);
    assert!(age(&mut world.zswap) >= 100);
    assert!(is_dense(&world, 299) && !is_dense(&world, 300));
    assert_eq!(world.load_all(), 0);
    assert_eq!(world.zswap.stats().counters.loaded_dense, 300);
    world.finish();
}

#[test]
fn where_nothing_is_loaded_everything_is_old() {
    let mut world = world(1);
    store_records(&mut world, 0..100);
    for _ in 0..8 * 1024 {
        world.zswap.recompress();
    }
    assert_eq!(world.zswap.young_percent(), 0);
    assert_eq!(world.zswap.stats().dense_pages, PageCount(100));
    world.finish();
}

#[test]
fn loads_of_dense_pages_make_recompression_hold_back() {
    let mut world = world(1);
    store_records(&mut world, 0..160);
    age(&mut world.zswap);
    let mut out = [0; PAGE_BYTES];
    let mut load = |world: &mut World<Naive>, numbers: core::ops::Range<u64>| {
        for number in numbers.cycle().take(256) {
            world.zswap.load(Key::new(0, number), &mut out).unwrap();
        }
        world.zswap.recompress();
        world.zswap.young_percent()
    };
    assert_eq!(load(&mut world, 0..80), 93);
    assert_eq!(load(&mut world, 0..80), 93);
    // Loads of young pages show what room is worth.
    let percents = [0; 5].map(|_| load(&mut world, 80..160));
    assert_eq!(percents, [43, 18, 6, 0, 0]);
    assert_eq!(load(&mut world, 0..80), 6);
    world.finish();
}

#[test]
fn what_was_loaded_or_is_hardly_smaller_stays_as_it_is() {
    let mut world = world(1);
    store_records(&mut world, 0..100);
    world.load(Key::new(0, 3));
    world.store(Key::new(0, 100), &page(1, 4000)).unwrap();
    world.store(Key::new(0, 101), &page(2, 1000)).unwrap();
    store_records(&mut world, 102..300);
    age(&mut world.zswap);
    assert!(!is_dense(&world, 3) && is_dense(&world, 2) && is_dense(&world, 4));
    assert_eq!((coding(&world, 100), coding(&world, 101)), (Coding::Raw, Coding::Lz4));
    let counters = world.zswap.counters();
    assert_eq!((counters.reject_recompress_poor, counters.reject_recompress_loaded), (2, 1));
    // A page is looked at once, and not again.
    assert_eq!(age(&mut world.zswap), 0);
    world.finish();
}

#[test]
fn an_heir_ages_by_what_it_counts_itself() {
    let mut world = world(1);
    store_records(&mut world, 0..400);
    age(&mut world.zswap);
    world.load_all();
    age(&mut world.zswap);
    world.zswap.become_own(None, None).unwrap();
    store_records(&mut world, 400..1000);
    assert!(age(&mut world.zswap) > 0);
    world.finish();
}

#[test]
fn a_damaged_page_is_left_for_its_load_to_report() {
    let mut world = world(1);
    world.allowed = Allowed::Corrupt;
    store_records(&mut world, 0..100);
    let PagePlace::Pool { handle, .. } = world.zswap.place(Key::new(0, 0)) else { unreachable!() };
    world.zswap.pool().held().objects.get_mut(&handle).unwrap()[9] ^= 1;
    age(&mut world.zswap);
    assert!(!is_dense(&world, 0) && is_dense(&world, 1));
    assert_eq!(world.zswap.counters().reject_recompress_corrupt, 1);
    assert_eq!(world.load_all(), 1);
    // Damage done afterwards is found as well.
    for object in world.zswap.pool().held().objects.values_mut() {
        object[9] ^= 1;
    }
    assert_eq!(world.load_all(), 99);
    world.finish();
}

#[test]
fn a_full_pool_is_left_as_it_is() {
    let mut world = world(1);
    store_records(&mut world, 0..200);
    let frames = world.zswap.pool_frames();
    world.zswap.pool_mut().frames_max = frames.0 - 1;
    let before = world.zswap.stats();
    age(&mut world.zswap);
    let after = world.zswap.stats();
    assert_eq!((after.pool_bytes, after.dense_pages), (before.pool_bytes, PageCount(0)));
    assert_eq!(after.counters.reject_recompress_full, 1);
    world.zswap.pool_mut().frames_max = 5000;
    world.zswap.recompression.get_mut().skip = 0;
    // A pool far above its limit does not grow for recompression either, but its last frame has
    // room.
    let one = Knobs::new(CodecId::Lz4, PageCount(1));
    world.zswap.set_knobs(one).unwrap();
    while world.zswap.recompress() {
        assert!(world.zswap.pool_frames() <= frames);
    }
    // A pool at its limit may grow a little.
    world.zswap.recompression.get_mut().skip = 0;
    world.zswap.set_knobs(Knobs::new(CodecId::Lz4, frames)).unwrap();
    age(&mut world.zswap);
    assert_eq!(world.zswap.stats().dense_pages, PageCount(100));
    world.finish();
}

#[test]
fn recompression_does_without_memory() {
    for left in 0..4 {
        let mut world = world(1);
        store_records(&mut world, 0..200);
        failing::after(Some(left));
        age(&mut world.zswap);
        failing::after(None);
        let counters = world.zswap.counters();
        assert_eq!(counters.reject_dictionary_fail, u64::from(left < 2), "{left}");
        assert_eq!(counters.recompressed_pages > 0, left >= 2, "{left}");
        assert_eq!(world.load_all(), 0);
        // The dictionary is tried again, but not at once.
        assert_eq!(
            left < 2,
            !world.zswap.recompress() && world.zswap.recompression.get_mut().skip > 0,
            "{left}"
        );
        for _ in 0..1024 {
            world.zswap.recompress();
        }
        age(&mut world.zswap);
        assert!(world.zswap.has_encoder());
        world.finish();
    }
}

#[test]
fn a_dictionary_stays_while_pages_on_disk_need_it() {
    let mut world = world(64);
    for round in 0..GENERATIONS as u64 {
        world.zswap.recompression.get_mut().is_outdated = true;
        store_records(&mut world, 200 * round..200 * (round + 1));
        age(&mut world.zswap);
        assert_eq!(world.zswap.counters().dictionaries, round + 1);
        world.zswap.shrink(PageCount(5000));
        assert!(is_dense(&world, 200 * round));
    }
    let generations: HashSet<_> =
        (0..4).map(|it| format!("{:?}", coding(&world, 200 * it))).collect();
    assert_eq!(generations.len(), GENERATIONS);
    // All generations are needed, so there is no room for another.
    world.zswap.recompression.get_mut().is_outdated = true;
    store_records(&mut world, 800..1000);
    age(&mut world.zswap);
    assert_eq!(world.zswap.counters().dictionaries, 4);
    assert_eq!(world.zswap.stats().dense_pages, PageCount(500));
    assert_eq!(world.load_all(), 0);
    // The last page of a generation goes, from disk, when another page replaces it.
    for number in 200..399 {
        world.invalidate(Key::new(0, number));
    }
    age(&mut world.zswap);
    world.store(Key::new(0, 399), &page(1, 100)).unwrap();
    store_records(&mut world, 1000..1400);
    age(&mut world.zswap);
    assert_eq!(world.zswap.counters().dictionaries, 5);
    assert_eq!(world.load_all(), 0);
    world.finish();
}

#[test]
fn memory_comes_for_large_pools_only_and_goes_again() {
    let mut world = world(1);
    world.zswap.recompression.get_mut().pool_min = Bytes::kib(200);
    store_records(&mut world, 0..50);
    let small = world.zswap.memory();
    assert_eq!(age(&mut world.zswap), 0);
    assert_eq!(world.zswap.memory(), small);
    store_records(&mut world, 50..300);
    let large = world.zswap.memory();
    assert!(world.zswap.recompress());
    let with_trainer = world.zswap.memory();
    assert!(with_trainer >= large + Bytes::kib(190), "{with_trainer:?}");
    age(&mut world.zswap);
    let with_codec = world.zswap.memory();
    assert!(with_codec >= large + Bytes::kib(300) && with_codec < large + Bytes::kib(400));
    for number in 0..280 {
        world.invalidate(Key::new(0, number));
    }
    assert_eq!(age(&mut world.zswap), 0);
    assert!(world.zswap.memory() <= large);
    world.finish();
}

#[test]
fn another_dictionary_is_made_when_pages_save_less() {
    let mut world = world(1);
    // Half of the list is left alone, and two windows of pages are needed to notice.
    let mut number = 0;
    for kind in [record_page, |seed| page(seed, 1500)] {
        for _ in 0..2 * 2048 {
            // One page each time the last is old enough: recompression the whole pool would take
            // long.
            world.zswap.store(key(number % 160), &kind(number)).unwrap();
            number += 1;
            world.zswap.recompression.get_mut().young_parts = 0;
            while world.zswap.recompress() {}
        }
    }
    assert!(world.zswap.counters().dictionaries >= 2);
    for number in 0..160 {
        world.zswap.invalidate(key(number));
    }
    world.finish();
}
