//! Risk guarded: a compressed page that reads back wrong, is lost, or is never given back; and a
//! pool left half-changed when frames run out.

use std::collections::HashSet;

use coldpress_sys::page::BLOCK_BYTES;
use proptest::prelude::*;

use super::naive::Naive;
use super::*;
use crate::frames::hog::Hog;
use crate::frames::{Config, FrameAllocator, Mobility, Shrunk};

fn sixteen_mib() -> FrameAllocator {
    let frames = FrameAllocator::new();
    frames.init(Config::one_zone(Bytes(8 * BLOCK_BYTES))).unwrap();
    frames
}

/// Twelve blocks, of which two are core and three more can be added.
fn two_zones() -> FrameAllocator {
    let frames = FrameAllocator::new();
    let blocks = |count| Bytes(count * BLOCK_BYTES);
    let (span, online) = (blocks(12), blocks(9));
    frames.init(Config { core: Some(blocks(2)), online, ..Config::one_zone(span) }).unwrap();
    frames
}

/// Bytes that differ between objects and along each object.
fn contents(seed: u32, size: Bytes) -> Vec<u8> {
    let words = (0..).map(|index: u32| (seed ^ index).wrapping_mul(0x9e37_79b1).rotate_left(11));
    words.flat_map(u32::to_ne_bytes).take(size.0).collect()
}

/// A pool beside its oracle, with the names of what both hold.
struct Pair<'f> {
    pool: Zsmalloc<'f>,
    naive: Naive,
    held: Vec<(Handle, Handle)>,
    frames: &'f FrameAllocator,
    hog: Hog<'f>,
    seed: u32,
}

impl<'f> Pair<'f> {
    fn new(frames: &'f FrameAllocator, chain_max: usize) -> Self {
        let pool = Zsmalloc::new(frames, chain_max);
        let hog = Hog::new(frames);
        Self { pool, naive: Naive::default(), held: Vec::new(), frames, hog, seed: 0 }
    }

    /// Allocates and writes in both. `false` when the pool has no frame.
    fn store(&mut self, size: Bytes) -> bool {
        self.seed += 1;
        match self.pool.alloc(size) {
            Ok(handle) => {
                let oracle = self.naive.alloc(size).unwrap();
                self.held.push((handle, oracle));
                self.write(self.held.len() - 1);
                true
            }
            Err(AllocError::NoFrame) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn write(&mut self, which: usize) {
        let (handle, oracle) = self.held[which];
        self.seed += 1;
        let bytes = contents(self.seed, self.naive.size(oracle));
        self.pool.write(handle, &bytes);
        self.naive.write(oracle, &bytes);
    }

    fn verify(&mut self, which: usize) {
        let (handle, oracle) = self.held[which];
        assert_eq!(self.pool.size(handle), self.naive.size(oracle));
        let expected = self.naive.read(oracle, <[u8]>::to_vec);
        self.pool.read(handle, |bytes| assert!(bytes == expected, "{handle:?} changed"));
    }

    fn free(&mut self, which: usize) {
        self.verify(which);
        let (handle, oracle) = self.held.swap_remove(which);
        self.pool.free(handle);
        self.naive.free(oracle);
    }

    /// Compares everything, and holds the pool's figures to the frames really taken.
    fn check(&mut self) {
        self.pool.check();
        self.frames.check();
        (0..self.held.len()).for_each(|which| self.verify(which));
        let names: HashSet<_> = self.held.iter().map(|(handle, _)| handle.0).collect();
        assert!(names.len() == self.held.len() && !names.contains(&0), "a name was given twice");
        let (stats, expected) = (self.pool.stats(), self.naive.stats());
        assert_eq!(stats.objects, expected.objects);
        assert_eq!(stats.bytes_stored, expected.bytes_stored);
        let tables = stats.metadata - Bytes(size_of::<Zsmalloc>());
        assert_eq!(stats.frames + tables.pages_up() + self.hog.held(), self.frames.frames_used());
    }

    /// Frees what is left and expects every frame back.
    fn finish(mut self) {
        (0..self.held.len()).rev().for_each(|which| self.free(which));
        self.hog.leave(usize::MAX);
        self.check();
        assert_eq!(self.frames.frames_used(), PageCount(0));
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Objects of sizes from the first on, this far apart.
    Store {
        size: usize,
        step: usize,
        count: usize,
    },
    Free {
        first: usize,
        count: usize,
    },
    Write(usize),
    /// Takes frames away until so many are free.
    Leave(usize),
    /// Blocks to shrink to, and to add.
    Shrink(usize),
    Grow(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1_usize..=4096, prop_oneof![Just(0_usize), 1_usize..40], 1_usize..120)
            .prop_map(|(size, step, count)| Step::Store { size, step, count }),
        4 => (any::<usize>(), 1_usize..150).prop_map(|(first, count)| Step::Free { first, count }),
        2 => any::<usize>().prop_map(Step::Write),
        1 => prop_oneof![Just(usize::MAX), 0_usize..300].prop_map(Step::Leave),
        1 => (0_usize..12).prop_map(Step::Shrink),
        1 => (1_usize..6).prop_map(Step::Grow),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn zsmalloc_agrees_with_a_map(
        chain_max in 1..=zsmalloc::CHAIN_MAX,
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let frames = two_zones();
        let mut pair = Pair::new(&frames, chain_max);
        for step in steps {
            match step {
                Step::Store { size, step, count } => {
                    for index in 0..count {
                        if !pair.store(Bytes((size + index * step - 1) % 4096 + 1)) {
                            break;
                        }
                    }
                }
                Step::Free { first, count } => {
                    for turn in 0..count.min(pair.held.len()) {
                        pair.free(first.wrapping_add(turn * 13) % pair.held.len());
                    }
                }
                Step::Write(which) if !pair.held.is_empty() => pair.write(which % pair.held.len()),
                Step::Write(_) => {}
                Step::Leave(free) => pair.hog.leave(free),
                Step::Shrink(blocks) => {
                    let shrunk = pair.pool.shrink_frames(Bytes(blocks * BLOCK_BYTES));
                    prop_assert_eq!(shrunk.online, frames.online());
                }
                Step::Grow(blocks) => drop(frames.grow(Bytes(blocks * BLOCK_BYTES))),
            }
            pair.check();
        }
        pair.finish();
    }
}

#[test]
fn objects_of_every_size_lie_side_by_side() {
    for chain_max in [1, 4, 8, 16] {
        let frames = sixteen_mib();
        let mut pair = Pair::new(&frames, chain_max);
        for size in (1..=4096).step_by(3).chain(1..50).chain(4080..=4096) {
            assert!(pair.store(Bytes(size)));
        }
        pair.check();
        pair.finish();
    }
}

#[test]
fn bad_sizes_are_refused_and_change_nothing() {
    let frames = sixteen_mib();
    let mut pool = Zsmalloc::new(&frames, 16);
    for size in [Bytes(0), Bytes(4097), Bytes(usize::MAX)] {
        assert_eq!(pool.alloc(size), Err(AllocError::BadSize { size }));
    }
    assert_eq!(frames.frames_used(), PageCount(0));
}

/// A short script with short and long chains, shared and new zspages, frees in between.
fn script(pair: &mut Pair) -> usize {
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

#[test]
fn running_out_of_frames_at_any_point_loses_and_leaks_nothing() {
    let mut failures = 0;
    for limit in 1.. {
        let frames = sixteen_mib();
        // One object is always there: the script may free it.
        let mut pair = Pair::new(&frames, 16);
        for size in [32, 32, 32] {
            assert!(pair.store(Bytes(size)));
        }
        pair.hog.leave(limit - 1);
        let refused = script(&mut pair);
        pair.finish();
        failures += refused;
        if refused == 0 {
            assert!(limit > 40 && failures > limit, "the script was never short of frames");
            return;
        }
    }
}

#[test]
fn a_refused_allocation_can_be_repeated_when_frames_are_back() {
    let frames = sixteen_mib();
    let mut pair = Pair::new(&frames, 16);
    // At every limit up to what one object takes, the whole of it is undone.
    for limit in 0.. {
        pair.hog.leave(limit);
        if pair.store(Bytes(3840)) {
            assert!(limit > 16, "a zspage of a long chain, its descriptor and two tables");
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
    let mut pair = Pair::new(&frames, 16);
    // More handles than four leaves hold.
    let handles: Vec<_> = (0..2100).map(|_| pair.pool.alloc(Bytes(32)).unwrap()).collect();
    let full = pair.pool.stats().metadata;
    handles[30..].iter().for_each(|handle| pair.pool.free(*handle));
    pair.pool.check();
    assert!(pair.pool.stats().metadata.0 <= full.0 - 4 * PAGE_BYTES);
    // Numbers of leaves given back are used again.
    let again: Vec<_> = (0..2070).map(|_| pair.pool.alloc(Bytes(32)).unwrap()).collect();
    pair.pool.check();
    assert_eq!(pair.pool.stats().metadata, full);
    handles[..30].iter().chain(&again).for_each(|handle| pair.pool.free(*handle));
    pair.finish();
}

#[test]
fn new_objects_go_into_the_fullest_zspage() {
    let frames = sixteen_mib();
    let mut pool = Zsmalloc::new(&frames, 16);
    // Zspages of one frame and 64 objects.
    let handles: Vec<_> = (0..300).map(|_| pool.alloc(Bytes(64)).unwrap()).collect();
    assert_eq!(pool.stats().frames, PageCount(5));
    // The second zspage is left nearly full, the others nearly empty.
    for (index, handle) in handles.iter().enumerate() {
        let zspage = index / 64;
        if (zspage == 1 && index % 64 == 0) || (zspage != 1 && index % 64 > 4) {
            pool.free(*handle);
        }
    }
    pool.check();
    let object = pool.alloc(Bytes(64)).unwrap();
    // The second is full now; freeing the others' objects leaves exactly one frame.
    for (index, handle) in handles.iter().enumerate() {
        if index / 64 != 1 && index % 64 <= 4 {
            pool.free(*handle);
        }
    }
    assert_eq!(pool.stats().frames, PageCount(1));
    assert_eq!(pool.size(object), Bytes(64));
    pool.check();
}

#[test]
fn dropping_a_pool_returns_every_frame() {
    let frames = sixteen_mib();
    let mut pair = Pair::new(&frames, 8);
    (1..1000).for_each(|index| assert!(pair.store(Bytes(index * 4))));
    // The first leaf goes, so that its number is free while a later one is in use.
    (0..600).for_each(|_| pair.free(0));
    drop(pair.pool);
    assert_eq!(frames.frames_used(), PageCount(0));
}

#[test]
fn names_that_are_not_in_use_are_noticed() {
    let frames = sixteen_mib();
    let mut pool = Zsmalloc::new(&frames, 16);
    let handle = pool.alloc(Bytes(77)).unwrap();
    let other = pool.alloc(Bytes(77)).unwrap();
    pool.free(handle);
    for name in [handle, Handle(0), Handle(511), Handle(512), Handle(u32::MAX)] {
        let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.size(name)));
        assert!(attempt.is_err(), "{name:?} passed");
    }
    assert_eq!(pool.size(other), Bytes(77));
}

#[test]
fn objects_survive_the_way_to_other_blocks() {
    let frames = two_zones();
    let mut pair = Pair::new(&frames, 16);
    for index in 0..5000 {
        assert!(pair.store(Bytes((index * 97) % 4000 + 1)));
    }
    let full = frames.stats();
    assert!(full.zone(Mobility::EasyReclaim).used.0 > 2000, "{full:?}");
    // Every zspage is left with some objects, all over the blocks.
    (0..4000).for_each(|turn| pair.free(turn * 7 % (5000 - turn)));
    let used = frames.stats().zone(Mobility::EasyReclaim).used;
    let target = Bytes(2 * BLOCK_BYTES) + Bytes(used.bytes().0.next_multiple_of(BLOCK_BYTES));
    let shrunk = pair.pool.shrink_frames(target);
    assert_eq!(shrunk, Shrunk { online: target, held_back_by: None });
    assert!(frames.stats().zone(Mobility::EasyReclaim).migrations > 0);
    pair.check();
    // What is left cannot go lower than it is large; it says so, and nothing is lost.
    let shrunk = pair.pool.shrink_frames(Bytes(0));
    assert!(shrunk.online > Bytes(0) && shrunk.held_back_by.is_some());
    pair.check();
    frames.grow(Bytes(3 * BLOCK_BYTES)).unwrap();
    (0..500).for_each(|index| assert!(pair.store(Bytes(index * 8 + 1))));
    pair.check();
    pair.finish();
}

#[test]
fn a_second_pool_does_not_move_the_objects_of_the_first() {
    let frames = two_zones();
    let (mut first, mut second) = (Pair::new(&frames, 8), Pair::new(&frames, 8));
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
    // With the first gone, the second can be moved.
    drop(first);
    second.store(Bytes(100));
    second.store(Bytes(3000));
    let shrunk = second.pool.shrink_frames(Bytes(BLOCK_BYTES));
    assert_eq!(shrunk, Shrunk { online: Bytes(BLOCK_BYTES), held_back_by: None });
    second.finish();
}
