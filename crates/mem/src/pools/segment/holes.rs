//! Holes by their length: two bitmaps find the best fit.
//!
//! Idea: below [`EXACT_END`] each length has a list of its own, so that the first hole of the first
//! list that is not empty is the best fit to the byte. Longer holes, each good for every object,
//! lie in eight lists per power of two. (Two-level segregated fit, Masmano et al. 2004, with a list
//! per byte in the range of objects.) The links are in the holes.
//!
//! Invariants:
//! 1. A list holds the holes of its lengths that are not parked, each once; its bit is set exactly
//!    when it is not empty, and the bit of a word exactly when the word is not zero.

use coldpress_sys::PAGE_BYTES;

use super::space::{BLOCK_MIN, Hole, Space, SpanOffset, TAG, Tag};
use crate::frames::ORDER_MAX;

/// From this length on, a list holds a range of lengths. The blocks of all objects are shorter.
const EXACT_END: usize = 4160;
const EXACT: usize = EXACT_END - BLOCK_MIN;
const EXACT_LOG: usize = EXACT_END.ilog2() as usize;
/// Lists per power of two of longer holes.
const STEPS: usize = 8;
const LISTS: usize = EXACT + (LENGTH_LOG - EXACT_LOG) * STEPS;
/// log2 of a length that all holes stay below.
const LENGTH_LOG: usize = (PAGE_BYTES << ORDER_MAX).ilog2() as usize;
const WORDS: usize = LISTS.div_ceil(64);

const _: () = assert!(TAG + PAGE_BYTES < EXACT_END);

/// The lists of holes.
pub(super) struct Holes {
    /// The first hole of each list; zero is none.
    heads: [SpanOffset; LISTS],
    used: [u64; WORDS],
    words_used: [u64; WORDS.div_ceil(64)],
}

impl Holes {
    pub(super) const fn new() -> Self {
        Self { heads: [0; LISTS], used: [0; WORDS], words_used: [0; WORDS.div_ceil(64)] }
    }

    /// Puts a parked hole into its list.
    pub(super) fn insert(&mut self, space: &mut Space<'_>, hole: Hole) {
        debug_assert!(space.is_hole(hole, true), "{hole:?} is in a list");
        let list = list_of(hole.length);
        let next = core::mem::replace(&mut self.heads[list], hole.at);
        space.set_parked(hole, false);
        space.set_next(hole.at, next);
        space.set_prev(hole.at, 0);
        if next == 0 {
            self.used[list / 64] |= 1 << (list % 64);
            self.words_used[list / 4096] |= 1 << (list / 64 % 64);
        } else {
            space.set_prev(next, hole.at);
        }
    }

    /// Takes a hole out of its list.
    pub(super) fn remove(&mut self, space: &mut Space<'_>, hole: Hole) {
        debug_assert!(space.is_hole(hole, false), "{hole:?} is in no list");
        let (next, prev) = space.links(hole.at);
        space.set_parked(hole, true);
        if next != 0 {
            space.set_prev(next, prev);
        }
        if prev != 0 {
            space.set_next(prev, next);
            return;
        }
        let list = list_of(hole.length);
        self.heads[list] = next;
        if next == 0 {
            self.used[list / 64] &= !(1 << (list % 64));
            if self.used[list / 64] == 0 {
                self.words_used[list / 4096] &= !(1 << (list / 64 % 64));
            }
        }
    }

    /// Returns the shortest hole of at least `length` bytes, which must be below [`EXACT_END`];
    /// among holes of [`EXACT_END`] and more, one of the shortest list.
    pub(super) fn find(&self, space: &Space<'_>, length: usize) -> Option<Hole> {
        let list = list_of(length);
        let bits = self.used[list / 64] & (u64::MAX << (list % 64));
        let list = if bits != 0 {
            list / 64 * 64 + bits.trailing_zeros() as usize
        } else {
            let word = self.word_from(list / 64 + 1)?;
            word * 64 + self.used[word].trailing_zeros() as usize
        };
        match space.tag(self.heads[list]) {
            Tag::Hole { hole, parked: false } => Some(hole),
            found => panic!("in list {list}: {found:?}"),
        }
    }

    /// Returns the first word from `word` on that is not zero.
    fn word_from(&self, word: usize) -> Option<usize> {
        let mut mask = u64::MAX << (word % 64);
        for (index, words) in self.words_used.iter().enumerate().skip(word / 64) {
            let bits = words & core::mem::replace(&mut mask, u64::MAX);
            if bits != 0 {
                return Some(index * 64 + bits.trailing_zeros() as usize);
            }
        }
        None
    }

    /// Walks the lists and returns the number of holes in them. Panics when the invariant is
    /// broken.
    pub(super) fn check(&self, space: &Space<'_>) -> usize {
        let mut count = 0;
        for (list, head) in self.heads.iter().enumerate() {
            let used = self.used[list / 64] >> (list % 64) & 1 == 1;
            assert_eq!(used, *head != 0, "bit of list {list}");
            let word_used = self.words_used[list / 4096] >> (list / 64 % 64) & 1 == 1;
            assert_eq!(word_used, self.used[list / 64] != 0, "bit of the word of list {list}");
            let (mut at, mut prev) = (*head, 0);
            while at != 0 {
                let Tag::Hole { hole, parked: false } = space.tag(at) else {
                    panic!("list {list} holds something else at {at:#x}");
                };
                assert_eq!(list_of(hole.length), list, "{hole:?}");
                let (next, back) = space.links(at);
                assert_eq!(back, prev, "broken list {list}");
                (at, prev, count) = (next, at, count + 1);
            }
        }
        count
    }
}

/// Returns the list for holes of a length.
fn list_of(length: usize) -> usize {
    if length < EXACT_END {
        return length - BLOCK_MIN;
    }
    let log = length.ilog2() as usize;
    let step = (length >> (log - STEPS.ilog2() as usize)) % STEPS;
    EXACT + (log - EXACT_LOG) * STEPS + step
}
