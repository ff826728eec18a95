//! Objects up to 2048 bytes: per-processor stacks, depots, and slabs.
//!
//! The first two layers exist only after [`Objects::keep_per_processor`]:
//!
//! ```text
//! stacks of each processor   no lock, no locked instruction        percpu
//!      half a stack at a time
//! a depot of each class      a lock, no look at the objects        depot
//!      many objects at a time, grouped by slab
//! slabs                      one 16-byte exchange for each group   cache, descriptor
//! ```
//!
//! Invariants:
//! 1. A slab is a frame, named by the frame's descriptor; its own descriptor is an object of the
//!    class [`DESCRIPTORS`], whose slabs hold their own descriptor as their last object.
//! 2. No lock of a class is held while frames are taken or given back.
//! 3. No object lies at the start of the span of frames: zero names none, and neither does
//!    [`Blocks::NONE`].

use core::ptr::NonNull;

#[cfg(test)]
use coldpress_sys::Bytes;
use coldpress_sys::rseq::{self, Blocks};
use coldpress_sys::{PAGE_BYTES, PageCount, SysResult};

use super::cache::{Cache, Space};
use super::depot::{Depots, Spill};
use super::descriptor::{Chain, DESCRIPTOR_BYTES, Object, Slab, SlabRef, State};
use super::guard::{self, Slot};
use super::size_class::{
    CLASSES, FRAME_GRANULES, GRANULE, batch, capacity, object_bytes, stack_capacity,
};
use super::space::FrameSpace;
use crate::frames::{FrameAllocator, FrameId};
use crate::percpu::CpuLists;

/// The class of slab descriptors, behind the classes of allocations.
const DESCRIPTORS: usize = CLASSES;
/// Maximum objects that a refill takes from slabs: those of one frame of the smallest class.
const REFILL_MAX: usize = FRAME_GRANULES;
/// A refill continues with the next slab until it has this many objects.
const REFILL_ENOUGH: usize = 32;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Distance, in objects, by which a spill prefetches.
const PREFETCH_AHEAD: usize = 24;

/// All objects of a heap.
pub(super) struct Objects<'f> {
    space: FrameSpace<'f>,
    pub(super) lists: CpuLists,
    depots: Depots,
    caches: [Cache; CLASSES + 1],
}

/// The memory of objects.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ObjectStats {
    pub(super) in_use: Bytes,
    pub(super) cached: Bytes,
    pub(super) tables: Bytes,
}

impl<'f> Objects<'f> {
    pub(super) const fn new(frames: &'f FrameAllocator) -> Self {
        Self {
            space: FrameSpace::new(frames),
            lists: CpuLists::new(),
            depots: Depots::new(),
            caches: [const { Cache::new() }; CLASSES + 1],
        }
    }

    /// Keeps free objects ready, as [`super::Heap::keep_per_processor`] describes.
    pub(super) fn keep_per_processor(&self) -> SysResult<()> {
        if rseq::offset().is_none() {
            return Ok(());
        }
        self.depots.init()?;
        let mut capacities = [0; CLASSES];
        for (class, capacity) in capacities.iter_mut().enumerate() {
            *capacity = stack_capacity(class) as u16;
        }
        self.lists.init(&capacities)
    }

    /// Returns the memory of the objects. Walks all slabs.
    #[cfg(test)]
    pub(super) fn stats(&self) -> ObjectStats {
        let tables = self.lists.memory() + self.depots.memory();
        let mut stats = ObjectStats { tables, ..ObjectStats::default() };
        for class in 0..CLASSES {
            let cached = self.lists.length(class) + self.depots.length(class);
            let census = self.caches[class].census(&self.space, |_| ());
            // Other threads may be moving objects between the two counts.
            let in_use = census.in_use.saturating_sub(cached);
            stats.cached += Bytes(cached * object_bytes(class));
            stats.in_use += Bytes(in_use * object_bytes(class));
        }
        stats
    }

    /// Returns the frames that hold objects or descriptors.
    pub(super) fn frames_held(&self) -> PageCount {
        self.space.frames_held()
    }

    /// Gives back all frames that hold only free objects.
    pub(super) fn trim(&self) {
        self.drain();
        for cache in &self.caches {
            if let Some(spare) = cache.take_spare() {
                self.discard(spare);
            }
        }
    }

    /// Walks all size classes, and panics when an invariant is broken. No thread may use them
    /// meanwhile.
    pub(super) fn check(&self) {
        let mut frames = PageCount(0);
        for (class, cache) in self.caches.iter().enumerate() {
            cache.check(&self.space);
            let census = cache.census(&self.space, |slab| {
                let descriptor = self.space.slab(slab);
                assert_eq!(descriptor.class(), class);
                let first = Object(descriptor.frame() * FRAME_GRANULES as u32);
                assert_eq!(self.space.slab_of(first), slab, "the frame names another slab");
            });
            if class < CLASSES {
                let cached = self.lists.length(class) + self.depots.length(class);
                assert!(cached <= census.in_use, "an object is free twice");
            }
            frames += PageCount(census.slabs);
        }
        assert_eq!(frames, self.frames_held());
    }

    /// Fills this processor's stack and returns one more object.
    fn refill(&self, class: usize) -> Option<Object> {
        if !self.lists.is_ready() {
            return self.take_one(class);
        }
        if let Some(object) = self.depots.give_to(&self.lists, class) {
            return Some(object);
        }
        let mut objects = [0; REFILL_MAX];
        let count = self.take_from_slabs(class, &mut objects);
        // There is no frame left: the objects that other processors keep may do.
        let Some(last) = count.checked_sub(1) else {
            self.drain();
            return self.take_one(class);
        };
        let pushed = self.lists.push_many(class, &objects[..last]);
        for object in &objects[pushed..last] {
            self.give_back(class, Object(*object));
        }
        Some(Object(objects[last]))
    }

    /// Takes objects of slabs that have some, else all of a new slab. Returns their number; 0 when
    /// there is no frame.
    fn take_from_slabs(&self, class: usize, objects: &mut [u32; REFILL_MAX]) -> usize {
        let mut count = 0;
        while count < batch(class).min(REFILL_ENOUGH) && count + capacity(class) <= REFILL_MAX {
            let chain = self.caches[class].take_chain(&self.space);
            let Some((mut object, length)) = chain else { break };
            // Each link names the next object, in any order, so without this prefetch each link
            // would be a cache miss of its own.
            let in_a_line = LINE.div_ceil(object_bytes(class));
            objects_of(class, FrameId::from_index(object.frame()))
                .step_by(in_a_line)
                .for_each(|object| self.space.prefetch(object));
            for place in &mut objects[count..count + usize::from(length)] {
                debug_assert!(object != Object::NONE, "the chain ends early");
                *place = object.0;
                object = self.space.link(object);
            }
            count += usize::from(length);
        }
        if count == 0
            && let Some((slab, frame)) = self.new_slab(class, capacity(class))
        {
            // The lowest one goes in last, and is taken first.
            for object in objects_of(class, frame).rev() {
                objects[count] = object.0;
                count += 1;
            }
            self.caches[class].adopt(&self.space, slab);
        }
        count
    }

    /// Takes one object straight from a slab.
    fn take_one(&self, class: usize) -> Option<Object> {
        if let Some(object) = self.caches[class].take_one(&self.space) {
            return Some(object);
        }
        let (slab, frame) = self.new_slab(class, 1)?;
        let object = objects_of(class, frame).next();
        self.caches[class].adopt(&self.space, slab);
        object
    }

    /// Makes a slab of which up to `taken` objects, the first, are out and the others chained. The
    /// slab is on no list.
    fn new_slab(&self, class: usize, taken: usize) -> Option<(SlabRef, FrameId)> {
        let frame = self.space.take_frame()?;
        let slab = if class == DESCRIPTORS {
            Some(own_descriptor(frame))
        } else {
            self.take_one(DESCRIPTORS).map(|object| SlabRef(object.0))
        };
        let Some(slab) = slab else {
            // SAFETY: the frame was just handed to us and nothing refers to it.
            unsafe { self.space.give_frame(frame) };
            return None;
        };
        let mut freelist = Object::NONE;
        let count = objects_of(class, frame).len();
        for (index, object) in objects_of(class, frame).enumerate().rev() {
            if cfg!(debug_assertions) && class < CLASSES {
                // SAFETY: the object is new, and no code uses it.
                unsafe { guard::make(self.slot(class, object)) };
            }
            if index >= taken {
                self.space.set_link(object, freelist);
                freelist = object;
            }
        }
        let state = State::new(freelist, taken.min(count) as u16, count as u16);
        let place = self.space.address(Object(slab.0)).cast::<Slab>();
        // SAFETY: the descriptor is an object of its class, or the last place of its own slab, and
        // no other code knows it yet.
        unsafe {
            place.write(Slab::new(frame.index(), class, state));
            self.space.set_slab(frame, slab);
        }
        Some((slab, frame))
    }

    /// Moves half of this processor's stack away, if it is full: the slow path of a free.
    #[cold]
    #[inline(never)]
    fn overflow(&self, class: usize, object: Object) {
        if self.lists.push(class, object.0) {
            return;
        }
        if self.lists.is_ready()
            && let Some(spill) = self.depots.take_from(&self.lists, class)
        {
            if let Some(spill) = spill {
                self.spill(class, spill);
            }
            if self.lists.push(class, object.0) {
                return;
            }
        }
        self.give_back(class, object);
    }

    /// Returns the oldest objects of a depot to their slabs: chains them slab by slab, then returns
    /// each chain at once.
    fn spill(&self, class: usize, Spill { objects }: Spill<'_>) {
        let mut slabs = 0;
        for index in 0..objects.len() {
            if let Some(ahead) = objects.get(index + PREFETCH_AHEAD) {
                self.space.prefetch(Object(*ahead));
            }
            let object = Object(objects[index]);
            let slab = self.space.slab_of(object);
            let behind = self.space.slab(slab).add_to_batch(object);
            if behind == object {
                // The slab's name takes a place whose object is chained already.
                objects[slabs] = slab.0;
                slabs += 1;
            } else {
                self.space.set_link(object, behind);
            }
        }
        for slab in objects[..slabs].iter().map(|slab| SlabRef(*slab)) {
            let chain = self.space.slab(slab).take_batch();
            debug_assert_eq!(self.space.slab(slab).class(), class, "{slab:?} is of another class");
            self.give_back_chain(class, slab, chain);
        }
        self.depots.spilled(class);
    }

    /// Drains the stacks and depots: all their objects go back to their slabs.
    fn drain(&self) {
        self.lists.drain_all(&mut |class, object| self.give_back(class, Object(object)));
        for class in 0..CLASSES {
            while let Some(object) = self.depots.pop(class) {
                self.give_back(class, object);
            }
        }
    }

    /// Returns one object to its slab.
    fn give_back(&self, class: usize, object: Object) {
        let chain = Chain { first: object, last: object, count: 1 };
        self.give_back_chain(class, self.space.slab_of(object), chain);
    }

    fn give_back_chain(&self, class: usize, slab: SlabRef, chain: Chain) {
        if let Some(empty) = self.caches[class].give_back(&self.space, slab, chain) {
            self.discard(empty);
        }
    }

    /// Gives back the frame and the descriptor of a slab that is on no list.
    fn discard(&self, slab: SlabRef) {
        let descriptor = self.space.slab(slab);
        let (frame, class) = (FrameId::from_index(descriptor.frame()), descriptor.class());
        // SAFETY: the slab's objects are free or, when the heap is dropped, no longer used. The
        // descriptor is not read again.
        unsafe { self.space.give_frame(frame) };
        if class != DESCRIPTORS {
            self.give_back(DESCRIPTORS, Object(slab.0));
        }
    }

    fn slot(&self, class: usize, object: Object) -> Slot {
        Slot { object, start: self.space.address(object), bytes: object_bytes(class) }
    }

    #[inline]
    pub(super) fn alloc_object(&self, class: usize, size: usize) -> Option<NonNull<u8>> {
        match self.lists.pop(class) {
            Some(object) => Some(self.hand_out(class, size, Object(object))),
            None => self.alloc_slowly(class, size),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly(&self, class: usize, size: usize) -> Option<NonNull<u8>> {
        Some(self.hand_out(class, size, self.refill(class)?))
    }

    #[inline]
    fn hand_out(&self, class: usize, size: usize, object: Object) -> NonNull<u8> {
        if cfg!(debug_assertions) {
            // SAFETY: the object was free and is ours now.
            unsafe { guard::hand_out(self.slot(class, object), size) };
        }
        self.space.address(object)
    }

    /// Frees an object.
    ///
    /// # Safety
    /// As for `dealloc`, with a size of this class.
    #[inline]
    pub(super) unsafe fn free_object(&self, class: usize, size: usize, address: NonNull<u8>) {
        let object = if cfg!(debug_assertions) {
            let object = self.checked_object_at(class, address);
            // SAFETY: the caller gives up the object, which is one of this class.
            unsafe { guard::take_back(self.slot(class, object), size) };
            object
        } else {
            self.space.object_at(address)
        };
        if !self.lists.push_in_use(class, object.0) {
            self.overflow(class, object);
        }
    }

    /// Returns the object of this class that starts at `address`. Panics when there is none.
    fn checked_object_at(&self, class: usize, address: NonNull<u8>) -> Object {
        let slab = self.space.slab_containing(address).map(|slab| self.space.slab(slab));
        let inside = address.as_ptr().addr() % PAGE_BYTES;
        let ours = slab.is_some_and(|slab| slab.class() == class);
        assert!(ours && inside.is_multiple_of(object_bytes(class)), "not from this heap");
        self.space.object_at(address)
    }

    /// Checks an object whose size changes within its class.
    ///
    /// # Safety
    /// `start` is the caller's object of `size` bytes, of this class.
    #[inline]
    pub(super) unsafe fn resize(
        &self,
        class: usize,
        start: NonNull<u8>,
        (size, new_size): (usize, usize),
    ) {
        if cfg!(debug_assertions) {
            let slot = self.slot(class, self.checked_object_at(class, start));
            // SAFETY: the slot is the caller's object, of this class and size.
            unsafe { guard::resize(slot, size, new_size) };
        }
    }
}

impl Drop for Objects<'_> {
    /// Gives back all frames, those with objects too: no code uses them any more.
    fn drop(&mut self) {
        // Descriptors are the last class, because the slabs of the others are found by theirs.
        for cache in &self.caches {
            while let Some(slab) = cache.take_any(&self.space) {
                self.discard(slab);
            }
        }
    }
}

/// Returns the objects of a slab in a frame, in order of their addresses. The first frame of the
/// span has no object at its start. The last frame that a span can have has none at its end,
/// because that object's number would be the one that means no value in the stacks.
pub(super) fn objects_of(
    class: usize,
    frame: FrameId,
) -> impl DoubleEndedIterator<Item = Object> + ExactSizeIterator {
    let (count, granules) = if class == DESCRIPTORS {
        (PAGE_BYTES / DESCRIPTOR_BYTES - 1, DESCRIPTOR_BYTES / GRANULE)
    } else {
        (capacity(class), object_bytes(class) / GRANULE)
    };
    let first = usize::from(frame.index() == 0);
    let base = frame.index() * FRAME_GRANULES as u32;
    let end =
        count - usize::from(granules == 1 && frame.index() == Blocks::NONE / FRAME_GRANULES as u32);
    (first..end).map(move |index| Object(base + (index * granules) as u32))
}

/// Returns the place of its own descriptor in a slab of descriptors: behind all others.
const fn own_descriptor(frame: FrameId) -> SlabRef {
    let inside = (PAGE_BYTES - DESCRIPTOR_BYTES) / GRANULE;
    SlabRef(frame.index() * FRAME_GRANULES as u32 + inside as u32)
}
