//! The risk: a compressed page that reads back wrong, is lost, or is never given back; and a pool
//! left half-changed when frames run out.
//!
//! Every pool passes the same suite ([`suite!`]), beside a map from names to bytes; a promise that
//! only one pool makes is tested beside that pool.

mod threads;

use coldpress_sys::page::BLOCK_BYTES;
use proptest::prelude::*;

pub(super) use super::pair::*;
use super::*;
use crate::frames::{FrameAllocator, Mobility, Shrunk};

/// Stamps out the tests that every pool must pass.
macro_rules! suite {
    ($($name:ident: $kind:ty;)+) => { $(
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(many(32) as u32))]

                #[test]
                fn agrees_with_a_map(steps in steps()) {
                    operations::run::<$kind>(steps);
                }
            }

            #[test]
            fn objects_of_every_size_lie_side_by_side() {
                every_size::<$kind>();
            }

            #[test]
            fn bad_sizes_are_refused_and_change_nothing() {
                bad_sizes::<$kind>();
            }

            #[test]
            #[cfg_attr(miri, ignore = "fills all frames many times")]
            fn running_out_of_frames_at_any_point_loses_and_leaks_nothing() {
                running_out::<$kind>();
            }

            #[test]
            fn dropping_a_pool_returns_every_frame() {
                dropping::<$kind>();
            }

            #[test]
            fn handles_of_no_object_are_refused() {
                bad_handles::<$kind>();
            }

            #[test]
            #[cfg_attr(miri, ignore = "needs thousands of objects")]
            fn objects_survive_the_way_to_other_blocks() {
                moving_frames::<$kind>();
            }

            #[test]
            fn compacting_changes_no_byte_and_gives_frames_back() {
                compacting::<$kind>();
            }

            #[test]
            #[cfg_attr(miri, ignore = "fills all frames many times")]
            fn compacting_without_frames_at_any_point_loses_nothing() {
                compacting_without_frames::<$kind>();
            }

            #[test]
            fn classes_add_up_to_the_whole() {
                classes_add_up::<$kind>();
            }

            #[test]
            fn threads_keep_what_is_theirs() {
                threads::several_threads::<$kind>();
            }

            #[test]
            fn what_is_read_stays_where_it_is() {
                threads::reading::<$kind>();
            }
        }
    )+ };
}

/// Bytes that encode operations.
const LENGTH: usize = if cfg!(miri) { 30 } else { 150 };

/// Makes operations from any bytes.
fn steps() -> impl Strategy<Value = Vec<operations::Step>> {
    prop::collection::vec(any::<u8>(), 1..LENGTH)
        .prop_map(|bytes| operations::steps(&bytes).collect())
}

suite! {
    zsmalloc_of_1: Chains<1>;
    zsmalloc_of_4: Chains<4>;
    zsmalloc_of_16: Chains<16>;
    xvmalloc_alone: Blocks;
    xcfmalloc_of_1: Scattered<1, 256, 2>;
    xcfmalloc_of_2: Scattered<2, 64, 1>;
    xcfmalloc_of_4: Scattered<4, 16, 1>;
    segment: Packed;
    switched: Switched;
}

fn every_size<K: Kind>() {
    let frames = sixteen_mib();
    let mut pair = Pair::<K>::new(&frames);
    let sizes = (1..=4096).step_by(3).chain(1..50).chain(4080..=4096);
    for size in sizes.step_by(if cfg!(miri) { 97 } else { 1 }) {
        assert!(pair.store(Bytes(size)));
    }
    pair.check();
    pair.finish();
}

fn bad_sizes<K: Kind>() {
    let frames = sixteen_mib();
    let pool = K::make(&frames);
    for size in [Bytes(0), Bytes(4097), Bytes(usize::MAX)] {
        assert_eq!(pool.alloc(size), Err(AllocError::BadSize { size }));
    }
    assert_eq!(frames.frames_used(), PageCount(0));
}

/// Runs a short script with short and long chains, shared and new zspages, frees in between.
fn script<K: Kind>(pair: &mut Pair<'_, K>) -> usize {
    let mut refused = 0;
    for size in [100, 3000, 3000, 4096, 1500, 100, 80, 3840, 3840, 2000, 32, 3100, 2720] {
        refused += usize::from(!pair.store(Bytes(size)));
        pair.check();
        if size == 1500 || size == 2000 {
            pair.free(0);
            pair.check();
        }
    }
    refused
}

fn running_out<K: Kind>() {
    let mut failures = 0;
    for limit in 1.. {
        let frames = sixteen_mib();
        // One object is always there, because the script may free it.
        let mut pair = Pair::<K>::new(&frames);
        for size in [32, 32, 32] {
            assert!(pair.store(Bytes(size)));
        }
        pair.hog.leave(limit - 1);
        let refused = script(&mut pair);
        pair.finish();
        failures += refused;
        if refused == 0 {
            assert!(limit > 5 && failures > limit, "the script was never short of frames");
            return;
        }
    }
}

fn dropping<K: Kind>() {
    let frames = sixteen_mib();
    let mut pair = Pair::<K>::new(&frames);
    (1..many(1000)).for_each(|index| assert!(pair.store(Bytes(index * 4))));
    // The first leaf goes, so that its number is free while a later one is in use.
    (0..many(600)).for_each(|_| pair.free(0));
    drop(pair.pool);
    assert_eq!(frames.frames_used(), PageCount(0));
}

fn bad_handles<K: Kind>() {
    let (frames, others) = (sixteen_mib(), sixteen_mib());
    let (pool, other) = (K::make(&frames), K::make(&others));
    let handle = pool.alloc(Bytes(77)).unwrap();
    // A foreign handle, of a name that is in use here.
    let foreign = other.alloc(Bytes(77)).unwrap();
    assert_eq!(foreign.name(), handle.name());
    let kept = pool.alloc(Bytes(77)).unwrap();
    pool.write(kept, &[7; 77]).unwrap();
    if CHECKS_HANDLES {
        refuses(&pool, foreign);
    }
    pool.free(handle).unwrap();
    for name in [handle.name(), 0, 341, 511, 512, u32::MAX] {
        refuses(&pool, Handle::new(name));
    }
    refuses(&pool, handle);
    refuses(&pool, foreign);
    // The name is reused many times: the old handle must not reach the new object.
    for _ in 0..many(600) {
        let again = pool.alloc(Bytes(77)).unwrap();
        assert_eq!(again.name(), handle.name());
        if CHECKS_HANDLES {
            assert_ne!(again, handle);
            refuses(&pool, handle);
        }
        pool.free(again).unwrap();
    }
    pool.read(kept, |bytes| assert_eq!(bytes, [7; 77])).unwrap();
    // The table went with the last object, and is made again.
    pool.free(kept).unwrap();
    assert_eq!(frames.frames_used(), PageCount(0));
    refuses(&pool, handle);
    let again = pool.alloc(Bytes(77)).unwrap();
    assert_eq!(again.name(), handle.name());
    if CHECKS_HANDLES {
        refuses(&pool, handle);
    }
}

fn moving_frames<K: Kind>() {
    let frames = room_for::<K>();
    let mut pair = Pair::<K>::new(&frames);
    for index in 0..5000 {
        assert!(pair.store(Bytes((index * 97) % 4000 + 1)));
    }
    let full = frames.stats();
    if !K::MOVES {
        assert_eq!(full.zone(Mobility::EasyReclaim).used, PageCount(0));
        pair.pool.shrink_frames(Bytes(0));
        pair.check();
        return pair.finish();
    }
    assert!(full.zone(Mobility::EasyReclaim).used.0 > 1500, "{full:?}");
    // Every zspage keeps some objects, all over the blocks.
    (0..4000).for_each(|turn| pair.free(turn * 7 % (5000 - turn)));
    let used = frames.stats().zone(Mobility::EasyReclaim).used;
    let target = Bytes(2 * BLOCK_BYTES) + Bytes(used.bytes().0.next_multiple_of(BLOCK_BYTES));
    let shrunk = pair.pool.shrink_frames(target);
    assert_eq!(shrunk, Shrunk { online: target, held_back_by: None });
    assert!(frames.stats().zone(Mobility::EasyReclaim).migrations > 0);
    pair.check();
    // The pool cannot shrink below the remaining objects; it says so, and nothing is lost.
    let shrunk = pair.pool.shrink_frames(Bytes(0));
    assert!(shrunk.online > Bytes(0) && shrunk.held_back_by.is_some());
    pair.check();
    frames.grow(Bytes(3 * BLOCK_BYTES)).unwrap();
    (0..500).for_each(|index| assert!(pair.store(Bytes(index * 8 + 1))));
    pair.check();
    pair.finish();
}

/// Makes a pool of objects of many sizes, of which all but every fourth are gone.
fn with_holes<'f, K: Kind>(frames: &'f FrameAllocator, count: usize) -> Pair<'f, K> {
    let mut pair = Pair::new(frames);
    for index in 0..count {
        assert!(pair.store(Bytes((index * 97) % 4000 + 1)));
    }
    (0..count * 3 / 4).for_each(|turn| pair.free(turn * 7 % (count - turn)));
    pair
}

fn compacting<K: Kind>() {
    let frames = room_for::<K>();
    let mut pair = with_holes::<K>(&frames, if cfg!(miri) { 20 } else { 4000 });
    let before = pair.pool.stats();
    let mut done = Compacted::default();
    for _ in 0..10_000 {
        let step = pair.pool.compact(Bytes(20_000));
        assert!(step.moved < Bytes(20_000 + 4096), "{step:?}");
        (done.moved, done.freed) = (done.moved + step.moved, done.freed + step.freed);
        if step == Compacted::default() {
            break;
        }
    }
    pair.check();
    let after = pair.pool.stats();
    assert_eq!(before.frames - after.frames, done.freed);
    if K::MOVES && !cfg!(miri) {
        // A quarter of the objects is left, in not much more than a quarter of the frames. Zspages
        // of one frame take 1.31 when full: objects above half a frame have one each.
        assert!(after.frames.bytes().0 * 10 < after.bytes_stored.0 * 14, "{before:?} {after:?}");
    }
    assert_eq!(pair.pool.compact(Bytes(usize::MAX)), Compacted::default());
    pair.finish();
}

fn compacting_without_frames<K: Kind>() {
    for limit in 0..40 {
        let frames = room_for::<K>();
        let mut pair = with_holes::<K>(&frames, 600);
        pair.hog.leave(limit);
        pair.pool.compact(Bytes(usize::MAX));
        pair.check();
        pair.finish();
    }
}

fn classes_add_up<K: Kind>() {
    let frames = room_for::<K>();
    let pair = with_holes::<K>(&frames, many(1000));
    let stats = pair.pool.stats();
    let (mut used, mut pages, mut last) = (0, PageCount(0), Bytes(usize::MAX));
    pair.pool.classes(&mut |class| {
        assert!(class.size < last && class.obj_used <= class.obj_allocated, "{class:?}");
        assert!(class.freeable <= class.pages_used, "{class:?}");
        (used, pages, last) = (used + class.obj_used, pages + class.pages_used, class.size);
    });
    assert_eq!((used, pages), (stats.objects, stats.frames));
    pair.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(many(64) as u32))]

    /// The operations that the fuzzer runs.
    #[test]
    fn any_bytes_are_operations(bytes in prop::collection::vec(any::<u8>(), 0..LENGTH)) {
        operations::run_bytes(&bytes);
    }
}
