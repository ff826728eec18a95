//! The small-object allocator: frames cut into size classes, and spans for larger allocations.
//!
//! Idea: an allocation's kind follows from its layout alone. Up to 2048 bytes it is one of the
//! objects of a frame; up to 4096 it is a frame; beyond, a span whose record lies behind the
//! allocation. Nothing here calls malloc, so a [`Heap`] can be the global allocator inside any
//! program.
//!
//! Invariant: frames are taken and given back, and spans mapped and unmapped, without any lock of
//! the heap.

mod cache;
mod depot;
mod descriptor;
mod guard;
mod large;
mod objects;
mod size_class;
mod space;
#[cfg(test)]
mod tests;

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, SysResult};

use crate::frames::{FrameAllocator, FrameId, Mobility};
use large::Spans;
use objects::Objects;
use size_class::AllocationKind;

/// The figures of a heap, for tests.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeapStats {
    /// Bytes handed out, each allocation rounded up to the memory it takes.
    pub in_use: Bytes,
    /// Bytes of free objects kept ready in per-processor stacks and in depots.
    pub cached: Bytes,
    /// Frames taken from the frame allocator.
    pub frames: PageCount,
    /// Memory of the stacks and depots themselves, besides the frames.
    pub tables: Bytes,
    /// Length of all spans, whether touched or not. Part of `in_use`.
    pub large: Bytes,
}

/// An allocator of objects of any size. Usable as `static HEAP: Heap = Heap::new(&FRAMES)`.
///
/// Every allocation fails (null) while the frame allocator has no span, or no frame left.
///
/// Dropping a heap gives back the frames of all objects up to 2048 bytes; larger allocations must
/// have been freed.
pub struct Heap<'f> {
    frames: &'f FrameAllocator,
    objects: Objects<'f>,
    whole_frames: AtomicUsize,
    spans: Spans,
}

impl<'f> Heap<'f> {
    /// Makes a heap on `frames`, holding nothing yet.
    pub const fn new(frames: &'f FrameAllocator) -> Self {
        Self {
            frames,
            objects: Objects::new(frames),
            whole_frames: AtomicUsize::new(0),
            spans: Spans::new(),
        }
    }

    /// Keeps free objects ready for each processor, where the process has enabled restartable
    /// sections ([`coldpress_sys::rseq::enable`]): allocating and freeing then takes a few
    /// nanoseconds, and up to 64 KiB of each size class stay in a processor's stack, and 1 MiB in
    /// its depot, until [`Heap::trim`]. Elsewhere, or when the address space is refused, nothing
    /// changes.
    pub fn keep_per_processor(&self) -> SysResult<()> {
        self.objects.keep_per_processor()
    }

    /// Returns the current figures of the heap. Walks all slabs.
    #[cfg(test)]
    pub(crate) fn stats(&self) -> HeapStats {
        // Relaxed: the counter stands alone.
        let whole = PageCount(self.whole_frames.load(Ordering::Relaxed));
        let large = self.large_bytes();
        let objects = self.objects.stats();
        HeapStats {
            in_use: objects.in_use + large + whole.bytes(),
            cached: objects.cached,
            frames: self.frames_held(),
            tables: objects.tables,
            large,
        }
    }

    /// Returns the frames taken from the frame allocator.
    pub fn frames_held(&self) -> PageCount {
        // Relaxed: the counter stands alone.
        self.objects.frames_held() + PageCount(self.whole_frames.load(Ordering::Relaxed))
    }

    /// Returns the length of all spans: the memory that allocations above 4 KiB can come to take,
    /// besides the frames.
    pub fn large_bytes(&self) -> Bytes {
        self.spans.bytes()
    }

    /// Gives back the frames that hold only free objects: those kept ready for processors, and the
    /// empty slab that each class keeps.
    pub fn trim(&self) {
        self.objects.trim();
    }

    /// Walks all size classes, and panics when an invariant is broken. For tests, while no thread
    /// uses the heap.
    pub(crate) fn check(&self) {
        self.objects.check();
    }

    /// Makes an allocation that is no object of a class.
    #[cold]
    fn alloc_large(&self, kind: AllocationKind, layout: Layout) -> Option<NonNull<u8>> {
        if kind == AllocationKind::Frame { self.alloc_frame() } else { self.spans.alloc(layout) }
    }

    /// Frees an allocation that is no object of a class.
    ///
    /// # Safety
    /// As for `dealloc`, with the kind of the layout, which is no class.
    #[cold]
    unsafe fn free_large(&self, kind: AllocationKind, layout: Layout, start: NonNull<u8>) {
        // SAFETY: the caller frees what `alloc_large` returned for this layout.
        unsafe {
            if kind == AllocationKind::Frame {
                self.free_frame(start);
            } else {
                self.spans.free(start, layout);
            }
        }
    }

    fn alloc_frame(&self) -> Option<NonNull<u8>> {
        let frame = self.frames.alloc(Mobility::Core)?;
        // Relaxed: the counter stands alone.
        self.whole_frames.fetch_add(1, Ordering::Relaxed);
        Some(self.frames.address(frame))
    }

    /// Frees a frame.
    ///
    /// # Safety
    /// `start` came from [`Heap::alloc_frame`] and is no longer used.
    unsafe fn free_frame(&self, start: NonNull<u8>) {
        let frame = self.frames.offset_of(start).0 / PAGE_BYTES;
        // Relaxed: the counter stands alone.
        let before = self.whole_frames.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a frame is freed once");
        // SAFETY: the caller promises that the frame is out and no longer used.
        unsafe { self.frames.free(FrameId::from_index(frame as u32)) };
    }
}

// SAFETY: places of different allocations never overlap and are aligned as requested: objects by
// `AllocationKind`, frames to 4 KiB, spans to at least that. Nothing here unwinds but on a broken
// invariant, and nothing allocates from another heap.
unsafe impl GlobalAlloc for Heap<'_> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let object = match AllocationKind::of(layout) {
            AllocationKind::Class(class) => self.objects.alloc_object(class, layout.size()),
            kind => self.alloc_large(kind, layout),
        };
        object.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        // SAFETY: a caller frees only what was allocated, which is not null.
        let object = unsafe { NonNull::new_unchecked(object) };
        match AllocationKind::of(layout) {
            // SAFETY: the caller frees what `alloc` returned for this layout, which is of this
            // class.
            AllocationKind::Class(class) => unsafe {
                self.objects.free_object(class, layout.size(), object)
            },
            // SAFETY: the caller frees what `alloc` returned for this layout, which has this kind.
            kind => unsafe { self.free_large(kind, layout, object) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise for `alloc_zeroed` holds for `alloc`.
        let object = unsafe { self.alloc(layout) };
        // A new span is zero already, and zeroing it would make it use memory.
        if !object.is_null() && AllocationKind::of(layout) != AllocationKind::Span {
            // SAFETY: `alloc` returned at least `layout.size()` bytes.
            unsafe { object.write_bytes(0, layout.size()) };
        }
        object
    }

    unsafe fn realloc(&self, object: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the new size, rounded up to this alignment, is a layout.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (AllocationKind::of(layout), AllocationKind::of(new_layout)) {
            (AllocationKind::Class(class), AllocationKind::Class(new_class))
                if class == new_class =>
            {
                // SAFETY: this is the caller's object, of this class and size, which is not null.
                unsafe {
                    let start = NonNull::new_unchecked(object);
                    self.objects.resize(class, start, (layout.size(), new_size));
                }
                return object;
            }
            (AllocationKind::Frame, AllocationKind::Frame) => return object,
            _ => {}
        }
        // SAFETY: `object` is an allocation of `layout`, by the caller's promise; the new one is
        // distinct from it and at least as large as the copied part.
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
