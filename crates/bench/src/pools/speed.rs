//! How long single calls of a pool take: storing, reading and freeing objects in any order, and
//! short steps of compaction.
//!
//! What a read adds to the work of its reader is found by comparison: the reader passes over all
//! bytes of an object in an allocation of its own, then over those of one the pool lends, in turn.

use std::hint::black_box;

use coldpress_mem::pools::{Compacted, Pool};
use coldpress_sys::Bytes;

use super::kind::Work;
use super::store::Store;
use crate::random::Random;
use crate::statistics::Sample;
use crate::ticks::Stopwatch;

/// Bytes a step of compaction may move here: what a reader might have to wait for.
pub const STEP: Bytes = Bytes::kib(16);

/// The work.
#[derive(Clone, Copy, Debug)]
pub struct Speed<'s> {
    /// Bytes of each object; at least two.
    pub sizes: &'s [u16],
    /// What times are taken with.
    pub watch: &'s Stopwatch,
}

/// Nanoseconds of single calls.
#[derive(Clone, Debug)]
pub struct Times {
    /// Storing an object: allocation and write.
    pub store: Sample,
    /// Reading one, with a pass over its bytes.
    pub read: Sample,
    /// The same pass over an object that is an allocation of its own.
    pub plain_read: Sample,
    /// Freeing one.
    pub free: Sample,
    /// Steps of compaction after half of the objects were freed; nothing when there was none.
    pub compact: Option<Sample>,
}

impl Work for Speed<'_> {
    type Found = Option<Times>;

    fn run<P: Pool>(self, pool: P) -> Option<Times> {
        let mut store = Store::new(pool);
        let mut random = Random::new(6);
        // The frames come into memory before anything is measured.
        store.fill(self.sizes);
        store.free_down_to(0, &mut random);
        let (mut stores, mut objects) = (Vec::new(), Vec::new());
        for size in self.sizes {
            let (ns, handle) = self.watch.time(|| store.put(*size));
            stores.push(ns);
            objects.push((handle, vec![1; usize::from(*size)].into_boxed_slice()));
        }
        random.shuffle(&mut objects);
        let pool = &mut store.pool;
        let (mut reads, mut plain_reads) = (Vec::new(), Vec::new());
        for (handle, plain) in &objects {
            plain_reads.push(self.watch.time(|| pass_over(plain)).0);
            reads.push(self.watch.time(|| pool.read(*handle, pass_over)).0);
        }
        let gone = &objects[objects.len() / 2..];
        let frees = gone.iter().map(|(handle, _)| self.watch.time(|| pool.free(*handle)).0);
        let frees = Sample::new(frees);
        // What moves ten times as much as there is finds no end.
        let steps_max = 10 * (pool.stats().bytes_stored.0 / STEP.0 + 1);
        let steps = std::iter::from_fn(|| {
            let (ns, step) = self.watch.time(|| pool.compact(STEP));
            (step != Compacted::default()).then_some(ns)
        });
        let compact = Sample::new(steps.take(steps_max));
        let (store, read, plain_read) =
            (Sample::new(stores)?, Sample::new(reads)?, Sample::new(plain_reads)?);
        Some(Times { store, read, plain_read, free: frees?, compact })
    }
}

/// Reads every byte, as decompression does.
fn pass_over(bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    black_box((sum, rest.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte))));
}
