//! `coldpress-bench swap`: the same program over coldpress and over the kernel's swap, with the
//! same memory in total.
//!
//! A cgroup's limit does not include compressed pages: the pool of zram or of zswap lies beside it.
//! So each limit is set such that limit and pool add up to what coldpress gets; or coldpress gets
//! the sum of zram's limit and pool. The report gives the memory that a turn really held.
//!
//! What a turn measures depends on the pages, on the writes and on the threads, so each of these is
//! an option with several values, and all of them are measured with each other.
//!
//! 1. Contestants take turns, and a different one starts each round.
//! 2. A run in which the kernel killed a process has no figures but is counted.
//! 3. A turn in which others had the processors does not count, and is repeated.
//! 4. A contestant for which the machine lacks something is left out, and the reason is given.

mod contest;
mod data;
pub(super) mod figures;
pub(super) mod goals;
pub(super) mod options;
mod picture;
mod quiet;
#[cfg(test)]
mod samples;
mod tables;
mod workload;

use std::fs;
use std::thread;

use crate::report::Report;
use coldpress_common::failure::Result;
use coldpress_common::size::show;
use serde_json::json;

use super::against;
use super::common::{Choice, ContestArgs, defaults};
use super::launch::{Launcher, failed};
use super::{name_missing, sides};
use contest::Contest;
use data::Kind;
use options::SwapArgs;
pub(super) use workload::touch;

/// The kinds of pages and numbers of threads of a run of all benchmarks, which measures none but
/// the peer that ratios refer to: some 20 minutes.
const MODEST_PAGES: [Kind; 4] = [Kind::Heap, Kind::Ratio(1.8), Kind::Ratio(3.0), Kind::Ratio(6.0)];
const MODEST_THREADS: [u32; 4] = [1, 2, 4, 8];

/// Returns the options for a run of all benchmarks.
pub(super) fn modest() -> SwapArgs {
    let args: SwapArgs = defaults();
    let contest = ContestArgs { peer: vec![Choice::Peer(sides::JUDGE)], ..args.contest };
    let (pages, threads) = (MODEST_PAGES.to_vec(), MODEST_THREADS.to_vec());
    SwapArgs { pages, threads, contest, ..args }
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(launcher: &Launcher, args: &SwapArgs) -> Result<Report> {
    let draw = |text: &str| match &args.svg {
        Some(file) => fs::write(file, text)
            .map_err(|error| failed(format!("cannot write {}: {error}", file.display()))),
        None => Ok(()),
    };
    // Writes the picture's file before minutes of work, so that a file that cannot be written is
    // known at once.
    draw("")?;
    let contest = Contest::new(launcher, args)?;
    if let Some(mut builds) = against::Contest::new(launcher, &args.against, &args.contest.rounds)?
    {
        contest.against(&mut builds)?;
        let about = format!(
            "Touches of {}, with the part of that as the budget that the names say.",
            show(args.data)
        );
        return Ok(builds.report("swap-against", &about));
    }
    let (blocks, missing) = contest.hold()?;
    draw(&picture::picture(&blocks))?;
    let processors = thread::available_parallelism().map_or(0, usize::from);
    let goals = goals::all(&blocks, processors);
    let mut about = format!(
        "Touches of {}, each order for {} ms a turn, {} rounds; medians of rounds. The pages are\n\
         copies of those of a heap, made such that lz4 stores them as the second table says.\n\
         `total`: limit and pool of the kernel are together what coldpress gets.\n\
         `resident`: the limit is that share, and coldpress gets limit and pool of zram-lz4.\n\
         Something reads memory.stat beside the kernel's programs: else it kills more of them.\n\
         What it keeps of slots and objects, some 1.5 % of the pages, is not in its sum. CPU: of\n\
         all processes of a run, ours included, and of the kernel's threads.\n\
         us per fault: the mean of touches that took more than 2 us.",
        show(contest.plan.data),
        contest.plan.measure_ms,
        contest.plan.rounds
    );
    about.push_str(&tables::quietness(&blocks, contest.plan.rounds));
    name_missing(&mut about, &missing);
    let numbers = json!({
        "others_max": quiet::OTHERS_MAX,
        "data_bytes": contest.plan.data.0,
        "pages": contest.sources.iter().map(data::Source::json).collect::<Vec<_>>(),
        "rounds": contest.plan.rounds,
        "millis": contest.plan.measure_ms,
        "missing": missing,
        "goals": goals.iter().map(goals::Row::json).collect::<Vec<_>>(),
        "blocks": blocks.iter().map(figures::Block::json).collect::<Vec<_>>(),
    });
    let mut tables = vec![goals::table(&goals), data::table(&contest.sources)];
    tables.extend(blocks.iter().flat_map(tables::of_block));
    Ok(Report { name: "swap", about, tables, goals: Vec::new(), numbers })
}
