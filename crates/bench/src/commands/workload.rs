//! The workloads that the benchmarks run, with and without a budget. Each workload measures itself
//! and prints one line of JSON, so its times do not include the start of a process.
//!
//! Every run does the same work: numbers are pseudo-random from a fixed start.

use std::hint::black_box;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use clap::{Args, Subcommand};
use coldpress_common::size::parse_size;
use coldpress_sys::{Bytes, cpu};
use serde_json::{Value, json};

use super::fork::options::ForksArgs;
use super::pages::{FAULT_NS_MIN, fresh, make_page, page_random, pages_of};
use super::start::{ChildrenArgs, SCRIPT_PROCESSES};
use super::swap::options::TouchArgs;
use super::zswap::options::{JobArgs, JobsArgs};
use super::{fork, start, swap, zswap};
use crate::codecs::heap::Heap;
use crate::commands::say;
use crate::descriptors::{Descriptor, Plan};
use crate::random::Random;
use crate::statistics::Sample;

/// The number of vectors alive at a time, 64 bytes to 512 KiB each: 75 MB in total.
const SLOTS: usize = 1000;
/// The number of vectors made: about a second on a processor of 2023.
const VECTORS: usize = 180_000;

/// The number of records in the heap: some 40 MB.
const HEAP_RECORDS: usize = 100_000;

/// The options of `coldpress-bench workload`.
#[derive(Debug, Args)]
pub(crate) struct WorkloadArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) workload: Workload,
}

/// What the benchmarks run. Each prints one line of JSON.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Workload {
    /// Fills memory, then touches pages at random
    Fault {
        /// Bytes to fill
        #[arg(long, value_parser = parse_size)]
        data: Bytes,
        /// Pages to touch
        #[arg(long)]
        accesses: u32,
        /// Stay on one processor
        #[arg(long)]
        pinned: bool,
    },
    /// Touches fresh memory page by page
    FirstTouch {
        /// Bytes to touch
        #[arg(long, value_parser = parse_size)]
        data: Bytes,
    },
    /// Fills memory with pages of a program, then touches them in many orders
    Touch(TouchArgs),
    /// Runs jobs like those of a compiler, so many at a time
    Jobs(JobsArgs),
    /// Runs one of them
    Job(JobArgs),
    /// Fills memory, then forks
    Forks(ForksArgs),
    /// Allocates and frees for about a second
    Allocate,
    /// Runs a shell script that starts many processes
    Script,
    /// Starts many programs a second
    Children(ChildrenArgs),
    /// Builds maps and records, says that it is ready, and waits for the end of its input
    Heap,
    /// Runs a slab allocator's model with one layout of descriptors
    Descriptors {
        /// Bytes of a descriptor
        #[arg(long)]
        layout: usize,
        /// The plan
        #[arg(long)]
        plan: String,
        /// How often; 0 makes everything ready and ends
        #[arg(long)]
        passes: u32,
    },
}

/// Runs a workload and prints its figures.
pub(crate) fn workload(args: &WorkloadArgs) -> ExitCode {
    let found = match &args.workload {
        Workload::Fault { data, accesses, pinned } => {
            if *pinned && let Err(error) = cpu::run_on(cpu::current()) {
                say(format!("the workload is not on one processor: {error}"));
            }
            fault(*data, *accesses)
        }
        Workload::FirstTouch { data } => Some(first_touch(*data)),
        Workload::Touch(args) => swap::touch(args),
        Workload::Jobs(args) => zswap::jobs(args),
        Workload::Forks(args) => fork::forks(args),
        Workload::Children(args) => start::children(args),
        Workload::Job(args) => Some(zswap::job(args)),
        Workload::Descriptors { layout, plan, passes } => descriptors(*layout, plan, *passes),
        Workload::Allocate => Some(allocate()),
        Workload::Heap => return heap(),
        Workload::Script => script(),
    };
    match found {
        Some(found) => {
            println!("{found}");
            ExitCode::SUCCESS
        }
        None => {
            say("the workload could not do its work; try `coldpress-bench --help`");
            ExitCode::FAILURE
        }
    }
}

/// Fills `data`, then touches pages at random. Returns `None` when there is no page.
fn fault(data: Bytes, accesses: u32) -> Option<Value> {
    let mut memory = fresh(data);
    let pages = pages_of(&mut memory, data);
    for (number, page) in pages.iter_mut().enumerate() {
        make_page(page, number);
    }
    let mut random = Random::new(1);
    let mut slow_ns = Vec::with_capacity(accesses as usize);
    let mut wrong = 0_u64;
    let started = Instant::now();
    for _ in 0..accesses {
        let number = (random.next() % (pages.len() as u64).max(1)) as usize;
        let page = pages.get(number)?;
        let access = Instant::now();
        // The compiler may neither predict the read nor move it out from between the two times.
        let word = black_box(black_box(page).first_chunk::<8>().copied());
        let ns = u32::try_from(access.elapsed().as_nanos()).unwrap_or(u32::MAX);
        if ns > FAULT_NS_MIN {
            slow_ns.push(ns);
        }
        wrong += u64::from(word != Some(page_random(number).next().to_le_bytes()));
    }
    let seconds = started.elapsed().as_secs_f64();
    let faults = slow_ns.len();
    let mut found = times_us(slow_ns);
    found["accesses"] = json!(accesses);
    found["faults"] = json!(faults);
    found["wrong_pages"] = json!(wrong);
    found["seconds"] = json!(seconds);
    Some(found)
}

/// Touches every page of fresh memory once, and times each touch.
fn first_touch(data: Bytes) -> Value {
    let mut memory = fresh(data);
    let mut times_ns = Vec::with_capacity(data.pages_up().0);
    for page in pages_of(&mut memory, data) {
        let access = Instant::now();
        black_box(&mut *page)[0] = 1;
        black_box(&mut *page);
        times_ns.push(u32::try_from(access.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }
    times_us(times_ns)
}

/// Returns percentiles and mean in microseconds; an empty object without times.
fn times_us(times_ns: Vec<u32>) -> Value {
    let Some(sample) = Sample::new(times_ns.into_iter().map(|ns| f64::from(ns) / 1000.0)) else {
        return json!({});
    };
    json!({
        "p10_us": sample.percentile(10.0),
        "p50_us": sample.percentile(50.0),
        "p90_us": sample.percentile(90.0),
        "p99_us": sample.percentile(99.0),
        "mean_us": sample.mean(),
    })
}

/// Makes and drops vectors of all sizes.
fn allocate() -> Value {
    let started = Instant::now();
    let mut random = Random::new(2);
    let mut slots = vec![Vec::new(); SLOTS];
    for _ in 0..VECTORS {
        let word = random.next();
        slots[word as usize % SLOTS] = vec![word as u8; 64 << ((word >> 32) % 14)];
        black_box(&mut slots);
    }
    json!({ "seconds": started.elapsed().as_secs_f64() })
}

/// Builds a heap, says that it is ready, and keeps it until the end of input.
fn heap() -> ExitCode {
    let heap = Heap::new(HEAP_RECORDS);
    println!("ready");
    let waited = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    black_box(heap);
    if waited.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a plan on one layout. Returns `None` when there is no such layout or plan.
fn descriptors(layout: usize, plan: &str, passes: u32) -> Option<Value> {
    let (layout, plan) = (Descriptor::of_bytes(layout)?, Plan::named(plan)?);
    let mut ready = layout.prepare(&plan);
    (0..passes).for_each(|_| ready.pass());
    Some(json!({ "pairs": plan.pairs() * passes as usize }))
}

/// Runs a script that starts processes one after the other. Returns `None` when it fails.
fn script() -> Option<Value> {
    let text =
        format!("i=0; while [ $i -lt {SCRIPT_PROCESSES} ]; do /bin/true; i=$((i + 1)); done");
    let started = Instant::now();
    let status = Command::new("sh").args(["-ec", &text]).stdin(Stdio::null()).status().ok()?;
    let seconds = started.elapsed().as_secs_f64();
    status.success().then(|| json!({ "seconds": seconds }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_run_finds_its_own_pages() {
        let found = fault(Bytes::kib(64), 1000).unwrap();
        assert_eq!((&found["accesses"], &found["wrong_pages"]), (&json!(1000), &json!(0)));
        assert!(fault(Bytes(1), 1).is_none());
        let touched = first_touch(Bytes::kib(64));
        assert!(touched["p99_us"].as_f64() >= touched["p10_us"].as_f64());
    }
}
