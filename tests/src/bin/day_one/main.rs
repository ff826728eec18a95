//! `day_one`: does to memory that has gone cold what programs do to it, and checks every byte.
//!
//!     day_one [--pressure BYTES] [--only NAME] [--huge never|always]
//!
//! All cases lay their ground and fill it; then other memory is walked until it is cold; then each
//! case does its thing. In the end, and again when other memory was walked once more, the ground
//! must hold exactly what the case says.
//!
//! 1. What a page of the ground must hold is derived (`program::pattern`); nothing is remembered.
//! 2. `evicted=E/P` says how many of the P pages of the ground were not in memory when it began.
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

/// One thing that programs do.
pub struct Case {
    /// What its line calls it.
    pub name: &'static str,
    /// Lays its ground and fills it.
    pub lay: fn(u32) -> Result<Ground, Stop>,
    /// Does it, and tells the ground what is right from then on.
    pub run: fn(&mut Ground, &Pressure) -> Outcome,
}

fn main() -> ExitCode {
    let args = Args::parse(&[], &["pressure", "only", "huge"]);
    let pressure = Pressure::new(args.bytes("pressure", 40 << 20));
    match args.text("huge") {
        None => {}
        Some("never") => huge::forbid(),
        Some("always") => {
            // Where the kernel has no huge pages it is refused: then there is nothing to be tested.
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
    // Twice: pages touched once might be kept by a manager that protects what comes back.
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
