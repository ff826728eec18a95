//! Risk: many processes in one budget, each with a limit of its pool that none of them can reach:
//! nothing is ever written back, and stored pages crowd out those in use. Or a process stops when
//! others take its share. Or memory that two processes share by `vfork` counts twice: the parent is
//! pressed for room that no process takes. Or memory stays with a process that has no use for it.
//! Or relatives each compress the pages they share, which are free when all have done so.
//!
//! Two programs hold memory in one run and read it again and again. Half of the budget would hold
//! the pool of either, so neither writes anything back by a limit of the whole budget.

use std::ffi::OsString;
use std::path::PathBuf;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, SLACK};
use coldpress_tests::machine::{fixture, require};
use coldpress_tests::matrix;

const BUDGET: Bytes = Bytes::mib(56);
/// MiB that each program holds, some 17 MiB when compressed; below, the passes over it.
const HELD: &str = "64";
const ROUNDS: &str = "4";
/// A script that starts `$1` with the arguments behind it twice, and fails if either run does.
const TWICE: &str = r#""$@" > /dev/null & first=$!; "$@" || exit; wait $first"#;

/// Makes a job that runs `hold.py` as often as `script` says.
fn hold(name: &'static str, python: PathBuf, script: &str) -> Job {
    let job = Job::new(name, "/bin/sh").args(["-c", script, "sh"]).arg(python);
    job.arg(fixture("hold.py")).args(["private", HELD, ROUNDS])
}

#[test]
fn pools_of_two_programs_that_exceed_the_limit_together_are_written_back() {
    let Some(python) = require("python3") else { return };
    let plain = hold("one", python.clone(), r#"exec "$@""#).plain();
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    let run = hold("two", python.clone(), TWICE).managed(BUDGET);
    println!("{run}");
    run.assert_same(&plain);
    run.assert_stored();
    run.assert_within_budget();
    let written = run.stats().at("zswap", "flushed_pages");
    assert!(written > 1000, "{written} pages written back");
    // One program alone has all of the budget, and writes nothing.
    let alone = hold("one", python, r#"exec "$@""#).managed(BUDGET);
    println!("{alone}");
    alone.assert_same(&plain);
    assert_eq!(alone.stats().at("zswap", "flushed_pages"), 0);
}

/// Without a disk pages have no other place to go, whatever other programs hold.
#[test]
fn without_a_disk_two_programs_come_to_their_ends() {
    let Some(python) = require("python3") else { return };
    let plain = hold("one", python.clone(), r#"exec "$@""#).plain();
    let run = hold("two", python, TWICE).options(["--disk", "none"]).managed(BUDGET);
    println!("{run}");
    run.assert_same(&plain);
    run.assert_within_budget();
}

/// A program walks over memory of which half fits. Its resident pages are of no use when it comes
/// by again, so memory goes to the other program, down to the last page that the other touches.
/// When the program with most faults keeps most memory, that takes 69 to 251 rounds.
#[test]
fn memory_goes_to_who_has_a_use_for_it() {
    let Some(python) = require("python3") else { return };
    let job = Job::new("worth", python).arg(fixture("worth.py")).args(["48", "120"]);
    let run = job.managed(Bytes::mib(96));
    println!("{run}");
    let text = String::from_utf8_lossy(&run.stdout);
    let rounds: Option<u32> =
        text.strip_prefix("held after ").and_then(|rounds| rounds.trim().parse().ok());
    assert!(rounds.is_some_and(|rounds| rounds <= 40), "{text}{}", run.stderr);
    run.assert_within_budget();
}

/// 24 programs on two processors touch 1.2 million pages in all, most of which are away. Some get
/// on faster while others wait. When all get on at once, the run usually takes 1.4 to 2 million
/// faults.
#[test]
fn many_that_thrash_take_turns() {
    let (Some(python), Some(taskset)) = (require("python3"), require("taskset")) else { return };
    let words: [OsString; 3] = [taskset.into(), "-c".into(), "0,1".into()];
    let job = Job::new("crowd", python).arg(fixture("crowd.py")).args(["24", "16", "12"]);
    let job = job.before(words);
    let plain = job.plain();
    let run = job.managed(Bytes::mib(256));
    println!("{run}");
    run.assert_same(&plain);
    run.assert_within_budget();
    let faults = run.stats().count("faults");
    assert!(faults < 1_000_000, "{faults} faults");
    assert!(run.stats().count("turn_waits") > 0, "{}", run.stderr);
    assert_eq!(run.complaints(&["take turns"]).len(), 1, "{}", run.stderr);
}

#[test]
fn memory_that_a_child_of_vfork_borrows_counts_once() {
    let own = std::process::id();
    if coldpress_sys::proc::share_memory(own, own).is_err() {
        return eprintln!("skipped: kcmp is forbidden here");
    }
    let job = Job::new("vforks", env!("CARGO_BIN_EXE_vforks")).args(["48", "3"]);
    let run = job.managed(Bytes::mib(256));
    println!("{run}");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let peak = Bytes(run.stats().count("peak_bytes") as usize);
    assert!((Bytes::mib(48)..Bytes::mib(72)).contains(&peak), "{peak:?}");
}

/// Runs three processes that share all memory and write to all of it. The pages that each has
/// compressed are free when all have done so.
fn rebuilds(program: &str, script: &str, budget: Bytes) {
    let Some(program) = require(program) else { return };
    let job = Job::new("rebuilds", program).arg(fixture(script)).arg("700000").shares();
    let run = job.managed(budget);
    println!("{run}\n{}", run.stderr);
    run.assert_same(&job.plain());
    run.assert_stored();
    run.assert_within_budget();
    // What coldpress does not know of copies at once counts for a moment, longer on a busy machine.
    let told = Bytes(run.stats().count("peak_bytes") as usize);
    assert!(told <= budget + SLACK || !matrix::is_all(), "it says {told:?}");
}

#[test]
fn a_family_that_rebuilds_what_it_shares_keeps_the_budget() {
    rebuilds("python3", "rebuild.py", Bytes::mib(80));
}

/// Ruby's pages compress worse: three compressed copies of one take more than the page.
#[test]
fn a_family_of_ruby_that_rebuilds_what_it_shares_keeps_the_budget() {
    if !matrix::is_left_out() {
        rebuilds("ruby", "rebuild.rb", Bytes::mib(89));
    }
}
