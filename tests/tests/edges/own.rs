//! Programs that themselves do what may get in the way: `src/bin/edge`.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Run};
use coldpress_tests::machine::{Scratch, fixture, require};
use coldpress_tests::matrix::{self, Lane, case};

use super::{BUDGET, EDGE, HANG, compare_managed};

/// Time limit of the real-time cases. Their threads leave other threads a twentieth of the time, so
/// a case must not last long.
const REAL_TIME_MAX: Duration = Duration::from_secs(20);

fn edge(words: &[&str], limit: Duration) -> Option<()> {
    compare_managed(&Job::new("edge", EDGE).args(words.iter().copied()), limit)
}

/// Checks that the user hears why a real-time thread waits. A thread that has waited for a page
/// queues behind busy threads of its priority, maybe for ever.
fn is_told(processors: &str) -> Option<()> {
    let words = ["--signal", "KILL", "10", EDGE, "fifo", processors];
    let run = Job::new("edge", "timeout").args(words).managed(BUDGET);
    let stderr = &run.stderr;
    assert!(stderr.contains("has a real-time policy and waits for cold pages"), "{stderr}");
    // timeout ended it after 10 s in which it had read nothing.
    assert_eq!((run.code, &run.stdout[..]), (128 + 9, &b""[..]), "{stderr}");
    Some(())
}

/// Checks that a minute is long enough for a report, and that no user has to guess the budget.
fn is_told_what_it_lacks() -> Option<()> {
    let run = Job::new("edge", EDGE).args(["thrash", "64"]).managed(BUDGET);
    assert_eq!((run.code, &run.stdout[..]), (0, &b"ok\n"[..]), "{}", run.stderr);
    let told = run.complaints(&["waited for pages", "24 MiB", "of the last minute"]);
    assert_eq!(told.len(), 1, "{}", run.stderr);
    let budget =
        told[0].rsplit_once("; in ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    assert!(budget.is_some_and(|mib: u32| (64..80).contains(&mib)), "it holds 64 MiB: {}", told[0]);
    Some(())
}

/// Checks that a Lisp whose heap may be executed keeps its budget, with 260 MiB of lists.
fn keeps_its_budget() -> Option<()> {
    let lists = "(let ((lists (loop for i below 4000000 collect (list i (* 3 i)))))
        (dotimes (round 3) (print (reduce #'+ lists :key #'second))))";
    let words = ["--noinform", "--non-interactive", "--no-userinit", "--eval", lists];
    let job = Job::new("sbcl", require("sbcl")?).args(words);
    let plain = job.plain();
    let run = job.managed(Bytes::mib(110));
    println!("{run}");
    run.assert_same(&plain);
    run.assert_within_budget();
    Some(())
}

/// Runs a server that crashes. Depending on `memcheck`, it then tests the memory of its process.
fn crash(memcheck: &str) -> Option<(Run, Run)> {
    require("redis-server")?;
    let scratch = Scratch::new("crash");
    let job = Job::new("crash", "sh").arg(fixture("crash.sh")).arg(scratch.path("")).arg(memcheck);
    let (plain, run) = (job.plain(), job.managed(BUDGET));
    println!("{run}\n{}", run.stderr);
    assert!(String::from_utf8_lossy(&plain.stdout).ends_with("status 139\nREDIS BUG REPORT END\n"));
    run.assert_stored();
    Some((plain, run))
}

/// Checks that the report is whole.
fn crashes_as_it_would() -> Option<()> {
    let (plain, run) = crash("no")?;
    assert_eq!(run.stdout, plain.stdout, "{}", run.stderr);
    Some(())
}

/// Checks a memory test that fills all memory with random words, to put the old ones back. The test
/// ends the program's service, or the program itself in coldpress's code: the report is not whole.
fn ends_in_a_memory_test() -> Option<()> {
    let (plain, run) = crash("yes")?;
    let is_told = run.stderr.contains("crash-memcheck-enabled no");
    assert!(is_told || run.stdout != plain.stdout, "{}", run.stderr);
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
        case("a program that waits for a minute", Lane::Long, is_told_what_it_lacks),
        case("a lisp whose heap may be executed", Lane::Long, keeps_its_budget),
        case("a server that crashes", Lane::Short, crashes_as_it_would),
        case("a memory test in a crash", Lane::Long, ends_in_a_memory_test),
        case("a robust mutex in cold memory", Lane::Short, || edge(&["robust"], HANG)),
    ];
    matrix::run(&cases);
}
