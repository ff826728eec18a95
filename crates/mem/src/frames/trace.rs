//! Traces of frame allocations: which frames a program's pages needed, and for how long.
//!
//! A file is a head of 16 bytes and then events, all numbers little-endian:
//!
//! ```text
//! offset  bytes  what
//! 0       8      "cpframes"
//! 8       4      version, 1
//! 12      4      zero
//! 16      4      event, and so on to the end of the file
//!
//!  31                     6 5      2 1    0
//! +------------------------+--------+------+    kind 0: free
//! |           id           | order  | kind |         1: allocate, core
//! +------------------------+--------+------+         2: allocate, easily reclaimed
//! ```
//!
//! An id names a chunk from its allocation to its free and may be used again afterwards, so the
//! number of a chunk's first frame serves as it is: a recorder needs no table.

use super::{Mobility, ORDER_MAX, SPAN_MAX};
use coldpress_sys::PAGE_BYTES;

/// The version of the events.
pub const VERSION: u32 = 1;
/// The first bytes of a file.
pub const HEAD: [u8; 16] = *b"cpframes\x01\0\0\0\0\0\0\0";
/// Bytes of an event.
pub const EVENT_BYTES: usize = 4;
/// Bits of an id: two more than the frames of the largest span need.
const ID_BITS: u32 = 26;
/// The largest id.
pub const ID_MAX: u32 = (1 << ID_BITS) - 1;

/// One recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A chunk of `1 << order` frames was allocated.
    Alloc {
        /// The name of the chunk from now on.
        id: u32,
        /// 0 to 9.
        order: u8,
        /// The purpose of the chunk.
        mobility: Mobility,
    },
    /// A chunk was freed.
    Free {
        /// The name of the chunk until now.
        id: u32,
        /// The order, as it was allocated.
        order: u8,
    },
}

impl Event {
    /// Returns the event as the file holds it. Ids above [`ID_MAX`] lose their upper bits.
    pub const fn encode(self) -> u32 {
        let (id, order, kind) = match self {
            Self::Free { id, order } => (id, order, 0),
            Self::Alloc { id, order, mobility: Mobility::Core } => (id, order, 1),
            Self::Alloc { id, order, mobility: Mobility::EasyReclaim } => (id, order, 2),
        };
        id << 6 | (order as u32) << 2 | kind
    }

    /// Returns the event of a word; `None` for a word that encodes none.
    pub const fn decode(word: u32) -> Option<Self> {
        let (id, order) = (word >> 6, (word >> 2 & 15) as u8);
        if order > ORDER_MAX {
            return None;
        }
        match word & 3 {
            0 => Some(Self::Free { id, order }),
            1 => Some(Self::Alloc { id, order, mobility: Mobility::Core }),
            2 => Some(Self::Alloc { id, order, mobility: Mobility::EasyReclaim }),
            _ => None,
        }
    }
}

const _: () = assert!(SPAN_MAX.0 / PAGE_BYTES <= ID_MAX as usize && HEAD[8] as u32 == VERSION);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_decode_to_what_encodes_to_them(word in any::<u32>()) {
            if let Some(event) = Event::decode(word) {
                prop_assert_eq!(event.encode(), word);
            }
        }

        #[test]
        fn events_come_back(id in 0..=ID_MAX, order in 0..=ORDER_MAX, kind in 0..3) {
            let event = match kind {
                0 => Event::Free { id, order },
                1 => Event::Alloc { id, order, mobility: Mobility::Core },
                _ => Event::Alloc { id, order, mobility: Mobility::EasyReclaim },
            };
            prop_assert_eq!(Event::decode(event.encode()), Some(event));
        }
    }
}
