//! The memory that a pool holds for the stored bytes: when it was just filled, and after objects
//! came and went, before compaction and after it.

use coldpress_mem::pools::{Pool, PoolStats};

use super::kind::Work;
use super::store::{Compaction, HELD, Store};
use crate::random::Random;

/// The number of times that every object is replaced in the steady state.
const TURNOVERS: usize = 10;

/// The churn: what happens to the objects of a full pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Churn {
    /// Nothing happens.
    Fresh,
    /// Half of the objects, any of them, are freed.
    Half,
    /// Nine tenths of the objects, any of them, are freed.
    NineTenths,
    /// One object at a time goes and another comes, ten times as often as there are objects.
    Turnover,
    /// Every object is replaced twice, in any order; the new object comes before the old one goes,
    /// as when a page is stored again.
    Overwrite,
}

impl Churn {
    /// All churns.
    pub(crate) const ALL: [Self; 5] =
        [Self::Fresh, Self::Half, Self::NineTenths, Self::Turnover, Self::Overwrite];

    /// Returns the name of the churn in tables and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Half => "half",
            Self::NineTenths => "nine-tenths",
            Self::Turnover => "turnover",
            Self::Overwrite => "overwrite",
        }
    }

    /// Returns whether as many objects are there afterwards as before.
    pub(crate) const fn keeps_count(self) -> bool {
        matches!(self, Self::Fresh | Self::Turnover | Self::Overwrite)
    }
}

/// The memory that a pool held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolDensity {
    /// The statistics after the churn, before compaction.
    pub left: PoolStats,
    /// The statistics after compaction.
    pub compacted: PoolStats,
    /// The outcome of the compaction.
    pub compaction: Compaction,
}

/// The work: fill, churn, compact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Density<'s> {
    /// The bytes of each object, in the order they are stored; the sizes of later objects are drawn
    /// from them.
    pub sizes: &'s [u16],
    /// What happens to the objects.
    pub churn: Churn,
}

impl Work for Density<'_> {
    type Output = PoolDensity;

    fn run<P: Pool>(self, pool: P) -> PoolDensity {
        let mut store = Store::new(pool);
        store.fill(self.sizes);
        self.churn(&mut store, &mut Random::new(4));
        let left = store.pool.stats();
        let compaction = store.compact();
        store.verify();
        PoolDensity { left, compacted: store.pool.stats(), compaction }
    }
}

impl Density<'_> {
    fn churn<P: Pool>(self, store: &mut Store<P>, random: &mut Random) {
        let count = self.sizes.len();
        match self.churn {
            Churn::Fresh => {}
            Churn::Half => store.free_down_to(count / 2, random),
            Churn::NineTenths => store.free_down_to(count / 10, random),
            Churn::Turnover => {
                for _ in 0..TURNOVERS * count {
                    store.free(random.below(store.held.len()));
                    let handle = store.put(self.sizes[random.below(count)]);
                    store.held.push(handle);
                }
            }
            Churn::Overwrite => {
                for _ in 0..2 {
                    random.shuffle(&mut store.held);
                    for place in 0..count {
                        let handle = store.put(self.sizes[random.below(count)]);
                        let old = std::mem::replace(&mut store.held[place], handle);
                        store.pool.free(old).expect(HELD);
                    }
                }
            }
        }
    }
}
