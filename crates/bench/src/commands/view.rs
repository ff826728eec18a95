//! `coldpress-bench view`: programs that size themselves, in half and a quarter of what they take
//! by themselves, shown the machine's memory or something else (`run --show-memory`).
//!
//! 1. The output of a program is compared with its output by itself.
//! 2. A run that fails or is stopped has no figures, and the report says so.

pub(super) mod jobs;
pub(super) mod options;

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use crate::interrupt;
use crate::report::{Goal, Report, Table};
use coldpress_common::failure::Result;
use coldpress_common::size::show;
use coldpress_sys::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::launch::{Launcher, failed, forget_settings, number, stats_in};
use super::name_missing;
use super::programs::jobs::Job;
use crate::progress::note;
use options::ViewArgs;

/// The values of `--show-memory`, in the order of the columns; the goals are about the last one.
const SHOWN: [&str; 5] = ["off", "1x", "2x", "4x", "auto"];
/// The budgets, as divisors of what the program takes by itself.
const PARTS: [usize; 2] = [2, 4];
/// A budget that no program here reaches.
const MOST: &str = "90%";
/// The goals: the time with `auto` relative to the best time; a JVM may take longer to collect
/// garbage.
const RATIO_GOAL: f64 = 1.5;
const RATIO_GOAL_JVM: f64 = 3.0;
/// The seconds that a stopped program has to end by itself: Erlang takes its time.
const GRACE: &str = "5";

/// The ending of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    /// The run printed what the program prints by itself: seconds, and the most that it held.
    Right(f64, Bytes),
    /// The run was stopped.
    Stopped,
    /// The run printed something else, or failed.
    Failed,
}

impl Ending {
    fn seconds(self) -> Option<f64> {
        match self {
            Self::Right(seconds, _) => Some(seconds),
            Self::Stopped | Self::Failed => None,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right(seconds, held) => write!(f, "{seconds:.1} ({})", held.0 >> 20),
            Self::Stopped => f.write_str("stopped"),
            Self::Failed => f.write_str("FAILED"),
        }
    }
}

/// A program within a budget, by the memory that it was shown.
struct Row {
    program: &'static str,
    budget: Bytes,
    endings: [Ending; SHOWN.len()],
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(launcher: &Launcher, args: &ViewArgs) -> Result<Report> {
    let is_wanted = |job: &&Job| args.program.is_empty() || args.program.contains(&job.name);
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    let mut plain = Table::new(&["by itself", "seconds", "MiB"]);
    for job in jobs::ALL.iter().filter(is_wanted) {
        let place = TempDir::with_prefix_in("coldpress-bench-", &args.directory);
        let place =
            place.map_err(|error| failed(format!("{}: {error}", args.directory.display())))?;
        let lacks =
            job.lacks().or_else(|| job.prepare(place.path()).err().map(|it| it.to_string()));
        if let Some(why) = lacks {
            missing.push(format!("{}: {}", job.name, why.lines().last().unwrap_or_default()));
            continue;
        }
        let program = Program { launcher, job, place: place.path(), args };
        let (seconds, held, output) = match program.by_itself() {
            Ok(found) => found,
            Err(error) => {
                missing.push(format!("{}: {error}", job.name));
                continue;
            }
        };
        plain.row(vec![job.name.to_owned(), format!("{seconds:.1}"), (held.0 >> 20).to_string()]);
        let parts = if args.common.quick { &PARTS[..1] } else { &PARTS[..] };
        for part in parts {
            let budget = Bytes(held.0 / part);
            note(format!("view: {} in {}", job.name, show(budget)));
            let endings = SHOWN.map(|shown| program.within(budget, shown, &output));
            rows.push(Row { program: job.name, budget, endings });
        }
    }
    Ok(report(&rows, plain, &missing, args))
}

fn report(rows: &[Row], plain: Table, missing: &[String], args: &ViewArgs) -> Report {
    let mut about = format!(
        "Programs that size themselves, in half and a quarter of what they hold by themselves, by\n\
         what is shown as the machine's memory: seconds, and the most held in MiB. One run each,\n\
         stopped after {} s.",
        args.limit
    );
    name_missing(&mut about, missing);
    let mut head = vec!["program", "budget, MiB"];
    head.extend(SHOWN);
    let mut table = Table::new(&head);
    for row in rows {
        let mut cells = vec![row.program.to_owned(), (row.budget.0 >> 20).to_string()];
        cells.extend(row.endings.iter().map(Ending::to_string));
        table.row(cells);
    }
    let all: Vec<Value> = rows.iter().map(json_of).collect();
    let numbers = json!({ "limit_seconds": args.limit, "rows": all });
    Report { name: "view", about, tables: vec![plain, table], goals: goals(rows), numbers }
}

fn json_of(row: &Row) -> Value {
    let ending = |ending: &Ending| match ending {
        Ending::Right(seconds, held) => json!({ "seconds": seconds, "held_bytes": held.0 }),
        Ending::Stopped => json!("stopped"),
        Ending::Failed => json!("failed"),
    };
    let shown = SHOWN.iter().zip(&row.endings).map(|(name, it)| ((*name).to_owned(), ending(it)));
    json!({
        "program": row.program,
        "budget_bytes": row.budget.0,
        "shown": Value::Object(shown.collect()),
    })
}

/// Returns the goals: what `auto` must not do, and how near it has to come to the best.
fn goals(rows: &[Row]) -> Vec<Goal> {
    let worse = |row: &&Row| {
        let [off, .., auto] = row.endings;
        auto == Ending::Failed && off != Ending::Failed
    };
    let worse: Vec<_> = rows.iter().filter(worse).map(|row| row.program).collect();
    let mut goals = vec![Goal {
        text: "nothing fails with auto that does not with off".to_owned(),
        found: if worse.is_empty() { "nothing".to_owned() } else { worse.join(", ") },
        met: worse.is_empty(),
    }];
    for row in rows {
        let best = row.endings.iter().filter_map(|ending| ending.seconds());
        let Some(best) = best.reduce(f64::min) else { continue };
        let most = if row.program.starts_with("java") { RATIO_GOAL_JVM } else { RATIO_GOAL };
        let [.., auto] = row.endings;
        let ratio = auto.seconds().map(|seconds| seconds / best);
        goals.push(Goal {
            text: format!("{} in {}: auto by the best <= {most}", row.program, show(row.budget)),
            found: ratio.map_or_else(|| auto.to_string(), |ratio| format!("{ratio:.2}")),
            met: ratio.is_some_and(|ratio| ratio <= most),
        });
    }
    goals
}

/// A program with its files.
struct Program<'a> {
    launcher: &'a Launcher,
    job: &'a Job,
    place: &'a Path,
    args: &'a ViewArgs,
}

impl Program<'_> {
    /// Measures the time and the memory that the program takes by itself, and returns its output
    /// too. It runs twice, because the first run brings its files into the page cache.
    fn by_itself(&self) -> Result<(f64, Bytes, Vec<u8>)> {
        let name = self.job.name;
        self.run(&mut self.limited())?;
        let (seconds, output) = self.run(&mut self.limited())?;
        if !output.status.success() {
            return Err(failed(format!("{name} alone ended with {}", output.status)));
        }
        let (_, held) = self.managed(MOST, SHOWN[0])?;
        let held = held.ok_or_else(|| failed(format!("{name} told nothing of its memory")))?;
        Ok((seconds, held, output.stdout))
    }

    /// Runs the program within `budget` and `shown` this memory; `wanted` is the expected output.
    fn within(&self, budget: Bytes, shown: &str, wanted: &[u8]) -> Ending {
        match self.managed(&budget.0.to_string(), shown) {
            Ok(((seconds, output), Some(held)))
                if output.status.success() && output.stdout == wanted =>
            {
                Ending::Right(seconds, held)
            }
            Ok(((seconds, _), _)) if seconds >= f64::from(self.args.limit) => Ending::Stopped,
            _ => Ending::Failed,
        }
    }

    fn managed(&self, memory: &str, shown: &str) -> Result<((f64, Output), Option<Bytes>)> {
        let stats = self.place.join("stats.json");
        // An earlier run may have left this file.
        let _ = fs::remove_file(&stats);
        let [file, disk] = [&stats, self.args.directory.as_path()].map(|it| it.as_os_str());
        let options: [&std::ffi::OsStr; 8] = [
            "--memory".as_ref(),
            memory.as_ref(),
            "--show-memory".as_ref(),
            shown.as_ref(),
            "--stats".as_ref(),
            file,
            "--disk".as_ref(),
            disk,
        ];
        let ran = self.run(&mut self.launcher.managed(&options, &self.limited()))?;
        let held = stats_in(&stats).and_then(|stats| number(&stats, "peak_bytes").ok());
        Ok((ran, held.map(|bytes| Bytes(bytes as usize))))
    }

    /// Returns the command of the program, which is stopped at the limit with all that it has
    /// started.
    fn limited(&self) -> Command {
        let command = self.job.command(self.place, "");
        let mut limited = Command::new("timeout");
        limited.args(["--kill-after", GRACE, &self.args.limit.to_string()]);
        limited.arg(command.get_program()).args(command.get_args());
        limited
    }

    /// Runs a command. Returns the seconds, and its status and output.
    fn run(&self, command: &mut Command) -> Result<(f64, Output)> {
        forget_settings(command);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let started = Instant::now();
        let output = interrupt::output(command).map_err(|error| failed(error.to_string()))?;
        Ok((started.elapsed().as_secs_f64(), output))
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a run that failed counts as fast, or `auto` is praised for a wrong result.

    use super::*;

    fn row(program: &'static str, seconds: [f64; 5]) -> Row {
        let ending = |seconds| {
            if seconds > 0.0 { Ending::Right(seconds, Bytes::mib(7)) } else { Ending::Failed }
        };
        Row { program, budget: Bytes::mib(100), endings: seconds.map(ending) }
    }

    #[test]
    fn goals_are_about_auto() {
        let met = |rows: &[Row]| goals(rows).iter().map(|goal| goal.met).collect::<Vec<_>>();
        assert_eq!(met(&[row("sort", [9.0, 1.0, 2.0, 3.0, 1.4])]), [true, true]);
        assert_eq!(met(&[row("sort", [9.0, 1.0, 2.0, 3.0, 1.6])]), [true, false]);
        assert_eq!(met(&[row("java-50", [9.0, 1.0, 2.0, 3.0, 2.9])]), [true, true]);
        // `auto` fails where `off` does not.
        assert_eq!(met(&[row("node", [9.0, 0.0, 2.0, 3.0, 0.0])]), [false, false]);
        assert_eq!(met(&[row("node", [0.0; 5])]), [true]);
        let cells = row("node", [9.0, 0.0, 2.0, 3.0, 4.0]).endings.map(|it| it.to_string());
        assert_eq!(cells, ["9.0 (7)", "FAILED", "2.0 (7)", "3.0 (7)", "4.0 (7)"]);
    }
}
