//! The small-object allocator: frames cut into size classes, and spans for what is larger.
//!
//! Idea: an allocation's place follows from its layout alone. Up to 2032 bytes it is one of the
//! objects of a frame; up to 4096 it is a frame; beyond, a span whose record lies behind the
//! allocation. Nothing here calls malloc, so a [`Heap`] can be the global allocator inside any
//! program.
//!
//! Invariants:
//! 1. A cache is touched only under its own lock; the frame allocator's lock is taken inside it,
//!    never the other way round.
//! 2. Spans are mapped and unmapped without any lock.

mod cache;
mod size_class;
#[cfg(test)]
mod tests;

use core::alloc::{GlobalAlloc, Layout};
use core::mem::size_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_sys::map::Span;
use coldpress_sys::sync::SpinLock;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use crate::frames::{FrameAllocator, FrameId};
use cache::Cache;
use size_class::{CLASSES, Place, object_bytes};

/// What a heap holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Bytes handed out, each allocation rounded up to what it takes.
    pub in_use: Bytes,
    /// Frames taken from the frame allocator.
    pub frames: PageCount,
    /// Length of all spans, whether touched or not. Part of `in_use`.
    pub large: Bytes,
}

/// An allocator of objects of any size. Usable as `static HEAP: Heap = Heap::new(&FRAMES)`.
///
/// Every allocation fails (null) while the frame allocator has no span, or no frame left.
pub struct Heap<'f> {
    frames: &'f FrameAllocator,
    caches: [SpinLock<Cache>; CLASSES],
    whole_frames: AtomicUsize,
    large_bytes: AtomicUsize,
}

impl<'f> Heap<'f> {
    /// A heap on `frames`, holding nothing yet.
    pub const fn new(frames: &'f FrameAllocator) -> Self {
        Self {
            frames,
            caches: [const { SpinLock::new(Cache::EMPTY) }; CLASSES],
            whole_frames: AtomicUsize::new(0),
            large_bytes: AtomicUsize::new(0),
        }
    }

    /// What the heap holds now.
    pub fn stats(&self) -> HeapStats {
        // Relaxed: a figure of its own.
        let whole = PageCount(self.whole_frames.load(Ordering::Relaxed));
        let large = self.large_bytes();
        let mut stats = HeapStats { in_use: large + whole.bytes(), frames: whole, large };
        for (class, cache) in self.caches.iter().enumerate() {
            let cache = cache.lock();
            stats.in_use += Bytes(cache.objects * object_bytes(class));
            stats.frames += PageCount(cache.frames);
        }
        stats
    }

    /// Length of all spans: what allocations above 4 KiB can come to take, beside the frames.
    pub fn large_bytes(&self) -> Bytes {
        // Relaxed: a figure of its own.
        Bytes(self.large_bytes.load(Ordering::Relaxed))
    }

    /// Gives back the empty frames kept for the next allocation, at most one for each size class.
    pub fn trim(&self) {
        for cache in &self.caches {
            cache.lock().trim(self.frames);
        }
    }

    /// Walks all size classes. Panics when an invariant is broken; for tests.
    pub fn check(&self) {
        for (class, cache) in self.caches.iter().enumerate() {
            cache.lock().check(self.frames, class);
        }
    }

    fn alloc_frame(&self) -> Option<NonNull<u8>> {
        let frame = self.frames.alloc()?;
        // Relaxed: a figure of its own.
        self.whole_frames.fetch_add(1, Ordering::Relaxed);
        Some(self.frames.address(frame))
    }

    fn alloc_span(&self, layout: Layout) -> Option<NonNull<u8>> {
        let length = Bytes(span_record_offset(layout) + size_of::<Span>());
        let span = Span::reserve(length, Bytes(layout.align().max(PAGE_BYTES))).ok()?;
        span.forbid_huge_pages();
        // Relaxed: a figure of its own.
        self.large_bytes.fetch_add(span.length().0, Ordering::Relaxed);
        let start = span.base();
        // SAFETY: the record lies inside the span, by the choice of its length, and is aligned.
        unsafe { start.add(span_record_offset(layout)).cast::<Span>().write(span) };
        Some(start)
    }

    /// Unmaps a span.
    ///
    /// # Safety
    /// `start` came from [`Heap::alloc_span`] with the same layout and is used no more.
    unsafe fn free_span(&self, start: NonNull<u8>, layout: Layout) {
        // SAFETY: `alloc_span` wrote the record there, and the caller's allocation ends before it.
        let span = unsafe { start.add(span_record_offset(layout)).cast::<Span>().read() };
        // Relaxed: a figure of its own.
        self.large_bytes.fetch_sub(span.length().0, Ordering::Relaxed);
    }
}

/// Where the record of a span lies, from its start.
fn span_record_offset(layout: Layout) -> usize {
    layout.size().next_multiple_of(align_of::<Span>())
}

// SAFETY: places of different allocations never overlap and are aligned as asked: objects by
// `Place`, frames to 4 KiB, spans to at least that. Nothing here unwinds but on a broken invariant,
// and nothing allocates from another heap.
unsafe impl GlobalAlloc for Heap<'_> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let object = match Place::of(layout) {
            Place::Class(class) => self.caches[class].lock().alloc(self.frames, class),
            Place::Frame => self.alloc_frame(),
            Place::Span => self.alloc_span(layout),
        };
        object.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        let object = NonNull::new(object).expect("only what was allocated is freed");
        match Place::of(layout) {
            // SAFETY: the caller freed what `alloc` gave for this layout, which came from this
            // cache.
            Place::Class(class) => unsafe {
                self.caches[class].lock().free(self.frames, class, object);
            },
            Place::Frame => {
                let frame = self.frames.offset_of(object).0 / PAGE_BYTES;
                // Relaxed: a figure of its own.
                self.whole_frames.fetch_sub(1, Ordering::Relaxed);
                // SAFETY: the caller freed what `alloc` gave for this layout, which is a frame.
                unsafe { self.frames.free(FrameId::from_index(frame as u32)) };
            }
            // SAFETY: the caller freed what `alloc` gave for this layout, which is a span.
            Place::Span => unsafe { self.free_span(object, layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises for `alloc_zeroed`.
        let object = unsafe { self.alloc(layout) };
        // A new span is zero already, and zeroing it would make it take memory.
        if !object.is_null() && Place::of(layout) != Place::Span {
            // SAFETY: `alloc` gave at least this many bytes.
            unsafe { object.write_bytes(0, layout.size()) };
        }
        object
    }

    unsafe fn realloc(&self, object: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the new size, rounded up to this alignment, is a layout.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let place = Place::of(layout);
        if place == Place::of(new_layout) && place != Place::Span {
            return object;
        }
        // SAFETY: `object` is an allocation of `layout`, by the caller's promise; the new one is
        // distinct from it and at least as large as what is copied.
        unsafe {
            let new = self.alloc(new_layout);
            if !new.is_null() {
                new.copy_from_nonoverlapping(object, layout.size().min(new_size));
                self.dealloc(object, layout);
            }
            new
        }
    }
}

impl Drop for Heap<'_> {
    /// Gives the frames of all objects up to 2032 bytes back; larger allocations must have been
    /// freed.
    fn drop(&mut self) {
        for cache in &mut self.caches {
            // SAFETY: an allocation may not be used once its allocator is gone.
            unsafe { cache.get_mut().release(self.frames) };
        }
    }
}
