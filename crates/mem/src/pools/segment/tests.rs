//! The risk: holes that are never filled, copying without end, and a segment given up half-drained.

use coldpress_sys::page::BLOCK_BYTES;
use proptest::prelude::*;

use super::super::tests::{Packed, Pair, sixteen_mib, two_zones};
use super::space::Head;
use super::*;
use crate::frames::{Config, Mobility};

fn frames_of(mib: usize) -> FrameAllocator {
    let frames = FrameAllocator::new();
    frames.init(Config::one_zone(Bytes(mib << 20))).unwrap();
    frames
}

/// Returns sizes all over the range, more small ones than large.
fn size(index: usize) -> Bytes {
    let mixed = (index as u32).wrapping_mul(0x9e37_79b1).rotate_left(13) as usize;
    Bytes(30 + mixed % 64 * (mixed / 64 % 64) + mixed / 4096 % 32)
}

/// Returns the bytes of the frames in thousandths of the bytes stored.
fn density(pool: &Segments<'_>) -> usize {
    let stats = pool.stats();
    stats.frames.bytes().0 * 1000 / stats.bytes_stored.0
}

/// Stores objects until `count` are there, each with its name in it.
fn fill(pool: &mut Segments<'_>, held: &mut Vec<Handle>, count: usize) {
    while held.len() < count {
        let handle = pool.alloc(size(held.len())).unwrap();
        let bytes = vec![handle.name() as u8; pool.size(handle).unwrap().0];
        pool.write(handle, &bytes).unwrap();
        held.push(handle);
    }
}

/// Frees the object at a pseudo-random place.
fn drop_one(pool: &mut Segments<'_>, held: &mut Vec<Handle>, turn: usize) {
    let which = turn.wrapping_mul(0x9e37_79b1) % held.len();
    let handle = held.swap_remove(which);
    let is_its = |bytes: &[u8]| bytes.iter().all(|byte| *byte == handle.name() as u8);
    assert!(pool.read(handle, is_its).unwrap());
    pool.free(handle).unwrap();
}

#[test]
fn objects_lie_dense_when_stored_and_however_they_are_freed() {
    let frames = frames_of(64);
    let (mut pool, mut held) = (Segments::new(&frames), Vec::new());
    fill(&mut pool, &mut held, 20_000);
    pool.check();
    assert!(density(&pool) <= 1010, "{:?}", pool.stats());
    // Each byte freed may cost a few bytes of copying, not the twenty that a log would need.
    let (moved, stored) = (pool.bytes_moved(), pool.stats().bytes_stored);
    for left in [10_000, 2_000] {
        while held.len() > left {
            let count = held.len();
            drop_one(&mut pool, &mut held, count);
        }
        pool.check();
        assert!(density(&pool) <= 1030, "{left} left: {:?}", pool.stats());
    }
    let freed = stored - pool.stats().bytes_stored;
    let moved = pool.bytes_moved() - moved;
    assert!(moved.0 < 4 * freed.0, "moved {moved:?} to free {freed:?}");
    pool.compact(Bytes(usize::MAX));
    pool.check();
    assert!(density(&pool) <= 1020, "{:?}", pool.stats());
}

#[test]
fn a_steady_state_stays_dense_and_hardly_copies() {
    let frames = frames_of(64);
    let (mut pool, mut held) = (Segments::new(&frames), Vec::new());
    fill(&mut pool, &mut held, 10_000);
    for turn in 0..30_000 {
        drop_one(&mut pool, &mut held, turn);
        let handle = pool.alloc(size(turn * 7)).unwrap();
        let bytes = vec![handle.name() as u8; pool.size(handle).unwrap().0];
        pool.write(handle, &bytes).unwrap();
        held.push(handle);
    }
    pool.check();
    assert!(density(&pool) <= 1030, "{:?}", pool.stats());
    assert!(pool.bytes_moved().0 < 4 * 3 * pool.stats().bytes_stored.0);
}

#[test]
fn no_call_moves_much() {
    let frames = frames_of(64);
    let (mut pool, mut held) = (Segments::new(&frames), Vec::new());
    fill(&mut pool, &mut held, 5_000);
    while held.len() > 10 {
        let before = pool.bytes_moved();
        let count = held.len();
        drop_one(&mut pool, &mut held, count);
        assert!(pool.bytes_moved() - before < STEP + OBJECT_MAX);
    }
    pool.check();
}

#[test]
fn a_pool_dropped_while_a_segment_is_drained_returns_every_frame() {
    // In the list of the emptiest segments, one with others behind it is drained, and one without.
    for freed in 1..12 {
        let frames = frames_of(16);
        let (mut pool, mut held) = (Segments::new(&frames), Vec::new());
        fill(&mut pool, &mut held, 5_000);
        (0..freed * 400).for_each(|turn| drop_one(&mut pool, &mut held, turn));
        while pool.layout.lock().drain.is_none() {
            drop_one(&mut pool, &mut held, 5);
        }
        pool.check();
        drop(pool);
        assert_eq!(frames.frames_used(), PageCount(0), "{freed}");
    }
}

/// Makes a pool with a half-drained segment, and the objects in it.
fn half_drained<'f>(frames: &'f FrameAllocator) -> (Pair<'f, Packed>, Segment) {
    let mut pair = Pair::<Packed>::new(frames);
    (0..3000).for_each(|index| assert!(pair.store(size(index))));
    for turn in 0.. {
        let layout = pair.pool.layout.get_mut();
        if let Some(drain) = layout.drain
            && layout.space.head(drain.segment).start > 20_000
        {
            pair.check();
            return (pair, drain.segment);
        }
        pair.free(turn * 13 % pair.held.len());
    }
    unreachable!()
}

#[test]
fn what_is_left_of_a_drained_segment_is_used_when_frames_run_out() {
    let frames = sixteen_mib();
    let (mut pair, segment) = half_drained(&frames);
    pair.hog.leave(0);
    while pair.store(Bytes(3000)) {}
    assert!(pair.pool.layout.lock().drain.is_none());
    let head = *pair.pool.layout.lock().space.head(segment);
    assert!(!head.draining && head.start as usize > HEAD, "{head:?}");
    pair.check();
    // The segment is drained again with all that is in it.
    pair.hog.leave(usize::MAX);
    (0..pair.held.len() * 9 / 10).for_each(|turn| pair.free(turn * 5 % pair.held.len()));
    pair.pool.compact(Bytes(usize::MAX));
    pair.check();
    pair.finish();
}

#[test]
fn the_last_object_of_a_drained_segment_takes_it_along() {
    let frames = sixteen_mib();
    let (mut pair, segment) = half_drained(&frames);
    // Nothing is moved, so that the objects are freed in their places.
    pair.pool.layout.get_mut().wait = u32::MAX;
    let inside: Vec<_> = (0..pair.held.len())
        .filter(|which| {
            Location::of(&pair.pool.handles, pair.held[*which].0.name).segment() == segment
        })
        .collect();
    assert!(inside.len() > 3);
    inside.into_iter().rev().for_each(|which| pair.free(which));
    assert!(pair.pool.layout.lock().drain.is_none());
    pair.pool.layout.get_mut().wait = 0;
    pair.check();
    pair.finish();
}

#[test]
fn a_block_without_holes_is_left_alone() {
    let frames = frames_of(16);
    let (mut pool, mut held) = (Segments::new(&frames), Vec::new());
    fill(&mut pool, &mut held, 3_000);
    let before = pool.bytes_moved();
    pool.compact(Bytes(usize::MAX));
    assert!((pool.bytes_moved() - before).0 * 4 < pool.stats().bytes_stored.0);
    assert_eq!(pool.compact(Bytes(usize::MAX)), Compacted::default());
}

#[test]
fn frames_of_segments_are_moved_again_and_again() {
    let frames = two_zones();
    let mut pair = Pair::<Packed>::new(&frames);
    (0..6000).for_each(|index| assert!(pair.store(size(index))));
    for turn in 0..4 {
        (0..800).for_each(|step| pair.free(step * 7 % pair.held.len()));
        let online = frames.online();
        let shrunk = pair.pool.shrink_frames(Bytes(online.0 - (2 + turn) * BLOCK_BYTES));
        assert!(shrunk.online < online);
        pair.check();
        frames.grow(Bytes((2 + turn) * BLOCK_BYTES)).unwrap();
        (0..400).for_each(|step| assert!(pair.store(size(step))));
        pair.check();
    }
    // There is no room for the objects of the block that should go: nothing is lost.
    pair.hog.leave(3);
    pair.pool.shrink_frames(Bytes(0));
    pair.check();
    pair.finish();
}

#[test]
fn the_segments_of_a_second_pool_stay_where_they_are() {
    let frames = two_zones();
    let (mut first, mut second) = (Pair::<Packed>::new(&frames), Pair::<Packed>::new(&frames));
    for index in 0..1500 {
        assert!(first.store(size(index)) && second.store(size(index + 1)));
    }
    second.pool.shrink_frames(Bytes(0));
    assert_eq!(frames.stats().zone(Mobility::EasyReclaim).migrations, 0);
    first.pool.check();
    second.pool.check();
    for pair in [&mut first, &mut second] {
        (0..pair.held.len()).for_each(|_| pair.free(0));
    }
    assert_eq!(frames.frames_used(), PageCount(0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_best_fit_is_found(
        lengths in prop::collection::vec(1_usize..5000, 1..60),
        wanted in prop::collection::vec(1_usize..=4096, 1..60),
    ) {
        let frames = sixteen_mib();
        let mut pool = Segments::new(&frames);
        pool.layout.get_mut().wait = u32::MAX;
        // Every second object goes, so that the others keep the holes apart.
        let handles: Vec<_> = lengths
            .iter()
            .flat_map(|length| [(*length).min(4096), 1])
            .map(|length| pool.alloc(Bytes(length)).unwrap())
            .collect();
        handles.iter().step_by(2).for_each(|handle| pool.free(*handle).unwrap());
        pool.check();
        for size in wanted {
            let wanted = block_of(size);
            let mut best = usize::MAX;
            let layout = pool.layout.lock();
            let space = layout.space;
            let mut visit = |first: Segment, head: &Head| {
                let mut at = space.start(first);
                while at < space.end(first) {
                    at = match space.tag(at) {
                        Tag::Hole { hole, .. } => {
                            if hole.length >= wanted {
                                best = best.min(hole.length);
                            }
                            hole.end()
                        }
                        Tag::Block { name, slack, .. } => {
                            at + Location::of(&pool.handles, name).block(slack) as u64
                        }
                    };
                }
                assert!(!head.draining);
            };
            layout.for_each_listed(&mut visit);
            let found = layout.holes.find(&space, wanted).map_or(usize::MAX, |hole| hole.length);
            drop(layout);
            let long = 4160..usize::MAX;
            prop_assert!(found == best || (long.contains(&best) && long.contains(&found)));
            pool.alloc(Bytes(size)).unwrap();
        }
        pool.check();
    }
}

/// Frames moved out of a block, and from the next block into that one again, lie where other
/// segments were.
#[test]
fn frames_moved_back_to_where_their_segment_was_are_their_own() {
    for seed in 1..20_u32 {
        let frames = FrameAllocator::new();
        let blocks = |count| Bytes(count * BLOCK_BYTES);
        let (span, online) = (Config::one_zone(blocks(8)), blocks(3));
        frames.init(Config { core: Some(blocks(1)), online, ..span }).unwrap();
        let mut pair = Pair::<Packed>::new(&frames);
        let figures = || *frames.stats().zone(Mobility::EasyReclaim);
        let mut word = seed;
        let mut next = || {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            word as usize >> 8
        };
        while figures().free.0 > 40 {
            assert!(pair.store(Bytes(next() % 4096 + 1)));
        }
        while pair.held.len() > 100 && figures().used.0 > 300 {
            let which = next() % pair.held.len();
            pair.free(which);
        }
        for round in 0..6 {
            // One frame of the block that must stay is held, so the other block goes.
            let free = core::iter::from_fn(|| frames.alloc(Mobility::EasyReclaim));
            let mut taken: Vec<_> = free.collect();
            let stays = |frame: &FrameId| frame.index() as usize / 512 == 1 + round % 2;
            let pin = taken.iter().position(stays).map(|place| taken.remove(place));
            // SAFETY: the frames belong to the test and were never used.
            taken.into_iter().for_each(|frame| unsafe { frames.free(frame) });
            let online = frames.online();
            pair.pool.shrink_frames(online - blocks(1));
            // SAFETY: the frame belongs to the test and was never used.
            pin.into_iter().for_each(|frame| unsafe { frames.free(frame) });
            pair.check();
            let _ = frames.grow(blocks(1));
        }
        pair.finish();
    }
}
