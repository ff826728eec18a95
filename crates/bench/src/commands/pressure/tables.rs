//! The tables of figures, for people.

use crate::kernel::Peer;
use crate::report::{Goal, Table};

use super::Contestant;
use super::figures::{Block, Figures, Line};

/// The contestant that all others are compared with: all pages go to the disk as they are.
pub(crate) const BASE: Contestant = Contestant::Kernel(Peer::File);
pub(crate) const OURS: Contestant = Contestant::Ours;

const NOT_MEASURED: &str = "-";

/// Makes the table, with a row for each number of jobs and contestant.
pub(crate) fn table(blocks: &[Block]) -> Table {
    let mut table = Table::new(&[
        "jobs at a time",
        "pages in",
        "pages out",
        "faults",
        "I/O sum",
        "change %",
        "disk MiB",
        "seconds",
        "change %",
        "p10 to p90",
        "CPU s",
        "CPU %",
        "held MiB",
        "killed",
        "failed",
    ]);
    for block in blocks {
        for line in &block.lines {
            table.row(row(block, line));
        }
    }
    table
}

fn row(block: &Block, line: &Line) -> Vec<String> {
    let median = |of: &dyn Fn(&Figures) -> f64| cell(line.median(of), 0);
    let change = |of: &dyn Fn(&Figures) -> f64| {
        let ratio = (line.contestant != BASE).then(|| block.ratio(line.contestant, BASE, of));
        ratio.flatten().map_or_else(String::new, |ratio| format!("{:+.0}", percent(ratio)))
    };
    let seconds: &dyn Fn(&Figures) -> f64 = &|figures| figures.seconds;
    let spread = line
        .sample(seconds)
        .map(|sample| format!("{:.1} to {:.1}", sample.percentile(10.0), sample.percentile(90.0)));
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    vec![
        format!("{}, {}", block.jobs, line.contestant.name()),
        median(&|figures| figures.pages_in as f64),
        median(&|figures| figures.pages_out as f64),
        median(&|figures| figures.faults as f64),
        median(&Figures::sum),
        change(&Figures::sum),
        median(&|figures| mib(figures.disk.0)),
        cell(line.median(seconds), 1),
        change(seconds),
        spread.unwrap_or_else(|| NOT_MEASURED.to_owned()),
        cell(line.median(|figures| figures.cpu_seconds), 1),
        median(&Figures::cpu_percent),
        format!("{:.0}", mib(line.held().0)),
        format!("{} of {}", line.kills(), line.turns.len()),
        line.failed().to_string(),
    ]
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| NOT_MEASURED.to_owned(), |value| format!("{value:.digits$}"))
}

/// Returns the percent by which a ratio is above 1.
pub(crate) fn percent(ratio: f64) -> f64 {
    100.0 * (ratio - 1.0)
}

/// Makes a goal for a ratio that should be no more than `limit`; `None` without a ratio.
pub(crate) fn most(ratio: Option<f64>, limit: f64, text: String) -> Option<Goal> {
    let found = format!("{:+.0} %", percent(ratio?));
    Some(Goal { text, found, met: ratio? <= limit })
}
