//! The layout of a span as its user gives it, and what its frames are for.

use coldpress_sys::{Bytes, SysError};

/// Returns an error of this allocator, with the number `errno`.
pub(super) const fn error(errno: i32) -> SysError {
    SysError { call: "frames", errno }
}

/// The purpose of a frame; also the name of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mobility {
    /// The frame stays where it is until it is freed.
    Core = 0,
    /// The owner can move the frame: see [`super::FrameAllocator::set_owner`].
    EasyReclaim = 1,
}

impl Mobility {
    /// The zones, lowest first.
    pub const ALL: [Self; 2] = [Self::Core, Self::EasyReclaim];
}

/// The layout of a span. All sizes are whole blocks of 2 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Address space to reserve, at most [`super::SPAN_MAX`].
    pub span: Bytes,
    /// Online memory that goes to the core zone, the lowest first; the rest is easy-reclaim. This
    /// is `kernelcore=` of Mel Gorman's mail on easy-reclaim zones. `None`: one zone for
    /// everything.
    pub core: Option<Bytes>,
    /// Memory that is online at first.
    pub online: Bytes,
    /// Whether [`super::FrameAllocator::grow`] adds to the easy-reclaim zone, if there is one, and
    /// not to core. `false` is `noeasyrclm` of Mel Gorman's mail on easy-reclaim zones.
    pub easy_reclaim_hot_add: bool,
    /// Whether a request that finds nothing adds a block to its own zone, as long as the span has
    /// one. Such a request takes frames from no other zone.
    pub on_demand: bool,
}

impl Config {
    /// Returns the layout of one zone of `span` bytes, all online.
    pub const fn one_zone(span: Bytes) -> Self {
        Self { span, core: None, online: span, easy_reclaim_hot_add: true, on_demand: false }
    }
}
