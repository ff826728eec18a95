//! What `advise` prints: a table of the runs and a sentence, or JSON.

use coldpress_runtime::ledger::BUDGET_FLOOR;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::estimate::{Estimate, Measured};
use crate::report::{percent, size, time};

/// The version of the document's keys.
const SCHEMA: u32 = 1;
/// The points of the curve, as parts of the peak.
const POINTS: usize = 100;
/// The points of a curve that people read.
const ROWS: usize = 20;

/// What the runs came to.
#[derive(Debug)]
pub(super) struct Advice {
    pub(super) program: String,
    /// The slow-down that was asked for, as a part of the time; none for the whole curve.
    pub(super) slower: Option<f64>,
    pub(super) runs: Vec<Measured>,
}

impl Advice {
    /// Returns the run within the smallest budget that kept within the slow-down.
    fn best(&self) -> Option<&Measured> {
        let most = self.estimate().time_ns() * (1.0 + self.slower?);
        let kept = self.runs.iter().filter(|run| run.budget.is_some() && run.keeps(most));
        kept.min_by_key(|run| run.budget)
    }

    fn estimate(&self) -> Estimate<'_> {
        Estimate::of(&self.runs).expect("the first run is always there")
    }

    /// Returns the text for people.
    pub(super) fn text(&self) -> String {
        let mut rows: Vec<(Bytes, [String; 5])> = self.runs.iter().map(|it| self.row(it)).collect();
        if self.slower.is_none() {
            let plain = self.estimate().time_ns();
            rows.extend(self.points(ROWS).into_iter().map(|(budget, time_ns, _)| {
                let (nothing, slower) = (String::new(), slower(time_ns, plain));
                let expected = shown_time(time_ns);
                (budget, [typed(budget), nothing.clone(), slower, nothing, expected])
            }));
        }
        rows.sort_by_key(|(budget, _)| std::cmp::Reverse(*budget));
        let head = ["budget", "time", "slower", "waits", "expected"].map(str::to_owned);
        let rows = [head].into_iter().chain(rows.into_iter().map(|(_, row)| row));
        let line = |[budget, time, slower, waits, expected]: [String; 5]| {
            format!("{budget:>8} {time:>9} {slower:>8} {waits:>9} {expected:>9}\n")
        };
        let over = self.runs.iter().filter(|run| run.is_over).max_by_key(|run| run.budget);
        let over = over.and_then(|over| Some((over, over.budget?))).map(|(over, budget)| {
            format!(
                "Within {} it held {}: not all of it can be managed. `coldpress why` says more.\n",
                typed(budget),
                size(over.peak)
            )
        });
        let sentence = self.slower.map(|part| self.sentence(part));
        rows.map(line).chain(over).chain(sentence).collect()
    }

    /// Returns a run as a row of the table.
    fn row(&self, run: &Measured) -> (Bytes, [String; 5]) {
        let cells = [
            run.budget.map_or("all".to_owned(), typed),
            shown_time(run.wall_ns),
            slower(run.wall_ns, self.estimate().time_ns()),
            shown_time(run.stall_ns),
            run.expected_ns.map_or_else(|| "-".to_owned(), shown_time),
        ];
        (run.budget.unwrap_or(Bytes(usize::MAX)), cells)
    }

    fn sentence(&self, part: f64) -> String {
        let estimate = self.estimate();
        let (peak, plain) = (size(estimate.peak()), shown_time(estimate.time_ns()));
        let asked = percent(part);
        match self.best() {
            None if estimate.peak() <= BUDGET_FLOOR => format!(
                "--memory {}: {} fits the least budget there is. It holds {peak}.\n",
                typed(BUDGET_FLOOR),
                self.program
            ),
            None => format!(
                "No budget below {peak}, all that it holds, kept {} within {asked} of {plain}.\n",
                self.program
            ),
            Some(best) => {
                let budget = typed(best.budget.expect("it is within one"));
                let expected = best
                    .expected_ns
                    .map_or_else(String::new, |ns| format!(", {} expected", shown_time(ns)));
                format!(
                    "--memory {budget}: {} in {}{expected}; {plain} and {peak} by itself.\n",
                    self.program,
                    shown_time(best.wall_ns)
                )
            }
        }
    }

    /// Returns the document for scripts.
    pub(super) fn json(&self) -> String {
        let estimate = self.estimate();
        let run = |run: &Measured| {
            json!({
                "budget_bytes": run.budget.map(|budget| budget.0),
                "time_ns": run.wall_ns as u64,
                "stall_ns": run.stall_ns as u64,
                "peak_bytes": run.peak.0,
                "expected_ns": run.expected_ns.map(|ns| ns as u64),
            })
        };
        let curve = self.points(POINTS).into_iter().map(|(budget, time_ns, stall_ns)| {
            json!({
                "budget_bytes": budget.0,
                "time_ns": time_ns as u64,
                "stall_ns": stall_ns as u64,
            })
        });
        let document = json!({
            "schema": SCHEMA,
            "program": self.program,
            "slower_percent": self.slower.map(|part| part * 100.0),
            "time_ns": estimate.time_ns() as u64,
            "peak_bytes": estimate.peak().0,
            "advised": self.best().map(run),
            "runs": self.runs.iter().map(run).collect::<Value>(),
            "curve": curve.collect::<Value>(),
        });
        format!("{document:#}\n")
    }

    /// Returns budget, time and waits at so many budgets, largest first, as far as they are known.
    fn points(&self, count: usize) -> Vec<(Bytes, f64, f64)> {
        let estimate = self.estimate();
        let peak = estimate.peak();
        let budgets = (1..=count).rev().map(|step| Bytes(peak.0 / count * step));
        let known = budgets.map_while(|budget| {
            let expected = estimate.at(budget)?;
            Some((budget, expected.time_ns, expected.stall_ns))
        });
        known.collect()
    }
}

fn shown_time(ns: f64) -> String {
    time(ns as u64)
}

fn slower(ns: f64, plain: f64) -> String {
    percent((ns / plain - 1.0).max(0.0))
}

/// Returns a budget as it is typed behind `--memory`.
pub(super) fn typed(budget: Bytes) -> String {
    let mib = budget.0 >> 20;
    if mib.is_multiple_of(1024) { format!("{}G", mib / 1024) } else { format!("{mib}M") }
}

#[cfg(test)]
mod tests {
    //! The risk: a budget is advised within which the program took too long.

    use super::*;

    fn advice(slower: Option<f64>, walls: &[(usize, f64)]) -> Advice {
        let run = |(mib, wall): &(usize, f64)| {
            let budget = (*mib > 0).then(|| Bytes::mib(*mib));
            let mut run = Measured::of(budget, wall * 1e9, (wall - 10.0) * 1e9, Bytes::mib(400));
            run.expected_ns = budget.map(|_| 10.4e9);
            run
        };
        Advice { program: "job".to_owned(), slower, runs: walls.iter().map(run).collect() }
    }

    #[test]
    fn the_smallest_budget_is_advised_that_kept_within_it() {
        let runs = [(0, 10.0), (240, 11.0), (320, 10.2), (300, 10.5), (280, 10.6)];
        let text = advice(Some(0.05), &runs).text();
        let last = text.lines().last().unwrap();
        assert_eq!(
            last,
            "--memory 300M: job in 10.5 s, 10.4 s expected; 10.0 s and 400 MiB by itself."
        );
        let rows: Vec<_> = text.lines().map(|line| line.split_whitespace().next()).collect();
        let wanted = ["budget", "all", "320M", "300M", "280M", "240M", "--memory"];
        assert_eq!(rows, wanted.map(Some));
        let mut over = advice(Some(0.05), &runs);
        over.runs[3].is_over = true;
        let text = over.text();
        assert!(text.contains("\nWithin 300M it held 400 MiB: not all"), "{text}");
        assert!(text.contains("\n--memory 320M: "), "{text}");
        let mut small = advice(Some(0.05), &runs[..1]);
        small.runs[0].peak = Bytes::mib(9);
        let text = small.text();
        assert!(text.contains("\n--memory 16M: job fits the least budget"), "{text}");
        let none = advice(Some(0.01), &runs).text();
        assert!(none.ends_with("kept job within 1.0 % of 10.0 s.\n"), "{none}");
    }

    #[test]
    fn the_document_has_the_runs_and_the_curve() {
        let runs = [(0, 10.0), (300, 10.5), (200, 14.0)];
        let document: Value = serde_json::from_str(&advice(Some(0.05), &runs).json()).unwrap();
        assert_eq!(document["advised"]["budget_bytes"], 300 << 20);
        assert_eq!(document["runs"].as_array().unwrap().len(), 3);
        let curve = document["curve"].as_array().unwrap();
        assert_eq!((curve.len(), &curve[0]["budget_bytes"]), (51, &json!(400 << 20)));
        assert_eq!(curve[50]["time_ns"], 14_000_000_000_u64);
        let whole = advice(None, &runs);
        let document: Value = serde_json::from_str(&whole.json()).unwrap();
        assert!(document["advised"].is_null() && document["slower_percent"].is_null());
        let text = whole.text();
        assert!(text.lines().count() > 10 && !text.contains("--memory"), "{text}");
    }

    #[test]
    fn a_budget_is_typed_as_it_is() {
        assert_eq!([300, 1024, 1025].map(|mib| typed(Bytes::mib(mib))), ["300M", "1G", "1025M"]);
    }
}
