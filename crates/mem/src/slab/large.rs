//! Allocations beyond the classes: whole frames, and spans of their own.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_sys::map::Span;
use coldpress_sys::{Bytes, PAGE_BYTES};

/// Spans, with their records behind the allocations in them.
pub(super) struct Spans {
    bytes: AtomicUsize,
}

impl Spans {
    pub(super) const fn new() -> Self {
        Self { bytes: AtomicUsize::new(0) }
    }

    /// Length of all spans.
    pub(super) fn bytes(&self) -> Bytes {
        // Relaxed: a figure of its own.
        Bytes(self.bytes.load(Ordering::Relaxed))
    }

    /// Maps a span for an allocation.
    pub(super) fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        let length = Bytes(record_offset(layout) + size_of::<Span>());
        let span = Span::reserve(length, Bytes(layout.align().max(PAGE_BYTES))).ok()?;
        span.forbid_huge_pages();
        // Relaxed: a figure of its own.
        self.bytes.fetch_add(span.length().0, Ordering::Relaxed);
        let start = span.base();
        // SAFETY: the record lies inside the span, by the choice of its length, and is aligned.
        unsafe { start.add(record_offset(layout)).cast::<Span>().write(span) };
        Some(start)
    }

    /// Unmaps a span.
    ///
    /// # Safety
    /// `start` came from [`Spans::alloc`] with the same layout and is used no more.
    pub(super) unsafe fn free(&self, start: NonNull<u8>, layout: Layout) {
        // SAFETY: `alloc` wrote the record there, and the caller's allocation ends before it.
        let span = unsafe { start.add(record_offset(layout)).cast::<Span>().read() };
        // Relaxed: a figure of its own.
        self.bytes.fetch_sub(span.length().0, Ordering::Relaxed);
    }
}

/// Where the record of a span lies, from its start.
fn record_offset(layout: Layout) -> usize {
    layout.size().next_multiple_of(align_of::<Span>())
}
