//! The slab's view of the span of frames: names to addresses, and frames to slabs.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use coldpress_sys::{Bytes, PageCount};

use super::cache::Space;
use super::descriptor::{Object, Slab, SlabRef};
use super::size_class::GRANULE;
use crate::frames::{Descriptor, FrameAllocator, FrameId, Mobility};

/// The frames a heap takes objects from.
pub(super) struct FrameSpace<'f> {
    /// Where the first frame is, once one was taken.
    base: AtomicPtr<u8>,
    frames: &'f FrameAllocator,
    /// Frames cut into objects, and those of descriptors.
    held: AtomicUsize,
}

impl<'f> FrameSpace<'f> {
    pub(super) const fn new(frames: &'f FrameAllocator) -> Self {
        Self { base: AtomicPtr::new(ptr::null_mut()), frames, held: AtomicUsize::new(0) }
    }

    /// A frame with undefined contents.
    pub(super) fn take_frame(&self) -> Option<FrameId> {
        let frame = self.frames.alloc(Mobility::Core).ok()?;
        // Relaxed: always the same, and seen by whoever has an object, as that is behind it.
        self.base.store(self.frames.address_at(Bytes(0)).as_ptr(), Ordering::Relaxed);
        // Relaxed: a figure of its own.
        self.held.fetch_add(1, Ordering::Relaxed);
        Some(frame)
    }

    /// Gives a frame back.
    ///
    /// # Safety
    /// It was taken here, and nobody uses its bytes any more.
    pub(super) unsafe fn give_frame(&self, frame: FrameId) {
        // Relaxed: a figure of its own.
        self.held.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the caller's promise: the frame is out, and not used any more.
        unsafe { self.frames.free(frame) };
    }

    /// Frames taken.
    pub(super) fn frames_held(&self) -> PageCount {
        // Relaxed: a figure of its own.
        PageCount(self.held.load(Ordering::Relaxed))
    }

    /// Notes which slab a frame is.
    ///
    /// # Safety
    /// The frame was taken here, and the slab's descriptor lies there until it is given back.
    pub(super) unsafe fn set_slab(&self, frame: FrameId, slab: SlabRef) {
        // SAFETY: the caller's promise: the frame is ours, and the descriptor outlives its use.
        unsafe { self.frames.set_slab(frame, slab.0) };
    }

    /// The slab an object lies in.
    #[inline]
    pub(super) fn slab_of(&self, object: Object) -> SlabRef {
        self.slab_at(FrameId::from_index(object.frame())).expect("the frame of an object is a slab")
    }

    /// The slab whose frame holds an address, which need not be one of this heap.
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

    /// Asks the processor to fetch an object for writing.
    #[inline]
    pub(super) fn prefetch(&self, object: Object) {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a prefetch touches nothing.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(self.address(object).as_ptr().cast()) };
    }

    /// The address of an object, or of a descriptor.
    #[inline]
    pub(super) fn address(&self, object: Object) -> NonNull<u8> {
        // Relaxed: who names an object has got it from somebody who has seen the base.
        let base = self.base.load(Ordering::Relaxed);
        let address = base.wrapping_add(object.0 as usize * GRANULE);
        // SAFETY: objects lie in the span of frames, which does not contain address zero.
        unsafe { NonNull::new_unchecked(address) }
    }

    /// The name of an object of this heap.
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
        // SAFETY: a free object starts with its link, and nobody writes to it while it is free.
        Object(unsafe { self.address(object).cast::<u32>().read() })
    }

    #[inline]
    fn set_link(&self, object: Object, next: Object) {
        // SAFETY: the object is the caller's, and is larger than a link.
        unsafe { self.address(object).cast::<u32>().write(next.0) };
    }
}
