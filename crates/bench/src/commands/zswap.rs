//! `coldpress-bench zswap`: the table of zswap v4's mail again. Jobs like those of a compiler, a
//! growing number at a time, need more and more memory and have the same: over a swap file, over
//! the kernel's zswap, and over coldpress, with compression and without. Then the time that zswap
//! and its pool add to the codec's time for a page.
//!
//! [`super::pressure`] says how each contestant is measured.

mod jobs;
pub(super) mod options;
mod tables;

use std::process::Command;

use crate::codecs::pages::Pages;
use crate::codecs::sealing;
use crate::kernel::{Peer, Ran};
use crate::pools::Kind;
use crate::report::Report;
use crate::ticks::Stopwatch;
use crate::zswap;
use coldpress_codec::CodecId;
use coldpress_common::failure::Result;
use coldpress_common::size::show;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::common::{ContestArgs, Rounds, defaults};
use super::launch::{self, Launcher, failed, number};
use super::name_missing;
use super::pressure::contest::{Contest, Plan};
use super::pressure::tables::{OURS, table};
use super::pressure::{Contestant, Work, ZSWAP, figures};
pub(super) use jobs::{job, jobs};
use options::ZswapArgs;

/// The size that LZ4 makes of a page of a job.
const SEALED: Bytes = Bytes(1640);
/// The number of pages of text that zswap and the codec alone store and load, and the number of
/// rounds.
const PAGES: usize = 8192;
const ROUNDS: usize = 5;
/// The number of rounds of jobs, unless the user asks for another.
const TURNS: u32 = 3;

/// Returns the options for a run of all benchmarks, which has little time.
pub(super) fn modest() -> ZswapArgs {
    let contest = ContestArgs { rounds: Rounds { rounds: Some(1) }, ..defaults() };
    ZswapArgs { jobs: vec![8, 16, 24], contest, ..defaults() }
}

/// Jobs like those of a compiler.
struct Jobs {
    total: u32,
    largest: Bytes,
    is_threads: bool,
}

impl Work for Jobs {
    const BENCH: &'static str = "zswap";

    fn command(&self, jobs: u32) -> Result<Command> {
        let (jobs, total) = (jobs.to_string(), self.total.to_string());
        let largest = self.largest.0.to_string();
        let arguments = ["jobs", "--jobs", &jobs, "--total", &total, "--largest", &largest];
        let mut command = launch::workload(&arguments);
        command.args(self.is_threads.then_some("--threads"));
        Ok(command)
    }

    /// Returns 0. Fails unless all jobs came to their ends with the right pages, or the kernel
    /// killed a process.
    fn failed(&self, name: &str, ran: &Ran) -> Result<u32> {
        if ran.kills > 0 {
            return Ok(0);
        }
        if !ran.status.success() {
            return Err(failed(format!("{name}: the jobs ended with {}", ran.status)));
        }
        let printed: Value = serde_json::from_slice(&ran.output)
            .map_err(|error| failed(format!("{name}: the jobs printed no figures: {error}")))?;
        if number(&printed, "wrong_pages")? != 0.0 {
            return Err(failed(format!("{name}: WRONG PAGES were read: {printed}")));
        }
        Ok(0)
    }

    fn largest(&self, jobs: u32) -> Bytes {
        Bytes(self.largest.0 * jobs as usize)
    }
}

/// Returns the plan and the jobs.
fn plan(args: &ZswapArgs) -> (Plan, Jobs) {
    let ZswapArgs { jobs, total, largest, memory, .. } = args.clone();
    let (jobs, total, largest, memory) = if args.common.quick {
        (vec![2, 4], 4, Bytes::mib(10), Bytes::mib(16))
    } else {
        (jobs, total, largest, memory)
    };
    let peers = args.contest.peers(&[Peer::File, ZSWAP]).into_iter().map(Contestant::Kernel);
    let contestants = peers.chain([Contestant::Raw, OURS]).collect();
    let rounds = args.contest.rounds.or(TURNS, &args.common);
    let plan = Plan { jobs, memory, rounds, contestants };
    (plan, Jobs { total, largest, is_threads: args.threads })
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(launcher: &Launcher, args: &ZswapArgs) -> Result<Report> {
    let (plan, work) = plan(args);
    let contest = Contest::new(launcher, &args.contest.directory, plan, work)?;
    let (blocks, missing) = contest.hold()?;
    let watch = Stopwatch::learn();
    let pages = Pages::text(if args.common.quick { PAGES / 64 } else { PAGES }).test;
    let beside =
        zswap::measure(&pages, CodecId::Lz4, Kind::Zsmalloc16, ROUNDS, &watch).map_err(failed)?;
    let (beside_table, beside_goals) = zswap::table(&beside);
    let sealing = sealing::measure(SEALED, &watch)
        .map_err(|error| failed(format!("nothing can be encrypted: {error}")))?
        .ok_or_else(|| failed("an encrypted object came back wrong".to_owned()))?;
    let share = tables::Share::new(&blocks, &sealing);
    let mut goals = tables::goals(&blocks, &share);
    goals.extend(beside_goals);
    let (plan, work) = (&contest.plan, &contest.work);
    let mut about = about(plan, work);
    name_missing(&mut about, &missing);
    let numbers = json!({
        "memory_bytes": plan.memory.0,
        "total_jobs": work.total,
        "largest_bytes": work.largest.0,
        "threads": work.is_threads,
        "rounds": plan.rounds,
        "missing": missing,
        "encryption": share.json(),
        "beside_codec": beside.iter().map(zswap::PairedFigures::numbers).collect::<Vec<_>>(),
        "blocks": blocks.iter().map(figures::Block::json).collect::<Vec<_>>(),
    });
    let tables = vec![table(&blocks), beside_table];
    Ok(Report { name: "zswap", about, tables, goals, numbers })
}

fn about(plan: &Plan, work: &Jobs) -> String {
    format!(
        "{} jobs like those of a compiler, {} to {} each, as {}, within {} in all;\n\
         medians of rounds: {}. The kernel's zswap has a limit such that limit and pool are that\n\
         much, as far as it goes; `held` is what was reached. Pages in and out are those of the\n\
         disk: zswap's own are not among them, and ours are compressed. Faults waited for a\n\
         page from a pool or the disk: not for one that was read ahead, or that the kernel's\n\
         swap cache or our limbo still had. The sum is that of the mail on zswap, of all\n\
         three. Disk: what was moved, ours compressed, and less what the page cache still had.\n\
         CPU: with the kernel's work in the jobs and our threads; per cent are of one\n\
         processor. Our threads run before others where they may: on a busy machine, believe\n\
         CPU s and not seconds.",
        work.total,
        show(Bytes(work.largest.0 / 4)),
        show(work.largest),
        if work.is_threads { "threads of one process" } else { "processes" },
        show(plan.memory),
        plan.rounds
    )
}
