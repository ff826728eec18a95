//! `coldpress-bench build`: the kernel build of zswap v4's mail again, with files of PostgreSQL. A
//! given number of gcc processes compile at a time, within a fixed amount of memory: over a swap
//! file, over the kernel's zswap and zram, and over coldpress. [`super::pressure`] says how each
//! contestant is measured.
//!
//! 1. A build without a limit first makes the objects to compare with. Every object of every run is
//!    the same, byte for byte, or is missing and counts as a failed compile.
//! 2. A build goes on after a failed compile, because the rest still shows the effect of the memory
//!    limit.

pub(super) mod options;
mod tree;

use std::path::Path;
use std::process::Command;

use crate::kernel::{Peer, Ran};
use crate::report::{Goal, Report};
use coldpress_common::failure::{Failure, Result};
use coldpress_common::size::show;
use coldpress_sys::Bytes;
use serde_json::json;

use super::common::{ContestArgs, Rounds, defaults};
use super::launch::{Launcher, failed, run};
use super::name_missing;
use super::pressure::contest::{Contest, Plan};
use super::pressure::figures::{Block, Figures};
use super::pressure::tables::{BASE, OURS, most, percent, table};
use super::pressure::{Contestant, Work, ZSWAP};
use super::sides::JUDGE;
use crate::progress::note;
use options::BuildArgs;
use tree::Tree;

/// A bound on what one compiler holds; the largest holds 175 MB with gcc 12.
const COMPILER_MAX: Bytes = Bytes::mib(192);
/// The number of compilers at a time in the build that makes the objects to compare with.
const REFERENCE_JOBS: u32 = 2;
/// The number of rounds, unless the user asks for another.
const ROUNDS: u32 = 3;
/// The number of files to compile with --quick, to see that everything runs.
const QUICK_FILES: usize = 4;

/// The goals at the highest pressure: pages read from disk and written to it, relative to those
/// over a swap file; and time, relative to the kernel's zswap.
const IO_MAX: f64 = 0.20;
const TIME_MAX: f64 = 1.00;

/// Returns the options for a run of all benchmarks, which has little time.
pub(super) fn modest(source: &Path) -> BuildArgs {
    let contest = ContestArgs { rounds: Rounds { rounds: Some(1) }, ..defaults() };
    BuildArgs { source: source.to_owned(), jobs: vec![4, 16], contest, ..defaults() }
}

impl Work for Tree {
    const BENCH: &'static str = "build";

    fn command(&self, jobs: u32) -> Result<Command> {
        self.make(jobs).map_err(|error| failed(format!("no place for objects: {error}")))
    }

    fn failed(&self, name: &str, ran: &Ran) -> Result<u32> {
        let missing = self.missing(ran.kills > 0).map_err(|cause| {
            failed(format!("{name}: {cause}, {} killed, {}", ran.kills, ran.status))
        })?;
        if missing == 0 && !ran.status.success() && ran.kills == 0 {
            return Err(failed(format!("{name}: the build ended with {}", ran.status)));
        }
        Ok(missing)
    }

    fn largest(&self, jobs: u32) -> Bytes {
        Bytes(COMPILER_MAX.0 * jobs as usize)
    }
}

/// Returns a failure that names what the benchmark needs and this machine lacks, if anything.
pub(super) fn lacks(source: &Path) -> Option<Failure> {
    tree::lacks(source, &tree::FILES)
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(launcher: &Launcher, args: &BuildArgs) -> Result<Report> {
    let files = if args.common.quick { &tree::FILES[..QUICK_FILES] } else { &tree::FILES[..] };
    if let Some(why) = tree::lacks(&args.source, files) {
        return Err(why);
    }
    let mut work = Tree::new(&args.source, &args.contest.directory, files)
        .map_err(|error| failed(format!("no place for objects: {error}")))?;
    note(format!("build: {} files without a limit", files.len()));
    // This build also fills the page cache: a cgroup is charged for the pages that it brings in.
    let mut command = work.command(REFERENCE_JOBS)?;
    let alone = run(&mut command)?;
    work.keep().map_err(|error| failed(format!("a build left no objects: {error}")))?;
    let peers = args.contest.peers(&[Peer::File, ZSWAP, JUDGE]);
    let plan = Plan {
        jobs: if args.common.quick { vec![2, 4] } else { args.jobs.clone() },
        memory: if args.common.quick { Bytes::mib(24) } else { args.memory },
        rounds: args.contest.rounds.or(ROUNDS, &args.common),
        contestants: peers.into_iter().map(Contestant::Kernel).chain([OURS]).collect(),
    };
    let contest = Contest::new(launcher, &args.contest.directory, plan, work)?;
    let (blocks, missing) = contest.hold()?;
    let mut about = about(&contest, alone.seconds);
    name_missing(&mut about, &missing);
    let (plan, work) = (&contest.plan, &contest.work);
    let numbers = json!({
        "memory_bytes": plan.memory.0,
        "files": files.len(),
        "objects_bytes": work.bytes(),
        "alone_seconds": alone.seconds,
        "rounds": plan.rounds,
        "missing": missing,
        "blocks": blocks.iter().map(Block::json).collect::<Vec<_>>(),
    });
    Ok(Report {
        name: "build",
        about,
        tables: vec![table(&blocks)],
        goals: goals(&blocks),
        numbers,
    })
}

fn about(contest: &Contest<Tree>, alone: f64) -> String {
    let (plan, work) = (&contest.plan, &contest.work);
    format!(
        "The {} largest C files of PostgreSQL's server, `make -k -jN` with gcc -O2 -g, within\n\
         {} in all; medians of rounds: {}. By itself, -j{REFERENCE_JOBS}, it takes {alone:.1} s.\n\
         Objects: those of every run that ended were {} bytes, all the same as without a limit;\n\
         `failed` counts those that are missing. The kernel's zswap and zram have a limit such\n\
         that limit and pool are that much, as far as it goes; `held` is what was reached. Pages\n\
         in and out are those of a disk: what zswap and zram keep is not among them, and ours are\n\
         compressed. Faults waited for a page from a pool or the disk: not for one that was\n\
         read ahead, or that the kernel's swap cache or our limbo still had. The sum is that\n\
         of the mail on zswap, of all three. CPU: with the kernel's work in the compilers and\n\
         our threads; per cent are of one processor. Our threads run before others where they\n\
         may: on a busy machine, believe CPU s and not seconds.",
        work.files(),
        show(plan.memory),
        plan.rounds,
        work.bytes(),
    )
}

/// Returns the goals, judged by the measured figures.
fn goals(blocks: &[Block]) -> Vec<Goal> {
    let Some(last) = blocks.last() else { return Vec::new() };
    let jobs = last.jobs;
    let zswap = Contestant::Kernel(ZSWAP);
    let at = format!("-j{jobs}, by {}", BASE.name());
    let goals = [
        most(
            last.ratio(OURS, zswap, |figures| figures.seconds),
            TIME_MAX,
            format!("-j{jobs}: time no more than over {}", zswap.name()),
        ),
        most(
            last.ratio(OURS, BASE, Figures::disk_pages),
            IO_MAX,
            format!("{at}: pages from disk and to it {:+.0} %", percent(IO_MAX)),
        ),
        most(
            last.ratio(OURS, BASE, Figures::sum),
            IO_MAX,
            format!("{at}: with faults, the published sum, {:+.0} %", percent(IO_MAX)),
        ),
        none_fails(blocks),
    ];
    goals.into_iter().flatten().collect()
}

/// Returns the goal that no compile fails in any run over coldpress.
fn none_fails(blocks: &[Block]) -> Option<Goal> {
    let lines: Vec<_> = blocks.iter().filter_map(|block| block.line(OURS)).collect();
    let failed: u32 = lines.iter().map(|line| line.failed()).sum();
    let turns: usize = lines.iter().map(|line| line.turns.len()).sum();
    (turns > 0).then(|| Goal {
        text: "no compile fails".to_owned(),
        found: format!("{failed} in {turns} builds"),
        met: failed == 0,
    })
}

#[cfg(test)]
mod tests {
    //! The risk: a wrong figure meets a goal, or a build passes that did not do its work.
    use super::super::pressure::figures::{Line, Turn};
    use super::*;
    use serde_json::Value;

    fn line(contestant: Contestant, pages: u64, seconds: f64, failed: u32) -> Line {
        let figures = Figures {
            pages_in: pages,
            pages_out: pages,
            faults: 10,
            disk: Bytes(0),
            seconds,
            cpu_seconds: 1.0,
        };
        let turn = |figures, failed| Turn {
            figures,
            pool: Bytes(0),
            held: Bytes(0),
            kills: 0,
            failed,
            stats: Value::Null,
        };
        let mut turns = vec![turn(Some(figures), 0)];
        turns.extend((failed > 0).then(|| turn(None, failed)));
        Line { contestant, limit: Bytes(0), turns }
    }

    #[test]
    fn goals_are_about_the_highest_pressure_and_failures_about_all() {
        let block = |jobs, ours| {
            let lines = vec![line(BASE, 100, 50.0, 0), line(Contestant::Kernel(ZSWAP), 0, 30.0, 0)];
            Block { jobs, lines: lines.into_iter().chain([ours]).collect() }
        };
        let blocks = [block(8, line(OURS, 90, 90.0, 3)), block(16, line(OURS, 18, 33.0, 0))];
        let found: Vec<_> = goals(&blocks).into_iter().map(|it| (it.found, it.met)).collect();
        let wanted =
            [("+10 %", false), ("-82 %", true), ("-78 %", false), ("3 in 3 builds", false)];
        assert_eq!(found, wanted.map(|(found, met)| (found.to_owned(), met)));
        assert_eq!(goals(&blocks[1..]).len(), 4);
        assert!(goals(&[]).is_empty());
    }
}
