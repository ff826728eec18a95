//! Slab descriptors: 32 bytes, in which the (freelist, counters) pair lies aligned.
//!
//! ```text
//!  offset  0        8          16     20     24                28
//!         +--------+----------+------+------+-----------------+-------+
//!         |freelist| counters | next | prev | frame:24 class:8| batch |
//!         +--------+----------+------+------+-----------------+-------+
//!
//!  counters  63       32 31         16 15          0
//!           +-----------+-------------+-------------+
//!           |    tag    |   objects   |    in_use   |
//!           +-----------+-------------+-------------+
//! ```
//! The pair is the one of Linux's SLUB: it names the objects that the slab has got back, chained
//! through their first four bytes, and counts those that are out. The tag counts changes, so that
//! no two states are alike.
//!
//! Invariants:
//! 1. `objects - in_use` objects are chained from `freelist`, each once.
//! 2. `next` and `prev` change under the lock of the class, `batch` by the thread that spills the
//!    depot of the class.

use core::sync::atomic::{AtomicU32, Ordering};

use coldpress_sys::pair::AtomicPair;

use super::size_class::FRAME_GRANULES;

/// The name of an object: its place in the span of frames, in units of 16 bytes. Zero is none: no
/// object lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object(pub(super) u32);

impl Object {
    pub(super) const NONE: Self = Self(0);

    /// Returns the number of the frame that the object lies in.
    #[inline]
    pub(super) const fn frame(self) -> u32 {
        self.0 / FRAME_GRANULES as u32
    }
}

/// The name of a slab: the place of its descriptor, as in [`Object`]. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlabRef(pub(super) u32);

impl SlabRef {
    pub(super) const NONE: Self = Self(0);
}

/// Objects of one slab, chained from `first` to `last`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) first: Object,
    pub(super) last: Object,
    pub(super) count: u16,
}

/// The (freelist, counters) pair, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) freelist: Object,
    pub(super) in_use: u16,
    pub(super) objects: u16,
    tag: u32,
}

impl State {
    pub(super) const fn new(freelist: Object, in_use: u16, objects: u16) -> Self {
        Self { freelist, in_use, objects, tag: 0 }
    }

    /// Returns whether no object is free.
    pub(super) const fn is_full(self) -> bool {
        self.in_use == self.objects
    }

    /// Returns whether no object is out.
    pub(super) const fn is_empty(self) -> bool {
        self.in_use == 0
    }

    /// Returns the state after this one, with another freelist and count.
    pub(super) const fn then(self, freelist: Object, in_use: u16) -> Self {
        Self { freelist, in_use, objects: self.objects, tag: self.tag.wrapping_add(1) }
    }

    const fn to_words(self) -> (u64, u64) {
        let counters = self.in_use as u64 | (self.objects as u64) << 16 | (self.tag as u64) << 32;
        (self.freelist.0 as u64, counters)
    }

    const fn from_words((freelist, counters): (u64, u64)) -> Self {
        Self {
            freelist: Object(freelist as u32),
            in_use: counters as u16,
            objects: (counters >> 16) as u16,
            tag: (counters >> 32) as u32,
        }
    }
}

/// The descriptor of a slab.
#[repr(C)]
pub(super) struct Slab {
    pair: AtomicPair,
    next: AtomicU32,
    prev: AtomicU32,
    frame_and_class: u32,
    batch: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slab>() == DESCRIPTOR_BYTES && align_of::<Slab>() == 16);
/// Size of a [`Slab`]: two of them share a line of the processor's cache.
#[cfg(not(loom))]
pub(super) const DESCRIPTOR_BYTES: usize = 32;

impl Slab {
    /// Makes the descriptor of a slab on no list.
    pub(super) fn new(frame: u32, class: usize, state: State) -> Self {
        debug_assert!(frame < 1 << 24 && class < 1 << 8, "frame {frame} of class {class}");
        let (freelist, counters) = state.to_words();
        Self {
            pair: AtomicPair::new(freelist, counters),
            next: AtomicU32::new(0),
            prev: AtomicU32::new(0),
            frame_and_class: frame << 8 | class as u32,
            batch: AtomicU32::new(0),
        }
    }

    pub(super) fn frame(&self) -> u32 {
        self.frame_and_class >> 8
    }

    pub(super) fn class(&self) -> usize {
        (self.frame_and_class & 0xff) as usize
    }

    /// Returns the state, possibly mixed from two: only [`Slab::change`] can tell.
    #[inline]
    pub(super) fn state(&self) -> State {
        State::from_words(self.pair.load())
    }

    /// Returns whether the state was `old`, and makes it `new` if so.
    #[inline]
    pub(super) fn change(&self, old: State, new: State) -> bool {
        self.pair.compare_exchange(old.to_words(), new.to_words())
    }

    // Relaxed, for all links: the lock of the class orders them.
    pub(super) fn next(&self) -> SlabRef {
        SlabRef(self.next.load(Ordering::Relaxed))
    }

    pub(super) fn prev(&self) -> SlabRef {
        SlabRef(self.prev.load(Ordering::Relaxed))
    }

    // Relaxed, as above.
    pub(super) fn set_next(&self, slab: SlabRef) {
        self.next.store(slab.0, Ordering::Relaxed);
    }

    pub(super) fn set_prev(&self, slab: SlabRef) {
        self.prev.store(slab.0, Ordering::Relaxed);
    }
}

#[cfg(not(loom))]
impl Slab {
    /// Adds an object to the chain being made for this slab, and returns the object it must be
    /// linked to: itself when it is the first.
    #[inline]
    pub(super) fn add_to_batch(&self, object: Object) -> Object {
        debug_assert_eq!(object.frame(), self.frame(), "{object:?} is of another slab");
        let granule = object.0 % FRAME_GRANULES as u32;
        // Relaxed: one thread at a time makes chains of a class (invariant 2).
        let batch = self.batch.load(Ordering::Relaxed);
        if batch == 0 {
            self.batch.store(granule | granule << 8 | 1 << 16, Ordering::Relaxed);
            return object;
        }
        // Relaxed: as above.
        self.batch.store((batch & !0xff | granule) + (1 << 16), Ordering::Relaxed);
        Object(object.0 - granule + (batch & 0xff))
    }

    /// Returns the chain made so far, and starts an empty one.
    #[inline]
    pub(super) fn take_batch(&self) -> Chain {
        // Relaxed: as in `add_to_batch`.
        let batch = self.batch.load(Ordering::Relaxed);
        debug_assert!(batch != 0, "no object was added");
        self.batch.store(0, Ordering::Relaxed);
        let base = self.frame() * FRAME_GRANULES as u32;
        Chain {
            first: Object(base + (batch & 0xff)),
            last: Object(base + (batch >> 8 & 0xff)),
            count: (batch >> 16) as u16,
        }
    }
}
