//! Limbo: where pages wait between being taken from the program and being compressed.
//!
//! Pages come in runs by MOVE and keep their place within the run, so a page's limbo address is
//! arithmetic. Slots are used in ring order, which makes limbo a queue: what was taken first is
//! compressed first, and a page that is touched meanwhile is served from here (the second chance).
//!
//! ```text
//! chunk 0: [slot 0][slot 1][slot 2][slot 3] guard | chunk 1: [slot 4] ...
//!             ^ oldest (being drained)                            ^ next (empty)
//! ```
//!
//! Limbo must be registered with the same userfaultfd as the program's memory, because the kernel
//! makes a MOVE atomic against unmapping only for the descriptor of its target: with a second
//! descriptor a page could be taken from a range that was unmapped and mapped anew a moment before.
//! But dropping registered memory sends an event, which its own reader would wait for. So memory is
//! dropped by chunks: unregister, drop, register again, paid once for 128 pages or more. Guards
//! keep chunks separate mappings.

use alloc::vec;
use alloc::vec::Vec;

use coldpress_sys::map::Span;
use coldpress_sys::uffd::{Mode, Userfaultfd};
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, SysResult};

use crate::pages::{PageNumber, RUN_BYTES, RUN_PAGES, RunNumber};

/// Fewest slots dropped together.
const CHUNK_SLOTS_MIN: usize = 4;
/// Most chunks: each is a mapping and a guard, of the 65,530 that a process may have.
const CHUNKS_MAX: usize = 256;
/// Slots have 16-bit numbers.
const SLOTS_MAX: usize = 1 << 15;

/// The ring of slots.
pub struct Limbo {
    span: Span,
    slots: Vec<Slot>,
    /// Pages that each chunk took in since its memory was last dropped.
    chunk_pages: Vec<usize>,
    /// Slots in a chunk.
    chunk_slots: usize,
    /// Slots ever taken and slots ever drained; their difference is the length of the queue.
    taken: usize,
    drained: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    run: RunNumber,
    /// Pages of the run before this index have been dealt with.
    next: u8,
}

const EMPTY_SLOT: Slot = Slot { run: RunNumber(0), next: RUN_PAGES as u8 };

impl Limbo {
    /// Reserves at least `slots_wanted` slots and registers them with `uffd`. Nothing is touched
    /// yet.
    pub fn new(uffd: &Userfaultfd, slots_wanted: usize) -> SysResult<Self> {
        let slots = slots_wanted.clamp(2 * CHUNK_SLOTS_MIN, SLOTS_MAX);
        let chunk_slots = slots.div_ceil(CHUNKS_MAX).max(CHUNK_SLOTS_MIN);
        let chunks = slots.div_ceil(chunk_slots);
        let stride = chunk_slots * RUN_BYTES.0 + PAGE_BYTES;
        let span = Span::reserve(Bytes(chunks * stride), Bytes::mib(2))?;
        span.forbid_huge_pages();
        for chunk in 0..chunks {
            span.guard(Bytes((chunk + 1) * stride - PAGE_BYTES), Bytes(PAGE_BYTES))?;
        }
        let limbo = Self {
            span,
            slots: vec![EMPTY_SLOT; chunks * chunk_slots],
            chunk_pages: vec![0; chunks],
            chunk_slots,
            taken: 0,
            drained: 0,
        };
        for chunk in 0..chunks {
            uffd.register(limbo.chunk_address(chunk), limbo.chunk_bytes(), Mode::WriteProtect)?;
        }
        Ok(limbo)
    }

    /// Whether [`Limbo::take_slot`] must wait for [`Limbo::finish_oldest`].
    pub fn is_full(&self) -> bool {
        // The chunk of the oldest slot is dropped only after its last slot, so a whole one stays
        // between.
        self.taken - self.drained + self.chunk_slots > self.slots.len()
    }

    /// Whether no slot waits to be drained.
    pub fn is_empty(&self) -> bool {
        self.taken == self.drained
    }

    /// Takes the next slot for pages of `run`.
    pub fn take_slot(&mut self, run: RunNumber) -> u16 {
        assert!(!self.is_full(), "the caller asks first");
        let index = self.taken % self.slots.len();
        self.slots[index] = Slot { run, next: 0 };
        self.taken += 1;
        index as u16
    }

    /// Gives the slot that was taken last back: nothing was moved into it.
    pub fn return_slot(&mut self) {
        self.taken -= 1;
        let index = self.taken % self.slots.len();
        self.slots[index] = EMPTY_SLOT;
    }

    /// Counts pages moved into a slot.
    pub fn note_moved(&mut self, slot: u16, count: PageCount) {
        self.chunk_pages[slot as usize / self.chunk_slots] += count.0;
    }

    /// The slot that was taken first, with its run, and the index of the next page to look at, if
    /// any.
    pub fn oldest(&self) -> Option<(u16, RunNumber, Option<usize>)> {
        if self.is_empty() {
            return None;
        }
        let index = self.drained % self.slots.len();
        let slot = self.slots[index];
        let next = (slot.next as usize) < RUN_PAGES;
        Some((index as u16, slot.run, next.then_some(slot.next as usize)))
    }

    /// The page at the oldest slot's index has been dealt with.
    pub fn advance_oldest(&mut self) {
        let index = self.drained % self.slots.len();
        self.slots[index].next += 1;
    }

    /// Gives the oldest slot up. When it was the last of its chunk, the chunk's memory goes back to
    /// the system; returns the pages that this freed.
    pub fn finish_oldest(&mut self, uffd: &Userfaultfd) -> SysResult<PageCount> {
        let index = self.drained % self.slots.len();
        self.slots[index] = EMPTY_SLOT;
        self.drained += 1;
        if (index + 1).is_multiple_of(self.chunk_slots) {
            self.drop_chunk(uffd, index / self.chunk_slots)
        } else {
            Ok(PageCount(0))
        }
    }

    /// Where a page is while it waits in `slot`.
    pub fn address(&self, slot: u16, page: PageNumber) -> usize {
        let slot = slot as usize;
        self.chunk_address(slot / self.chunk_slots)
            + slot % self.chunk_slots * RUN_BYTES.0
            + page.0 % RUN_PAGES * PAGE_BYTES
    }

    /// An address that is always registered, for the change probe.
    pub fn probe_address(&self) -> usize {
        self.span.address()
    }

    fn chunk_address(&self, chunk: usize) -> usize {
        self.span.address() + self.chunk_offset(chunk).0
    }

    fn chunk_bytes(&self) -> Bytes {
        Bytes(self.chunk_slots * RUN_BYTES.0)
    }

    fn chunk_offset(&self, chunk: usize) -> Bytes {
        Bytes(chunk * (self.chunk_bytes().0 + PAGE_BYTES))
    }

    fn drop_chunk(&mut self, uffd: &Userfaultfd, chunk: usize) -> SysResult<PageCount> {
        let freed = PageCount(core::mem::take(&mut self.chunk_pages[chunk]));
        if freed.0 == 0 {
            return Ok(freed);
        }
        let address = self.chunk_address(chunk);
        uffd.unregister(address, self.chunk_bytes())?;
        // SAFETY: every page of the chunk has been dealt with: its slots are finished, and nobody
        // keeps a reference into limbo.
        unsafe { self.span.discard(self.chunk_offset(chunk), self.chunk_bytes())? };
        uffd.register(address, self.chunk_bytes(), Mode::WriteProtect)?;
        Ok(freed)
    }
}
