//! The figures of programs as tables.

use crate::report::Table;
use crate::statistics::Sample;
use coldpress_sys::Bytes;

use super::figures::{Block, Turn, sample};
use crate::commands::swap::goals::{JUDGE, mean};

const NOT_MEASURED: &str = "-";

/// Makes a table with a row for each program and a column for each contestant.
pub(crate) fn times(blocks: &[Block], title: &str, of: impl Fn(&Turn) -> f64 + Copy) -> Table {
    let names = contestants(blocks);
    let mut table = headed(title, &names);
    for block in blocks {
        table.row(row(block, &names, block.program.to_owned(), of));
    }
    let ratio = mean(blocks.iter().filter_map(|block| block.ratio(of)));
    let empty = std::iter::repeat_n(String::new(), names.len() + 1);
    table
        .row(["geometric mean".to_owned()].into_iter().chain(empty).chain([cell(ratio)]).collect());
    table
}

/// Makes a table with a row for each figure that a program prints and a column for each contestant.
pub(crate) fn figures(blocks: &[Block]) -> Table {
    let names = contestants(blocks);
    let mut table = headed("figures", &names);
    for block in blocks {
        for (index, figure) in block.figures.iter().enumerate() {
            let title = format!("{}: {figure}", block.program);
            table.row(row(block, &names, title, |turn| turn.figures[index]));
        }
    }
    table
}

/// Makes an empty table with a column for each contestant.
fn headed(title: &str, names: &[String]) -> Table {
    let ratio = format!("by {}", JUDGE.name());
    let head = [title, "without"].into_iter().chain(names.iter().map(String::as_str));
    Table::new(&head.chain([&*ratio]).collect::<Vec<_>>())
}

/// Makes a row of the medians of all contestants, and of ours relative to the judge's.
fn row(
    block: &Block,
    names: &[String],
    title: String,
    of: impl Fn(&Turn) -> f64 + Copy,
) -> Vec<String> {
    let median = |turns: &[Turn]| sample(turns, of).as_ref().map(Sample::median);
    let lines = names.iter().map(|name| {
        let line = block.lines.iter().find(|line| line.contestant.name() == *name);
        cell(line.and_then(|line| median(&line.turns)))
    });
    let plain = cell(median(&block.plain));
    [title, plain].into_iter().chain(lines).chain([cell(block.ratio(of))]).collect()
}

/// Returns the names of all contestants, in their order.
fn contestants(blocks: &[Block]) -> Vec<String> {
    let mut names = Vec::new();
    for line in blocks.iter().flat_map(|block| &block.lines) {
        let name = line.contestant.name();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Makes a table with a row for each program and contestant: its memory, and its turns with kills.
pub(crate) fn memory(blocks: &[Block]) -> Table {
    let mut table = Table::new(&[
        "memory, MiB",
        "held by itself",
        "limit",
        "pool beside it",
        "held in all",
        "turns",
        "killed",
        "seconds, least to most",
    ]);
    let mib = |bytes: Bytes| format!("{:.1}", bytes.0 as f64 / f64::from(1 << 20));
    let most = |turns: &[Turn], of: fn(&Turn) -> Bytes| {
        mib(turns.iter().map(of).max().unwrap_or(Bytes(0)))
    };
    for block in blocks {
        for line in &block.lines {
            let seconds = sample(&line.turns, |turn| turn.seconds);
            let spread = |sample: Sample| {
                format!("{:.2} to {:.2}", sample.percentile(0.0), sample.percentile(100.0))
            };
            table.row(vec![
                format!("{}, {}", block.program, line.contestant.name()),
                mib(block.peak),
                mib(line.limit),
                most(&line.turns, |turn| turn.pool),
                most(&line.turns, |turn| turn.held),
                line.turns.len().to_string(),
                line.kills().to_string(),
                seconds.map_or_else(|| NOT_MEASURED.to_owned(), spread),
            ]);
        }
    }
    table
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| NOT_MEASURED.to_owned(), |value| format!("{value:.2}"))
}
