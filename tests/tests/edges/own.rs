//! Programs that do themselves what may stand in the way: `src/bin/edge`.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use coldpress_tests::harness::Job;
use coldpress_tests::matrix::{self, Lane, case};

use super::{BUDGET, EDGE, HANG, compare_managed};

/// Threads of real-time priority leave others a twentieth of the time: not for long.
const REAL_TIME_MAX: Duration = Duration::from_secs(20);

fn edge(words: &[&str], limit: Duration) -> Option<()> {
    compare_managed(&Job::new("edge", EDGE).args(words.iter().copied()), limit)
}

/// A thread that has waited for a page is behind those of its priority that are busy, which may be
/// for ever. The user hears why.
fn is_told(processors: &str) -> Option<()> {
    let words = ["--signal", "KILL", "10", EDGE, "fifo", processors];
    let run = Job::new("edge", "timeout").args(words).managed(BUDGET);
    let stderr = &run.stderr;
    assert!(stderr.contains("has a real-time policy and waits for cold pages"), "{stderr}");
    Some(())
}

#[test]
fn mechanisms_of_its_own() {
    let processors = thread::available_parallelism().map_or(1, NonZero::get).to_string();
    let cases = [
        case("a userfaultfd of its own", Lane::Short, || edge(&["uffd"], HANG)),
        case("a range that is mapped anew", Lane::Short, || edge(&["anew"], HANG)),
        case("real-time threads beside a free processor", Lane::Long, || {
            edge(&["fifo", "0"], REAL_TIME_MAX)
        }),
        case("real-time threads on all processors", Lane::Long, || is_told(&processors)),
        case("a robust mutex in cold memory", Lane::Short, || edge(&["robust"], HANG)),
    ];
    matrix::run(&cases);
}
