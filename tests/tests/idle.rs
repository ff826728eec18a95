//! Risk: a run in which nothing happens keeps processors busy; or a tree of many processes that
//! only wait takes more memory and time for management than it could ever save.

use std::fs;
use std::thread;
use std::time::Duration;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{fixture, require};
use coldpress_tests::watch;

/// Time limit for a program to start on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
/// Number of processes that wait: enough for each to show in the sum.
const COUNT: &str = "200";
/// Most KiB that one of these processes may hold for its management.
const OVERHEAD_KIB: u64 = 300;

/// Returns how often the threads of `process` have gone to sleep.
fn naps(process: u32) -> u64 {
    let naps = |thread: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    watch::threads(process).iter().filter_map(naps).sum()
}

#[test]
fn a_run_in_which_nothing_happens_sleeps() {
    let job = Job::new("sleep", "sh").args(["-c", "echo ready; exec sleep 600"]);
    let live = Live::start(&job, Some(Bytes::mib(64)));
    live.wait_for_output("ready\n", READY_MAX);
    let program = watch::descendants(live.root());
    let [program] = program.as_slice() else { panic!("{program:?}") };
    // Looks become rare within a second or two; on a busy machine later.
    let mut calm = Vec::new();
    for _ in 0..10 {
        let before = (naps(live.root()), naps(*program));
        thread::sleep(Duration::from_secs(2));
        calm.push((naps(live.root()) - before.0, naps(*program) - before.1));
        // The launcher looks twice; for most of the time other processes give it no reason to look.
        if calm.last().is_some_and(|(launcher, program)| *launcher <= 6 && *program <= 4) {
            return;
        }
    }
    panic!("woken up in two seconds, the launcher and the program: {calm:?}");
}

#[test]
fn processes_that_wait_take_little() {
    let Some(python) = require("python3") else { return };
    let job = Job::new("idle", python).arg(fixture("idle.py")).args([COUNT, "3"]);
    let told = |output: &[u8]| {
        let text = String::from_utf8_lossy(output);
        let mut numbers = text.split_whitespace().map(|word| word.parse().expect("a number"));
        let (held, ran): (u64, u64) =
            (numbers.next().expect("KiB"), numbers.next().expect("ticks"));
        (held, ran)
    };
    let (plain, run) = (job.plain(), job.managed(Bytes::mib(1024)));
    let ((alone, _), (managed, ran)) = (told(&plain.stdout), told(&run.stdout));
    println!("a process holds {alone} KiB, {managed} KiB managed; all run for {ran} ticks in 3 s");
    assert!(managed < alone + OVERHEAD_KIB, "{alone} KiB alone, {managed} KiB managed");
    // When each process looked a hundred times a second, they took more than a third of a
    // processor.
    assert!(ran < 30, "{ran} ticks in three seconds");
}
