//! The risk: a comparison in which pools do not get the same calls, or a table whose figures are
//! not those of the pool. The method: a pool that keeps its objects one by one and counts.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use coldpress_mem::frames::Shrunk;
use coldpress_mem::pools::{
    AllocError, ClassStats, Compacted, Handle, Pool, PoolStats, UnknownHandle,
};
use coldpress_sys::{Bytes, PageCount};

use super::density::{Churn, Density};
use super::fill::{Fill, total};
use super::kind::{Kind, Work};
use super::speed::Speed;
use super::store::{density, footprint, metadata_each};
use super::sweep::Sweep;
use crate::ticks::Stopwatch;

/// Calls with the sizes of their objects.
type Calls = Mutex<Vec<(char, usize)>>;

/// A pool with a page for each object; compaction gives back the pages that were freed since.
#[derive(Default)]
struct Counting<'c> {
    held: Mutex<Held>,
    calls: Option<&'c Calls>,
}

#[derive(Default)]
struct Held {
    objects: HashMap<Handle, Vec<u8>>,
    next: u32,
    gone: usize,
}

impl Counting<'_> {
    fn note(&self, call: char, size: usize) {
        if let Some(calls) = self.calls {
            calls.lock().unwrap().push((call, size));
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap()
    }
}

impl Pool for Counting<'_> {
    fn alloc(&self, size: Bytes) -> Result<Handle, AllocError> {
        self.note('a', size.0);
        let mut held = self.held();
        held.next += 1;
        let handle = Handle::new(held.next);
        held.objects.insert(handle, vec![0; size.0]);
        Ok(handle)
    }

    fn free(&self, handle: Handle) -> Result<(), UnknownHandle> {
        let mut held = self.held();
        let object = held.objects.remove(&handle).ok_or(UnknownHandle)?;
        self.note('f', object.len());
        held.gone += 1;
        Ok(())
    }

    fn size(&self, handle: Handle) -> Result<Bytes, UnknownHandle> {
        self.held().objects.get(&handle).map(|bytes| Bytes(bytes.len())).ok_or(UnknownHandle)
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle> {
        let mut held = self.held();
        held.objects.get_mut(&handle).ok_or(UnknownHandle)?.copy_from_slice(bytes);
        Ok(())
    }

    fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle> {
        self.note('r', 0);
        self.held().objects.get(&handle).map(|bytes| f(bytes)).ok_or(UnknownHandle)
    }

    fn stats(&self) -> PoolStats {
        let held = self.held();
        PoolStats {
            objects: held.objects.len(),
            bytes_stored: Bytes(held.objects.values().map(Vec::len).sum()),
            frames: PageCount(held.objects.len() + held.gone),
            metadata: Bytes(8 * held.objects.len()),
        }
    }

    fn classes(&self, visit: &mut dyn FnMut(ClassStats)) {
        for size in [4096, 32] {
            let (obj_used, size) = (self.held().objects.len() / 2, Bytes(size));
            visit(ClassStats { size, obj_used, pages_used: PageCount(3), ..Default::default() });
        }
    }

    fn compact(&self, _: Bytes) -> Compacted {
        let mut held = self.held();
        let freed = PageCount(held.gone.min(7));
        held.gone -= freed.0;
        Compacted { moved: Bytes(0), freed }
    }

    fn shrink_frames(&self, online: Bytes) -> Shrunk {
        Shrunk { online, held_back_by: None }
    }

    fn check(&mut self) {}
}

const SIZES: [u16; 20] =
    [1, 4096, 300, 20, 7, 9, 77, 1000, 2000, 3000, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

#[test]
fn churn_leaves_what_it_says_and_compaction_is_measured_behind_it() {
    for churn in Churn::ALL {
        let calls = Calls::default();
        let run = || {
            calls.lock().unwrap().clear();
            let pool = Counting { calls: Some(&calls), ..Counting::default() };
            (Density { sizes: &SIZES, churn }.run(pool), calls.lock().unwrap().clone())
        };
        let ((held, first), (_, second)) = (run(), run());
        assert_eq!(first, second, "{churn:?} makes other calls in another run");
        let (left, gone) = match churn {
            Churn::Fresh => (20, 0),
            Churn::Half => (10, 10),
            Churn::NineTenths => (2, 18),
            Churn::Turnover => (20, 200),
            Churn::Overwrite => (20, 40),
        };
        assert_eq!(churn.keeps_count(), left == 20);
        assert_eq!((held.left.objects, held.left.frames), (left, PageCount(left + gone)));
        assert_eq!((held.compacted.objects, held.compacted.frames), (left, PageCount(left)));
        assert_eq!(held.compaction.done.freed, PageCount(gone), "{churn:?}");
    }
}

#[test]
fn filling_keeps_the_order_and_classes_start_with_the_smallest() {
    let calls = Calls::default();
    let pool = Counting { calls: Some(&calls), ..Counting::default() };
    let filled = Fill { sizes: &SIZES, with_classes: true }.run(pool);
    let sizes = SIZES.map(|size| ('a', usize::from(size)));
    assert_eq!(*calls.lock().unwrap(), sizes);
    assert_eq!(filled.stats.objects, SIZES.len());
    let classes: Vec<_> = filled.classes.iter().map(|class| class.size.0).collect();
    assert_eq!(classes, [32, 4096]);
    let sum = total(&filled.classes);
    assert_eq!((sum.obj_used, sum.pages_used), (20, PageCount(6)));
}

#[test]
fn a_sweep_allocates_all_then_frees_all_then_takes_one_at_a_time() {
    let sweep = Sweep { step: 1000, each: 2 };
    assert_eq!(sweep.sizes().collect::<Vec<_>>(), [32, 1032, 2032, 3032, 4032, 4096]);
    let calls = Calls::default();
    let swept = sweep.run(Counting { calls: Some(&calls), ..Counting::default() });
    let calls = calls.into_inner().unwrap();
    let word = |calls: &[(char, usize)]| calls.iter().map(|call| call.0).collect::<String>();
    let pass = "a".repeat(12) + &"af".repeat(12) + &"f".repeat(12);
    assert_eq!(word(&calls), pass.clone() + &pass + &"af".repeat(12));
    assert_eq!(sweep.objects(), 12);
    for row in swept {
        // A page and 8 bytes of metadata for each object.
        assert_eq!(row.grown, 4104.0);
        let times = [row.alloc_ns, row.free_ns, row.pair_ns, row.alone_ns];
        assert!(times.iter().all(|ns| *ns > 0.0), "{row:?}");
    }
}

#[test]
fn speed_reads_every_object_and_frees_half() {
    let watch = Stopwatch::learn();
    let calls = Calls::default();
    let pool = Counting { calls: Some(&calls), ..Counting::default() };
    let times = Speed { sizes: &SIZES, watch: &watch }.run(pool).expect("there are objects");
    let count = |call| calls.lock().unwrap().iter().filter(|(other, _)| *other == call).count();
    // The first round warms up, the second has one thread, the third has two.
    assert_eq!((count('a'), count('r'), count('f')), (60, 40, 50));
    let [alone, together] = [times.alone, times.together];
    assert!(times.compact.is_some() && alone.read.most() > 0.0 && together.read.most() > 0.0);
    assert!(Speed { sizes: &[], watch: &watch }.run(Counting::default()).is_none());
}

#[test]
fn figures_are_per_byte_and_per_object() {
    let (objects, bytes_stored) = (4, Bytes(4096));
    let stats = PoolStats { objects, bytes_stored, frames: PageCount(2), metadata: Bytes(100) };
    assert_eq!((density(&stats), metadata_each(&stats)), (2.0, 25.0));
    assert_eq!(footprint(&stats), Bytes(8292));
    assert_eq!(density(&PoolStats::default()), 0.0);
}

#[test]
fn every_pool_is_found_by_its_name_and_works() {
    for kind in Kind::ALL {
        assert_eq!(Kind::named(kind.name()), Some(*kind));
        let found = kind.run(20, Fill { sizes: &SIZES, with_classes: false }).unwrap();
        assert_eq!(found.stats.objects, 20, "{}", kind.name());
    }
    assert_eq!(Kind::named("zsmalloc-3"), None);
}
