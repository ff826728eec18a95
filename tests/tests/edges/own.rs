//! Programs that do themselves what may stand in the way: `src/bin/edge`.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use coldpress_tests::harness::Job;
use coldpress_tests::matrix::{self, Lane, case};

use super::{EDGE, HANG, compare_managed};

/// What is known to fail, and why.
const KNOWN: &[(&str, &str)] = &[
    ("a userfaultfd of its own", "memory is registered with ours, and one range has one owner"),
    ("real-time threads on all processors", "the service has no such priority"),
    ("a robust mutex in cold memory", "the kernel marks it only in memory that is in place"),
];

/// Threads of real-time priority leave others a twentieth of the time: not for long.
const REAL_TIME_MAX: Duration = Duration::from_secs(20);

fn edge(words: &[&str], limit: Duration) -> Option<()> {
    compare_managed(&Job::new("edge", EDGE).args(words.iter().copied()), limit)
}

#[test]
fn mechanisms_of_its_own() {
    let processors = thread::available_parallelism().map_or(1, NonZero::get).to_string();
    let cases = [
        case("a userfaultfd of its own", Lane::Short, || edge(&["uffd"], HANG)),
        case("real-time threads beside a free processor", Lane::Edges, || {
            edge(&["fifo", "0"], REAL_TIME_MAX)
        }),
        case("real-time threads on all processors", Lane::Edges, || {
            edge(&["fifo", &processors], REAL_TIME_MAX)
        }),
        case("a robust mutex in cold memory", Lane::Short, || edge(&["robust"], HANG)),
    ];
    matrix::run(&cases, KNOWN);
}
