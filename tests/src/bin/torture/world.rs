//! State that all threads share: the queue of regions, the totals and the end of the run.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::program::PAGE;
use crate::program::random::Random;

use crate::region::Region;
use crate::shared::Shared;

/// The limit at which a worker stops.
#[derive(Clone, Copy)]
pub enum Limit {
    /// After this time.
    Time(Duration),
    /// After this many visits of each worker.
    Visits(u64),
}

/// Lately unmapped ranges that are remembered, to count how many found a new tenant.
const RECENT: usize = 128;

/// A range that was given back to the kernel.
struct Released {
    start: usize,
    end: usize,
    thread: usize,
}

/// The state that all threads share. Its counters are statistics, or tallies read after the threads
/// have been joined: `Relaxed` everywhere. The queue's mutex orders the regions' contents between
/// their owners.
pub struct World {
    pub seed: u64,
    pub threads: usize,
    pub target_pages: i64,
    pub self_test: bool,
    /// Whether pages are given up by `MADV_FREE`: what such pages hold is the kernel's choice.
    pub lazy_free: bool,
    pub shared: Shared,
    pub live: AtomicI64,
    pub mapped: AtomicI64,
    pub live_peak: AtomicI64,
    pub operations: AtomicU64,
    pub bytes_checked: AtomicU64,
    pub retenanted: AtomicU64,
    pub remap_refused: AtomicU64,
    /// Address of the byte that `--self-test` flipped; 0 before.
    pub planted: AtomicUsize,
    pub workers_done: AtomicUsize,
    limit: Limit,
    start: Instant,
    next_id: AtomicU32,
    queue: Mutex<VecDeque<Box<Region>>>,
    recent: Mutex<VecDeque<Released>>,
    break_done: AtomicBool,
}

impl World {
    pub fn new(seed: u64, bytes: usize, threads: usize, limit: Limit, self_test: bool) -> Self {
        Self {
            seed,
            threads,
            target_pages: (bytes / PAGE).max(64) as i64,
            self_test,
            lazy_free: true,
            shared: Shared::new(seed, (bytes / PAGE / 16).max(4)),
            live: AtomicI64::new(0),
            mapped: AtomicI64::new(0),
            live_peak: AtomicI64::new(0),
            operations: AtomicU64::new(0),
            bytes_checked: AtomicU64::new(0),
            retenanted: AtomicU64::new(0),
            remap_refused: AtomicU64::new(0),
            planted: AtomicUsize::new(0),
            workers_done: AtomicUsize::new(0),
            limit,
            start: Instant::now(),
            next_id: AtomicU32::new(1),
            queue: Mutex::new(VecDeque::new()),
            recent: Mutex::new(VecDeque::new()),
            break_done: AtomicBool::new(false),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns whether a worker that has made `visits` visits shall stop.
    pub fn over(&self, visits: u64) -> bool {
        match self.limit {
            // Workers outlive the break's owner: what the owner allocated is freed before they end.
            Limit::Time(time) => self.elapsed() >= time && self.break_done.load(Ordering::Relaxed),
            Limit::Visits(most) => visits >= most,
        }
    }

    /// Returns whether the thread that owns the break shall stop.
    pub fn break_over(&self) -> bool {
        match self.limit {
            Limit::Time(time) => self.elapsed() >= time,
            Limit::Visits(_) => self.workers_done.load(Ordering::Relaxed) >= self.threads,
        }
    }

    /// Notes that the owner of the break has stopped.
    pub fn break_stopped(&self) {
        self.break_done.store(true, Ordering::Relaxed);
    }

    /// Returns whether `--self-test` shall plant its byte now.
    pub fn may_plant(&self, visits: u64) -> bool {
        let late = match self.limit {
            Limit::Time(time) => self.elapsed() >= time / 3,
            Limit::Visits(most) => visits >= most / 3,
        };
        self.self_test && late && self.planted.load(Ordering::Relaxed) == 0
    }

    pub fn new_id(&self) -> u32 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives a region back to all threads and brings the totals up to date.
    pub fn put(&self, mut region: Box<Region>) {
        self.account(&mut region);
        self.queue.lock().expect("no thread panics").push_back(region);
    }

    /// Brings the totals up to date with the region's pages.
    pub fn account(&self, region: &mut Region) {
        let (live, mapped) = (region.live_pages(), region.pages.len() as i64);
        let delta = live - region.accounted_live;
        let now = self.live.fetch_add(delta, Ordering::Relaxed) + delta;
        self.live_peak.fetch_max(now * PAGE as i64, Ordering::Relaxed);
        self.mapped.fetch_add(mapped - region.accounted_mapped, Ordering::Relaxed);
        (region.accounted_live, region.accounted_mapped) = (live, mapped);
    }

    /// Takes the region that was used longest ago.
    pub fn take_oldest(&self) -> Option<Box<Region>> {
        self.queue.lock().expect("no thread panics").pop_front()
    }

    /// Takes a random region; lately used regions come up more often.
    pub fn take_skewed(&self, random: &mut Random) -> Option<Box<Region>> {
        let mut queue = self.queue.lock().expect("no thread panics");
        let length = queue.len();
        if length == 0 { None } else { queue.remove(length - random.skewed(length)) }
    }

    /// Remembers a range about to be unmapped.
    pub fn released(&self, start: usize, pages: usize, thread: usize) {
        let mut recent = self.recent.lock().expect("no thread panics");
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(Released { start, end: start + pages * PAGE, thread });
    }

    /// Counts a new mapping that took addresses which another thread had given back.
    pub fn mapped_at(&self, start: usize, pages: usize, thread: usize) {
        let end = start + pages * PAGE;
        let recent = self.recent.lock().expect("no thread panics");
        if recent.iter().any(|old| old.thread != thread && old.start < end && start < old.end) {
            self.retenanted.fetch_add(1, Ordering::Relaxed);
        }
    }
}
