//! Pages on their way out: the batches that are being written, each with the buffer it is gathered
//! in. Both are reserved from the start, so that writeback needs no memory when there is none.
//!
//! Invariants:
//! 1. A batch is under way exactly when it has no buffer: the backing store has it.
//! 2. A member is an entry whose place is `Leaving` with that member's number; an entry dropped
//!    meanwhile leaves `None` in its place.

use alloc::boxed::Box;
use alloc::vec::Vec;

use coldpress_backing::{SLOT_BYTES, SlotId};
use coldpress_sys::Bytes;

use crate::ids::{BATCHES, MEMBERS_MAX, Member, PageId};
use crate::room::{self, NoMemory};

/// Pages written together.
#[derive(Debug)]
pub(crate) struct Batch {
    buffer: Option<Box<[u8]>>,
    /// The slot that the pages are written to, while under way.
    pub(crate) slot: SlotId,
    /// The pages, in the order of their bytes.
    pub(crate) members: Vec<Option<PageId>>,
    /// The number of this batch, and that of the last batch written from this place.
    pub(crate) number: u64,
    pub(crate) written: u64,
}

/// All batches; none without a backing store.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    batches: Vec<Batch>,
}

impl Outgoing {
    /// Allocates all batches with their buffers.
    pub(crate) fn new() -> Result<Self, NoMemory> {
        let mut batches = Vec::new();
        for _ in 0..BATCHES {
            let buffer = Some(room::table(SLOT_BYTES.0, || 0)?);
            let members = room::reserved(MEMBERS_MAX)?;
            room::reserve_one(&mut batches)?;
            batches.push(Batch { buffer, slot: SlotId(0), members, number: 0, written: 0 });
        }
        Ok(Self { batches })
    }

    /// Takes the buffer of a batch that is not under way, for the batch `batch_number`. The caller
    /// must give the buffer back or send it off.
    pub(crate) fn take(&mut self, batch_number: u64) -> Option<(usize, Box<[u8]>)> {
        let mut batches = self.batches.iter_mut().enumerate();
        let (place, batch) = batches.find(|(_, batch)| batch.buffer.is_some())?;
        assert!(batch_number > batch.number, "the numbers of batches grow");
        batch.number = batch_number;
        batch.members.clear();
        Some((place, batch.buffer.take()?))
    }

    /// Gives a buffer back: its batch is over, or was not begun.
    pub(crate) fn give_back(&mut self, place: usize, buffer: Box<[u8]>) {
        assert_eq!(buffer.len(), SLOT_BYTES.0, "the buffer is a batch's");
        let former = self.batches[place].buffer.replace(buffer);
        assert!(former.is_none(), "a batch ends once");
    }

    /// Begins the numbers anew: in a child of `fork`, whose own sealer counts from the start.
    pub(crate) fn renumber(&mut self) {
        for batch in &mut self.batches {
            assert!(batch.buffer.is_some(), "the parent's batch is not the child's");
            (batch.number, batch.written) = (0, 0);
        }
    }

    /// Returns the batch in that place, under way or not.
    pub(crate) fn batch(&mut self, place: usize) -> &mut Batch {
        &mut self.batches[place]
    }

    /// Forgets a page of a batch under way: the page was dropped.
    pub(crate) fn forget(&mut self, member: Member) {
        let page = self.member(member).take();
        debug_assert!(page.is_some(), "a page is dropped once");
    }

    /// Notes that a page of a batch under way has another name.
    pub(crate) fn rename(&mut self, member: Member, page: PageId) {
        let former = self.member(member).replace(page);
        debug_assert!(former.is_some_and(|former| former != page), "a page is in a batch once");
    }

    /// Returns the page of a batch under way.
    fn member(&mut self, member: Member) -> &mut Option<PageId> {
        let (batch, index) = member.parts();
        let batch = &mut self.batches[batch];
        debug_assert!(batch.buffer.is_none(), "the batch is over");
        &mut batch.members[index]
    }

    /// Returns the batches under way.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(|batch| batch.buffer.is_none())
    }

    /// Returns whether the batch `batch_number`, in that place, is under way.
    pub(crate) fn is_under_way(&self, place: usize, batch_number: u64) -> bool {
        let batch = &self.batches[place];
        batch.buffer.is_none() && batch.number == batch_number
    }

    /// Returns whether no batch can be begun until one has ended.
    pub(crate) fn is_busy(&self) -> bool {
        self.batches.iter().all(|batch| batch.buffer.is_none())
    }

    pub(crate) fn memory(&self) -> Bytes {
        let one = SLOT_BYTES.0 + MEMBERS_MAX * size_of::<Option<PageId>>() + size_of::<Batch>();
        Bytes(self.batches.len() * one)
    }
}
