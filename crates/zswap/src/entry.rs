//! Entries: what is known of each stored page, in 24 bytes, in chunks that never move. Where
//! handles are checked an entry takes 32 bytes.
//!
//! An entry holds no key: the index leads to the entry, and writeback changes a page's place
//! without asking for its key. Entries of a shard are named by 29-bit numbers, so that 32 bits name
//! an entry of any shard. Free entries of a chunk are linked through `older`.
//!
//! Invariants (`check` walks them):
//! 1. `chunk.used` counts the entries handed out of the chunk; the others are on its free list.
//! 2. No chunk below `first_free` has both memory and a free entry.
//! 3. At most one chunk with memory is empty: the spare, kept so that a page stored and invalidated
//!    again and again does not make and drop a chunk each time.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::pool::{CHECKS_HANDLES, Handle};
use coldpress_backing::SlotId;
use coldpress_sys::{Bytes, PAGE_BYTES};

use crate::codecs::Coding;
use crate::ids::{EntryId, Member};
use crate::room::{self, NoMemory};

/// Entries in a chunk: as many as fit one frame, so that the allocator below need not find more.
const CHUNK_ENTRIES: usize = PAGE_BYTES / size_of::<Entry>();

/// Returns the number of the chunk of an entry, and the place in it.
fn chunk_of(id: EntryId) -> (usize, usize) {
    (id.position() / CHUNK_ENTRIES, id.position() % CHUNK_ENTRIES)
}

/// The place of a page's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PagePlace {
    /// Nowhere: the page is `word` repeated.
    SameFilled { word: u64 },
    /// In the pool. `referenced`: loaded since writeback last looked at the page. `tried`: looked
    /// at by recompression. `era`: when the page came to the pool, see `lru`.
    Pool {
        handle: Handle,
        checksum: u32,
        length: u16,
        coding: Coding,
        referenced: bool,
        tried: bool,
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
    /// Written back: `length` bytes at `offset` of `slot`, sealed, with their tag behind them.
    Backing { slot: SlotId, checksum: u32, offset: u16, length: u16, coding: Coding },
}

impl PagePlace {
    /// Makes the place of a page that has just come to the pool.
    pub(crate) fn new_in_pool(handle: Handle, checksum: u32, length: u16, coding: Coding) -> Self {
        Self::Pool { handle, checksum, length, coding, referenced: false, tried: false, era: 0 }
    }

    /// Returns whether the transfers take part in this place, which is then made and left with them
    /// in hand.
    pub(crate) fn is_transferred(self) -> bool {
        matches!(self, Self::Leaving { .. } | Self::Backing { .. })
    }

    /// Returns whether an entry of this place is in the LRU list.
    pub(crate) fn is_in_list(self) -> bool {
        matches!(self, Self::Pool { .. })
    }

    /// Returns whether a batch has the page.
    pub(crate) fn is_leaving(self) -> bool {
        matches!(self, Self::Leaving { .. })
    }

    /// Returns how the bytes are coded: `Raw` for a repeated word.
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
    pub(crate) place: PagePlace,
    /// The neighbour towards the oldest, while in the LRU list; the next free entry, while free.
    pub(crate) older: Option<EntryId>,
    /// The neighbour towards the youngest, while in the LRU list.
    pub(crate) younger: Option<EntryId>,
}

// Apart from 4 bytes in the index, this is all that a stored page costs outside the pool.
const _: () = assert!(size_of::<Entry>() == if CHECKS_HANDLES { 32 } else { 24 });
const _: () = assert!(size_of::<Option<EntryId>>() == 4);
// Positions in a slot and lengths of objects fit the 16 bits they have.
const _: () = assert!(coldpress_backing::SLOT_BYTES.0 - 1 <= u16::MAX as usize);

impl Entry {
    /// Makes an entry for a page in `place`, in no list.
    fn new(place: PagePlace) -> Self {
        Self { place, older: None, younger: None }
    }

    /// Returns whether the entry has no neighbour.
    pub(crate) fn is_alone(&self) -> bool {
        self.older.is_none() && self.younger.is_none()
    }

    /// Returns whether recompression has looked at the page.
    pub(crate) fn is_tried(&self) -> bool {
        matches!(self.place, PagePlace::Pool { tried: true, .. })
    }

    /// Returns the era in which the page came to the pool; 0 if it is not there.
    pub(crate) fn era(&self) -> u16 {
        if let PagePlace::Pool { era, .. } = self.place { era } else { 0 }
    }

    /// Notes whether recompression has looked at the page, if it is in the pool.
    pub(crate) fn set_tried(&mut self, is_tried: bool) {
        if let PagePlace::Pool { tried, .. } = &mut self.place {
            *tried = is_tried;
        }
    }
}

/// Consecutive entries. `entries` is empty while the chunk has given its memory back.
#[derive(Debug, Default)]
struct Chunk {
    entries: Box<[Entry]>,
    free: Option<EntryId>,
    used: usize,
}

impl Chunk {
    /// Returns whether the chunk has memory and a free entry in it.
    fn has_room(&self) -> bool {
        self.free.is_some()
    }
}

/// All entries of a shard.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    chunks: Vec<Chunk>,
    first_free: usize,
    spare: Option<usize>,
    used: usize,
}

impl Entries {
    /// Returns the number of entries handed out.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Returns one more than the highest position that an entry may have.
    pub(crate) fn positions(&self) -> usize {
        self.chunks.len() * CHUNK_ENTRIES
    }

    /// Returns the place of the page at `position`, or `None` when there is no entry. A free entry
    /// has the place of a repeated word, which is nowhere.
    pub(crate) fn place_at(&self, position: usize) -> Option<PagePlace> {
        let chunk = self.chunks.get(position / CHUNK_ENTRIES)?;
        chunk.entries.get(position % CHUNK_ENTRIES).map(|entry| entry.place)
    }

    /// Returns the memory of all chunks.
    pub(crate) fn memory(&self) -> Bytes {
        let entries: usize = self.chunks.iter().map(|chunk| size_of_val(&*chunk.entries)).sum();
        Bytes(entries + self.chunks.capacity() * size_of::<Chunk>())
    }

    /// Hands out an entry for a page in `place`.
    pub(crate) fn alloc(&mut self, place: PagePlace) -> Result<EntryId, NoMemory> {
        let behind = &self.chunks[self.first_free..];
        self.first_free += behind.iter().take_while(|chunk| !chunk.has_room()).count();
        if self.first_free == self.chunks.len() {
            self.first_free = self.add_memory()?;
        }
        let chunk = &mut self.chunks[self.first_free];
        let id = chunk.free.ok_or(NoMemory)?;
        let entry = &mut chunk.entries[chunk_of(id).1];
        chunk.free = entry.older;
        chunk.used += 1;
        debug_assert!(chunk.used <= CHUNK_ENTRIES, "an entry is handed out twice");
        *entry = Entry::new(place);
        self.used += 1;
        if self.spare == Some(self.first_free) {
            self.spare = None;
        }
        Ok(id)
    }

    /// Takes an entry back. Its place must hold nothing any more, and the entry must be in no list.
    pub(crate) fn free(&mut self, id: EntryId) {
        let (number, index) = chunk_of(id);
        let chunk = &mut self.chunks[number];
        assert!(chunk.used > 0, "an entry is given back once");
        debug_assert!(chunk.entries[index].is_alone(), "{id:?} is in a list");
        chunk.entries[index] =
            Entry { older: chunk.free, ..Entry::new(PagePlace::SameFilled { word: 0 }) };
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

    /// Gives memory to the lowest chunk that has none, and returns its number.
    fn add_memory(&mut self) -> Result<usize, NoMemory> {
        let without = self.chunks.iter().position(|chunk| chunk.entries.is_empty());
        let number = without.unwrap_or(self.chunks.len());
        let first = number * CHUNK_ENTRIES;
        EntryId::at(first + CHUNK_ENTRIES - 1).ok_or(NoMemory)?;
        let mut position = first;
        let entries = room::table(CHUNK_ENTRIES, || {
            position += 1;
            let older = if position < first + CHUNK_ENTRIES { EntryId::at(position) } else { None };
            Entry { older, ..Entry::new(PagePlace::SameFilled { word: 0 }) }
        })?;
        let chunk = Chunk { entries, free: EntryId::at(first), used: 0 };
        if without.is_some() {
            self.chunks[number] = chunk;
        } else {
            room::reserve_one(&mut self.chunks)?;
            self.chunks.push(chunk);
        }
        debug_assert!(self.chunks[number].has_room(), "a new chunk has free entries");
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
                assert_eq!(chunk_of(id).0, number);
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
        let (chunk, index) = chunk_of(id);
        &self.chunks[chunk].entries[index]
    }
}

impl IndexMut<EntryId> for Entries {
    fn index_mut(&mut self, id: EntryId) -> &mut Entry {
        let (chunk, index) = chunk_of(id);
        &mut self.chunks[chunk].entries[index]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a list of the live entries; each must keep its place.
        #[test]
        fn entries_do_as_a_list_does(
            steps in prop::collection::vec((0_u8..5, any::<usize>()), 0..2000),
        ) {
            let mut entries = Entries::default();
            let mut live = Vec::new();
            for (number, (verb, pick)) in steps.into_iter().enumerate() {
                // Whole stretches of allocations and of frees, so that chunks fill and empty.
                if (verb < 4) == (number / 700 % 2 == 0) {
                    let place = PagePlace::SameFilled { word: number as u64 };
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
        let place = PagePlace::SameFilled { word: 1 };
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
