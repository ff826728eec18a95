//! A pool with its objects: every object has contents that follow from its handle, so any object
//! can be checked at any time.

use std::time::{Duration, Instant};

use coldpress_mem::pools::{Compacted, Handle, Pool, PoolStats};
use coldpress_sys::{Bytes, PAGE_BYTES};

use crate::random::Random;

/// The bytes that one step of compaction may move, as a service would do between other work.
const STEP: Bytes = Bytes::kib(256);
/// The reason why a pool knows a handle.
pub(super) const HELD: &str = "what was stored and not freed is there";
/// The interval of checks: one object in this many is checked.
const CHECKED: usize = 16;

/// A pool, and the handles of its objects.
pub(crate) struct Store<P> {
    /// The pool.
    pub pool: P,
    /// The handles of the pool's objects, in no order.
    pub held: Vec<Handle>,
    contents: Box<[u8]>,
}

/// The outcome of compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compaction {
    /// What compaction did.
    pub done: Compacted,
    /// The time that compaction took.
    pub time: Duration,
}

impl<P: Pool> Store<P> {
    /// Makes a store of an empty pool.
    pub(crate) fn new(pool: P) -> Self {
        let mut random = Random::new(5);
        let contents = (0..2 * PAGE_BYTES).map(|_| random.next() as u8).collect();
        Self { pool, held: Vec::new(), contents }
    }

    /// Stores an object with its contents; the caller keeps the handle.
    #[inline]
    pub(crate) fn put(&self, size: u16) -> Handle {
        let size = usize::from(size);
        let handle = self.pool.alloc(Bytes(size));
        let handle = handle.expect("the span has room for more objects than a work stores");
        self.pool.write(handle, contents_of(&self.contents, handle, size)).expect(HELD);
        handle
    }

    /// Stores an object of each size.
    pub(crate) fn fill(&mut self, sizes: &[u16]) {
        self.held.reserve(sizes.len());
        for size in sizes {
            let handle = self.put(*size);
            self.held.push(handle);
        }
    }

    /// Frees an object of `held`; the last one takes its place.
    #[inline]
    pub(crate) fn free(&mut self, place: usize) {
        self.pool.free(self.held.swap_remove(place)).expect(HELD);
    }

    /// Frees any objects until `count` are left.
    pub(crate) fn free_down_to(&mut self, count: usize, random: &mut Random) {
        while self.held.len() > count {
            self.free(random.below(self.held.len()));
        }
    }

    /// Compacts, step by step, until nothing is left to be gained. Stops a pool that finds no end
    /// when it has moved ten times what it holds.
    pub(crate) fn compact(&mut self) -> Compaction {
        let most = Bytes(self.pool.stats().bytes_stored.0.saturating_mul(10));
        let mut done = Compacted::default();
        let started = Instant::now();
        loop {
            let step = self.pool.compact(STEP);
            (done.moved, done.freed) = (done.moved + step.moved, done.freed + step.freed);
            if step == Compacted::default() || done.moved > most {
                return Compaction { done, time: started.elapsed() };
            }
        }
    }

    /// Compares some objects with what was written. Panics when an object differs.
    pub(crate) fn verify(&mut self) {
        for place in (0..self.held.len()).step_by(CHECKED) {
            let handle = self.held[place];
            let size = self.pool.size(handle).expect(HELD).0;
            let expected = contents_of(&self.contents, handle, size);
            let is_same = self.pool.read(handle, |bytes| bytes == expected);
            assert!(is_same.expect(HELD), "{handle:?} of {size} bytes changed");
        }
    }
}

/// Returns the contents of an object: handles side by side get places far apart (Knuth volume 3
/// section 6.4).
#[inline]
fn contents_of(contents: &[u8], handle: Handle, size: usize) -> &[u8] {
    let start = (handle.name().wrapping_mul(0x9e37_79b1) >> 16) as usize % PAGE_BYTES;
    &contents[start..start + size]
}

/// Returns the frames held relative to the bytes stored, 1 at best; without metadata.
pub(crate) fn density(stats: &PoolStats) -> f64 {
    stats.frames.bytes().0 as f64 / stats.bytes_stored.0.max(1) as f64
}

/// Returns the bytes of metadata for each object.
pub(crate) fn metadata_each(stats: &PoolStats) -> f64 {
    stats.metadata.0 as f64 / stats.objects.max(1) as f64
}

/// Returns everything that the pool takes.
pub(crate) fn footprint(stats: &PoolStats) -> Bytes {
    stats.frames.bytes() + stats.metadata
}
