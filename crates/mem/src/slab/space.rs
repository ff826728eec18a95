//! The slab's view of the span of frames: names to addresses, and frames to slabs.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use coldpress_sys::{Bytes, PageCount};

use super::cache::Space;
use super::descriptor::{Object, Slab, SlabRef};
use super::size_class::GRANULE;
use crate::frames::{Descriptor, FrameAllocator, FrameId, Mobility};

/// The frames that a heap takes objects from.
pub(super) struct FrameSpace<'f> {
    /// The address of the first frame, once one frame was taken.
    base: AtomicPtr<u8>,
    frames: &'f FrameAllocator,
    /// Frames cut into objects or descriptors.
    held: AtomicUsize,
}

impl<'f> FrameSpace<'f> {
    pub(super) const fn new(frames: &'f FrameAllocator) -> Self {
        Self { base: AtomicPtr::new(ptr::null_mut()), frames, held: AtomicUsize::new(0) }
    }

    /// Takes a frame with undefined contents.
    pub(super) fn take_frame(&self) -> Option<FrameId> {
        let frame = self.frames.alloc(Mobility::Core)?;
        // Relaxed: the value is always the same, and any thread that has an object sees it, because
        // the object came after it.
        self.base.store(self.frames.address_at(Bytes(0)).as_ptr(), Ordering::Relaxed);
        // Relaxed: the counter stands alone.
        self.held.fetch_add(1, Ordering::Relaxed);
        Some(frame)
    }

    /// Gives a frame back.
    ///
    /// # Safety
    /// It was taken here, and no code uses its bytes any more.
    pub(super) unsafe fn give_frame(&self, frame: FrameId) {
        // Relaxed: the counter stands alone.
        let before = self.held.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a frame is given back once");
        // SAFETY: the caller promises that the frame is out, and no longer used.
        unsafe { self.frames.free(frame) };
    }

    /// Returns the number of frames taken.
    pub(super) fn frames_held(&self) -> PageCount {
        // Relaxed: the counter stands alone.
        PageCount(self.held.load(Ordering::Relaxed))
    }

    /// Notes the slab that a frame is.
    ///
    /// # Safety
    /// The frame was taken here, and the slab's descriptor lies there until it is given back.
    pub(super) unsafe fn set_slab(&self, frame: FrameId, slab: SlabRef) {
        // SAFETY: the caller promises that the frame is ours, and that the descriptor outlives its
        // use.
        unsafe { self.frames.set_slab(frame, slab.0) };
    }

    /// Returns the slab that an object lies in.
    #[inline]
    pub(super) fn slab_of(&self, object: Object) -> SlabRef {
        self.slab_at(FrameId::from_index(object.frame())).expect("the frame of an object is a slab")
    }

    /// Returns the slab whose frame holds an address, which need not belong to this heap.
    pub(super) fn slab_containing(&self, address: NonNull<u8>) -> Option<SlabRef> {
        self.slab_at(self.frames.frame_at(address)?)
    }

    #[inline]
    fn slab_at(&self, frame: FrameId) -> Option<SlabRef> {
        match self.frames.descriptor(frame) {
            Descriptor::Slab { descriptor } => Some(SlabRef(descriptor)),
            _ => None,
        }
    }

    /// Prefetches an object for writing.
    #[inline]
    pub(super) fn prefetch(&self, object: Object) {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a prefetch touches nothing.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(self.address(object).as_ptr().cast()) };
    }

    /// Returns the address of an object, or of a descriptor.
    #[inline]
    pub(super) fn address(&self, object: Object) -> NonNull<u8> {
        // Relaxed: a thread that names an object has got the name from a thread that has seen the
        // base.
        let base = self.base.load(Ordering::Relaxed);
        let address = base.wrapping_add(object.0 as usize * GRANULE);
        // SAFETY: objects lie in the span of frames, which does not contain address zero.
        unsafe { NonNull::new_unchecked(address) }
    }

    /// Returns the name of an object of this heap.
    #[inline]
    pub(super) fn object_at(&self, address: NonNull<u8>) -> Object {
        // Relaxed: as in `address`.
        let base = self.base.load(Ordering::Relaxed);
        Object(((address.as_ptr().addr() - base.addr()) / GRANULE) as u32)
    }
}

impl Space for FrameSpace<'_> {
    #[inline]
    fn slab(&self, slab: SlabRef) -> &Slab {
        // SAFETY: a slab that exists has its descriptor there, which is shared by reference only
        // and changes through atomics.
        unsafe { self.address(Object(slab.0)).cast::<Slab>().as_ref() }
    }

    #[inline]
    fn link(&self, object: Object) -> Object {
        // SAFETY: a free object starts with its link, and no code writes to it while it is free.
        Object(unsafe { self.address(object).cast::<u32>().read() })
    }

    #[inline]
    fn set_link(&self, object: Object, next: Object) {
        // SAFETY: the object belongs to the caller, and is larger than a link.
        unsafe { self.address(object).cast::<u32>().write(next.0) };
    }
}
