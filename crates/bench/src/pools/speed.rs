//! The times of single calls of a pool: storing, reading and freeing objects in any order, by one
//! thread and by two at once, and short steps of compaction.
//!
//! A comparison shows what a read adds to the work of its reader. In turn, the reader passes over
//! all bytes of an object in an allocation of its own, and over those of an object that the pool
//! lends.

use std::hint::black_box;
use std::sync::Barrier;

use coldpress_mem::pools::{Compacted, Handle, Pool};
use coldpress_sys::Bytes;

use super::kind::Work;
use super::store::{HELD, Store};
use crate::random::Random;
use crate::statistics::Sample;
use crate::ticks::Stopwatch;

/// The bytes that a step of compaction may move here: a reader might have to wait for them.
pub(crate) const STEP: Bytes = Bytes::kib(16);

/// The work: single calls of a pool, timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed<'s> {
    /// The bytes of each object; at least two objects.
    pub sizes: &'s [u16],
    /// The stopwatch that takes the times.
    pub watch: &'s Stopwatch,
}

/// The nanoseconds of single calls.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    /// Storing an object: allocation and write.
    pub store: Sample,
    /// Reading an object, with a pass over its bytes.
    pub read: Sample,
    /// The same pass over an object that is an allocation of its own.
    pub plain_read: Sample,
    /// Freeing an object.
    pub free: Sample,
}

/// The result of the work.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// The calls of one thread.
    pub alone: Calls,
    /// The calls of two threads at once, each with half of the objects.
    pub together: Calls,
    /// The nanoseconds of steps of compaction by one thread, after half of the objects were freed;
    /// `None` when there was no step.
    pub compact: Option<Sample>,
}

/// The calls of some threads, and the objects that they did not free.
#[derive(Default)]
struct Taken {
    stores: Vec<f64>,
    reads: Vec<f64>,
    plain_reads: Vec<f64>,
    frees: Vec<f64>,
    left: Vec<Handle>,
}

impl Taken {
    fn join(mut self, mut other: Self) -> Self {
        self.stores.append(&mut other.stores);
        self.reads.append(&mut other.reads);
        self.plain_reads.append(&mut other.plain_reads);
        self.frees.append(&mut other.frees);
        self.left.append(&mut other.left);
        self
    }

    fn into_calls(self) -> Option<Calls> {
        Some(Calls {
            store: Sample::new(self.stores)?,
            read: Sample::new(self.reads)?,
            plain_read: Sample::new(self.plain_reads)?,
            free: Sample::new(self.frees)?,
        })
    }
}

impl Work for Speed<'_> {
    type Output = Option<Times>;

    fn run<P: Pool>(self, pool: P) -> Option<Times> {
        let mut store = Store::new(pool);
        let mut random = Random::new(6);
        // Brings the frames into memory before anything is measured.
        store.fill(self.sizes);
        store.free_down_to(0, &mut random);
        let mut alone = self.measure(&store, self.sizes, &Barrier::new(1), random);
        // Stops a compaction that moves ten times as much as there is: it would find no end.
        let pool = &store.pool;
        let steps_max = 10 * (pool.stats().bytes_stored.0 / STEP.0 + 1);
        let steps = std::iter::from_fn(|| {
            let (ns, step) = self.watch.time(|| pool.compact(STEP));
            (step != Compacted::default()).then_some(ns)
        });
        let compact = Sample::new(steps.take(steps_max));
        alone.left.drain(..).for_each(|handle| pool.free(handle).expect(HELD));
        let (first, second) = self.sizes.split_at(self.sizes.len() / 2);
        let barrier = Barrier::new(2);
        let together = std::thread::scope(|scope| {
            let other = scope.spawn(|| self.measure(&store, second, &barrier, Random::new(7)));
            let mine = self.measure(&store, first, &barrier, Random::new(8));
            mine.join(other.join().expect("what one thread can do, another can"))
        });
        Some(Times { alone: alone.into_calls()?, together: together.into_calls()?, compact })
    }
}

impl Speed<'_> {
    /// Stores objects, reads them all and frees half of them. The threads of `barrier` do the same
    /// at the same time.
    fn measure<P: Pool>(
        self,
        store: &Store<P>,
        sizes: &[u16],
        barrier: &Barrier,
        mut random: Random,
    ) -> Taken {
        let (mut taken, mut objects) = (Taken::default(), Vec::new());
        barrier.wait();
        for size in sizes {
            let (ns, handle) = self.watch.time(|| store.put(*size));
            taken.stores.push(ns);
            objects.push((handle, vec![1; usize::from(*size)].into_boxed_slice()));
        }
        random.shuffle(&mut objects);
        barrier.wait();
        for (handle, plain) in &objects {
            taken.plain_reads.push(self.watch.time(|| pass_over(plain)).0);
            let (ns, found) = self.watch.time(|| store.pool.read(*handle, pass_over));
            found.expect(HELD);
            taken.reads.push(ns);
        }
        barrier.wait();
        let (left, gone) = objects.split_at(objects.len() / 2);
        for (handle, _) in gone {
            let (ns, found) = self.watch.time(|| store.pool.free(*handle));
            found.expect(HELD);
            taken.frees.push(ns);
        }
        taken.left.extend(left.iter().map(|(handle, _)| *handle));
        taken
    }
}

/// Reads every byte, as decompression does.
fn pass_over(bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    black_box((sum, rest.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte))));
}
