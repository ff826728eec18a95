//! How much memory a pool holds for what is stored: when it was just filled, and after objects came
//! and went, before compaction and after it.

use coldpress_mem::pools::{Pool, PoolStats};

use super::kind::Work;
use super::store::{Compaction, HELD, Store};
use crate::random::Random;

/// How often every object is replaced in the steady state.
const TURNOVERS: usize = 10;

/// What happens to the objects of a full pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Churn {
    /// Nothing.
    Fresh,
    /// Half of them, any, are freed.
    Half,
    /// Nine tenths of them, any, are freed.
    NineTenths,
    /// Ten times as many as there are, one at a time, go, and another comes.
    Turnover,
    /// Every one is replaced twice, in any order; the new one comes before the old one goes, as
    /// when a page is stored again.
    Overwrite,
}

impl Churn {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Fresh, Self::Half, Self::NineTenths, Self::Turnover, Self::Overwrite];

    /// Its name in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Half => "half",
            Self::NineTenths => "nine-tenths",
            Self::Turnover => "turnover",
            Self::Overwrite => "overwrite",
        }
    }

    /// Whether as many objects are there afterwards as before.
    pub const fn keeps_count(self) -> bool {
        matches!(self, Self::Fresh | Self::Turnover | Self::Overwrite)
    }
}

/// What a pool held.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// After the churn, as it was left.
    pub left: PoolStats,
    /// After compaction.
    pub compacted: PoolStats,
    /// The compaction.
    pub compaction: Compaction,
}

/// The work: fill, churn, compact.
#[derive(Clone, Copy, Debug)]
pub struct Density<'s> {
    /// Bytes of each object, in the order they are stored; those that come later are drawn from
    /// them.
    pub sizes: &'s [u16],
    /// What happens.
    pub churn: Churn,
}

impl Work for Density<'_> {
    type Found = Held;

    fn run<P: Pool>(self, pool: P) -> Held {
        let mut store = Store::new(pool);
        store.fill(self.sizes);
        self.churn(&mut store, &mut Random::new(4));
        let left = store.pool.stats();
        let compaction = store.compact();
        store.verify();
        Held { left, compacted: store.pool.stats(), compaction }
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
