//! The risk: a verb that breaks a promise beyond its bytes: LRU order, limits, memory, what is
//! free.

use coldpress_backing::{Fault, FaultyBacking};
use coldpress_mem::pools::CHECKS_HANDLES;

use super::*;

/// Makes a world of `max` and `hard` frames over `slots` slots in memory.
fn world(max: usize, hard: usize, slots: u32) -> World<Naive> {
    let backing = Some(Box::new(in_memory(slots)) as Box<dyn Backing>);
    World::new(knobs(CodecId::Lz4, max, hard), Naive::new(1000), backing, Allowed::None)
}

/// Returns where a page is loaded from.
fn source(world: &mut World<Naive>, number: u64) -> Loaded {
    load(&world.zswap, Key::new(0, number), &mut [0; PAGE_BYTES]).unwrap()
}

#[test]
fn pages_are_stored_the_cheapest_way() {
    let mut world = world(100, 100, 1);
    assert_eq!(world.store(Key::new(0, 0), &word_page(0)), Ok(Stored::SameFilled));
    assert_eq!(world.store(Key::new(0, 1), &word_page(u64::MAX)), Ok(Stored::SameFilled));
    assert_eq!(world.zswap.pool_frames(), PageCount(0));
    let compressed = world.store(Key::new(0, 2), &page(3, 1000));
    assert!(matches!(compressed, Ok(Stored::Compressed(Bytes(1000..1200)))), "{compressed:?}");
    // 80 per cent, rounded down, is up to 3317 bytes; the page of 3600 bytes of noise exceeds it.
    assert!(matches!(world.store(Key::new(0, 3), &page(4, 3200)), Ok(Stored::Compressed(_))));
    assert_eq!(world.store(Key::new(0, 4), &page(5, 3600)), Ok(Stored::Raw));
    let stats = world.zswap.stats();
    assert_eq!(stats.same_filled_pages, PageCount(2));
    assert_eq!(stats.in_pool_pages, PageCount(3));
    world.finish();
}

#[test]
fn the_oldest_go_first_and_loaded_ones_get_a_second_chance() {
    let mut world = world(32, 32, 8);
    for number in 0..32 {
        world.store(Key::new(0, number), &page(number, 4000)).unwrap();
    }
    assert_eq!(source(&mut world, 0), Loaded::FromPool);
    assert_eq!(source(&mut world, 5), Loaded::FromPool);
    world.store(Key::new(0, 32), &page(32, 4000)).unwrap();
    // Fifteen pages went: 1 to 16 without 5, because 0 and 5 had been loaded.
    let back: Vec<_> =
        (0..33).filter(|&number| source(&mut world, number) == Loaded::FromBacking).collect();
    let expected: Vec<_> = (1..17).filter(|&number| number != 5).collect();
    assert_eq!(back, expected);
    assert_eq!(world.zswap.pool_frames(), PageCount(18));
    // When all pages have been loaded, the oldest go all the same.
    assert_eq!(world.zswap.shrink(PageCount(18)), PageCount(18));
    assert_eq!(source(&mut world, 0), Loaded::FromBacking);
    world.finish();
}

#[test]
fn compaction_gives_frames_back_and_keeps_the_pages() {
    with_zsmalloc(1000, |pool| {
        let knobs = knobs(CodecId::Lz4, 1000, 1000);
        let mut world = World::new(knobs, pool, None, Allowed::None);
        for number in 0..1000 {
            world.store(Key::new(0, number), &page(number, 1000)).unwrap();
        }
        for number in (0..1000).filter(|number| number % 4 > 0) {
            world.invalidate(Key::new(0, number));
        }
        let before = world.zswap.pool_frames();
        let done = world.zswap.compact(Bytes::mib(4));
        assert_eq!(world.zswap.pool_frames() + done.freed, before);
        let least = world.zswap.stats().pool_bytes.pages_up();
        assert!(world.zswap.pool_frames() <= least + PageCount(4), "{done:?} of {before:?}");
        world.finish();
    });
}

#[test]
fn same_filled_pages_are_never_written_back() {
    let mut world = world(4, 4, 8);
    for number in 0..100 {
        world.store(Key::new(0, number), &word_page(number)).unwrap();
    }
    assert_eq!(world.zswap.shrink(PageCount(1)), PageCount(0));
    assert_eq!(world.zswap.stats().slots_used, 0);
    world.finish();
}

#[test]
fn the_pool_keeps_its_limits() {
    // With room on disk the pool stays at the lower limit, without room at the upper.
    for (slots, limit) in [(64, 20), (0, 40)] {
        let mut world = world(20, 40, slots);
        let mut refused = 0;
        for number in 0..400 {
            let result = world.store(Key::new(0, number), &page(number, number as usize * 10));
            refused += usize::from(result == Err(StoreError::PoolFull));
            assert!(world.zswap.pool_frames() <= PageCount(limit));
        }
        assert_eq!(refused > 0, slots == 0);
        assert_eq!(world.zswap.take_warning().is_some(), slots == 0);
        world.finish();
    }
}

#[test]
fn a_lowered_limit_is_reached_by_shrinking() {
    with_zsmalloc(400, |pool| {
        let backing = Some(Box::new(in_file(64)) as Box<dyn Backing>);
        let knobs = knobs(CodecId::Zstd { level: 1 }, 300, 300);
        let mut world = World::new(knobs, pool, backing, Allowed::None);
        for number in 0..300 {
            world.store(Key::new(0, number), &page(number, number as usize * 13)).unwrap();
        }
        let before = world.zswap.pool_frames();
        let (max_pool, hard_pool) = (PageCount(50), PageCount(60));
        world.zswap.set_knobs(Knobs { max_pool, hard_pool, ..knobs }).unwrap();
        let freed = world.zswap.shrink(before.saturating_sub(PageCount(50)));
        assert!(world.zswap.pool_frames() <= PageCount(50), "{freed:?} of {before:?}");
        world.finish();
    });
}

#[test]
fn pages_stay_readable_when_frames_go() {
    let frames = FrameAllocator::new();
    let (core, online) = (Some(Bytes::mib(4)), Bytes::mib(16));
    frames.init(Layout { core, ..Layout::one_zone(online) }).unwrap();
    let pool = Zsmalloc::new(&frames, 8);
    let knobs = knobs(CodecId::Lz4, 5000, 5000);
    let mut world = World::new(knobs, pool, None, Allowed::None);
    for number in 0..2000 {
        world.store(Key::new(0, number), &page(number, number as usize % 4000)).unwrap();
    }
    for number in (0..2000).filter(|number| number % 4 > 0) {
        world.invalidate(Key::new(0, number));
    }
    let used = frames.frames_used().bytes();
    let shrunk = world.zswap.pool().shrink_frames(Bytes::mib(8));
    assert_eq!((shrunk.online, shrunk.held_back_by), (Bytes::mib(8), None), "{used:?} in use");
    world.load_all();
    assert!(world.zswap.pool().shrink_frames(Bytes(0)).held_back_by.is_some());
    world.finish();
}

#[test]
fn ranges_drop_exactly_what_is_in_them() {
    let mut world = world(100, 100, 1);
    let last = u64::MAX;
    for number in [0, 1, 1023, 1024, 1 << 18, (1 << 40) - 1, 1 << 40, last - 1, last] {
        world.store(Key::new(7, number), &word_page(number)).unwrap();
        world.store(Key::new(8, number), &page(number, 100)).unwrap();
    }
    let mut drop = |start: u64, count: usize| {
        let dropped = world.zswap.invalidate_range(Area(7), Offset(start), PageCount(count));
        let end = u128::from(start) + count as u128;
        world.forget(dropped, |key| {
            key.area == Area(7) && key.offset.0 >= start && u128::from(key.offset.0) < end
        });
        world.zswap.check();
        dropped.0
    };
    assert_eq!(drop(1, 0), 0);
    assert_eq!(drop(2, 1021), 0);
    assert_eq!(drop(1, 1023), 2);
    assert_eq!(drop(1024, (1 << 40) - 1024), 3);
    assert_eq!(drop(last, usize::MAX), 1);
    assert_eq!(drop(0, usize::MAX), 3);
    let dropped = world.zswap.invalidate_area(Area(8));
    world.forget(dropped, |key| key.area == Area(8));
    assert_eq!(dropped, PageCount(9));
    world.finish();
}

#[test]
fn a_page_moved_from_nowhere_leaves_nothing() {
    let mut world = world(100, 100, 1);
    world.store(Key::new(0, 1), &page(1, 100)).unwrap();
    assert_eq!(world.zswap.rename(Key::new(0, 1), Key::new(0, 1)), Ok(true));
    assert_eq!(world.zswap.rename(Key::new(0, 0), Key::new(0, 1)), Ok(false));
    assert!(!world.zswap.contains(Key::new(0, 1)));
    world.pages.clear();
    world.finish();
}

#[test]
fn a_failed_read_may_be_repeated() {
    // The write is the first operation, the failing read the second.
    let backing = FaultyBacking::new(in_memory(1), Fault::Fail, 1..2);
    let knobs = knobs(CodecId::Lz4, 9, 9);
    let mut world = World::new(knobs, Naive::new(9), Some(Box::new(backing)), Allowed::Backing);
    world.store(Key::new(0, 0), &page(1, 100)).unwrap();
    world.zswap.shrink(PageCount(1));
    let error = world.load(Key::new(0, 0)).unwrap();
    assert_eq!(error.to_string(), "a page cannot be read back: pread: EIO");
    assert_eq!(world.load(Key::new(0, 0)), None);
    world.finish();
}

#[test]
fn memory_is_counted_per_page() {
    let world = world(1000, 1000, 1);
    let empty = world.zswap.memory();
    for number in 0..200_000 {
        world.zswap.store(Key::new(0, number), &word_page(number)).unwrap();
    }
    let per_page = (world.zswap.memory() - empty).0 as f64 / 200_000.0;
    // 24 bytes of entry, or 32 with checked handles; 4 of index; and what the last chunk of each
    // shard and the last leaf leave empty.
    let expected = if CHECKS_HANDLES { 36.0 } else { 28.0 };
    assert!((expected..expected + 1.0).contains(&per_page), "{per_page}");
    assert_eq!(world.zswap.invalidate_area(Area(0)), PageCount(200_000));
    world.finish();
}

#[test]
fn a_store_may_be_used_by_any_thread() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Zswap<Zsmalloc<'_>>>();
}

#[test]
fn a_lone_page_that_was_loaded_can_be_written_back() {
    let mut world = world(4, 4, 1);
    world.store(Key::new(0, 0), &page(0, 4000)).unwrap();
    assert_eq!(source(&mut world, 0), Loaded::FromPool);
    assert_eq!(world.zswap.shrink(PageCount(1)), PageCount(1));
    assert_eq!(world.zswap.counters().reject_flush_fail, 0);
    world.finish();
}
