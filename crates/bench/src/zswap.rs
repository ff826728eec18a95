//! Stores and loads pages, by one thread and by two at once, beside the codec alone, to find what
//! zswap and its pool add to a page each way.
//!
//! The same thread stores and loads a page, under a key of its own, as with the pages of one
//! program. The time of a page is compared with the codec's time for the same work, in turn: each
//! round one of the two is first. Pages are loaded in another order than they were stored in, and
//! after all were stored, so that they have left the nearest caches on both sides.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use coldpress_codec::{Codec, CodecError, CodecId};
use coldpress_mem::pools::Pool;
use coldpress_sys::{PAGE_BYTES, Page, PageCount};
use coldpress_zswap::{Area, Key, Knobs, Loaded, Zswap};
use serde_json::{Value, json};

use crate::pools::{Kind, Work};
use crate::random::Random;
use crate::report::{Goal, Table};
use crate::statistics::Sample;
use crate::ticks::Stopwatch;

/// The most that zswap and pool may add to a page, each way, in nanoseconds.
const GOAL_NS: f64 = 500.0;

/// The work of a measurement: the pages to store and load, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load<'p> {
    /// The pages to store; none holds one repeated word.
    pub pages: &'p [Page],
    /// The codec that compresses pages.
    pub codec: CodecId,
    /// The number of threads at once, each with its part of the pages.
    pub threads: usize,
    /// The number of times that each side stores and loads all pages.
    pub rounds: usize,
    /// The stopwatch that takes the times.
    pub watch: &'p Stopwatch,
}

/// The times of one side, one way.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// The nanoseconds of single calls.
    pub ns: Sample,
    /// The pages a second by all threads together, in each round.
    pub rate: Sample,
}

/// The times of one side, both ways.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    /// The times to store, or compress.
    pub store: Way,
    /// The times to load, or decompress.
    pub load: Way,
}

/// The times of both sides with one number of threads.
#[derive(Clone, Debug)]
pub(crate) struct PairedFigures {
    /// The number of threads at once.
    pub threads: usize,
    /// The codec alone.
    pub codec: Side,
    /// Codec, zswap and pool.
    pub zswap: Side,
}

/// The calls of one thread in one round and one way.
struct Taken {
    ns: Vec<f64>,
    seconds: f64,
}

/// A contestant, which stores and loads pages for one thread.
trait Contestant {
    fn store(&mut self, number: usize, page: &Page);
    fn load(&mut self, number: usize, page: &mut Page);
    /// Drops the stored pages.
    fn clear(&mut self);
}

/// The codec alone: its compressed pages lie in allocations of their own.
struct Alone {
    codec: Codec,
    out: Vec<u8>,
    lengths: Vec<usize>,
    stored: Vec<Box<[u8]>>,
}

impl Alone {
    fn new(id: CodecId, pages: usize) -> Result<Self, CodecError> {
        let stored = vec![vec![1; PAGE_BYTES].into_boxed_slice(); pages];
        let (codec, out) = (Codec::new(id)?, vec![0; PAGE_BYTES]);
        Ok(Self { codec, out, lengths: vec![0; pages], stored })
    }
}

impl Contestant for Alone {
    fn store(&mut self, number: usize, page: &Page) {
        let made = self.codec.compress(page, &mut self.out[..PAGE_BYTES - 1]);
        self.lengths[number] = black_box(made).map_or(0, <[u8]>::len);
    }

    fn load(&mut self, number: usize, page: &mut Page) {
        let bytes = &self.stored[number][..self.lengths[number]];
        match bytes.len() {
            0 => page.copy_from_slice(&self.stored[number]),
            _ => self.codec.decompress(bytes, page).expect("it was made by this codec"),
        }
    }

    fn clear(&mut self) {}
}

/// A store that all threads use, and the area of one thread.
struct Shared<'z, P> {
    zswap: &'z Zswap<P>,
    area: u16,
}

impl<P: Pool> Contestant for Shared<'_, P> {
    fn store(&mut self, number: usize, page: &Page) {
        let key = Key::new(self.area, number as u64);
        self.zswap.store(key, page).expect("the store has no limit");
    }

    fn load(&mut self, number: usize, page: &mut Page) {
        let loaded = self.zswap.load(Key::new(self.area, number as u64), page);
        assert!(
            matches!(loaded, Ok(Loaded::SameFilled | Loaded::FromPool)),
            "a page is not in the pool: {loaded:?}"
        );
    }

    fn clear(&mut self) {
        self.zswap.invalidate_area(Area(self.area));
    }
}

impl Load<'_> {
    /// Stores and loads the pages of one thread. The threads that share `barrier` do so at the same
    /// time.
    fn pass(
        &self,
        contestant: &mut impl Contestant,
        pages: &[Page],
        order: &[usize],
        barrier: &Barrier,
    ) -> [Taken; 2] {
        let store = timed(barrier, pages.len(), |number| {
            self.watch.time(|| contestant.store(number, &pages[number])).0
        });
        let mut back = [0; PAGE_BYTES];
        let load = timed(barrier, order.len(), |number| {
            let number = order[number];
            let (ns, ()) = self.watch.time(|| contestant.load(number, &mut back));
            ns
        });
        contestant.clear();
        [store, load]
    }

    /// Runs all rounds of one thread. Returns the times of the codec alone, and of zswap.
    fn rounds<P: Pool>(
        &self,
        zswap: &Zswap<P>,
        thread: usize,
        pages: &[Page],
        barrier: &Barrier,
    ) -> Result<Vec<[[Taken; 2]; 2]>, CodecError> {
        let mut alone = Alone::new(self.codec, pages.len())?;
        // Decompression must read what compression made.
        for (number, page) in pages.iter().enumerate() {
            alone.store(number, page);
            let length = alone.lengths[number];
            match length {
                0 => alone.stored[number].copy_from_slice(page),
                _ => alone.stored[number][..length].copy_from_slice(&alone.out[..length]),
            }
        }
        let mut shared = Shared { zswap, area: thread as u16 };
        let mut order: Vec<usize> = (0..pages.len()).collect();
        Random::new(thread as u64 + 8).shuffle(&mut order);
        let both = (0..=self.rounds).map(|round| {
            if round % 2 == 0 {
                let codec = self.pass(&mut alone, pages, &order, barrier);
                [codec, self.pass(&mut shared, pages, &order, barrier)]
            } else {
                let zswap = self.pass(&mut shared, pages, &order, barrier);
                [self.pass(&mut alone, pages, &order, barrier), zswap]
            }
        });
        // The first round warms caches and brings frames into memory.
        Ok(both.collect::<Vec<_>>().into_iter().skip(1).collect())
    }
}

/// Calls `call` for each number, and keeps the times that it returns. Starts together with the
/// other threads.
fn timed(barrier: &Barrier, count: usize, mut call: impl FnMut(usize) -> f64) -> Taken {
    barrier.wait();
    let started = Instant::now();
    let ns = (0..count).map(&mut call).collect();
    Taken { ns, seconds: started.elapsed().as_secs_f64() }
}

impl Work for Load<'_> {
    type Output = Result<Option<PairedFigures>, CodecError>;

    fn run<P: Pool>(self, pool: P) -> Self::Output {
        let knobs = Knobs::new(self.codec, PageCount(usize::MAX));
        // Without memory for its buffers nothing is measured.
        let Ok(zswap) = Zswap::new(knobs, pool, None) else { return Ok(None) };
        let part = self.pages.len() / self.threads.max(1);
        if part == 0 {
            return Ok(None);
        }
        let barrier = Barrier::new(self.threads);
        let threads: Result<Vec<_>, _> = std::thread::scope(|scope| {
            let (zswap, barrier, this) = (&zswap, &barrier, &self);
            let parts = self.pages.chunks_exact(part).take(self.threads).enumerate();
            let threads: Vec<_> = parts
                .map(|(thread, pages)| {
                    scope.spawn(move || this.rounds(zswap, thread, pages, barrier))
                })
                .collect();
            let joined = threads.into_iter().map(|it| it.join().expect("no measurement panics"));
            joined.collect()
        });
        let threads = threads?;
        let way = |side: usize, way: usize| {
            let of = |round: &[[Taken; 2]; 2]| round[side][way].ns.clone();
            let all = threads.iter().flatten().flat_map(of);
            let rates = (0..self.rounds).map(|round| {
                let slowest = threads.iter().map(|it| it[round][side][way].seconds);
                (part * threads.len()) as f64 / slowest.fold(f64::MIN_POSITIVE, f64::max)
            });
            Some(Way { ns: Sample::new(all)?, rate: Sample::new(rates)? })
        };
        let side = |number| Some(Side { store: way(number, 0)?, load: way(number, 1)? });
        let both = side(0).zip(side(1));
        Ok(both.map(|(codec, zswap)| PairedFigures { threads: self.threads, codec, zswap }))
    }
}

impl PairedFigures {
    /// Returns the nanoseconds that zswap and pool add to the median of a store and of a load.
    pub(crate) fn added_ns(&self) -> [f64; 2] {
        let added = |zswap: &Way, codec: &Way| zswap.ns.median() - codec.ns.median();
        [added(&self.zswap.store, &self.codec.store), added(&self.zswap.load, &self.codec.load)]
    }

    /// Returns the same figures for programs, as JSON.
    pub(crate) fn numbers(&self) -> Value {
        let way = |way: &Way| {
            json!({
                "p50_ns": way.ns.median(),
                "p99_ns": way.ns.percentile(99.0),
                "pages_per_s": way.rate.median(),
            })
        };
        let side = |side: &Side| json!({ "store": way(&side.store), "load": way(&side.load) });
        let [store, load] = self.added_ns();
        json!({
            "threads": self.threads,
            "codec": side(&self.codec),
            "zswap": side(&self.zswap),
            "added_ns": { "store": store, "load": load },
        })
    }
}

/// Measures with one thread and with two, in a pool of that kind.
///
/// Fails when there is no memory for codec or pool.
pub(crate) fn measure(
    pages: &[Page],
    codec: CodecId,
    pool: Kind,
    rounds: usize,
    watch: &Stopwatch,
) -> Result<Vec<PairedFigures>, String> {
    let mut all = Vec::new();
    for threads in [1, 2] {
        let load = Load { pages, codec, threads, rounds, watch };
        let found = pool.run(pages.len(), load).map_err(|error| error.to_string())?;
        all.extend(found.map_err(|error| error.to_string())?);
    }
    Ok(all)
}

/// Makes the table of figures for people, and the goals.
pub(crate) fn table(all: &[PairedFigures]) -> (Table, Vec<Goal>) {
    let head = ["threads, way", "codec p50 ns", "zswap p50 ns", "added ns", "zswap pages/s"];
    let mut table = Table::new(&head);
    let mut goals = Vec::new();
    for found in all {
        let [store, load] = found.added_ns();
        let ways = [
            ("store", &found.codec.store, &found.zswap.store, store),
            ("load", &found.codec.load, &found.zswap.load, load),
        ];
        for (name, codec, zswap, added) in ways {
            table.row(vec![
                format!("{}, {name}", found.threads),
                format!("{:.0}", codec.ns.median()),
                format!("{:.0}", zswap.ns.median()),
                format!("{added:.0}"),
                format!("{:.0}", zswap.rate.median()),
            ]);
        }
        goals.push(Goal {
            text: format!("zswap and pool add less than {GOAL_NS:.0} ns a page each way"),
            found: format!("{store:.0} and {load:.0} ns with {} threads", found.threads),
            met: store < GOAL_NS && load < GOAL_NS,
        });
    }
    (table, goals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codecs::pages::Pages;

    #[test]
    fn every_page_is_timed_each_way_by_both() {
        let pages = Pages::text(64).test;
        let watch = Stopwatch::learn();
        let all = measure(&pages, CodecId::Lz4, Kind::Zsmalloc16, 2, &watch).unwrap();
        assert_eq!(all.iter().map(|found| found.threads).collect::<Vec<_>>(), [1, 2]);
        for found in &all {
            for side in [&found.codec, &found.zswap] {
                assert!(side.store.ns.least() > 0.0 && side.load.ns.least() > 0.0);
                assert!(side.store.rate.least() > 0.0);
            }
            let numbers = found.numbers();
            let added = numbers["added_ns"]["load"].as_f64().unwrap();
            assert!((added - found.added_ns()[1]).abs() < 1e-6);
        }
        let (table, goals) = table(&all);
        assert_eq!((table.to_string().lines().count(), goals.len()), (6, 2));
    }
}
