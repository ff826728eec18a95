//! `aged`: reads its memory again and again while another thread ages it.
//!
//!     aged [--bytes TOTAL] [--rounds R]
//!
//! The second thread touches the first page of every 128 KiB that is in memory, then advises that
//! the page is cold: the page's accessed bit changes all the time, and no byte does. Each page
//! holds its number.
#![allow(clippy::undocumented_unsafe_blocks, reason = "both threads only read the mapping")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../program/mod.rs"]
mod program;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use program::args::Args;
use program::random::mix;
use program::{PAGE, raw};

/// A run: what coldpress takes at a time. The kernel looks at the first page of a run twice.
const RUN: usize = 128 << 10;

fn main() -> ExitCode {
    let args = Args::parse(&[], &["bytes", "rounds"]);
    let bytes = args.bytes("bytes", 64 << 20).next_multiple_of(RUN);
    let rounds = args.value("rounds", 20usize);
    let start = raw::map(bytes).expect("cannot map");
    let word = |page: usize| raw::pointer(start + page * PAGE).cast::<u64>();
    (0..bytes / PAGE).for_each(|page| unsafe { word(page).write(mix(page as u64)) });
    let done = AtomicBool::new(false);
    let wrong = std::thread::scope(|scope| {
        scope.spawn(|| age(start, bytes, &done));
        let wrong = (0..rounds).find_map(|round| {
            let is_wrong =
                |page: &usize| unsafe { word(*page).read_volatile() } != mix(*page as u64);
            let pages: Vec<_> = (0..bytes / PAGE).filter(is_wrong).collect();
            pages.first().map(|first| (round, *first, pages.len()))
        });
        // Relaxed: a flag that orders nothing else.
        done.store(true, Ordering::Relaxed);
        wrong
    });
    if let Some((round, first, count)) = wrong {
        eprintln!("aged: FAILED: {count} wrong pages in round {round}, first {first}");
        return ExitCode::FAILURE;
    }
    println!("aged: OK {rounds} rounds");
    ExitCode::SUCCESS
}

/// Sets and clears the accessed bit of the first page of each run that is in memory.
fn age(start: usize, bytes: usize, done: &AtomicBool) {
    let runs = (start.next_multiple_of(RUN)..start + bytes).step_by(RUN);
    for address in runs.cycle() {
        // Relaxed: a flag that orders nothing else.
        if done.load(Ordering::Relaxed) {
            return;
        }
        let page = raw::pointer(address);
        let mut there = 0;
        if unsafe { libc::mincore(page.cast(), PAGE, &raw mut there) } == 0 && there & 1 == 1 {
            unsafe { page.read_volatile() };
            // Old kernels do not know this advice; there nothing ages.
            let _ = unsafe { raw::advise(address, PAGE, libc::MADV_COLD) };
        }
    }
}
