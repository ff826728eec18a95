//! The risk: shared memory is not counted, so that a run holds several times its budget and says
//! that all is well; or it is counted once for each process; or private memory, which could make
//! room for it, does not.

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Run};
use coldpress_tests::machine::{fixture, require};

fn shared(kind: &str, mib: usize, processes: usize, private: usize) -> Option<Job> {
    let words = [kind.to_owned(), mib.to_string(), processes.to_string(), private.to_string()];
    let job = Job::new("shared", require("python3")?).arg(fixture("shared.py")).args(words);
    Some(job.shares())
}

fn run(job: &Job, budget: Bytes) -> Run {
    let plain = job.plain();
    let run = job.managed(budget);
    println!("{run}\n{}", run.stderr);
    run.assert_same(&plain);
    run
}

/// Asserts that a run reports the peak that is seen from outside, give or take 4 MiB.
fn assert_true(run: &Run) {
    let (told, seen) = (run.stats().count("peak_bytes"), run.memory.peak_below.0 as u64);
    assert!(told.abs_diff(seen) <= 4 << 20, "told {} MiB, seen {} MiB", told >> 20, seen >> 20);
}

/// Returns the warnings that the budget cannot be kept.
fn warnings(run: &Run) -> Vec<&str> {
    run.complaints(&["warning", "cannot be kept"])
}

#[test]
fn what_does_not_fit_is_counted_and_told_once() {
    for (kind, name) in [
        ("anon", "without a name"),
        ("memfd", "the memfd fixture"),
        ("file", "the file /dev/shm/coldpress-test"),
    ] {
        let Some(job) = shared(kind, 120, 1, 0) else { return };
        let run = run(&job, Bytes::mib(40));
        assert_true(&run);
        let told = warnings(&run);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("120.") && told[0].contains("of shared memory"), "{told:?}");
        assert!(told[0].contains(name) && told[0].contains("raise --memory to 1"), "{told:?}");
        assert_eq!(run.complaints(&["peak 1", "(120.", "of it shared memory"]).len(), 1);
        assert_eq!(run.stats().at("at_peak", "shared_bytes") >> 20, 120);
        assert!(run.stats().at("at_peak", "launcher_bytes") > 0);
    }
}

#[test]
fn a_page_counts_once_however_many_processes_map_it() {
    let Some(job) = shared("memfd", 48, 8, 0) else { return };
    let run = run(&job, Bytes::mib(140));
    assert_eq!(warnings(&run), Vec::<&str>::new());
    let shared = run.stats().at("at_peak", "shared_bytes") >> 20;
    // The pages that eight processes map during a look may seem to be more.
    assert!((48..=52).contains(&shared), "{shared} MiB");
}

#[test]
fn private_memory_makes_room_for_it() {
    let Some(job) = shared("memfd", 24, 1, 64) else { return };
    let run = run(&job, Bytes::mib(72));
    assert_eq!(warnings(&run), Vec::<&str>::new());
    assert_true(&run);
    run.assert_within_budget();
    run.assert_stored();
    // One run of several shows this moment from outside.
    let told = Bytes(run.stats().count("peak_bytes") as usize);
    assert!(told <= Bytes::mib(73), "{} MiB", told.0 >> 20);
}
