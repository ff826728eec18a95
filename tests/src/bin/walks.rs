//! `walks`: goes over its memory in steps of all kinds, and checks and changes pages.
//!
//!     walks [--bytes TOTAL] [--mode steps|zip|holes|look]
//!
//! `steps` are walks forward, backward and over some pages, one after the other. `zip` are two
//! walks from both ends at once, each in a thread, while a third thread maps and unmaps memory.
//! `holes` gives up pages beside and ahead of a walk while the walk goes on. `look` are walks that
//! change one page in ten, and the memory moves once. Each page holds its number, and how often it
//! was changed.
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

/// Pages in a mapping, and how often each was changed; 0 for a page given up, which is zeros.
struct Pages {
    start: usize,
    changed: Vec<u64>,
}

impl Pages {
    fn words(&self, page: usize) -> *mut [u64; PAGE / 8] {
        raw::pointer(self.start + page * PAGE).cast()
    }

    /// Checks a page. A mismatch prints a message and ends the program.
    fn check(&self, page: usize) {
        let times = self.changed[page];
        for (index, word) in unsafe { &*self.words(page) }.iter().enumerate() {
            if *word != word_of(page, index, times) {
                eprintln!("walks: page {page}, changed {times} times, word {index}: {word:#x}");
                std::process::exit(1);
            }
        }
    }

    /// Checks a page and changes it.
    fn meet(&mut self, page: usize) {
        self.check(page);
        self.changed[page] += 1;
        for (index, word) in unsafe { &mut *self.words(page) }.iter_mut().enumerate() {
            *word = word_of(page, index, self.changed[page]);
        }
    }

    /// Visits every page, `step` apart, from the start or from the end.
    fn walk(&mut self, step: usize, backward: bool) {
        let count = self.changed.len();
        for first in 0..step {
            for index in (first..count).step_by(step) {
                self.meet(if backward { count - 1 - index } else { index });
            }
        }
    }

    /// Visits every page and changes one in ten, another each time.
    fn look(&mut self, time: usize) {
        for page in 0..self.changed.len() {
            if page % 10 == time % 10 { self.meet(page) } else { self.check(page) }
        }
    }

    /// Moves all pages to another address.
    fn move_away(&mut self) {
        let bytes = self.changed.len() * PAGE;
        let to = raw::map(bytes).expect("cannot map");
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        self.start = unsafe { raw::remap(self.start, bytes, bytes, flags, to) }.expect("no move");
    }

    /// Walks all pages, and gives up some near the walk's place and ahead of it.
    fn walk_with_holes(&mut self, random: &mut Random) {
        for page in 0..self.changed.len() {
            self.meet(page);
            if random.percent(6) {
                let near = (page + random.below(40)).saturating_sub(8);
                let first = near.min(self.changed.len() - 1);
                let end = (first + 1 + random.below(3)).min(self.changed.len());
                let (address, bytes) = (self.start + first * PAGE, (end - first) * PAGE);
                unsafe { raw::advise(address, bytes, libc::MADV_DONTNEED) }
                    .expect("cannot give up");
                self.changed[first..end].fill(0);
            }
        }
    }
}

/// Maps memory, touches it and gives it up in all ways, until `done`. Meanwhile the kernel puts off
/// calls that move pages.
fn map_and_unmap(done: &AtomicBool) {
    // Relaxed: a flag that orders nothing else.
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

/// Returns what a page holds that was changed `times` times.
const fn word_of(page: usize, index: usize, times: u64) -> u64 {
    match times {
        0 => 0,
        _ if index < RANDOM_WORDS => mix(page as u64 * 1000 + index as u64) ^ times,
        _ => page as u64,
    }
}

fn main() -> ExitCode {
    let args = Args::parse(&[], &["bytes", "mode"]);
    let count = args.bytes("bytes", 64 << 20) / PAGE;
    let mode = args.text("mode").unwrap_or("steps");
    let start = raw::map(count * PAGE).expect("cannot map");
    let half = count / 2;
    let mut low = Pages { start, changed: vec![0; half] };
    let mut high = Pages { start: start + half * PAGE, changed: vec![0; count - half] };
    let mut both = Pages { start, changed: vec![0; count] };
    match mode {
        "steps" => {
            for (step, backward) in [(1, false), (1, false), (1, true), (3, false), (4, true)] {
                both.walk(step, backward);
            }
        }
        "look" => {
            both.walk(1, false);
            (0..3).for_each(|time| both.look(time));
            both.move_away();
            (3..6).for_each(|time| both.look(time));
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
                // Relaxed: a flag that orders nothing else.
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
