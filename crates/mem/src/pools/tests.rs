//! Risk guarded: a compressed page that reads back wrong, is lost, or is never given back; and a
//! pool left half-changed when frames run out.
//!
//! Every pool goes through the same suite ([`suite!`]), beside a map from names to bytes; what only
//! one of them promises is tested beside it.

mod threads;

use std::collections::HashSet;

use coldpress_sys::page::BLOCK_BYTES;
use proptest::prelude::*;

use super::naive::Naive;
use super::*;
use crate::frames::hog::Hog;
use crate::frames::{Config, FrameAllocator, Mobility, Shrunk};

/// A pool that can be made; a type of its own, as a pool's type names the life of its frames.
pub(super) trait Kind {
    type Pool<'f>: Pool;

    /// Whether its frames can be moved.
    const MOVES: bool;

    fn make(frames: &FrameAllocator) -> Self::Pool<'_>;
}

pub(super) struct Chains<const MAX: usize>;

impl<const MAX: usize> Kind for Chains<MAX> {
    type Pool<'f> = Zsmalloc<'f>;

    const MOVES: bool = true;

    fn make(frames: &FrameAllocator) -> Zsmalloc<'_> {
        Zsmalloc::new(frames, MAX)
    }
}

pub(super) struct Blocks;

impl Kind for Blocks {
    type Pool<'f> = Xvmalloc<'f>;

    const MOVES: bool = false;

    fn make(frames: &FrameAllocator) -> Xvmalloc<'_> {
        Xvmalloc::new(frames)
    }
}

pub(super) struct Scattered<const BLOCKS: usize, const GRANULARITY: usize, const RESERVE: usize>;

impl<const BLOCKS: usize, const GRANULARITY: usize, const RESERVE: usize> Kind
    for Scattered<BLOCKS, GRANULARITY, RESERVE>
{
    type Pool<'f> = Xcfmalloc<'f>;

    const MOVES: bool = true;

    fn make(frames: &FrameAllocator) -> Xcfmalloc<'_> {
        let (granularity, reserve) = (Bytes(GRANULARITY), PageCount(RESERVE));
        let config = xcfmalloc::Config { max_blocks: BLOCKS, granularity, reserve };
        Xcfmalloc::new(frames, config)
    }
}

pub(super) struct Packed;

impl Kind for Packed {
    type Pool<'f> = Segments<'f>;

    const MOVES: bool = true;

    fn make(frames: &FrameAllocator) -> Segments<'_> {
        Segments::new(frames)
    }
}

/// The tests that every pool must pass.
macro_rules! suite {
    ($($name:ident: $kind:ty;)+) => { $(
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(32))]

                #[test]
                fn agrees_with_a_map(steps in prop::collection::vec(step(), 1..40)) {
                    run_steps::<$kind>(steps);
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
            fn running_out_of_frames_at_any_point_loses_and_leaks_nothing() {
                running_out::<$kind>();
            }

            #[test]
            fn dropping_a_pool_returns_every_frame() {
                dropping::<$kind>();
            }

            #[test]
            fn names_that_are_not_in_use_are_noticed() {
                bad_names::<$kind>();
            }

            #[test]
            fn objects_survive_the_way_to_other_blocks() {
                moving_frames::<$kind>();
            }

            #[test]
            fn compacting_changes_no_byte_and_gives_frames_back() {
                compacting::<$kind>();
            }

            #[test]
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

suite! {
    zsmalloc_of_1: Chains<1>;
    zsmalloc_of_4: Chains<4>;
    zsmalloc_of_16: Chains<16>;
    xvmalloc_alone: Blocks;
    xcfmalloc_of_1: Scattered<1, 256, 2>;
    xcfmalloc_of_2: Scattered<2, 64, 1>;
    xcfmalloc_of_4: Scattered<4, 16, 1>;
    segment: Packed;
}

pub(super) fn sixteen_mib() -> FrameAllocator {
    let frames = FrameAllocator::new();
    frames.init(Config::one_zone(Bytes(8 * BLOCK_BYTES))).unwrap();
    frames
}

/// Twelve blocks, of which two are core and three more can be added.
pub(super) fn two_zones() -> FrameAllocator {
    let frames = FrameAllocator::new();
    let blocks = |count| Bytes(count * BLOCK_BYTES);
    let (span, online) = (blocks(12), blocks(9));
    frames.init(Config { core: Some(blocks(2)), online, ..Config::one_zone(span) }).unwrap();
    frames
}

/// Room for a few thousand objects of a pool, in both zones if it can move them.
fn room_for<K: Kind>() -> FrameAllocator {
    if K::MOVES { two_zones() } else { sixteen_mib() }
}

/// Bytes that differ between objects and along each object.
fn contents(seed: u32, size: Bytes) -> Vec<u8> {
    let words = (0..).map(|index: u32| (seed ^ index).wrapping_mul(0x9e37_79b1).rotate_left(11));
    words.flat_map(u32::to_ne_bytes).take(size.0).collect()
}

/// A pool beside its oracle, with the names of what both hold.
pub(super) struct Pair<'f, K: Kind> {
    pub(super) pool: K::Pool<'f>,
    naive: Naive,
    pub(super) held: Vec<(Handle, Handle)>,
    frames: &'f FrameAllocator,
    pub(super) hog: Hog<'f>,
    seed: u32,
}

impl<'f, K: Kind> Pair<'f, K> {
    pub(super) fn new(frames: &'f FrameAllocator) -> Self {
        let pool = K::make(frames);
        let hog = Hog::new(frames);
        Self { pool, naive: Naive::default(), held: Vec::new(), frames, hog, seed: 0 }
    }

    /// Allocates and writes in both. `false` when the pool has no frame.
    pub(super) fn store(&mut self, size: Bytes) -> bool {
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

    pub(super) fn write(&mut self, which: usize) {
        let (handle, oracle) = self.held[which];
        self.seed += 1;
        let bytes = contents(self.seed, self.naive.size(oracle));
        self.pool.write(handle, &bytes);
        self.naive.write(oracle, &bytes);
    }

    pub(super) fn verify(&mut self, which: usize) {
        let (handle, oracle) = self.held[which];
        assert_eq!(self.pool.size(handle), self.naive.size(oracle));
        let expected = self.naive.read(oracle, <[u8]>::to_vec);
        self.pool.read(handle, |bytes| assert!(bytes == expected, "{handle:?} changed"));
    }

    pub(super) fn free(&mut self, which: usize) {
        self.verify(which);
        let (handle, oracle) = self.held.swap_remove(which);
        self.pool.free(handle);
        self.naive.free(oracle);
    }

    /// Compares everything, and holds the pool's figures to the frames really taken.
    pub(super) fn check(&mut self) {
        self.pool.check();
        self.frames.check();
        (0..self.held.len()).for_each(|which| self.verify(which));
        let names: HashSet<_> = self.held.iter().map(|(handle, _)| handle.0).collect();
        assert!(names.len() == self.held.len() && !names.contains(&0), "a name was given twice");
        let (stats, expected) = (self.pool.stats(), self.naive.stats());
        assert_eq!(stats.objects, expected.objects);
        assert_eq!(stats.bytes_stored, expected.bytes_stored);
        let tables = stats.metadata - Bytes(size_of::<K::Pool<'f>>());
        assert_eq!(stats.frames + tables.pages_up() + self.hog.held(), self.frames.frames_used());
    }

    /// Frees what is left and expects every frame back.
    pub(super) fn finish(mut self) {
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
    /// Bytes to move.
    Compact(usize),
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
        2 => prop_oneof![Just(usize::MAX), 0_usize..40_000].prop_map(Step::Compact),
    ]
}

fn run_steps<K: Kind>(steps: Vec<Step>) {
    let frames = two_zones();
    let mut pair = Pair::<K>::new(&frames);
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
                assert_eq!(shrunk.online, frames.online());
            }
            Step::Grow(blocks) => drop(frames.grow(Bytes(blocks * BLOCK_BYTES))),
            Step::Compact(budget) => drop(pair.pool.compact(Bytes(budget))),
        }
        pair.check();
    }
    pair.finish();
}

fn every_size<K: Kind>() {
    let frames = sixteen_mib();
    let mut pair = Pair::<K>::new(&frames);
    for size in (1..=4096).step_by(3).chain(1..50).chain(4080..=4096) {
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

/// A short script with short and long chains, shared and new zspages, frees in between.
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
        // One object is always there: the script may free it.
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
    (1..1000).for_each(|index| assert!(pair.store(Bytes(index * 4))));
    // The first leaf goes, so that its number is free while a later one is in use.
    (0..600).for_each(|_| pair.free(0));
    drop(pair.pool);
    assert_eq!(frames.frames_used(), PageCount(0));
}

fn bad_names<K: Kind>() {
    let frames = sixteen_mib();
    let pool = K::make(&frames);
    let handle = pool.alloc(Bytes(77)).unwrap();
    let other = pool.alloc(Bytes(77)).unwrap();
    pool.free(handle);
    for name in [handle, Handle(0), Handle(511), Handle(512), Handle(u32::MAX)] {
        let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.size(name)));
        assert!(attempt.is_err(), "{name:?} passed");
    }
    assert_eq!(pool.size(other), Bytes(77));
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

/// Objects of many sizes, of which all but every fourth are gone.
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
    let mut pair = with_holes::<K>(&frames, 4000);
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
    if K::MOVES {
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
    let pair = with_holes::<K>(&frames, 1000);
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
