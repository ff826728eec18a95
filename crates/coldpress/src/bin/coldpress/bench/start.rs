//! `coldpress bench start`: what coldpress adds to a program that does nothing, and to every
//! process of a script that runs inside.
//!
//! The script is timed by the program that starts it, inside the run: what is left is the price of
//! the preload library in each process.

use std::process::Command;

use serde_json::{Value, json};

use super::against::Contest;
use super::launch::{Launcher, Outcome, failed, run};
use super::options::StartArgs;
use super::workload::SCRIPT_PROCESSES;
use crate::failure::Result;
use crate::say;
use coldpress_bench::report::{Goal, Report, Table};
use coldpress_bench::statistics::{Pair, Paired, alternate};

/// The goal: the median of paired differences.
const START_MS_GOAL: f64 = 10.0;
/// A budget that is never needed.
const OPTIONS: [&str; 4] = ["--memory", "64M", "--disk", "none"];
/// The script's processes and its shell.
const PROCESSES: f64 = (SCRIPT_PROCESSES + 1) as f64;

/// Measures.
pub(super) fn measure(launcher: &Launcher, args: &StartArgs) -> Result<Report> {
    if let Some(contest) = Contest::new(launcher, &args.against)? {
        return beside(contest);
    }
    say(format!("bench start: true, {} pairs", args.runs));
    let pairs = alternate(args.runs, |side| launcher.run(side, &OPTIONS, Command::new("true")))?;
    let start = compare(&pairs, |outcome| 1e3 * outcome.seconds)?;
    say(format!("bench start: script, {} pairs", args.runs));
    let pairs = alternate(args.runs, |side| {
        let outcome = launcher.run(side, &OPTIONS, launcher.workload(&["script"]))?;
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
         it; {} pairs\nin turn.",
        args.runs
    );
    let numbers = json!({
        "start_ms_goal": START_MS_GOAL,
        "pairs": args.runs,
        "start_ms": to_json(&start),
        "process_us": to_json(&process),
    });
    Ok(Report { name: "start", about, tables: vec![table], goals: vec![goal], numbers })
}

/// Measures beside another build.
fn beside(mut contest: Contest<'_>) -> Result<Report> {
    contest.turns("start, true", ["true, ms".to_owned()], |launcher| {
        let outcome = run(&mut launcher.managed(&OPTIONS, &Command::new("true")))?;
        Ok([1e3 * outcome.seconds])
    })?;
    contest.turns("start, script", ["a process of a script, us".to_owned()], |launcher| {
        let script = launcher.workload(&["script"]);
        Ok([us_of_a_process(&run(&mut launcher.managed(&OPTIONS, &script))?)?])
    })?;
    let about = format!("`true`, and a shell script of {SCRIPT_PROCESSES} times /bin/true.");
    Ok(contest.report("start-against", &about))
}

/// Of what the script told.
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
