//! The risk: holes that stay unused although they would fit, a reserve that is never given back,
//! and compaction that spoils objects, or continues without a gain.

use coldpress_sys::page::BLOCK_BYTES;
use proptest::prelude::*;

use super::super::tests::{Pair, Scattered, sixteen_mib, two_zones};
use super::descriptor::PAYLOAD_MAX;
use super::*;
use crate::frames::Mobility;

/// The pool of xcfmalloc's mail of 2011.
type Reference = Scattered<2, 64, 32>;

/// Returns the lengths of an object's blocks.
fn pieces(pool: &Xcfmalloc<'_>, handle: Handle) -> Vec<usize> {
    let blocks = pool.blocks.lock();
    let first = Location::from_word(pool.handles.get(handle).unwrap()).first;
    blocks.space.chain(first).map(|block| blocks.get(block).length.into()).collect()
}

/// Returns the granules of all free blocks, smallest first.
fn holes(pool: &Xcfmalloc<'_>) -> Vec<usize> {
    let blocks = pool.blocks.lock();
    let (mut end, mut holes) = (blocks.space.granules() + 1, Vec::new());
    while let Some(first) = blocks.largest_below(end) {
        end = blocks.get(first).length.into();
        holes.splice(0..0, blocks.space.chain(first).map(|_| end));
    }
    holes
}

/// Returns the expected blocks of an object, by a search of all holes: the oracle.
fn expected_pieces(
    mut holes: Vec<usize>,
    size: usize,
    max_blocks: usize,
    granule: usize,
) -> Vec<usize> {
    let whole = PAGE_BYTES / granule;
    let most = if size > PAYLOAD_MAX { max_blocks.max(2) } else { max_blocks };
    let (mut left, mut pieces) = (size, Vec::new());
    while left > 0 {
        let need = (left + 4).div_ceil(granule);
        let exact = holes.iter().position(|hole| *hole == need && need < whole);
        let smaller = holes.iter().rposition(|hole| *hole < need && *hole < whole);
        let is_last = pieces.len() + 1 == most;
        let smaller = smaller.filter(|_| !is_last);
        let hole = match exact.or(smaller) {
            Some(index) => holes.remove(index),
            None => need.min(whole),
        };
        let piece = left.min(hole * granule - 4);
        pieces.push(piece);
        left -= piece;
    }
    pieces
}

fn agrees_with_a_search<const BLOCKS: usize, const GRANULARITY: usize>(
    steps: Vec<(usize, bool, usize)>,
) {
    let frames = sixteen_mib();
    let mut pair = Pair::<Scattered<BLOCKS, GRANULARITY, 3>>::new(&frames);
    for (size, free, which) in steps {
        if free && !pair.held.is_empty() {
            pair.free(which % pair.held.len());
        } else {
            let expected = expected_pieces(holes(&pair.pool), size, BLOCKS, GRANULARITY);
            assert!(pair.store(Bytes(size)));
            let (handle, _) = pair.held[pair.held.len() - 1];
            assert_eq!(pieces(&pair.pool, handle), expected);
        }
        pair.pool.check();
    }
    pair.finish();
}

fn steps() -> impl Strategy<Value = Vec<(usize, bool, usize)>> {
    let size = prop_oneof![1_usize..=4096, 1_usize..300];
    prop::collection::vec((size, prop::bool::weighted(0.4), any::<usize>()), 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn one_block_is_where_a_search_of_all_holes_puts_it(steps in steps()) {
        agrees_with_a_search::<1, 64>(steps);
    }

    #[test]
    fn two_blocks_are_where_a_search_of_all_holes_puts_them(steps in steps()) {
        agrees_with_a_search::<2, 64>(steps);
    }

    #[test]
    fn many_blocks_are_where_a_search_of_all_holes_puts_them(steps in steps()) {
        agrees_with_a_search::<5, 16>(steps);
    }

    #[test]
    fn compaction_in_small_steps_ends_and_keeps_every_byte(
        (steps, budget) in (steps(), 1_usize..9000),
    ) {
        let frames = two_zones();
        let mut pair = Pair::<Scattered<2, 32, 1>>::new(&frames);
        for (size, free, which) in steps {
            if free && !pair.held.is_empty() {
                pair.free(which % pair.held.len());
            } else {
                assert!(pair.store(Bytes(size)));
            }
            if which % 5 == 0 {
                pair.pool.compact(Bytes(budget));
                pair.check();
            }
        }
        let bound = 100_000;
        let ended = (0..bound).any(|_| pair.pool.compact(Bytes(budget)) == Compacted::default());
        prop_assert!(ended, "compaction goes on for ever");
        pair.check();
        pair.finish();
    }
}

#[test]
fn an_object_of_a_page_takes_two_blocks() {
    let frames = sixteen_mib();
    let mut pair = Pair::<Reference>::new(&frames);
    assert!(pair.store(Bytes(4096)) && pair.store(Bytes(4092)));
    assert_eq!(pieces(&pair.pool, pair.held[0].0), [4092, 4]);
    pair.check();
    pair.finish();
}

#[test]
fn the_reserve_is_kept_while_there_are_objects() {
    let frames = sixteen_mib();
    let mut pair = Pair::<Reference>::new(&frames);
    (0..100).for_each(|_| assert!(pair.store(Bytes(4000))));
    // The last frame was begun after the reserve was filled.
    assert_eq!(pair.pool.blocks.lock().empty, 31);
    (0..99).for_each(|_| pair.free(0));
    let pieces = pieces(&pair.pool, pair.held[0].0).len();
    assert_eq!(pair.pool.stats().frames, PageCount(32 + pieces));
    pair.check();
    pair.free(0);
    assert_eq!(pair.pool.stats().frames, PageCount(0));
    pair.finish();
}

#[test]
fn a_refused_first_allocation_leaves_no_reserve_behind() {
    let frames = sixteen_mib();
    let mut pair = Pair::<Reference>::new(&frames);
    for limit in 0.. {
        pair.hog.leave(limit);
        if pair.store(Bytes(3000)) {
            break;
        }
        assert_eq!(frames.frames_used(), pair.hog.held());
        pair.check();
    }
    // The available frames went to the reserve; the next allocations use it.
    (0..3).for_each(|_| {
        pair.store(Bytes(3000));
    });
    pair.check();
    pair.finish();
}

/// Makes a pool of objects of 2500 to 3500 bytes, a third of which is left.
fn after_churn<'f, const GRANULARITY: usize>(
    frames: &'f FrameAllocator,
) -> Pair<'f, Scattered<2, GRANULARITY, 8>> {
    let mut pair = Pair::new(frames);
    for index in 0..3000 {
        assert!(pair.store(Bytes(2500 + (index * 7919) % 1000)));
    }
    (0..2000).for_each(|turn| pair.free((turn * 7919) % (3000 - turn)));
    pair
}

#[test]
fn compaction_leaves_no_more_than_it_is_worth() {
    let frames = two_zones();
    let mut pair = after_churn::<64>(&frames);
    let before = pair.pool.stats();
    let done = pair.pool.compact(Bytes(usize::MAX));
    pair.check();
    let after = pair.pool.stats();
    assert_eq!(before.frames - after.frames, done.freed);
    let occupied = pair.pool.blocks.lock().occupied();
    assert!(pair.pool.blocks.lock().freeable() * 64 <= occupied + 64, "{done:?} {after:?}");
    assert!(done.moved.0 < 3 * after.bytes_stored.0, "{done:?} {after:?}");
    // After more frees there is something to gain again.
    (0..500).for_each(|_| pair.free(0));
    assert!(pair.pool.compact(Bytes(usize::MAX)).freed > PageCount(0));
    pair.check();
    pair.finish();
}

#[test]
fn compaction_gives_up_where_no_two_objects_share_a_frame() {
    let frames = sixteen_mib();
    let mut pair = Pair::<Scattered<1, 64, 4>>::new(&frames);
    (0..200).for_each(|_| assert!(pair.store(Bytes(2500))));
    let done = pair.pool.compact(Bytes(usize::MAX));
    assert!(done.freed == PageCount(0) && done.moved < Bytes(20 * PAGE_BYTES), "{done:?}");
    // Compaction does not begin again before an object is freed.
    assert_eq!(pair.pool.compact(Bytes(usize::MAX)), Compacted::default());
    pair.finish();
}

#[test]
fn one_frame_of_many_is_not_worth_it() {
    let frames = sixteen_mib();
    let mut pair = Pair::<Reference>::new(&frames);
    (0..1000).for_each(|_| assert!(pair.store(Bytes(3000))));
    (0..2).for_each(|index| pair.free(index * 300));
    assert!(pair.pool.blocks.lock().freeable() > 0);
    assert_eq!(pair.pool.compact(Bytes(usize::MAX)), Compacted::default());
    pair.finish();
}

#[test]
fn compaction_needs_no_frame_of_the_allocator() {
    let frames = two_zones();
    let mut pair = Pair::<Reference>::new(&frames);
    pair.hog.leave(2000);
    let mut index = 0;
    while pair.store(Bytes(2500 + (index * 7919) % 1000)) {
        index += 1;
    }
    // No frame is left, in the allocator or in the reserve.
    assert_eq!(pair.pool.blocks.lock().empty, 0);
    (0..index / 2).for_each(|turn| pair.free((turn * 7919) % (index - turn)));
    pair.hog.leave(0);
    let full = pair.pool.stats();
    let done = pair.pool.compact(Bytes(usize::MAX));
    assert!(done.freed.0 * 4 > full.frames.0, "{done:?} of {full:?}");
    pair.check();
    pair.finish();
}

#[test]
fn small_objects_come_together() {
    let frames = two_zones();
    let mut pair = Pair::<Reference>::new(&frames);
    (0..20_000).for_each(|_| assert!(pair.store(Bytes(50))));
    (0..15_000).for_each(|turn| pair.free((turn * 7919) % (20_000 - turn)));
    let before = pair.pool.stats().frames;
    pair.pool.compact(Bytes(usize::MAX));
    let after = pair.pool.stats().frames;
    // 5000 granules are 79 frames; the rest is the reserve, and frames not worth emptying.
    assert!(before.0 > 250 && after.0 <= 79 + 4 + 32, "{before:?} {after:?}");
    pair.check();
    pair.finish();
}

#[test]
fn frames_move_between_two_steps_of_compaction() {
    let frames = two_zones();
    let mut pair = after_churn::<64>(&frames);
    let mut blocks = 9;
    // One object a step: most frames are moved while half emptied.
    while pair.pool.compact(Bytes(1)) != Compacted::default() {
        if blocks > 6 {
            blocks -= 1;
            pair.pool.shrink_frames(Bytes(blocks * BLOCK_BYTES));
        }
    }
    assert!(frames.stats().zone(Mobility::EasyReclaim).migrations > 0);
    pair.check();
    pair.finish();
}

#[test]
fn wrong_parameters_are_refused() {
    let frames = sixteen_mib();
    for (max_blocks, granularity, reserve) in
        [(0, 64, 1), (2, 8, 1), (2, 4096, 1), (2, 48, 1), (2, 64, 0)]
    {
        let (granularity, reserve) = (Bytes(granularity), PageCount(reserve));
        let config = Config { max_blocks, granularity, reserve };
        let make = std::panic::AssertUnwindSafe(|| drop(Xcfmalloc::with(&frames, config)));
        let made = std::panic::catch_unwind(make);
        assert!(made.is_err(), "{config:?} passed");
    }
}
