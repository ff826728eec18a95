//! The last minutes of each run, as sparklines need them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::sample::{Run, Sample, number};

/// The time that sparklines cover.
pub(super) const SPAN: Duration = Duration::from_secs(180);
/// The most moments of a run: ten looks a second for as long as [`SPAN`].
const MOMENTS_MAX: usize = 1800;
const NS: u64 = 1_000_000_000;
const SPAN_NS: u64 = SPAN.as_nanos() as u64;

/// A run of some age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    time_ns: u64,
    used: u64,
    faults: u64,
    stall_ns: u64,
}

/// The bars of three sparklines, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Series {
    /// Bytes.
    pub(super) used: Vec<u64>,
    /// Faults a second.
    pub(super) faults: Vec<u64>,
    /// Per cent.
    pub(super) stall: Vec<u64>,
}

/// What was seen of runs, by their keepers.
#[derive(Clone, Debug, Default)]
pub(super) struct History(BTreeMap<u32, VecDeque<Moment>>);

impl History {
    /// Notes what a look has shown, and forgets runs that have ended.
    pub(super) fn note(&mut self, sample: &Sample) {
        let is_there = |keeper: u32| {
            sample.runs.iter().any(|run| run.keeper == keeper)
                || sample.silent.iter().any(|silent| silent.keeper == keeper)
        };
        self.0.retain(|keeper, _| is_there(*keeper));
        for run in &sample.runs {
            let moments = self.0.entry(run.keeper).or_insert_with(|| earlier(run));
            let now = Moment::of(&run.document);
            if moments.back().is_none_or(|last| last.time_ns < now.time_ns) {
                moments.push_back(now);
            }
            let is_old = |moment: &Moment| now.time_ns.saturating_sub(moment.time_ns) > SPAN_NS;
            // One older moment is needed for the first rate.
            while moments.get(1).is_some_and(is_old) || moments.len() > MOMENTS_MAX {
                moments.pop_front();
            }
        }
    }

    /// Returns the last [`SPAN`] of a run in as many bars, or fewer for a run that is younger.
    pub(super) fn series(&self, keeper: u32, bars: usize) -> Series {
        let Some(moments) = self.0.get(&keeper).filter(|_| bars > 0) else {
            return Series::default();
        };
        let (Some(first), Some(last)) = (moments.front(), moments.back()) else {
            return Series::default();
        };
        let step = SPAN_NS / bars as u64;
        let count = ((last.time_ns - first.time_ns) / step).min(bars as u64);
        let mut series = Series::default();
        let mut before = at(moments, last.time_ns - count * step);
        for bar in (0..count).rev() {
            let now = at(moments, last.time_ns - bar * step);
            let of_second =
                |counted: u64| (counted as f64 * NS as f64 / step as f64).round() as u64;
            series.used.push(now.used);
            series.faults.push(of_second(now.faults.saturating_sub(before.faults)));
            let stalled = now.stall_ns.saturating_sub(before.stall_ns);
            series.stall.push(of_second(stalled) / (NS / 100));
            before = now;
        }
        series
    }
}

impl Moment {
    fn of(document: &Value) -> Self {
        Self {
            time_ns: number(document, "time_ns"),
            used: number(document, "used_bytes"),
            faults: number(document, "faults"),
            stall_ns: number(document, "stall_ns"),
        }
    }
}

/// Returns the moments of a run's timeline.
fn earlier(run: &Run) -> VecDeque<Moment> {
    let Some(points) = run.timeline.as_ref().map(|timeline| &timeline["points"]) else {
        return VecDeque::new();
    };
    let column = |name: &str| points[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let columns = ["time_ns", "used_bytes", "faults", "stall_ns"].map(column);
    let value = |column: &[Value], index: usize| column.get(index)?.as_u64();
    let moment = |index: usize| {
        let [time_ns, used, faults, stall_ns] = columns.map(|column| value(column, index));
        let (time_ns, used) = (time_ns?, used?);
        Some(Moment { time_ns, used, faults: faults?, stall_ns: stall_ns? })
    };
    let mut moments: VecDeque<_> = (0..columns[0].len()).map_while(moment).collect();
    moments.make_contiguous().sort_by_key(|moment| moment.time_ns);
    moments
}

/// Returns the run at that age, between the moments before and after.
fn at(moments: &VecDeque<Moment>, time_ns: u64) -> Moment {
    let after = moments.partition_point(|moment| moment.time_ns <= time_ns);
    let before = moments[after.saturating_sub(1)];
    let Some(next) = moments.get(after).filter(|_| after > 0) else { return before };
    let part = (time_ns - before.time_ns) as f64 / (next.time_ns - before.time_ns) as f64;
    let between =
        |from: u64, to: u64| from.saturating_add((to.saturating_sub(from) as f64 * part) as u64);
    Moment {
        time_ns,
        used: before.used,
        faults: between(before.faults, next.faults),
        stall_ns: between(before.stall_ns, next.stall_ns),
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a bar shows another time or another amount than happened.

    use coldpress_common::failure::Failure;
    use serde_json::json;

    use super::super::sample::Silent;
    use super::*;

    /// A run at `second`, which has 100 faults a second and stalls half of the time.
    fn sample(second: u64, timeline: Option<Value>) -> Sample {
        let document = json!({
            "time_ns": second * 1_000_000_000, "used_bytes": second, "faults": second * 100,
            "stall_ns": second * 500_000_000,
        });
        Sample { runs: vec![Run { keeper: 7, document, timeline }], silent: Vec::new() }
    }

    #[test]
    fn each_bar_has_the_rate_of_its_time() {
        let mut history = History::default();
        for second in [0, 3, 4, 40, 60] {
            history.note(&sample(second, None));
        }
        // A bar is 10 s.
        let series = history.series(7, 18);
        assert_eq!(series.faults, [100; 6]);
        assert_eq!(series.stall, [50; 6]);
        assert_eq!(series.used, [4, 4, 4, 40, 40, 60]);
        for second in 61..1000 {
            history.note(&sample(second, None));
        }
        assert_eq!(history.series(7, 60).faults, [100; 60]);
        assert_eq!(history.0[&7].len(), 182);
        assert_eq!(history.series(8, 60), Series::default());
        assert_eq!(history.series(7, 0), Series::default());
        // A run that gave no answer once goes on.
        let silent = Silent { keeper: 7, user: None, failure: Failure::ours("no", "yes") };
        history.note(&Sample { runs: Vec::new(), silent: vec![silent] });
        assert_eq!(history.series(7, 60).faults, [100; 60]);
        history.note(&Sample::default());
        assert_eq!(history.series(7, 60), Series::default());
    }

    #[test]
    fn the_past_comes_from_the_timeline() {
        let seconds = |factor: u64| -> Vec<u64> { (0..200).map(|it| it * factor).collect() };
        let points = json!({
            "time_ns": seconds(1_000_000_000), "used_bytes": seconds(1),
            "faults": seconds(100), "stall_ns": seconds(500_000_000),
        });
        let mut history = History::default();
        history.note(&sample(200, Some(json!({ "points": points }))));
        assert_eq!(history.series(7, 90).faults, [100; 90]);
        let most = json!({
            "time_ns": [1, 150 * NS], "used_bytes": [0, u64::MAX], "faults": [1, u64::MAX],
            "stall_ns": [1, u64::MAX],
        });
        let mut history = History::default();
        history.note(&sample(150, Some(json!({ "points": most }))));
        assert_eq!(history.series(7, 90).faults.len(), 74);
        // Whatever is said in place of it.
        for wrong in [json!(7), json!({ "points": { "time_ns": [5, 5, "x"] } })] {
            let mut history = History::default();
            history.note(&sample(200, Some(wrong)));
            assert_eq!(history.series(7, 90), Series::default());
        }
    }
}
