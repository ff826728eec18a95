//! Risk: what programs do to memory every day fails on memory that is away: it is dropped, moved,
//! handed to children, merged, made huge, locked; its address finds another owner before the end of
//! the last one was reported; it is a stack. And all of that happens while the kernel refuses what
//! the service thread asks for, because the address space is changing.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::cases::{Evicted, check};
use coldpress_tests::harness::{Job, Run};
use coldpress_tests::machine::{Scratch, Setting, fixture};
use coldpress_tests::matrix;

const DAY_ONE: &str = env!("CARGO_BIN_EXE_day_one");
const AGAIN: &str = env!("CARGO_BIN_EXE_again");
const TORTURE: &str = env!("CARGO_BIN_EXE_torture");
const DROPPER: &str = env!("CARGO_BIN_EXE_dropper");
/// The budget: less than half of the memory that is walked.
const BUDGET: Bytes = Bytes::mib(20);
/// Time limit for a helper's message after the end of its run.
const SAID_WITHIN: Duration = Duration::from_secs(10);

/// The test switches the samepage merger on where it may; else there is nothing to be merged.
#[test]
fn all_that_is_done_to_cold_memory_gives_the_same() {
    let merger = Setting::set("/sys/kernel/mm/ksm/run", "1");
    let run = check(&Job::new("day one", DAY_ONE), BUDGET, Evicted::MostOf);
    println!("{}", run.stderr);
    drop(merger);
    // As docs/limits.md says: what is freed is dropped, and what is to be filled at once is not.
    assert_eq!((told(&run, "kept_when_freed="), told(&run, "filled_at_once=")), (vec![0], vec![0]));
}

/// Returns the numbers of the lines of standard error that begin with `name`.
fn told(run: &Run, name: &str) -> Vec<u64> {
    run.stderr.lines().filter_map(|line| line.strip_prefix(name)?.parse().ok()).collect()
}

#[test]
fn without_huge_pages_gives_the_same() {
    let job = Job::new("huge never", DAY_ONE).args(["--only", "huge", "--huge", "never"]);
    check(&job, BUDGET, Evicted::MostOf);
}

/// Huge pages for libc's own memory too: a setting of glibc, which other libraries ignore.
#[test]
fn with_huge_pages_everywhere_gives_the_same() {
    if matrix::is_left_out() {
        return;
    }
    let job = Job::new("huge always", DAY_ONE).args(["--huge", "always"]);
    let job = job.environment("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    check(&job, BUDGET, Evicted::MostOf);
}

/// Linux 6.8 to 6.10 has no call that returns the mapping of an address.
#[test]
fn a_locked_mapping_that_grows_moves_on_older_kernels_too() {
    let profile = fixture("seccomp/linux-6.10.txt").into_os_string();
    let job = Job::new("locked, older kernel", DAY_ONE).args(["--only", "grow-locked"]);
    let filtered = [env!("CARGO_BIN_EXE_filtered").into(), "--profile".into(), profile];
    check(&job.before(filtered), BUDGET, Evicted::MostOf);
}

/// With nothing on disk there is no file that a fork could fail to open. Such a failure would show
/// early that the child cannot take over.
#[test]
fn a_fork_without_proc_gives_the_same_where_nothing_is_on_disk() {
    let job = Job::new("fork without proc", DAY_ONE).args(["--only", "fork-without-proc"]);
    check(&job.options(["--disk", "none"]), BUDGET, Evicted::MostOf);
}

/// While memory is dropped no page can be placed, and between two such calls there is a
/// microsecond.
#[test]
fn who_drops_memory_all_the_time_does_not_stop_others() {
    let run = Job::new("dropper", DROPPER).options(["--disk", "none"]).managed(Bytes::mib(24));
    println!("{run}");
    assert_eq!((run.code, run.stdout.as_slice()), (0, &b"dropper: OK\n"[..]), "{}", run.stderr);
    run.assert_stored();
}

/// The filter refuses moves as if the address space were changing, though it may not be. Nothing
/// may be lost, given up, or waited for in vain.
#[test]
fn every_byte_survives_torture_while_a_third_of_all_moves_is_refused() {
    let scratch = Scratch::new("again");
    let file = scratch.path("refused");
    let words = ["--seconds", "6", "--seed", "11", "--bytes", "100000000", "--threads", "2"];
    let job = Job::new("torture, refused", TORTURE).args(words);
    let job = job.before([AGAIN.into(), file.clone().into_os_string()]);
    let run = job.managed(Bytes::mib(32));
    println!("{run}");
    let output = String::from_utf8_lossy(&run.stdout);
    let last = output.lines().last().unwrap_or_default();
    assert!(run.code == 0 && last.starts_with("torture: OK "), "{output}\n{}", run.stderr);
    run.assert_stored();
    let until = Instant::now() + SAID_WITHIN;
    let refused = loop {
        let said = fs::read_to_string(&file).ok().and_then(|text| text.parse::<u64>().ok());
        if said.is_some() || Instant::now() > until {
            break said.expect("the helper says how many it refused");
        }
        sleep(Duration::from_millis(10));
    };
    println!("{refused} refused");
    assert!(refused > 1000, "{refused} were refused");
}
