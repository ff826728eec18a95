//! The name of a slab object in which a pool describes its frames.

#![forbid(unsafe_code)]

use core::ptr::NonNull;

use coldpress_sys::Bytes;

use crate::frames::FrameAllocator;

/// Alignment of slab objects.
pub(super) const REF_UNIT: usize = 16;

/// The name of a descriptor: its place in the span of frames, in units of 16 bytes. Zero is none,
/// because no slab object lies at the start of the span.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DescriptorRef(u32);

impl DescriptorRef {
    pub(super) const NONE: Self = Self(0);

    /// Returns the name of the descriptor at an address in the span.
    pub(super) fn of(descriptor: NonNull<u8>, frames: &FrameAllocator) -> Self {
        Self((frames.offset_of(descriptor).0 / REF_UNIT) as u32)
    }

    /// Returns the address of the descriptor.
    pub(super) fn address(self, frames: &FrameAllocator) -> NonNull<u8> {
        assert!(self.is_some(), "no descriptor");
        frames.address_at(Bytes(self.0 as usize * REF_UNIT))
    }

    pub(super) fn is_some(self) -> bool {
        self != Self::NONE
    }

    /// Returns the number that stands for the name in a handle word.
    pub(super) fn to_word(self) -> u32 {
        self.0
    }

    /// Returns the name that a handle word keeps.
    pub(super) fn from_word(word: u32) -> Self {
        Self(word)
    }
}
