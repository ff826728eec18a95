//! `coldpress-bench trees`: trees of real processes over coldpress and over the kernel's swap, with
//! the same memory in total: a server that forks to save, one with a process for each client, and a
//! pool of workers. The turns and the memory of each contestant are those of [`super::programs`].
//!
//! 1. The times that a tree prints of itself are cut out before its output is compared.

mod jobs;
pub(super) mod options;

use crate::report::{Goal, Report};
use coldpress_common::failure::Result;
use serde_json::{Value, json};

use super::common::{Choice, ContestArgs, Rounds, defaults};
use super::launch::Launcher;
use super::name_missing;
use super::programs::contest::Contest;
use super::programs::figures::Block;
use super::programs::jobs::Job;
use super::programs::tables::{figures, memory, times};
use super::sides;
use super::swap::goals::{JUDGE, mean};
use options::TreesArgs;

/// The goal: the slowest of a hundred requests, relative to that over zram with lz4.
const P99_MAX: f64 = 1.0;

/// Returns the options for a run of all benchmarks, which has little time.
pub(super) fn modest() -> TreesArgs {
    let peer = vec![Choice::Peer(sides::JUDGE)];
    let contest = ContestArgs { peer, rounds: Rounds { rounds: Some(1) }, ..defaults() };
    TreesArgs { contest, ..defaults() }
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(launcher: &Launcher, args: &TreesArgs) -> Result<Report> {
    let all = jobs::all(args.common.quick);
    let is_wanted = |job: &&Job| args.tree.is_empty() || args.tree.contains(&job.name);
    let wanted: Vec<&Job> = all.iter().filter(is_wanted).collect();
    let contest = Contest::new(launcher, "trees", args.share, &args.contest, &args.common)?;
    let (blocks, missing) = contest.hold(&wanted)?;
    let rounds = contest.rounds;
    let mut about = format!(
        "Trees of processes with {} of the most that each holds by itself, {rounds} rounds;\n\
         medians. redis: BGSAVE, while four clients read and four change values, in batches until\n\
         it has saved; p50 and p99 are means of those of batches. postgres: four clients sort and\n\
         hash. python: a pool of eight. `total`, `resident` and CPU are as in `programs`.",
        args.share.name(),
    );
    name_missing(&mut about, &missing);
    let numbers = json!({
        "share": args.share.name(),
        "rounds": rounds,
        "missing": missing,
        "time_ratio": mean(blocks.iter().filter_map(|block| block.ratio(|turn| turn.seconds))),
        "p99_ratio": p99(&blocks),
        "p99_goal": P99_MAX,
        "trees": blocks.iter().map(Block::json).collect::<Vec<Value>>(),
    });
    let tables = vec![
        times(&blocks, "seconds", |turn| turn.seconds),
        times(&blocks, "CPU seconds", |turn| turn.cpu_seconds),
        figures(&blocks),
        memory(&blocks),
    ];
    let goals = p99(&blocks).map(goal).into_iter().collect();
    Ok(Report { name: "trees", about, tables, goals, numbers })
}

/// Returns the slowest of a hundred requests to redis, relative to the judge's.
fn p99(blocks: &[Block]) -> Option<f64> {
    let block = blocks.iter().find(|block| block.program == jobs::REDIS)?;
    let index = block.figures.iter().position(|figure| *figure == jobs::P99)?;
    block.ratio(|turn| turn.figures[index])
}

fn goal(ratio: f64) -> Goal {
    Goal {
        text: format!("redis, p99 while it saves, by {}: ratio <= {P99_MAX:.2}", JUDGE.name()),
        found: format!("{ratio:.2}"),
        met: ratio <= P99_MAX,
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a wrong figure meets a goal.
    use super::*;
    use crate::commands::programs::figures::{Line, Turn};
    use crate::commands::swap::figures::Contestant;
    use coldpress_sys::Bytes;

    fn block(program: &'static str, p99: [f64; 2]) -> Block {
        let line = |contestant, p99| {
            let turn = Turn {
                seconds: 1.0,
                cpu_seconds: 1.0,
                pool: Bytes(0),
                held: Bytes(0),
                kills: 0,
                figures: vec![7.0, p99],
            };
            Line { turns: vec![turn], ..Line::new(contestant, Bytes(0)) }
        };
        let lines = vec![line(Contestant::Ours, p99[0]), line(JUDGE, p99[1])];
        Block { program, figures: &["p50_ms", "p99_ms"], peak: Bytes(0), plain: vec![], lines }
    }

    #[test]
    fn the_goal_is_about_the_slowest_requests_to_redis() {
        let blocks = [block("python", [9.0, 1.0]), block("redis", [3.0, 4.0])];
        assert_eq!(p99(&blocks), Some(0.75));
        assert!(goal(1.0).met && !goal(1.01).met);
        assert_eq!(p99(&blocks[..1]), None);
        assert!(figures(&blocks).to_string().contains("redis: p99_ms"));
    }

    #[test]
    fn little_work_has_the_names_and_figures_of_all_work() {
        for (large, small) in jobs::all(false).iter().zip(&jobs::all(true)) {
            assert_eq!((large.name, large.figures), (small.name, small.figures));
            assert_ne!(large.run, small.run);
        }
    }
}
