//! The handle table: from the stable name of an object to the word that says where it lies.
//!
//! Idea: 510 words and a small head fill a frame, a *leaf*; directory frames turn the leaf's number
//! into its frame. A name is the leaf's number and the slot in it. Where stamps are checked
//! (`handle`), a leaf has 340 words, and a stamp beside each. Leaves with room are listed, empty
//! leaves go back at once and leave their number to the next one. Names are given and taken under
//! one lock. Words are found and pinned outside that lock (`pin`), so that a user of an object
//! waits only for other users of the same object.
//!
//! Invariants:
//! 1. A directory entry is the frame of a live leaf, or `FREE_NUMBER` with the next free leaf
//!    number, or `NONE` at the end of that chain. Entries from `numbers` on are undefined.
//! 2. A leaf is listed exactly when it has room. It is live exactly when it holds a used word.
//! 3. The low 15 bits of a word are the size of its object; the word is used when they are not
//!    zero. Unused slots are chained from a leaf's `free`, each once: above its low 16 bits, an
//!    unused word holds the distance to the next slot of the chain, less one. So a leaf of zeros is
//!    a chain of all slots.
//! 4. Directories, entries, heads of leaves and unused words change only under the lock of the
//!    names. Its holder makes Relaxed loads and stores of them. A thread that looks up a handle
//!    sees the values stored by the Release that let it in, or by the lock of the leaf that it
//!    passed.

mod check;

use core::mem::{self, offset_of, size_of};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use coldpress_sys::sync::SpinLock;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use super::PoolStats;
use super::handle::{CHECKS_HANDLES, Handle, Name, SIDE_SHIFT, Stamp, UnknownHandle};
use super::pin::{self, LOCKS, PIN, Pinned, Pins, SIZE_MASK};
use crate::frames::{FrameAllocator, FrameId, Mobility};

const SLOT_BITS: u32 = 9;
/// Words of a leaf: a frame without the head.
const SLOTS: usize = (PAGE_BYTES - HEAD_BYTES) / (size_of::<AtomicU64>() + size_of::<Stamp>());
const HEAD_BYTES: usize = 16;
/// Entries of a directory frame.
const ENTRIES: usize = PAGE_BYTES / size_of::<u32>();
/// Directory frames: enough for 2^25 names without stamps, the pages of a 128 GiB program.
const DIRECTORIES: usize = 64;

/// Bits that a name may have set.
pub(super) const NAME_BITS: u32 = SLOT_BITS + (DIRECTORIES * ENTRIES).ilog2();
const _: () = assert!(NAME_BITS <= SIDE_SHIFT);

/// No leaf, in a link or in the chain of free numbers; no frame, in the root.
const NONE: u32 = u32::MAX;
/// No slot, in a chain.
const END: u16 = SLOTS as u16;
/// Marks a directory entry that holds a free leaf number; frame numbers stay below 2^24.
const FREE_NUMBER: u32 = 1 << 31;

/// The part of a leaf that giving and taking names needs.
#[repr(C)]
struct Head {
    used: u16,
    free: u16,
    next: u32,
    prev: u32,
}

#[repr(C)]
struct Leaf {
    head: Head,
    words: [AtomicU64; SLOTS],
    stamps: [Stamp; SLOTS],
}

const _: () = assert!(size_of::<Leaf>() == PAGE_BYTES && SLOTS < 1 << SLOT_BITS);
const _: () = assert!(offset_of!(Leaf, words) == HEAD_BYTES);

/// A table of words with a name each.
pub(super) struct HandleTable<'f> {
    frames: &'f FrameAllocator,
    pins: Pins,
    /// The directory frames, filled in order.
    root: [AtomicU32; DIRECTORIES],
    /// Leaf numbers used since the table was last empty.
    numbers: AtomicU32,
    names: SpinLock<Names>,
}

/// The state for giving and taking names.
struct Names {
    directories: usize,
    /// The head of the chain of free leaf numbers, in the format of an entry.
    free_number: u32,
    with_room: u32,
    leaves: usize,
    /// The number of words in use, and below it the sum of their sizes.
    objects: usize,
    bytes: Bytes,
}

impl<'f> HandleTable<'f> {
    pub(super) const fn new(frames: &'f FrameAllocator) -> Self {
        Self {
            frames,
            pins: Pins::new(),
            root: [const { AtomicU32::new(NONE) }; DIRECTORIES],
            numbers: AtomicU32::new(0),
            names: SpinLock::new(Names {
                directories: 0,
                free_number: NONE,
                with_room: NONE,
                leaves: 0,
                objects: 0,
                bytes: Bytes(0),
            }),
        }
    }

    /// Returns the figures of a pool of type `P` as far as its names have them: without the frames
    /// of its objects, and without tables other than this one.
    pub(super) fn stats<P>(&self) -> PoolStats {
        let names = self.names.lock();
        PoolStats {
            objects: names.objects,
            bytes_stored: names.bytes,
            frames: PageCount(0),
            metadata: PageCount(names.leaves + names.directories).bytes() + Bytes(size_of::<P>()),
        }
    }

    /// Stores the word of an object, pinned until the object is complete. Returns `None` when there
    /// is no frame, or no name.
    pub(super) fn insert(&self, word: u64) -> Option<(Handle, Pinned<'_>)> {
        let names = &mut *self.names.lock();
        if names.with_room == NONE {
            self.add_leaf(names)?;
        }
        let number = names.with_room;
        let slot = self.head(names, number).free;
        assert!(slot < END, "a listed leaf has a free slot");
        let (place, stamp) = self.place(names, number, slot);
        // SAFETY: the word is used from here on, and its leaf is not given back before that ends.
        let place = unsafe { &*ptr::from_ref(place) };
        let handle = stamp.give(name_of(number, slot));
        // Relaxed: the word changes under the lock of the names.
        let free = next_slot(slot, place.load(Ordering::Relaxed));
        let head = self.head(names, number);
        (head.used, head.free) = (head.used + 1, free);
        let pinned = Pinned::begin(place, word);
        if free == END {
            self.unlist(names, number);
        }
        names.objects += 1;
        names.bytes += size_of_word(word);
        Some((handle, pinned))
    }

    /// Returns the word of a handle.
    #[inline]
    pub(super) fn get(&self, handle: Handle) -> Result<u64, UnknownHandle> {
        let is_it = |stamp: &Stamp| stamp.handle(handle.name) == handle;
        self.look_up(handle.name, is_it).ok_or(UnknownHandle)
    }

    /// Returns the word of a name, for the pool itself. `None` when the name is not in use.
    #[inline]
    pub(super) fn get_named(&self, name: Name) -> Option<u64> {
        self.look_up(name, |_| true)
    }

    #[inline]
    fn look_up(&self, name: Name, is_it: impl Fn(&Stamp) -> bool) -> Option<u64> {
        let (number, slot) = parts_of(name)?;
        self.pins.get(number, || {
            // SAFETY: word and stamp are found and read under the lock of the leaf.
            let (word, stamp) = unsafe { self.find(number, slot) }?;
            pin::value_of(word).filter(|_| is_it(stamp))
        })
    }

    /// Waits until no other thread uses the object of a handle, and pins it.
    #[inline]
    pub(super) fn pin(&self, handle: Handle) -> Result<Pinned<'_>, UnknownHandle> {
        let (number, slot) = parts_of(handle.name).ok_or(UnknownHandle)?;
        // SAFETY: the word is found under the lock of its leaf, and then pinned.
        let find = || Some(unsafe { self.find(number, slot) }?.0);
        let pinned = self.pins.pin(number, find).ok_or(UnknownHandle)?;
        if CHECKS_HANDLES {
            // The stamp is checked now: while the word is pinned, its name belongs to one object.
            // SAFETY: the word is pinned.
            let (_, stamp) = unsafe { self.find(number, slot) }.expect("it was found");
            if stamp.handle(handle.name) != handle {
                return Err(UnknownHandle);
            }
        }
        Ok(pinned)
    }

    /// Pins the object of a name, for the pool itself. Returns `None` when the name is not in use,
    /// or another thread uses the object.
    #[inline]
    pub(super) fn try_pin(&self, name: Name) -> Option<Pinned<'_>> {
        let (number, slot) = parts_of(name)?;
        // SAFETY: as in `pin`: the word is found under the lock of its leaf, and then pinned.
        self.pins.try_pin(number, || Some(unsafe { self.find(number, slot) }?.0))
    }

    /// Drops the word of a name, which must be pinned.
    pub(super) fn remove(&self, name: Name, pinned: Pinned<'_>) {
        let (number, slot) = parts_of(name).expect("it is in use");
        let names = &mut *self.names.lock();
        debug_assert!(names.objects > 0 && names.bytes >= size_of_word(pinned.word()));
        names.objects -= 1;
        names.bytes -= size_of_word(pinned.word());
        let head = self.head(names, number);
        assert!(head.used > 0, "a name is given back once");
        head.used -= 1;
        let used = usize::from(head.used);
        let next = mem::replace(&mut head.free, slot);
        // Relaxed: the word is unused from here on.
        pinned.into_word().store(link_to(slot, next), Ordering::Relaxed);
        if used == SLOTS - 1 {
            self.list(names, number);
        }
        if used == 0 {
            self.unlist(names, number);
            self.drop_leaf(names, number);
        }
    }

    /// Returns word and stamp of a slot of leaf `number`. `None` when there is no such leaf.
    ///
    /// # Safety
    /// The caller holds the lock of the leaf in `pins`, or has the word pinned, and uses word and
    /// stamp only while it holds the lock, or while the word is pinned.
    #[inline]
    unsafe fn find(&self, number: u32, slot: u16) -> Option<(&AtomicU64, &Stamp)> {
        // Acquire pairs with the Release in `add_leaf`: directory and entry are there.
        if number >= self.numbers.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the number is below `numbers`. Directories are given back only after the lock of
        // the leaf was passed.
        let entry = unsafe { self.entry_address(number).as_ref() };
        // Acquire pairs with the Release in `add_leaf`: this thread sees the leaf with no word in
        // use.
        let entry = entry.load(Ordering::Acquire);
        if entry & FREE_NUMBER != 0 {
            return None;
        }
        let leaf = self.leaf_in(entry).as_ptr();
        // SAFETY: a leaf lies there (invariant 1). It is given back only after its lock was passed,
        // and not while it holds a used word.
        Some(unsafe { place_in(leaf, slot) })
    }

    /// Makes a leaf with all slots free and lists it.
    fn add_leaf(&self, names: &mut Names) -> Option<()> {
        let frame = self.frames.alloc_zeroed(Mobility::Core)?;
        let Some(number) = self.free_number(names) else {
            // SAFETY: the frame was just handed to us and nothing refers to it.
            unsafe { self.frames.free(frame) };
            return None;
        };
        let leaf = self.leaf_in(frame.index()).as_ptr();
        // SAFETY: the frame was just handed to us. Zeros are a chain of all slots.
        unsafe { (&raw mut (*leaf).head).write(Head { used: 0, free: 0, next: NONE, prev: NONE }) };
        // Release, here and below, pairs with the Acquire in `find`.
        self.entry(names, number).store(frame.index(), Ordering::Release);
        if number == self.numbers.load(Ordering::Relaxed) {
            self.numbers.store(number + 1, Ordering::Release);
        }
        names.leaves += 1;
        self.list(names, number);
        Some(())
    }

    /// Returns a leaf number that is not in use, with a place in a directory: one used before, or
    /// the next.
    fn free_number(&self, names: &mut Names) -> Option<u32> {
        if names.free_number != NONE {
            debug_assert!(names.free_number & FREE_NUMBER != 0, "the chain leads to a leaf");
            let number = names.free_number & !FREE_NUMBER;
            names.free_number = self.entry(names, number).load(Ordering::Relaxed);
            return Some(number);
        }
        let number = self.numbers.load(Ordering::Relaxed);
        if number as usize == names.directories * ENTRIES {
            let directory = self.root.get(names.directories)?;
            let frame = self.frames.alloc(Mobility::Core)?;
            directory.store(frame.index(), Ordering::Relaxed);
            names.directories += 1;
        }
        Some(number)
    }

    /// Gives back an empty leaf that is not listed, and the directories with the last leaf. One
    /// directory serves 522240 names, so all of them stay until then.
    fn drop_leaf(&self, names: &mut Names, number: u32) {
        assert!(names.leaves > 0, "a leaf is given back once");
        let entry = self.entry(names, number);
        let frame = FrameId::from_index(entry.load(Ordering::Relaxed));
        entry.store(names.free_number, Ordering::Relaxed);
        names.free_number = number | FREE_NUMBER;
        names.leaves -= 1;
        self.pins.pass(number);
        // SAFETY: the frame is ours (invariant 1), its directory entry is gone, and every thread
        // that found it before is done with it.
        unsafe { self.frames.free(frame) };
        if names.leaves == 0 {
            self.drop_directories(names);
        }
    }

    /// Gives back the directories, which no leaf needs.
    fn drop_directories(&self, names: &mut Names) {
        assert_eq!(names.leaves, 0, "a leaf needs its directory");
        let numbers = self.numbers.load(Ordering::Relaxed);
        self.numbers.store(0, Ordering::Relaxed);
        // A thread that still reads a directory has the lock of a leaf with one of these numbers.
        (0..numbers.min(LOCKS as u32)).for_each(|number| self.pins.pass(number));
        for directory in &self.root[..names.directories] {
            let frame = FrameId::from_index(directory.load(Ordering::Relaxed));
            directory.store(NONE, Ordering::Relaxed);
            // SAFETY: the frame is ours, no number leads to it, and every thread that read it
            // before is done.
            unsafe { self.frames.free(frame) };
        }
        (names.directories, names.free_number) = (0, NONE);
    }

    fn list(&self, names: &mut Names, number: u32) {
        debug_assert!(names.with_room != number, "leaf {number} is listed");
        let next = mem::replace(&mut names.with_room, number);
        if next != NONE {
            self.head(names, next).prev = number;
        }
        let head = self.head(names, number);
        (head.next, head.prev) = (next, NONE);
    }

    fn unlist(&self, names: &mut Names, number: u32) {
        let Head { next, prev, .. } = *self.head(names, number);
        debug_assert!(prev != NONE || names.with_room == number, "leaf {number} is not listed");
        if next != NONE {
            self.head(names, next).prev = prev;
        }
        if prev != NONE {
            self.head(names, prev).next = next;
        } else {
            names.with_room = next;
        }
    }

    /// Returns the address of the directory entry of a number that has a directory.
    fn entry_address(&self, number: u32) -> NonNull<AtomicU32> {
        let directory = self.root[number as usize / ENTRIES].load(Ordering::Relaxed);
        assert!(directory != NONE, "a leaf number has a directory");
        let base = self.frames.address(FrameId::from_index(directory)).cast::<AtomicU32>();
        // SAFETY: the offset is below the number of entries in a frame.
        unsafe { base.add(number as usize % ENTRIES) }
    }

    fn entry<'n>(&self, _: &'n Names, number: u32) -> &'n AtomicU32 {
        // SAFETY: the directory frame is ours while it is in the root, which changes by `&mut
        // Names` only.
        unsafe { self.entry_address(number).as_ref() }
    }

    fn leaf_in(&self, frame: u32) -> NonNull<Leaf> {
        self.frames.address(FrameId::from_index(frame)).cast()
    }

    fn leaf(&self, names: &Names, number: u32) -> NonNull<Leaf> {
        let entry = self.entry(names, number).load(Ordering::Relaxed);
        assert!(entry & FREE_NUMBER == 0, "a leaf in use has a frame");
        self.leaf_in(entry)
    }

    fn head<'n>(&self, names: &'n mut Names, number: u32) -> &'n mut Head {
        // SAFETY: the frame is a leaf of ours (invariant 1) as long as `names` does not change;
        // heads are reached with `names` only, which is borrowed mutably. Any bytes are a head.
        unsafe { &mut (*self.leaf(names, number).as_ptr()).head }
    }

    fn place<'n>(&self, names: &'n Names, number: u32, slot: u16) -> (&'n AtomicU64, &'n Stamp) {
        // SAFETY: as in `head`; no mutable reference to words and stamps exists.
        unsafe { place_in(self.leaf(names, number).as_ptr(), slot) }
    }

    fn word<'n>(&self, names: &'n Names, number: u32, slot: u16) -> &'n AtomicU64 {
        self.place(names, number, slot).0
    }

    /// Returns the numbers of all live leaves.
    fn live<'n>(&self, names: &'n Names) -> impl Iterator<Item = u32> + use<'_, 'n, 'f> {
        let numbers = 0..self.numbers.load(Ordering::Relaxed);
        numbers
            .filter(|number| self.entry(names, *number).load(Ordering::Relaxed) & FREE_NUMBER == 0)
    }

    /// Calls `f` with every name in use and its word. No name is given or taken meanwhile.
    pub(super) fn for_each(&self, mut f: impl FnMut(Name, u64)) {
        let names = &*self.names.lock();
        for number in self.live(names) {
            for slot in 0..END {
                // Acquire pairs with the Release in the begin of a pin and in the drop of the last.
                let word = self.word(names, number, slot).load(Ordering::Acquire) & !PIN;
                if word & SIZE_MASK != 0 {
                    f(name_of(number, slot), word);
                }
            }
        }
    }
}

impl Drop for HandleTable<'_> {
    fn drop(&mut self) {
        let names = &mut *self.names.lock();
        for number in 0..self.numbers.load(Ordering::Relaxed) {
            // The directories go with the last leaf, which may come before the last number.
            if names.leaves > 0
                && self.entry(names, number).load(Ordering::Relaxed) & FREE_NUMBER == 0
            {
                self.drop_leaf(names, number);
            }
        }
    }
}

/// Returns word and stamp of a slot.
///
/// # Safety
/// A leaf lies there as long as the references live.
#[inline]
unsafe fn place_in<'n>(leaf: *const Leaf, slot: u16) -> (&'n AtomicU64, &'n Stamp) {
    let slot = usize::from(slot);
    // SAFETY: the caller promises a leaf there; words and stamps are atomic, and any bytes are one.
    unsafe { (&(*leaf).words[slot], &(*leaf).stamps[slot]) }
}

/// Returns the name of a slot of a leaf. One is added so that no name is zero; slots stop short of
/// their last value.
fn name_of(number: u32, slot: u16) -> Name {
    Name(number << SLOT_BITS | (u32::from(slot) + 1))
}

/// Splits a name into leaf and slot. `None` when no leaf has such a slot.
#[inline]
fn parts_of(name: Name) -> Option<(u32, u16)> {
    let slot = (name.0 & ((1 << SLOT_BITS) - 1)).checked_sub(1)?;
    ((slot as usize) < SLOTS).then_some((name.0 >> SLOT_BITS, slot as u16))
}

/// Returns the slot behind `slot` in the chain, from the word of `slot`.
fn next_slot(slot: u16, word: u64) -> u16 {
    slot.wrapping_add((word >> 16) as u16).wrapping_add(1)
}

/// Returns the word of an unused slot that has `next` behind it in the chain.
fn link_to(slot: u16, next: u16) -> u64 {
    u64::from(next.wrapping_sub(slot).wrapping_sub(1)) << 16
}

/// Returns the size of the object of a word.
fn size_of_word(word: u64) -> Bytes {
    Bytes((word & SIZE_MASK) as usize)
}
