//! `coldpress-bench fault`: the time of one fault on a compressed page, as the waiting program sees
//! it.
//!
//! A program of one thread touches random pages of more data than its budget holds, and times each
//! touch. There is no disk and the pool may take most of the budget, so every fault is served from
//! the pool or from limbo. Each round first has the program stay on one processor, where the
//! handler follows it, and then lets the scheduler place it: whenever the scheduler moves it to an
//! idle processor, one fault pays for a wake-up there. Each round also times first touches of fresh
//! memory without coldpress: the kernel's own minor faults, the floor for any fault.

use std::ffi::OsString;

use clap::Args;
use coldpress_common::failure::Result;
use coldpress_common::size::{parse_size, show};
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::against::{AgainstArgs, Contest};
use super::common::{Common, Rounds, parse_budget};
use super::launch::{self, Launcher, failed, number, run, stats_in};
use super::pages::FAULT_NS_MIN;
use crate::progress::note;
use crate::report::{Goal, Report, Table};
use crate::statistics::Sample;

/// The goal for the median fault, with the handler on the CPU of the program's thread.
const MEDIAN_US_GOAL: f64 = 12.0;
/// The number of rounds, unless the user asks for another.
const ROUNDS: u32 = 3;
/// The number of accesses in a round with --quick.
const ACCESSES_QUICK: u32 = 5_000;
/// The share of the budget that the pool may take, in percent: data of twice the budget fit without
/// a disk.
const POOL_PERCENT: &str = "80";

/// The columns of times, with the keys of the workload's JSON.
const TIMES: [(&str, &str); 5] = [
    ("p10 us", "p10_us"),
    ("p50 us", "p50_us"),
    ("p90 us", "p90_us"),
    ("p99 us", "p99_us"),
    ("mean us", "mean_us"),
];
/// The columns of counts over a whole run, the filling of memory included, with the keys of
/// `--stats`.
const COUNTS: [(&str, &str); 8] = [
    ("faults", "faults"),
    ("first touch", "first_touch_faults"),
    ("limbo", "limbo_faults"),
    ("pool", "swap_in_pages"),
    ("stored", "swap_out_pages"),
    ("ratio", "ratio"),
    ("from disk", "read_back_pages"),
    ("cpu moves", "migrations"),
];

/// The options of `coldpress-bench fault`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FaultArgs {
    /// Data of the workload, compressible 2.5 to 1
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub(crate) data: Bytes,

    /// Its budget; large enough that all data stay in memory, for there is no disk
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = parse_budget)]
    pub(crate) memory: Bytes,

    /// Random accesses in a round
    #[arg(long, value_name = "N", default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) accesses: u32,

    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The figures of one round.
struct Round {
    /// The figures of the program within a budget, on one processor.
    seen: Value,
    /// The statistics of that run (`coldpress run --stats`).
    stats: Value,
    /// The figures of the same program where the scheduler placed it.
    placed: Value,
    /// The figures of a program on fresh memory, without a budget.
    plain: Value,
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(launcher: &Launcher, args: &FaultArgs) -> Result<Report> {
    if let Some(contest) = Contest::new(launcher, &args.against, &args.rounds)? {
        return compare(contest, args);
    }
    let count = args.rounds.or(ROUNDS, &args.common);
    let rounds = (0..count)
        .map(|index| {
            note(format!("fault: round {} of {count}", index + 1));
            round(launcher, args)
        })
        .collect::<Result<Vec<_>>>()?;
    let (mut times, medians) = table_of_times(&rounds)?;
    times.row(row(
        "median of rounds, one CPU",
        TIMES.iter().map(|(_, key)| median_of(&rounds, key)),
    )?);
    let found = format!(
        "{:.2} us ({:.2} to {:.2} over {} rounds)",
        medians.median(),
        medians.least(),
        medians.most(),
        rounds.len()
    );
    let goal = Goal {
        text: format!("median < {MEDIAN_US_GOAL} us, handler on the same CPU"),
        found,
        met: medians.median() < MEDIAN_US_GOAL,
    };
    let about = format!(
        "Random touches of single pages, one thread: {} of data, compressible 2.5 to 1, within\n\
         {}, no disk, pool up to {POOL_PERCENT} %. Touches slower than {} us count as faults.",
        show(args.data),
        show(args.memory),
        FAULT_NS_MIN / 1000
    );
    let tables = vec![times, table_of_touches(&rounds)?, table_of_counts(&rounds)?];
    let to_json = |round: &Round| {
        let Round { seen, stats, placed, plain } = round;
        json!({ "seen": seen, "stats": stats, "placed": placed, "plain": plain })
    };
    let numbers = json!({
        "data_bytes": args.data.0,
        "memory_bytes": args.memory.0,
        "threshold_ns": FAULT_NS_MIN,
        "median_us": medians.median(),
        "median_us_goal": MEDIAN_US_GOAL,
        "rounds": rounds.iter().map(to_json).collect::<Vec<_>>(),
    });
    Ok(Report { name: "fault", about, tables, goals: vec![goal], numbers })
}

/// Runs the benchmark against another build and returns the report.
fn compare(mut contest: Contest<'_>, args: &FaultArgs) -> Result<Report> {
    let workload = Workload::of(args);
    for (name, is_pinned) in [("one CPU", true), ("as scheduled", false)] {
        let names = ["p50", "mean", "p99"].map(|figure| format!("fault, {name}, {figure}, us"));
        contest.turns(&format!("fault, {name}"), names, |launcher| {
            let (seen, _) = managed(launcher, args, &workload.words(is_pinned))?;
            Ok([number(&seen, "p50_us")?, number(&seen, "mean_us")?, number(&seen, "p99_us")?])
        })?;
    }
    let about = format!("Random touches of {} within {}.", show(args.data), show(args.memory));
    Ok(contest.report("fault-against", &about))
}

/// The arguments of the workload.
struct Workload {
    data: String,
    accesses: String,
}

impl Workload {
    fn of(args: &FaultArgs) -> Self {
        let accesses = if args.common.quick { ACCESSES_QUICK } else { args.accesses };
        Self { data: args.data.0.to_string(), accesses: accesses.to_string() }
    }

    fn words(&self, is_pinned: bool) -> Vec<&str> {
        let mut words = vec!["fault", "--data", &self.data, "--accesses", &self.accesses];
        words.extend(is_pinned.then_some("--pinned"));
        words
    }
}

fn round(launcher: &Launcher, args: &FaultArgs) -> Result<Round> {
    let workload = Workload::of(args);
    let first_touch = ["first-touch", "--data", &workload.data];
    let plain = run(&mut launch::workload(&first_touch))?.printed;
    let (placed, _) = managed(launcher, args, &workload.words(false))?;
    let (seen, stats) = managed(launcher, args, &workload.words(true))?;
    Ok(Round { seen, stats, placed, plain })
}

/// Runs the workload within the budget. Returns what it measured, and the statistics of `--stats`.
fn managed(launcher: &Launcher, args: &FaultArgs, workload: &[&str]) -> Result<(Value, Value)> {
    let directory =
        tempfile::tempdir().map_err(|error| failed(format!("no directory: {error}")))?;
    let file = directory.path().join("stats.json");
    let memory = args.memory.0.to_string();
    let mut options: Vec<OsString> =
        ["--disk", "none", "--max-pool-percent", POOL_PERCENT, "--memory", &memory, "--stats"]
            .map(OsString::from)
            .to_vec();
    options.push(file.clone().into_os_string());
    let workload = launch::workload(workload);
    let seen = run(&mut launcher.managed(&options, &workload))?.printed;
    let stats = stats_in(&file).ok_or_else(|| failed("a run left no statistics".to_owned()))?;
    if number(&seen, "faults")? == 0.0 {
        return Err(failed("no touch was a fault: the data fit the budget".to_owned()));
    }
    Ok((seen, stats))
}

/// Returns the table of the times of each round, and the medians of the faults.
fn table_of_times(rounds: &[Round]) -> Result<(Table, Sample)> {
    let mut head = vec!["time of a touch"];
    head.extend(TIMES.iter().map(|(title, _)| title));
    let mut table = Table::new(&head);
    for (index, round) in rounds.iter().enumerate() {
        for (name, times) in [
            ("fault, one CPU", &round.seen),
            ("fault, as scheduled", &round.placed),
            ("plain minor fault", &round.plain),
        ] {
            let name = format!("{name}, round {}", index + 1);
            table.row(row(&name, TIMES.iter().map(|(_, key)| number(times, key)))?);
        }
    }
    let medians = rounds.iter().map(|round| number(&round.seen, "p50_us"));
    let medians = Sample::new(medians.collect::<Result<Vec<_>>>()?);
    Ok((table, medians.ok_or_else(|| failed("no round".to_owned()))?))
}

fn median_of(rounds: &[Round], key: &str) -> Result<f64> {
    let values: Result<Vec<_>> = rounds.iter().map(|round| number(&round.seen, key)).collect();
    Ok(Sample::new(values?).map_or(0.0, |sample| sample.median()))
}

fn row(name: &str, values: impl Iterator<Item = Result<f64>>) -> Result<Vec<String>> {
    let cells = values.map(|value| Ok(format!("{:.2}", value?)));
    std::iter::once(Ok(name.to_owned())).chain(cells).collect()
}

/// Returns the table of what the program measured after its memory was full.
fn table_of_touches(rounds: &[Round]) -> Result<Table> {
    let mut table =
        Table::new(&["touches", "made", "faults", "share %", "faults/s", "wrong pages"]);
    for (index, Round { seen, .. }) in rounds.iter().enumerate() {
        let (made, faults) = (number(seen, "accesses")?, number(seen, "faults")?);
        table.row(vec![
            format!("round {}", index + 1),
            made.to_string(),
            faults.to_string(),
            format!("{:.1}", 100.0 * faults / made),
            format!("{:.0}", faults / number(seen, "seconds")?),
            number(seen, "wrong_pages")?.to_string(),
        ]);
    }
    Ok(table)
}

/// Returns the table of what coldpress counted over whole runs.
fn table_of_counts(rounds: &[Round]) -> Result<Table> {
    let mut head = vec!["counted, filling included"];
    head.extend(COUNTS.iter().map(|(title, _)| title));
    head.push("pool share %");
    let mut table = Table::new(&head);
    for (index, Round { stats, .. }) in rounds.iter().enumerate() {
        let counts = COUNTS.iter().map(|(_, key)| Ok(number(stats, key)?.to_string()));
        let mut cells = vec![format!("round {}", index + 1)];
        cells.extend(counts.collect::<Result<Vec<_>>>()?);
        let (pool, limbo) = (number(stats, "swap_in_pages")?, number(stats, "limbo_faults")?);
        cells.push(format!("{:.1}", 100.0 * pool / (pool + limbo).max(1.0)));
        table.row(cells);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::common::defaults;

    #[test]
    fn the_data_of_the_fault_bench_need_the_pool_and_fit_it() {
        let args: FaultArgs = defaults();
        assert!(args.data > args.memory);
        // A full pool holds 0.8 times 2.5 of the budget; the rest, less limbo, is resident.
        let room = args.memory.0 as f64 * (0.8 * 2.5 + 0.2 - 1.0 / 16.0);
        assert!((args.data.0 as f64) < room);
    }
}
