//! Risk: memory goes over the budget for a moment, which in a limited cgroup is a kill.
//!
//! A watcher outside the process samples all resident anonymous memory of the managed tree, pool
//! and tables included, 100 times a second; no sample may be over the budget by more than 4 MiB.
//! The hardest case is a program that does nothing but touch new memory. The kernel does not miss
//! what sampling could miss: two jobs also run inside a memory cgroup, where a page too many is a
//! kill.

use std::env;

use coldpress_sys::Bytes;
use coldpress_tests::cgroup::Limited;
use coldpress_tests::harness::{Fraction, Job, Run, check};
use coldpress_tests::machine::{fixture, is_root, require, workspace_file};
use coldpress_tests::matrix;

/// Both parts: only data is large in these jobs.
const HALF_AND_QUARTER: &[Fraction] = &[Fraction::Half, Fraction::Quarter];
/// The part for jobs that run with the half in a cgroup.
const QUARTER: &[Fraction] = &[Fraction::Quarter];
/// Room of the cgroup beside the budget: launcher, page tables, stacks, code.
const CGROUP_ROOM: Bytes = Bytes::mib(32);
/// Runs in a cgroup unless `COLDPRESS_CGROUP_RUNS` gives another number.
const CGROUP_RUNS: u32 = 1;
/// Millions of characters of text that the demo indexes here: about 85 MB in the program.
const DEMO_LIMIT: &str = "14";

/// Makes a job of the demo on a smaller input.
fn demo() -> Option<Job> {
    let script = workspace_file("demo/index.py");
    let job = Job::new("demo", require("python3")?).arg(script);
    Some(job.args(["/usr", "--limit", DEMO_LIMIT]))
}

/// Makes a job that touches 192 MiB as fast as it can, then checks it.
fn first_touch(name: &'static str, threads: &str, mode: &str) -> Job {
    let program = env!("CARGO_BIN_EXE_first_touch");
    Job::new(name, program).args(["--bytes", "192M", "--threads", threads, "--mode", mode])
}

/// The service may come late on a busy machine. By then, pages touched before may have passed the
/// budget.
#[test]
fn who_maps_the_whole_budget_is_managed_before_it_touches_it() {
    let Some(python) = require("python3") else { return };
    for how in ["mmap", "malloc"] {
        let mapping = |mib| Job::new("mapped", &python).arg(fixture("mapped.py")).args([mib, how]);
        let run = |mib| mapping(mib).managed(Bytes::mib(64)).stdout;
        assert_eq!(run("64"), b"watched\n", "{how}");
        assert_eq!(run("16"), b"not watched\n", "{how}");
    }
}

#[test]
fn the_demo_keeps_its_budget() {
    if matrix::is_left_out() {
        return;
    }
    if let Some(job) = demo() {
        check(&job, QUARTER);
    }
}

#[test]
fn first_touch_of_one_mapping_keeps_the_budget() {
    check(&first_touch("first touch", "1", "one"), HALF_AND_QUARTER);
}

/// Management begins because more than the budget is mapped, and meanwhile a part is given back.
#[test]
fn first_touch_of_what_was_trimmed_keeps_the_budget() {
    let job = Job::new("first touch, trimmed", env!("CARGO_BIN_EXE_first_touch"));
    let job = job.args(["--bytes", "48M", "--mode", "trimmed"]);
    for _ in 0..60 {
        let run = job.managed(Bytes::mib(24));
        println!("{run}");
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.assert_stored();
        run.assert_within_budget();
    }
}

/// Filled at once by the kernel, this memory would pass the budget before coldpress could know. The
/// first thread fills its part before it is managed, the other thread after.
#[test]
fn first_touch_of_what_is_to_be_filled_at_once_keeps_the_budget() {
    check(&first_touch("first touch, filled", "2", "filled"), HALF_AND_QUARTER);
}

#[test]
fn first_touch_by_two_threads_keeps_the_budget() {
    check(&first_touch("first touch, two threads", "2", "one"), HALF_AND_QUARTER);
}

#[test]
fn first_touch_of_many_mappings_keeps_the_budget() {
    check(&first_touch("first touch, many mappings", "1", "many"), HALF_AND_QUARTER);
    check(&first_touch("first touch, many, two threads", "2", "many"), HALF_AND_QUARTER);
}

#[test]
fn first_touch_of_the_heap_keeps_the_budget() {
    check(&first_touch("first touch, heap", "1", "heap"), QUARTER);
    check(&first_touch("first touch, heap, two threads", "2", "heap"), HALF_AND_QUARTER);
}

/// By its process number, /proc shows this process as it shows the ended thread: empty.
#[test]
fn a_process_whose_first_thread_has_ended_keeps_the_budget() {
    let job = first_touch("first touch, first thread gone", "2", "one").arg("--leave");
    let run = job.managed(Bytes::mib(48));
    println!("{run}");
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.assert_stored();
    run.assert_within_budget();
}

/// malloc's memory grows by calls that libc makes itself. The program has been quiet each time, so
/// coldpress keeps no room for it. Without notice, 20 MB are resident before coldpress has looked
/// twice.
#[test]
fn what_malloc_maps_is_told_of_before_it_is_touched() {
    let Some(python) = require("python3") else { return };
    for size in ["100", "1000"] {
        let job = Job::new("heap", &python).arg(fixture("heap.py")).arg(size);
        let run = job.managed(Bytes::mib(64));
        println!("{run}");
        assert_eq!((run.code, run.stdout.as_slice()), (0, &b"kept\n"[..]), "{}", run.stderr);
        run.assert_within_budget();
        // Of twelve times 4900 pages, at most 64 come with each fault.
        let told = run.stats().count("first_touch_faults");
        assert!(told >= 12 * 4900 / 64, "{told} first touches were ours");
    }
}

/// Tables grow with the program, not with the budget. At more than fifty times the budget there is
/// still room for them.
#[test]
fn a_program_of_fifty_times_the_budget_has_its_tables() {
    let Some(python) = require("python3") else { return };
    let job = Job::new("wide", python).arg(fixture("wide.py")).arg("900");
    let run = job.managed(Bytes::mib(16));
    println!("{run}");
    assert_eq!((run.code, run.stdout.as_slice()), (0, &b"checked 230400\n"[..]), "{}", run.stderr);
    run.assert_stored();
    run.assert_within_budget();
}

/// Runs `job` at half its peak, `runs` times, each in a new cgroup limited to the budget and
/// [`CGROUP_ROOM`].
fn check_in_cgroup(job: &Job, runs: u32) {
    let plain: Run = job.plain();
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    let budget = Fraction::Half.of(plain.memory.peak_total);
    for number in 1..=runs {
        let Some(group) = Limited::new(budget + CGROUP_ROOM) else { return };
        let run = job.clone().before(group.entering()).managed(budget);
        println!(
            "{number} of {runs} in {:?}, most {:?}: {run}",
            budget + CGROUP_ROOM,
            group.peak()
        );
        assert_eq!(group.kills(), 0, "run {number}: killed in the cgroup; {}", run.stderr);
        run.assert_same(&plain);
        run.assert_stored();
        run.assert_within_budget();
    }
}

#[test]
fn the_demo_is_never_killed_in_a_cgroup() {
    if !is_root() {
        return;
    }
    let runs = env::var("COLDPRESS_CGROUP_RUNS");
    let runs = runs.map_or(CGROUP_RUNS, |text| text.parse().expect("a number of runs"));
    if let Some(job) = demo() {
        check_in_cgroup(&job, runs);
    }
}

#[test]
fn first_touch_is_never_killed_in_a_cgroup() {
    if is_root() {
        check_in_cgroup(&first_touch("first touch in a cgroup", "2", "one"), 1);
    }
}
