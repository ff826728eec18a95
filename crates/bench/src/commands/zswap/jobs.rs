//! The program of `coldpress-bench zswap`: jobs like those of a compiler, several at a time.
//!
//! A job takes memory bit by bit, comes back to its pages, mostly to the new ones, reads all of
//! them for its output, and gives them back. The work is the same however many jobs run at a time.
//!
//! 1. Which pages a job touches, and when it changes one, follows from its number alone.
//! 2. The sum of each page is kept beside the pages and compared at each touch, so that neither a
//!    wrong page nor an old one passes for a fast one.

use std::process::Stdio;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crate::random::Random;
use coldpress_sys::{PAGE_BYTES, Page};
use serde_json::{Value, json};

use super::options::{JobArgs, JobsArgs};
use crate::commands::launch;
use crate::commands::pages::make_page;

/// The number of pages that a job takes at once: 256 KiB.
const CHUNK: usize = 64;
/// The number of times that a job stops taking memory and works on what it has.
const STEPS: usize = 16;
/// The number of neighbouring pages touched one after the other: 64 KiB.
const RUN: usize = 16;
/// The touches of pages in a step, relative to the pages taken in it.
const TOUCHES: usize = 3;
/// The runs among new pages, of a thousand; and the steps for which a page counts as new.
const NEW: usize = 850;
const NEW_STEPS: usize = 2;
/// The number of times that a touch sums up its page. With this number a job takes some 60 us for
/// each page that it takes; cc1plus of gcc takes 57 us (-O0) and 64 us (-O2) for a page on the same
/// processor.
const PASSES: usize = 2;
/// The touches that change the page, of a thousand.
const CHANGES: usize = 300;

/// Runs all jobs. Returns `None` when a job could not be run.
pub(crate) fn jobs(args: &JobsArgs) -> Option<Value> {
    let started = Instant::now();
    let (next, wrong, failed) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU32::new(0));
    let work = || {
        loop {
            // Relaxed: each number is taken once, and no other memory depends on it.
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= args.total {
                return;
            }
            let job = JobArgs { number, largest: args.largest };
            let found = if args.threads { Some(run(&job)) } else { start(&job) };
            let Some(pages) = found else {
                // Relaxed: the counter is read when the threads have ended.
                failed.fetch_add(1, Ordering::Relaxed);
                return;
            };
            // Relaxed: the counter is read when the threads have ended.
            wrong.fetch_add(pages, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| (0..args.jobs).for_each(|_| drop(scope.spawn(work))));
    let seconds = started.elapsed().as_secs_f64();
    let found = json!({ "seconds": seconds, "wrong_pages": wrong.into_inner() });
    (failed.into_inner() == 0).then_some(found)
}

/// Runs one job as a process of its own, and waits for it. Returns the number of wrong pages.
fn start(args: &JobArgs) -> Option<u64> {
    let (number, largest) = (args.number.to_string(), args.largest.0.to_string());
    let mut command = launch::workload(&["job", "--number", &number, "--largest", &largest]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().ok()?;
    let found: Value = serde_json::from_slice(&output.stdout).ok()?;
    found["wrong_pages"].as_u64().filter(|_| output.status.success())
}

/// Runs one job in this process, and returns its figures.
pub(crate) fn job(args: &JobArgs) -> Value {
    json!({ "wrong_pages": run(args) })
}

/// Runs one job. Returns the number of wrong pages.
fn run(args: &JobArgs) -> u64 {
    let mut random = Random::new(u64::from(args.number));
    let largest = args.largest.pages_down().0;
    let pages = largest / 4 + random.below(largest * 3 / 4);
    let mut memory = Memory::default();
    let step = pages.div_ceil(STEPS).max(1);
    while memory.sums.len() < pages {
        let take = step.min(pages - memory.sums.len());
        memory.take(take, args.number);
        for _ in 0..(take * TOUCHES).div_ceil(RUN) {
            let all = memory.sums.len();
            let among = if random.happens(NEW) { all.min(NEW_STEPS * step) } else { all };
            let first = all - among + random.below(among);
            for number in first..all.min(first + RUN) {
                memory.touch(number, random.happens(CHANGES));
            }
        }
    }
    (0..pages).for_each(|number| memory.touch(number, false));
    memory.wrong
}

/// The memory that a job has taken.
#[derive(Default)]
struct Memory {
    chunks: Vec<Vec<Page>>,
    /// The sum of each page.
    sums: Vec<u64>,
    /// The number of touches of pages that were not as they had been left.
    wrong: u64,
}

impl Memory {
    /// Takes pages and fills them.
    fn take(&mut self, pages: usize, job: u32) {
        for _ in 0..pages {
            let number = self.sums.len();
            if number.is_multiple_of(CHUNK) {
                self.chunks.push(Vec::with_capacity(CHUNK));
            }
            let mut page = [0; PAGE_BYTES];
            make_page(&mut page, (job as usize) << 16 | number);
            self.sums.push(sum(&page));
            self.chunks[number / CHUNK].push(page);
        }
    }

    /// Reads a page, and changes it if `is_changing`.
    fn touch(&mut self, number: usize, is_changing: bool) {
        let page = &mut self.chunks[number / CHUNK][number % CHUNK];
        self.wrong += u64::from(sum(page) != self.sums[number]);
        if is_changing {
            let word = number % (PAGE_BYTES / 8) * 8;
            page[word] = page[word].wrapping_add(1);
            self.sums[number] = sum(page);
        }
    }
}

/// Sums up all bytes of a page, one by one, more than once: the work of a job. Source: FNV-1a of 64
/// bits (Fowler, Noll, Vo).
fn sum(page: &Page) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    (0..PASSES)
        .flat_map(|_| page.iter())
        .fold(start, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coldpress_sys::Bytes;

    #[test]
    fn jobs_find_their_own_pages_one_by_one_and_together() {
        for (jobs, total) in [(1, 3), (4, 2)] {
            let args = JobsArgs { jobs, total, largest: Bytes::mib(1), threads: true };
            assert_eq!(super::jobs(&args).unwrap()["wrong_pages"], 0);
        }
        assert_eq!(job(&JobArgs { number: 5, largest: Bytes(1) })["wrong_pages"], 0);
    }

    #[test]
    fn wrong_and_old_pages_are_found() {
        let mut memory = Memory::default();
        memory.take(CHUNK + 2, 1);
        let before = memory.chunks[1][0];
        memory.touch(CHUNK, true);
        memory.touch(CHUNK, false);
        assert_ne!(memory.chunks[1][0], before);
        assert_eq!(memory.wrong, 0);
        memory.chunks[1][0] = before;
        memory.touch(CHUNK, false);
        memory.chunks[0][3] = memory.chunks[0][4];
        memory.touch(3, false);
        assert_eq!(memory.wrong, 2);
    }
}
