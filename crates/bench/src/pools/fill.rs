//! Objects stored once: what the tables of the mails on xcfmalloc and zsmalloc show.

use std::time::{Duration, Instant};

use coldpress_mem::pools::{ClassStats, Pool, PoolStats};

use super::kind::Work;
use super::store::Store;

/// The work: an object of each size is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill<'s> {
    /// The bytes of each object.
    pub sizes: &'s [u16],
    /// Whether to ask for the classes.
    pub with_classes: bool,
}

/// The state of a filled pool.
#[derive(Clone, Debug)]
pub(crate) struct Filled {
    /// The statistics of the whole pool.
    pub stats: PoolStats,
    /// The classes that have frames, the smallest size first; none unless [`Fill::with_classes`]
    /// asks for them.
    pub classes: Vec<ClassStats>,
    /// The time to store all objects, with their contents.
    pub time: Duration,
}

impl Work for Fill<'_> {
    type Output = Filled;

    fn run<P: Pool>(self, pool: P) -> Filled {
        let mut store = Store::new(pool);
        let started = Instant::now();
        store.fill(self.sizes);
        let time = started.elapsed();
        let mut classes = Vec::new();
        if self.with_classes {
            store.pool.classes(&mut |class| classes.push(class));
            classes.reverse();
        }
        Filled { stats: store.pool.stats(), classes, time }
    }
}

/// Returns the sums over classes, as in the last line of the mail's tables; class, size and frames
/// of a zspage are zero.
pub(crate) fn total(classes: &[ClassStats]) -> ClassStats {
    classes.iter().fold(ClassStats::default(), |mut sum, class| {
        sum.almost_full += class.almost_full;
        sum.almost_empty += class.almost_empty;
        sum.obj_allocated += class.obj_allocated;
        sum.obj_used += class.obj_used;
        sum.pages_used += class.pages_used;
        sum.freeable += class.freeable;
        sum
    })
}
