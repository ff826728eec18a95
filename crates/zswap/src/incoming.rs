//! Pages on their way in: reads from the backing store, each with its buffer. The buffers are
//! reserved from the start, because pages must come back when there is no memory.
//!
//! Invariants:
//! 1. An entry has at most one read, and only while its place is in the backing store.
//! 2. The backing store has the buffer exactly while a read is under way.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use coldpress_backing::BackingError;
use coldpress_sys::{Bytes, PAGE_BYTES};

use crate::ids::PageId;
use crate::room::{self, NoMemory};
use crate::seal::TAG_BYTES;

/// Reads under way at a time. Further pages wait for one of them.
pub(crate) const READS: usize = 8;

/// Size of a buffer: a raw page, sealed, is the longest read.
const BUFFER_BYTES: usize = PAGE_BYTES + TAG_BYTES;

/// A buffer, and what it is used for.
#[derive(Debug)]
enum Read {
    Free(Box<[u8]>),
    /// `None`: the entry was dropped meanwhile.
    UnderWay(Option<PageId>),
    Ready(PageId, Box<[u8]>, Result<(), BackingError>),
}

impl Read {
    /// Returns the entry that the read is for.
    fn page(&self) -> Option<PageId> {
        match self {
            Self::Free(_) => None,
            Self::UnderWay(id) => *id,
            Self::Ready(id, ..) => Some(*id),
        }
    }
}

/// A read that has ended. Its buffer must be given back.
#[derive(Debug)]
pub(crate) struct ArrivedRead {
    pub(crate) number: usize,
    pub(crate) buffer: Box<[u8]>,
    pub(crate) result: Result<(), BackingError>,
}

/// Progress of an entry's read.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The entry has no read.
    None,
    /// The read is under way.
    Coming,
    /// The read has ended.
    Ready(ArrivedRead),
}

/// All reads; none without a backing store.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    reads: Vec<Read>,
    used: usize,
    /// Whether a read has ended, or a buffer that a load lacked has become free, since the last
    /// [`Incoming::take_any_ended`].
    any_ended: bool,
    /// Whether a read could not be begun since a buffer was last given back.
    wanted: bool,
}

impl Incoming {
    /// Allocates buffers for [`READS`] pages.
    pub(crate) fn new() -> Result<Self, NoMemory> {
        let mut reads = Vec::new();
        for _ in 0..READS {
            room::reserve_one(&mut reads)?;
            reads.push(Read::Free(room::table(BUFFER_BYTES, || 0)?));
        }
        Ok(Self { reads, used: 0, any_ended: false, wanted: false })
    }

    /// Begins a read for `id`, and returns its number and its buffer. `None` when all are used.
    pub(crate) fn begin(&mut self, id: PageId) -> Option<(usize, Box<[u8]>)> {
        debug_assert!(self.reads.iter().all(|read| read.page() != Some(id)), "read twice");
        let free = self.reads.iter().position(|read| matches!(read, Read::Free(_)));
        self.wanted |= free.is_none();
        let number = free?;
        let Read::Free(buffer) = mem::replace(&mut self.reads[number], Read::UnderWay(Some(id)))
        else {
            return None;
        };
        self.used += 1;
        Some((number, buffer))
    }

    /// Ends a read: its bytes are ready, or its buffer is free if the entry was dropped.
    pub(crate) fn end(
        &mut self,
        number: usize,
        buffer: Box<[u8]>,
        result: Result<(), BackingError>,
    ) {
        assert!(matches!(self.reads[number], Read::UnderWay(_)), "a read ends once");
        self.any_ended = true;
        match self.reads[number] {
            Read::UnderWay(Some(id)) => self.reads[number] = Read::Ready(id, buffer, result),
            _ => self.give_back(number, buffer),
        }
    }

    /// Returns whether a read has ended since [`Incoming::take_any_ended`].
    pub(crate) fn any_ended(&self) -> bool {
        self.any_ended
    }

    /// Returns whether a read has ended since the last call.
    pub(crate) fn take_any_ended(&mut self) -> bool {
        mem::take(&mut self.any_ended)
    }

    /// Returns the progress of the read for `id`, and hands over the bytes if they are ready.
    pub(crate) fn progress(&mut self, id: PageId) -> Progress {
        if self.used == 0 {
            return Progress::None;
        }
        for (number, read) in self.reads.iter_mut().enumerate() {
            match read {
                Read::UnderWay(other) if *other == Some(id) => return Progress::Coming,
                Read::Ready(other, ..) if *other == id => {
                    let taken = mem::replace(read, Read::UnderWay(None));
                    if let Read::Ready(_, buffer, result) = taken {
                        return Progress::Ready(ArrivedRead { number, buffer, result });
                    }
                }
                _ => {}
            }
        }
        Progress::None
    }

    /// Frees the buffer of a read.
    pub(crate) fn give_back(&mut self, number: usize, buffer: Box<[u8]>) {
        assert!(matches!(self.reads[number], Read::UnderWay(_)), "a buffer is given back once");
        assert_eq!(buffer.len(), BUFFER_BYTES, "the buffer is the read's own");
        self.reads[number] = Read::Free(buffer);
        self.used -= 1;
        self.any_ended |= mem::take(&mut self.wanted);
    }

    /// Forgets the read of an entry that leaves its place: no load waits for its bytes any more.
    pub(crate) fn forget(&mut self, id: PageId) {
        if self.used == 0 {
            return;
        }
        if let Progress::Ready(ArrivedRead { number, buffer, .. }) = self.progress(id) {
            self.give_back(number, buffer);
            return;
        }
        for read in &mut self.reads {
            if let Read::UnderWay(other) = read
                && *other == Some(id)
            {
                *other = None;
            }
        }
        debug_assert!(self.reads.iter().all(|read| read.page() != Some(id)), "a read is left");
    }

    /// Returns whether the backing store has a buffer.
    pub(crate) fn is_under_way(&self) -> bool {
        self.reads.iter().any(|read| matches!(read, Read::UnderWay(_)))
    }

    pub(crate) fn memory(&self) -> Bytes {
        Bytes(self.reads.len() * (BUFFER_BYTES + size_of::<Read>()))
    }

    /// Returns the number of reads that are not free.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Returns the entries that have reads, after a look at each read.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn check(&self) -> Vec<PageId> {
        let free = self.reads.iter().filter(|read| matches!(read, Read::Free(_))).count();
        assert_eq!(self.used + free, self.reads.len());
        let mut ids: Vec<_> = self.reads.iter().filter_map(Read::page).collect();
        ids.sort_unstable();
        let before = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), before, "two reads for one entry");
        ids
    }
}
