//! The statistics of many measurements, and of pairs of them.
//!
//! 1. A machine that grows slower meanwhile does so for both sides: they take turns, and each pair
//!    swaps which side is first.
//! 2. Figures are medians and percentiles. One interrupted run changes neither.

/// One of the two runs of a pair. Where two builds are compared, the other build takes the place of
/// the run without coldpress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Without coldpress.
    Plain,
    /// With coldpress.
    Managed,
}

/// The two measurements of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair<T> {
    /// The measurement without coldpress.
    pub plain: T,
    /// The measurement with coldpress.
    pub managed: T,
}

/// Measures `count` pairs in turn, after one pair that warms caches and is not counted. Ends with
/// the first failure.
pub(crate) fn alternate<T, E>(
    count: u32,
    mut measure: impl FnMut(Side) -> Result<T, E>,
) -> Result<Vec<Pair<T>>, E> {
    measure(Side::Plain)?;
    measure(Side::Managed)?;
    (0..count)
        .map(|index| {
            if index % 2 == 0 {
                let plain = measure(Side::Plain)?;
                Ok(Pair { plain, managed: measure(Side::Managed)? })
            } else {
                let managed = measure(Side::Managed)?;
                Ok(Pair { plain: measure(Side::Plain)?, managed })
            }
        })
        .collect()
}

/// Measures each of `count` contestants in `rounds` rounds, after a round that warms caches and is
/// not counted. A different contestant starts each round. The samples are in the order of the
/// contestants.
pub(crate) fn take_turns(
    count: usize,
    rounds: u32,
    mut measure: impl FnMut(usize) -> f64,
) -> Vec<Option<Sample>> {
    (0..count).for_each(|contestant| {
        measure(contestant);
    });
    let mut values = vec![Vec::new(); count];
    for round in 0..rounds as usize {
        for turn in 0..count {
            let contestant = (round + turn) % count;
            values[contestant].push(measure(contestant));
        }
    }
    values.into_iter().map(Sample::new).collect()
}

/// Measurements in ascending order; at least one.
#[derive(Clone, Debug)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    /// Makes a sample of these measurements; `None` when there are none.
    pub(crate) fn new(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Self(values))
    }

    /// Returns all measurements, in ascending order.
    pub(crate) fn in_order(&self) -> &[f64] {
        &self.0
    }

    /// Returns the smallest measurement that at least `percent` of all do not exceed (nearest
    /// rank).
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let rank = (percent / 100.0 * self.0.len() as f64).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }

    /// Returns the measurement in the middle, or the mean of the two in the middle.
    pub(crate) fn median(&self) -> f64 {
        let (low, high) = ((self.0.len() - 1) / 2, self.0.len() / 2);
        f64::midpoint(self.0[low], self.0[high])
    }

    /// Returns the arithmetic mean.
    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Returns the smallest measurement.
    pub(crate) fn least(&self) -> f64 {
        self.0[0]
    }

    /// Returns the largest measurement.
    pub(crate) fn most(&self) -> f64 {
        self.0[self.0.len() - 1]
    }
}

/// The statistics of pairs of one figure.
#[derive(Clone, Debug)]
pub(crate) struct Paired {
    /// All measurements without coldpress.
    pub plain: Sample,
    /// All measurements with coldpress.
    pub managed: Sample,
    /// The ratio of each pair: managed divided by plain.
    pub ratios: Sample,
    /// The difference of each pair: managed less plain.
    pub differences: Sample,
}

impl Paired {
    /// Compares the figure that `of` finds in each pair; `None` when there is no pair.
    pub(crate) fn new<T>(pairs: &[Pair<T>], of: impl Fn(&T) -> f64) -> Option<Self> {
        let both = || pairs.iter().map(|pair| (of(&pair.plain), of(&pair.managed)));
        Some(Self {
            plain: Sample::new(both().map(|(plain, _)| plain))?,
            managed: Sample::new(both().map(|(_, managed)| managed))?,
            ratios: Sample::new(both().map(|(plain, managed)| managed / plain))?,
            differences: Sample::new(both().map(|(plain, managed)| managed - plain))?,
        })
    }

    /// Returns the median with coldpress divided by the median without.
    pub(crate) fn ratio_of_medians(&self) -> f64 {
        self.managed.median() / self.plain.median()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_textbook() {
        // The worked example of nearest rank.
        let sample = Sample::new([50.0, 15.0, 40.0, 20.0, 35.0]).unwrap();
        for (percent, value) in [(5.0, 15.0), (30.0, 20.0), (40.0, 20.0), (50.0, 35.0)] {
            assert_eq!(sample.percentile(percent), value, "{percent}");
        }
        assert_eq!((sample.percentile(0.0), sample.percentile(100.0)), (15.0, 50.0));
        assert_eq!((sample.median(), sample.mean()), (35.0, 32.0));
        assert_eq!((sample.least(), sample.most()), (15.0, 50.0));
        assert_eq!(Sample::new([4.0, 1.0, 2.0, 9.0]).unwrap().median(), 3.0);
        assert!(Sample::new([]).is_none());
    }

    #[test]
    fn pairs_swap_who_is_first_and_the_warm_up_is_not_counted() {
        let mut order = Vec::new();
        let pairs = alternate(2, |side| {
            order.push(side);
            Ok::<_, ()>(order.len())
        });
        let (p, m) = (Side::Plain, Side::Managed);
        assert_eq!(order, [p, m, p, m, m, p]);
        let wanted = [Pair { plain: 3, managed: 4 }, Pair { plain: 6, managed: 5 }];
        assert_eq!(pairs.unwrap(), wanted);
    }

    #[test]
    fn a_failed_run_ends_the_measurement() {
        let mut left = 4;
        let pairs = alternate(100, |_| {
            left -= 1;
            if left == 0 { Err("broke") } else { Ok(()) }
        });
        assert_eq!(pairs.unwrap_err(), "broke");
        assert_eq!(left, 0);
    }

    #[test]
    fn turns_rotate_and_the_warm_up_is_not_counted() {
        let mut order = Vec::new();
        let samples = take_turns(3, 2, |contestant| {
            order.push(contestant);
            order.len() as f64
        });
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 1, 2, 0]);
        let medians: Vec<_> = samples.iter().flatten().map(Sample::median).collect();
        assert_eq!(medians, [6.5, 6.0, 7.0]);
        assert!(take_turns(2, 0, |_| 1.0).iter().all(Option::is_none));
    }

    #[test]
    fn each_pair_is_compared_with_itself() {
        let pair = |plain, managed| Pair { plain, managed };
        // The machine grows ten times slower, which the ratios of pairs do not show.
        let pairs = [pair(1.0, 2.0), pair(10.0, 20.0), pair(100.0, 200.0)];
        let paired = Paired::new(&pairs, |value| *value).unwrap();
        assert_eq!((paired.ratios.least(), paired.ratios.most()), (2.0, 2.0));
        assert_eq!(paired.differences.median(), 10.0);
        assert_eq!(paired.ratio_of_medians(), 2.0);
        assert!(Paired::new(&pairs[..0], |value| *value).is_none());
    }
}
