//! The processes of a run over time: at each moment those that hold most, so that a build of
//! thousands of compilers fills no memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coldpress_runtime::tally::Counter;
use coldpress_sys::{PAGE_BYTES, PageCount};
use serde_json::{Map, Value, json};

use super::grid::{Grid, nanoseconds};
use super::totals::Totals;

/// The most moments, each with so many processes at most.
const MOMENTS_MAX: usize = 500;
pub(super) const PROCESSES_MAX: usize = 8;
/// The figures of a process at a moment, by name, besides `used_bytes`: what it holds in pages, or
/// bytes, and what it has counted.
const PAGES: [(&str, &str); 4] = [
    ("resident_bytes", "resident_pages"),
    ("limbo_bytes", "limbo_pages"),
    ("pool_original_bytes", "in_pool_pages"),
    ("disk_original_bytes", "on_disk_pages"),
];
const COUNTERS: [Counter; 4] =
    [Counter::FirstTouchFaults, Counter::LimboFaults, Counter::MajorFaults, Counter::StallNs];
/// The number of figures.
const FIGURES: usize = 2 + PAGES.len() + COUNTERS.len();

/// A process at a moment.
#[derive(Clone, Debug)]
pub(super) struct Part {
    process: u32,
    name: Arc<str>,
    figures: [u64; FIGURES],
}

/// Returns the names of all figures of a process.
fn names() -> [&'static str; FIGURES] {
    let mut names = ["used_bytes", "pool_compressed_bytes", "", "", "", "", "", "", "", ""];
    let rest = PAGES.iter().map(|it| it.0).chain(COUNTERS.iter().map(|it| it.key()));
    names[2..].iter_mut().zip(rest).for_each(|(slot, name)| *slot = name);
    names
}

/// The processes of a run at moments of it.
#[derive(Clone, Debug)]
pub(super) struct Series(Grid<(Duration, Vec<Part>)>);

impl Series {
    pub(super) fn new() -> Self {
        Self(Grid::new(MOMENTS_MAX))
    }

    /// Returns whether a moment may be taken in a run of this age.
    pub(super) fn is_due(&self, age: Duration) -> bool {
        self.0.is_due(age)
    }

    /// Adds a moment: the number and name of each process, what it holds, and its numbers.
    pub(super) fn add<'a>(
        &mut self,
        age: Duration,
        processes: impl Iterator<Item = (u32, &'a str, PageCount, Totals)>,
    ) {
        let before = self.0.moments.last().map_or(&[][..], |(_, parts)| parts);
        let known = |process: u32, name: &str| {
            let same = before.iter().find(|it| it.process == process && &*it.name == name);
            same.map_or_else(|| Arc::from(name), |it| Arc::clone(&it.name))
        };
        let part = |(process, name, used, totals): (u32, &str, PageCount, Totals)| {
            let mut figures = [0; FIGURES];
            let pages = |name| totals.held(name).saturating_mul(PAGE_BYTES as u64);
            let counted = COUNTERS.iter().map(|counter| totals.get(*counter));
            let first = [used.bytes().0 as u64, totals.held("pool_bytes")];
            let all = first.into_iter().chain(PAGES.iter().map(|it| pages(it.1))).chain(counted);
            figures.iter_mut().zip(all).for_each(|(slot, figure)| *slot = figure);
            Part { process, name: known(process, name), figures }
        };
        let parts = processes.take(PROCESSES_MAX).map(part).collect();
        self.0.add(age, (age, parts));
    }

    /// Returns a list of all processes, each with the moments at which it is known.
    pub(super) fn document(&self) -> Value {
        let mut all: BTreeMap<(u32, &str), Vec<(Duration, &Part)>> = BTreeMap::new();
        for (age, parts) in &self.0.moments {
            for part in parts {
                all.entry((part.process, &part.name)).or_default().push((*age, part));
            }
        }
        let process = |((process, name), moments): ((u32, &str), Vec<(Duration, &Part)>)| {
            let mut points: Map<String, Value> = Map::new();
            let times = moments.iter().map(|(age, _)| Value::from(nanoseconds(*age)));
            points.insert("time_ns".to_owned(), times.collect());
            for (at, figure) in names().into_iter().enumerate() {
                let column = moments.iter().map(|(_, part)| Value::from(part.figures[at]));
                points.insert(figure.to_owned(), column.collect());
            }
            json!({ "process": process, "name": name, "points": points })
        };
        all.into_iter().map(process).collect()
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a figure stands under the name of another, or many processes fill memory.

    use super::*;

    #[test]
    fn each_process_has_the_moments_at_which_it_was_seen() {
        let mut series = Series::new();
        let one = |process, name, pages| (process, name, PageCount(pages), Totals::default());
        for (moment, parts) in [
            vec![one(7, "sh", 1), one(8, "cc", 2)],
            vec![one(8, "cc", 3)],
            // The same number, given to another.
            vec![one(7, "ld", 4)],
        ]
        .into_iter()
        .enumerate()
        {
            series.add(Duration::from_millis(100 * moment as u64), parts.into_iter());
        }
        let document = series.document();
        let used = |at: usize| document[at]["points"]["used_bytes"].to_string();
        let seen: Vec<_> = (0..3).map(|at| document[at]["name"].as_str().unwrap()).collect();
        assert_eq!(seen, ["ld", "sh", "cc"]);
        assert_eq!([used(0), used(1), used(2)], ["[16384]", "[4096]", "[8192,12288]"]);
        assert_eq!(document[2]["points"]["time_ns"].to_string(), "[0,100000000]");
        assert_eq!(document[0]["points"].as_object().unwrap().len(), FIGURES + 1);
        assert!(names().iter().all(|name| !name.is_empty()));
    }

    #[test]
    fn a_moment_has_few_processes() {
        let mut series = Series::new();
        let many = (0..1000).map(|process| (process, "cc", PageCount(1), Totals::default()));
        series.add(Duration::ZERO, many);
        assert_eq!(series.document().as_array().unwrap().len(), PROCESSES_MAX);
    }
}
