//! A set of small numbers that finds a member's neighbours in constant time.
//!
//! Idea (M. Masmano et al., TLSF, 2004): one bit for each number, and one more word with a bit for
//! each word that is not zero. Both searches look at three words at most.

const BITS: usize = u64::BITS as usize;

/// A set of numbers below 64 * `WORDS`.
pub(super) struct Bitmap<const WORDS: usize> {
    words: [u64; WORDS],
    /// Bit `i` is set when `words[i]` is not zero.
    summary: u64,
}

impl<const WORDS: usize> Bitmap<WORDS> {
    /// Makes the empty set.
    pub(super) const fn new() -> Self {
        assert!(WORDS <= BITS, "one word sums up all others");
        Self { words: [0; WORDS], summary: 0 }
    }

    /// Adds a number.
    pub(super) fn insert(&mut self, number: usize) {
        self.words[number / BITS] |= 1 << (number % BITS);
        self.summary |= 1 << (number / BITS);
    }

    /// Removes a number.
    pub(super) fn remove(&mut self, number: usize) {
        self.words[number / BITS] &= !(1 << (number % BITS));
        if self.words[number / BITS] == 0 {
            self.summary &= !(1 << (number / BITS));
        }
    }

    /// Returns whether the number is in the set.
    pub(super) fn contains(&self, number: usize) -> bool {
        self.words[number / BITS] & 1 << (number % BITS) != 0
    }

    /// Returns the smallest member that is `start` or more.
    pub(super) fn first_from(&self, start: usize) -> Option<usize> {
        let word = start / BITS;
        let here = self.words.get(word)? & u64::MAX << (start % BITS);
        if here != 0 {
            return Some(word * BITS + here.trailing_zeros() as usize);
        }
        let later = self.summary & !ones_below(word + 1);
        let word = (later != 0).then(|| later.trailing_zeros() as usize)?;
        Some(word * BITS + self.words[word].trailing_zeros() as usize)
    }

    /// Returns the largest member below `end`.
    pub(super) fn last_below(&self, end: usize) -> Option<usize> {
        let word = end / BITS;
        let here = self.words.get(word).map_or(0, |bits| bits & ones_below(end % BITS));
        if here != 0 {
            return Some(word * BITS + here.ilog2() as usize);
        }
        let earlier = self.summary & ones_below(word);
        let word = earlier.checked_ilog2()? as usize;
        Some(word * BITS + self.words[word].ilog2() as usize)
    }
}

/// Returns a word with the lowest `count` bits set.
fn ones_below(count: usize) -> u64 {
    !u64::MAX.checked_shl(count as u32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_an_ordered_set(
            changes in prop::collection::vec((0_usize..256, any::<bool>()), 0..40),
        ) {
            let (mut bitmap, mut naive) = (Bitmap::<4>::new(), BTreeSet::new());
            for (number, insert) in changes {
                if insert {
                    bitmap.insert(number);
                    naive.insert(number);
                } else {
                    bitmap.remove(number);
                    naive.remove(&number);
                }
            }
            for number in 0..300 {
                prop_assert_eq!(bitmap.first_from(number), naive.range(number..).next().copied());
                let below = naive.range(..number).next_back().copied();
                prop_assert_eq!(bitmap.last_below(number), below);
                prop_assert!(number > 255 || bitmap.contains(number) == naive.contains(&number));
            }
        }
    }

    #[test]
    fn a_set_of_all_words_is_searched_to_its_end() {
        let mut bitmap = Bitmap::<64>::new();
        bitmap.insert(4095);
        assert_eq!((bitmap.first_from(0), bitmap.last_below(4096)), (Some(4095), Some(4095)));
        assert_eq!((bitmap.first_from(4096), bitmap.last_below(4095)), (None, None));
    }
}
