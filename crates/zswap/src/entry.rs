//! Entries: what is known of each stored page, 24 bytes, in chunks that never move. Where handles
//! are checked they are 32.
//!
//! An entry holds no key: the index leads to it, and writeback changes its place without asking who
//! it is. Entries of a shard are named by 29-bit numbers, so that 32 bits name one of any shard.
//! Free ones of a chunk are linked through `older`.
//!
//! Invariants (`check` walks them):
//! 1. `chunk.used` counts the entries handed out of it; the others are on its free list.
//! 2. No chunk below `first_free` has both memory and a free entry.
//! 3. At most one chunk with memory is empty: the spare, kept so that a page stored and invalidated
//!    again and again does not make and drop a chunk each time.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::ops::{Index, IndexMut};

use crate::pool::{CHECKS_HANDLES, Handle};
use coldpress_backing::SlotId;
use coldpress_sys::{Bytes, PAGE_BYTES};

use crate::codecs::Coding;
use crate::outgoing::Member;
use crate::room::{self, NoMemory};
use crate::shard::SHARDS;

/// Entries in a chunk: as many as fit one frame, so that the allocator below need not find more.
const CHUNK_ENTRIES: usize = PAGE_BYTES / size_of::<Entry>();

/// The name of an entry: one more than its position in the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryId(NonZeroU32);

impl EntryId {
    /// The entry at `position`, or nothing when it cannot be named.
    pub(crate) fn at(position: usize) -> Option<Self> {
        let number = u32::try_from(position + 1).ok().filter(|number| *number <= NUMBER_MAX)?;
        NonZeroU32::new(number).map(Self)
    }

    /// The chunk and the place in it.
    fn position(self) -> (usize, usize) {
        let position = self.0.get() as usize - 1;
        (position / CHUNK_ENTRIES, position % CHUNK_ENTRIES)
    }
}

/// The highest number of an entry in its shard.
const NUMBER_MAX: u32 = u32::MAX / SHARDS as u32 - 1;

/// The name of an entry of any shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageId(NonZeroU32);

impl PageId {
    /// That entry of that shard.
    pub(crate) fn new(shard: usize, EntryId(number): EntryId) -> Self {
        // Below 2^32, as the number is at most NUMBER_MAX and the shard below SHARDS.
        Self(number.saturating_mul(SHARDS_NONZERO).saturating_add(shard as u32))
    }

    /// The shard, and the entry in it.
    pub(crate) fn parts(self) -> (usize, EntryId) {
        let (shard, number) = (self.0.get() % SHARDS as u32, self.0.get() / SHARDS as u32);
        // Not zero, as `new` began with a number that is not.
        (shard as usize, EntryId(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)))
    }
}

const SHARDS_NONZERO: NonZeroU32 = NonZeroU32::new(SHARDS as u32).expect("there are shards");

/// Where the bytes of a page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: the page is `word` repeated.
    SameFilled { word: u64 },
    /// In the pool. `referenced`: loaded since it was last looked at by writeback. `aged`: looked
    /// at by ageing. `era`: when it came there, see `lru`.
    Pool {
        handle: Handle,
        checksum: u32,
        length: u16,
        coding: Coding,
        referenced: bool,
        aged: bool,
        era: u16,
    },
    /// In the pool, and being written back as `member` to `offset` of its batch's slot.
    Leaving {
        handle: Handle,
        checksum: u32,
        offset: u16,
        length: u16,
        coding: Coding,
        member: Member,
    },
    /// Written back: `length` bytes at `offset` of `slot`, sealed, their tag behind them.
    Backing { slot: SlotId, checksum: u32, offset: u16, length: u16, coding: Coding },
}

impl Place {
    /// A page that has just come to the pool.
    pub(crate) fn new_in_pool(handle: Handle, checksum: u32, length: u16, coding: Coding) -> Self {
        Self::Pool { handle, checksum, length, coding, referenced: false, aged: false, era: 0 }
    }

    /// Whether the transfers take part in it: it is made and left with them in hand.
    pub(crate) fn is_transferred(self) -> bool {
        matches!(self, Self::Leaving { .. } | Self::Backing { .. })
    }

    /// How the bytes are coded; a repeated word is not.
    pub(crate) fn coding(self) -> Coding {
        match self {
            Self::SameFilled { .. } => Coding::Raw,
            Self::Pool { coding, .. }
            | Self::Leaving { coding, .. }
            | Self::Backing { coding, .. } => coding,
        }
    }
}

/// A stored page, or a free entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    /// The neighbour towards the oldest, while in the LRU list; the next free entry, while free.
    pub(crate) older: Option<EntryId>,
    /// The neighbour towards the youngest, while in the LRU list.
    pub(crate) younger: Option<EntryId>,
}

// Beside 4 bytes in the index this is all a stored page costs outside the pool.
const _: () = assert!(size_of::<Entry>() == if CHECKS_HANDLES { 32 } else { 24 });
const _: () = assert!(size_of::<Option<EntryId>>() == 4);
// Positions in a slot and lengths of objects fit the 16 bits they have.
const _: () = assert!(coldpress_backing::SLOT_BYTES.0 - 1 <= u16::MAX as usize);

impl Entry {
    /// A page in `place`, in no list.
    fn new(place: Place) -> Self {
        Self { place, older: None, younger: None }
    }

    /// Whether ageing has looked at it.
    pub(crate) fn is_aged(&self) -> bool {
        matches!(self.place, Place::Pool { aged: true, .. })
    }

    /// When it came to the pool; for one that is there.
    pub(crate) fn era(&self) -> u16 {
        if let Place::Pool { era, .. } = self.place { era } else { 0 }
    }

    /// Notes whether ageing has looked at it; for one in the pool.
    pub(crate) fn set_aged(&mut self, is_aged: bool) {
        if let Place::Pool { aged, .. } = &mut self.place {
            *aged = is_aged;
        }
    }
}

/// Consecutive entries. `entries` is empty while the chunk's memory is given back.
#[derive(Debug, Default)]
struct Chunk {
    entries: Box<[Entry]>,
    free: Option<EntryId>,
    used: usize,
}

impl Chunk {
    /// Whether the chunk has memory and a free entry in it.
    fn has_room(&self) -> bool {
        self.free.is_some()
    }
}

/// All entries.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    chunks: Vec<Chunk>,
    first_free: usize,
    spare: Option<usize>,
    used: usize,
}

impl Entries {
    /// The number of entries handed out.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// One more than the highest position an entry may have.
    pub(crate) fn positions(&self) -> usize {
        self.chunks.len() * CHUNK_ENTRIES
    }

    /// Where the page at `position` is. `None` when there is no entry; what is said of a free one
    /// is that it is nowhere.
    pub(crate) fn place_at(&self, position: usize) -> Option<Place> {
        let chunk = self.chunks.get(position / CHUNK_ENTRIES)?;
        chunk.entries.get(position % CHUNK_ENTRIES).map(|entry| entry.place)
    }

    /// The memory of all chunks.
    pub(crate) fn memory(&self) -> Bytes {
        let entries: usize = self.chunks.iter().map(|chunk| size_of_val(&*chunk.entries)).sum();
        Bytes(entries + self.chunks.capacity() * size_of::<Chunk>())
    }

    /// Hands out an entry for a page in `place`.
    pub(crate) fn alloc(&mut self, place: Place) -> Result<EntryId, NoMemory> {
        let behind = &self.chunks[self.first_free..];
        self.first_free += behind.iter().take_while(|chunk| !chunk.has_room()).count();
        if self.first_free == self.chunks.len() {
            self.first_free = self.add_memory()?;
        }
        let chunk = &mut self.chunks[self.first_free];
        let id = chunk.free.ok_or(NoMemory)?;
        let entry = &mut chunk.entries[id.position().1];
        chunk.free = entry.older;
        chunk.used += 1;
        *entry = Entry::new(place);
        self.used += 1;
        if self.spare == Some(self.first_free) {
            self.spare = None;
        }
        Ok(id)
    }

    /// Takes an entry back. Its place must hold nothing any more, and it must be in no list.
    pub(crate) fn free(&mut self, id: EntryId) {
        let (number, index) = id.position();
        let chunk = &mut self.chunks[number];
        chunk.entries[index] =
            Entry { older: chunk.free, ..Entry::new(Place::SameFilled { word: 0 }) };
        chunk.free = Some(id);
        chunk.used -= 1;
        self.used -= 1;
        if chunk.used > 0 || self.spare.is_none() {
            self.first_free = self.first_free.min(number);
            if chunk.used == 0 {
                self.spare = Some(number);
            }
        } else {
            *chunk = Chunk::default();
        }
    }

    /// Gives memory to the lowest chunk that has none. Which one.
    fn add_memory(&mut self) -> Result<usize, NoMemory> {
        let without = self.chunks.iter().position(|chunk| chunk.entries.is_empty());
        let number = without.unwrap_or(self.chunks.len());
        let first = number * CHUNK_ENTRIES;
        EntryId::at(first + CHUNK_ENTRIES - 1).ok_or(NoMemory)?;
        let mut position = first;
        let entries = room::table(CHUNK_ENTRIES, || {
            position += 1;
            let older = if position < first + CHUNK_ENTRIES { EntryId::at(position) } else { None };
            Entry { older, ..Entry::new(Place::SameFilled { word: 0 }) }
        })?;
        let chunk = Chunk { entries, free: EntryId::at(first), used: 0 };
        if without.is_some() {
            self.chunks[number] = chunk;
        } else {
            room::reserve_one(&mut self.chunks)?;
            self.chunks.push(chunk);
        }
        Ok(number)
    }

    /// Walks all chunks and stops at a broken invariant.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut used = 0;
        for (number, chunk) in self.chunks.iter().enumerate() {
            let mut free = 0;
            let mut next = chunk.free;
            while let Some(id) = next {
                assert_eq!(id.position().0, number);
                free += 1;
                next = self[id].older;
            }
            assert_eq!(free + chunk.used, chunk.entries.len());
            assert!(number >= self.first_free || free == 0);
            let is_spare = chunk.used == 0 && !chunk.entries.is_empty();
            assert_eq!(is_spare, self.spare == Some(number));
            used += chunk.used;
        }
        assert_eq!(used, self.used);
    }
}

impl Index<EntryId> for Entries {
    type Output = Entry;
    fn index(&self, id: EntryId) -> &Entry {
        let (chunk, index) = id.position();
        &self.chunks[chunk].entries[index]
    }
}

impl IndexMut<EntryId> for Entries {
    fn index_mut(&mut self, id: EntryId) -> &mut Entry {
        let (chunk, index) = id.position();
        &mut self.chunks[chunk].entries[index]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list of the live entries; each must keep its place.
        #[test]
        fn entries_do_as_a_list_does(
            steps in prop::collection::vec((0_u8..5, any::<usize>()), 0..2000),
        ) {
            let mut entries = Entries::default();
            let mut live = Vec::new();
            for (number, (verb, pick)) in steps.into_iter().enumerate() {
                // Whole stretches of allocations and of frees, so that chunks fill and empty.
                if (verb < 4) == (number / 700 % 2 == 0) {
                    let place = Place::SameFilled { word: number as u64 };
                    live.push((entries.alloc(place).unwrap(), place));
                } else if !live.is_empty() {
                    entries.free(live.swap_remove(pick % live.len()).0);
                }
            }
            entries.check();
            for &(id, place) in &live {
                prop_assert_eq!(entries[id].place, place);
            }
            live.into_iter().for_each(|(id, _)| entries.free(id));
            entries.check();
            prop_assert_eq!(entries.used(), 0);
            let chunks = entries.chunks.iter().filter(|chunk| !chunk.entries.is_empty());
            prop_assert!(chunks.count() <= 1);
        }
    }

    #[test]
    fn without_memory_nothing_changes() {
        let mut entries = Entries::default();
        let place = Place::SameFilled { word: 1 };
        for left in 0..2 {
            room::failing::after(Some(left));
            assert_eq!(entries.alloc(place), Err(NoMemory));
            entries.check();
        }
        room::failing::after(Some(2));
        assert!(entries.alloc(place).is_ok());
        room::failing::after(None);
    }
}
