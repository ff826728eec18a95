//! `syscalls`: hands the kernel buffers that have gone cold, and checks every byte and count.
//!
//!     syscalls [--arena BYTES] [--pressure BYTES] [--only NAME]
//!
//! A slot of the arena belongs to one case in one layout. The program fills all slots, then walks
//! other memory until they are cold. Then a layout touches some of a slot's pages again, and the
//! case makes its calls on the slot. Afterwards the whole slot must hold exactly what the case
//! says.
//!
//! 1. No call may come back short, with EFAULT, or having eaten a message without delivering it.
//! 2. There are two rounds: quiet, and with a thread that walks other memory meanwhile ("+busy").
//! 3. `evicted=E/P` says how many pages of the slot were not in memory when the calls began.
#![allow(clippy::undocumented_unsafe_blocks, reason = "raw calls on a slot the case owns")]
#![allow(unreachable_pub, reason = "a program's modules; the shared ones serve several programs")]

mod arena;
mod events;
mod files;
mod memory;
mod process;
#[path = "../../program/mod.rs"]
mod program;
mod signals;
mod sockets;
mod uring;

use std::process::ExitCode;

use arena::{Arena, Layout, Slot};
use program::args::Args;
use program::outcome::Counts;
pub use program::outcome::{Outcome, Stop};
use program::pressure::{Busy, Pressure};

/// One system call, or a few that belong together.
pub struct Case {
    /// The name in the case's lines of output.
    pub name: &'static str,
    /// Lays out what the call reads, given the slot's address and bytes.
    pub prepare: fn(usize, &mut [u8]),
    /// Makes the calls, and writes what the slot must hold into its image.
    pub run: fn(&mut Slot) -> Outcome,
}

/// Prepares nothing: for cases that need only the pattern.
pub fn plain(_: usize, _: &mut [u8]) {}

fn main() -> ExitCode {
    if let Some(status) = process::as_helper() {
        return status;
    }
    let args = Args::parse(&[], &["arena", "pressure", "only"]);
    let groups = [
        files::CASES,
        sockets::CASES,
        events::CASES,
        signals::CASES,
        memory::CASES,
        process::CASES,
    ];
    let cases: Vec<&Case> = groups
        .into_iter()
        .chain([uring::CASES])
        .flatten()
        .filter(|case| args.text("only").is_none_or(|name| case.name.contains(name)))
        .collect();
    let arena = Arena::new(args.bytes("arena", 64 << 20));
    assert!(cases.len() * Layout::ALL.len() <= arena.slots(), "the arena is too small");
    let pressure = Pressure::new(args.bytes("pressure", 192 << 20));
    let mut counts = Counts::default();
    for busy in [false, true] {
        for (index, case) in owners(&cases) {
            arena.fill(index, case.prepare);
        }
        // Twice: a manager that protects what comes back might keep pages that were touched once.
        pressure.walk();
        pressure.walk();
        let guard = busy.then(|| Busy::start(&pressure));
        for (index, case) in owners(&cases) {
            judge(&arena, index, case, busy, &mut counts);
        }
        drop(guard);
    }
    counts.finish()
}

/// Returns each slot in use with its case: the layouts of a case are neighbours.
fn owners<'a>(cases: &'a [&'a Case]) -> impl Iterator<Item = (usize, &'a Case)> {
    (0..cases.len() * Layout::ALL.len()).map(|index| (index, cases[index / Layout::ALL.len()]))
}

/// Runs one case in one layout and counts it.
fn judge(arena: &Arena, index: usize, case: &Case, busy: bool, counts: &mut Counts) {
    let layout = Layout::ALL[index % Layout::ALL.len()];
    let mut slot = arena.slot(index, case.prepare);
    slot.touch(layout);
    let evicted = slot.evicted();
    let name = format!("{} {}{}", case.name, layout.name(), if busy { "+busy" } else { "" });
    let outcome = (case.run)(&mut slot).and_then(|()| slot.compare());
    counts.add(&name, outcome, evicted);
}
