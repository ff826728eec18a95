//! For tests: a pool of any kind beside its oracle.

use std::collections::{HashSet, VecDeque};

use coldpress_sys::page::BLOCK_BYTES;

use super::naive::Naive;
use super::*;
use crate::frames::hog::Hog;
use crate::frames::{Config, FrameAllocator};

/// A kind of pool that tests can make; a type of its own, because a pool's type names the life of
/// its frames.
pub(super) trait Kind {
    type Pool<'f>: Pool;

    /// Whether the frames of the pool can be moved.
    const MOVES: bool;

    fn make(frames: &FrameAllocator) -> Self::Pool<'_>;

    /// Returns the memory of the pool besides frames.
    fn own_bytes(pool: &Self::Pool<'_>) -> Bytes {
        Bytes(size_of_val(pool))
    }

    /// Switches to a pool of another kind, if it can be switched.
    fn switch<'f>(_: &mut Self::Pool<'f>, _: &'f FrameAllocator, _: PoolKind) {}

    /// Returns whether an object should be allocated anew.
    fn is_former(_: &Self::Pool<'_>, _: Handle) -> bool {
        false
    }
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
        Xcfmalloc::with(frames, config)
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

/// A pool of any kind after a pool of any other.
pub(super) struct Switched;

impl Kind for Switched {
    type Pool<'f> = Switch<Box<AnyPool<'f>>>;

    const MOVES: bool = true;

    fn make(frames: &FrameAllocator) -> Self::Pool<'_> {
        Switch::new(Box::new(AnyPool::new(PoolKind::Zsmalloc, frames)))
    }

    fn own_bytes(pool: &Self::Pool<'_>) -> Bytes {
        let pools = 1 + usize::from(pool.former().is_some());
        Bytes(size_of_val(pool) + pools * size_of::<AnyPool<'_>>())
    }

    fn switch<'f>(pool: &mut Self::Pool<'f>, frames: &'f FrameAllocator, kind: PoolKind) {
        let (before, was_left) = (pool.current().kind(), pool.former().map(|it| it.stats()));
        let switched = pool.switch(Box::new(AnyPool::new(kind, frames)));
        if was_left.is_some_and(|left| left.objects > 0) {
            assert_eq!((switched, pool.current().kind()), (false, before));
            assert_eq!(pool.former().map(|it| it.stats()), was_left);
        } else {
            assert_eq!((switched, pool.current().kind()), (true, kind));
            assert_eq!(pool.former().map(AnyPool::kind), Some(before));
        }
    }

    fn is_former(pool: &Self::Pool<'_>, handle: Handle) -> bool {
        pool.is_former(handle)
    }
}

pub(super) fn sixteen_mib() -> FrameAllocator {
    let frames = FrameAllocator::new();
    frames.init(Config::one_zone(Bytes(8 * BLOCK_BYTES))).expect("there is address space");
    frames
}

/// Returns `count`, or a fiftieth of it under miri, which takes a millisecond where other builds
/// take a microsecond.
pub(super) const fn many(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(50) } else { count }
}

/// Makes an allocator of twelve blocks, of which two are core and three can still be added.
pub(super) fn two_zones() -> FrameAllocator {
    let frames = FrameAllocator::new();
    let blocks = |count| Bytes(count * BLOCK_BYTES);
    let (span, online) = (blocks(12), blocks(9));
    let config = Config { core: Some(blocks(2)), online, ..Config::one_zone(span) };
    frames.init(config).expect("there is address space");
    frames
}

/// Makes an allocator for a few thousand objects of a pool, in both zones if the pool can move
/// them.
pub(super) fn room_for<K: Kind>() -> FrameAllocator {
    if K::MOVES { two_zones() } else { sixteen_mib() }
}

/// The period of an object's contents. Under miri, where making them takes long, it is a prime, so
/// that bytes displaced by a block or a frame differ.
const CONTENTS: usize = if cfg!(miri) { 61 } else { PAGE_BYTES };

/// Returns bytes that differ between objects and along each object.
pub(super) fn contents(seed: u32, size: Bytes) -> Vec<u8> {
    let words = (0..).map(|index: u32| (seed ^ index).wrapping_mul(0x9e37_79b1).rotate_left(11));
    let turn: Vec<_> = words.flat_map(u32::to_ne_bytes).take(size.0.min(CONTENTS)).collect();
    let mut bytes = turn.repeat(size.0.div_ceil(CONTENTS));
    bytes.truncate(size.0);
    bytes
}

/// Expects that a pool does not know a handle, and is left as it was.
pub(super) fn refuses(pool: &impl Pool, handle: Handle) {
    let before = pool.stats();
    assert_eq!(pool.size(handle), Err(UnknownHandle), "{handle:?}");
    assert_eq!(pool.read(handle, |_| panic!("{handle:?} reads")), Err::<(), _>(UnknownHandle));
    assert_eq!(pool.write(handle, &[]), Err(UnknownHandle), "{handle:?}");
    assert_eq!(pool.free(handle), Err(UnknownHandle), "{handle:?}");
    assert_eq!(pool.stats(), before, "{handle:?}");
}

/// A pool beside its oracle, with the names of the objects in both.
pub(super) struct Pair<'f, K: Kind> {
    pub(super) pool: K::Pool<'f>,
    naive: Naive,
    pub(super) held: Vec<(Handle, Handle)>,
    /// Handles of objects that were freed recently.
    gone: VecDeque<Handle>,
    frames: &'f FrameAllocator,
    pub(super) hog: Hog<'f>,
    seed: u32,
}

/// Maximum number of freed handles that are kept.
const GONE_MAX: usize = 256;
/// The message for a handle that pool and oracle must know.
const HELD: &str = "both hold the object";

impl<'f, K: Kind> Pair<'f, K> {
    pub(super) fn new(frames: &'f FrameAllocator) -> Self {
        let pool = K::make(frames);
        let hog = Hog::new(frames);
        let (naive, held, gone) = (Naive::default(), Vec::new(), VecDeque::new());
        Self { pool, naive, held, gone, frames, hog, seed: 0 }
    }

    /// Returns whether there was a frame for the object, which is allocated and written in both.
    pub(super) fn store(&mut self, size: Bytes) -> bool {
        self.seed += 1;
        match self.pool.alloc(size) {
            Ok(handle) => {
                let oracle = self.naive.alloc(size).expect("it takes any size");
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
        let bytes = contents(self.seed, self.naive.size(oracle).expect(HELD));
        self.pool.write(handle, &bytes).expect(HELD);
        self.naive.write(oracle, &bytes).expect(HELD);
    }

    /// Switches to an empty pool, if it can be switched.
    pub(super) fn switch(&mut self, kind: PoolKind) {
        K::switch(&mut self.pool, self.frames, kind);
    }

    /// Allocates up to `count` objects of the former pool anew.
    pub(super) fn renew(&mut self, count: usize) {
        let old = |(_, (handle, _)): &(usize, &(Handle, Handle))| K::is_former(&self.pool, *handle);
        let old: Vec<_> = self.held.iter().enumerate().filter(old).map(|(at, _)| at).collect();
        for which in old.into_iter().take(count) {
            let (handle, _) = self.held[which];
            let bytes = self.pool.read(handle, <[u8]>::to_vec).expect(HELD);
            let Ok(new) = self.pool.alloc(Bytes(bytes.len())) else { return };
            assert!(!K::is_former(&self.pool, new), "a new object lies in the former pool");
            self.pool.write(new, &bytes).expect(HELD);
            self.pool.free(handle).expect(HELD);
            self.held[which].0 = new;
            self.note_gone(handle);
        }
    }

    pub(super) fn verify(&mut self, which: usize) {
        let (handle, oracle) = self.held[which];
        assert_eq!(self.pool.size(handle), self.naive.size(oracle));
        let expected = self.naive.read(oracle, <[u8]>::to_vec).expect(HELD);
        let compare = |bytes: &[u8]| assert!(bytes == expected, "{handle:?} changed");
        self.pool.read(handle, compare).expect(HELD);
    }

    pub(super) fn free(&mut self, which: usize) {
        self.verify(which);
        let (handle, oracle) = self.held.swap_remove(which);
        self.pool.free(handle).expect(HELD);
        self.naive.free(oracle).expect(HELD);
        self.note_gone(handle);
    }

    fn note_gone(&mut self, handle: Handle) {
        if self.gone.len() == GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back(handle);
    }

    /// Uses a handle whose object is gone, in every way. The pool must refuse it; where stamps are
    /// not checked, only if its name is not in use again.
    pub(super) fn use_gone(&mut self, which: usize) {
        let Some(&handle) = self.gone.get(which % self.gone.len().max(1)) else { return };
        let in_use = || self.held.iter().any(|(held, _)| held.name() == handle.name());
        if CHECKS_HANDLES || !in_use() {
            refuses(&self.pool, handle);
        }
    }

    /// Compares everything, and checks the pool's figures against the frames actually taken.
    pub(super) fn check(&mut self) {
        self.pool.check();
        self.frames.check();
        (0..self.held.len()).for_each(|which| self.verify(which));
        let names: HashSet<_> = self.held.iter().map(|(handle, _)| handle.name()).collect();
        assert!(names.len() == self.held.len() && !names.contains(&0), "a name was given twice");
        let (stats, expected) = (self.pool.stats(), self.naive.stats());
        assert_eq!(self.pool.frames(), stats.frames);
        assert_eq!(stats.objects, expected.objects);
        assert_eq!(stats.bytes_stored, expected.bytes_stored);
        let tables = stats.metadata - K::own_bytes(&self.pool);
        assert_eq!(stats.frames + tables.pages_up() + self.hog.held(), self.frames.frames_used());
    }

    /// Frees the remaining objects and expects every frame back.
    pub(super) fn finish(mut self) {
        (0..self.held.len()).rev().for_each(|which| self.free(which));
        self.hog.leave(usize::MAX);
        self.check();
        assert_eq!(self.frames.frames_used(), PageCount(0));
    }
}
