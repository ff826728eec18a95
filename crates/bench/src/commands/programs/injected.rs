//! Dynamic programs of Go, with the library from their loader and put in while they run: both ways
//! must cost the same.
//!
//! A static program that takes LD_PRELOAD away and becomes the program keeps the loader from it. So
//! coldpress finds it without the library, and puts the library in once it holds 4 MiB.

use coldpress_common::failure::Result;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::contest::{Contest, Program};
use super::jobs::Job;
use crate::commands::launch::{failed, number};
use crate::commands::start::kinds::STATIC;
use crate::progress::note;
use crate::report::{Goal, Table};
use crate::statistics::Sample;

/// The programs.
const NAMES: [&str; 2] = ["prometheus", "restic"];
/// The goal: how far the times may be apart.
const RATIO_GOAL: f64 = 1.05;
/// The rounds for each round of the contest: short ones, whose ratio shall be known to a percent.
const ROUNDS: u32 = 4;

/// The seconds of a program's turns, round by round.
struct Line {
    name: &'static str,
    budget: Bytes,
    plain: Vec<f64>,
    preloaded: Vec<f64>,
    injected: Vec<f64>,
}

/// Measures those of `jobs` that are such programs. Also returns figures as JSON.
pub(super) fn measure(
    contest: &Contest<'_>,
    jobs: &[&Job],
) -> Result<Option<(Table, Vec<Goal>, Value)>> {
    let is_one = |job: &&&Job| NAMES.contains(&job.name) && job.lacks().is_none();
    let jobs: Vec<&Job> = jobs.iter().filter(is_one).copied().collect();
    let directory = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    let Ok(bare) = STATIC.make(directory.path()) else { return Ok(None) };
    let words = format!("{} bare", bare.display());
    let lines: Vec<_> =
        jobs.into_iter().map(|job| of_job(contest, job, &words)).collect::<Result<_>>()?;
    Ok((!lines.is_empty()).then(|| report(&lines)))
}

fn of_job(contest: &Contest<'_>, job: &Job, bare: &str) -> Result<Line> {
    let name = job.name;
    note(format!("programs: {name}: what it holds"));
    let program = contest.ready(job)?;
    let budget = Bytes(contest.held_by_itself(&program)?.0 / 2);
    let memory = budget.0.to_string();
    let mut line = Line { name, budget, plain: vec![], preloaded: vec![], injected: vec![] };
    let rounds = contest.rounds * ROUNDS;
    for round in 0..rounds as usize {
        note(format!("programs: {name}, by preload and injection: round {round} of {rounds}"));
        for turn in 0..3 {
            match (round + turn) % 3 {
                0 => line.plain.push(contest.alone(&program)?.seconds),
                1 => line.preloaded.push(contest.ours(&program, &memory)?.0.seconds),
                _ => line.injected.push(injected(contest, &program, &memory, bare)?),
            }
        }
    }
    Ok(line)
}

/// Runs the program without the library at its start. All of it must be managed.
fn injected(contest: &Contest<'_>, program: &Program<'_>, memory: &str, bare: &str) -> Result<f64> {
    let (turn, stats) = contest.ours(&program.started_by(bare), memory)?;
    let (stored, unmanaged) =
        (number(&stats, "swap_out_pages")?, number(&stats, "unmanaged_processes")?);
    if stored == 0.0 || unmanaged > 0.0 {
        return Err(failed(format!("the library was not put in: {stored}, {unmanaged}")));
    }
    Ok(turn.seconds)
}

fn report(lines: &[Line]) -> (Table, Vec<Goal>, Value) {
    let mut table = Table::new(&[
        "Go, dynamic: seconds",
        "without",
        "preloaded",
        "injected",
        "injected by preloaded",
        "p10 to p90",
        "budget, MiB",
    ]);
    let (mut goals, mut numbers) = (Vec::new(), Vec::new());
    for line in lines {
        let median = |values: &[f64]| Sample::new(values.iter().copied()).map(|it| it.median());
        let cell = |values: &[f64]| {
            median(values).map_or_else(String::new, |seconds| format!("{seconds:.2}"))
        };
        let both = line.injected.iter().zip(&line.preloaded);
        let Some(ratios) = Sample::new(both.map(|(injected, preloaded)| injected / preloaded))
        else {
            continue;
        };
        let (low, high) = (ratios.percentile(10.0), ratios.percentile(90.0));
        table.row(vec![
            line.name.to_owned(),
            cell(&line.plain),
            cell(&line.preloaded),
            cell(&line.injected),
            format!("{:.3}", ratios.median()),
            format!("{low:.3} to {high:.3}"),
            (line.budget.0 >> 20).to_string(),
        ]);
        let ratio = ratios.median();
        goals.push(Goal {
            text: format!("{}: injected by preloaded within 5 %", line.name),
            found: format!("{ratio:.3} (p10 {low:.3}, p90 {high:.3})"),
            met: (1.0 / RATIO_GOAL..=RATIO_GOAL).contains(&ratio),
        });
        numbers.push(json!({ "program": line.name, "budget_bytes": line.budget.0,
            "plain_s": line.plain, "preloaded_s": line.preloaded, "injected_s": line.injected,
            "injected_by_preloaded": ratio }));
    }
    (table, goals, numbers.into())
}
