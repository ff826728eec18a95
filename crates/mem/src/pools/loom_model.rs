//! Risk guarded: an object read while another thread moves or frees it, found in a leaf that is
//! gone, or reached by the handle of the one before it, in some order of their loads and stores.
//!
//! The code under test is that of pins and stamps; the rest of a pool is the model's, as small as
//! may be: a leaf with one word, an object, two places for it, and the lock that movers and freers
//! take.
//! Whatever a pool does to bytes is done to cells, which the checker watches. Only readers wait for
//! a pin: of several that wait the checker tries every number of turns. Whoever else finds one set
//! gives up, as one would who comes later.

#[path = "handle.rs"]
#[expect(dead_code, unreachable_pub, reason = "the model uses a part")]
mod handle;
#[path = "pin.rs"]
mod pin;

use core::sync::atomic::Ordering;

use coldpress_sys::sync::SpinLock;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64};
use loom::thread;

use handle::{Handle, Name, Stamp};
use pin::{Pinned, Pins};

/// The contents of the object, of what is written to it, and of what others put into its place.
const OLD: u32 = 1;
const NEW: u32 = 2;
const FOREIGN: u32 = 3;

/// The number of the leaf, and the name of its only word.
const LEAF: u32 = 0;
const NAME: Name = Name(1);

struct Pool {
    pins: Pins,
    /// The directory entry: there is a leaf.
    entry: AtomicBool,
    /// The memory of the leaf, beside its word: others write to it when it was given back.
    leaf: UnsafeCell<()>,
    word: AtomicU64,
    stamp: Stamp,
    /// The handle of the first object.
    first: Handle,
    places: [UnsafeCell<u32>; 2],
    structure: SpinLock<()>,
}

// SAFETY: the cells are the only part that is not shared anyway, and the checker guards them.
unsafe impl Sync for Pool {}

/// The word of the object in a place; its size is one.
fn word_of(place: usize) -> u64 {
    (place as u64) << 32 | 1
}

fn place_of(pinned: &Pinned<'_>) -> usize {
    (pinned.word() >> 32) as usize
}

impl Pool {
    fn new() -> Arc<Self> {
        let stamp = Stamp::new();
        let first = stamp.give(NAME);
        Arc::new(Self {
            stamp,
            first,
            pins: Pins::new(),
            entry: AtomicBool::new(true),
            leaf: UnsafeCell::new(()),
            word: AtomicU64::new(word_of(0)),
            places: [UnsafeCell::new(OLD), UnsafeCell::new(FOREIGN)],
            structure: SpinLock::new(()),
        })
    }

    /// As in the handle table.
    fn find(&self) -> Option<&AtomicU64> {
        // Acquire, as in the table.
        if !self.entry.load(Ordering::Acquire) {
            return None;
        }
        // The checker notices when the leaf is somebody else's by now.
        self.leaf.with(|_| ());
        Some(&self.word)
    }

    /// The object, if nobody uses it.
    fn try_pin(&self) -> Option<Pinned<'_>> {
        self.pins.try_pin(LEAF, || self.find())
    }

    fn get(&self, place: usize) -> u32 {
        // SAFETY: the checker fails the test when somebody writes meanwhile.
        self.places[place].with(|bytes| unsafe { *bytes })
    }

    fn put(&self, place: usize, value: u32) {
        // SAFETY: the checker fails the test when this is not the only access.
        self.places[place].with_mut(|bytes| unsafe { *bytes = value });
    }

    /// What the object is, if there is one. Waits until nobody else uses it.
    fn read(&self) -> Option<u32> {
        let pinned = self.pins.pin(LEAF, || self.find())?;
        Some(self.get(place_of(&pinned)))
    }

    /// The word of a handle, as in the table.
    fn get_of(&self, handle: Handle) -> Option<u64> {
        self.pins
            .get(LEAF, || pin::value_of(self.find()?).filter(|_| self.stamp.handle(NAME) == handle))
    }

    /// What the object of a handle is, as in the table.
    fn read_of(&self, handle: Handle) -> Option<u32> {
        let pinned = self.pins.pin(LEAF, || self.find())?;
        (self.stamp.handle(NAME) == handle).then(|| self.get(place_of(&pinned)))
    }

    fn write(&self) {
        if let Some(pinned) = self.try_pin() {
            self.put(place_of(&pinned), NEW);
        }
    }

    /// Moves the object to the other place, if nobody uses it.
    fn relocate(&self) {
        let _lock = self.structure.lock();
        let Some(mut pinned) = self.try_pin() else { return };
        let from = place_of(&pinned);
        let to = 1 - from;
        self.put(to, self.get(from));
        pinned.set(word_of(to));
        drop(pinned);
        self.put(from, FOREIGN);
    }

    /// Frees the object. The lock is kept for the caller.
    fn free_with(&self, then: impl FnOnce(&Self, usize)) {
        let Some(pinned) = self.try_pin() else { return };
        let place = place_of(&pinned);
        let _lock = self.structure.lock();
        // Relaxed, as in the table: it is unused from here on.
        pinned.into_word().store(0, Ordering::Relaxed);
        self.put(place, FOREIGN);
        then(self, place);
    }

    /// Frees the object, and with it the leaf.
    fn free(&self) {
        self.free_with(|pool, _| {
            // Relaxed, as in the table: who passes the lock after us sees it.
            pool.entry.store(false, Ordering::Relaxed);
            pool.pins.pass(LEAF);
            pool.leaf.with_mut(|_| ());
        });
    }

    /// Frees the object, and gives its name to another one, in another place.
    fn replace(&self) {
        self.free_with(|pool, place| {
            let handle = pool.stamp.give(NAME);
            assert_ne!(handle, pool.first);
            let pinned = Pinned::begin(&pool.word, word_of(1 - place));
            pool.put(1 - place, NEW);
            drop(pinned);
            let word = pool.get_of(handle);
            assert!(word.is_some_and(|word| word >> 32 == 1 - place as u64));
        });
    }
}

/// Runs the jobs side by side in all orders.
fn check<const JOBS: usize>(jobs: [fn(&Pool); JOBS]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let pool = Pool::new();
        let (last, others) = jobs.split_last().expect("there are jobs");
        let threads: Vec<_> = others
            .iter()
            .map(|job| {
                let (job, pool) = (*job, Arc::clone(&pool));
                thread::spawn(move || job(&pool))
            })
            .collect();
        last(&pool);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_ne!(pool.read(), Some(FOREIGN), "the object is lost");
    });
}

fn reads_old(pool: &Pool) {
    assert_eq!(pool.read(), Some(OLD));
}

fn reads_old_or_nothing(pool: &Pool) {
    assert!(matches!(pool.read(), None | Some(OLD)));
}

fn reads_any(pool: &Pool) {
    assert_ne!(pool.read(), Some(FOREIGN));
}

fn asks(pool: &Pool) {
    let word = pool.pins.get(LEAF, || pin::value_of(pool.find()?));
    assert!(word.is_none_or(|word| word & pin::SIZE_MASK == 1));
}

#[test]
fn a_reader_meets_two_movers() {
    check([reads_old, Pool::relocate, Pool::relocate]);
}

#[test]
fn a_reader_meets_a_mover_and_who_frees_the_leaf() {
    check([reads_old_or_nothing, Pool::relocate, Pool::free]);
}

#[test]
fn two_readers_meet_who_frees_the_leaf() {
    check([reads_old_or_nothing, asks, Pool::free]);
}

#[test]
fn a_reader_meets_a_writer_and_a_mover() {
    check([reads_any, Pool::write, Pool::relocate]);
}

#[test]
fn a_reader_meets_a_mover_and_who_gives_the_name_away() {
    check([reads_any, Pool::relocate, Pool::replace]);
}

fn reads_the_first(pool: &Pool) {
    assert!(matches!(pool.read_of(pool.first), None | Some(OLD)));
}

fn asks_the_first(pool: &Pool) {
    // The first lies in the first place.
    assert!(pool.get_of(pool.first).is_none_or(|word| word == word_of(0)));
}

#[test]
fn a_handle_outlives_its_object() {
    assert!(handle::CHECKS_HANDLES, "the model is of a table with stamps");
    check([reads_the_first, asks_the_first, Pool::replace]);
}

#[test]
fn one_of_two_frees_is_the_one() {
    check([Pool::free, Pool::free, Pool::relocate]);
}
