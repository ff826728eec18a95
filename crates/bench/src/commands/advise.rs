//! `coldpress-bench advise`: the time that `coldpress advise --curve` predicts within a budget,
//! beside the time that a run within it takes.
//!
//! 1. No run that predicts is within a budget that is measured: that fails the program.
//! 2. A program runs once before, so that its files are in the page cache, and its output is known.
//! 3. What a run prints is compared with that.

mod jobs;
pub(super) mod options;
mod verdicts;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use coldpress_common::failure::{Failure, Result};
use coldpress_sys::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::launch::{Launcher, failed, forget_settings, number, stats_in};
use super::name_missing;
use super::programs::jobs::Job;
use crate::interrupt;
use crate::progress::note;
use crate::report::{Report, Table};
use options::AdviseArgs;
use verdicts::{Pair, Row, goals};

/// The budgets that are measured, in percent of what the program holds by itself.
const PERCENTS: [usize; 3] = [75, 50, 35];
/// How near to such a budget no run that predicts may be, as a part of it.
const NEAR: f64 = 0.05;

/// Runs the benchmark and returns its report.
pub(super) fn measure(launcher: &Launcher, args: &AdviseArgs) -> Result<Report> {
    let is_wanted = |name: &str| args.program.is_empty() || args.program.contains(&name);
    let (mut rows, mut missing) = (before(&args.with)?, Vec::new());
    for job in jobs::all().into_iter().filter(|job| is_wanted(job.name)) {
        if rows.iter().any(|row| row.program == job.name) {
            continue;
        }
        match row(launcher, args, job) {
            Ok(row) => rows.push(row),
            Err(why) => {
                interrupt::check().map_err(|error| failed(error.to_string()))?;
                missing.push(format!("{}: {}", job.name, why.cause));
            }
        }
    }
    rows.sort_by_key(|row| jobs::NAMES.iter().position(|name| *name == row.program));
    let mut about = format!(
        "The time that `coldpress advise --curve --runs {}` predicts, beside that of a run, and\n\
         the waits of both: seconds. Budgets are parts of what the program holds by itself. No\n\
         run that predicts was within 5 % of such a budget.",
        args.runs
    );
    name_missing(&mut about, &missing);
    let numbers = json!({
        "runs": args.runs,
        "missing": missing,
        "programs": rows.iter().map(Row::json).collect::<Value>(),
    });
    Ok(Report { name: "advise", about, tables: vec![table(&rows)], goals: goals(&rows), numbers })
}

/// Reads what was measured before.
fn before(files: &[PathBuf]) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for file in files {
        let wrong = |why: String| {
            let cause = format!("cannot take {}: {why}", file.display());
            Failure::ours(cause, "name a file that `coldpress-bench advise --json` has written")
        };
        let text = fs::read(file).map_err(|error| wrong(error.to_string()))?;
        let document: Value =
            serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        for value in document["advise"]["programs"].as_array().into_iter().flatten() {
            let row = Row::read(value);
            let row = row.ok_or_else(|| wrong("a program of it is not whole".to_owned()))?;
            if rows.iter().any(|known| known.program == row.program) {
                return Err(wrong(format!("{} was there before", row.program)));
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "program",
        "MiB",
        "alone",
        "budget",
        "predicted",
        "measured",
        "off",
        "waits predicted",
        "measured",
        "off",
    ]);
    for row in rows {
        for (percent, pair) in &row.pairs {
            table.row(vec![
                row.program.to_owned(),
                (row.peak.0 >> 20).to_string(),
                format!("{:.2}", row.alone),
                format!("{percent} %"),
                pair.time.map_or("not known".to_owned(), |time| format!("{time:.2}")),
                format!("{:.2}", pair.time_measured),
                off(pair.time_off()),
                pair.stall.map_or("not known".to_owned(), |stall| format!("{stall:.2}")),
                format!("{:.2}", pair.stall_measured),
                off(pair.stall_off()),
            ]);
        }
    }
    table
}

fn off(off: Option<f64>) -> String {
    off.map_or_else(|| "-".to_owned(), |off| format!("{:+.0} %", off * 100.0))
}

/// Measures one program.
fn row(launcher: &Launcher, args: &AdviseArgs, job: &Job) -> Result<Row> {
    if let Some(why) = job.lacks() {
        return Err(failed(why));
    }
    let place = TempDir::with_prefix_in("coldpress-bench-", &args.directory)
        .map_err(|error| failed(format!("{}: {error}", args.directory.display())))?;
    job.prepare(place.path()).map_err(|error| {
        failed(error.to_string().lines().last().unwrap_or("no files for it").to_owned())
    })?;
    let program = Program { launcher, args, job, place: place.path() };
    let wanted = program.alone()?;
    note(format!("advise: {}: predicting", job.name));
    let told = program.predicted()?;
    let peak = Bytes(number(&told, "peak_bytes")? as usize);
    let mut pairs = Vec::new();
    for percent in PERCENTS {
        let budget = Bytes(peak.0 / 100 * percent).pages_down().bytes();
        check_apart(&told, budget)?;
        note(format!("advise: {} in {percent} %", job.name));
        let (time_measured, stall_measured) = program.within(budget, &wanted)?;
        let at = |name| on_curve(&told, budget, name);
        let pair =
            Pair { time: at("time_ns"), time_measured, stall: at("stall_ns"), stall_measured };
        pairs.push((percent, pair));
    }
    let alone = number(&told, "time_ns")? / 1e9;
    Ok(Row { program: job.name, peak, alone, pairs, runs: told["runs"].clone() })
}

/// Fails when a run that predicts was within about that budget.
fn check_apart(told: &Value, budget: Bytes) -> Result<()> {
    let runs = told["runs"].as_array().into_iter().flatten();
    let budgets = runs.filter_map(|run| run["budget_bytes"].as_f64());
    let mut near = budgets.filter(|it| (it / budget.0 as f64 - 1.0).abs() < NEAR);
    match near.next() {
        Some(it) => Err(failed(format!("a run within {it} bytes predicts what it has measured"))),
        None => Ok(()),
    }
}

/// Returns the seconds of a curve at a budget, between its points; none outside them.
fn on_curve(told: &Value, budget: Bytes, name: &str) -> Option<f64> {
    let points = told["curve"].as_array()?;
    let at = |point: &Value| Some((point["budget_bytes"].as_f64()?, point[name].as_f64()? / 1e9));
    let budget = budget.0 as f64;
    points.windows(2).find_map(|two| {
        let ((above, first), (below, second)) = (at(&two[0])?, at(&two[1])?);
        let is_between = (below..=above).contains(&budget);
        is_between.then(|| second + (first - second) * (budget - below) / (above - below))
    })
}

/// A program with its files.
struct Program<'a> {
    launcher: &'a Launcher,
    args: &'a AdviseArgs,
    job: &'a Job,
    place: &'a Path,
}

impl Program<'_> {
    /// Returns what the program prints by itself.
    fn alone(&self) -> Result<Vec<u8>> {
        let mut command = self.job.command(self.place, "");
        forget_settings(&mut command);
        self.output(&mut command)
    }

    /// Returns what `coldpress advise` tells of the program.
    fn predicted(&self) -> Result<Value> {
        let runs = self.args.runs.to_string();
        let disk = self.args.directory.as_os_str();
        let words: [&OsStr; 6] = [
            "--curve".as_ref(),
            "--json".as_ref(),
            "--runs".as_ref(),
            runs.as_ref(),
            "--disk".as_ref(),
            disk,
        ];
        let mut command = self.launcher.advise(&words, &self.job.command(self.place, ""));
        forget_settings(&mut command);
        let output = self.output(&mut command)?;
        serde_json::from_slice(&output).map_err(|error| failed(format!("no advice: {error}")))
    }

    /// Runs the program within a budget. Returns its seconds and those that it waited.
    fn within(&self, budget: Bytes, wanted: &[u8]) -> Result<(f64, f64)> {
        let stats = self.place.join("coldpress-stats.json");
        let budget = budget.0.to_string();
        let [file, disk] = [&stats, self.args.directory.as_path()].map(|it| it.as_os_str());
        let options: [&OsStr; 6] = [
            "--memory".as_ref(),
            budget.as_ref(),
            "--stats".as_ref(),
            file,
            "--disk".as_ref(),
            disk,
        ];
        let mut command = self.launcher.managed(&options, &self.job.command(self.place, ""));
        forget_settings(&mut command);
        if self.output(&mut command)? != wanted {
            return Err(failed("WRONG OUTPUT".to_owned()));
        }
        let stats = stats_in(&stats).ok_or_else(|| failed("no statistics".to_owned()))?;
        Ok((number(&stats, "wall_ns")? / 1e9, number(&stats, "stall_ns")? / 1e9))
    }

    fn output(&self, command: &mut Command) -> Result<Vec<u8>> {
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = interrupt::output(command).map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(format!("it ended with {}", output.status)));
        }
        Ok(output.stdout)
    }
}

#[cfg(test)]
mod tests {
    //! The risk: what was measured counts as predicted.

    use super::*;

    #[test]
    fn what_is_predicted_lies_between_points_and_nowhere_else() {
        let point = |budget: u64, time: u64| json!({ "budget_bytes": budget, "time_ns": time });
        let told = json!({ "curve": [point(100, 1_000_000_000), point(50, 3_000_000_000)] });
        let at = |budget| on_curve(&told, Bytes(budget), "time_ns");
        assert_eq!([100, 75, 50].map(at), [Some(1.0), Some(2.0), Some(3.0)]);
        assert_eq!((at(49), at(101)), (None, None));
        assert_eq!(on_curve(&told, Bytes(75), "stall_ns"), None);
    }

    #[test]
    fn a_run_within_the_budget_that_is_measured_predicts_nothing() {
        let told = json!({ "runs": [{ "budget_bytes": null }, { "budget_bytes": 1000 }] });
        let is_apart = |budget| check_apart(&told, Bytes(budget)).is_ok();
        assert_eq!([1000, 1030, 970, 1100, 900].map(is_apart), [false, false, false, true, true]);
    }
}
