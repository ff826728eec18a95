//! The risk: frames are kept that no object needs, and compaction loses an object, does not end, or
//! leaves something to be gained.

use coldpress_sys::PAGE_BYTES;
use coldpress_sys::page::BLOCK_BYTES;

use super::super::tests::{Chains, Kind, Pair, sixteen_mib, two_zones};
use super::*;
use crate::frames::{Config, Mobility};

#[test]
fn a_refused_allocation_can_be_repeated_when_frames_are_back() {
    let frames = sixteen_mib();
    let mut pair = Pair::<Chains<16>>::new(&frames);
    // At every limit up to the frames that one object takes, the whole allocation is undone.
    for limit in 0.. {
        pair.hog.leave(limit);
        if pair.store(Bytes(3800)) {
            assert_eq!(limit, 5, "a frame, two of the slab for its descriptor, and two tables");
            break;
        }
        assert_eq!(frames.frames_used(), pair.hog.held());
    }
    pair.check();
    pair.finish();
}

#[test]
fn the_tables_shrink_with_the_pool() {
    let frames = sixteen_mib();
    let mut pair = Pair::<Chains<16>>::new(&frames);
    // More handles than four leaves hold.
    let handles: Vec<_> = (0..2100).map(|_| pair.pool.alloc(Bytes(32)).unwrap()).collect();
    let full = pair.pool.stats().metadata;
    handles[30..].iter().for_each(|handle| pair.pool.free(*handle).unwrap());
    pair.pool.check();
    assert!(pair.pool.stats().metadata.0 <= full.0 - 4 * PAGE_BYTES);
    // Numbers of leaves given back are reused.
    let again: Vec<_> = (0..2070).map(|_| pair.pool.alloc(Bytes(32)).unwrap()).collect();
    pair.pool.check();
    assert_eq!(pair.pool.stats().metadata, full);
    handles[..30].iter().chain(&again).for_each(|handle| pair.pool.free(*handle).unwrap());
    pair.finish();
}

#[test]
fn new_objects_go_into_the_fullest_zspage() {
    let frames = sixteen_mib();
    let mut pool = Zsmalloc::new(&frames, 1);
    // Zspages of one frame and 64 objects.
    let handles: Vec<_> = (0..300).map(|_| pool.alloc(Bytes(60)).unwrap()).collect();
    assert_eq!(pool.stats().frames, PageCount(5));
    // The second zspage stays nearly full, the others nearly empty.
    for (index, handle) in handles.iter().enumerate() {
        let zspage = index / 64;
        if (zspage == 1 && index % 64 == 0) || (zspage != 1 && index % 64 > 4) {
            pool.free(*handle).unwrap();
        }
    }
    pool.check();
    let object = pool.alloc(Bytes(60)).unwrap();
    // The second zspage is full now; freeing the others' objects leaves exactly one frame.
    for (index, handle) in handles.iter().enumerate() {
        if index / 64 != 1 && index % 64 <= 4 {
            pool.free(*handle).unwrap();
        }
    }
    assert_eq!(pool.stats().frames, PageCount(1));
    assert_eq!(pool.size(object), Ok(Bytes(60)));
    pool.check();
}

#[test]
fn a_second_pool_does_not_move_the_objects_of_the_first() {
    let frames = two_zones();
    let (mut first, mut second) =
        (Pair::<Chains<8>>::new(&frames), Pair::<Chains<8>>::new(&frames));
    for index in 0..1500 {
        assert!(first.store(Bytes(index + 1)) && second.store(Bytes(index + 2)));
    }
    let online = frames.online();
    let shrunk = second.pool.shrink_frames(Bytes(0));
    assert!(shrunk.held_back_by.is_some_and(|held| held.movable > PageCount(0)));
    assert_eq!(frames.stats().zone(Mobility::EasyReclaim).migrations, 0);
    assert!(shrunk.online < online);
    for pair in [&mut first, &mut second] {
        (0..pair.held.len()).rev().for_each(|which| pair.free(which));
    }
    // With the first pool gone, the second one's frames can move.
    drop(first);
    second.store(Bytes(100));
    second.store(Bytes(3000));
    let shrunk = second.pool.shrink_frames(Bytes(BLOCK_BYTES));
    assert_eq!(shrunk, Shrunk { online: Bytes(BLOCK_BYTES), held_back_by: None });
    second.finish();
}

/// Returns the frames that may be given back, over all classes.
fn freeable(pool: &Zsmalloc<'_>) -> PageCount {
    let mut sum = PageCount(0);
    pool.classes(&mut |class| sum += class.freeable);
    sum
}

#[test]
fn a_long_chain_holds_no_frame_that_no_object_needs() {
    let frames = sixteen_mib();
    let mut pair = Pair::<Chains<16>>::new(&frames);
    // 17 slots in 16 frames. Each but the first and the last lies in two frames.
    for objects in 1..=17_usize {
        assert!(pair.store(Bytes(3836)));
        pair.check();
        assert_eq!(pair.pool.stats().frames, PageCount((objects * 15).div_ceil(16)));
    }
    // The frames of the free slots are those of their neighbours.
    (0..17).rev().filter(|slot| slot % 2 == 1).for_each(|slot| pair.free(slot));
    pair.check();
    assert_eq!(pair.pool.stats().frames, PageCount(16));
    while pair.held.len() > 1 {
        pair.free(0);
        pair.check();
        assert!(pair.pool.stats().frames.0 <= 2 * pair.held.len());
    }
    pair.finish();
}

#[test]
fn long_chains_take_no_more_frames_than_short_ones_at_thirty_thousand_objects() {
    let mut sizes = Vec::new();
    let mut seed = 1_u32;
    for index in 0..30_000 {
        seed = seed.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        let uniform = (seed >> 20) as usize;
        // Half uniform, half small for the most part.
        sizes.push(Bytes(1 + if index % 2 == 0 { uniform } else { (uniform * uniform) >> 12 }));
    }
    let frames_with = |chain_max| {
        let frames = FrameAllocator::new();
        frames.init(Config::one_zone(Bytes(64 * BLOCK_BYTES))).unwrap();
        let pool = Zsmalloc::new(&frames, chain_max);
        for size in &sizes {
            pool.alloc(*size).unwrap();
        }
        let stats = pool.stats();
        assert!(stats.metadata.0 <= 16 * stats.objects || cfg!(debug_assertions), "{stats:?}");
        (stats.frames, stats.frames.bytes().0 as f64 / stats.bytes_stored.0 as f64)
    };
    let (eight, sixteen) = (frames_with(8), frames_with(16));
    assert!(sixteen.0 < eight.0 && sixteen.1 < 1.025, "{eight:?} {sixteen:?}");
}

#[test]
fn the_first_objects_of_a_class_of_long_chains_go_to_the_next_larger() {
    let frames = sixteen_mib();
    let mut pair = Pair::<Chains<16>>::new(&frames);
    let counts = |pair: &Pair<'_, Chains<16>>| {
        let mut counts = Vec::new();
        pair.pool.classes(&mut |class| counts.push((class.size.0, class.obj_used)));
        counts
    };
    for turn in 0..2 {
        let first = usize::from(BEGINNERS);
        for stored in 1..=2 * first {
            assert!(pair.store(Bytes(2196)));
            let own = [(2224, first), (2208, stored.saturating_sub(first))];
            let expected = if stored > first { &own[..] } else { &[(2224, stored)] };
            assert_eq!(counts(&pair), expected, "turn {turn}");
        }
        pair.check();
        // The class begins again when it holds nothing.
        (0..2 * first).for_each(|_| pair.free(0));
        pair.check();
    }
    pair.finish();
}

/// Sizes of a few classes that begin by themselves: two slots across seams in a chain, many in a
/// frame, and huge ones.
const SIZES: [usize; 5] = [3836, 2700, 2268, 60, 4096];

/// Stores objects and frees some of them, by chance.
fn churned<'f, K: Kind>(frames: &'f FrameAllocator, seed: &mut u32) -> Pair<'f, K> {
    let mut chance = |below: usize| {
        *seed = seed.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        (*seed >> 8) as usize % below
    };
    let mut pair = Pair::new(frames);
    let count = 20 + chance(400);
    for _ in 0..count {
        let size = SIZES[chance(SIZES.len())];
        assert!(pair.store(Bytes(size)));
    }
    let left = chance(count);
    while pair.held.len() > left {
        let which = chance(pair.held.len());
        pair.free(which);
    }
    pair
}

/// Returns the frames that a new pool takes for the objects of another.
fn fresh_frames(pair: &Pair<'_, Chains<16>>) -> PageCount {
    let frames = sixteen_mib();
    let pool = Zsmalloc::new(&frames, 16);
    for (handle, _) in &pair.held {
        pool.alloc(pair.pool.size(*handle).unwrap()).unwrap();
    }
    assert_eq!(freeable(&pool), PageCount(0), "a fresh pool has nothing to give");
    pool.stats().frames
}

#[test]
fn a_compacted_pool_is_as_dense_as_a_fresh_one_whatever_the_steps() {
    let mut seed = 7;
    for turn in 0..60 {
        let start = seed;
        let frames = sixteen_mib();
        let mut pair = churned::<Chains<16>>(&frames, &mut seed);
        let (before, promised) = (pair.pool.stats(), freeable(&pair.pool));
        let budget = [1, 5000, 30_000, usize::MAX][turn % 4];
        let mut done = Compacted::default();
        loop {
            let step = pair.pool.compact(Bytes(budget));
            assert!(step.moved.0 < budget.saturating_add(4096), "seed {start}: {step:?}");
            done.moved += step.moved;
            done.freed += step.freed;
            // With more moves than this, objects would go to and fro.
            assert!(done.moved.0 <= 2 * before.bytes_stored.0, "seed {start}: {done:?}");
            if turn < 4 {
                pair.check();
            }
            if step.moved == Bytes(0) {
                assert_eq!(step, Compacted::default());
                break;
            }
        }
        pair.check();
        let after = pair.pool.stats();
        assert_eq!(before.frames - after.frames, done.freed, "seed {start}");
        assert_eq!((done.freed, freeable(&pair.pool)), (promised, PageCount(0)), "seed {start}");
        assert_eq!(after.frames, fresh_frames(&pair), "seed {start}");
        pair.finish();
    }
}

#[test]
fn a_pool_without_a_free_frame_compacts_into_its_holes() {
    let frames = sixteen_mib();
    let mut pair = Pair::<Chains<16>>::new(&frames);
    // Zspages of 256 slots in four frames; every second zspage keeps only the objects of its last
    // frame.
    (0..4 * 256).for_each(|_| assert!(pair.store(Bytes(60))));
    let goes = |index: usize| match index / 256 {
        0 | 2 => index.is_multiple_of(4),
        _ => index % 256 < 200,
    };
    (0..4 * 256).rev().filter(|index| goes(*index)).for_each(|index| pair.free(index));
    pair.hog.leave(0);
    let before = pair.pool.stats().frames;
    let done = pair.pool.compact(Bytes(usize::MAX));
    assert_eq!(before, PageCount(4 + 1 + 4 + 1));
    assert_eq!(done.freed, PageCount(2), "{done:?}");
    pair.check();
    pair.finish();
}

#[test]
fn classes_say_how_full_they_are() {
    let frames = sixteen_mib();
    let mut pair = Pair::<Chains<16>>::new(&frames);
    // Zspages of 256 slots in four frames: full, three quarters, a quarter, two objects.
    (0..4 * 256).for_each(|_| assert!(pair.store(Bytes(60))));
    (0..4 * 256).rev().filter(|index| index % 256 >= 256 - 64 * (index / 256)).for_each(|index| {
        pair.free(index);
    });
    let mut left = 0;
    while pair.held.len() > 256 + 192 + 128 + 2 {
        pair.free(256 + 192 + 128);
        left += 1;
    }
    assert_eq!(left, 62);
    assert!(pair.store(Bytes(4000)));
    let mut classes = Vec::new();
    pair.pool.classes(&mut |class| classes.push(class));
    let huge = ClassStats {
        class: 0,
        size: Bytes(4096),
        obj_allocated: 1,
        obj_used: 1,
        pages_used: PageCount(1),
        pages_per_zspage: 1,
        ..ClassStats::default()
    };
    let small = ClassStats {
        class: pair.pool.sizes.class_of(Bytes(60)),
        size: Bytes(64),
        almost_full: 2,
        almost_empty: 1,
        obj_allocated: 256 + 192 + 128 + 64,
        obj_used: 256 + 192 + 128 + 2,
        pages_used: PageCount(4 + 3 + 2 + 1),
        pages_per_zspage: 4,
        freeable: PageCount(0),
    };
    assert_eq!(classes, [huge, small]);
    pair.finish();
}
