//! Frame descriptors: eight bytes, typed, encoded and decoded here and nowhere else.
//!
//! ```text
//!  63                  36 35                   8 7     4 3    0
//! +----------------------+----------------------+-------+------+
//! |                              0                      |  0   |  Offline
//! |       next: 28       |       prev: 28       | order |  1   |  Free
//! |                              0                      |  2   |  FreeTail
//! |                              0                      |  3   |  Cached
//! |                              0                      |  4   |  Core
//! |    owner: 63..32   |   0   | index: 15..8   |   0   |  5   |  Movable
//! |  descriptor: 63..32 |              0                |  6   |  Slab
//! +-----------------------------------------------------+------+
//! ```
//! `next` and `prev` are frame numbers plus one; zero means none. A multi-frame object that needs
//! more than this has an object of its own, which `owner` or `descriptor` names. Whether a frame's
//! memory may be resident does not concern its owner; that is one bit a frame, in `blocks`.

use super::{FrameId, ORDER_MAX};

const TAG_BITS: u32 = 4;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const ORDER_SHIFT: u32 = TAG_BITS;
const PREV_SHIFT: u32 = 8;
const NEXT_SHIFT: u32 = 36;
const LINK_MASK: u64 = (1 << (NEXT_SHIFT - PREV_SHIFT)) - 1;
const INDEX_SHIFT: u32 = 8;
const NAME_SHIFT: u32 = 32;

const OFFLINE: u64 = 0;
const FREE: u64 = 1;
const FREE_TAIL: u64 = 2;
const CACHED: u64 = 3;
const CORE: u64 = 4;
const MOVABLE: u64 = 5;
const SLAB: u64 = 6;

// The largest frame number plus one, 2^24, is a link; the largest order is four bits.
const _: () = assert!(1 << 24 <= LINK_MASK && (ORDER_MAX as u64) <= TAG_MASK);

/// The state and use of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// No memory can be behind it, or its block has not been used yet.
    Offline,
    /// Heads a chunk of 2^`order` free frames, in the list of its order.
    Free {
        /// log2 of the frames of the chunk.
        order: u8,
        /// The chunk before it in the list.
        prev: Option<FrameId>,
        /// The chunk behind it in the list.
        next: Option<FrameId>,
    },
    /// Free, in a chunk that another frame heads or that is in no list.
    FreeTail,
    /// Taken from the free chunks but not handed out: in a per-CPU list, or being given back.
    Cached,
    /// Handed out and not movable.
    Core,
    /// Handed out to an owner that can move it.
    Movable {
        /// The owner's name for the object that the frame belongs to.
        owner: u32,
        /// The frame's index in that object.
        index: u8,
    },
    /// Handed out and cut into objects of a slab.
    Slab {
        /// Position of the slab's descriptor: 16-byte units from the first frame.
        descriptor: u32,
    },
}

impl Descriptor {
    /// Returns whether a frame with this descriptor has an owner outside the allocator.
    pub(crate) const fn is_handed_out(self) -> bool {
        matches!(self, Self::Core | Self::Movable { .. } | Self::Slab { .. })
    }

    pub(super) const fn encode(self) -> u64 {
        match self {
            Self::Offline => OFFLINE,
            Self::Free { order, prev, next } => {
                FREE | (order as u64) << ORDER_SHIFT
                    | link(prev) << PREV_SHIFT
                    | link(next) << NEXT_SHIFT
            }
            Self::FreeTail => FREE_TAIL,
            Self::Cached => CACHED,
            Self::Core => CORE,
            Self::Movable { owner, index } => {
                MOVABLE | (index as u64) << INDEX_SHIFT | (owner as u64) << NAME_SHIFT
            }
            Self::Slab { descriptor } => SLAB | (descriptor as u64) << NAME_SHIFT,
        }
    }

    pub(super) fn decode(word: u64) -> Self {
        match word & TAG_MASK {
            OFFLINE => Self::Offline,
            FREE => Self::Free {
                order: (word >> ORDER_SHIFT & TAG_MASK) as u8,
                prev: frame(word >> PREV_SHIFT),
                next: frame(word >> NEXT_SHIFT),
            },
            FREE_TAIL => Self::FreeTail,
            CACHED => Self::Cached,
            CORE => Self::Core,
            MOVABLE => Self::Movable {
                owner: (word >> NAME_SHIFT) as u32,
                index: (word >> INDEX_SHIFT) as u8,
            },
            SLAB => Self::Slab { descriptor: (word >> NAME_SHIFT) as u32 },
            _ => panic!("broken frame descriptor {word:#x}"),
        }
    }
}

const fn link(frame: Option<FrameId>) -> u64 {
    match frame {
        Some(frame) => frame.0 as u64 + 1,
        None => 0,
    }
}

fn frame(link: u64) -> Option<FrameId> {
    ((link & LINK_MASK) as u32).checked_sub(1).map(FrameId)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_link() -> impl Strategy<Value = Option<FrameId>> {
        let number = prop_oneof![0_u32..1 << 24, Just(0), Just((1 << 24) - 1)];
        prop::option::of(number.prop_map(FrameId))
    }

    fn any_descriptor() -> impl Strategy<Value = Descriptor> {
        prop_oneof![
            Just(Descriptor::Offline),
            (0..=ORDER_MAX, any_link(), any_link())
                .prop_map(|(order, prev, next)| Descriptor::Free { order, prev, next }),
            Just(Descriptor::FreeTail),
            Just(Descriptor::Cached),
            Just(Descriptor::Core),
            any::<(u32, u8)>().prop_map(|(owner, index)| Descriptor::Movable { owner, index }),
            any::<u32>().prop_map(|descriptor| Descriptor::Slab { descriptor }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(descriptor in any_descriptor()) {
            prop_assert_eq!(Descriptor::decode(descriptor.encode()), descriptor);
        }
    }

    #[test]
    fn memory_nobody_has_touched_reads_as_offline() {
        assert_eq!(Descriptor::decode(0), Descriptor::Offline);
    }
}
