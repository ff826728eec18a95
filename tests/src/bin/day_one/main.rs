//! `day_one`: does to memory that has gone cold what programs do to it, and checks every byte.
//!
//!     day_one [--pressure BYTES] [--only NAME] [--huge never|always]
//!
//! All cases lay their ground and fill it. Then the program walks other memory until the ground is
//! cold. Then each case does its action. At the end, and again after one more walk of other memory,
//! the ground must hold exactly what the case says.
//!
//! 1. What a page of the ground must hold is derived (`program::pattern`); nothing is remembered.
//! 2. `evicted=E/P` says how many of the P pages of the ground were not in memory when the case
//!    began.
//! 3. Cases that change the process for good (`lasting`) come last.
#![allow(clippy::undocumented_unsafe_blocks, reason = "raw calls on ground that the case owns")]
#![allow(unreachable_pub, reason = "a program's modules; the shared ones serve several programs")]

mod advice;
mod events;
mod ground;
mod huge;
mod lasting;
mod processes;
#[path = "../../program/mod.rs"]
mod program;
mod stacks;

use std::process::ExitCode;

use ground::Ground;
use program::args::Args;
use program::outcome::{Counts, Outcome, Stop};
use program::pressure::Pressure;

/// One action that programs do to memory.
pub struct Case {
    /// The name in the case's line of output.
    pub name: &'static str,
    /// Lays the ground of the case and fills it.
    pub lay: fn(u32) -> Result<Ground, Stop>,
    /// Does the action, and notes in the ground what is right from then on.
    pub run: fn(&mut Ground, &Pressure) -> Outcome,
}

fn main() -> ExitCode {
    let args = Args::parse(&[], &["pressure", "only", "huge"]);
    let pressure = Pressure::new(args.bytes("pressure", 40 << 20));
    match args.text("huge") {
        None => {}
        Some("never") => huge::forbid(),
        Some("always") => {
            // A kernel without huge pages refuses this; then there is nothing to be tested.
            let _ = pressure.advise(libc::MADV_HUGEPAGE);
            ground::ask_for_huge_pages();
        }
        Some(other) => panic!("--huge {other}"),
    }
    let groups = [
        advice::CASES,
        huge::CASES,
        events::CASES,
        stacks::CASES,
        processes::CASES,
        lasting::CASES,
    ];
    let wanted = |case: &&Case| args.text("only").is_none_or(|name| case.name.contains(name));
    let cases: Vec<&Case> = groups.into_iter().flatten().filter(wanted).collect();
    let grounds: Vec<_> = (1..).zip(&cases).map(|(owner, case)| (case.lay)(owner)).collect();
    // Twice: a manager that protects what comes back might keep pages that were touched once.
    pressure.walk();
    pressure.walk();
    let mut counts = Counts::default();
    for (case, ground) in cases.into_iter().zip(grounds) {
        judge(case, ground, &pressure, &mut counts);
    }
    counts.finish()
}

/// Runs one case and counts it.
fn judge(case: &Case, ground: Result<Ground, Stop>, pressure: &Pressure, counts: &mut Counts) {
    let mut evicted = (0, 0);
    let outcome = ground.and_then(|mut ground| {
        evicted = ground.evicted();
        (case.run)(&mut ground, pressure)?;
        ground.compare()?;
        pressure.walk();
        ground.compare()
    });
    counts.add(case.name, outcome, evicted);
}
