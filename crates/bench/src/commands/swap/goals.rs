//! The goals against the kernel's zram with lz4, and what was found.

use crate::report::{Report, Table};
use crate::touch::pattern::Pattern;
use serde_json::{Value, json};

use super::figures::{Block, Contestant, Line, Work, threads_text};
use crate::commands::sides;

/// The contestant that ratios refer to.
pub(crate) const JUDGE: Contestant = Contestant::Kernel(sides::JUDGE);

/// A goal and what was found.
pub(super) struct Row {
    text: &'static str,
    /// The bound, and whether more is better.
    wanted: (f64, bool),
    found: Option<f64>,
    /// What the figure is of, or where it is measured instead.
    note: String,
}

impl Row {
    fn new(text: &'static str, wanted: (f64, bool), found: Option<f64>) -> Self {
        Self { text, wanted, found, note: String::new() }
    }

    fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    fn is_met(&self) -> Option<bool> {
        let (bound, is_more) = self.wanted;
        self.found.map(|found| if is_more { found >= bound } else { found <= bound })
    }

    /// Returns the row for programs, as JSON.
    pub(super) fn json(&self) -> Value {
        let (bound, is_more) = self.wanted;
        json!({
            "goal": self.text,
            "wanted": bound,
            "is_least": is_more,
            "found": self.found,
            "is_met": self.is_met(),
            "note": self.note,
        })
    }
}

/// The findings of other benchmarks of the same run, for the goals that are theirs.
#[derive(Default)]
pub(crate) struct Elsewhere {
    /// The time without coldpress relative to that with it, of a program that fits its budget.
    fit: Option<f64>,
    /// The faults on recorded traces, relative to those of Belady's optimum and to those of two
    /// lists.
    by_optimum: Option<f64>,
    by_active: Option<f64>,
    /// The time of real programs relative to that over the judge.
    programs: Option<f64>,
}

impl Elsewhere {
    /// Takes the findings from the reports of the benchmarks.
    pub(crate) fn of(reports: &[Report]) -> Self {
        let numbers = |name| reports.iter().find(|it| it.name == name).map(|it| &it.numbers);
        let fit = numbers("fit").and_then(|numbers| {
            let ratios = numbers["jobs"].as_array()?.iter();
            ratios.filter_map(|job| job["paired_ratio"].as_f64()).max_by(f64::total_cmp)
        });
        let number = |name, key: &str| numbers(name)?[key].as_f64();
        Self {
            fit: fit.map(f64::recip),
            by_optimum: number("policy", "by_optimum"),
            by_active: number("policy", "by_active"),
            programs: number("programs", "time_ratio"),
        }
    }
}

/// Returns the goals of the benchmark.
pub(super) fn all(blocks: &[Block], elsewhere: &Elsewhere) -> Vec<Row> {
    let alone = blocks.iter().find(|block| block.setting.threads == 1);
    let single = |of: &dyn Fn(&Line) -> Option<f64>| alone?.ratio(JUDGE, of);
    let speeds: Vec<(f64, String)> = blocks
        .iter()
        .flat_map(|block| block.works.iter().map(move |work| (block, *work)))
        .filter_map(|(block, work)| {
            let ratio = block.ratio(JUDGE, |line| line.speed(work))?;
            let threads = threads_text(block.setting.threads);
            let name = format!("{}, {}, {threads}", work.name(), block.setting.share.name());
            Some((ratio, name))
        })
        .collect();
    let worst = speeds.iter().min_by(|one, two| one.0.total_cmp(&two.0));
    let scans = blocks.iter().filter_map(|block| {
        block.ratio(JUDGE, |line| line.speed(Work::reads(Pattern::Sequential)))
    });
    let per_cpu = blocks.iter().flat_map(|block| {
        let ratio = |work: &Work| block.ratio(JUDGE, |line| line.cpu_us(*work));
        block.works.iter().filter_map(move |work| Some(1.0 / ratio(work)?))
    });
    let of_block = alone.map_or("", |block| block.setting.share.name());
    vec![
        Row::new(
            "mean cost of a fault, uniform reads, 1 thread",
            (0.65, false),
            single(&|line| line.per_fault_us(Work::UNIFORM, "slow_ns")),
        )
        .note(of_block),
        Row::new("touches/s, all works", (1.5, true), mean(speeds.iter().map(|speed| speed.0)))
            .note(format!("geometric mean of {}", speeds.len())),
        Row::new("touches/s, worst work", (1.0, true), worst.map(|(ratio, _)| *ratio))
            .note(worst.map_or("", |(_, name)| name)),
        Row::new(
            "p99 of a touch, uniform reads, 1 thread",
            (0.3, false),
            single(&|line| line.time_us(Work::UNIFORM, "p99_ns")),
        )
        .note(of_block),
        Row::new("touches/s, sequential reads", (2.5, true), mean(scans)).note("geometric mean"),
        Row::new("first touch while evicting", (1.5, true), single(&Line::fill_speed))
            .note(of_block),
        Row::new("2 threads against 1, ours", (1.6, true), scaling(blocks))
            .note("uniform reads, touches/s"),
        Row::new("a program that fits its budget, speed", (0.99, true), elsewhere.fit)
            .note("fit: the slowest, by itself without"),
        Row::new("faults against Belady's optimum", (1.6, false), elsewhere.by_optimum)
            .note("policy: one page at a time"),
        Row::new("faults against active/inactive lists", (1.0, false), elsewhere.by_active)
            .note("policy: one page at a time"),
        Row::new("real programs at 50 %, time", (0.85, false), elsewhere.programs)
            .note("programs: geometric mean"),
        // This row is not one of the goals, but it also holds where other programs have the
        // processors.
        Row::new("touches for a second of CPU, all works", (1.0, true), mean(per_cpu))
            .note("geometric mean"),
    ]
}

/// Returns our speed with two threads relative to that with one, for the first share that has both.
fn scaling(blocks: &[Block]) -> Option<f64> {
    let speed = |block: &Block| block.line(Contestant::Ours)?.speed(Work::UNIFORM);
    blocks.iter().filter(|block| block.setting.threads == 1).find_map(|one| {
        let two = blocks
            .iter()
            .find(|block| block.setting.threads == 2 && block.setting.share == one.setting.share)?;
        Some(speed(two)? / speed(one)?)
    })
}

/// Returns the geometric mean; `None` without values.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = values.map(f64::ln).collect();
    let count = logarithms.len() as f64;
    (count > 0.0).then(|| (logarithms.iter().sum::<f64>() / count).exp())
}

/// Makes the table of the goals, for people.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table =
        Table::new(&["goal, coldpress by zram-lz4", "wanted", "found", "verdict", "of"]);
    for row in rows {
        let (bound, is_more) = row.wanted;
        table.row(vec![
            row.text.to_owned(),
            format!("{} {bound}", if is_more { ">=" } else { "<=" }),
            row.found.map_or_else(|| "not measured".to_owned(), |found| format!("{found:.2}")),
            row.is_met().map_or("", |is_met| if is_met { "met" } else { "MISSED" }).to_owned(),
            row.note.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::{data::Kind, samples};
    use super::*;

    fn block(threads: u32, ours: f64, judge: f64) -> Block {
        samples::block(Kind::Heap, threads, [ours, judge])
    }

    #[test]
    fn ratios_are_those_of_medians_and_of_turns_that_were_not_killed() {
        let rows = all(&[block(1, 300.0, 100.0), block(2, 450.0, 500.0)], &Elsewhere::default());
        let found: Vec<Option<f64>> = rows.iter().map(|row| row.found).collect();
        let mean = 2.7_f64.sqrt();
        let wanted = [1.0 / 3.0, mean, 0.9, 1.0 / 3.0, mean, 3.0, 1.5];
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found.unwrap() - wanted).abs() < 1e-9, "{found:?} {wanted}");
        }
        assert_eq!(found[7..11], [None; 4]);
        assert!((found[11].unwrap() - mean).abs() < 1e-9, "{found:?}");
        let met: Vec<Option<bool>> = rows.iter().map(Row::is_met).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(met[..7], [yes, yes, no, no, no, yes, no]);
        assert!(rows[2].note.contains("2 threads"), "{}", rows[2].note);
        let table = table(&rows).to_string();
        assert_eq!(
            (table.matches("MISSED").count(), table.matches("not measured").count()),
            (4, 4)
        );
    }

    #[test]
    fn what_others_found_is_told_with_its_goal() {
        let report = |name, numbers| Report {
            name,
            about: String::new(),
            tables: Vec::new(),
            goals: Vec::new(),
            numbers,
        };
        let jobs = json!([{ "paired_ratio": 1.25 }, { "paired_ratio": 1.0 }]);
        let reports = [
            report("fit", json!({ "jobs": jobs })),
            report("policy", json!({ "by_optimum": 2.5, "by_active": 1.0 })),
            report("programs", json!({ "time_ratio": 0.5 })),
        ];
        let rows = all(&[], &Elsewhere::of(&reports));
        let found: Vec<_> =
            rows.iter().filter_map(|row| Some((row.found?, row.is_met()?))).collect();
        assert_eq!(found, [(0.8, false), (2.5, false), (1.0, true), (0.5, true)]);
    }

    #[test]
    fn without_the_kernel_our_own_figures_are_left() {
        let mut blocks = [block(1, 300.0, 100.0), block(2, 450.0, 500.0)];
        blocks.iter_mut().for_each(|block| block.lines.truncate(1));
        let rows = all(&blocks, &Elsewhere::default());
        assert_eq!(rows.iter().filter(|row| row.found.is_some()).count(), 1);
    }
}
