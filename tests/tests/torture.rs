//! Risk: a byte of a program is lost, stale or another page's, while several threads map, unmap,
//! move, advise and protect its memory.
//!
//! The programs in `src/bin` know nothing of coldpress and check all of their bytes themselves;
//! here they run within a part of what they hold. `COLDPRESS_TORTURE_SECONDS` says how long the
//! torture lasts (8), `COLDPRESS_TORTURE_SEED` repeats one.

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use coldpress_sys::{Bytes, PAGE_BYTES};
use coldpress_tests::harness::{Job, Live, Run};

const TORTURE: &str = env!("CARGO_BIN_EXE_torture");
const ALONE: &str = env!("CARGO_BIN_EXE_alone");
const AGED: &str = env!("CARGO_BIN_EXE_aged");
/// Written bytes that the torture keeps alive.
const TORTURE_BYTES: Bytes = Bytes::mib(500);
/// Time that a run may take beyond its own: for its last sweep, on a busy machine.
const EXTRA: Duration = Duration::from_secs(180);
/// Threads of the torture, beside the one that moves the break.
const THREADS: usize = 4;

/// Returns a number from the environment.
fn setting(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Returns a seed of this moment, unless the environment names one; the program prints it.
fn seed() -> u64 {
    setting("COLDPRESS_TORTURE_SEED").unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs())
    })
}

/// Returns the text of a run's output.
fn output(run: &Run) -> String {
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// Asserts success by status and by the program's own last line.
fn assert_ok(run: &Run, name: &str) {
    let text = output(run);
    assert_eq!(run.code, 0, "{text}\n{}", run.stderr);
    let last = text.lines().last().unwrap_or_default();
    assert!(last.starts_with(&format!("{name}: OK ")), "{text}\n{}", run.stderr);
}

/// Asserts that at least half of the pages that cannot have fitted were moved out.
fn assert_evicted(run: &Run, bytes: Bytes, budget: Bytes) {
    let moved = run.stats().count("swap_out_pages") + run.stats().count("same_filled_pages");
    let least = ((bytes.0 - budget.0) / PAGE_BYTES / 2) as u64;
    assert!(moved >= least, "{moved} pages moved out, at least {least} had to be; {}", run.stderr);
}

#[test]
fn every_byte_survives_torture_within_a_fifth() {
    let seconds = setting("COLDPRESS_TORTURE_SECONDS").unwrap_or(8);
    let budget = Bytes::mib((TORTURE_BYTES.0 / 5) >> 20);
    let job = Job::new("torture", TORTURE)
        .args(["--seconds", &seconds.to_string(), "--seed", &seed().to_string()])
        .args(["--bytes", &TORTURE_BYTES.0.to_string(), "--threads", &THREADS.to_string()]);
    let run = Live::start(&job, Some(budget)).finish(Duration::from_secs(seconds) + EXTRA);
    println!("{run}\n{}", output(&run));
    assert_ok(&run, "torture");
    assert_evicted(&run, TORTURE_BYTES, budget);
    run.assert_within_budget();
}

/// One thread with a fixed number of operations is the same run each time: with the same digest.
#[test]
fn a_torture_of_one_thread_ends_with_the_same_bytes() {
    let seed = seed().to_string();
    let job = Job::new("torture of one thread", TORTURE).args([
        "--ops",
        "160",
        "--threads",
        "1",
        "--bytes",
        "100M",
        "--no-free",
        "--seed",
        &seed,
    ]);
    let digest = |run: &Run| {
        assert_ok(run, "torture");
        output(run).rsplit_once("digest=").map(|(_, digest)| digest.trim().to_owned())
    };
    let plain = job.plain();
    let run = job.managed(Bytes::mib(20));
    println!("{run}\n{}", output(&run));
    assert_eq!(digest(&run), digest(&plain), "seed {seed}");
    run.assert_stored();
}

/// Tests the oracle itself: it must find a byte that was flipped behind the program's back.
#[test]
fn torture_finds_a_flipped_byte() {
    let job = Job::new("self-test", TORTURE).args([
        "--self-test",
        "--ops",
        "600",
        "--bytes",
        "50M",
        "--seed",
        &seed().to_string(),
    ]);
    let run = job.plain();
    let text = output(&run);
    assert!(run.code == 0 && text.contains("self-test OK"), "{text}\n{}", run.stderr);
}

/// When a page's accessed bit changes while the page is taken, the kernel reports a MOVE that
/// succeeded as one that failed.
#[test]
fn pages_that_age_while_they_are_taken_are_kept() {
    let (bytes, budget) = (Bytes::mib(64), Bytes::mib(32));
    let job = Job::new("aged", AGED).args(["--bytes", &bytes.0.to_string()]);
    let plain = job.plain();
    assert_ok(&plain, "aged");
    let run = job.managed(budget);
    println!("{run}\n{}", output(&run));
    run.assert_same(&plain);
    assert_evicted(&run, bytes, budget);
    run.assert_within_budget();
}

/// Calls that end the service bring every page back first, whatever is under way.
#[test]
fn a_process_can_be_alone_and_managed_again() {
    let job = Job::new("alone", ALONE).args(["96", "4"]);
    let plain = job.plain();
    assert_ok(&plain, "alone");
    let run = job.options(["--max-pool-percent", "5"]).managed(Bytes::mib(48));
    println!("{run}\n{}", output(&run));
    run.assert_same(&plain);
    run.assert_stored();
}
