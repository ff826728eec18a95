//! What a budget would cost, from runs of the same program within others.
//!
//! Between two runs the waits follow the curve of the one with less memory, which is made of its
//! refault distances ([`Shape`]). That curve is bent so that it also meets the run with more
//! memory: by a factor that changes from the one run to the other. What is expected is half way
//! between that and the straight line from run to run: the curve alone told a quarter too little of
//! polars and a fifth of R. The lost time follows the same curve, bent to meet the times of both
//! runs. It is not what was waited: threads wait side by side, and where processors are few,
//! services take them from the program.

use coldpress_sys::Bytes;

use crate::report::{Figures, Shape};

/// The part of the time without a limit below which losses are not told apart: they are noise.
const NOISE: f64 = 0.01;

/// A run, as it was measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// The budget; none where nothing was to limit the run.
    pub(super) budget: Option<Bytes>,
    pub(super) wall_ns: f64,
    pub(super) stall_ns: f64,
    pub(super) peak: Bytes,
    /// The time that was expected before the run.
    pub(super) expected_ns: Option<f64>,
    /// Whether the run held more than its budget, as not all of it could be managed.
    pub(super) is_over: bool,
    shape: Option<Shape>,
}

/// What a budget is expected to cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expected {
    pub(super) time_ns: f64,
    pub(super) stall_ns: f64,
}

impl Measured {
    /// Makes the run of these figures.
    pub(super) fn new(budget: Option<Bytes>, figures: &Figures, expected_ns: Option<f64>) -> Self {
        Self {
            budget,
            wall_ns: figures.wall_ns(),
            stall_ns: figures.stall_ns(),
            peak: figures.peak(),
            expected_ns,
            is_over: false,
            shape: Shape::of(figures).ok(),
        }
    }

    /// Returns whether the run took no longer, and kept its budget.
    pub(super) fn keeps(&self, most_ns: f64) -> bool {
        self.wall_ns <= most_ns && !self.is_over
    }
}

/// What the runs tell of other budgets.
#[derive(Clone, Debug)]
pub(super) struct Estimate<'a> {
    /// The time without a limit. A run within a budget that took less says more about it: the first
    /// run also brings files into memory.
    time_ns: f64,
    peak: Bytes,
    /// The runs within budgets, the smallest first.
    within: Vec<(Bytes, &'a Measured)>,
}

impl<'a> Estimate<'a> {
    /// Returns what these runs tell, if one was limited by nothing.
    pub(super) fn of(runs: &'a [Measured]) -> Option<Self> {
        let first = runs.iter().find(|run| run.budget.is_none())?;
        let time_ns = runs.iter().map(|run| run.wall_ns).fold(first.wall_ns, f64::min);
        let within = runs.iter().filter_map(|run| Some((run.budget?, run)));
        let mut within: Vec<_> = within.filter(|(budget, _)| *budget < first.peak).collect();
        within.sort_by_key(|(budget, _)| *budget);
        Some(Self { time_ns, peak: first.peak, within })
    }

    /// Returns the time without a limit.
    pub(super) fn time_ns(&self) -> f64 {
        self.time_ns
    }

    /// Returns the most that the program holds without a limit.
    pub(super) fn peak(&self) -> Bytes {
        self.peak
    }

    /// Returns what a budget is expected to cost; nothing below the smallest one of a run.
    pub(super) fn at(&self, budget: Bytes) -> Option<Expected> {
        if budget >= self.peak {
            return Some(Expected { time_ns: self.time_ns, stall_ns: 0.0 });
        }
        let above = self.within.partition_point(|(tried, _)| *tried <= budget);
        let (low, lower) = *self.within[..above].last()?;
        let (high, upper) = match self.within.get(above) {
            Some((high, run)) => (*high, self.lost(run)),
            None => (self.peak, Lost { time_ns: 0.0, stall_ns: 0.0 }),
        };
        let part = (budget.0 - low.0) as f64 / (high.0 - low.0) as f64;
        let shape = |budget| lower.shape.as_ref().map_or(0.0, |it| it.stall_ns(budget));
        let curve = [low, budget, high].map(|budget| shape(budget) + self.noise());
        let lower = self.lost(lower);
        let at = |low: f64, high: f64| self.bent(curve, (low, high), part);
        Some(Expected {
            time_ns: self.time_ns + at(lower.time_ns, upper.time_ns),
            stall_ns: at(lower.stall_ns, upper.stall_ns),
        })
    }

    /// Returns the value of a curve `part` of the way between its ends, bent so that it meets these
    /// two values there, and half way to the line between them. The curve has values at its lower
    /// end, where it is asked for, and at its upper end.
    fn bent(&self, [low, here, high]: [f64; 3], ends: (f64, f64), part: f64) -> f64 {
        let (at_low, at_high) = (ends.0 + self.noise(), ends.1 + self.noise());
        let factor = (at_low / low).powf(1.0 - part) * (at_high / high).powf(part);
        let bent = (here * factor - self.noise()).max(0.0);
        let line = ends.0 * (1.0 - part) + ends.1 * part;
        // Less memory is not faster.
        bent.midpoint(line).clamp(ends.0.min(ends.1), ends.0.max(ends.1))
    }

    /// Returns what a run has lost beside one that nothing limits.
    fn lost(&self, run: &Measured) -> Lost {
        Lost { time_ns: (run.wall_ns - self.time_ns).max(0.0), stall_ns: run.stall_ns }
    }

    fn noise(&self) -> f64 {
        NOISE * self.time_ns
    }
}

/// What a run has lost: time, and what its threads waited.
struct Lost {
    time_ns: f64,
    stall_ns: f64,
}

#[cfg(test)]
impl Measured {
    /// Makes a run of which no refault distances are known.
    pub(super) fn of(budget: Option<Bytes>, wall_ns: f64, stall_ns: f64, peak: Bytes) -> Self {
        Self { budget, wall_ns, stall_ns, peak, expected_ns: None, is_over: false, shape: None }
    }
}

#[cfg(test)]
mod tests {
    //! The risk: what was measured is not met, or time is promised that no run bears out.

    use super::*;

    fn runs() -> Vec<Measured> {
        let run = |mib, wall, stall| {
            Measured::of(Some(Bytes::mib(mib)), wall * 1e9, stall * 1e9, Bytes::mib(mib))
        };
        let all = Measured::of(None, 10e9, 0.0, Bytes::mib(400));
        vec![all, run(300, 11.0, 2.0), run(100, 26.0, 16.0)]
    }

    #[test]
    fn the_curve_meets_the_runs_and_falls_between_them() {
        let runs = runs();
        let estimate = Estimate::of(&runs).unwrap();
        assert_eq!((estimate.time_ns(), estimate.peak()), (10e9, Bytes::mib(400)));
        for run in &runs[1..] {
            let at = estimate.at(run.budget.unwrap()).unwrap();
            assert!((at.time_ns / run.wall_ns - 1.0).abs() < 1e-3, "{at:?} {run:?}");
            assert!((at.stall_ns / run.stall_ns - 1.0).abs() < 1e-3, "{at:?} {run:?}");
        }
        let times: Vec<_> =
            (100..=410).map(|mib| estimate.at(Bytes::mib(mib)).unwrap().time_ns).collect();
        assert!(times.windows(2).all(|two| two[1] <= two[0] + 1.0), "{times:?}");
        assert_eq!(times.last(), Some(&10e9));
    }

    #[test]
    fn below_all_runs_nothing_is_known_and_without_a_first_run_neither() {
        let runs = runs();
        assert_eq!(Estimate::of(&runs).unwrap().at(Bytes::mib(99)), None);
        assert!(Estimate::of(&runs[1..]).is_none());
        assert_eq!(Estimate::of(&runs[..1]).unwrap().at(Bytes::mib(399)), None);
    }

    #[test]
    fn a_run_with_less_memory_that_was_faster_tells_the_time() {
        let mut runs = runs();
        runs[0].wall_ns = 13e9;
        assert_eq!(Estimate::of(&runs).unwrap().time_ns(), 11e9);
    }
}
