//! Risk: a system call that meets a page which is away comes back short, with EFAULT, or having
//! eaten a message, a count or a tick. Or the thread that brings pages back sits on another CPU
//! than the program, which makes each fault several times as expensive. Or what the program starts
//! is bound to the processor on which coldpress kept one of its threads.

use coldpress_sys::Bytes;
use coldpress_tests::cases::{Evicted, check};
use coldpress_tests::harness::{Job, Run};

const SYSCALLS: &str = env!("CARGO_BIN_EXE_syscalls");
const THREADS_CPU: &str = env!("CARGO_BIN_EXE_threads_cpu");
const STARTERS: &str = env!("CARGO_BIN_EXE_starters");
const MOVES: &str = env!("CARGO_BIN_EXE_moves");

/// Returns the text of a run's output.
fn output(run: &Run) -> String {
    String::from_utf8_lossy(&run.stdout).into_owned()
}

#[test]
fn system_calls_are_exact_within_a_quarter() {
    let job = Job::new("syscalls", SYSCALLS).args(["--arena", "64M", "--pressure", "192M"]);
    // Most slots are all cold or all but one page of each half: far more than a third.
    check(&job, Bytes::mib(64), Evicted::AThird);
}

#[test]
fn the_service_follows_the_faulting_thread() {
    let job = Job::new("threads_cpu", THREADS_CPU).args(["--bytes", "128M", "--seconds", "2"]);
    let run = job.managed(Bytes::mib(64));
    let text = output(&run);
    assert_eq!(run.code, 0, "{text}\n{}", run.stderr);
    run.assert_stored();
    let shares: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("cpu ")?.split_once(": ")?.1.split(' ').next())
        .map(|share| share.parse().expect("a share is a number"))
        .collect();
    assert!(!shares.is_empty(), "no task named coldpress was seen: {text}");
    assert!(shares.iter().all(|share| *share >= 0.8), "shares by CPU: {shares:?}\n{text}");
}

/// Linux gives up a move of several mappings halfway when it meets one that is watched.
#[test]
fn several_mappings_are_moved_together_or_not_at_all() {
    let job = Job::new("moves", MOVES);
    let plain = job.plain();
    assert_eq!(plain.code, 0, "without coldpress: {}{}", output(&plain), plain.stderr);
    let run = job.managed(Bytes::mib(32));
    run.assert_same(&plain);
    run.assert_stored();
}

/// Returns how often the thread was kept on one processor, and the number of storms.
fn kept(text: &str) -> Option<(u32, u32)> {
    let line = text.lines().find_map(|line| line.strip_prefix("kept "))?;
    let (kept, storms) = line.strip_suffix(" storms")?.split_once(" of ")?;
    Some((kept.parse().ok()?, storms.parse().ok()?))
}

#[test]
fn what_a_stormy_thread_starts_may_run_anywhere() {
    let job = Job::new("starters", STARTERS);
    let plain = job.plain();
    assert_eq!(plain.code, 0, "without coldpress: {}{}", output(&plain), plain.stderr);
    // A disk may be too slow for a storm.
    let run = job.options(["--disk", "none"]).managed(Bytes::mib(40));
    let text = output(&run);
    assert_eq!(run.code, 0, "{text}\n{}", run.stderr);
    run.assert_stored();
    println!("{text}");
    let (kept, storms) = kept(&text).expect("the program prints it");
    let many = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    // On one processor no thread is kept on it, and on a busy machine a storm may be a breeze.
    assert!(!many || kept * 4 > storms, "{kept} of {storms}: nothing was tested\n{text}");
    // A program that asks past libc gets the kernel's true answer, and so do its children.
    let line = text.lines().find(|line| line.starts_with("one processor seen by "));
    let counts =
        line.expect("the program prints it").split(' ').filter_map(|word| word.parse().ok());
    let counts: Vec<u32> = counts.collect();
    assert!(
        !many || counts.len() == 2 && !counts.contains(&0),
        "docs/limits.md says otherwise: {text}"
    );
}
