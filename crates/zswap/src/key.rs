//! The name of a page: an area and an offset in it, as the kernel's swap type and swap offset.
//!
//! Keys are names, not addresses: what an area and an offset stand for is the caller's business.

/// A name space of offsets, what the kernel calls a swap type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Area(pub u16);

/// The number of a page in its area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

/// The name of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The name space.
    pub area: Area,
    /// The number of the page in that area.
    pub offset: Offset,
}

impl Key {
    /// Returns the name of page `offset` of area `area`.
    pub const fn new(area: u16, offset: u64) -> Self {
        Self { area: Area(area), offset: Offset(offset) }
    }
}
