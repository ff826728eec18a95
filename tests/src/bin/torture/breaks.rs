//! The program break: one thread grows, shrinks, checks and rewrites the memory above the heap.
//!
//! 1. Only the main thread comes here, and malloc's main arena is its own while workers run: the
//!    break cannot move between our look at it and our shrinking of it.
//! 2. When malloc has put its own memory above our stretch, the stretch can shrink no more: it is
//!    kept as it is (and still checked), and a new stretch begins.

use std::time::Duration;

use crate::program::PAGE;

use crate::ops::Worker;
use crate::region::{Home, Region, State, Whole};
use crate::report;
use crate::world::World;

/// Stretches kept below malloc's memory before growth ends.
const STRETCHES: usize = 8;
/// Identity of the first stretch: far from the workers' identities, which depend on the seed alone.
const FIRST_ID: u32 = u32::MAX - 1000;
/// Pause between two operations.
const PAUSE: Duration = Duration::from_millis(2);
/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

/// Works on the break until the end of the run.
pub fn run(world: &World) {
    let mut worker = Worker::new(world, 0);
    let most = (world.target_pages as usize / 16).max(8);
    let mut stretches = vec![begin(0)];
    let mut next_line = PROGRESS;
    while !world.break_over() {
        let last = stretches.len() - 1;
        let is_top = current() == stretches[last].addr + stretches[last].length();
        if is_top {
            step(&mut worker, &mut stretches[last], most);
        } else if stretches[last].pages.is_empty() {
            stretches[last] = begin(last);
        } else if stretches.len() < STRETCHES {
            stretches.push(begin(last + 1));
        }
        let index = worker.random.below(stretches.len());
        worker.verify(&mut stretches[index]);
        if world.elapsed() > next_line {
            let seconds = next_line.as_secs();
            let live = world.live.load(std::sync::atomic::Ordering::Relaxed);
            eprintln!(
                "torture: {seconds} s, {live} live pages, {} stretches of the break",
                last + 1
            );
            next_line += PROGRESS;
        }
        std::thread::sleep(PAUSE);
    }
    for stretch in &mut stretches {
        worker.verify(stretch);
    }
    world.break_stopped();
}

/// Does one operation on the stretch that ends at the break.
fn step(worker: &mut Worker<'_>, region: &mut Region, most: usize) {
    let old = region.pages.len();
    match worker.random.below(10) {
        0..=3 if old < most => {
            let more = worker.random.skewed(most - old);
            worker.note(region, "sbrk up", &(old..old + more));
            let at = unsafe { libc::sbrk((more * PAGE) as isize) }.expose_provenance();
            if at != region.addr + old * PAGE {
                report::failed(worker.world, Some(region), "sbrk", "the break was elsewhere");
            }
            region.pages.resize(old + more, State::default());
            worker.verify(region);
            worker.write(region, old..old + more);
        }
        4..=5 if old > 0 => {
            let less = worker.random.skewed(old);
            worker.note(region, "sbrk down", &(old - less..old));
            unsafe { libc::sbrk(-((less * PAGE) as isize)) };
            region.pages.truncate(old - less);
        }
        6 if old > 0 => worker.dont_need(region),
        _ if old > 0 => {
            let span = worker.span(region);
            worker.write(region, span);
        }
        _ => {}
    }
}

/// Begins an empty stretch at the break, which is moved to a page boundary.
fn begin(number: usize) -> Region {
    let now = current();
    let start = now.next_multiple_of(PAGE);
    unsafe { libc::sbrk((start - now) as isize) };
    let mut region = Region::new(FIRST_ID + number as u32, start, 0, Home::Break);
    region.whole = Whole::No;
    region
}

fn current() -> usize {
    unsafe { libc::sbrk(0) }.expose_provenance()
}
