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

mod ring;

use coldpress_sys::map::Span;
use coldpress_sys::uffd::{Mode, Userfaultfd};
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, SysResult};

use crate::pages::{PageNumber, RUN_BYTES, RUN_PAGES};
pub use ring::{Ring, target};

/// The ring of slots and its memory.
pub struct Limbo {
    span: Span,
    ring: Ring,
}

impl Limbo {
    /// Reserves slots for at least `pages`, which are still to be registered. Nothing is touched
    /// yet.
    pub fn reserve(pages: PageCount) -> SysResult<Self> {
        let ring = Ring::new(pages);
        let (chunks, stride) = (ring.chunks(), ring.chunk_slots() * RUN_BYTES.0 + PAGE_BYTES);
        let span = Span::reserve(Bytes(chunks * stride), Bytes::mib(2))?;
        span.forbid_huge_pages();
        span.forbid_dump();
        for chunk in 0..chunks {
            span.guard(Bytes((chunk + 1) * stride - PAGE_BYTES), Bytes(PAGE_BYTES))?;
        }
        Ok(Self { span, ring })
    }

    /// Registers its memory with `uffd`, which must be closed before this is dropped: nobody would
    /// read the event that unmapping it sends.
    pub fn register(&self, uffd: &Userfaultfd) -> SysResult<()> {
        for chunk in 0..self.ring.chunks() {
            uffd.register(self.chunk_address(chunk), self.chunk_bytes(), Mode::WriteProtect)?;
        }
        Ok(())
    }

    /// The order of its slots.
    pub fn ring(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Gives the oldest slot up. When it was the last of its chunk, the chunk's memory goes back to
    /// the system; returns the pages that this freed.
    pub fn finish_oldest(&mut self, uffd: &Userfaultfd) -> SysResult<PageCount> {
        match self.ring.finish_oldest() {
            Some((chunk, freed)) if freed > PageCount(0) => {
                self.drop_chunk(uffd, chunk)?;
                Ok(freed)
            }
            _ => Ok(PageCount(0)),
        }
    }

    /// Where a page is while it waits in `slot`.
    pub fn address(&self, slot: u16, page: PageNumber) -> usize {
        let (slot, chunk_slots) = (slot as usize, self.ring.chunk_slots());
        self.chunk_address(slot / chunk_slots)
            + slot % chunk_slots * RUN_BYTES.0
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
        Bytes(self.ring.chunk_slots() * RUN_BYTES.0)
    }

    fn chunk_offset(&self, chunk: usize) -> Bytes {
        Bytes(chunk * (self.chunk_bytes().0 + PAGE_BYTES))
    }

    fn drop_chunk(&mut self, uffd: &Userfaultfd, chunk: usize) -> SysResult<()> {
        // Its slots are finished, and nobody keeps a reference into limbo.
        self.clear(uffd, self.chunk_address(chunk), self.chunk_bytes())
    }

    /// Drops what lies in a part of limbo: nothing that is waiting there.
    pub fn clear(&self, uffd: &Userfaultfd, address: usize, length: Bytes) -> SysResult<()> {
        uffd.unregister(address, length)?;
        let offset = Bytes(address - self.span.address());
        // SAFETY: every page there has been dealt with, by the caller's word.
        unsafe { self.span.discard(offset, length)? };
        uffd.register(address, length, Mode::WriteProtect)
    }
}
