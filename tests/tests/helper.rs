//! Risk: a page that the helper compressed is torn or another page; or a program waits for a helper
//! that is stopped, has gone, may not read the memory, or was never there.
//!
//! Programs check every byte of memory that does not fit. The tests count how many of their pages
//! the helper compressed.

use std::process::Command;
use std::thread;
use std::time::Duration;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live, Run};
use coldpress_tests::machine::{Scratch, coldpress, fixture, require, signal};
use coldpress_tests::matrix;

const DATA: Bytes = Bytes::mib(96);
const BUDGET: Bytes = Bytes::mib(40);
/// A script that fills 96 MiB and waits for its child. The child reads the pages when there is a
/// file.
const HEIR: &str = "
import os, sys, time
pages = [b'%07d.' % number * 500 for number in range(24000)]
if os.fork():
    sys.exit(os.wait()[1] >> 8)
print('ready', flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
for _ in range(4):
    assert all(page == b'%07d.' % number * 500 for number, page in enumerate(pages))
print('whole')
";
const HANG: Duration = Duration::from_secs(60);

/// Returns whether programs have a helper; else there is one processor, and a line says so.
fn has_helper() -> bool {
    let has = thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    if !has {
        println!("skipped: there is no helper on one processor");
    }
    has
}

/// Makes a job that walks over all of the data in all directions and checks it.
fn walks() -> Job {
    let data = DATA.0.to_string();
    Job::new("walks", env!("CARGO_BIN_EXE_walks")).args(["--bytes", &data, "--mode", "steps"])
}

/// Runs `job` plain and within the budget, and asserts the same outcome.
fn compare(job: &Job) -> Run {
    let plain = job.plain();
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    let run = job.managed(BUDGET);
    println!("{run}; {} of {} made", made(&run), run.stats().count("swap_out_pages"));
    run.assert_same(&plain);
    run.assert_stored();
    run.assert_within_budget();
    run
}

/// Returns the number of pages that the helper compressed.
fn made(run: &Run) -> u64 {
    run.stats().at("zswap", "stored_by_helper")
}

#[test]
fn pages_that_the_helper_made_are_the_right_ones_with_each_codec() {
    if !has_helper() {
        return;
    }
    for codec in ["wk", "lz4", "lzo", "zstd", "auto"] {
        let run = compare(&walks().options(["--disk", "none", "--codec", codec]));
        // A busy machine has little time for the helper.
        assert!(made(&run) > 0, "{codec}: it made none");
    }
}

#[test]
fn pages_that_the_helper_made_come_back_from_disk() {
    if !has_helper() {
        return;
    }
    let run = compare(&walks().options(["--max-pool-percent", "5"]));
    assert!(made(&run) > 0 && run.stats().count("read_back_pages") > 0);
}

#[test]
fn programs_help_themselves_where_there_is_no_helper() {
    if matrix::is_left_out() {
        return;
    }
    assert_eq!(made(&compare(&walks().options(["--set", "helper=off"]))), 0);
    let Some(taskset) = require("taskset") else { return };
    let job = walks().before([taskset.as_os_str(), "-c".as_ref(), "0".as_ref()]);
    assert_eq!(made(&compare(&job)), 0);
}

/// The helper is stopped with jobs in hand. From then on the program compresses its pages itself,
/// and its memory is the same when the helper goes on.
#[test]
fn a_stopped_helper_holds_nobody_up() {
    let Some(python) = require("python3").filter(|_| has_helper()) else { return };
    let job = Job::new("held", python).arg(fixture("hold.py")).args(["private", "64", "12"]);
    let plain = job.plain();
    let live = Live::start(&job, Some(Bytes::mib(32)));
    live.wait_for_output("ready\n", HANG);
    for _ in 0..5 {
        signal("STOP", &[live.root()]);
        thread::sleep(Duration::from_millis(150));
        signal("CONT", &[live.root()]);
        thread::sleep(Duration::from_millis(20));
    }
    signal("STOP", &[live.root()]);
    live.wait_for_output("held private", HANG + 4 * plain.wall);
    signal("CONT", &[live.root()]);
    let run = live.finish(HANG);
    println!("{run}; {} of {} made", made(&run), run.stats().count("swap_out_pages"));
    run.assert_same(&plain);
    assert!(made(&run) > 0);
}

#[test]
fn forks_with_a_helper_give_the_same() {
    let Some(python) = require("python3").filter(|_| has_helper()) else { return };
    let run = compare(&Job::new("fork", python).arg(fixture("fork.py")).arg("96").forks());
    assert!(run.stats().count("heirs") > 0 && made(&run) > 0);
}

/// The child of a fork goes on with the parent's limbo, which no other process may read then. It
/// posts later jobs at a desk of its own. The test turns the helper on when the parent only waits.
#[test]
fn an_heir_has_the_helper_too() {
    if matrix::is_left_out() {
        return;
    }
    let Some(python) = require("python3").filter(|_| has_helper()) else { return };
    let scratch = Scratch::new("heir");
    let go_on = scratch.path("go-on");
    let job = Job::new("heir", python).args(["-c", HEIR]).arg(&go_on).forks();
    let live = Live::start(&job.options(["--set", "helper=off"]), Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    let root = live.root().to_string();
    let mut set = Command::new(coldpress());
    set.args(["ctl", &root, "set", "helper=on"]);
    assert!(set.output().is_ok_and(|set| set.status.success()), "the knob is not turned");
    scratch.write("go-on", b"");
    let run = live.finish(HANG);
    println!("{run}; {} of {} made", made(&run), run.stats().count("swap_out_pages"));
    assert_eq!((run.code, &run.stdout[..]), (0, &b"ready\nwhole\n"[..]), "{}", run.stderr);
    assert!(run.stats().count("heirs") > 0 && made(&run) > 0);
}
