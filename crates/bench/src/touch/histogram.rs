//! Times in classes that are a 32nd of their octave wide: percentiles of any number of times to 3
//! %, in fixed memory, so that counting does not disturb what is measured.
//!
//! Source: the log-linear classes of HdrHistogram (Gil Tene).

/// The number of classes in an octave, as a power of two.
const BITS: u32 = 5;
/// The bound below which times are counted exactly.
const EXACT: u64 = 2 << BITS;
const CLASSES: usize = (65 - BITS as usize) << BITS;

/// Counts of times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; CLASSES], total: 0 }
    }
}

impl Histogram {
    /// Counts a time.
    #[inline]
    pub(crate) fn count(&mut self, ns: u64) {
        self.counts[class(ns)] += 1;
        self.total += 1;
    }

    /// Adds the counts of another histogram.
    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
    }

    /// Returns a time that at least `percent` of all do not exceed, at most 3 % too long; 0 when
    /// there is none.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let rank =
            ((percent / 100.0 * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return last(class);
            }
        }
        0
    }
}

fn class(ns: u64) -> usize {
    let shift = (64 - ns.leading_zeros()).saturating_sub(BITS + 1);
    ((shift as usize) << BITS) + (ns >> shift) as usize
}

/// Returns the longest time of a class.
fn last(class: usize) -> u64 {
    if class < EXACT as usize {
        return class as u64;
    }
    let shift = (class >> BITS) as u32 - 1;
    let steps = (class as u64 & ((1 << BITS) - 1)) + (1 << BITS);
    (steps << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    //! The risk: a percentile that is far off. The oracle: all times, sorted.
    use super::*;
    use crate::random::Random;
    use crate::statistics::Sample;

    #[test]
    fn classes_are_in_order_and_hold_their_last_time() {
        for index in 0..CLASSES {
            let ns = last(index);
            assert_eq!(class(ns), index, "{ns}");
            if let Some(next) = ns.checked_add(1) {
                assert_eq!(class(next), index + 1, "{ns}");
            }
        }
        assert_eq!(last(CLASSES - 1), u64::MAX);
    }

    #[test]
    fn percentiles_are_those_of_all_times_to_three_percent() {
        let mut random = Random::new(6);
        let times: Vec<u64> = (0..5000).map(|_| random.next() >> random.below(60)).collect();
        let (mut one, mut two) = (Histogram::default(), Histogram::default());
        for (index, ns) in times.iter().enumerate() {
            if index % 3 == 0 { one.count(*ns) } else { two.count(*ns) }
        }
        one.add(&two);
        let sample = Sample::new(times.iter().map(|ns| *ns as f64)).unwrap();
        for percent in [0.0, 1.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
            let (found, wanted) = (one.percentile(percent) as f64, sample.percentile(percent));
            assert!(
                (wanted..=wanted * 1.032 + 1.0).contains(&found),
                "{percent}: {found} {wanted}"
            );
        }
        assert_eq!(Histogram::default().percentile(50.0), 0);
    }
}
