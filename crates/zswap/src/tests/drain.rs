//! The risk: a page that is lost, or read wrong, because its object moves to another pool; or a
//! former pool that never becomes empty.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use coldpress_backing::{Fault, FaultyBacking};
use coldpress_mem::pools::{AnyPool, PoolKind, Switch};

use super::*;
use crate::entry::PagePlace;

type Pools<'f> = Switch<Box<AnyPool<'f>>>;

fn key(number: u64) -> Key {
    Key::new(0, number)
}

/// Makes a page whose object has up to 4000 bytes, by its number.
fn page_of(number: u64) -> Page {
    page(number, number as usize * 131 % 4000)
}

fn with_frames(test: impl FnOnce(&FrameAllocator)) {
    let frames = FrameAllocator::new();
    frames.init(Layout::one_zone(Bytes::mib(16))).unwrap();
    test(&frames);
}

fn make(kind: PoolKind, frames: &FrameAllocator) -> Box<AnyPool<'_>> {
    Box::new(AnyPool::new(kind, frames))
}

/// Returns every pair of kinds: from each kind to each, itself included.
fn pairs() -> impl Iterator<Item = (PoolKind, PoolKind)> {
    PoolKind::ALL.iter().flat_map(|from| PoolKind::ALL.iter().map(|to| (*from, *to)))
}

fn store(world: &mut World<Pools<'_>>, numbers: Range<u64>, page_of: impl Fn(u64) -> Page) {
    for number in numbers {
        world.store(key(number), &page_of(number)).unwrap();
    }
}

fn drain(world: &World<Pools<'_>>, budget: Bytes) -> Bytes {
    world.zswap.drain(budget, Switch::is_former)
}

fn left(world: &World<Pools<'_>>) -> usize {
    world.zswap.pool().former().map_or(0, |former| former.stats().objects)
}

#[test]
fn every_page_moves_to_the_new_pool_and_the_old_one_is_given_back() {
    for (from, to) in pairs() {
        with_frames(|frames| {
            let pool = Switch::new(make(from, frames));
            let backing = Some(Box::new(in_memory(20)) as Box<dyn Backing>);
            let mut world =
                World::new(knobs(CodecId::Lz4, 2000, 2000), pool, backing, Allowed::None);
            store(&mut world, 0..300, page_of);
            world.zswap.shrink(PageCount(20));
            assert!(world.zswap.pool_mut().switch(make(to, frames)));
            let before = left(&world);
            assert!(before > 150, "{before}");
            // New pages lie in the new pool; old ones stay where they are.
            store(&mut world, 300..350, page_of);
            assert_eq!(left(&world), before);
            world.load_all();
            // Some pages are dropped meanwhile, and some are renamed to another shard.
            (200..230).for_each(|number| world.invalidate(key(number)));
            for number in 230..240 {
                assert_eq!(world.zswap.rename(key(number), key(number << 20)), Ok(true));
                let page = world.pages.remove(&key(number)).unwrap();
                world.pages.insert(key(number << 20), page);
            }
            let waiting = left(&world);
            while left(&world) > 0 {
                assert!(drain(&world, Bytes::kib(16)) <= Bytes::kib(20), "more than was asked for");
                world.zswap.check();
            }
            assert_eq!(world.zswap.counters().drained_pages, waiting as u64);
            assert!(world.zswap.pool_mut().finish(), "{from} to {to}");
            assert_eq!(drain(&world, Bytes::kib(16)), Bytes(0));
            let stats = world.zswap.pool().stats();
            let tables = stats.metadata.0 - size_of::<Pools<'_>>() - size_of::<AnyPool<'_>>();
            let held = stats.frames + Bytes(tables).pages_up();
            assert_eq!(frames.frames_used(), held, "{from} to {to}");
            world.load_all();
            world.finish();
        });
    }
}

/// Checks that LRU order is the order in which pages came, whichever pool they lie in.
#[test]
fn pages_that_moved_are_written_back_in_their_turn() {
    with_frames(|frames| {
        let pool = Switch::new(make(PoolKind::Zsmalloc, frames));
        let backing = Some(Box::new(in_memory(20)) as Box<dyn Backing>);
        let mut world = World::new(knobs(CodecId::Lz4, 2000, 2000), pool, backing, Allowed::None);
        // All pages lie in one shard, whose list is one order.
        store(&mut world, 0..200, |number| page(number, 3000));
        assert!(world.zswap.pool_mut().switch(make(PoolKind::Segment, frames)));
        while left(&world) > 0 {
            drain(&world, Bytes::kib(64));
        }
        world.zswap.shrink(PageCount(30));
        let is_there = |number| matches!(world.zswap.place(key(number)), PagePlace::Pool { .. });
        let first = (0..200).position(is_there).unwrap() as u64;
        assert!(first > 20 && (first..200).all(is_there), "{first}");
        world.finish();
    });
}

/// Checks that a page being written back stays in its pool, and is moved if it comes back.
#[test]
fn pages_that_could_not_be_written_move_later() {
    with_frames(|frames| {
        let pool = Switch::new(make(PoolKind::Segment, frames));
        let slow = FaultyBacking::new(in_memory(9), Fault::Delay, 0..u64::MAX);
        let backing = FaultyBacking::new(slow, Fault::Fail, 0..1);
        let backing = Some(Box::new(backing) as Box<dyn Backing>);
        let mut world = World::new(knobs(CodecId::Lz4, 2000, 2000), pool, backing, Allowed::None);
        store(&mut world, 0..100, |number| page(number, 3000));
        assert!(world.zswap.pool_mut().switch(make(PoolKind::Segment, frames)));
        Writeback::of(&world.zswap.base).unwrap().begin_batch();
        for _ in 0..20 {
            drain(&world, Bytes::kib(64));
        }
        world.zswap.finish_writes();
        world.zswap.check();
        for _ in 0..20 {
            drain(&world, Bytes::kib(64));
        }
        assert_eq!((left(&world), world.zswap.counters().flushed_pages), (0, 0));
        world.finish();
    });
}

#[test]
fn without_room_nothing_moves_and_nothing_is_lost() {
    with_frames(|frames| {
        let pool = Switch::new(make(PoolKind::Zsmalloc, frames));
        let mut world = World::new(knobs(CodecId::Lz4, 2000, 2000), pool, None, Allowed::None);
        store(&mut world, 0..300, page_of);
        assert!(world.zswap.pool_mut().switch(make(PoolKind::Xcfmalloc, frames)));
        // The limit is below the pool's size, by more than the pool may grow for draining.
        world.zswap.set_knobs(knobs(CodecId::Lz4, 1, 1)).unwrap();
        assert_eq!((drain(&world, Bytes::kib(64)), left(&world)), (Bytes(0), 300));
        assert_eq!(world.zswap.counters().reject_drain_full, 1);
        world.load_all();
        world.zswap.set_knobs(knobs(CodecId::Lz4, 2000, 2000)).unwrap();
        while left(&world) > 0 {
            drain(&world, Bytes::kib(64));
        }
        world.finish();
    });
}

/// A pool in which one write can be made to wait for the test.
struct Halting {
    pool: Naive,
    halts: AtomicBool,
    /// Passed when the write is reached, and again when it may go on.
    barrier: Barrier,
}

impl Pool for Halting {
    fn alloc(&self, size: Bytes) -> Result<Handle, AllocError> {
        self.pool.alloc(size)
    }

    fn free(&self, handle: Handle) -> Result<(), UnknownHandle> {
        self.pool.free(handle)
    }

    fn size(&self, handle: Handle) -> Result<Bytes, UnknownHandle> {
        self.pool.size(handle)
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle> {
        // Relaxed: the barrier orders everything.
        if self.halts.swap(false, Ordering::Relaxed) {
            self.barrier.wait();
            self.barrier.wait();
        }
        self.pool.write(handle, bytes)
    }

    fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle> {
        self.pool.read(handle, f)
    }

    fn stats(&self) -> PoolStats {
        self.pool.stats()
    }

    fn classes(&self, _: &mut dyn FnMut(ClassStats)) {}

    fn compact(&self, budget: Bytes) -> Compacted {
        self.pool.compact(budget)
    }

    fn shrink_frames(&self, online: Bytes) -> Shrunk {
        self.pool.shrink_frames(online)
    }

    fn check(&mut self) {}
}

/// Checks a page that is dropped while its object is copied, and whose entry is reused.
#[test]
fn a_page_that_is_dropped_while_it_moves_leaves_nothing() {
    for is_stored_again in [false, true] {
        let (halts, barrier) = (AtomicBool::new(false), Barrier::new(2));
        let pool = Halting { pool: Naive::new(100), halts, barrier };
        let mut world = World::new(knobs(CodecId::Lz4, 100, 100), pool, None, Allowed::None);
        world.store(key(0), &page_of(7)).unwrap();
        let before = world.zswap.place(key(0));
        let Halting { halts, barrier, .. } = world.zswap.pool();
        halts.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| world.zswap.drain(Bytes(1), |_, _| true));
            barrier.wait();
            assert!(world.zswap.invalidate(key(0)));
            if is_stored_again {
                world.zswap.store(key(1), &page_of(9)).unwrap();
            }
            barrier.wait();
            mover.join().unwrap();
        });
        world.pages.clear();
        if is_stored_again {
            world.pages.insert(key(1), page_of(9));
            assert_ne!(world.zswap.place(key(1)), before);
        }
        assert_eq!(world.zswap.counters().drained_pages, 0);
        world.finish();
    }
}

#[test]
fn threads_read_the_right_bytes_while_their_pages_move() {
    const KEYS: u64 = 300;
    for (from, to) in pairs() {
        with_frames(|frames| {
            let pool = Switch::new(make(from, frames));
            let mut world = World::new(knobs(CodecId::Lz4, 2000, 2000), pool, None, Allowed::None);
            for number in 0..KEYS {
                world.store(key(number * 700), &page_of(number)).unwrap();
            }
            assert!(world.zswap.pool_mut().switch(make(to, frames)));
            let is_over = AtomicBool::new(false);
            let zswap = &world.zswap;
            std::thread::scope(|scope| {
                for reader in 0..2 {
                    let is_over = &is_over;
                    scope.spawn(move || {
                        let (mut found, mut number) = ([0; PAGE_BYTES], reader);
                        // Relaxed: the joining of the threads orders everything.
                        while !is_over.load(Ordering::Relaxed) {
                            number = (number * 5 + 7) % KEYS;
                            let loaded = zswap.load(key(number * 700), &mut found).unwrap();
                            assert_eq!(loaded, Loaded::FromPool);
                            assert!(found == page_of(number), "page {number}: {from} to {to}");
                        }
                    });
                }
                // One more thread stores pages and drops them: some while they move.
                scope.spawn(|| {
                    for number in (0..200).map(|turn| KEYS + turn % 40) {
                        zswap.store(key(number * 700), &page_of(number)).unwrap();
                        assert!(zswap.invalidate(key(number * 700)));
                    }
                });
                while left(&world) > 0 {
                    drain(&world, Bytes::kib(16));
                    zswap.compact(Bytes::kib(4));
                }
                is_over.store(true, Ordering::Relaxed);
            });
            assert!(world.zswap.pool_mut().finish());
            world.finish();
        });
    }
}
