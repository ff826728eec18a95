//! A program that starts 200 static programs a second: what its children take longer within a run.
//!
//! Most do nothing and end. Some grow past the size from which on a process gets the library, and
//! live long enough to get it, which happens while they run. The parent times each from before its
//! start until it is reaped. Both sides take turns; figures are those of all children of a kind.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use clap::Args;
use coldpress_common::failure::Result;
use serde_json::{Value, json};

use super::kinds::Program;
use super::{Found, three};
use crate::commands::launch::{Launcher, failed, workload};
use crate::progress::note;
use crate::report::{Goal, Table};
use crate::statistics::{Sample, Side, alternate};

/// The goal: no child takes this much longer.
const SLOWER_MS_GOAL: f64 = 1.0;
/// The children of a second, and how long a run goes on.
const PER_SECOND: u32 = 200;
const SECONDS: u32 = 4;
/// One of so many children grows; the time that it lives then.
const GROWING: u32 = 20;
const GROWN_MIB: &str = "16";
const GROWN_MS: &str = "200";
/// A budget that they do not reach.
const PLENTY: [&str; 4] = ["--memory", "1G", "--disk", "none"];
/// The kinds of children, as the workload tells them.
const KINDS: [(&str, &str); 2] =
    [("small_ms", "children that do nothing"), ("grown_ms", "children that grow to 16 MiB")];

/// The options of the workload.
#[derive(Clone, Debug, Args)]
pub(crate) struct ChildrenArgs {
    /// The program of the children
    #[arg(long)]
    program: PathBuf,
}

/// Starts children at the rate, and times each. Returns `None` when one fails.
pub(in crate::commands) fn children(args: &ChildrenArgs) -> Option<Value> {
    let interval = Duration::from_secs(1) / PER_SECOND;
    let begun = Instant::now();
    let mut all = [Vec::new(), Vec::new()];
    for number in 0..PER_SECOND * SECONDS {
        sleep((interval * number).saturating_sub(begun.elapsed()));
        let grows = number % GROWING == GROWING - 1;
        let program = args.program.clone();
        let child = thread::spawn(move || time_of(&program, grows));
        all[usize::from(grows)].push(child);
    }
    let took_s = begun.elapsed().as_secs_f64();
    let [small, grown] = all.map(|threads| {
        let times = threads.into_iter().map(|thread| thread.join().ok().flatten());
        times.collect::<Option<Vec<f64>>>()
    });
    Some(json!({ KINDS[0].0: small?, KINDS[1].0: grown?, "seconds": took_s }))
}

/// Runs one child, and returns the ms until it was reaped.
fn time_of(program: &Path, grows: bool) -> Option<f64> {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    if grows {
        command.args(["grow", GROWN_MIB, GROWN_MS]);
    }
    let begun = Instant::now();
    let status = command.status().ok()?;
    status.success().then(|| begun.elapsed().as_secs_f64() * 1e3)
}

/// Measures the children on both sides.
pub(super) fn measure(
    launcher: &Launcher,
    program: &Program,
    rounds: u32,
    found: &mut Found,
) -> Result<()> {
    note(format!("start: {PER_SECOND} children a second, {rounds} rounds"));
    let file = program.file.to_str().ok_or_else(|| failed("no plain path".to_owned()))?;
    let pairs = alternate(rounds, |side| {
        launcher.run(side, &PLENTY, workload(&["children", "--program", file]))
    })?;
    let mut table = Table::new(&["a child's time, ms", "plain", "coldpress", "difference"]);
    let mut numbers = json!({ "rounds": rounds, "per_second": PER_SECOND });
    for (key, name) in KINDS {
        let of = |side: Side| {
            let outcomes = pairs.iter().map(|pair| match side {
                Side::Plain => &pair.plain,
                Side::Managed => &pair.managed,
            });
            let times = outcomes.filter_map(|outcome| outcome.printed[key].as_array()).flatten();
            let sample = Sample::new(times.filter_map(Value::as_f64));
            sample.ok_or_else(|| failed(format!("no {name}")))
        };
        let (plain, managed) = (of(Side::Plain)?, of(Side::Managed)?);
        for (title, percent) in [("median", 50.0), ("p99", 99.0), ("longest", 100.0)] {
            let [plain, managed] = [&plain, &managed].map(|sample| sample.percentile(percent));
            let cells = [plain, managed, managed - plain].map(three);
            table.row([vec![format!("{name}, {title}")], cells.to_vec()].concat());
            numbers[key][title] = json!({ "plain": plain, "managed": managed });
        }
        let slower = [50.0, 99.0].map(|at| managed.percentile(at) - plain.percentile(at));
        found.goals.push(Goal {
            text: format!("{name}: median and p99 slower by <= {SLOWER_MS_GOAL} ms"),
            found: format!("{:.3} and {:.3} ms", slower[0], slower[1]),
            met: slower.iter().all(|ms| *ms <= SLOWER_MS_GOAL),
        });
    }
    found.tables.push(table);
    found.numbers.insert("children".to_owned(), numbers);
    Ok(())
}
