//! The cost of the size of a frame's descriptor: one slab allocator, four ways to describe a frame.
//!
//! The allocator (`model`) is the same for all: a stack of objects for the processor in front,
//! refilled and emptied by 32; slabs of one frame behind it; and for each cache a list of the slabs
//! with room. Only the place of its notes differs (`layout`). Like the kernel's kfree, a free gets
//! an address and nothing else, so it has to look at the descriptor. A loop of pairs looks at the
//! same cache line every time; the plans that spread the descriptors show what descriptors cost.
//!
//! 1. Every plan makes the same calls, to the same frames, for every layout.
//! 2. A pass frees what it has allocated.

mod layout;
mod model;
mod plan;

pub(crate) use plan::{PAIRS_OF_REFERENCE, Plan, SIZES};

use layout::{Aside, Inline, Wide};
use model::Slabs;

/// A way to describe a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// 56 bytes padded to 64, so that the pair of the 16-byte compare-and-swap is aligned.
    Padded64,
    /// 56 bytes; the pair is aligned inside them, in words 1 and 2 or in words 2 and 3.
    Aligned56,
    /// 32 bytes, all that a slab needs, with 32-bit links.
    Inline32,
    /// 8 bytes: a kind and the number of a record of 32 bytes, which only slabs have.
    Word8,
}

impl Descriptor {
    /// All layouts, the largest first.
    pub(crate) const ALL: [Self; 4] =
        [Self::Padded64, Self::Aligned56, Self::Inline32, Self::Word8];

    /// Returns the bytes of each frame's descriptor.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Padded64 => 64,
            Self::Aligned56 => 56,
            Self::Inline32 => 32,
            Self::Word8 => 8,
        }
    }

    /// Returns the layout of this size.
    pub(crate) fn of_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|descriptor| descriptor.bytes() == bytes)
    }

    /// Prepares passes of `plan`.
    pub(crate) fn prepare(self, plan: &Plan) -> Box<dyn Passes + '_> {
        match self {
            Self::Padded64 => Box::new(Prepared(Slabs::<Wide<8>>::new(plan.caches()), plan)),
            Self::Aligned56 => Box::new(Prepared(Slabs::<Wide<7>>::new(plan.caches()), plan)),
            Self::Inline32 => Box::new(Prepared(Slabs::<Inline>::new(plan.caches()), plan)),
            Self::Word8 => Box::new(Prepared(Slabs::<Aside>::new(plan.caches()), plan)),
        }
    }
}

/// A plan on one layout.
pub(crate) trait Passes {
    /// Does one pass.
    fn pass(&mut self);

    /// Walks all structures. Panics when an object was lost.
    #[cfg(test)]
    fn check(&mut self);
}

struct Prepared<'p, L: layout::Layout>(Slabs<L>, &'p Plan);

impl<L: layout::Layout> Passes for Prepared<'_, L> {
    fn pass(&mut self) {
        self.1.pass(&mut self.0);
    }

    #[cfg(test)]
    fn check(&mut self) {
        self.0.check();
    }
}

#[cfg(test)]
mod tests;
