//! How far predictions are off, and what is good enough.

use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::jobs;
use crate::report::Goal;

/// How far a predicted time may be off, and predicted waits where the time doubles.
const TIME_OFF: f64 = 0.25;
const STALL_OFF: f64 = 0.35;
/// How many programs may be missed by that: 2 of 12.
const MISSED_PARTS: usize = 6;

/// A prediction beside what was measured, in seconds.
pub(super) struct Pair {
    pub(super) time: Option<f64>,
    pub(super) time_measured: f64,
    pub(super) stall: Option<f64>,
    pub(super) stall_measured: f64,
}

impl Pair {
    /// Returns how far the time is off, as a part of the measured one.
    pub(super) fn time_off(&self) -> Option<f64> {
        Some(self.time? / self.time_measured - 1.0)
    }

    /// Returns the same of the waits.
    pub(super) fn stall_off(&self) -> Option<f64> {
        (self.stall_measured > 0.0).then_some(self.stall? / self.stall_measured - 1.0)
    }
}

/// All pairs of one program.
pub(super) struct Row {
    pub(super) program: &'static str,
    /// The most that it holds by itself.
    pub(super) peak: Bytes,
    /// The seconds that it takes by itself.
    pub(super) alone: f64,
    /// By the budget, in percent of the peak.
    pub(super) pairs: Vec<(usize, Pair)>,
    /// The runs that predict, as `coldpress advise` tells of them.
    pub(super) runs: Value,
}

impl Row {
    fn is_time_met(&self) -> bool {
        self.pairs.iter().all(|(_, pair)| pair.time_off().is_some_and(|it| it.abs() <= TIME_OFF))
    }

    /// Returns the pairs of budgets in which the time at least doubles.
    fn doubled(&self) -> impl Iterator<Item = &(usize, Pair)> {
        self.pairs.iter().filter(|(_, pair)| pair.time_measured >= 2.0 * self.alone)
    }

    /// Reads a program of a document that [`Row::json`] is a part of.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let name = value["program"].as_str()?;
        let pair = |pair: &Value| {
            let seconds = |name: &str| pair[name].as_f64();
            let read = Pair {
                time: seconds("seconds_predicted"),
                time_measured: seconds("seconds")?,
                stall: seconds("stall_seconds_predicted"),
                stall_measured: seconds("stall_seconds")?,
            };
            Some((usize::try_from(pair["percent"].as_u64()?).ok()?, read))
        };
        Some(Self {
            program: jobs::NAMES.into_iter().find(|known| *known == name)?,
            peak: Bytes(usize::try_from(value["peak_bytes"].as_u64()?).ok()?),
            alone: value["seconds_alone"].as_f64()?,
            pairs: value["budgets"].as_array()?.iter().map(pair).collect::<Option<_>>()?,
            runs: value["runs"].clone(),
        })
    }

    pub(super) fn json(&self) -> Value {
        let pair = |(percent, pair): &(usize, Pair)| {
            json!({
                "percent": percent,
                "seconds_predicted": pair.time,
                "seconds": pair.time_measured,
                "stall_seconds_predicted": pair.stall,
                "stall_seconds": pair.stall_measured,
            })
        };
        json!({
            "program": self.program,
            "peak_bytes": self.peak.0,
            "seconds_alone": self.alone,
            "budgets": self.pairs.iter().map(pair).collect::<Value>(),
            "runs": self.runs,
        })
    }
}

/// Returns the goals, with what misses them by name.
pub(super) fn goals(rows: &[Row]) -> Vec<Goal> {
    let missed: Vec<_> = rows.iter().filter(|row| !row.is_time_met()).collect();
    let named = |found: Vec<String>| match &found[..] {
        [] => String::new(),
        found => format!("; missed: {}", found.join(", ")),
    };
    let time = Goal {
        text: format!("time predicted within {:.0} %, 10 programs of 12", TIME_OFF * 100.0),
        found: format!(
            "{} of {}{}",
            rows.len() - missed.len(),
            rows.len(),
            named(missed.iter().map(|row| row.program.to_owned()).collect())
        ),
        met: !rows.is_empty() && missed.len() <= rows.len() / MISSED_PARTS,
    };
    let doubled: Vec<_> =
        rows.iter().flat_map(|row| row.doubled().map(move |pair| (row.program, pair))).collect();
    let is_near = |pair: &Pair| pair.stall_off().is_some_and(|off| off.abs() <= STALL_OFF);
    let far: Vec<_> = doubled.iter().filter(|(_, (_, pair))| !is_near(pair)).collect();
    let stall = Goal {
        text: format!("waits predicted within {:.0} % where time doubles", STALL_OFF * 100.0),
        found: format!(
            "{} of {}{}",
            doubled.len() - far.len(),
            doubled.len(),
            named(far.iter().map(|(program, (at, _))| format!("{program} at {at} %")).collect())
        ),
        met: far.is_empty(),
    };
    vec![time, stall]
}

#[cfg(test)]
mod tests {
    //! The risk: a miss counts as met.

    use super::*;

    fn row(program: &'static str, predicted: f64, stall: f64) -> Row {
        let pair = Pair {
            time: Some(predicted),
            time_measured: 4.0,
            stall: Some(stall),
            stall_measured: 2.0,
        };
        Row { program, peak: Bytes::mib(9), alone: 2.0, pairs: vec![(50, pair)], runs: json!([]) }
    }

    #[test]
    fn what_was_measured_before_is_read_as_it_was_written() {
        let written = row("jq", 5.0, 2.7).json();
        assert_eq!(Row::read(&written).map(|row| row.json()), Some(written));
        assert!(Row::read(&row("no such", 5.0, 2.7).json()).is_none());
        let mut lacks = row("jq", 5.0, 2.7).json();
        lacks["budgets"][0]["seconds"] = Value::Null;
        assert!(Row::read(&lacks).is_none());
    }

    #[test]
    fn what_is_too_far_off_is_missed_by_name() {
        let judge = |rows: &[Row]| goals(rows).iter().map(|it| it.met).collect::<Vec<_>>();
        assert_eq!(judge(&[row("a", 5.0, 2.69)]), [true, true]);
        assert_eq!(judge(&[row("a", 3.0, 1.31)]), [true, true]);
        assert_eq!(judge(&[row("a", 5.1, 2.8)]), [false, false]);
        assert_eq!(judge(&[row("a", 2.9, 1.2)]), [false, false]);
        let mut unknown = row("a", 4.0, 2.0);
        unknown.pairs[0].1.time = None;
        assert_eq!(judge(&[unknown]), [false, true]);
        // Two of twelve may be missed, and waits matter only where the time doubles.
        let of_twelve = |bad: usize| {
            let rows = (0..12).map(|at| row("b", if at < bad { 9.0 } else { 4.0 }, 2.0));
            goals(&rows.collect::<Vec<_>>())[0].met
        };
        assert_eq!([2, 3].map(of_twelve), [true, false]);
        let quick = Row { alone: 3.0, ..row("c", 4.0, 9.0) };
        let goals = goals(&[quick, row("d", 9.0, 9.0)]);
        assert_eq!(goals[0].found, "1 of 2; missed: d");
        assert_eq!(goals[1].found, "0 of 1; missed: d at 50 %");
        assert!(!self::goals(&[])[0].met);
    }
}
