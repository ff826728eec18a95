//! Allocations beyond the classes, in spans of their own.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_sys::map::Span;
use coldpress_sys::{Bytes, PAGE_BYTES};

/// A set of spans, each with its record behind the allocation in it.
pub(super) struct Spans {
    bytes: AtomicUsize,
}

impl Spans {
    pub(super) const fn new() -> Self {
        Self { bytes: AtomicUsize::new(0) }
    }

    /// Returns the length of all spans.
    pub(super) fn bytes(&self) -> Bytes {
        // Relaxed: the counter stands alone.
        Bytes(self.bytes.load(Ordering::Relaxed))
    }

    /// Maps a span for an allocation.
    pub(super) fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        let length = Bytes(record_offset(layout) + size_of::<Span>());
        let span = Span::reserve(length, Bytes(layout.align().max(PAGE_BYTES))).ok()?;
        span.forbid_huge_pages();
        // Relaxed: the counter stands alone.
        self.bytes.fetch_add(span.length().0, Ordering::Relaxed);
        let start = span.base();
        debug_assert!(start.as_ptr().addr().is_multiple_of(layout.align()), "misaligned");
        // SAFETY: the record lies inside the span, by the choice of its length, and is aligned.
        unsafe { start.add(record_offset(layout)).cast::<Span>().write(span) };
        Some(start)
    }

    /// Unmaps a span.
    ///
    /// # Safety
    /// `start` came from [`Spans::alloc`] with the same layout and is no longer used.
    pub(super) unsafe fn free(&self, start: NonNull<u8>, layout: Layout) {
        // SAFETY: `alloc` wrote the record there, and the caller's allocation ends before it.
        let span = unsafe { start.add(record_offset(layout)).cast::<Span>().read() };
        // Relaxed: the counter stands alone.
        let before = self.bytes.fetch_sub(span.length().0, Ordering::Relaxed);
        assert!(before >= span.length().0, "a span is freed once");
    }
}

/// Returns the offset of a span's record from its start.
fn record_offset(layout: Layout) -> usize {
    layout.size().next_multiple_of(align_of::<Span>())
}
