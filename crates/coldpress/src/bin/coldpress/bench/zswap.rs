//! `coldpress bench zswap`: the table of the reference again. Jobs like those of a compiler, so
//! many at a time, need more and more memory and have the same: over a swap file, over the kernel's
//! zswap, and over coldpress, with compression and without. Then what zswap and its pool add to
//! what the codec takes for a page.
//!
//! 1. All have the same memory in all: of zswap, the limit of its cgroup and its pool together.
//! 2. Contestants take turns, and another one starts each round.
//! 3. A run in which the kernel killed has no figures but is counted.
//! 4. What the machine lacks is named, and left out.

mod build;
mod contest;
mod figures;
pub(super) mod options;
mod tables;

use coldpress_bench::codecs::pages::Pages;
use coldpress_bench::codecs::sealing;
use coldpress_bench::pools::Kind;
use coldpress_bench::report::Report;
use coldpress_bench::ticks::Stopwatch;
use coldpress_bench::zswap;
use coldpress_codec::CodecId;
use coldpress_sys::Bytes;
use serde_json::json;

use super::launch::{Launcher, failed};
use super::options::defaults;
use crate::failure::Result;
use crate::size::show;
pub(super) use build::{build, job};
use contest::{Contest, Plan};
use options::ZswapArgs;

/// What LZ4 makes of a page of a job.
const SEALED: Bytes = Bytes(1640);
/// Pages of text that zswap and the codec alone store and load, and how often.
const PAGES: usize = 8192;
const ROUNDS: usize = 5;

/// What a run of all benchmarks has time for.
pub(super) fn modest() -> ZswapArgs {
    ZswapArgs { jobs: vec![8, 16, 24], rounds: 1, ..defaults() }
}

/// Measures.
pub(super) fn measure(launcher: &Launcher, args: &ZswapArgs) -> Result<Report> {
    let contest = Contest::new(launcher, args)?;
    let (blocks, missing) = contest.hold()?;
    let watch = Stopwatch::learn();
    let pages = Pages::text(if args.quick { PAGES / 64 } else { PAGES }).test;
    let beside =
        zswap::measure(&pages, CodecId::Lz4, Kind::Zsmalloc16, ROUNDS, &watch).map_err(failed)?;
    let (beside_table, beside_goals) = zswap::table(&beside);
    let sealing = sealing::measure(SEALED, &watch)
        .map_err(|error| failed(format!("nothing can be encrypted: {error}")))?
        .ok_or_else(|| failed("an encrypted object came back wrong".to_owned()))?;
    let share = tables::Share::new(&blocks, &sealing);
    let mut goals = tables::goals(&blocks, &share);
    goals.extend(beside_goals);
    let plan = &contest.plan;
    let mut about = about(plan);
    for text in &missing {
        about.push_str("\nLeft out: ");
        about.push_str(text);
    }
    let numbers = json!({
        "memory_bytes": plan.memory.0,
        "total_jobs": plan.total,
        "largest_bytes": plan.largest.0,
        "threads": plan.is_threads,
        "rounds": plan.rounds,
        "missing": missing,
        "encryption": share.json(),
        "beside_codec": beside.iter().map(zswap::Found::numbers).collect::<Vec<_>>(),
        "blocks": blocks.iter().map(figures::Block::json).collect::<Vec<_>>(),
    });
    let tables = vec![tables::table(&blocks), beside_table];
    Ok(Report { name: "zswap", about, tables, goals, numbers })
}

fn about(plan: &Plan) -> String {
    format!(
        "{} jobs like those of a compiler, {} to {} each, as {}, within {} in all;\n\
         medians of rounds: {}. The kernel's zswap has a limit such that limit and pool are that\n\
         much, as far as it goes; `held` is what was reached. Pages in and out are those of the\n\
         disk: zswap's own are not among them, and ours are compressed. Faults waited for a page,\n\
         from a pool or the disk. The sum is that of the mail on zswap, of all three. Disk: what\n\
         was moved, ours compressed, and less what the page cache still had. CPU: with the\n\
         kernel's work in the jobs and our threads; per cent are of one processor. Our threads\n\
         run before others where they may: on a busy machine, believe CPU s and not seconds.",
        plan.total,
        show(Bytes(plan.largest.0 / 4)),
        show(plan.largest),
        if plan.is_threads { "threads of one process" } else { "processes" },
        show(plan.memory),
        plan.rounds
    )
}
