//! The goals against the kernel's zram with lz4 at the same memory in total, and what was found.
//!
//! 1. Each goal has a floor: what is worse than that is missed, and what is better than the goal is
//!    met. Between the two a figure is neither.
//! 2. A goal is about the first share that its pages were measured with.
//! 3. Where nothing else is said, it is about pages of a heap, and one thread or two.

use crate::report::Table;
use crate::touch::pattern::Pattern;
use serde_json::{Value, json};

use super::data::Kind;
use super::figures::{Block, Contestant, Line, Work, threads_text};
use super::options::Percent;
use crate::commands::sides;

/// The contestant that ratios refer to.
pub(crate) const JUDGE: Contestant = Contestant::Kernel(sides::JUDGE);
/// The most threads of the goals that are not about threads: there are two processors where they
/// were set.
const THREADS_MAX: u32 = 2;
/// The pages that are hard to hold, and the writes to them.
const HARD: Kind = Kind::Ratio(1.8);
const HARD_WRITES: Percent = Percent(30);
/// For a number of threads, goal and floor of touches a second on these pages.
const HARD_GOALS: [(u32, [f64; 2]); 2] = [(1, [1.1, 0.9]), (2, [1.0, 0.75])];
/// Goal and floor of the 99th percentile of an access, by its order.
const P99_GOALS: [(Pattern, [f64; 2]); 3] =
    [(Pattern::Uniform, [0.3, 0.3]), (Pattern::Zipf, [2.0, 3.0]), (Pattern::Hot, [2.0, 3.0])];

/// A goal and what was found.
pub(super) struct Row {
    text: String,
    goal: f64,
    /// The least that is not missed; the goal itself where it is the same.
    floor: f64,
    /// Whether more is better.
    is_least: bool,
    found: Option<f64>,
    /// What the figure is of.
    of: String,
}

impl Row {
    /// Makes a goal of a figure that is to be at least so large.
    fn at_least(text: impl Into<String>, [goal, floor]: [f64; 2], found: Option<f64>) -> Self {
        Self { text: text.into(), goal, floor, is_least: true, found, of: String::new() }
    }

    /// Makes a goal of a figure that is to be at most so large.
    fn at_most(text: impl Into<String>, bounds: [f64; 2], found: Option<f64>) -> Self {
        Self { is_least: false, ..Self::at_least(text, bounds, found) }
    }

    fn of(self, of: impl Into<String>) -> Self {
        Self { of: of.into(), ..self }
    }

    /// Returns the word for what was found; `None` when nothing was.
    fn verdict(&self) -> Option<&'static str> {
        let found = self.found?;
        let passes = |bound| if self.is_least { found >= bound } else { found <= bound };
        Some(match (passes(self.goal), passes(self.floor)) {
            (true, _) => "met",
            (false, true) => "between",
            (false, false) => "MISSED",
        })
    }

    /// Returns the row for programs, as JSON.
    pub(super) fn json(&self) -> Value {
        json!({
            "figure": self.text,
            "goal": self.goal,
            "floor": self.floor,
            "is_least": self.is_least,
            "found": self.found,
            "verdict": self.verdict(),
            "of": self.of,
        })
    }
}

/// Returns all goals, on a machine with so many `processors`.
pub(super) fn all(blocks: &[Block], processors: usize) -> Vec<Row> {
    let is_first = |block: &&Block| {
        let same = blocks.iter().find(|other| other.setting.pages == block.setting.pages);
        same.is_some_and(|first| first.setting.share == block.setting.share)
    };
    let blocks: Vec<&Block> = blocks.iter().filter(is_first).collect();
    let mut rows = speeds(&blocks);
    rows.extend(hard(&blocks));
    rows.extend(threads(&blocks, processors));
    rows.extend(times(&blocks));
    rows
}

/// Returns the block of a kind of pages and a number of threads.
fn block_of<'b>(blocks: &[&'b Block], pages: Kind, threads: u32) -> Option<&'b Block> {
    let is_it = |block: &&&Block| block.setting.pages == pages && block.setting.threads == threads;
    blocks.iter().find(is_it).copied()
}

/// Returns our touches a second, relative to the judge's, in each order of some blocks, with names.
fn ratios<'b>(blocks: impl Iterator<Item = &'b &'b Block>) -> Vec<(f64, String)> {
    let of_block = |block: &&'b Block| {
        let block = *block;
        let ratio = move |work: &Work| {
            let ratio = block.ratio(JUDGE, |line| line.speed(*work))?;
            Some((ratio, format!("{}, {}", work.name(), block.setting.title())))
        };
        block.works.iter().filter_map(ratio)
    };
    blocks.flat_map(of_block).collect()
}

/// Returns the goals about touches a second and about processors, of all orders.
fn speeds(blocks: &[&Block]) -> Vec<Row> {
    let few = || blocks.iter().filter(|block| block.setting.threads <= THREADS_MAX);
    let heap = || few().filter(|block| block.setting.pages == Kind::Heap);
    let all = ratios(heap());
    let dense = ratios(few().filter(|block| block.setting.pages.is_dense()));
    let worst = dense.iter().min_by(|one, two| one.0.total_cmp(&two.0));
    let scans = heap().filter_map(|block| {
        block.ratio(JUDGE, |line| line.speed(Work::reads(Pattern::Sequential)))
    });
    let per_cpu = heap().flat_map(|block| {
        let ratio = |work: &Work| block.ratio(JUDGE, |line| line.cpu_us(*work));
        block.works.iter().filter_map(move |work| Some(1.0 / ratio(work)?))
    });
    vec![
        Row::at_least("touches/s, all orders", [1.6, 1.45], mean(all.iter().map(|it| it.0)))
            .of(format!("geometric mean of {}", all.len())),
        Row::at_least(
            "touches/s, worst order, pages of 2.5 to 1 and better",
            [1.0, 0.85],
            worst.map(|(ratio, _)| *ratio),
        )
        .of(worst.map_or("", |(_, name)| name)),
        Row::at_least("touches/s, sequential reads", [2.5, 1.67], mean(scans)).of("geometric mean"),
        Row::at_least(
            "touches for a second of all processors' time, all orders",
            [1.3, 1.2],
            mean(per_cpu),
        )
        .of("geometric mean"),
    ]
}

/// Returns the goals about pages that are hard to hold.
fn hard(blocks: &[&Block]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (threads, bounds) in HARD_GOALS {
        for pattern in [Pattern::Uniform, Pattern::Zipf] {
            let work = Work { pattern, writes: HARD_WRITES };
            let block = block_of(blocks, HARD, threads);
            let found = block.and_then(|block| block.ratio(JUDGE, |line| line.speed(work)));
            let at = threads_text(threads);
            let text = format!("touches/s, {}, {}, {at}", HARD.name(), work.name());
            rows.push(Row::at_least(text, bounds, found).of(title(block)));
        }
    }
    rows
}

/// Returns the goals about what more threads bring to us.
fn threads(blocks: &[&Block], processors: usize) -> Vec<Row> {
    let speed = |threads| {
        let block = block_of(blocks, Kind::Heap, threads)?;
        block.line(Contestant::Ours)?.speed(Work::UNIFORM)
    };
    let by_one = |threads| Some(speed(threads)? / speed(1)?);
    let of = format!("uniform reads, {processors} processors");
    // With more processors, four threads are another matter.
    let four = by_one(4).filter(|_| processors == 2);
    vec![
        Row::at_least("ours, 2 threads by 1", [1.5, 1.3], by_one(2)).of(of.as_str()),
        Row::at_least("ours, 4 threads by 1 on 2 processors", [1.2, 1.2], four).of(of),
    ]
}

/// Returns the goals about single accesses of one thread.
fn times(blocks: &[&Block]) -> Vec<Row> {
    let block = block_of(blocks, Kind::Heap, 1);
    let single = |of: &dyn Fn(&Line) -> Option<f64>| block?.ratio(JUDGE, of);
    let fault = single(&|line| line.per_fault_us(Work::UNIFORM, "slow_ns"));
    let mut rows = vec![Row::at_most("mean of a fault, uniform reads", [0.85, 0.95], fault)];
    for (pattern, bounds) in P99_GOALS {
        let work = Work::reads(pattern);
        let found = single(&|line| line.time_us(work, "p99_ns"));
        rows.push(Row::at_most(format!("p99 of an access, {}", work.name()), bounds, found));
    }
    rows.into_iter().map(|row| row.of(title(block))).collect()
}

fn title(block: Option<&Block>) -> String {
    block.map(|block| block.setting.title()).unwrap_or_default()
}

/// Returns the geometric mean; `None` without values.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = values.map(f64::ln).collect();
    let count = logarithms.len() as f64;
    (count > 0.0).then(|| (logarithms.iter().sum::<f64>() / count).exp())
}

/// Makes the table of the goals, for people.
pub(super) fn table(rows: &[Row]) -> Table {
    let head = ["goal, coldpress by zram-lz4", "goal", "floor", "found", "verdict", "of"];
    let mut table = Table::new(&head);
    for row in rows {
        let sign = if row.is_least { ">=" } else { "<=" };
        table.row(vec![
            row.text.clone(),
            format!("{sign} {}", row.goal),
            format!("{sign} {}", row.floor),
            row.found.map_or_else(|| "not measured".to_owned(), |found| format!("{found:.2}")),
            row.verdict().unwrap_or_default().to_owned(),
            row.of.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    //! The risk: a goal that is met by figures of other pages, threads or shares.
    use super::super::samples::block;
    use super::*;
    use crate::commands::common::Share;

    const HEAP: Kind = Kind::Heap;

    /// Returns what was found, by the beginning of the goal's text, and the verdict.
    fn found(rows: &[Row], text: &str) -> Option<(f64, &'static str)> {
        let mut found = rows.iter().filter(|row| row.text.starts_with(text));
        let row = found.next().expect("there is such a goal");
        assert!(found.next().is_none(), "{text}");
        Some(((row.found? * 1000.0).round() / 1000.0, row.verdict()?))
    }

    #[test]
    fn ratios_are_those_of_medians_and_of_turns_that_were_not_killed() {
        let blocks = [block(HEAP, 1, [300.0, 100.0]), block(HEAP, 2, [450.0, 500.0])];
        let rows = all(&blocks, 2);
        let found = |text| found(&rows, text);
        // The mean of 3 and 0.9.
        assert_eq!(found("touches/s, all orders"), Some((1.643, "met")));
        assert_eq!(found("touches/s, worst order"), Some((0.9, "between")));
        assert_eq!(found("touches/s, sequential"), Some((1.643, "MISSED")));
        assert_eq!(found("touches for a second"), Some((1.643, "met")));
        assert_eq!(found("ours, 2 threads"), Some((1.5, "met")));
        assert_eq!(found("ours, 4 threads"), None);
        assert_eq!(found("mean of a fault"), Some((0.333, "met")));
        assert_eq!(found("p99 of an access, uniform"), Some((0.333, "MISSED")));
        assert_eq!(found("p99 of an access, zipf"), Some((0.333, "met")));
        assert_eq!(found("touches/s, 1.8 to 1, zipf, 30 % writes, 1 thread"), None);
        assert!(rows[1].of.ends_with("2 threads"), "{}", rows[1].of);
        let table = table(&rows).to_string();
        let count = |word| table.matches(word).count();
        assert_eq!([count("MISSED"), count("between"), count("not measured")], [2, 1, 5]);
    }

    #[test]
    fn pages_and_threads_are_judged_by_goals_of_their_own() {
        let blocks = [
            block(HEAP, 1, [200.0, 100.0]),
            block(HARD, 1, [95.0, 100.0]),
            block(HARD, 2, [50.0, 100.0]),
            block(Kind::Ratio(6.0), 1, [80.0, 100.0]),
            block(HEAP, 4, [230.0, 1000.0]),
        ];
        let rows = all(&blocks, 2);
        assert_eq!(found(&rows, "touches/s, all orders"), Some((2.0, "met")));
        assert_eq!(found(&rows, "touches/s, worst order"), Some((0.8, "MISSED")));
        for order in ["uniform", "zipf"] {
            let hard = |at| format!("touches/s, 1.8 to 1, {order}, 30 % writes, {at}");
            assert_eq!(found(&rows, &hard("1 thread")), Some((0.95, "between")));
            assert_eq!(found(&rows, &hard("2 threads")), Some((0.5, "MISSED")));
        }
        assert_eq!(found(&rows, "ours, 4 threads"), Some((1.15, "MISSED")));
        assert_eq!(found(&all(&blocks, 8), "ours, 4 threads"), None);
    }

    #[test]
    fn goals_are_about_one_share() {
        let mut blocks = [block(HEAP, 1, [200.0, 100.0]), block(HEAP, 2, [1.0, 100.0])];
        blocks[1].setting.share = Share::Resident25;
        let rows = all(&blocks, 2);
        assert_eq!(found(&rows, "touches/s, all orders"), Some((2.0, "met")));
        assert_eq!(found(&rows, "ours, 2 threads"), None);
    }

    #[test]
    fn without_the_kernel_our_own_figures_are_left() {
        let mut blocks = [block(HEAP, 1, [300.0, 100.0]), block(HEAP, 2, [450.0, 500.0])];
        blocks.iter_mut().for_each(|block| block.lines.truncate(1));
        let rows = all(&blocks, 2);
        assert_eq!(rows.iter().filter(|row| row.found.is_some()).count(), 1);
        assert!(all(&[], 2).iter().all(|row| row.verdict().is_none()));
    }
}
