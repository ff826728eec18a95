//! The program of `coldpress-bench swap`: it fills memory, then touches its pages in every order,
//! and times each touch.
//!
//! 1. Each thread has pages of its own, and touches no others: threads share only the budget.
//! 2. Each page holds its number and its count of writes, so neither a wrong page nor an old one
//!    passes for a fast one.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::codecs::pages;
use crate::processors::{Times, field_of};
use crate::random::Random;
use crate::ticks::Stopwatch;
use crate::touch::histogram::Histogram;
use crate::touch::pattern::{Pattern, Walk};
use coldpress_sys::Page;
use rustix::time::ClockId;
use serde_json::{Value, json};

use super::options::{Percent, TouchArgs};
use crate::commands::pages::{FAULT_NS_MIN, fresh, pages_of};

/// The number of touches between two looks at the clock.
const BATCH: usize = 32;
/// The place of `majflt` among the fields of /proc/PID/stat behind the name (proc_pid_stat(5)).
const MAJFLT: usize = 9;

/// Runs the workload `touch`. Returns `None` when there are no pages to fill, or none to fill them
/// with.
pub(crate) fn touch(args: &TouchArgs) -> Option<Value> {
    let mut memory = fresh(args.data);
    let pages = pages_of(&mut memory, args.data);
    let threads = args.threads as usize;
    let watch = Stopwatch::learn();
    let mut parts: Vec<Part<'_>> = pages
        .chunks_mut(pages.len().div_ceil(threads).max(1))
        .enumerate()
        .map(|(index, pages)| Part {
            versions: vec![0; pages.len()],
            pages,
            mark: (index as u64) << 32,
            random: Random::new(index as u64),
        })
        .collect();
    if parts.len() != threads {
        return None;
    }
    let fill = fill(&mut parts, &args.pages)?;
    let mut works = Vec::new();
    for pattern in Pattern::ALL {
        for writes in &args.writes {
            let mut walks: Vec<Walk> = parts
                .iter()
                .enumerate()
                .map(|(index, part)| Walk::new(pattern, part.pages.len(), index as u64))
                .collect();
            let mut work = |millis| {
                let length = Duration::from_millis(millis);
                work(&mut parts, &mut walks, *writes, watch, length, args.top)
            };
            work(args.warm_ms);
            let mut found = work(args.measure_ms);
            found["pattern"] = json!(pattern.name());
            found["writes"] = json!(writes.0);
            works.push(found);
        }
    }
    Some(json!({ "fill": fill, "works": works }))
}

/// The pages of one thread.
struct Part<'p> {
    pages: &'p mut [Page],
    /// The number of writes to each page.
    versions: Vec<u32>,
    /// The number that gives, added to a page's number, the page's first word.
    mark: u64,
    random: Random,
}

/// The counts of one thread.
#[derive(Default)]
struct Seen {
    times: Histogram,
    touches: u64,
    /// The touches that took longer than [`FAULT_NS_MIN`], and their time.
    slow: u64,
    slow_ns: f64,
    wrong: u64,
    seconds: f64,
}

impl Part<'_> {
    /// Fills the pages with those of a program. Returns the seconds that the later half of them
    /// took.
    fn fill(&mut self, templates: &[Page]) -> f64 {
        let half = self.pages.len() / 2;
        let mut started = Instant::now();
        for (number, page) in self.pages.iter_mut().enumerate() {
            if number == half {
                started = Instant::now();
            }
            *page = templates[number % templates.len()];
            page[..8].copy_from_slice(&(self.mark + number as u64).to_ne_bytes());
            page[8..12].fill(0);
        }
        started.elapsed().as_secs_f64()
    }

    fn touch(
        &mut self,
        walk: &mut Walk,
        writes: Percent,
        watch: Stopwatch,
        length: Duration,
    ) -> Seen {
        let mut seen = Seen::default();
        let started = Instant::now();
        while started.elapsed() < length {
            for _ in 0..BATCH {
                let number = walk.next_page();
                let ns = self.touch_one(number, writes, watch);
                seen.times.count(ns as u64);
                if ns > f64::from(FAULT_NS_MIN) {
                    seen.slow += 1;
                    seen.slow_ns += ns;
                }
                let page = &self.pages[number];
                let is_right = page[..8] == (self.mark + number as u64).to_ne_bytes()
                    && page[8..12] == self.versions[number].to_ne_bytes();
                seen.wrong += u64::from(!is_right);
            }
            seen.touches += BATCH as u64;
        }
        seen.seconds = started.elapsed().as_secs_f64();
        seen
    }

    /// Reads the head of a page, or writes to it as often as `writes` says. What is written is as
    /// long as what was there, so the page compresses as before. Returns the nanoseconds.
    #[inline]
    fn touch_one(&mut self, number: usize, writes: Percent, watch: Stopwatch) -> f64 {
        let page = &mut self.pages[number];
        if self.random.happens(writes.0 as usize * 10) {
            self.versions[number] = self.versions[number].wrapping_add(1);
            let version = self.versions[number].to_ne_bytes();
            // The compiler may neither predict the touch nor move it out of the timed region.
            watch.time(|| black_box(&mut *page)[8..12].copy_from_slice(&version)).0
        } else {
            watch.time(|| black_box(black_box(&*page).first_chunk::<8>().copied())).0
        }
    }
}

/// Fills the pages of all threads at once. Returns the time of the later half; `None` without
/// templates.
fn fill(parts: &mut [Part<'_>], templates: &Path) -> Option<Value> {
    let (_, templates) = pages::read(templates).ok()?;
    let pages: usize = parts.iter().map(|part| part.pages.len().div_ceil(2)).sum();
    let seconds = thread::scope(|scope| {
        let fill = |part| {
            let templates = &templates;
            scope.spawn(move || Part::fill(part, templates))
        };
        let threads: Vec<_> = parts.iter_mut().map(fill).collect();
        let seconds = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
        seconds.fold(0.0, f64::max)
    });
    Some(json!({ "pages": pages, "seconds": seconds }))
}

/// Has each thread touch its pages for some time, and returns what they measured.
fn work(
    parts: &mut [Part<'_>],
    walks: &mut [Walk],
    writes: Percent,
    watch: Stopwatch,
    length: Duration,
    top: u32,
) -> Value {
    let (cpu, faults) = (Cpu::now(top), major_faults());
    let all: Vec<Seen> = thread::scope(|scope| {
        let touch =
            |(part, walk)| scope.spawn(move || Part::touch(part, walk, writes, watch, length));
        let threads: Vec<_> = parts.iter_mut().zip(walks).map(touch).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let seconds = Cpu::now(top).zip(cpu).map(|(after, before)| after.seconds_since(before));
    let mut times = Histogram::default();
    all.iter().for_each(|seen| times.add(&seen.times));
    let per_second: f64 = all.iter().map(|seen| seen.touches as f64 / seen.seconds).sum();
    json!({
        "accesses": all.iter().map(|seen| seen.touches).sum::<u64>(),
        "accesses_per_second": per_second,
        "wrong_pages": all.iter().map(|seen| seen.wrong).sum::<u64>(),
        "slow": all.iter().map(|seen| seen.slow).sum::<u64>(),
        "slow_ns": all.iter().map(|seen| seen.slow_ns).sum::<f64>(),
        "major_faults": major_faults().zip(faults).map(|(after, before)| after - before),
        "cpu_seconds": seconds,
        "p50_ns": times.percentile(50.0),
        "p99_ns": times.percentile(99.0),
        "p999_ns": times.percentile(99.9),
    })
}

/// The processors' time of a run up to a moment.
struct Cpu {
    /// The seconds of this process, of threads that have ended, too.
    own: f64,
    /// All others below one process, and the kernel's.
    others: Times,
}

impl Cpu {
    /// Looks at the times of the run that stands below the process `top`; `None` when the kernel
    /// does not tell them.
    fn now(top: u32) -> Option<Self> {
        let own = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
        let own = own.tv_sec as f64 + own.tv_nsec as f64 / 1e9;
        Some(Self { own, others: Times::of_run(top, std::process::id()).ok()? })
    }

    fn seconds_since(self, before: Self) -> f64 {
        self.own - before.own + (self.others - before.others).seconds()
    }
}

/// Returns the major faults of this process; `None` when the kernel does not report them.
fn major_faults() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    field_of(&text, MAJFLT)
}

#[cfg(test)]
mod tests {
    //! The risk: figures of touches that did not reach their page, or not as often as said.
    use super::*;
    use crate::commands::pages::make_page;
    use coldpress_codec::{Codec, CodecId};
    use coldpress_sys::{Bytes, PAGE_BYTES};

    fn args(data: Bytes, threads: u32, pages: &Path) -> TouchArgs {
        let (pages, top, writes) = (pages.to_owned(), std::process::id(), vec![Percent(30)]);
        TouchArgs { data, threads, writes, pages, warm_ms: 0, measure_ms: 5, top }
    }

    #[test]
    fn every_work_finds_its_own_pages() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, [5; 3 * PAGE_BYTES]).unwrap();
        for threads in [1, 2] {
            let found = touch(&args(Bytes::kib(400), threads, file.path())).unwrap();
            let works = found["works"].as_array().unwrap();
            assert_eq!(works.len(), 5);
            for work in works {
                assert_eq!(work["wrong_pages"], 0, "{work}");
                assert!(work["accesses"].as_u64() > Some(0), "{work}");
                assert!(work["p50_ns"].as_u64() <= work["p999_ns"].as_u64(), "{work}");
            }
        }
        assert!(touch(&args(Bytes(1), 1, file.path())).is_none());
        assert!(touch(&args(Bytes::kib(400), 1, Path::new("/absent"))).is_none());
    }

    #[test]
    fn as_many_touches_write_as_are_asked_for_and_no_page_compresses_otherwise() {
        let mut codec = Codec::new(CodecId::Lz4).unwrap();
        let mut out = [0; 2 * PAGE_BYTES];
        for (writes, wanted) in [(0, 0..=0), (30, 2800..=3200), (100, 10_000..=10_000)] {
            let mut pages = vec![[0; PAGE_BYTES]; 4];
            let versions = vec![0; 4];
            let random = Random::new(1);
            let mut part = Part { versions, pages: &mut pages, mark: 0, random };
            let mut template = [0; PAGE_BYTES];
            make_page(&mut template, 1);
            part.fill(&[template]);
            let watch = Stopwatch::learn();
            for touch in 0..10_000 {
                part.touch_one(touch % 4, Percent(writes), watch);
            }
            let found: u32 = part.versions.iter().sum();
            assert!(wanted.contains(&found), "{writes}: {found}");
            let [before, after] = [&template, &part.pages[1]]
                .map(|page| codec.compress(page, &mut out).unwrap().len());
            assert!(before.abs_diff(after) < 24, "{before} {after}");
        }
    }

    #[test]
    fn wrong_and_old_pages_are_found() {
        let mut pages = vec![[0; PAGE_BYTES]; 4];
        let mut part =
            Part { versions: vec![0; 4], pages: &mut pages, mark: 1 << 32, random: Random::new(1) };
        part.fill(&[[5; PAGE_BYTES]]);
        let watch = Stopwatch::learn();
        let wrong = |part: &mut Part<'_>| {
            let mut walk = Walk::new(Pattern::Sequential, 4, 0);
            part.touch(&mut walk, Percent(0), watch, Duration::from_millis(1)).wrong
        };
        assert_eq!(wrong(&mut part), 0);
        part.versions[2] += 1;
        assert!(wrong(&mut part) > 0);
        part.versions[2] -= 1;
        part.pages[3][0] ^= 1;
        assert!(wrong(&mut part) > 0);
    }
}
