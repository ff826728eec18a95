//! `coldpress-bench start`: the time that coldpress adds to a program that does nothing, and to
//! every process of a script that runs inside.
//!
//! The program that starts the script times it, inside the run. So the rest is the price of the
//! preload library in each process.

use std::process::Command;

use clap::Args;
use coldpress_common::failure::Result;
use serde_json::{Value, json};

use super::against::{AgainstArgs, Contest};
use super::common::{Common, Rounds};
use super::launch::{self, Launcher, Outcome, failed, run};
use crate::progress::note;
use crate::report::{Goal, Report, Table};
use crate::statistics::{Pair, Paired, alternate};

/// The goal: the median of paired differences.
const START_MS_GOAL: f64 = 10.0;
/// The number of rounds, unless the user asks for another.
const ROUNDS: u32 = 101;
/// The options of a budget that the program never exhausts.
const OPTIONS: [&str; 4] = ["--memory", "64M", "--disk", "none"];
/// The number of processes that the script starts.
pub(super) const SCRIPT_PROCESSES: u32 = 35;
/// The number of the script's processes, its shell included.
const PROCESSES: f64 = (SCRIPT_PROCESSES + 1) as f64;

/// The options of `coldpress-bench start`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(launcher: &Launcher, args: &StartArgs) -> Result<Report> {
    if let Some(contest) = Contest::new(launcher, &args.against, &args.rounds)? {
        return beside(contest);
    }
    let rounds = args.rounds.or(ROUNDS, &args.common);
    note(format!("start: true, {rounds} rounds"));
    let pairs = alternate(rounds, |side| launcher.run(side, &OPTIONS, Command::new("true")))?;
    let start = compare(&pairs, |outcome| 1e3 * outcome.seconds)?;
    note(format!("start: script, {rounds} rounds"));
    let pairs = alternate(rounds, |side| {
        let outcome = launcher.run(side, &OPTIONS, launch::workload(&["script"]))?;
        us_of_a_process(&outcome)
    })?;
    let process = compare(&pairs, |us| *us)?;
    let mut table = Table::new(&["time", "plain", "coldpress", "median difference", "p10 to p90"]);
    table.row(cells("true, ms", &start));
    table.row(cells("a process of a script, us", &process));
    let goal = Goal {
        text: format!("start adds < {START_MS_GOAL} ms"),
        found: format!(
            "{:.2} ms (p10 {:.2}, p90 {:.2})",
            start.differences.median(),
            start.differences.percentile(10.0),
            start.differences.percentile(90.0)
        ),
        met: start.differences.median() < START_MS_GOAL,
    };
    let about = format!(
        "`true`, and a shell script of {SCRIPT_PROCESSES} times /bin/true in one run, timed inside \
         it; {rounds} rounds."
    );
    let numbers = json!({
        "start_ms_goal": START_MS_GOAL,
        "rounds": rounds,
        "start_ms": to_json(&start),
        "process_us": to_json(&process),
    });
    Ok(Report { name: "start", about, tables: vec![table], goals: vec![goal], numbers })
}

/// Runs the benchmark against another build and returns the report.
fn beside(mut contest: Contest<'_>) -> Result<Report> {
    contest.turns("start, true", ["true, ms".to_owned()], |launcher| {
        let outcome = run(&mut launcher.managed(&OPTIONS, &Command::new("true")))?;
        Ok([1e3 * outcome.seconds])
    })?;
    contest.turns("start, script", ["a process of a script, us".to_owned()], |launcher| {
        let script = launch::workload(&["script"]);
        Ok([us_of_a_process(&run(&mut launcher.managed(&OPTIONS, &script))?)?])
    })?;
    let about = format!("`true`, and a shell script of {SCRIPT_PROCESSES} times /bin/true.");
    Ok(contest.report("start-against", &about))
}

/// Returns the microseconds of a process that the script reported.
fn us_of_a_process(outcome: &Outcome) -> Result<f64> {
    Ok(1e6 * outcome.number("seconds")? / PROCESSES)
}

fn compare<T>(pairs: &[Pair<T>], of: impl Fn(&T) -> f64) -> Result<Paired> {
    Paired::new(pairs, of).ok_or_else(|| failed("no pair".to_owned()))
}

fn cells(name: &str, paired: &Paired) -> Vec<String> {
    let differences = &paired.differences;
    vec![
        name.to_owned(),
        format!("{:.2}", paired.plain.median()),
        format!("{:.2}", paired.managed.median()),
        format!("{:.2}", differences.median()),
        format!("{:.2} to {:.2}", differences.percentile(10.0), differences.percentile(90.0)),
    ]
}

fn to_json(paired: &Paired) -> Value {
    json!({
        "plain": paired.plain.median(),
        "managed": paired.managed.median(),
        "difference": paired.differences.median(),
        "difference_p10": paired.differences.percentile(10.0),
        "difference_p90": paired.differences.percentile(90.0),
    })
}
