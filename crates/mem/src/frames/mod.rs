//! Frames: 4 KiB pieces of one reserved span, handed out one by one and given back to the system.
//!
//! Idea: the lowest blocks fill first and free frames that still hold memory are used before fresh
//! ones, so the memory held stays near the memory used, and what is given back lies at the end. The
//! bookkeeping is in a second small span, 2 bits per frame, touched as far as blocks are reached.
//!
//! Invariants:
//! 1. The spans are placed once, before `base` is set, and never replaced.
//! 2. A frame is handed out at most once at a time; its memory is given back only while it is free.
//! 3. The lock is never held over a system call.

mod blocks;
#[cfg(test)]
mod tests;

use core::cell::UnsafeCell;
use core::mem::size_of;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicPtr, Ordering};

use coldpress_sys::map::Span;
use coldpress_sys::page::{BLOCK_BYTES, FRAMES_PER_BLOCK};
use coldpress_sys::sync::SpinLock;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, SysError, SysResult};

use blocks::{BLOCKS_PER_SUMMARY, Block, Blocks, Counts, Summary};

/// The largest span. Other tables name 16-byte places in it by 32 bits.
pub const SPAN_MAX: Bytes = Bytes(64 << 30);

/// `EBUSY`, for a second [`FrameAllocator::init`].
const BUSY: i32 = 16;
/// `EINVAL`, for a span that is too small or too large.
const INVALID: i32 = 22;

/// The number of a frame in the span. Only a [`FrameAllocator`] makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(u32);

impl FrameId {
    /// The number, below [`SPAN_MAX`] / 4 KiB = 2^24.
    pub const fn index(self) -> u32 {
        self.0
    }

    /// The frame numbered `index`, for tables of this crate that keep numbers they were given.
    pub(crate) const fn from_index(index: u32) -> Self {
        Self(index)
    }
}

/// The two spans, placed by [`FrameAllocator::init`].
struct Spans {
    frames: Span,
    table: Span,
    blocks: usize,
}

/// Hands out frames. May be a `static`; does nothing and holds nothing until
/// [`FrameAllocator::init`].
pub struct FrameAllocator {
    state: SpinLock<State>,
    spans: UnsafeCell<Option<Spans>>,
    base: AtomicPtr<u8>,
}

struct State {
    counts: Counts,
    limit: usize,
}

// SAFETY: `spans` is written once, under the lock and before `base` is set; it is read only by
// those who have seen `base` set. Everything else is behind the lock or atomic.
unsafe impl Sync for FrameAllocator {}

impl FrameAllocator {
    /// An allocator without a span: every [`FrameAllocator::alloc`] fails.
    pub const fn new() -> Self {
        Self {
            state: SpinLock::new(State { counts: Counts::NONE, limit: usize::MAX }),
            spans: UnsafeCell::new(None),
            base: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Reserves the span: `span` rounded down to blocks of 2 MiB. Uses no memory yet.
    ///
    /// Fails with the kernel's number when the address space is not to be had, with `EINVAL` for
    /// less than a block or more than [`SPAN_MAX`], with `EBUSY` when there is a span already.
    pub fn init(&self, span: Bytes) -> SysResult<()> {
        let error = |errno| SysError { call: "frames", errno };
        let blocks = span.0 / BLOCK_BYTES;
        if blocks == 0 || span > SPAN_MAX {
            return Err(error(INVALID));
        }
        let table = summaries_bytes(blocks) + blocks * size_of::<Block>();
        let spans = Spans {
            frames: Span::reserve(Bytes(blocks * BLOCK_BYTES), Bytes(BLOCK_BYTES))?,
            table: Span::reserve(Bytes(table), Bytes(PAGE_BYTES))?,
            blocks,
        };
        spans.frames.forbid_huge_pages();
        spans.table.forbid_huge_pages();
        let base = spans.frames.base().as_ptr();
        // On a second call the new spans are unmapped after the lock is given up.
        let rejected = {
            let _state = self.state.lock();
            // Relaxed: the lock orders this after any other `init`.
            if self.base.load(Ordering::Relaxed).is_null() {
                // SAFETY: `base` is null, so nobody has a reference to `spans`, and the lock keeps
                // other callers of `init` out.
                unsafe { *self.spans.get() = Some(spans) };
                // Release pairs with the Acquire in `spans`.
                self.base.store(base, Ordering::Release);
                None
            } else {
                Some(spans)
            }
        };
        rejected.map_or(Ok(()), |_| Err(error(BUSY)))
    }

    /// A frame with undefined contents. `None` when the span or the limit is used up, and before
    /// `init`.
    pub fn alloc(&self) -> Option<FrameId> {
        let spans = self.spans()?;
        let mut state = self.state.lock();
        if state.counts.used >= state.limit {
            return None;
        }
        let frame = blocks(spans, &mut state).take()?;
        Some(FrameId(frame as u32))
    }

    /// Takes a frame back. Its memory is kept for the next [`FrameAllocator::alloc`] or
    /// [`FrameAllocator::trim`].
    ///
    /// # Safety
    /// This allocator handed the frame out, it was not freed since, and nobody uses its bytes any
    /// more.
    pub unsafe fn free(&self, frame: FrameId) {
        let spans = self.spans().expect("a frame was handed out, so there is a span");
        blocks(spans, &mut self.state.lock()).put(frame.0 as usize);
    }

    /// The first byte of a frame. It may be read and written for as long as the caller owns the
    /// frame; the pointer is good for the whole span.
    pub fn address(&self, frame: FrameId) -> NonNull<u8> {
        // Acquire pairs with the Release in `init`.
        let base = self.base.load(Ordering::Acquire);
        NonNull::new(base.wrapping_add(frame.0 as usize * PAGE_BYTES))
            .expect("a frame was handed out, so there is a span, and it does not start at zero")
    }

    /// The byte `offset` bytes behind the first frame.
    pub(crate) fn address_at(&self, offset: Bytes) -> NonNull<u8> {
        // Acquire pairs with the Release in `init`.
        let base = self.base.load(Ordering::Acquire);
        NonNull::new(base.wrapping_add(offset.0)).expect("there is a span, not at address zero")
    }

    /// How far `address`, a byte of a frame, lies behind the first frame.
    pub(crate) fn offset_of(&self, address: NonNull<u8>) -> Bytes {
        // Acquire pairs with the Release in `init`.
        let base = self.base.load(Ordering::Acquire);
        Bytes(address.as_ptr().addr() - base.addr())
    }

    /// Frames handed out.
    pub fn frames_used(&self) -> PageCount {
        PageCount(self.state.lock().counts.used)
    }

    /// Frames that take memory: handed out, free but not yet given back, and the bookkeeping
    /// itself.
    pub fn frames_held(&self) -> PageCount {
        let counts = &self.state.lock().counts;
        let summaries = counts.reached.div_ceil(BLOCKS_PER_SUMMARY) * size_of::<Summary>();
        let blocks = counts.reached * size_of::<Block>();
        PageCount(counts.used + counts.touched + counts.trimming)
            + Bytes(summaries).pages_up()
            + Bytes(blocks).pages_up()
    }

    /// From now on [`FrameAllocator::alloc`] fails when more than `limit` frames would be used.
    /// Frames already handed out stay.
    pub fn set_limit(&self, limit: PageCount) {
        self.state.lock().limit = limit.0;
    }

    /// Gives memory of free frames back to the system, highest addresses first, until at most
    /// `keep` free frames hold memory. Returns the number of frames given back; it is lower than
    /// asked only when the kernel refuses, as it does for locked memory.
    pub fn trim(&self, keep: PageCount) -> PageCount {
        let mut given_back = PageCount(0);
        let Some(spans) = self.spans() else { return given_back };
        loop {
            // A statement of its own, so that the lock is not held below.
            let run = blocks(spans, &mut self.state.lock()).claim_touched_run(keep.0);
            let Some(run) = run else { return given_back };
            let count = PageCount(run.len());
            // SAFETY: the run was free, so nobody relies on its bytes, and the claim keeps it from
            // being handed out until it is settled.
            let discarded =
                unsafe { spans.frames.discard(PageCount(run.start).bytes(), count.bytes()) }
                    .is_ok();
            blocks(spans, &mut self.state.lock()).settle(run, discarded);
            if !discarded {
                return given_back;
            }
            given_back += count;
        }
    }

    /// Walks all tables. Panics when an invariant is broken; for tests.
    pub fn check(&self) {
        if let Some(spans) = self.spans() {
            blocks(spans, &mut self.state.lock()).check();
        }
    }

    fn spans(&self) -> Option<&Spans> {
        // Acquire pairs with the Release in `init`.
        if self.base.load(Ordering::Acquire).is_null() {
            return None;
        }
        // SAFETY: `base` is set, so `spans` was written before and is never written again.
        unsafe { (*self.spans.get()).as_ref() }
    }
}

impl Default for FrameAllocator {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes of the summaries of `blocks` blocks, in whole pages: the blocks come behind them.
const fn summaries_bytes(blocks: usize) -> usize {
    (blocks.div_ceil(BLOCKS_PER_SUMMARY) * size_of::<Summary>()).next_multiple_of(PAGE_BYTES)
}

/// The tables, for the holder of the lock, which `state` shows the caller to be.
fn blocks<'a>(spans: &'a Spans, state: &'a mut State) -> Blocks<'a> {
    let table = spans.table.base().as_ptr();
    // SAFETY: the table span holds the summaries and behind them the blocks (see `init`), aligned
    // to pages; the kernel filled it with zeros, which both types allow. They are reached only from
    // here, with the state borrowed mutably, hence by one thread at a time.
    unsafe {
        Blocks {
            summaries: slice::from_raw_parts_mut(
                table.cast(),
                spans.blocks.div_ceil(BLOCKS_PER_SUMMARY),
            ),
            blocks: slice::from_raw_parts_mut(
                table.add(summaries_bytes(spans.blocks)).cast(),
                spans.blocks,
            ),
            counts: &mut state.counts,
        }
    }
}

const _: () = assert!(SPAN_MAX.0 / PAGE_BYTES <= 1 << 24 && FRAMES_PER_BLOCK == 512);
