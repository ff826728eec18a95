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
//!
//! We never write there. A MOVE is refused for frames that the kernel has pinned, not for those
//! that it only holds, for a pipe (vmsplice) or a socket (MSG_ZEROCOPY), which are to be sent as
//! they are. So a frame whose page has been stored cannot be given to another page either.
//!
//! A MOVE wants the same access on both sides. So there is a second limbo of the same shape for
//! memory that may be executed, if the program has any and a thread of it has made the room
//! (`control::Room`): a slot is a place in both, and its pages lie on one side. Which side is not
//! known of a run but by trying, and remembered.

mod ring;

use coldpress_sys::map::Span;
use coldpress_sys::uffd::{Mode, Userfaultfd};
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, SysResult};

use crate::pages::{PageNumber, RUN_BYTES, RUN_PAGES, RunNumber};
use crate::regions::Regions;
use ring::stride;
pub use ring::{Ring, Side, target};

/// The ring of slots and its memory.
pub struct Limbo {
    span: Span,
    executable: Option<Executable>,
    ring: Ring,
}

/// The side of memory that may be executed.
struct Executable {
    span: &'static Span,
    /// Chunks of the ring for which there is room: it was made for the budget that the run began
    /// with.
    chunks: usize,
    /// Runs that were moved there when they were last moved.
    runs: Regions,
}

/// The memory of one side of the limbo of a process with that budget.
pub fn side_bytes(budget: PageCount) -> Bytes {
    Ring::side_bytes(target(budget))
}

impl Limbo {
    /// Reserves slots for at least `pages`, which are still to be registered. Nothing is touched
    /// yet.
    pub fn reserve(pages: PageCount) -> SysResult<Self> {
        let span = Span::reserve(Ring::side_bytes(pages), Bytes::mib(2))?;
        span.forbid_huge_pages();
        span.forbid_dump();
        let limbo = Self { span, executable: None, ring: Ring::new(pages) };
        limbo.guard(&limbo.span, limbo.ring.chunks())?;
        Ok(limbo)
    }

    /// The room that the program has made for its executable memory is a side from now on. An error
    /// leaves that memory unmanaged.
    pub fn take_room(&mut self, span: &'static Span, uffd: &Userfaultfd) -> SysResult<()> {
        let fitting = span.length().0 / stride(self.ring.chunk_slots());
        let chunks = self.ring.chunks().min(fitting);
        self.guard(span, chunks)?;
        self.register_side(span, chunks, uffd)?;
        self.executable = Some(Executable { span, chunks, runs: Regions::default() });
        Ok(())
    }

    /// Whether executable memory can be moved here.
    pub fn has_room(&self) -> bool {
        self.executable.is_some()
    }

    /// Registers its memory with `uffd`, which must be closed before this is dropped: nobody would
    /// read the event that unmapping it sends.
    pub fn register(&self, uffd: &Userfaultfd) -> SysResult<()> {
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

    /// The order of its slots.
    pub fn ring(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Takes the next slot for pages of `run`, at this time.
    pub fn take_slot(&mut self, run: RunNumber, now_ms: u32) -> u16 {
        let slot = self.ring.take_slot(run, now_ms);
        let is_known = |side: &mut Executable| side.runs.holding(run.first().address()).is_some();
        if self.executable_at(slot).is_some_and(is_known) {
            self.ring.turn(slot);
        }
        slot
    }

    /// The side of executable memory, if it reaches to `slot`.
    fn executable_at(&mut self, slot: u16) -> Option<&mut Executable> {
        let chunk = slot as usize / self.ring.chunk_slots();
        self.executable.as_mut().filter(|side| chunk < side.chunks)
    }

    /// The pages of `run` did not fit where `slot` has room for them, and will go to the other
    /// side. False where there is none.
    pub fn turn(&mut self, slot: u16, run: RunNumber) -> bool {
        let (before, start) = (self.ring.side(slot), run.first().address());
        let Some(executable) = self.executable_at(slot) else { return false };
        match before {
            Side::Plain => executable.runs.insert(start..start + RUN_BYTES.0),
            Side::Executable => executable.runs.remove(start..start + RUN_BYTES.0),
        }
        self.ring.turn(slot);
        true
    }

    /// Gives the oldest slot up. When it was the last of its chunk, the chunk's memory goes back to
    /// the system; returns the pages that this freed.
    pub fn finish_oldest(&mut self, uffd: &Userfaultfd) -> SysResult<PageCount> {
        let Some((chunk, freed)) = self.ring.finish_oldest() else { return Ok(PageCount(0)) };
        for (side, freed) in [Side::Plain, Side::Executable].into_iter().zip(freed) {
            if freed > PageCount(0) {
                // Its slots are finished, and nobody keeps a reference into limbo.
                let address = self.side(side).address() + self.chunk_offset(chunk).0;
                self.clear(uffd, address, self.chunk_bytes())?;
            }
        }
        let [plain, executable] = freed;
        Ok(plain + executable)
    }

    /// Where a page is while it waits in `slot`.
    pub fn address(&self, slot: u16, page: PageNumber) -> usize {
        let side = self.ring.side(slot);
        let (slot, chunk_slots) = (slot as usize, self.ring.chunk_slots());
        self.side(side).address()
            + self.chunk_offset(slot / chunk_slots).0
            + slot % chunk_slots * RUN_BYTES.0
            + page.0 % RUN_PAGES * PAGE_BYTES
    }

    /// An address that is always registered, for the change probe.
    pub fn probe_address(&self) -> usize {
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

    /// Drops what lies in a part of limbo: nothing that is waiting there.
    pub fn clear(&self, uffd: &Userfaultfd, address: usize, length: Bytes) -> SysResult<()> {
        uffd.unregister(address, length)?;
        let is_plain = address.wrapping_sub(self.span.address()) < self.span.length().0;
        let span = self.side(if is_plain { Side::Plain } else { Side::Executable });
        let offset = Bytes(address - span.address());
        // SAFETY: every page there has been dealt with, by the caller's word.
        unsafe { span.discard(offset, length)? };
        uffd.register(address, length, Mode::WriteProtect)
    }
}
