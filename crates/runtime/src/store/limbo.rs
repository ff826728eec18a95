//! Limbo: where pages wait between being taken from the program and being compressed, like a swap
//! cache.
//!
//! Pages come in runs by MOVE and keep their place within the run, so the limbo address of a page
//! follows by arithmetic. Slots are used in ring order, which makes limbo a FIFO: the run that was
//! taken first is compressed first. A page that a thread touches meanwhile is served from here (its
//! second chance).
//!
//! ```text
//! chunk 0: [slot 0][slot 1][slot 2][slot 3] guard | chunk 1: [slot 4] ...
//!             ^ oldest (being drained)                            ^ next (empty)
//! ```
//!
//! Limbo must be registered with the same userfaultfd as the program's memory, because the kernel
//! makes a MOVE atomic against unmapping only for the descriptor of its target: with a second
//! descriptor, a page could be taken from a range that was unmapped and mapped anew a moment
//! before. But dropping registered memory sends an event, and waits until the event is read, which
//! would be by the same thread. So memory is dropped a chunk at a time: unregister, drop, register
//! again, paid once for 128 pages or more. Guard pages keep the chunks separate mappings.
//!
//! The service never writes to limbo. The kernel refuses a MOVE for frames that it has pinned, but
//! not for frames that it only holds for a pipe (vmsplice) or a socket (MSG_ZEROCOPY), which are to
//! be sent unchanged. So a frame whose page has been stored cannot be given to another page either.
//!
//! A MOVE wants the same access on both sides. So there is a second limbo of the same shape for
//! executable memory, if the program has any and one of its threads has made the room
//! (`control::Room`). A slot is a place in both limbos, and its pages lie on one side. Only trying
//! shows to which side a run belongs; the answer is remembered.

use coldpress_sys::map::Span;
use coldpress_sys::uffd::{Mode, Userfaultfd};
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, SysResult};

use crate::memory::Regions;
use crate::pages::{PageNumber, RUN_BYTES, RUN_PAGES, RunNumber};
use crate::policy::{Ring, Side, stride};

/// The ring of slots and its memory.
pub(crate) struct Limbo {
    span: Span,
    executable: Option<Executable>,
    ring: Ring,
}

/// The side of limbo that is executable.
struct Executable {
    span: &'static Span,
    /// The number of the ring's chunks for which there is room: the room was made for the budget
    /// that the run began with.
    chunks: usize,
    /// Runs whose pages went to this side when they were last moved.
    runs: Regions,
}

impl Limbo {
    /// Reserves slots for at least `pages`, which are still to be registered. Touches no memory
    /// yet.
    pub(crate) fn reserve(pages: PageCount) -> SysResult<Self> {
        let span = Span::reserve(Ring::side_bytes(pages), Bytes::mib(2))?;
        span.forbid_huge_pages();
        span.forbid_dump();
        let limbo = Self { span, executable: None, ring: Ring::new(pages) };
        limbo.guard(&limbo.span, limbo.ring.chunks())?;
        Ok(limbo)
    }

    /// Makes the room for the program's executable memory a side of limbo. An error leaves that
    /// memory unmanaged.
    pub(crate) fn take_room(&mut self, span: &'static Span, uffd: &Userfaultfd) -> SysResult<()> {
        let fitting = span.length().0 / stride(self.ring.chunk_slots());
        let chunks = self.ring.chunks().min(fitting);
        self.guard(span, chunks)?;
        self.register_side(span, chunks, uffd)?;
        self.executable = Some(Executable { span, chunks, runs: Regions::default() });
        Ok(())
    }

    /// Whether executable memory can be moved here.
    pub(crate) fn has_room(&self) -> bool {
        self.executable.is_some()
    }

    /// Registers limbo's memory with `uffd`, which must be closed before limbo is dropped: no
    /// thread would read the event that unmapping sends.
    pub(crate) fn register(&self, uffd: &Userfaultfd) -> SysResult<()> {
        self.register_side(&self.span, self.ring.chunks(), uffd)?;
        let mut sides = self.executable.iter();
        sides.try_for_each(|side| self.register_side(side.span, side.chunks, uffd))
    }

    fn register_side(&self, span: &Span, chunks: usize, uffd: &Userfaultfd) -> SysResult<()> {
        (0..chunks)
            .map(|chunk| span.address() + self.chunk_offset(chunk).0)
            .try_for_each(|start| uffd.register(start, self.chunk_bytes(), Mode::WriteProtect))
    }

    fn guard(&self, span: &Span, chunks: usize) -> SysResult<()> {
        let mut ends = (1..=chunks).map(|chunk| self.chunk_offset(chunk).0 - PAGE_BYTES);
        ends.try_for_each(|end| span.guard(Bytes(end), Bytes(PAGE_BYTES)))
    }

    /// Returns the ring that orders the slots.
    pub(crate) fn ring(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Takes the next slot for pages of `run`, at the time `now_ms`.
    pub(crate) fn take_slot(&mut self, run: RunNumber, now_ms: u32) -> u16 {
        let slot = self.ring.take_slot(run, now_ms);
        let is_known = |side: &mut Executable| side.runs.holding(run.first().address()).is_some();
        if self.executable_at(slot).is_some_and(is_known) {
            self.ring.turn(slot);
        }
        slot
    }

    /// Returns the executable side, if it reaches as far as `slot`.
    fn executable_at(&mut self, slot: u16) -> Option<&mut Executable> {
        let chunk = slot as usize / self.ring.chunk_slots();
        self.executable.as_mut().filter(|side| chunk < side.chunks)
    }

    /// Returns whether the pages of `run`, which did not fit the side of `slot`, can go to the
    /// other side: turns the slot to it. False where there is no other side.
    pub(crate) fn turn(&mut self, slot: u16, run: RunNumber) -> bool {
        let (before, start) = (self.ring.side(slot), run.first().address());
        let Some(executable) = self.executable_at(slot) else { return false };
        match before {
            Side::Plain => executable.runs.insert(start..start + RUN_BYTES.0),
            Side::Executable => executable.runs.remove(start..start + RUN_BYTES.0),
        }
        self.ring.turn(slot);
        true
    }

    /// Gives the oldest slot up. If it was the last of its chunk, the chunk's memory goes back to
    /// the system. Returns the number of pages that this freed.
    pub(crate) fn finish_oldest(&mut self, uffd: &Userfaultfd) -> SysResult<PageCount> {
        let Some((chunk, freed)) = self.ring.finish_oldest() else { return Ok(PageCount(0)) };
        for (side, freed) in [Side::Plain, Side::Executable].into_iter().zip(freed) {
            if freed > PageCount(0) {
                // The chunk's slots are finished, and no reference into limbo is kept.
                let address = self.side(side).address() + self.chunk_offset(chunk).0;
                self.clear(uffd, address, self.chunk_bytes())?;
            }
        }
        let [plain, executable] = freed;
        Ok(plain + executable)
    }

    /// Returns the address of a page while it waits in `slot`.
    pub(crate) fn address(&self, slot: u16, page: PageNumber) -> usize {
        let side = self.ring.side(slot);
        let (slot, chunk_slots) = (slot as usize, self.ring.chunk_slots());
        self.side(side).address()
            + self.chunk_offset(slot / chunk_slots).0
            + slot % chunk_slots * RUN_BYTES.0
            + page.0 % RUN_PAGES * PAGE_BYTES
    }

    /// Returns an address that is always registered, for the change probe.
    pub(crate) fn probe_address(&self) -> usize {
        self.span.address()
    }

    fn side(&self, side: Side) -> &Span {
        match (side, &self.executable) {
            (Side::Executable, Some(executable)) => executable.span,
            _ => &self.span,
        }
    }

    fn chunk_bytes(&self) -> Bytes {
        Bytes(self.ring.chunk_slots() * RUN_BYTES.0)
    }

    fn chunk_offset(&self, chunk: usize) -> Bytes {
        Bytes(chunk * stride(self.ring.chunk_slots()))
    }

    /// Drops the memory of a part of limbo in which no page waits.
    pub(crate) fn clear(&self, uffd: &Userfaultfd, address: usize, length: Bytes) -> SysResult<()> {
        uffd.unregister(address, length)?;
        let is_plain = address.wrapping_sub(self.span.address()) < self.span.length().0;
        let span = self.side(if is_plain { Side::Plain } else { Side::Executable });
        let offset = Bytes(address - span.address());
        // SAFETY: every page there has been dealt with, by the caller's word.
        unsafe { span.discard(offset, length)? };
        uffd.register(address, length, Mode::WriteProtect)
    }
}
