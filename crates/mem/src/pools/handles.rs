//! The handle table: from the stable name of an object to the word that says where it lies.
//!
//! Idea: 510 words and a small head fill a frame, a *leaf*; directory frames turn the leaf's number
//! into its frame. A handle is the leaf's number and the slot in it. Leaves with room are listed,
//! empty leaves go back at once and leave their number to the next one.
//!
//! Invariants:
//! 1. A directory entry is the frame of a live leaf, or `FREE_NUMBER` with the next free leaf
//!    number, or `NONE` at the end of that chain. Entries from `numbers` on are undefined.
//! 2. A leaf is listed exactly when it has room. It is live exactly when it holds a used word.
//! 3. A word is used when its low 16 bits are not zero. Slots below a leaf's `carved` are used or
//!    chained from its `free`, each once; the rest is undefined.

use core::mem::{self, size_of};
use core::ptr::NonNull;

use coldpress_sys::{PAGE_BYTES, PageCount};

use super::Handle;
use crate::frames::{FrameAllocator, FrameId, Mobility};

const SLOT_BITS: u32 = 9;
/// Words of a leaf: a frame without the head.
const SLOTS: usize = PAGE_BYTES / size_of::<u64>() - HEAD_WORDS;
const HEAD_WORDS: usize = 2;
/// Entries of a directory frame.
const ENTRIES: usize = PAGE_BYTES / size_of::<u32>();
/// Directory frames: enough for 2^25 handles, the pages of a 128 GiB program.
const DIRECTORIES: usize = 64;

/// Bits of a handle that are ever set.
pub(super) const HANDLE_BITS: u32 = SLOT_BITS + (DIRECTORIES * ENTRIES).ilog2();

/// No leaf, in a link or in the chain of free numbers; no frame, in the root.
const NONE: u32 = u32::MAX;
/// No slot, in a chain.
const END: u16 = u16::MAX;
/// Marks a directory entry that holds a free leaf number; frame numbers stay below 2^24.
const FREE_NUMBER: u32 = 1 << 31;
/// The bits of a word that tell used from free.
const USED_MASK: u64 = 0xffff;

#[repr(C)]
struct Leaf {
    used: u16,
    free: u16,
    carved: u16,
    _pad: u16,
    next: u32,
    prev: u32,
    words: [u64; SLOTS],
}

const _: () = assert!(size_of::<Leaf>() == PAGE_BYTES && SLOTS < 1 << SLOT_BITS);

/// A table of words with a name each.
pub(super) struct HandleTable<'f> {
    frames: &'f FrameAllocator,
    /// The directory frames, filled in order.
    root: [u32; DIRECTORIES],
    directories: usize,
    /// Leaf numbers ever used since the table was empty.
    numbers: u32,
    /// The head of the chain of free leaf numbers, as an entry.
    free_number: u32,
    with_room: u32,
    leaves: usize,
}

impl<'f> HandleTable<'f> {
    pub(super) const fn new(frames: &'f FrameAllocator) -> Self {
        Self {
            frames,
            root: [NONE; DIRECTORIES],
            directories: 0,
            numbers: 0,
            free_number: NONE,
            with_room: NONE,
            leaves: 0,
        }
    }

    /// Frames the table takes.
    pub(super) fn frames(&self) -> PageCount {
        PageCount(self.leaves + self.directories)
    }

    /// Stores a word, whose low 16 bits must not be zero. `None` when there is no frame, or no
    /// name.
    pub(super) fn insert(&mut self, word: u64) -> Option<Handle> {
        assert!(word & USED_MASK != 0);
        if self.with_room == NONE {
            self.add_leaf()?;
        }
        let number = self.with_room;
        let leaf = self.leaf_mut(number);
        let slot = if leaf.free == END {
            leaf.carved += 1;
            leaf.carved - 1
        } else {
            let slot = leaf.free;
            leaf.free = (leaf.words[usize::from(slot)] >> 16) as u16;
            slot
        };
        leaf.words[usize::from(slot)] = word;
        leaf.used += 1;
        if usize::from(leaf.used) == SLOTS {
            self.unlist(number);
        }
        // One is added so that no handle is zero; slots stop short of their last value.
        Some(Handle(number << SLOT_BITS | (u32::from(slot) + 1)))
    }

    /// The word of a handle. `None` for a name that is not in use.
    #[inline]
    pub(super) fn get(&self, handle: Handle) -> Option<u64> {
        let (number, slot) = (handle.0 >> SLOT_BITS, slot_of(handle)?);
        if number >= self.numbers {
            return None;
        }
        let entry = *self.entry(number);
        if entry & FREE_NUMBER != 0 {
            return None;
        }
        let leaf = self.leaf(number);
        if slot >= usize::from(leaf.carved) {
            return None;
        }
        Some(leaf.words[slot]).filter(|word| word & USED_MASK != 0)
    }

    /// Replaces the word of a handle in use, by one whose low 16 bits are not zero.
    pub(super) fn set(&mut self, handle: Handle, word: u64) {
        assert!(word & USED_MASK != 0 && self.get(handle).is_some());
        let slot = slot_of(handle).expect("it is in use");
        self.leaf_mut(handle.0 >> SLOT_BITS).words[slot] = word;
    }

    /// Drops a word. `None` for a name that is not in use.
    pub(super) fn remove(&mut self, handle: Handle) -> Option<u64> {
        let word = self.get(handle)?;
        let (number, slot) = (handle.0 >> SLOT_BITS, slot_of(handle)?);
        let leaf = self.leaf_mut(number);
        leaf.words[slot] = u64::from(mem::replace(&mut leaf.free, slot as u16)) << 16;
        leaf.used -= 1;
        let used = usize::from(leaf.used);
        if used == SLOTS - 1 {
            self.list(number);
        }
        if used == 0 {
            self.unlist(number);
            self.drop_leaf(number);
        }
        Some(word)
    }

    /// Makes a leaf with all slots free and lists it.
    fn add_leaf(&mut self) -> Option<()> {
        let frame = self.frames.alloc(Mobility::Core).ok()?;
        let Some(number) = self.take_number() else {
            // SAFETY: the frame was just handed to us and nothing refers to it.
            unsafe { self.frames.free(frame) };
            return None;
        };
        *self.entry_mut(number) = frame.index();
        self.leaves += 1;
        let leaf = self.leaf_mut(number);
        (leaf.used, leaf.free, leaf.carved) = (0, END, 0);
        self.list(number);
        Some(())
    }

    /// A leaf number nobody uses, with an entry in a directory.
    fn take_number(&mut self) -> Option<u32> {
        if self.free_number != NONE {
            let number = self.free_number & !FREE_NUMBER;
            self.free_number = *self.entry(number);
            return Some(number);
        }
        if self.numbers as usize == self.directories * ENTRIES {
            let directory = self.root.get_mut(self.directories)?;
            *directory = self.frames.alloc(Mobility::Core).ok()?.index();
            self.directories += 1;
        }
        self.numbers += 1;
        Some(self.numbers - 1)
    }

    /// Gives back an empty leaf that is not listed, and the directories with the last leaf: there
    /// is one for 522240 handles, so they stay until then.
    fn drop_leaf(&mut self, number: u32) {
        let frame = FrameId::from_index(*self.entry(number));
        *self.entry_mut(number) = self.free_number;
        self.free_number = number | FREE_NUMBER;
        self.leaves -= 1;
        // SAFETY: the frame is ours (invariant 1), and its directory entry is gone.
        unsafe { self.frames.free(frame) };
        if self.leaves > 0 {
            return;
        }
        for directory in &mut self.root[..self.directories] {
            let frame = FrameId::from_index(mem::replace(directory, NONE));
            // SAFETY: the frame is ours, and the table forgets all its entries below.
            unsafe { self.frames.free(frame) };
        }
        (self.directories, self.numbers, self.free_number) = (0, 0, NONE);
    }

    fn list(&mut self, number: u32) {
        let head = mem::replace(&mut self.with_room, number);
        if head != NONE {
            self.leaf_mut(head).prev = number;
        }
        let leaf = self.leaf_mut(number);
        (leaf.next, leaf.prev) = (head, NONE);
    }

    fn unlist(&mut self, number: u32) {
        let leaf = self.leaf_mut(number);
        let (next, prev) = (leaf.next, leaf.prev);
        if next != NONE {
            self.leaf_mut(next).prev = prev;
        }
        if prev != NONE {
            self.leaf_mut(prev).next = next;
        } else {
            self.with_room = next;
        }
    }

    /// The address of a directory entry of a number below `directories * ENTRIES`.
    fn entry_address(&self, number: u32) -> NonNull<u32> {
        let directory = self.root[number as usize / ENTRIES];
        assert!(directory != NONE, "a leaf number has a directory");
        let base = self.frames.address(FrameId::from_index(directory)).cast::<u32>();
        // SAFETY: the offset is below the number of entries in a frame.
        unsafe { base.add(number as usize % ENTRIES) }
    }

    fn entry(&self, number: u32) -> &u32 {
        // SAFETY: the directory frame is ours while it is in the root; it changes by `&mut self`
        // only.
        unsafe { self.entry_address(number).as_ref() }
    }

    fn entry_mut(&mut self, number: u32) -> &mut u32 {
        // SAFETY: the directory frame is ours while it is in the root, and we are borrowed mutably.
        unsafe { self.entry_address(number).as_mut() }
    }

    fn leaf_address(&self, number: u32) -> NonNull<Leaf> {
        let entry = *self.entry(number);
        assert!(entry & FREE_NUMBER == 0, "a leaf in use has a frame");
        self.frames.address(FrameId::from_index(entry)).cast()
    }

    fn leaf(&self, number: u32) -> &Leaf {
        // SAFETY: the entry names a frame of ours (invariant 1); it changes by `&mut self` only.
        // Any bytes are a valid leaf.
        unsafe { self.leaf_address(number).as_ref() }
    }

    fn leaf_mut(&mut self, number: u32) -> &mut Leaf {
        // SAFETY: as in `leaf`, and we are borrowed mutably.
        unsafe { self.leaf_address(number).as_mut() }
    }

    /// Calls `f` with every handle in use and its word.
    pub(super) fn for_each(&self, mut f: impl FnMut(Handle, u64)) {
        for number in 0..self.numbers {
            for slot in 1..=SLOTS as u32 {
                let handle = Handle(number << SLOT_BITS | slot);
                if let Some(word) = self.get(handle) {
                    f(handle, word);
                }
            }
        }
    }

    /// Walks the whole table. Panics when an invariant is broken.
    pub(super) fn check(&self) {
        let (mut leaves, mut with_room) = (0, 0);
        for number in (0..self.numbers).filter(|number| self.entry(*number) & FREE_NUMBER == 0) {
            let leaf = self.leaf(number);
            let chained = self.check_chain(leaf);
            assert!(leaf.used > 0, "leaf {number} is empty and was not given back");
            assert_eq!(leaf.used + chained, leaf.carved, "leaf {number} lost slots");
            leaves += 1;
            with_room += usize::from(usize::from(leaf.used) < SLOTS);
        }
        assert_eq!(leaves, self.leaves);
        let (mut number, mut prev) = (self.with_room, NONE);
        while number != NONE {
            let leaf = self.leaf(number);
            assert!(usize::from(leaf.used) < SLOTS, "leaf {number} has no room but is listed");
            assert_eq!(leaf.prev, prev, "the list is broken at leaf {number}");
            (number, prev) = (leaf.next, number);
            with_room = with_room.checked_sub(1).expect("the list is a ring");
        }
        assert_eq!(with_room, 0, "a leaf with room is not listed");
        let (mut entry, mut free_numbers) = (self.free_number, 0);
        while entry != NONE {
            assert!(entry & FREE_NUMBER != 0, "a leaf in use is chained as free");
            free_numbers += 1;
            assert!(free_numbers + self.leaves <= self.numbers as usize, "the chain is a ring");
            entry = *self.entry(entry & !FREE_NUMBER);
        }
        assert_eq!(free_numbers + self.leaves, self.numbers as usize, "leaf numbers lost");
    }

    /// Follows the chain of free slots of a leaf and returns its length.
    fn check_chain(&self, leaf: &Leaf) -> u16 {
        let (mut slot, mut count) = (leaf.free, 0);
        while slot != END {
            assert!(slot < leaf.carved, "the chain leaves the carved slots");
            let word = leaf.words[usize::from(slot)];
            assert!(word & USED_MASK == 0, "a chained slot is in use");
            count += 1;
            assert!(count <= leaf.carved, "the chain is a ring");
            slot = (word >> 16) as u16;
        }
        count
    }
}

impl Drop for HandleTable<'_> {
    fn drop(&mut self) {
        for number in 0..self.numbers {
            // The directories go with the last leaf, before the last number perhaps.
            if self.leaves > 0 && *self.entry(number) & FREE_NUMBER == 0 {
                self.drop_leaf(number);
            }
        }
    }
}

/// The slot a handle names. `None` when no leaf has such a slot.
fn slot_of(handle: Handle) -> Option<usize> {
    let slot = (handle.0 as usize & ((1 << SLOT_BITS) - 1)).checked_sub(1)?;
    (slot < SLOTS).then_some(slot)
}
