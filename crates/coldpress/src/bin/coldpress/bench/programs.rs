//! `coldpress bench programs`: real programs over coldpress and over the kernel's swap, with the
//! same memory in all.
//!
//! What a program holds by itself is measured first; each contestant gets a share of that, its pool
//! included. What every run prints must be what the program prints by itself.
//!
//! 1. Contestants take turns, and another one starts each round.
//! 2. A run that the kernel killed has no figures but is counted.
//! 3. What the machine lacks is named, and left out.

mod contest;
mod figures;
mod jobs;
pub(super) mod options;

use coldpress_bench::report::{Goal, Report, Table};
use coldpress_bench::statistics::Sample;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::launch::Launcher;
use super::options::defaults;
use super::sides;
use super::swap::goals::{JUDGE, mean};
use crate::failure::Result;
use contest::Contest;
use figures::{Block, Turn, sample};
use jobs::Job;
use options::ProgramsArgs;

/// The goal: the geometric mean of times, by those over zram with lz4.
const RATIO_GOAL: f64 = 0.85;
const NOT_MEASURED: &str = "-";

/// What a run of all benchmarks has time for.
pub(super) fn modest() -> ProgramsArgs {
    ProgramsArgs { peer: vec![sides::JUDGE], rounds: 2, ..defaults() }
}

/// Measures.
pub(super) fn measure(launcher: &Launcher, args: &ProgramsArgs) -> Result<Report> {
    let is_wanted = |job: &&Job| args.program.is_empty() || args.program.contains(&job.name);
    let jobs: Vec<&Job> = jobs::ALL.iter().filter(is_wanted).collect();
    let (blocks, missing) = Contest::new(launcher, args)?.hold(&jobs)?;
    let mut about = format!(
        "Real programs with {} of the most that each holds by itself, {} rounds; medians of\n\
         rounds. `total`: limit and pool of the kernel are together what coldpress gets.\n\
         `resident`: the limit is that share, and coldpress gets limit and pool of zram-lz4.\n\
         Something reads memory.stat beside the kernel's programs: else it kills more of them.\n\
         CPU: of all its processes, with the kernel's work for them and our threads in them.",
        args.share.name(),
        args.rounds
    );
    for text in &missing {
        about.push_str("\nLeft out: ");
        about.push_str(text);
    }
    let ratio = mean(blocks.iter().filter_map(|block| block.ratio(|turn| turn.seconds)));
    let numbers = json!({
        "share": args.share.name(),
        "rounds": args.rounds,
        "missing": missing,
        "time_ratio": ratio,
        "ratio_goal": RATIO_GOAL,
        "programs": blocks.iter().map(Block::json).collect::<Vec<Value>>(),
    });
    let tables = vec![
        times(&blocks, "seconds", |turn| turn.seconds),
        times(&blocks, "CPU seconds", |turn| turn.cpu_seconds),
        memory(&blocks),
    ];
    let goals = ratio.map(|ratio| goal(&blocks, ratio)).into_iter().collect();
    Ok(Report { name: "programs", about, tables, goals, numbers })
}

fn goal(blocks: &[Block], ratio: f64) -> Goal {
    let ratios = blocks.iter().filter_map(|block| block.ratio(|turn| turn.seconds));
    let ratios = Sample::new(ratios).expect("there is a mean of them");
    Goal {
        text: format!("time by {}, geometric mean: ratio <= {RATIO_GOAL}", JUDGE.name()),
        found: format!(
            "{ratio:.2} ({:.2} to {:.2})",
            ratios.percentile(0.0),
            ratios.percentile(100.0)
        ),
        met: ratio <= RATIO_GOAL,
    }
}

/// A row for each program, a column for each contestant.
fn times(blocks: &[Block], title: &str, of: impl Fn(&Turn) -> f64 + Copy) -> Table {
    let names: Vec<String> = contestants(blocks);
    let ratio = format!("by {}", JUDGE.name());
    let head = [title, "without"].into_iter().chain(names.iter().map(String::as_str));
    let head: Vec<&str> = head.chain([&*ratio]).collect();
    let mut table = Table::new(&head);
    let median = |turns: &[Turn]| sample(turns, of).as_ref().map(Sample::median);
    for block in blocks {
        let lines = names.iter().map(|name| {
            let line = block.lines.iter().find(|line| line.contestant.name() == *name);
            cell(line.and_then(|line| median(&line.turns)))
        });
        let plain = cell(median(&block.plain));
        let ratio = cell(block.ratio(of));
        table.row(
            [block.program.to_owned(), plain].into_iter().chain(lines).chain([ratio]).collect(),
        );
    }
    let ratio = mean(blocks.iter().filter_map(|block| block.ratio(of)));
    let empty = std::iter::repeat_n(String::new(), names.len() + 1);
    table
        .row(["geometric mean".to_owned()].into_iter().chain(empty).chain([cell(ratio)]).collect());
    table
}

/// The names of all, in their order.
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

/// A row for each program and contestant: what it held, and how often it was killed.
fn memory(blocks: &[Block]) -> Table {
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
