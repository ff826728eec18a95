//! The counts of replays, and the judgement on all of them.

use crate::policy::{Counts, Peer, replay};
use crate::report::Table;
use serde_json::{Value, json};

use super::Subject;
use super::ours::Ours;

/// The fewest faults of the optimum in a row; rows with fewer say nothing.
const REFAULTS_MIN: u64 = 100;
/// The microseconds of a fault on a page that waits in limbo, and of a fault on a page that must be
/// decompressed, with the cost of evicting another page.
const MINOR_US: f64 = 5.0;
const MAJOR_US: f64 = 25.0;

/// The counts of one trace in one room.
pub(super) struct Row {
    trace: String,
    is_recorded: bool,
    percent: u32,
    pages: usize,
    touches: usize,
    /// The counts of the peers, in the order of [`Peer::ALL`].
    peers: Vec<Counts>,
    ours: Counts,
    /// The counts of our policy with readahead for walks.
    ahead: Counts,
}

impl Row {
    /// Replays the trace with every policy.
    pub(super) fn of(subject: &Subject, percent: u32) -> Self {
        let trace = &subject.trace;
        let room = trace.distinct() * percent as usize / 100;
        let peer = |peer: Peer| replay(trace, &mut *peer.policy(trace, room));
        Self {
            trace: subject.name.clone(),
            is_recorded: subject.is_recorded,
            percent,
            pages: trace.distinct(),
            touches: trace.count(),
            peers: Peer::ALL.into_iter().map(peer).collect(),
            ours: replay(trace, &mut Ours::new(trace, room, false)),
            ahead: replay(trace, &mut Ours::new(trace, room, true)),
        }
    }

    fn peer(&self, peer: Peer) -> Counts {
        let at = Peer::ALL.iter().position(|other| *other == peer).expect("one of all");
        self.peers[at]
    }

    /// Returns the major faults relative to those of a peer; `None` where the optimum hardly has
    /// any.
    fn ratio(&self, counts: Counts, peer: Peer) -> Option<f64> {
        let says_something = self.peer(Peer::Belady).major >= REFAULTS_MIN;
        says_something.then(|| counts.major as f64 / self.peer(peer).major as f64)
    }

    /// Returns the milliseconds of all faults that could be avoided.
    fn cost_ms(counts: Counts) -> f64 {
        (counts.major as f64 * MAJOR_US + counts.minor as f64 * MINOR_US) / 1000.0
    }

    /// Returns the cost of our faults relative to the cost of a peer's faults.
    fn cost_ratio(&self, peer: Peer) -> Option<f64> {
        self.ratio(self.ours, peer)
            .map(|_| Self::cost_ms(self.ours) / Self::cost_ms(self.peer(peer)))
    }

    fn name(&self) -> String {
        format!("{}, {} %", self.trace, self.percent)
    }

    /// Returns the row for programs, as JSON.
    pub(super) fn json(&self) -> Value {
        let counts = |counts: Counts| {
            let Counts { first, major, minor } = counts;
            json!({ "first": first, "major": major, "minor": minor })
        };
        let mut row = json!({
            "trace": self.trace,
            "is_recorded": self.is_recorded,
            "budget_percent": self.percent,
            "pages": self.pages,
            "touches": self.touches,
            "coldpress": counts(self.ours),
            "coldpress_ahead": counts(self.ahead),
        });
        for peer in Peer::ALL {
            row[peer.name()] = counts(self.peer(peer));
        }
        row
    }
}

/// The judgement on all rows.
pub(super) struct Judged {
    /// The geometric means of our major faults relative to those of the optimum, and to those of
    /// the active and inactive lists.
    pub(super) by_optimum: Option<f64>,
    pub(super) by_active: Option<f64>,
    /// The mean relative to the optimum with readahead for walks: fewer faults than pages, so it
    /// may be below 1.
    pub(super) ahead_by_optimum: Option<f64>,
    /// The rows that were judged, in words.
    pub(super) what: String,
}

/// Judges the recorded traces, or the models where nothing is recorded.
pub(super) fn judge(rows: &[Row]) -> Judged {
    let any_recorded = rows.iter().any(|row| row.is_recorded);
    let chosen: Vec<&Row> = rows.iter().filter(|row| row.is_recorded == any_recorded).collect();
    let by = |counts: fn(&Row) -> Counts, peer| {
        mean(chosen.iter().filter_map(|row| row.ratio(counts(row), peer)))
    };
    let what = if any_recorded { "recorded traces" } else { "models only" };
    Judged {
        by_optimum: by(|row| row.ours, Peer::Belady),
        by_active: by(|row| row.ours, Peer::ActiveInactive),
        ahead_by_optimum: by(|row| row.ahead, Peer::Belady),
        what: format!("geometric mean, {what}"),
    }
}

/// Returns the geometric mean; `None` without values. A row without any fault counts as a
/// thousandth.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = values.map(|value| value.max(0.001).ln()).collect();
    let count = logarithms.len() as f64;
    (count > 0.0).then(|| (logarithms.iter().sum::<f64>() / count).exp())
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

/// Returns the table of the faults of all policies relative to the optimum's.
pub(super) fn of_policies(rows: &[Row]) -> Table {
    let names = Peer::ALL[1..].iter().map(|peer| peer.name());
    let head: Vec<&str> = ["faults by the optimum's", "pages", "optimum"]
        .into_iter()
        .chain(names)
        .chain(["coldpress"])
        .collect();
    let mut table = Table::new(&head);
    let ratios = |row: &Row| -> Vec<Option<f64>> {
        let peers = row.peers[1..].iter().chain([&row.ours]);
        peers.map(|counts| row.ratio(*counts, Peer::Belady)).collect()
    };
    for row in rows {
        let start = [row.name(), row.pages.to_string(), row.peers[0].major.to_string()];
        table.row(start.into_iter().chain(ratios(row).into_iter().map(cell)).collect());
    }
    for (is_recorded, name) in [(true, "programs"), (false, "models")] {
        let all: Vec<Vec<Option<f64>>> =
            rows.iter().filter(|row| row.is_recorded == is_recorded).map(ratios).collect();
        if !all.is_empty() {
            let means = (0..Peer::ALL.len())
                .map(|column| cell(mean(all.iter().filter_map(|row| row[column]))));
            let start = [format!("geometric mean, {name}"), String::new(), String::new()];
            table.row(start.into_iter().chain(means).collect());
        }
    }
    table
}

/// Returns the table of our faults, by kind.
pub(super) fn of_ours(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "coldpress",
        "major",
        "minor",
        "by active/inactive",
        "cost ms",
        "by active/inactive",
        "by optimum",
        "ahead: major",
        "minor",
        "cost ms",
    ]);
    for row in rows {
        table.row(vec![
            row.name(),
            row.ours.major.to_string(),
            row.ours.minor.to_string(),
            cell(row.ratio(row.ours, Peer::ActiveInactive)),
            format!("{:.1}", Row::cost_ms(row.ours)),
            cell(row.cost_ratio(Peer::ActiveInactive)),
            cell(row.cost_ratio(Peer::Belady)),
            row.ahead.major.to_string(),
            row.ahead.minor.to_string(),
            format!("{:.1}", Row::cost_ms(row.ahead)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    //! The risk: a mean over rows that say nothing, or of models where programs were recorded.

    use super::*;

    fn row(is_recorded: bool, optimum: u64, active: u64, ours: u64) -> Row {
        let of = |major| Counts { first: 10, major, minor: 0 };
        Row {
            trace: "a".to_owned(),
            is_recorded,
            percent: 50,
            pages: 5000,
            touches: 9000,
            peers: vec![of(optimum), of(0), of(0), of(active), of(0)],
            ours: Counts { minor: 50, ..of(ours) },
            ahead: of(ours / 2),
        }
    }

    #[test]
    fn programs_count_before_models_and_rows_with_hardly_a_fault_do_not() {
        let models = [row(false, 100, 100, 900), row(false, 100, 400, 100)];
        let judged = judge(&models);
        assert!((judged.by_optimum.unwrap() - 3.0).abs() < 1e-9);
        assert!((judged.by_active.unwrap() - 1.5).abs() < 1e-9);
        let [one, two] = models;
        let judged = judge(&[one, two, row(true, 100, 200, 200), row(true, 99, 100, 5000)]);
        assert!((judged.by_optimum.unwrap() - 2.0).abs() < 1e-9);
        assert!((judged.ahead_by_optimum.unwrap() - 1.0).abs() < 1e-9);
        assert!(judged.what.contains("recorded"));
        assert!(judge(&[row(true, 0, 0, 0)]).by_optimum.is_none());
    }

    #[test]
    fn minor_faults_cost_a_fifth() {
        let row = row(true, 100, 200, 90);
        assert!((row.cost_ratio(Peer::Belady).unwrap() - 1.0).abs() < 1e-9);
        assert!((row.cost_ratio(Peer::ActiveInactive).unwrap() - 0.5).abs() < 1e-9);
        let text = of_ours(&[row]).to_string();
        assert!(text.contains("| a, 50 %"), "{text}");
    }
}
