//! The risk: code is missing when it is called, or is not what was written; and memory stays over
//! the budget because it may be executed.

use coldpress_sys::Bytes;
use coldpress_tests::harness::Job;

/// Runs a program that calls a function in each of its pages, changes it, and has a child call all
/// of them. `share` per cent of the memory may be executed from the start, the rest later.
fn calls_all(share: &str) {
    let job = Job::new("executable", env!("CARGO_BIN_EXE_executable")).args(["48", share]).shares();
    let plain = job.plain();
    let run = job.managed(Bytes::mib(24));
    println!("{run}");
    run.assert_same(&plain);
    run.assert_within_budget();
    assert!(run.stats().count("swap_out_pages") > 8_192, "two thirds of it must go");
}

#[test]
fn code_is_as_it_was_written() {
    calls_all("100");
}

#[test]
fn code_that_was_data_is_as_it_was_written() {
    calls_all("50");
}
