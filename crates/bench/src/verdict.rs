//! Whether one build is slower than another: the median of paired ratios, an interval that holds
//! it, and a verdict.
//!
//! The interval is that of order statistics (the sign test inverted; David and Nagaraja, Order
//! Statistics, 3rd edition, 2003, section 7.1): of n ratios in order, the k-th from below and the
//! k-th from above. The true median lies below the k-th smallest only if fewer than k of n tosses
//! of a coin show heads. So the distribution of the ratios does not matter, as long as pairs are
//! independent. No random numbers are drawn, and the same pairs give the same interval.
//!
//! 1. A ratio above 1 is worse: figures are times, or memory.
//! 2. The interval holds the median with a probability of at least [`COVERAGE`]: k is the largest
//!    for which both tails together have no more than the rest.

use std::fmt;

use crate::statistics::Sample;

/// The least probability that the interval holds the true median. The usual choice.
pub(crate) const COVERAGE: f64 = 0.95;
/// The fewest pairs for a verdict. Of 20 pairs, the interval leaves out five at either end.
pub(crate) const PAIRS_MIN: u32 = 20;
/// The largest ratio that does not count as a difference: builds that differ only in where their
/// code lies differ by as much.
pub(crate) const RATIO_SAME: f64 = 1.02;

/// The interval of the paired ratios of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    /// The lower end of the interval.
    pub low: f64,
    /// The median of the ratios.
    pub median: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Interval {
    /// Returns the interval of the median of `ratios`; `None` when there are too few of them for
    /// one.
    pub(crate) fn of(ratios: &Sample) -> Option<Self> {
        let values = ratios.in_order();
        let rank = rank(values.len())?;
        let (low, high) = (values[rank - 1], values[values.len() - rank]);
        Some(Self { low, median: ratios.median(), high })
    }

    /// Returns the verdict that follows from the interval.
    pub(crate) fn verdict(&self) -> Verdict {
        let least = 1.0 / RATIO_SAME;
        if self.low > RATIO_SAME {
            Verdict::Worse
        } else if self.high < least {
            Verdict::Better
        } else if self.low >= least && self.high <= RATIO_SAME {
            Verdict::Same
        } else {
            Verdict::Unclear
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} to {:.4}", self.low, self.high)
    }
}

/// The verdict on a figure of two builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The whole interval is above [`RATIO_SAME`].
    Worse,
    /// The whole interval is below the inverse of [`RATIO_SAME`].
    Better,
    /// The whole interval is between the two.
    Same,
    /// None of these: more pairs, or a quieter machine, would decide.
    Unclear,
}

impl Verdict {
    /// Returns the word for the verdict.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Same => "same",
            Self::Unclear => "unclear",
        }
    }
}

/// Returns the k of the interval for `count` values, which is 1 for the smallest value and the
/// largest; `None` when even these hold the median less often than [`COVERAGE`].
fn rank(count: usize) -> Option<usize> {
    // The probability of each number of heads, divided by that of the middle number. So the largest
    // value is 1, and values that are too small for an f64 are too rare to count.
    let middle = count / 2;
    let mut ways = vec![1.0; middle + 1];
    for heads in (0..middle).rev() {
        ways[heads] = ways[heads + 1] * (heads + 1) as f64 / (count - heads) as f64;
    }
    let half: f64 = ways.iter().sum();
    let all = if count.is_multiple_of(2) { 2.0 * half - ways[middle] } else { 2.0 * half };
    let mut tail = 0.0;
    let is_in_tail = |ways: &&f64| {
        tail += **ways;
        tail / all <= (1.0 - COVERAGE) / 2.0
    };
    let rank = ways.iter().take_while(is_in_tail).count();
    (rank > 0).then_some(rank)
}

#[cfg(test)]
mod tests {
    //! Risk: a slower build passes, or a build that is as fast is called slower.

    use super::*;
    use crate::random::Random;

    /// Tosses `count` coins in every possible way, and takes the rank that holds often enough.
    fn naive(count: usize) -> Option<usize> {
        let mut by_heads = vec![0_u64; count + 1];
        (0..1_u64 << count).for_each(|coins| by_heads[coins.count_ones() as usize] += 1);
        let outside = |rank: usize| 2.0 * by_heads[..rank].iter().sum::<u64>() as f64;
        let holds = |rank: &usize| outside(*rank) / (1_u64 << count) as f64 <= 1.0 - COVERAGE;
        (1..=count / 2).rev().find(holds)
    }

    #[test]
    fn ranks_are_those_of_all_throws_of_coins() {
        for count in 0..=20 {
            assert_eq!(rank(count), naive(count), "{count}");
        }
    }

    #[test]
    fn ranks_are_those_of_tables() {
        // Conover, Practical Nonparametric Statistics, 3rd edition, 1999, table A3: the largest
        // number whose cumulative probability of the binomial distribution is at most 0.025.
        for (count, wanted) in [(5, None), (6, Some(1)), (20, Some(6)), (30, Some(10))] {
            assert_eq!(rank(count), wanted, "{count}");
        }
        // The normal approximation, where it is good: n/2 - 0.98 sqrt(n).
        for count in [1000_usize, 10_000] {
            let near = count as f64 / 2.0 - 0.98 * (count as f64).sqrt();
            let found = rank(count).expect("there are enough") as f64;
            assert!((found - near).abs() <= 1.0, "{count}: {found} and {near}");
        }
    }

    /// Draws values whose true median is 1, and counts how often the interval holds it.
    #[test]
    fn the_interval_holds_the_median_of_skewed_values_as_often_as_said() {
        let seed = 20;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let (mut held, rounds) = (0, 4000);
        for _ in 0..rounds {
            let values = (0..PAIRS_MIN).map(|_| {
                let even = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
                // Below the median there is hardly any spread, above it a long tail.
                if even < 0.5 { 0.99 + even / 50.0 } else { 1.0 / (2.0 - 2.0 * even) }
            });
            let sample = Sample::new(values).expect("values");
            let interval = Interval::of(&sample).expect("enough values");
            held += u32::from(interval.low <= 1.0 && 1.0 <= interval.high);
        }
        // 95.9 % by the table; its standard deviation over 4000 rounds is 0.3 %.
        let share = f64::from(held) / f64::from(rounds);
        assert!((0.945..0.973).contains(&share), "{share}");
    }

    #[test]
    fn ends_are_counted_from_both_sides() {
        let sample = Sample::new((1..=20).map(f64::from)).expect("values");
        let interval = Interval::of(&sample).expect("enough values");
        assert_eq!((interval.low, interval.median, interval.high), (6.0, 10.5, 15.0));
        let few = Sample::new((1..=5).map(f64::from)).expect("values");
        assert_eq!(Interval::of(&few), None);
    }

    #[test]
    fn only_a_whole_interval_above_two_percent_is_worse() {
        let verdict =
            |low, high| Interval { low, median: f64::midpoint(low, high), high }.verdict();
        assert_eq!(verdict(1.021, 1.5), Verdict::Worse);
        assert_eq!(verdict(1.02, 1.5), Verdict::Unclear);
        assert_eq!(verdict(0.99, 1.02), Verdict::Same);
        assert_eq!(verdict(0.99, 1.03), Verdict::Unclear);
        assert_eq!(verdict(0.9, 1.01), Verdict::Unclear);
        assert_eq!(verdict(0.9, 0.98), Verdict::Better);
    }
}
