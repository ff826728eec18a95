//! Scales: where values lie along the side of a picture, and the round numbers beside it.

/// The side of a picture: from 0, or from its least value, to its most.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    least: f64,
    most: f64,
    /// The places of numbers, as parts of the side, and their texts.
    pub(super) ticks: Vec<(f64, String)>,
}

/// The most steps between numbers beside and below a picture: more numbers would touch each other
/// on a telephone.
const BESIDE: f64 = 5.0;
const BELOW: f64 = 3.0;

impl Scale {
    /// Makes a scale from `least` to at least `most`, with the texts of round numbers; `base` is
    /// what a unit's numbers are round in: 10, or 2 for bytes.
    pub(super) fn new(least: f64, most: f64, base: Base, text: impl Fn(f64) -> String) -> Self {
        Self::with_steps(BESIDE, [least, most], base, text)
    }

    /// Makes a scale for below a picture.
    pub(super) fn below(least: f64, most: f64, base: Base, text: impl Fn(f64) -> String) -> Self {
        Self::with_steps(BELOW, [least, most], base, text)
    }

    fn with_steps(
        steps: f64,
        [least, most]: [f64; 2],
        base: Base,
        text: impl Fn(f64) -> String,
    ) -> Self {
        // A span that is nothing beside what it begins with would be lost in it.
        let span = (most - least).max(least.abs() * 1e-6).max(f64::MIN_POSITIVE);
        let step = base.step(span / steps);
        let first = (least / step).ceil();
        let places = (0..=steps as usize).map(|index| (first + index as f64) * step);
        let places = places.filter(|at| *at <= most * (1.0 + 1e-9));
        let ticks = places.map(|at| ((at - least) / span, text(at))).collect();
        Self { least, most: least + span, ticks }
    }

    /// Returns the place of a value, as a part of the side.
    pub(super) fn place(&self, value: f64) -> f64 {
        ((value - self.least) / (self.most - self.least)).clamp(0.0, 1.0)
    }
}

/// What numbers are round in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// 1, 2 and 5 times a power of ten.
    Ten,
    /// 1, 2 and 5 times a power of ten, in KiB, MiB and so on.
    Binary,
}

impl Base {
    /// Returns the least round number that is no less than `least`.
    fn step(self, least: f64) -> f64 {
        let unit = match self {
            Self::Ten => 1.0,
            Self::Binary => 1024_f64.powi((least.max(1.0).log2() / 10.0) as i32),
        };
        let scaled = (least / unit).max(f64::MIN_POSITIVE);
        let power = 10_f64.powf(scaled.log10().floor());
        let round = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
        unit * round.into_iter().find(|round| *round >= scaled * (1.0 - 1e-9)).unwrap_or(scaled)
    }
}

#[cfg(test)]
mod tests {
    //! The risk: numbers beside a picture that are not where they say.

    use super::*;

    fn texts(least: f64, most: f64, base: Base) -> Vec<(i64, String)> {
        let scale = Scale::new(least, most, base, |value| format!("{value}"));
        let per_mille = |place: f64| (place * 1000.0).round() as i64;
        scale.ticks.iter().map(|(place, text)| (per_mille(*place), text.clone())).collect()
    }

    #[test]
    fn numbers_are_round_few_and_where_they_say() {
        let wanted = [(0, "0"), (323, "20"), (645, "40"), (968, "60")];
        assert_eq!(texts(0.0, 62.0, Base::Ten), wanted.map(|(at, text)| (at, text.to_owned())));
        let mib = f64::from(1 << 20);
        let found = texts(0.0, 150.0 * mib, Base::Binary);
        let wanted = [0.0, 50.0 * mib, 100.0 * mib, 150.0 * mib].map(|value| value.to_string());
        assert_eq!(found.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>(), wanted);
        assert_eq!(found[1].0, 333);
        assert_eq!(texts(90.0, 300.0, Base::Ten).first(), Some(&(48, "100".to_owned())));
    }

    #[test]
    fn no_value_leaves_the_picture_and_nothing_is_divided_by_nothing() {
        for most in [0.0, 1e-300, 1e18] {
            let scale = Scale::new(0.0, most, Base::Ten, |value| value.to_string());
            assert!(scale.ticks.len() <= 6, "{scale:?}");
            for value in [-1.0, 0.0, most / 2.0, most * 2.0] {
                assert!((0.0..=1.0).contains(&scale.place(value)), "{value} of {most}");
            }
        }
    }
}
