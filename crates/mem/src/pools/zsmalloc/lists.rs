//! The lists and the figures of a class, below all code that knows a zspage.

#![forbid(unsafe_code)]

use super::super::descriptor_ref::DescriptorRef;

/// Number of groups of fullness: quarters, and the full ones. zsmalloc of Linux has twelve groups;
/// more groups than these do not pack denser.
const GROUPS: usize = 5;
pub(super) const FULL: usize = GROUPS - 1;

/// The name of a zspage: the ref of its descriptor.
pub(super) type ZspageRef = DescriptorRef;

/// The figures of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClassCounts {
    pub(super) objects: u32,
    pub(super) frames: u32,
}

impl ClassCounts {
    pub(super) fn add(&mut self, objects: u32, frames: u32) {
        self.objects += objects;
        self.frames += frames;
    }

    /// Takes away what the class has lost.
    pub(super) fn take(&mut self, objects: u32, frames: u32) {
        debug_assert!(self.objects >= objects && self.frames >= frames, "{self:?}");
        self.objects -= objects;
        self.frames -= frames;
    }
}

/// The first zspage of each group of a class, and the figures of the class.
pub(super) struct Lists {
    pub(super) heads: [ZspageRef; GROUPS],
    pub(super) counts: ClassCounts,
    /// Objects that began in another class, up to [`super::size_class::BEGINNERS`], since this one
    /// last held none.
    pub(super) given_away: u8,
}

impl Lists {
    pub(super) const EMPTY: Self = Self {
        heads: [ZspageRef::NONE; GROUPS],
        counts: ClassCounts { objects: 0, frames: 0 },
        given_away: 0,
    };
}
