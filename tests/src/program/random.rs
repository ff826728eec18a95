//! A small seeded generator: equal seeds give equal choices on every machine.

/// Mixes a word. SplitMix64's finaliser (Steele, Lea, Flood 2014): spreads every input bit over the
/// output.
#[must_use]
pub const fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// The SplitMix64 generator.
pub struct Random {
    state: u64,
}

impl Random {
    /// Makes a generator; `stream` separates the threads of one seed.
    #[must_use]
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self { state: mix(seed ^ mix(stream)) }
    }

    /// Returns the next word.
    pub const fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// Returns a uniform number in `0..bound`; 0 for an empty range.
    pub const fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { ((self.word() as u128 * bound as u128) >> 64) as usize }
    }

    /// Returns a uniform number in `low..=high`.
    pub const fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// Returns whether a draw is among `percent` of the cases.
    pub const fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a number in `1..=high`. Each power of two is as likely as the next: small values
    /// often, large ones too.
    pub const fn skewed(&mut self, high: usize) -> usize {
        let bits = high.ilog2() as usize;
        let low = 1 << self.below(bits + 1);
        let top = if low * 2 - 1 < high { low * 2 - 1 } else { high };
        self.between(low, top)
    }
}
