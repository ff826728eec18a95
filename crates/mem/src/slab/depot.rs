//! Free objects on their way between processors, one ring for each class.
//!
//! Idea (the magazine layer of Bonwick and Adams, 2001, and the transfer cache of tcmalloc):
//! objects that one processor frees and another one allocates travel half a stack at a time,
//! without a look at the slabs. Only objects that stay in the ring go back to their slabs, many at
//! a time, so that one exchange serves all objects of a slab.
//!
//! Invariants:
//! 1. The ring holds `tail - head` objects. One thread, which holds the [`Spill`], is returning the
//!    first `spilling` of them to their slabs.
//! 2. `head` is a multiple of half the ring, so the spilled objects are one contiguous piece.

use coldpress_sys::map::Span;
use coldpress_sys::sync::SpinLock;
use coldpress_sys::{Bytes, PAGE_BYTES, SysResult};

use super::descriptor::Object;
use super::size_class::{CLASSES, batch, depot_capacity};
use crate::percpu::CpuLists;

/// The rings of all classes. Empty, and without room, until [`Depots::init`].
pub(super) struct Depots {
    span: SpinLock<Option<Span>>,
    rings: [SpinLock<Ring>; CLASSES],
}

struct Ring {
    places: *mut u32,
    head: usize,
    tail: usize,
    spilling: usize,
    /// Places that were ever written.
    reached: usize,
}

// SAFETY: the places are memory of the span, which lives as long as the rings. They are reached
// through the ring's lock, except for those that one thread spills.
unsafe impl Send for Ring {}

/// The objects to return to their slabs: a part of the ring of a class.
pub(super) struct Spill<'d> {
    pub(super) objects: &'d mut [u32],
}

impl Depots {
    pub(super) const fn new() -> Self {
        const EMPTY: Ring =
            Ring { places: core::ptr::null_mut(), head: 0, tail: 0, spilling: 0, reached: 0 };
        Self { span: SpinLock::new(None), rings: [const { SpinLock::new(EMPTY) }; CLASSES] }
    }

    /// Makes room for [`depot_capacity`] objects of each class. Takes no memory until used.
    pub(super) fn init(&self) -> SysResult<()> {
        let mut owner = self.span.lock();
        if owner.is_some() {
            return Ok(());
        }
        let places: usize = (0..CLASSES).map(depot_capacity).sum();
        let span = Span::reserve(Bytes(places * size_of::<u32>()), Bytes(PAGE_BYTES))?;
        span.forbid_huge_pages();
        let mut start = span.base().cast::<u32>().as_ptr();
        for (class, ring) in self.rings.iter().enumerate() {
            ring.lock().places = start;
            start = start.wrapping_add(depot_capacity(class));
        }
        *owner = Some(span);
        Ok(())
    }

    /// Moves half a stack of this processor into the ring. Returns `None` when the ring has no
    /// room, or the stack is shut. Otherwise returns the objects that the caller must now return to
    /// their slabs, if any; [`Depots::spilled`] ends that.
    pub(super) fn take_from(&self, lists: &CpuLists, class: usize) -> Option<Option<Spill<'_>>> {
        let half_ring = depot_capacity(class) / 2;
        let mut ring = self.rings[class].lock();
        if ring.tail - ring.head + batch(class) > depot_capacity(class) {
            return None;
        }
        let start = ring.tail % depot_capacity(class);
        let room = batch(class).min(depot_capacity(class) - start);
        // SAFETY: the places from `tail` on are free, hence ours by the lock, and inside the ring.
        let places = unsafe { core::slice::from_raw_parts_mut(ring.places.add(start), room) };
        let count = lists.pop_many(class, places);
        if count == 0 {
            return None;
        }
        ring.tail += count;
        debug_assert!(ring.tail - ring.head <= depot_capacity(class), "the ring has no such room");
        ring.reached = ring.reached.max(ring.tail.min(depot_capacity(class)));
        let full = ring.tail - ring.head + batch(class) > depot_capacity(class);
        if !full || ring.spilling > 0 {
            return Some(None);
        }
        ring.spilling = half_ring;
        let start = ring.head % depot_capacity(class);
        // SAFETY: half a ring from `head` on is one piece (invariant 2), filled, and belongs to
        // this thread alone until it calls `spilled` (invariant 1).
        let objects = unsafe { core::slice::from_raw_parts_mut(ring.places.add(start), half_ring) };
        Some(Some(Spill { objects }))
    }

    /// Ends the spilling that [`Depots::take_from`] assigned to this thread.
    pub(super) fn spilled(&self, class: usize) {
        let mut ring = self.rings[class].lock();
        assert!(ring.spilling > 0 && ring.head + ring.spilling <= ring.tail, "nothing is spilled");
        ring.head += ring.spilling;
        ring.spilling = 0;
    }

    /// Takes an object from the ring, and moves up to half a stack of others to this processor's
    /// stack.
    pub(super) fn give_to(&self, lists: &CpuLists, class: usize) -> Option<Object> {
        let mut ring = self.rings[class].lock();
        let ring = &mut *ring;
        if ring.tail - ring.head == ring.spilling {
            return None;
        }
        ring.tail -= 1;
        let end = ring.tail % depot_capacity(class);
        let count = batch(class).min(ring.tail - ring.head - ring.spilling).min(end);
        // SAFETY: the place is filled, and so are the `count` places before it, no more than lie in
        // one piece; the lock makes them ours.
        let (object, places) = unsafe {
            let first = ring.places.add(end - count);
            (first.add(count).read(), core::slice::from_raw_parts_mut(first, count))
        };
        let moved = lists.push_many(class, places);
        debug_assert!(ring.head + ring.spilling + moved <= ring.tail, "a spilled object is taken");
        places.copy_within(moved.., 0);
        ring.tail -= moved;
        Some(Object(object))
    }

    /// Takes an object from the ring of a class.
    pub(super) fn pop(&self, class: usize) -> Option<Object> {
        let mut ring = self.rings[class].lock();
        if ring.tail - ring.head == ring.spilling {
            return None;
        }
        ring.tail -= 1;
        let place = ring.tail % depot_capacity(class);
        // SAFETY: the place is filled and inside the ring, and the lock makes it ours.
        Some(Object(unsafe { ring.places.add(place).read() }))
    }

    /// Returns the number of objects in the ring of a class.
    pub(super) fn length(&self, class: usize) -> usize {
        let ring = self.rings[class].lock();
        ring.tail - ring.head
    }

    /// Returns the memory of the rings.
    #[cfg(test)]
    pub(super) fn memory(&self) -> Bytes {
        let places: usize = self.rings.iter().map(|ring| ring.lock().reached).sum();
        Bytes(places * size_of::<u32>()).pages_up().bytes()
    }
}
