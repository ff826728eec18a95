//! The risk: an object is read while another thread moves or frees it, is found in a leaf that is
//! gone, or is reached by the handle of the object before it, in some order of their loads and
//! stores.
//!
//! The code under test is that of pins and stamps. The model adds the rest of a pool, as small as
//! possible: a leaf with one word, an object, two places for it, and the lock that movers and
//! freers take.
//!
//! Whatever a pool does to bytes, the model does to cells, which the checker watches. Only readers
//! wait for a pin, because the checker tries every interleaving of several waiters. Any other
//! thread that finds a pin set gives up, as a later one would.

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

/// The contents of the object, of a write to it, and of foreign data that takes its place.
const OLD: u32 = 1;
const NEW: u32 = 2;
const FOREIGN: u32 = 3;

/// The number of the leaf, and the name of its only word.
const LEAF: u32 = 0;
const NAME: Name = Name(1);

struct Pool {
    pins: Pins,
    /// Whether the directory has an entry for the leaf.
    entry: AtomicBool,
    /// The memory of the leaf, besides its word: other users write to it once it was given back.
    leaf: UnsafeCell<()>,
    word: AtomicU64,
    stamp: Stamp,
    /// The handle of the first object.
    first: Handle,
    places: [UnsafeCell<u32>; 2],
    structure: SpinLock<()>,
}

// SAFETY: the cells are the only part that is not `Sync` by itself, and the checker guards them.
unsafe impl Sync for Pool {}

/// Returns the word of the object in a place; its size is one.
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

    /// Finds the word as the handle table does.
    fn find(&self) -> Option<&AtomicU64> {
        // Acquire, as in the table.
        if !self.entry.load(Ordering::Acquire) {
            return None;
        }
        // The checker notices when another user has the leaf by now.
        self.leaf.with(|_| ());
        Some(&self.word)
    }

    /// Pins the object, if no other thread uses it.
    fn try_pin(&self) -> Option<Pinned<'_>> {
        self.pins.try_pin(LEAF, || self.find())
    }

    fn get(&self, place: usize) -> u32 {
        // SAFETY: the checker fails the test when another thread writes meanwhile.
        self.places[place].with(|bytes| unsafe { *bytes })
    }

    fn put(&self, place: usize, value: u32) {
        // SAFETY: the checker fails the test when this is not the only access.
        self.places[place].with_mut(|bytes| unsafe { *bytes = value });
    }

    /// Returns the contents of the object, if there is one. Waits until no other thread uses it.
    fn read(&self) -> Option<u32> {
        let pinned = self.pins.pin(LEAF, || self.find())?;
        Some(self.get(place_of(&pinned)))
    }

    /// Returns the word of a handle, as the table does.
    fn get_of(&self, handle: Handle) -> Option<u64> {
        self.pins
            .get(LEAF, || pin::value_of(self.find()?).filter(|_| self.stamp.handle(NAME) == handle))
    }

    /// Returns the contents of the object of a handle, as the table does.
    fn read_of(&self, handle: Handle) -> Option<u32> {
        let pinned = self.pins.pin(LEAF, || self.find())?;
        (self.stamp.handle(NAME) == handle).then(|| self.get(place_of(&pinned)))
    }

    fn write(&self) {
        if let Some(pinned) = self.try_pin() {
            self.put(place_of(&pinned), NEW);
        }
    }

    /// Moves the object to the other place, if no other thread uses it.
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

    /// Frees the object, and calls `then` under the lock.
    fn free_with(&self, then: impl FnOnce(&Self, usize)) {
        let Some(pinned) = self.try_pin() else { return };
        let place = place_of(&pinned);
        let _lock = self.structure.lock();
        // Relaxed, as in the table: the word is unused from here on.
        pinned.into_word().store(0, Ordering::Relaxed);
        self.put(place, FOREIGN);
        then(self, place);
    }

    /// Frees the object, and with it the leaf.
    fn free(&self) {
        self.free_with(|pool, _| {
            // Relaxed, as in the table: a thread that passes the lock after us sees the store.
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
    // The first object lies in the first place.
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
