//! Risk guarded: verbs on one key at the same time, in every order of their critical sections. The
//! failures: a page that is lost, stale or another's; an object freed twice or read after it is
//! gone; callers that wait for each other.
//!
//! The store is the real one; only the pool is the model's: a few objects, each with a lock for its
//! pin. The store panics when it uses an object that is not there. Counters and eras are no part of
//! the model, because no decision rests on them. After each run all pages are dropped, and nothing
//! may be left.

use alloc::boxed::Box;
use alloc::vec::Vec;

use coldpress_backing::{MemoryBacking, SlotCount};
use coldpress_codec::CodecId;
use coldpress_sys::sync::SpinLock;
use coldpress_sys::{Bytes, PAGE_BYTES, Page, PageCount};
use loom::sync::Arc;
use loom::thread;

use crate::pool::{Handle, Pool, PoolStats, UnknownHandle};
use crate::seal::{KEY_BYTES, Sealer};
use crate::{Key, Knobs, LoadError, Loaded, Zswap};

/// Objects of the model's pool.
const OBJECTS: usize = 4;

/// A pool of few objects. An object's lock is its pin.
struct Few {
    objects: [SpinLock<Option<Vec<u8>>>; OBJECTS],
    /// The sizes of the objects that are taken, 0 for a free one; readable while their pins are
    /// held.
    taken: SpinLock<[usize; OBJECTS]>,
}

impl Few {
    fn new() -> Self {
        Self {
            objects: core::array::from_fn(|_| SpinLock::new(None)),
            taken: SpinLock::new([0; OBJECTS]),
        }
    }
}

impl Pool for Few {
    fn alloc(&self, size: Bytes) -> Result<Handle, ()> {
        let mut taken = self.taken.lock();
        let free = taken.iter().position(|size| *size == 0).ok_or(())?;
        taken[free] = size.0;
        Ok(Handle(free as u32))
    }

    fn free(&self, Handle(number): Handle) -> Result<(), UnknownHandle> {
        let object = self.objects[number as usize].lock().take();
        self.taken.lock()[number as usize] = 0;
        object.map(drop).ok_or(UnknownHandle)
    }

    fn write(&self, Handle(number): Handle, bytes: &[u8]) -> Result<(), UnknownHandle> {
        *self.objects[number as usize].lock() = Some(bytes.to_vec());
        Ok(())
    }

    fn read<R>(
        &self,
        Handle(number): Handle,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, UnknownHandle> {
        self.objects[number as usize].lock().as_deref().map(f).ok_or(UnknownHandle)
    }

    fn stats(&self) -> PoolStats {
        let taken = *self.taken.lock();
        let objects = taken.iter().filter(|size| **size > 0).count();
        let bytes_stored = Bytes(taken.iter().sum());
        PoolStats { objects, bytes_stored, frames: PageCount(objects), metadata: Bytes(0) }
    }
}

type Store = Zswap<Few>;

const KEY: Key = Key::new(0, 0);
/// A key in another shard.
const OTHER: Key = Key::new(0, 1024);

/// Makes page `number` of the model, which is stored raw.
fn page(number: u8) -> Box<Page> {
    let mut page = Box::new([number; PAGE_BYTES]);
    let mut state = u32::from(number) + 1;
    for byte in &mut page[1..] {
        state = state.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
        *byte = (state >> 24) as u8;
    }
    page
}

/// Returns the number of the page under `key`, if there is one.
fn look(store: &Store, key: Key) -> Option<u8> {
    let mut found = Box::new([0xAB; PAGE_BYTES]);
    loop {
        match store.load(key, &mut found) {
            Ok(Loaded::Missing) => return None,
            Ok(Loaded::Coming) => {
                store.wait();
                thread::yield_now();
            }
            Ok(Loaded::SameFilled | Loaded::FromPool | Loaded::FromBacking) => {
                assert!(*found == *page(found[0]), "wrong bytes");
                return Some(found[0]);
            }
            Err(LoadError::Corrupt | LoadError::Backing(_)) => panic!("a damaged page"),
        }
    }
}

/// Makes a store with page 1 under [`KEY`].
fn store() -> Arc<Store> {
    let knobs = Knobs::new(CodecId::Lz4, PageCount(OBJECTS));
    let backing = Box::new(MemoryBacking::new(SlotCount(4)));
    let sealer = Sealer::new(&[5; KEY_BYTES]).expect("the cipher works");
    let store = Zswap::new(knobs, Few::new(), Some((backing, sealer))).expect("there is memory");
    store.store(KEY, &page(1)).expect("there is room");
    Arc::new(store)
}

/// Bytes of a thread's stack: the checker's default is too small for a page and a cipher.
const STACK_BYTES: usize = 1 << 17;

/// Runs `job` on a thread of its own.
fn spawn(job: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(job).expect("there is a thread")
}

/// Runs the jobs side by side in all orders. Each page stored at the end must be page 1 or 2.
fn check<const JOBS: usize>(jobs: [fn(&Store); JOBS]) {
    check_within(None, jobs);
}

/// Runs the jobs as [`check`] does, in the orders with at most `interruptions` preemptions.
fn check_within<const JOBS: usize>(interruptions: Option<usize>, jobs: [fn(&Store); JOBS]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = interruptions;
    builder.max_branches = 20_000;
    builder.check(move || {
        spawn(move || run(&jobs)).join().expect("all jobs are done");
    });
}

fn run(jobs: &[fn(&Store)]) {
    let store = store();
    let (last, others) = jobs.split_last().expect("there are jobs");
    let threads: Vec<_> = others
        .iter()
        .map(|job| {
            let (job, store) = (*job, Arc::clone(&store));
            spawn(move || job(&store))
        })
        .collect();
    last(&store);
    for thread in threads {
        thread.join().expect("the job is done");
    }
    for key in [KEY, OTHER] {
        assert!(matches!(look(&store, key), None | Some(1 | 2)));
        store.invalidate(key);
    }
    let left = store.stats();
    assert_eq!((left.stored_pages, left.slots_used), (PageCount(0), 0));
    assert_eq!(store.pool().stats(), PoolStats::default());
}

fn loads_1(store: &Store) {
    assert_eq!(look(store, KEY), Some(1));
}

fn loads_1_or_2(store: &Store) {
    assert!(matches!(look(store, KEY), Some(1 | 2)));
}

fn loads_1_or_nothing(store: &Store) {
    assert!(matches!(look(store, KEY), None | Some(1)));
}

fn loads_any(store: &Store) {
    assert!(matches!(look(store, KEY), None | Some(1 | 2)));
}

fn stores_2(store: &Store) {
    store.store(KEY, &page(2)).expect("there is room");
}

fn writes_back(store: &Store) {
    store.shrink(PageCount(1));
}

fn invalidates(store: &Store) {
    store.invalidate(KEY);
}

fn renames(store: &Store) {
    store.rename(KEY, OTHER).expect("there is memory");
}

#[test]
fn a_load_meets_writeback() {
    check([loads_1, writes_back]);
}

#[test]
fn a_load_meets_an_invalidate() {
    check([loads_1_or_nothing, invalidates]);
}

#[test]
fn a_load_meets_a_store() {
    check([loads_1_or_2, stores_2]);
}

#[test]
fn two_loads_meet() {
    check([loads_1, loads_1]);
}

#[test]
fn writeback_meets_an_invalidate() {
    check([writes_back, invalidates]);
}

#[test]
fn writeback_meets_a_store() {
    // All orders would take more than minutes.
    check_within(Some(4), [writes_back, stores_2]);
}

#[test]
fn writeback_meets_writeback() {
    // All orders would take more than minutes.
    check_within(Some(4), [writes_back, writes_back]);
}

#[test]
fn writeback_meets_a_rename() {
    check([writes_back, renames]);
}

#[test]
fn one_of_two_invalidates_is_the_one() {
    check([invalidates, invalidates]);
}

#[test]
fn a_store_meets_an_invalidate() {
    check([stores_2, invalidates]);
}

#[test]
fn a_store_meets_a_store() {
    check([stores_2, stores_2]);
}

#[test]
fn a_rename_meets_a_store() {
    check([renames, stores_2]);
}

#[test]
fn a_load_meets_writeback_and_an_invalidate() {
    check([loads_1_or_nothing, writes_back, invalidates]);
}

#[test]
fn a_load_meets_a_store_and_an_invalidate() {
    check([loads_any, stores_2, invalidates]);
}
