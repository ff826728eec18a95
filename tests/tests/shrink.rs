//! Risk: memory that the pool no longer needs stays with the process.
//!
//! A program fills memory in a quarter of what it needs and gives all of it back. The memory that a
//! watcher outside sees must fall by nine tenths of what there is to give, within a second: of
//! everything above the size the program had before, pool and tables included.

use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{fixture, require};
use coldpress_tests::watch::{self, Measure};

const DATA: &str = "160";
const BUDGET: Bytes = Bytes::mib(40);
/// Time limit of a program: longer, it hangs.
const HANG: Duration = Duration::from_secs(120);
/// Time limit for memory to go back.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(1);

#[test]
fn memory_goes_back_when_a_program_shrinks() {
    let Some(python) = require("python3") else { return };
    let job = Job::new("shrink", python).arg(fixture("shrink.py")).arg(DATA);
    let live = Live::start(&job, Some(BUDGET));
    let held = || watch::read_tree(live.root(), Measure::Resident).below;
    let after = |word: &str| {
        live.wait_for_output(word, HANG);
        held()
    };
    let (small, full) = (after("small"), after("full"));
    live.wait_for_output("freed", HANG);
    let freed = Instant::now();
    let goal = full - Bytes((full - small).0 * 9 / 10);
    while held() > goal && freed.elapsed() < GIVEN_BACK_WITHIN {
        thread::sleep(Duration::from_millis(5));
    }
    let (left, took) = (held(), freed.elapsed());
    println!("small {small:?}, full {full:?}, {left:?} left {took:?} after the last was freed");
    let run = live.finish(HANG);
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.assert_stored();
    run.assert_within_budget();
    assert!(left <= goal, "{left:?} of {full:?} are still held, {small:?} at first");
    let stats = run.stats();
    println!(
        "{} whole blocks available, {} given back",
        stats.count("huge_blocks_available"),
        stats.count("blocks_returned")
    );
    assert!(stats.count("huge_blocks_available") > 0);
}
