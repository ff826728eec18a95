//! How long a program stands still when coldpress attaches to it, and when coldpress leaves it.
//!
//! The program reads the clock again and again, and tells each gap. The longest gap of a moment is
//! the time for which it did not run. The machine makes gaps too: so a moment of the same length is
//! measured in which nothing happens. What the program holds it does not touch meanwhile, so no
//! gap is a page fault.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use coldpress_common::failure::Result;
use coldpress_sys::Bytes;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::kinds::Program;
use super::{Found, three};
use crate::commands::launch::{Launcher, failed, forget_settings};
use crate::progress::note;
use crate::report::{Goal, Table};
use crate::statistics::Sample;

/// The goals for a program that is attached to, and left.
const ATTACH_MS_GOAL: f64 = 2.0;
const DETACH_MS_GOAL: f64 = 1.0;
/// The time for which gaps are read after a moment, and that of a moment in which nothing happens.
const SETTLE: Duration = Duration::from_millis(100);
/// The longest time that anything here takes.
const LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);
/// MiB that a program holds, and a budget: nothing is away, or most of it.
const IN_PLACE: Held = Held { mib: 8, budget_mib: 64 };
const AWAY: Held = Held { mib: 128, budget_mib: 32 };

/// What a program holds, and the memory that it gets.
#[derive(Clone, Copy, Debug)]
struct Held {
    mib: usize,
    budget_mib: usize,
}

/// A program that reads the clock. It ends with this.
struct Spinning {
    child: Child,
    output: ChildStdout,
}

impl Spinning {
    /// Starts the program, and returns once it holds its memory.
    fn start(program: &Program, held: Held) -> Result<Self> {
        let no_program = |error| failed(format!("{}: {error}", program.kind.name));
        let mut command = program.command(&["spin", &held.mib.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(no_program)?;
        let output = child.stdout.take().ok_or_else(|| failed("no pipe".to_owned()))?;
        let mut spinning = Self { child, output };
        let mut ready = [0; b"ready\n".len()];
        spinning.output.read_exact(&mut ready).map_err(no_program)?;
        fcntl_setfl(&spinning.output, OFlags::NONBLOCK)
            .map_err(|errno| no_program(errno.into()))?;
        Ok(spinning)
    }

    /// Returns the longest gap since the last call, in ms.
    fn longest_ms(&mut self) -> f64 {
        let mut told = Vec::new();
        // An error says that the pipe has no more.
        let _ = self.output.read_to_end(&mut told);
        let lines = str::from_utf8(&told).unwrap_or_default().lines();
        lines.filter_map(|line| line.parse::<f64>().ok()).fold(0.0, f64::max) / 1e6
    }

    /// Returns its anonymous memory that is in place.
    fn resident(&self) -> Bytes {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        Bytes::kib(kib.unwrap_or(0))
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        // After its end, these fail.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A `coldpress attach` that goes on. Dropped, it leaves its program.
struct Attached(Child);

impl Attached {
    /// Attaches to the program, and returns once that is done.
    fn to(launcher: &Launcher, spinning: &Spinning, held: Held) -> Result<Self> {
        let mut command: Command = launcher.attach(spinning.child.id(), held.budget_mib);
        forget_settings(&mut command);
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| failed(format!("cannot attach: {error}")))?;
        let said = child.stderr.take().map(BufReader::new);
        let attached = Self(child);
        let mut lines = said.into_iter().flat_map(|said| said.lines().map_while(|line| line.ok()));
        match lines.find(|line| line.contains("attached to ") || line.contains("not managed")) {
            Some(line) if line.contains("attached to ") => Ok(attached),
            said => Err(failed(format!("cannot attach: {}", said.unwrap_or_default()))),
        }
    }

    /// Leaves the program. Returns how long that took, in ms.
    fn leave(mut self) -> Result<f64> {
        let begun = Instant::now();
        self.tell();
        let status = self.0.wait();
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        match status {
            Ok(status) if status.success() => Ok(ms),
            other => Err(failed(format!("`coldpress attach` ended with {other:?}"))),
        }
    }

    fn tell(&self) {
        // It may have ended.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.tell();
        let _ = self.0.wait();
    }
}

/// The gaps of one attachment, and the time until the command had left, in ms.
#[derive(Clone, Copy, Debug)]
struct Moments {
    nothing: f64,
    attach: f64,
    detach: f64,
    leaving: f64,
    away: Bytes,
}

fn moments(launcher: &Launcher, program: &Program, held: Held) -> Result<Moments> {
    let mut spinning = Spinning::start(program, held)?;
    sleep(SETTLE);
    spinning.longest_ms();
    sleep(SETTLE);
    let nothing = spinning.longest_ms();
    let attached = Attached::to(launcher, &spinning, held)?;
    sleep(SETTLE);
    let attach = spinning.longest_ms();
    let begun = Instant::now();
    let budget = Bytes::mib(held.budget_mib);
    while spinning.resident() > budget && begun.elapsed() < LIMIT {
        sleep(PAUSE);
    }
    // What is in limbo comes back without a copy.
    let away = Bytes::mib(held.mib).0.saturating_sub(spinning.resident().0);
    spinning.longest_ms();
    let leaving = attached.leave()?;
    sleep(SETTLE);
    let detach = spinning.longest_ms();
    Ok(Moments { nothing, attach, detach, leaving, away: Bytes(away) })
}

/// Measures attachments to all programs, which take turns.
pub(super) fn measure(
    launcher: &Launcher,
    programs: &[Program],
    rounds: u32,
    found: &mut Found,
) -> Result<()> {
    let mut all: Vec<[Vec<Moments>; 2]> = programs.iter().map(|_| Default::default()).collect();
    for round in 0..rounds as usize {
        note(format!("start: attach, round {} of {rounds}", round + 1));
        for turn in 0..programs.len() {
            let index = (round + turn) % programs.len();
            for (at, held) in [IN_PLACE, AWAY].into_iter().enumerate() {
                all[index][at].push(moments(launcher, &programs[index], held)?);
            }
        }
    }
    report(programs, &all, found)
}

/// Adds the figures of all programs.
fn report(programs: &[Program], all: &[[Vec<Moments>; 2]], found: &mut Found) -> Result<()> {
    let mut table = Table::new(&[
        "stands still, ms",
        "nothing happens",
        "attach",
        "p90",
        "detach",
        "p90",
        "detach, pages away",
        "command leaves",
        "with pages away",
        "MiB away",
    ]);
    let mut numbers = Vec::new();
    for (program, [in_place, away]) in programs.iter().zip(all) {
        let of = |moments: &[Moments], of: fn(&Moments) -> f64| {
            let sample = Sample::new(moments.iter().map(of));
            sample.ok_or_else(|| failed("no round".to_owned()))
        };
        let nothing = of(in_place, |it| it.nothing)?;
        let (attach, detach) = (of(in_place, |it| it.attach)?, of(in_place, |it| it.detach)?);
        let away_detach = of(away, |it| it.detach)?;
        let leaving = [of(in_place, |it| it.leaving)?, of(away, |it| it.leaving)?];
        let mib = of(away, |it| it.away.0 as f64 / f64::from(1 << 20))?;
        let name = program.kind.name;
        table.row(vec![
            name.to_owned(),
            three(nothing.median()),
            three(attach.median()),
            three(attach.percentile(90.0)),
            three(detach.median()),
            three(detach.percentile(90.0)),
            three(away_detach.median()),
            format!("{:.1}", leaving[0].median()),
            format!("{:.1}", leaving[1].median()),
            format!("{:.0}", mib.median()),
        ]);
        numbers.push(json!({
            "kind": name,
            "nothing_ms": nothing.median(),
            "attach_ms": attach.median(),
            "attach_p90_ms": attach.percentile(90.0),
            "detach_ms": detach.median(),
            "detach_p90_ms": detach.percentile(90.0),
            "detach_away_ms": away_detach.median(),
            "leaving_ms": leaving[0].median(),
            "leaving_away_ms": leaving[1].median(),
            "away_mib": mib.median(),
        }));
        let text = format!("{name}: stands still while attached to <= {ATTACH_MS_GOAL} ms");
        found.goals.push(Goal::at_most(text, &attach, ATTACH_MS_GOAL, 2));
        let text = format!("{name}: stands still while left <= {DETACH_MS_GOAL} ms");
        found.goals.push(Goal::at_most(text, &detach, DETACH_MS_GOAL, 2));
    }
    found.tables.push(table);
    found.numbers.insert("attach".to_owned(), numbers.into());
    Ok(())
}
