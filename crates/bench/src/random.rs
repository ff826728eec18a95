//! Numbers that look random and are the same in every run (SplitMix64: Steele, Lea, Flood 2014).

/// A sequence of numbers that follows from its seed alone.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Makes the sequence of `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number of the sequence; any 64 bits.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Returns a number below `end`; 0 when `end` is 0. Even enough for ends far below 2^64.
    pub(crate) const fn below(&mut self, end: usize) -> usize {
        ((self.next() as u128 * end as u128) >> 64) as usize
    }

    /// Returns whether an event happens that happens `permille` times in a thousand.
    pub(crate) const fn happens(&mut self, permille: usize) -> bool {
        self.below(1000) < permille
    }

    /// Puts `items` in a random order, each order as likely as any (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_is_the_published_one() {
        // SplitMix64's published outputs: the first three for seed 1234567.
        let mut random = Random::new(1_234_567);
        let found = [random.next(), random.next(), random.next()];
        let wanted =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_shuffle_loses_nothing_and_follows_from_its_seed() {
        let shuffled = |seed| {
            let mut items: Vec<u32> = (0..1000).collect();
            Random::new(seed).shuffle(&mut items);
            items
        };
        let mut items = shuffled(1);
        assert_eq!(items, shuffled(1));
        assert_ne!(items, shuffled(2));
        items.sort_unstable();
        assert!(items.into_iter().eq(0..1000));
    }

    #[test]
    fn numbers_stay_below_their_end() {
        let mut random = Random::new(3);
        let mut seen = [0; 7];
        (0..7000).for_each(|_| seen[random.below(7)] += 1);
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
