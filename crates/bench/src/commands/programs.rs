//! `coldpress-bench programs`: real programs over coldpress and over the kernel's swap, with the
//! same memory in total.
//!
//! The memory that a program holds by itself is measured first. Each contestant gets a share of it,
//! pool included. Every run must print what the program prints by itself.
//!
//! 1. Contestants take turns, and a different one starts each round.
//! 2. A run in which the kernel killed a process has no figures but is counted.
//! 3. A program or contestant for which the machine lacks something is left out, and the reason is
//!    given.

pub(super) mod contest;
pub(super) mod figures;
mod injected;
pub(super) mod jobs;
pub(super) mod options;
pub(super) mod tables;

use crate::report::{Goal, Report};
use crate::statistics::Sample;
use coldpress_common::failure::Result;
use serde_json::{Value, json};

use super::common::{Choice, ContestArgs, Rounds, defaults};
use super::launch::Launcher;
use super::name_missing;
use super::sides;
use super::swap::goals::{JUDGE, mean};
use contest::Contest;
use figures::Block;
use jobs::Job;
use options::ProgramsArgs;
use tables::{memory, times};

/// The goal: the geometric mean of times, relative to zram with lz4.
const RATIO_GOAL: f64 = 0.85;

/// Returns the options for a run of all benchmarks, which has little time.
pub(super) fn modest() -> ProgramsArgs {
    let peer = vec![Choice::Peer(sides::JUDGE)];
    let contest = ContestArgs { peer, rounds: Rounds { rounds: Some(2) }, ..defaults() };
    ProgramsArgs { contest, ..defaults() }
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(launcher: &Launcher, args: &ProgramsArgs) -> Result<Report> {
    let is_wanted = |job: &&Job| args.program.is_empty() || args.program.contains(&job.name);
    let jobs: Vec<&Job> = jobs::ALL.iter().filter(is_wanted).collect();
    let contest = Contest::new(launcher, "programs", args.share, &args.contest, &args.common)?;
    let (blocks, missing) = contest.hold(&jobs)?;
    let mut about = format!(
        "Real programs with {} of the most that each holds by itself, {} rounds; medians of\n\
         rounds. `total`: limit and pool of the kernel are together what coldpress gets.\n\
         `resident`: the limit is that share, and coldpress gets limit and pool of zram-lz4.\n\
         Something reads memory.stat beside the kernel's programs: else it kills more of them.\n\
         CPU: of all its processes, with the kernel's work for them and our threads.",
        args.share.name(),
        contest.rounds
    );
    let injected = injected::measure(&contest, &jobs)?;
    if injected.is_some() {
        about.push_str(
            "\nInjected: a static program takes LD_PRELOAD away, so that the library is put in\n\
             while the program runs; half of what it holds.",
        );
    }
    name_missing(&mut about, &missing);
    let ratio = mean(blocks.iter().filter_map(|block| block.ratio(|turn| turn.seconds)));
    let (of_injected, more_goals, more_numbers) = match injected {
        Some((table, goals, numbers)) => (Some(table), goals, numbers),
        None => (None, Vec::new(), Value::Null),
    };
    let numbers = json!({
        "injected": more_numbers,
        "share": args.share.name(),
        "rounds": contest.rounds,
        "missing": missing,
        "time_ratio": ratio,
        "ratio_goal": RATIO_GOAL,
        "programs": blocks.iter().map(Block::json).collect::<Vec<Value>>(),
    });
    let contest_tables = [
        times(&blocks, "seconds", |turn| turn.seconds),
        times(&blocks, "CPU seconds", |turn| turn.cpu_seconds),
        memory(&blocks),
    ];
    let tables = contest_tables.into_iter().chain(of_injected).collect();
    let goals = ratio.map(|ratio| goal(&blocks, ratio)).into_iter().chain(more_goals).collect();
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
