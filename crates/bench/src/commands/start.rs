//! `coldpress-bench start`: the time that coldpress adds to a program that does nothing, and to
//! every process of a script that runs inside; what it takes to put the library into programs of
//! each kind, at their exec and while they run; and what children of a busy parent take.
//!
//! The program that starts the script times it, inside the run. So the rest is the price of the
//! preload library in each process.

mod attach;
mod begin;
mod children;
pub(super) mod kinds;
pub(super) mod options;

use std::process::Command;

use coldpress_common::failure::Result;
use serde_json::{Map, Value, json};

use super::against::Contest;
use super::launch::{self, Launcher, Outcome, failed, run};
use super::name_missing;
use crate::progress::note;
use crate::report::{Goal, Report, Table};
use crate::statistics::{Pair, Paired, alternate};
pub(super) use children::{ChildrenArgs, children};
use kinds::{Programs, STATIC};
use options::{Part, StartArgs};

/// The goal: the median of paired differences.
const START_MS_GOAL: f64 = 10.0;
/// The number of rounds, unless the user asks for another.
const ROUNDS: u32 = 101;
/// The same for what is about programs of each kind.
const KIND_ROUNDS: u32 = 41;
const TOUCH_ROUNDS: u32 = 7;
const ATTACH_ROUNDS: u32 = 7;
const CHILDREN_ROUNDS: u32 = 4;
/// The options of a budget that the program never exhausts.
const OPTIONS: [&str; 4] = ["--memory", "64M", "--disk", "none"];
/// The number of processes that the script starts.
pub(super) const SCRIPT_PROCESSES: u32 = 35;
/// The number of the script's processes, its shell included.
const PROCESSES: f64 = (SCRIPT_PROCESSES + 1) as f64;

/// What was found so far.
#[derive(Default)]
struct Found {
    about: Vec<String>,
    tables: Vec<Table>,
    goals: Vec<Goal>,
    numbers: Map<String, Value>,
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(launcher: &Launcher, args: &StartArgs) -> Result<Report> {
    if let Some(contest) = Contest::new(launcher, &args.against, &args.rounds)? {
        return beside(contest);
    }
    let mut found = Found::default();
    if args.wants(Part::Script) {
        script(launcher, args.rounds.or(ROUNDS, &args.common), &mut found)?;
    }
    let of_kinds = [Part::Kinds, Part::Attach, Part::Children];
    if of_kinds.into_iter().any(|part| args.wants(part)) {
        let programs = Programs::make()
            .map_err(|error| failed(format!("no directory for programs: {error}")))?;
        of_programs(launcher, args, &programs, &mut found)?;
        let mut missing = String::new();
        name_missing(&mut missing, &programs.missing);
        found.about.extend(missing.lines().filter(|line| !line.is_empty()).map(str::to_owned));
    }
    let Found { about, tables, goals, numbers } = found;
    Ok(Report { name: "start", about: about.join("\n"), tables, goals, numbers: numbers.into() })
}

/// Measures what is about programs of each kind.
fn of_programs(
    launcher: &Launcher,
    args: &StartArgs,
    programs: &Programs,
    found: &mut Found,
) -> Result<()> {
    let rounds = |usual| args.rounds.or(usual, &args.common);
    if args.wants(Part::Kinds) {
        let count = rounds(KIND_ROUNDS);
        found.about.push(format!(
            "Programs of each kind, {count} rounds. `begins`: from before the command until the \
             program's main. `stands still at its exec`: as the command tells it."
        ));
        begin::starts(launcher, &programs.all, count, found)?;
        let count = rounds(TOUCH_ROUNDS);
        found.about.push(format!("256 MiB touched for the first time in 64, {count} rounds."));
        begin::touches(launcher, &programs.all, count, found)?;
    }
    if args.wants(Part::Attach) {
        let count = rounds(ATTACH_ROUNDS);
        found.about.push(format!(
            "A program of each kind that reads the clock, attached to and left, {count} rounds: \
             the longest time it did not run. It holds 8 MiB, all in place; with pages away, 128 \
             in 32. `command leaves`: until `coldpress attach` has ended after its signal."
        ));
        attach::measure(launcher, &programs.all, count, found)?;
    }
    let small = programs.all.iter().find(|program| program.kind.name == STATIC.name);
    if let Some(program) = small.filter(|_| args.wants(Part::Children)) {
        let count = rounds(CHILDREN_ROUNDS);
        found.about.push(format!(
            "200 static children a second for 4 seconds, one of 20 grows to 16 MiB and gets the \
             library while it runs; {count} rounds, all children together."
        ));
        children::measure(launcher, program, count, found)?;
    }
    Ok(())
}

/// Measures `true`, and a script of many processes.
fn script(launcher: &Launcher, rounds: u32, found: &mut Found) -> Result<()> {
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
    found.tables.push(table);
    found.goals.push(Goal {
        text: format!("start adds < {START_MS_GOAL} ms"),
        found: format!(
            "{:.2} ms (p10 {:.2}, p90 {:.2})",
            start.differences.median(),
            start.differences.percentile(10.0),
            start.differences.percentile(90.0)
        ),
        met: start.differences.median() < START_MS_GOAL,
    });
    found.about.push(format!(
        "`true`, and a shell script of {SCRIPT_PROCESSES} times /bin/true in one run, timed inside \
         it; {rounds} rounds."
    ));
    let numbers = [
        ("start_ms_goal", json!(START_MS_GOAL)),
        ("rounds", json!(rounds)),
        ("start_ms", to_json(&start)),
        ("process_us", to_json(&process)),
    ];
    found.numbers.extend(numbers.map(|(key, value)| (key.to_owned(), value)));
    Ok(())
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

/// Shows a time in ms.
fn three(ms: f64) -> String {
    format!("{ms:.3}")
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
