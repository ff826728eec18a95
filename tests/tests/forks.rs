//! The risk: a child of `fork` finds other bytes than its parent had, or a parent loses bytes to
//! its child, while pages of both are in limbo, in the pool or on disk; and a fork takes the memory
//! that was to be saved.

use std::time::Duration;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live, Run};
use coldpress_tests::machine::{self, Scratch, fixture, require};
use coldpress_tests::matrix;
use coldpress_tests::watch;

const FORKER: &str = env!("CARGO_BIN_EXE_forker");

/// Runs every way to fork, with these options of `run`, within half of the memory.
fn forker(options: &[&str]) -> Run {
    let job = Job::new("forker", FORKER).args(["--bytes", "50331648", "--rounds", "1"]);
    let plain = job.plain();
    let run = job.options(options.iter().copied()).managed(Bytes::mib(24));
    println!("{run}\n{}{}", String::from_utf8_lossy(&run.stdout), run.stderr);
    run.assert_same(&plain);
    run.assert_stored();
    run
}

/// Returns the number of children that took over their parent's pages.
fn heirs(run: &Run) -> u64 {
    run.stats().count("heirs")
}

/// Checks that glibc's forks are managed: no page is brought back for them, and the children also
/// go on with pages on disk.
fn inherits(pool: &str) {
    let run = forker(&["--pool", pool, "--max-pool-percent", "20"]);
    assert!(heirs(&run) >= 6);
    assert!(run.stats().count("written_back_pages") > 0);
}

#[test]
fn every_way_to_fork_gives_the_same() {
    inherits("zsmalloc");
}

#[test]
fn every_way_to_fork_with_segment_gives_the_same() {
    if matrix::is_left_out() {
        return;
    }
    inherits("segment");
}

#[test]
fn children_inherit_where_there_is_no_disk() {
    let run = forker(&["--disk", "none", "--max-pool-percent", "90"]);
    assert!(heirs(&run) >= 6);
}

/// Children inherit nothing while frames are recorded: every page is brought back.
#[test]
fn children_of_recorded_programs_find_everything_in_place() {
    let place = Scratch::new("recorded-forks");
    let record = place.path("frames");
    let run = forker(&["--record", record.to_str().expect("a plain path")]);
    assert_eq!(heirs(&run), 0);
    assert!(run.stats().count("fork_pages") > 0);
}

/// A program goes on when launcher and keeper were killed. Its children cannot join a run: they
/// have all pages in place.
#[test]
fn children_without_a_keeper_are_whole() {
    let Some(python) = require("python3") else { return };
    let job = Job::new("orphan", python).arg(fixture("fork.py")).args(["64", "orphan"]);
    let job = job.options(["--max-pool-percent", "20"]);
    let mut live = Live::start(&job, Some(Bytes::mib(40)));
    live.wait_for_output("ready", Duration::from_secs(60));
    let keeper = watch::keeper(live.root()).expect("it is there");
    live.kill_root();
    machine::signal("KILL", &[keeper]);
    assert!(live.wait_output_end(Duration::from_secs(60)), "it does not end");
    let text = String::from_utf8_lossy(&live.output()).into_owned();
    assert!(text.contains("child status 0"), "{text}");
}

/// Taking pages that many processes share frees none, and gives the taker page tables of its own.
#[test]
fn many_children_of_little_use_hold_hardly_more_than_without_coldpress() {
    let Some(python) = require("python3") else { return };
    let job = Job::new("siblings", python).arg(fixture("siblings.py")).args(["60", "20"]);
    let held = |run: &Run| -> u64 {
        println!("{run}");
        String::from_utf8_lossy(&run.stdout).trim().parse().expect("it prints a number")
    };
    let limit = Duration::from_secs(120);
    let plain = held(&Live::start(&job, None).finish(limit));
    let run = Live::start(&job, Some(Bytes::mib(40))).finish(limit);
    let managed = held(&run);
    assert!(run.stderr.contains("the budget of 40 MiB cannot be kept"), "{}", run.stderr);
    assert!(2 * managed <= 3 * plain, "{managed} MiB, {plain} without coldpress");
}

/// A fork by the bare instruction is not caught: a child that touches pages that were away ends.
#[test]
fn children_that_nobody_sees_find_no_wrong_byte() {
    let job = Job::new("unseen", env!("CARGO_BIN_EXE_unseen"));
    let plain = job.plain();
    let run = job.managed(Bytes::mib(24));
    println!("{run}\n{}{}", String::from_utf8_lossy(&run.stdout), run.stderr);
    run.assert_same(&plain);
    run.assert_stored();
    assert_eq!(heirs(&run), 6);
    // The child ends by SIGSEGV, while without coldpress it finds all of its bytes.
    let ends = |run: &Run, end| run.complaints(&[&format!("reads ended with {end}")]).len();
    assert_eq!((ends(&plain, 0), ends(&run, -11)), (2, 2), "{}{}", plain.stderr, run.stderr);
}

/// Parent and child write to all of their shared memory, for which there is no room twice: each
/// copy waits for room.
#[test]
fn copies_of_what_is_shared_wait_for_room() {
    let Some(python) = require("python3") else { return };
    let job = Job::new("copies", python).arg(fixture("copies.py")).args(["48", "3"]);
    let job = job.shares();
    let plain = job.plain();
    let run = job.managed(Bytes::mib(64));
    println!("{run}\n{}", run.stderr);
    run.assert_same(&plain);
    run.assert_stored();
    run.assert_within_budget();
    assert!(run.stats().count("copy_faults") > 0, "{run}");
    assert_eq!(heirs(&run), 3);
    let peak = run.stats().count("peak_bytes");
    assert!(peak <= 68 << 20, "it says {peak} bytes");
}

/// A page that a child has shared belongs to its parent alone again when the child has ended.
#[test]
fn threads_that_write_beside_brief_children_keep_the_budget() {
    let job = Job::new("brief", env!("CARGO_BIN_EXE_brief")).args(["--children", "16"]);
    let run = job.shares().managed(Bytes::mib(40));
    println!("{run}\n{}", run.stderr);
    assert_eq!(run.stdout, b"brief: OK 16 children\n", "{}", run.stderr);
    run.assert_stored();
    run.assert_within_budget();
    assert_eq!(heirs(&run), 16);
    // Most memory that was held when coldpress looked at each page every time: 43.9 MiB.
    let peak = run.stats().count("peak_bytes");
    assert!(peak <= 45 << 20, "it says {peak} bytes");
}
