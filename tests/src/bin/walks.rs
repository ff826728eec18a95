//! `walks`: goes over its memory in steps of all kinds, and checks and changes each page it meets.
//!
//!     walks [--bytes TOTAL] [--mode steps|zip|holes]
//!
//! `steps` are walks forward, backward and over some pages, one after the other; `zip` are two of
//! them from both ends at once, each in a thread, while a third maps and unmaps memory; `holes`
//! gives pages up beside and ahead of a walk while it goes on. Each page holds its number, and how
//! often it was met.
#![allow(clippy::undocumented_unsafe_blocks, reason = "each thread goes over pages of its own")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../program/mod.rs"]
mod program;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use program::args::Args;
use program::random::{Random, mix};
use program::{PAGE, raw};

/// Words of a page that look random; the rest repeat its number.
const RANDOM_WORDS: usize = 160;
/// Bytes mapped and unmapped beside walks.
const CHURN: usize = 1 << 20;

/// Pages in a mapping, and how often each was met; 0 for one given up, which is zeros.
struct Pages {
    start: usize,
    met: Vec<u64>,
}

impl Pages {
    fn words(&self, page: usize) -> *mut [u64; PAGE / 8] {
        raw::pointer(self.start + page * PAGE).cast()
    }

    /// Checks a page and changes it. The message of a mismatch ends the program.
    fn meet(&mut self, page: usize) {
        let words = unsafe { &mut *self.words(page) };
        for (index, word) in words.iter_mut().enumerate() {
            let expected = word_of(page, index, self.met[page]);
            if *word != expected {
                let times = self.met[page];
                eprintln!("walks: page {page}, met {times} times, word {index}: {word:#x}");
                std::process::exit(1);
            }
            *word = word_of(page, index, self.met[page] + 1);
        }
        self.met[page] += 1;
    }

    /// Every page, `step` apart, from the start or from the end.
    fn walk(&mut self, step: usize, backward: bool) {
        let count = self.met.len();
        for first in 0..step {
            for index in (first..count).step_by(step) {
                self.meet(if backward { count - 1 - index } else { index });
            }
        }
    }

    /// Gives up some pages near those that the walk has come to, and ahead of them.
    fn walk_with_holes(&mut self, random: &mut Random) {
        for page in 0..self.met.len() {
            self.meet(page);
            if random.percent(6) {
                let near = (page + random.below(40)).saturating_sub(8);
                let first = near.min(self.met.len() - 1);
                let end = (first + 1 + random.below(3)).min(self.met.len());
                let (address, bytes) = (self.start + first * PAGE, (end - first) * PAGE);
                unsafe { raw::advise(address, bytes, libc::MADV_DONTNEED) }
                    .expect("cannot give up");
                self.met[first..end].fill(0);
            }
        }
    }
}

/// Maps memory, touches it and gives it up in all ways, until `done`: the kernel puts off whatever
/// moves pages while it does such a thing.
fn map_and_unmap(done: &AtomicBool) {
    // Relaxed: a flag of its own.
    while !done.load(Ordering::Relaxed) {
        let start = raw::map(CHURN).expect("cannot map");
        for page in 0..CHURN / PAGE {
            unsafe { raw::pointer(start + page * PAGE).write_volatile(1) };
        }
        for page in (0..CHURN / PAGE).step_by(16) {
            let advised = unsafe { raw::advise(start + page * PAGE, PAGE, libc::MADV_DONTNEED) };
            advised.expect("cannot give up");
        }
        unsafe { raw::unmap(start, CHURN) }.expect("cannot unmap");
    }
}

/// What a page holds that was met so often.
const fn word_of(page: usize, index: usize, met: u64) -> u64 {
    match met {
        0 => 0,
        _ if index < RANDOM_WORDS => mix(page as u64 * 1000 + index as u64) ^ met,
        _ => page as u64,
    }
}

fn main() -> ExitCode {
    let args = Args::parse(&[], &["bytes", "mode"]);
    let count = args.bytes("bytes", 64 << 20) / PAGE;
    let mode = args.text("mode").unwrap_or("steps");
    let start = raw::map(count * PAGE).expect("cannot map");
    let half = count / 2;
    let mut low = Pages { start, met: vec![0; half] };
    let mut high = Pages { start: start + half * PAGE, met: vec![0; count - half] };
    let mut both = Pages { start, met: vec![0; count] };
    match mode {
        "steps" => {
            for (step, backward) in [(1, false), (1, false), (1, true), (3, false), (4, true)] {
                both.walk(step, backward);
            }
        }
        "holes" => {
            let mut random = Random::new(1, 0);
            (0..4).for_each(|_| both.walk_with_holes(&mut random));
        }
        "zip" => {
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| map_and_unmap(&done));
                let lower = scope.spawn(|| (0..4).for_each(|_| low.walk(1, false)));
                (0..4).for_each(|_| high.walk(1, true));
                // A thread that failed has ended the program.
                let _ = lower.join();
                // Relaxed: a flag of its own.
                done.store(true, Ordering::Relaxed);
            });
        }
        _ => {
            eprintln!("walks: unknown mode {mode:?}");
            return ExitCode::from(2);
        }
    }
    println!("walks: OK {mode}");
    ExitCode::SUCCESS
}
