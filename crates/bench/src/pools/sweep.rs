//! The microbenchmark the reviewers of xcfmalloc asked for: one sequence of allocations through
//! every pool, the sizes swept from the smallest to the largest. All objects are allocated, then
//! all are freed; and each object is freed before the next is allocated, in a pool that holds all
//! others and in an empty one.
//!
//! Nothing is written to the objects. A first pass over the whole sequence warms up, so that the
//! frames are in memory; it is not measured.

use std::hint::black_box;
use std::time::Instant;

use coldpress_mem::pools::Pool;
use coldpress_sys::{Bytes, PAGE_BYTES};

use super::kind::Work;
use super::store::{HELD, footprint};

/// The smallest size of the sweep.
const LEAST: usize = 32;

/// The work: allocations of sizes from the smallest to the largest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    /// The bytes from one size to the next.
    pub step: usize,
    /// The number of objects of each size.
    pub each: usize,
}

/// The figures of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Swept {
    /// The bytes of the objects.
    pub size: usize,
    /// The nanoseconds of an allocation, when all are allocated.
    pub alloc_ns: f64,
    /// The nanoseconds of a free, when all are freed in the order they were allocated.
    pub free_ns: f64,
    /// The nanoseconds of an allocation and its free, one object at a time, beside all objects of
    /// the sweep.
    pub pair_ns: f64,
    /// The same in an empty pool, which gets its frames for each object.
    pub alone_ns: f64,
    /// The bytes by which the pool grew for each object, while the objects were allocated.
    pub grown: f64,
}

impl Sweep {
    /// Returns the sizes, in ascending order; 32 and 4096 are among them.
    pub(crate) fn sizes(self) -> impl Iterator<Item = usize> {
        (LEAST..PAGE_BYTES).step_by(self.step.max(1)).chain([PAGE_BYTES])
    }
}

impl Work for Sweep {
    type Output = Vec<Swept>;

    fn run<P: Pool>(self, pool: P) -> Vec<Swept> {
        self.pass(&pool);
        let mut swept = self.pass(&pool);
        for row in &mut swept {
            row.alone_ns = self.pairs(&pool, Bytes(row.size));
        }
        swept
    }
}

impl Sweep {
    fn pass<P: Pool>(self, pool: &P) -> Vec<Swept> {
        let each = self.each.max(1);
        let per_object = 1.0 / each as f64;
        let mut handles = Vec::with_capacity(each * self.sizes().count());
        let mut swept = Vec::new();
        for size in self.sizes() {
            let before = footprint(&pool.stats());
            let started = Instant::now();
            for _ in 0..each {
                handles.push(pool.alloc(Bytes(size)).expect("the span has room for the sweep"));
            }
            let alloc_ns = started.elapsed().as_nanos() as f64 * per_object;
            let grown = footprint(&pool.stats()).0 as f64 - before.0 as f64;
            swept.push(Swept { size, alloc_ns, grown: grown * per_object, ..Swept::default() });
        }
        for row in &mut swept {
            row.pair_ns = self.pairs(pool, Bytes(row.size));
        }
        for (row, handles) in swept.iter_mut().zip(handles.chunks(each)) {
            let started = Instant::now();
            handles.iter().for_each(|handle| pool.free(*handle).expect(HELD));
            row.free_ns = started.elapsed().as_nanos() as f64 * per_object;
        }
        swept
    }

    fn pairs<P: Pool>(self, pool: &P, size: Bytes) -> f64 {
        let each = self.each.max(1);
        let started = Instant::now();
        for _ in 0..each {
            let handle = pool.alloc(size).expect("the span has room for one more");
            pool.free(black_box(handle)).expect(HELD);
        }
        started.elapsed().as_nanos() as f64 / each as f64
    }

    /// Returns the most objects that there are at a time.
    pub(crate) fn objects(self) -> usize {
        self.sizes().count() * self.each.max(1)
    }
}
