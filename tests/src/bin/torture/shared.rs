//! Memory that all threads use at once: fixed patterns and counters on the same pages.
//!
//! 1. Words 0..8 of a page are counters, the rest never changes.
//! 2. At the end each page's counters add up to what the threads report as added. So the test finds
//!    an increment lost between a page leaving and coming back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::program::PAGE;
use crate::program::pattern::{Kind, PageImage, Tag, WORDS};
use crate::program::random::{Random, mix};
use crate::program::raw;

use crate::report;
use crate::world::World;

/// Counters at the start of each page.
const COUNTERS: usize = 8;
/// Owner in the tags of these pages.
const OWNER: u32 = u32::MAX;

pub struct Shared {
    seed: u64,
    addr: usize,
    pages: usize,
    tally: Mutex<Vec<u64>>,
}

impl Shared {
    /// Maps and fills the pages.
    pub fn new(seed: u64, pages: usize) -> Self {
        let addr = raw::map(pages * PAGE).expect("cannot map the shared pages");
        let shared = Self { seed, addr, pages, tally: Mutex::new(vec![0; pages]) };
        for page in 0..pages {
            let image = shared.expected(page);
            let words = raw::pointer(shared.page(page)).cast::<[u64; WORDS]>();
            unsafe { words.write(image.0) };
        }
        shared
    }

    /// Returns an empty list of a thread's increments by page.
    pub fn new_tally(&self) -> Vec<u64> {
        vec![0; self.pages]
    }

    /// Checks a few pages and adds to their counters.
    pub fn visit(&self, world: &World, random: &mut Random, tally: &mut [u64]) {
        let (start, run) = (random.below(self.pages), random.percent(50));
        for step in 0..random.between(8, 64) {
            let page = if run { (start + step) % self.pages } else { random.below(self.pages) };
            self.counter(page, random.below(COUNTERS)).fetch_add(1, Ordering::Relaxed);
            tally[page] += 1;
            self.check(world, page);
        }
    }

    /// Takes over the increments of a thread that has ended.
    pub fn add_tally(&self, tally: Vec<u64>) {
        let mut all = self.tally.lock().expect("no thread panics");
        all.iter_mut().zip(tally).for_each(|(sum, more)| *sum += more);
    }

    /// Checks every page and every sum. Returns a digest of the sums.
    pub fn finish(&self, world: &World) -> u64 {
        let tally = self.tally.lock().expect("no thread panics");
        let mut digest = 0;
        for (page, wanted) in tally.iter().enumerate() {
            self.check(world, page);
            let counters = (0..COUNTERS).map(|index| self.counter(page, index));
            let sum: u64 = counters.map(|counter| counter.load(Ordering::Relaxed)).sum();
            if sum != *wanted {
                let text = format!("page {page} counts {sum}, threads added {wanted}");
                report::failed(world, None, "shared counters", &text);
            }
            digest ^= mix(sum ^ mix(page as u64));
        }
        digest
    }

    fn check(&self, world: &World, page: usize) {
        let mut expected = self.expected(page);
        let addr = self.page(page);
        let fixed = unsafe { raw::bytes(addr + COUNTERS * 8, PAGE - COUNTERS * 8) };
        world.bytes_checked.fetch_add(fixed.len() as u64, Ordering::Relaxed);
        if fixed != &expected.bytes()[COUNTERS * 8..] {
            for index in 0..COUNTERS {
                expected.0[index] = self.counter(page, index).load(Ordering::Relaxed);
            }
            report::mismatch(world, None, page, addr, &expected);
        }
    }

    fn expected(&self, page: usize) -> PageImage {
        let kind = Kind::by_lot(mix(self.seed ^ page as u64));
        let mut image = PageImage::zero();
        Tag { owner: OWNER, index: page as u32, version: 0, kind, patches: 0 }
            .expected(self.seed, &mut image);
        image.0[..COUNTERS].fill(0);
        image
    }

    fn page(&self, page: usize) -> usize {
        self.addr + page * PAGE
    }

    /// Returns a counter of a page. `Relaxed` suffices: the sums are read after the threads were
    /// joined.
    fn counter(&self, page: usize, index: usize) -> &AtomicU64 {
        let word = raw::pointer(self.page(page)).cast::<u64>().wrapping_add(index);
        // The words are mapped as long as the program runs, and used only as atomics.
        unsafe { AtomicU64::from_ptr(word) }
    }
}
