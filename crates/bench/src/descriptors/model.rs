//! The slab allocator of the model. It is not product code: one thread, no atomics, 16-byte units.
//!
//! 1. An object is with the program, on its cache's stack, on its slab's freelist, or not yet
//!    carved.
//! 2. A slab is on its cache's list exactly while it has an object to give.
//! 3. A slab without objects in use goes back to the free frames, unless it is the last of a list.

use coldpress_sys::PAGE_BYTES;

use super::layout::{Layout, NONE, Words};

/// The number of frames in the model: 64 MiB, far more than any cache whose misses are counted.
pub(crate) const FRAMES: usize = 16_384;

/// The bytes of the unit in which places are counted.
const UNIT: usize = 16;
/// The number of units in a frame.
const FRAME_UNITS: u32 = (PAGE_BYTES / UNIT) as u32;
/// The number of objects on a full stack.
const STACK: usize = 64;
/// The number of objects that move between a stack and the slabs at a time.
const BATCH: usize = 32;
/// The shift in counters: objects in use below, objects carved above.
const CARVED_SHIFT: u32 = 32;

/// A cache of objects of one size.
struct Cache {
    units: u32,
    objects_per_slab: u64,
    stack: [u32; STACK],
    height: usize,
    /// The first slab with room.
    partial: u32,
}

/// An allocator of objects, which are named by their place in units.
pub(super) struct Slabs<L> {
    layout: L,
    /// The frames themselves; the first word of an object holds the program's data, or the next
    /// free object.
    memory: Words,
    caches: Vec<Cache>,
    free_frames: Vec<u32>,
}

impl<L: Layout> Slabs<L> {
    /// Makes caches of objects of these sizes in bytes, multiples of 16, on [`FRAMES`] frames.
    pub(super) fn new(caches: &[usize]) -> Self {
        let cache = |bytes: &usize| Cache {
            units: (bytes / UNIT) as u32,
            objects_per_slab: (PAGE_BYTES / bytes) as u64,
            stack: [0; STACK],
            height: 0,
            partial: NONE,
        };
        Self {
            layout: L::new(FRAMES),
            memory: Words::new(FRAMES * PAGE_BYTES / size_of::<u64>()),
            caches: caches.iter().map(cache).collect(),
            free_frames: (0..FRAMES as u32).rev().collect(),
        }
    }

    /// Allocates an object of a cache and writes a word to it.
    #[inline]
    pub(super) fn alloc(&mut self, cache: usize) -> u32 {
        if self.caches[cache].height == 0 {
            self.refill(cache);
        }
        let found = &mut self.caches[cache];
        found.height -= 1;
        let object = found.stack[found.height];
        self.memory.set(word_of(object), 1);
        object
    }

    /// Takes an object back; its frame leads to its cache.
    #[inline]
    pub(super) fn free(&mut self, object: u32) {
        let (_, cache) = self.layout.find(object / FRAME_UNITS);
        if self.caches[cache as usize].height == STACK {
            self.flush(cache as usize, BATCH);
        }
        let found = &mut self.caches[cache as usize];
        found.stack[found.height] = object;
        found.height += 1;
    }

    #[inline(never)]
    fn refill(&mut self, cache: usize) {
        while self.caches[cache].height < BATCH {
            let mut record = self.caches[cache].partial;
            if record == NONE {
                let frame = self.free_frames.pop().expect("no plan needs more frames");
                record = self.layout.open(frame, cache as u32);
                self.link(cache, record);
            }
            self.take(cache, record);
        }
    }

    /// Moves objects from a slab to the stack: a batch, or all objects there are.
    fn take(&mut self, cache: usize, record: u32) {
        let (mut freelist, mut counters) = self.layout.pair(record);
        let base = self.layout.frame(record) * FRAME_UNITS;
        let found = &mut self.caches[cache];
        let mut room = true;
        while found.height < BATCH {
            let object = if freelist != 0 {
                let object = base + (freelist - 1) as u32;
                freelist = self.memory.get(word_of(object));
                object
            } else {
                counters += 1 << CARVED_SHIFT;
                base + ((counters >> CARVED_SHIFT) - 1) as u32 * found.units
            };
            counters += 1;
            found.stack[found.height] = object;
            found.height += 1;
            room = freelist != 0 || counters >> CARVED_SHIFT < found.objects_per_slab;
            if !room {
                break;
            }
        }
        self.layout.set_pair(record, (freelist, counters));
        if !room {
            self.unlink(cache, record);
        }
    }

    /// Gives the oldest `count` objects of the stack back to their slabs.
    #[inline(never)]
    fn flush(&mut self, cache: usize, count: usize) {
        for index in 0..count {
            let object = self.caches[cache].stack[index];
            self.release(cache, object);
        }
        let found = &mut self.caches[cache];
        found.stack.copy_within(count..found.height, 0);
        found.height -= count;
    }

    fn release(&mut self, cache: usize, object: u32) {
        let (record, _) = self.layout.find(object / FRAME_UNITS);
        let (freelist, counters) = self.layout.pair(record);
        let was_full =
            freelist == 0 && counters >> CARVED_SHIFT == self.caches[cache].objects_per_slab;
        self.memory.set(word_of(object), freelist);
        let counters = counters - 1;
        self.layout.set_pair(record, (u64::from(object % FRAME_UNITS) + 1, counters));
        if was_full {
            self.link(cache, record);
        }
        let is_empty = counters as u32 == 0;
        let is_last = || self.layout.next(record) == NONE && self.layout.prev(record) == NONE;
        if is_empty && !is_last() {
            self.unlink(cache, record);
            let frame = self.layout.frame(record);
            self.layout.close(record);
            self.free_frames.push(frame);
        }
    }

    /// Puts a slab at the head of its cache's list.
    fn link(&mut self, cache: usize, record: u32) {
        let head = self.caches[cache].partial;
        self.layout.set_next(record, head);
        self.layout.set_prev(record, NONE);
        if head != NONE {
            self.layout.set_prev(head, record);
        }
        self.caches[cache].partial = record;
    }

    fn unlink(&mut self, cache: usize, record: u32) {
        let (next, prev) = (self.layout.next(record), self.layout.prev(record));
        if next != NONE {
            self.layout.set_prev(next, prev);
        }
        match prev {
            NONE => self.caches[cache].partial = next,
            _ => self.layout.set_next(prev, next),
        }
    }

    /// Empties the stacks and counts. Panics unless every object is back, which leaves every frame
    /// free except an empty slab in a cache's list.
    #[cfg(test)]
    pub(super) fn check(&mut self) {
        let mut kept = 0;
        for cache in 0..self.caches.len() {
            let height = self.caches[cache].height;
            self.flush(cache, height);
            let record = self.caches[cache].partial;
            if record != NONE {
                kept += 1;
                assert_eq!(self.layout.next(record), NONE, "only the last slab stays");
                assert_eq!(self.layout.pair(record).1 as u32, 0, "an object is missing");
            }
        }
        assert_eq!(self.free_frames.len() + kept, FRAMES, "a frame is missing");
    }
}

/// Returns the place of the first word of an object.
const fn word_of(object: u32) -> usize {
    object as usize * (UNIT / size_of::<u64>())
}
