//! `coldpress-bench fit`: the cost of coldpress to a program that never exhausts its budget.
//!
//! The time of a whole run includes the start of coldpress. The time inside is the program's own
//! and shows the effect on its work alone.

use std::process::Command;

use clap::Args;
use coldpress_common::failure::Result;
use coldpress_common::size::show;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::against::{AgainstArgs, Contest};
use super::common::{Common, Rounds, parse_budget};
use super::launch::{self, Launcher, failed, run};
use crate::commands::say;
use crate::progress::note;
use crate::report::{Goal, Report, Table};
use crate::statistics::{Paired, alternate};

/// The goal: the median of paired ratios of whole runs.
const RATIO_GOAL: f64 = 1.01;
/// The number of rounds, unless the user asks for another.
const ROUNDS: u32 = 60;

/// A Python job that hashes and sorts: about 1 s and 100 MB.
const PYTHON_JOB: &str = "\
import hashlib, time
start = time.perf_counter()
rows = {hashlib.sha256(b'%d' % i).hexdigest(): i for i in range(420000)}
total = hashlib.sha256()
for key in sorted(rows):
    total.update(key.encode())
print('{\"seconds\": %.6f}' % (time.perf_counter() - start))
";

/// The options of `coldpress-bench fit`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FitArgs {
    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    /// The budget, far above the 150 MB that a job takes
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_budget)]
    pub(crate) memory: Bytes,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// A program that both sides run.
struct Job {
    name: &'static str,
    command: Box<dyn Fn() -> Command>,
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(launcher: &Launcher, args: &FitArgs) -> Result<Report> {
    if let Some(contest) = Contest::new(launcher, &args.against, &args.rounds)? {
        return compare(contest, args);
    }
    let rounds = args.rounds.or(ROUNDS, &args.common);
    let memory = args.memory.0.to_string();
    let options = ["--memory", memory.as_str()];
    let mut table = Table::new(&[
        "job",
        "plain ms",
        "coldpress ms",
        "ratio of medians",
        "median paired ratio",
        "p10 to p90",
    ]);
    let (mut goals, mut numbers) = (Vec::new(), Vec::new());
    for job in jobs()? {
        note(format!("fit: {}, {rounds} rounds", job.name));
        let pairs = alternate(rounds, |side| {
            let outcome = launcher.run(side, &options, (job.command)())?;
            Ok((outcome.seconds, outcome.number("seconds")?))
        })?;
        for (what, is_whole) in [("whole", true), ("inside", false)] {
            let of = |(whole, inside): &(f64, f64)| if is_whole { *whole } else { *inside };
            let paired = Paired::new(&pairs, of).ok_or_else(|| failed("no pair".to_owned()))?;
            let name = format!("{}, {what}", job.name);
            if is_whole {
                goals.push(goal(&name, &paired));
            }
            numbers.push(to_json(&name, &paired));
            table.row(cells(name, &paired));
        }
    }
    let about = format!(
        "Jobs of a second and 100 MB within {}, {rounds} rounds. Whole runs hold the start of\n\
         coldpress, times inside do not.",
        show(args.memory)
    );
    let numbers = json!({ "ratio_goal": RATIO_GOAL, "rounds": rounds, "jobs": numbers });
    Ok(Report { name: "fit", about, tables: vec![table], goals, numbers })
}

/// Runs the benchmark against another build and returns the report.
fn compare(mut contest: Contest<'_>, args: &FitArgs) -> Result<Report> {
    let memory = args.memory.0.to_string();
    let options = ["--memory", memory.as_str()];
    for job in jobs()? {
        let names = ["whole", "inside"].map(|what| format!("{}, {what}, s", job.name));
        contest.turns(&format!("fit, {}", job.name), names, |launcher| {
            let outcome = run(&mut launcher.managed(&options, &(job.command)()))?;
            Ok([outcome.seconds, outcome.number("seconds")?])
        })?;
    }
    let about = format!("Jobs of a second and 100 MB within {}.", show(args.memory));
    Ok(contest.report("fit-against", &about))
}

fn jobs() -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    match python() {
        Some(path) => jobs.push(Job {
            name: "python3",
            command: Box::new(move || {
                let mut command = Command::new(&path);
                command.args(["-c", PYTHON_JOB]);
                command
            }),
        }),
        None => say("fit: there is no python3; its job is left out"),
    }
    jobs.push(Job { name: "allocate", command: Box::new(|| launch::workload(&["allocate"])) });
    Ok(jobs)
}

/// Returns the path of the interpreter itself: the file in PATH may be a script that takes longer
/// than the job.
fn python() -> Option<String> {
    let output =
        Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !path.is_empty()).then_some(path)
}

fn goal(name: &str, paired: &Paired) -> Goal {
    Goal::at_most(format!("{name}: ratio <= {RATIO_GOAL}"), &paired.ratios, RATIO_GOAL, 4)
}

fn cells(name: String, paired: &Paired) -> Vec<String> {
    let ratios = &paired.ratios;
    vec![
        name,
        format!("{:.1}", 1000.0 * paired.plain.median()),
        format!("{:.1}", 1000.0 * paired.managed.median()),
        format!("{:.4}", paired.ratio_of_medians()),
        format!("{:.4}", ratios.median()),
        format!("{:.4} to {:.4}", ratios.percentile(10.0), ratios.percentile(90.0)),
    ]
}

fn to_json(name: &str, paired: &Paired) -> Value {
    json!({
        "job": name,
        "plain_seconds": paired.plain.median(),
        "managed_seconds": paired.managed.median(),
        "ratio_of_medians": paired.ratio_of_medians(),
        "paired_ratio": paired.ratios.median(),
        "paired_ratio_p10": paired.ratios.percentile(10.0),
        "paired_ratio_p90": paired.ratios.percentile(90.0),
    })
}
