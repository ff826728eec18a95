//! The works that allocators do: allocate, write a word into the object, free.
//!
//! 1. A work frees every object it has allocated, with the layout it was allocated with.
//! 2. Layouts and orders follow from fixed seeds, so two runs make the same calls.

use std::alloc::{GlobalAlloc, Layout, handle_alloc_error};
use std::hint;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::PAGE_BYTES;

use crate::random::Random;

/// The number of objects in a batch.
const BATCH: usize = 1000;
/// The number of objects in the large batch: at 1 KiB each they exceed any cache of one core.
const MANY: usize = 100_000;
/// The number of live objects while single objects are replaced.
const ALIVE: usize = 10_000;
/// The number of batches in flight between two threads.
const RING: usize = 8;
/// The alignment of objects; every allocator provides it without a special call.
const ALIGN: usize = 8;

/// The amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The approximate number of objects in each measurement.
    pub(crate) objects: usize,
    /// The number of objects in the works of 100,000 objects, if smaller than 100,000.
    pub(crate) many: usize,
}

impl Scale {
    /// The full scale: some milliseconds for each measurement.
    pub const FULL: Self = Self { objects: 1_000_000, many: MANY };
    /// A small scale for tests: its times say nothing about speed.
    pub const SMALL: Self = Self { objects: 5_000, many: 2_000 };
}

/// The goal that a work belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Objects that are allocated and freed at once.
    Pairs,
    /// Batches of 1000 objects.
    Batches,
    /// A large batch whose objects are freed in another order.
    Shuffled,
    /// Works without a goal; their figures are only shown.
    Other,
}

/// The order in which a work allocates and frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Each object is freed before the next one is allocated.
    Pairs,
    /// All objects are allocated, then all are freed in the work's order.
    Batches,
    /// All objects are allocated once, then replaced one by one in the work's order.
    Replace,
    /// One thread allocates objects in batches, and another thread frees them.
    Elsewhere,
}

/// A work: one row of the table.
#[derive(Clone, Debug)]
pub struct Work {
    name: String,
    group: Group,
    how: How,
    layouts: Vec<Layout>,
    order: Vec<u32>,
    repeat: usize,
    /// Whether the work writes a word into each object, as programs do.
    write: bool,
}

/// Returns the works with small objects.
pub fn object_works(scale: Scale) -> Vec<Work> {
    let mut works: Vec<Work> = [16, 32, 64, 128, 256, 512, 1024]
        .into_iter()
        .map(|bytes| {
            let layouts = same(bytes, BATCH);
            Work::new(format!("pairs of {bytes} B"), Group::Pairs, How::Pairs, layouts, scale)
        })
        .collect();
    works.push(Work::new("pairs of 16 B to 1 KiB", Group::Pairs, How::Pairs, mixed(BATCH), scale));
    for (count, group) in [(BATCH, Group::Batches), (scale.many, Group::Shuffled)] {
        for (size, layouts) in [("32 B", same(32, count)), ("16 B to 1 KiB", mixed(count))] {
            let name = format!("batches of {count}, {size}, in order");
            let work = Work::new(name, group, How::Batches, layouts, scale);
            let shuffled = work.shuffled(format!("batches of {count}, {size}, shuffled"));
            // Of the large batches, our own goal covers the shuffled ones only.
            works.extend((group == Group::Batches).then_some(work));
            works.push(shuffled);
        }
    }
    let alive = ALIVE.min(scale.many);
    let name = format!("{alive} alive, replaced, 16 B to 1 KiB");
    works.push(Work::new("", Group::Other, How::Replace, mixed(alive), scale).shuffled(name));
    for (size, layouts) in [("32 B", same(32, BATCH)), ("16 B to 1 KiB", mixed(BATCH))] {
        let name = format!("allocated here, freed there, {size}");
        works.push(Work::new(name, Group::Other, How::Elsewhere, layouts, scale));
    }
    works
}

/// Returns the works with order-0 frames: 4 KiB, aligned, never written to.
pub fn frame_works(scale: Scale) -> Vec<Work> {
    let frame = Layout::from_size_align(PAGE_BYTES, PAGE_BYTES).expect("a power of two");
    let frames = |count| vec![frame; count];
    let works = [
        Work::new("frame pairs", Group::Pairs, How::Pairs, frames(BATCH), scale),
        Work::new("batches of 16 frames", Group::Batches, How::Batches, frames(16), scale),
        Work::new("batches of 1000 frames", Group::Batches, How::Batches, frames(BATCH), scale),
        Work::new("", Group::Shuffled, How::Batches, frames(BATCH), scale)
            .shuffled("batches of 1000 frames, shuffled".to_owned()),
        Work::new("frames here and there", Group::Other, How::Elsewhere, frames(BATCH), scale),
    ];
    works.into_iter().map(|work| Work { write: false, ..work }).collect()
}

/// Returns `count` layouts of `bytes` bytes each.
fn same(bytes: usize, count: usize) -> Vec<Layout> {
    vec![layout(bytes); count]
}

/// Returns `count` layouts of 16 B to 1 KiB: each power of two about equally often, with sizes in
/// between.
fn mixed(count: usize) -> Vec<Layout> {
    let mut random = Random::new(1);
    let mut bytes = || {
        let power = 16 << random.below(7);
        power - random.below(power / 2)
    };
    (0..count).map(|_| layout(bytes().max(16))).collect()
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("small sizes and a power of two")
}

impl Work {
    fn new(
        name: impl Into<String>,
        group: Group,
        how: How,
        layouts: Vec<Layout>,
        scale: Scale,
    ) -> Self {
        let order = (0..layouts.len() as u32).collect();
        let repeat = (scale.objects / layouts.len()).max(1);
        Self { name: name.into(), group, how, layouts, order, repeat, write: true }
    }

    /// Returns the same work with a pseudo-random order of frees.
    fn shuffled(&self, name: String) -> Self {
        let mut order = self.order.clone();
        Random::new(2).shuffle(&mut order);
        Self { name, order, ..self.clone() }
    }

    /// Returns the name of the work in tables.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the goal that the work belongs to.
    pub(crate) fn group(&self) -> Group {
        self.group
    }

    /// Returns the number of objects that one [`Work::run`] allocates and frees.
    pub(crate) fn objects(&self) -> usize {
        let before = if self.how == How::Replace { self.layouts.len() } else { 0 };
        before + self.layouts.len() * self.repeat
    }

    /// Does the work. Returns the nanoseconds for each object: its allocation, a write to it and
    /// its free.
    pub(crate) fn run(&self, allocator: &(dyn GlobalAlloc + Sync)) -> f64 {
        let time = match self.how {
            How::Pairs => self.pairs(allocator),
            How::Batches => self.batches(allocator),
            How::Replace => self.replace(allocator),
            How::Elsewhere => self.elsewhere(allocator),
        };
        time.as_nanos() as f64 / (self.layouts.len() * self.repeat) as f64
    }

    #[inline(never)]
    fn pairs(&self, allocator: &(dyn GlobalAlloc + Sync)) -> Duration {
        let started = Instant::now();
        for _ in 0..self.repeat {
            for layout in &self.layouts {
                let object = self.make(allocator, *layout);
                // SAFETY: `object` came from this allocator with this layout just now.
                unsafe { allocator.dealloc(object, *layout) };
            }
        }
        started.elapsed()
    }

    #[inline(never)]
    fn batches(&self, allocator: &(dyn GlobalAlloc + Sync)) -> Duration {
        let mut objects = vec![std::ptr::null_mut(); self.layouts.len()];
        let started = Instant::now();
        for _ in 0..self.repeat {
            for (object, layout) in objects.iter_mut().zip(&self.layouts) {
                *object = self.make(allocator, *layout);
            }
            self.free_all(allocator, &objects);
        }
        started.elapsed()
    }

    #[inline(never)]
    fn replace(&self, allocator: &(dyn GlobalAlloc + Sync)) -> Duration {
        let make = |layout: &Layout| self.make(allocator, *layout);
        let mut objects: Vec<*mut u8> = self.layouts.iter().map(make).collect();
        let started = Instant::now();
        for _ in 0..self.repeat {
            for index in &self.order {
                let (object, layout) =
                    (&mut objects[*index as usize], self.layouts[*index as usize]);
                // SAFETY: `object` came from this allocator with the layout of its index, and is
                // overwritten before its next use.
                unsafe { allocator.dealloc(*object, layout) };
                *object = self.make(allocator, layout);
            }
        }
        let time = started.elapsed();
        self.free_all(allocator, &objects);
        time
    }

    /// Frees, in the work's order, objects that were allocated with the work's layouts.
    fn free_all(&self, allocator: &(dyn GlobalAlloc + Sync), objects: &[*mut u8]) {
        for index in &self.order {
            let (object, layout) = (objects[*index as usize], self.layouts[*index as usize]);
            // SAFETY: `object` came from this allocator with the layout of its index; `order` holds
            // each index once, so it is freed once.
            unsafe { allocator.dealloc(object, layout) };
        }
    }

    #[inline(never)]
    fn elsewhere(&self, allocator: &(dyn GlobalAlloc + Sync)) -> Duration {
        let ring: Vec<Batch> = (0..RING).map(|_| Batch::new(self.layouts.len())).collect();
        let both = Barrier::new(2);
        thread::scope(|scope| {
            let there = scope.spawn(|| {
                both.wait();
                for batch in ring.iter().cycle().take(self.repeat) {
                    batch.wait_until(true);
                    for (object, layout) in batch.objects.iter().zip(&self.layouts) {
                        // Relaxed: the flag's Acquire, in `wait_until`, orders this load.
                        let object = object.load(Ordering::Relaxed);
                        // SAFETY: the other thread allocated `object` with the layout of its place
                        // in the batch, and handed it over with the batch.
                        unsafe { allocator.dealloc(object, *layout) };
                    }
                    batch.pass(false);
                }
            });
            both.wait();
            let started = Instant::now();
            for batch in ring.iter().cycle().take(self.repeat) {
                batch.wait_until(false);
                for (object, layout) in batch.objects.iter().zip(&self.layouts) {
                    // Relaxed: the flag's Release, in `pass`, orders this store.
                    object.store(self.make(allocator, *layout), Ordering::Relaxed);
                }
                batch.pass(true);
            }
            there.join().expect("a free does not panic");
            started.elapsed()
        })
    }

    /// Allocates an object and, in works that write, writes a word to it. Ends the process when
    /// there is no memory.
    #[inline(always)]
    fn make(&self, allocator: &(dyn GlobalAlloc + Sync), layout: Layout) -> *mut u8 {
        // SAFETY: no layout of a work has size zero.
        let object = unsafe { allocator.alloc(layout) };
        if object.is_null() {
            handle_alloc_error(layout);
        }
        if self.write {
            // SAFETY: every layout that is written to has at least 16 bytes, aligned to 8.
            unsafe { object.cast::<u64>().write(1) };
        }
        object
    }
}

/// A batch of objects that one thread hands to another.
struct Batch {
    objects: Vec<AtomicPtr<u8>>,
    /// Whether the batch is full, so that it is the freeing thread's turn.
    is_full: AtomicBool,
}

impl Batch {
    fn new(length: usize) -> Self {
        let objects = (0..length).map(|_| AtomicPtr::default()).collect();
        Self { objects, is_full: AtomicBool::new(false) }
    }

    fn wait_until(&self, is_full: bool) {
        let mut waited = 0_u32;
        // Acquire pairs with the Release in `pass`.
        while self.is_full.load(Ordering::Acquire) != is_full {
            waited += 1;
            if waited < 1000 {
                hint::spin_loop();
            } else {
                // The other thread may need this processor.
                thread::yield_now();
            }
        }
    }

    fn pass(&self, is_full: bool) {
        // Release pairs with the Acquire in `wait_until`.
        self.is_full.store(is_full, Ordering::Release);
    }
}
