//! Risk: pages that are brought back before a fault asks for them are wrong, are kept after they
//! were given up, or take the program over its budget.
//!
//! Another risk: a page that has changed is taken for its copy.
//!
//! Programs walk over memory that does not fit, in all directions and with threads, and check every
//! byte. Most pages must have come back without a fault of their own.

use coldpress_sys::{Bytes, PAGE_BYTES};
use coldpress_tests::harness::{Job, Run};

const DATA: Bytes = Bytes::mib(96);
const BUDGET: Bytes = Bytes::mib(40);

/// Runs the walks of `mode`, with `options` of `coldpress run`, and checks them.
fn walk(mode: &str, options: &[&str]) -> Run {
    let data = DATA.0.to_string();
    let job = Job::new("walks", env!("CARGO_BIN_EXE_walks"));
    let job = job.args(["--bytes", &data, "--mode", mode]).options(options.iter().copied());
    let plain = job.plain();
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    let run = job.managed(BUDGET);
    let count = |key| run.stats().count(key);
    println!("{mode} {options:?}: {run}; {} faults", count("faults"));
    println!("{} read ahead, {} from disk", count("readahead_pages"), count("read_back_pages"));
    run.assert_same(&plain);
    run.assert_stored();
    run.assert_within_budget();
    run
}

/// Asserts that more than `percent` of the pages that came back did so ahead of their fault.
fn assert_ahead(run: &Run, percent: u64) {
    let count = |key| run.stats().count(key);
    let (ahead, asked) = (count("readahead_pages"), count("faults") - count("first_touch_faults"));
    let least = (DATA.0 - BUDGET.0) / PAGE_BYTES;
    assert!(ahead + asked > least as u64, "{ahead} and {asked} pages of {least} at least");
    assert!(100 * ahead > percent * (ahead + asked), "{ahead} pages ahead, {asked} not");
}

#[test]
fn walks_in_steps_of_all_kinds_are_served_ahead() {
    assert_ahead(&walk("steps", &["--disk", "none"]), 80);
}

#[test]
fn walks_of_two_threads_are_served_ahead() {
    assert_ahead(&walk("zip", &["--disk", "none"]), 80);
}

#[test]
fn pages_given_up_ahead_of_a_walk_stay_so() {
    assert_ahead(&walk("holes", &["--disk", "none"]), 40);
}

#[test]
fn walks_over_pages_on_disk_are_served_ahead() {
    for mode in ["steps", "zip", "holes"] {
        let run = walk(mode, &["--max-pool-percent", "5"]);
        assert!(run.stats().count("read_back_pages") > 0);
        assert_ahead(&run, 30);
    }
}

/// Most pages come from disk and are not changed: they need not be written again.
#[test]
fn unchanged_pages_are_not_written_again() {
    let run = walk("look", &["--max-pool-percent", "5"]);
    let count = |key| run.stats().count(key);
    let (unchanged, read) = (count("unchanged_pages"), count("read_back_pages"));
    println!("{unchanged} of {read} unchanged, {} written", count("written_back_pages"));
    assert!(unchanged > read / 2, "{unchanged} of {read} pages");
    assert!(count("written_back_pages") < read, "{} written", count("written_back_pages"));
}

/// Pages come from the pool, and a pass over them changes none: they need not be compressed again.
#[test]
fn unchanged_pages_are_not_compressed_again() {
    let run = walk("look", &["--disk", "none"]);
    let count = |key| run.stats().count(key);
    let (unchanged, loaded) = (count("unchanged_pages"), count("swap_in_pages"));
    println!("{unchanged} of {loaded} unchanged, {} stored", count("swap_out_pages"));
    assert!(unchanged > loaded / 2, "{unchanged} of {loaded} pages");
    assert!(count("swap_out_pages") < loaded, "{} stored", count("swap_out_pages"));
}

/// Copies must not fill a disk that is hardly large enough.
#[test]
fn copies_make_room_on_a_small_disk() {
    let run = walk("look", &["--max-pool-percent", "5", "--disk-size", "26M"]);
    assert!(run.complaints(&["full"]).is_empty(), "{}", run.stderr);
}
