//! When a program begins, by its kind; how long it takes to put the library into one that its
//! loader does not give it; and first touches beyond the budget.
//!
//! A program tells when its `main` began, by the clock that this asks before the command starts. So
//! the difference between both sides is all that comes before: the command, the keeper, and the
//! library. Less that of the preloaded twin, it is what putting in costs more than preloading. The
//! command itself tells how long the program stood still at its exec.

use std::process::{Command, Stdio};

use coldpress_common::failure::Result;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::kinds::{PRELOADED, Program};
use super::{Found, three};
use crate::commands::launch::{Launcher, failed, forget_settings, run};
use crate::interrupt;
use crate::progress::note;
use crate::report::{Goal, Table};
use crate::statistics::{Pair, Paired, Sample, Side};

/// The goal for the time at an exec.
const PUT_IN_MS_GOAL: f64 = 0.5;
/// A budget that no program here reaches.
const PLENTY: [&str; 4] = ["--memory", "64M", "--disk", "none"];
/// MiB that are touched, and the budget.
const TOUCHED: &str = "256";
const TOUCHED_PAGES: f64 = 65536.0;
const LITTLE: [&str; 4] = ["--memory", "64M", "--disk", "none"];
/// What the command says when it has put the library in, before and behind the time.
const TOLD: [&str; 2] = ["put the library into the program in ", " ms"];

/// One start of a program.
#[derive(Clone, Copy, Debug)]
struct Begun {
    ms: f64,
    /// The time that the program stood still at its exec.
    put_in_ms: Option<f64>,
}

/// Starts the program, which says when it began.
fn begin(launcher: &Launcher, side: Side, program: &Program) -> Result<Begun> {
    let plain = program.command(&["begin"]);
    let mut command = match side {
        Side::Plain => plain,
        Side::Managed => launcher.verbose(&PLENTY, &plain),
    };
    forget_settings(&mut command);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let before = now_ns();
    let name = program.kind.name;
    let output = interrupt::output(&mut command)
        .map_err(|error| failed(format!("cannot start {name}: {error}")))?;
    let told = String::from_utf8_lossy(&output.stderr);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let began = printed["began_ns"].as_f64();
    let began = began.ok_or_else(|| failed(format!("{name} told no beginning: {told}")))?;
    Ok(Begun { ms: (began - before) / 1e6, put_in_ms: put_in_ms(&told) })
}

fn now_ns() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Returns the time that the command told.
fn put_in_ms(told: &str) -> Option<f64> {
    let (_, rest) = told.split_once(TOLD[0])?;
    rest.split_once(TOLD[1])?.0.parse().ok()
}

/// Measures the starts of all programs, which take turns.
pub(super) fn starts(
    launcher: &Launcher,
    programs: &[Program],
    rounds: u32,
    found: &mut Found,
) -> Result<()> {
    let mut all: Vec<Vec<Pair<Begun>>> = programs.iter().map(|_| Vec::new()).collect();
    for round in 0..=rounds as usize {
        note(format!("start: programs of each kind, round {round} of {rounds}"));
        for turn in 0..programs.len() {
            let index = (round + turn) % programs.len();
            let one = |side| begin(launcher, side, &programs[index]);
            let pair = if round % 2 == 0 {
                let plain = one(Side::Plain)?;
                Pair { plain, managed: one(Side::Managed)? }
            } else {
                let managed = one(Side::Managed)?;
                Pair { plain: one(Side::Plain)?, managed }
            };
            // The first round warms caches.
            if round > 0 {
                all[index].push(pair);
            }
        }
    }
    let twin = programs.iter().position(|program| program.kind.name == PRELOADED.name);
    let twin = twin.map(|index| all[index].clone());
    let mut table = Table::new(&[
        "until a program begins, ms",
        "plain",
        "coldpress",
        "difference",
        "beyond preloading",
        "stands still at its exec",
        "p90 of that",
    ]);
    let mut numbers = Vec::new();
    for (program, pairs) in programs.iter().zip(&all) {
        let Some(paired) = Paired::new(pairs, |begun| begun.ms) else { continue };
        let beyond = twin.as_ref().and_then(|twin| beyond(pairs, twin));
        let put_in = Sample::new(pairs.iter().filter_map(|pair| pair.managed.put_in_ms));
        let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), three);
        let median = put_in.as_ref().map(Sample::median);
        let name = program.kind.name;
        table.row(vec![
            name.to_owned(),
            three(paired.plain.median()),
            three(paired.managed.median()),
            three(paired.differences.median()),
            cell(beyond.as_ref().map(Sample::median)),
            cell(median),
            cell(put_in.as_ref().map(|sample| sample.percentile(90.0))),
        ]);
        numbers.push(json!({
            "kind": name,
            "plain_ms": paired.plain.median(),
            "managed_ms": paired.managed.median(),
            "difference_ms": paired.differences.median(),
            "beyond_preloading_ms": beyond.as_ref().map(Sample::median),
            "put_in_ms": median,
        }));
        if let Some(put_in) = put_in {
            let text = format!("{name}: stands still at its exec <= {PUT_IN_MS_GOAL} ms");
            found.goals.push(Goal::at_most(text, &put_in, PUT_IN_MS_GOAL, 3));
        }
    }
    found.tables.push(table);
    found.numbers.insert("kinds".to_owned(), numbers.into());
    Ok(())
}

/// Returns by how much more `pairs` differ than those of the preloaded twin, round by round.
fn beyond(pairs: &[Pair<Begun>], twin: &[Pair<Begun>]) -> Option<Sample> {
    let difference = |pair: &Pair<Begun>| pair.managed.ms - pair.plain.ms;
    let is_twin = pairs.first()?.managed.put_in_ms.is_none();
    let both = pairs.iter().zip(twin).map(|(pair, twin)| difference(pair) - difference(twin));
    Sample::new(both).filter(|_| !is_twin)
}

/// Measures first touches of programs of C, in turns.
pub(super) fn touches(
    launcher: &Launcher,
    programs: &[Program],
    rounds: u32,
    found: &mut Found,
) -> Result<()> {
    let programs: Vec<_> = programs.iter().filter(|program| program.kind.is_c()).collect();
    let mut all: Vec<Vec<f64>> = programs.iter().map(|_| Vec::new()).collect();
    let touch = |program: &Program| -> Result<f64> {
        let plain: Command = program.command(&["touch", TOUCHED]);
        let outcome = run(&mut launcher.managed(&LITTLE, &plain))?;
        Ok(TOUCHED_PAGES / outcome.number("seconds")? / 1e3)
    };
    for round in 0..=rounds as usize {
        note(format!("start: first touches, round {round} of {rounds}"));
        for turn in 0..programs.len() {
            let index = (round + turn) % programs.len();
            let rate = touch(programs[index])?;
            if round > 0 {
                all[index].push(rate);
            }
        }
    }
    let mut table =
        Table::new(&["first touches, thousand a second", "median", "p10 to p90", "by preloading"]);
    let mut numbers = Vec::new();
    for (program, rates) in programs.iter().zip(&all) {
        let ratios = Sample::new(rates.iter().zip(&all[0]).map(|(rate, twin)| rate / twin));
        let (Some(rates), Some(ratios)) = (Sample::new(rates.iter().copied()), ratios) else {
            continue;
        };
        let (low, high) = (rates.percentile(10.0), rates.percentile(90.0));
        table.row(vec![
            program.kind.name.to_owned(),
            format!("{:.1}", rates.median()),
            format!("{low:.1} to {high:.1}"),
            format!("{:.2}", ratios.median()),
        ]);
        numbers.push(json!({ "kind": program.kind.name, "thousand_per_s": rates.median(),
            "by_preloading": ratios.median() }));
    }
    found.tables.push(table);
    found.numbers.insert("first_touch".to_owned(), numbers.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_the_one_that_the_command_tells() {
        let told = "coldpress: a line\ncoldpress: put the library into the program in 0.314 ms\n";
        assert_eq!(put_in_ms(told), Some(0.314));
        assert_eq!(put_in_ms("coldpress: a line\n"), None);
    }
}
