//! Risk: a use of memory that no other test has loses a byte; stress-ng has many such uses, and
//! verifies them.
//!
//! Each method runs plain for a second first: a method that fails there has reasons of its own, and
//! is skipped. Then it runs within a budget that is a fraction of what it touches. Methods that
//! touch little memory, or memory that is not managed, run beside one that touches much, so that
//! pages of the run are away all the time.
//!
//! Beside all methods, a program makes children in every way, while threads write.
//!
//! `make system` gives each method five seconds, four at a time; `make stress` gives all together
//! an hour, or as many seconds as STRESS_SECONDS says.
//!
//! Not here: `userfaultfd` and `pageswap`, which need for themselves what coldpress uses; methods
//! whose size is a part of the machine's memory (`mmapfork`, `mmaphuge`, `remap`, `resources`);
//! methods that kill other processes or fill tables of the whole system (`oom-pipe`, `forkheavy`,
//! `vforkmany`, `shm-sysv`, `mlockmany`); and `madvise` with poisoned pages.

use std::env;
use std::time::Duration;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::require;

/// The budget: a fraction of the memory that every method touches.
const BUDGET: Bytes = Bytes::mib(24);
/// Seconds that each method runs, unless a time is given for all together.
const SECONDS: u64 = 2;
/// Methods that run at a time, beside the forks: one less than in the Makefile.
const AT_A_TIME: u64 = 4;
/// Time that a run may take beyond its own, on a busy machine.
const EXTRA: Duration = Duration::from_secs(180);
/// Words of a method that touches much, for methods that do not.
const BESIDE: &[&str] = &["--vm", "1", "--vm-bytes", "64m"];

/// Makes a job of stress-ng with `words`, for `seconds`.
fn job(name: &'static str, words: &[&str], seconds: u64) -> Option<Job> {
    let timeout = format!("{seconds}s");
    let job = Job::new(name, require("stress-ng")?).args(words.iter().copied());
    Some(job.args(["--quiet", "--verify", "--timeout", &timeout]).forks())
}

/// Returns the seconds that each method runs.
fn seconds() -> u64 {
    let Ok(text) = env::var("COLDPRESS_STRESS_SECONDS") else { return SECONDS };
    let all: u64 = text.parse().unwrap_or_else(|_| panic!("{text} is no number of seconds"));
    (all * AT_A_TIME / METHODS).max(1)
}

/// Runs a method plain for a moment, then within the budget.
fn check(name: &'static str, words: &[&str]) {
    let Some(short) = job(name, words, 1) else { return };
    let plain = short.plain();
    if plain.code != 0 {
        return println!("skipped: {name} fails without coldpress too: {}", plain.stderr);
    }
    let seconds = seconds();
    let Some(long) = job(name, words, seconds) else { return };
    let run = Live::start(&long, Some(BUDGET)).finish(Duration::from_secs(seconds) + EXTRA);
    println!("{run}\n{}", run.stderr);
    run.assert_same(&plain);
    run.assert_stored();
}

/// Parent and children check all of their bytes.
#[test]
fn forks_of_every_kind_keep_every_byte() {
    let seconds = seconds() * METHODS / AT_A_TIME;
    let words = ["--bytes", "50331648", "--writers", "3", "--seconds", &seconds.to_string()];
    let job = Job::new("forks", env!("CARGO_BIN_EXE_forker")).args(words).forks();
    let run = Live::start(&job, Some(BUDGET)).finish(Duration::from_secs(seconds) + EXTRA);
    let output = String::from_utf8_lossy(&run.stdout);
    println!("{run}\n{}", run.stderr);
    let last = output.lines().last().unwrap_or_default();
    assert!(run.code == 0 && last.starts_with("forker: OK "), "{output}");
    run.assert_stored();
}

/// Makes one test for each method: its name, and the words that ask for it.
macro_rules! methods {
    ($($name:ident: $words:expr;)*) => {
        const METHODS: u64 = [$(stringify!($name)),*].len() as u64;

        $(#[test]
        fn $name() {
            let words: Vec<&str> = $words;
            check(stringify!($name), &words);
        })*
    };
}

/// Returns the words of a method that touches much.
fn alone(words: &'static str) -> Vec<&'static str> {
    words.split(' ').collect()
}

/// Returns the words of a method that touches little, and of one beside it that touches much.
fn beside(words: &'static str) -> Vec<&'static str> {
    words.split(' ').chain(BESIDE.iter().copied()).collect()
}

methods! {
    vm_gives_the_same: alone("--vm 1 --vm-bytes 96m --vm-method all");
    vm_rw_gives_the_same: alone("--vm-rw 1 --vm-rw-bytes 64m");
    mmap_gives_the_same: alone("--mmap 1 --mmap-bytes 96m --mmap-mprotect");
    mremap_gives_the_same: alone("--mremap 1 --mremap-bytes 96m");
    malloc_gives_the_same: alone("--malloc 1 --malloc-bytes 1m --malloc-max 256 --malloc-touch");
    bigheap_gives_the_same: alone("--bigheap 1 --bigheap-growth 64k --bigheap-ops 1500");
    memrate_gives_the_same: alone("--memrate 1 --memrate-bytes 64m");
    memthrash_gives_the_same: alone("--memthrash 1");
    qsort_gives_the_same: alone("--qsort 2 --qsort-size 4000000");
    tree_gives_the_same: alone("--tree 1 --tree-size 1000000");
    hsearch_gives_the_same: alone("--hsearch 1 --hsearch-size 400000");
    skiplist_gives_the_same: alone("--skiplist 1 --skiplist-size 1000000");
    brk_gives_the_same: beside("--brk 1");
    stack_gives_the_same: beside("--stack 1 --stack-fill");
    fork_gives_the_same: beside("--fork 1 --fork-vm");
    munmap_gives_the_same: beside("--munmap 1");
    madvise_gives_the_same: beside("--madvise 2");
    mlock_gives_the_same: beside("--mlock 1");
    memfd_gives_the_same: beside("--memfd 1 --memfd-bytes 32m");
    shm_gives_the_same: beside("--shm 1 --shm-bytes 8m");
}
