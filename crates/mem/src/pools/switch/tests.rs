//! The risk: an object is lost, or read as another one, when the pool is switched; or a pool that
//! is switched away from stays in memory.

use std::boxed::Box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::vec::Vec;

use coldpress_sys::PageCount;
use coldpress_sys::page::BLOCK_BYTES;

use super::super::pair::{Pair, Switched, contents, many, refuses, two_zones};
use super::super::{AnyPool, PoolKind};
use super::*;
use crate::frames::FrameAllocator;

/// Returns every kind after every other, and after itself.
fn pairs() -> impl Iterator<Item = (PoolKind, PoolKind)> {
    PoolKind::ALL.iter().flat_map(|from| PoolKind::ALL.iter().map(|to| (*from, *to)))
}

fn size(index: usize) -> Bytes {
    Bytes(index * 97 % 4096 + 1)
}

#[test]
fn a_drained_pool_gives_all_it_has_back() {
    for (from, to) in pairs() {
        let frames = two_zones();
        let mut pair = Pair::<Switched>::new(&frames);
        pair.switch(from);
        assert!((0..many(800)).all(|index| pair.store(size(index))));
        pair.switch(to);
        assert!((0..many(100)).all(|index| pair.store(size(index))));
        pair.check();
        // Some objects are freed in their places, the others move over a few at a time.
        (0..many(100)).for_each(|_| pair.free(0));
        while pair.pool.former().is_some_and(|former| former.stats().objects > 0) {
            assert!(!pair.pool.finish(), "{from} was dropped with its objects");
            pair.renew(many(150));
            pair.pool.compact(Bytes(10_000));
            pair.check();
        }
        let former = pair.pool.former().expect("nobody dropped it").stats();
        assert_eq!(former.frames, PageCount(0), "{from} to {to}");
        assert!(pair.pool.finish() && !pair.pool.finish());
        assert_eq!((pair.pool.current().kind(), pair.pool.former().is_none()), (to, true));
        // `check` compares the figures with the frames actually taken.
        pair.check();
        pair.finish();
    }
}

/// The right to move frames passes on with the switch.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of objects")]
fn the_frames_of_the_pool_in_use_can_be_moved() {
    let migrations = |frames: &FrameAllocator| {
        frames.stats().zones.iter().map(|zone| zone.migrations).sum::<u64>()
    };
    for (from, to) in pairs().filter(|(_, to)| *to != PoolKind::Xvmalloc) {
        let frames = two_zones();
        let mut pair = Pair::<Switched>::new(&frames);
        pair.switch(from);
        assert!((0..1000).all(|index| pair.store(size(index))));
        pair.switch(to);
        assert!((0..3000).all(|index| pair.store(size(index))));
        // Objects of both pools go, all over the blocks.
        (0..2500).for_each(|turn| pair.free(turn * 7 % (4000 - turn)));
        pair.pool.shrink_frames(Bytes(4 * BLOCK_BYTES));
        pair.check();
        pair.renew(4000);
        assert!(pair.pool.finish());
        pair.pool.compact(Bytes(usize::MAX));
        let target = Bytes(3 * BLOCK_BYTES);
        let shrunk = pair.pool.shrink_frames(target);
        pair.check();
        assert_eq!(shrunk, Shrunk { online: target, held_back_by: None }, "{from} to {to}");
        assert!(migrations(&frames) > 0, "{from} to {to}");
        pair.finish();
    }
}

#[test]
fn there_is_no_third_pool() {
    let frames = two_zones();
    let make = |kind| Box::new(AnyPool::new(kind, &frames));
    let mut pool = Switch::new(make(PoolKind::Segment));
    let first = pool.alloc(Bytes(100)).unwrap();
    pool.write(first, &[1; 100]).unwrap();
    assert!(pool.switch(make(PoolKind::Xvmalloc)));
    let second = pool.alloc(Bytes(100)).unwrap();
    pool.write(second, &[2; 100]).unwrap();
    assert!(pool.is_former(first) && !pool.is_former(second) && first.name() != second.name());
    assert!(!pool.switch(make(PoolKind::Zsmalloc)));
    for (handle, byte) in [(first, 1), (second, 2)] {
        pool.read(handle, |bytes| assert_eq!(bytes, [byte; 100])).unwrap();
    }
    // With its last object the first pool makes room, and its side is reused.
    pool.free(first).unwrap();
    assert!(pool.switch(make(PoolKind::Zsmalloc)));
    assert_eq!(pool.former().map(AnyPool::kind), Some(PoolKind::Xvmalloc));
    refuses(&pool, first);
    pool.read(second, |bytes| assert_eq!(bytes, [2; 100])).unwrap();
    pool.free(second).unwrap();
    assert!(pool.finish());
    refuses(&pool, second);
    assert_eq!(frames.frames_used(), PageCount(0));
}

#[test]
fn dropping_both_pools_returns_every_frame() {
    for (from, to) in pairs() {
        let frames = two_zones();
        let mut pair = Pair::<Switched>::new(&frames);
        for kind in [from, to] {
            pair.switch(kind);
            assert!((0..many(300)).all(|index| pair.store(size(index))));
        }
        drop(pair.pool);
        assert_eq!(frames.frames_used(), PageCount(0), "{from} and {to}");
    }
}

/// Readers do not notice that an object is allocated anew: the mover frees the old one, and waits
/// for its readers.
#[test]
fn what_is_read_stays_while_the_former_pool_drains() {
    for (from, to) in pairs() {
        let frames = two_zones();
        let mut pool = Switch::new(Box::new(AnyPool::new(from, &frames)));
        let store = |pool: &Switch<Box<AnyPool<'_>>>, seed: usize| {
            let handle = pool.alloc(size(seed)).unwrap();
            pool.write(handle, &contents(seed as u32, size(seed))).unwrap();
            handle
        };
        let count = many(400);
        let (stay, mut leave): (Vec<_>, Vec<_>) = (
            (0..count).map(|it| store(&pool, it)).collect(),
            (0..count).map(|it| store(&pool, it)).collect(),
        );
        assert!(pool.switch(Box::new(AnyPool::new(to, &frames))));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // Relaxed: the joining of the threads orders everything.
                while !is_over.load(Ordering::Relaxed) {
                    for (seed, handle) in stay.iter().enumerate() {
                        let expected = contents(seed as u32, size(seed));
                        pool.read(*handle, |bytes| assert!(bytes == expected)).unwrap();
                    }
                }
            });
            for (seed, handle) in leave.iter_mut().enumerate() {
                let new = store(&pool, seed);
                pool.free(core::mem::replace(handle, new)).unwrap();
                pool.compact(Bytes(3000));
            }
            // Relaxed, as above.
            is_over.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        for (seed, handle) in stay.iter().chain(&leave).enumerate() {
            let expected = contents((seed % count) as u32, size(seed % count));
            pool.read(*handle, |bytes| assert!(bytes == expected, "{from} to {to}")).unwrap();
        }
        assert_eq!(pool.former().map(|former| former.stats().objects), Some(count));
        pool.check();
    }
}
