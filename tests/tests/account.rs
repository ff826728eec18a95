//! Risk: the peak in the final line is not what a container would be charged, so that nobody can
//! choose a budget or a limit by it.
//!
//! The judge is the kernel: a memory cgroup holds the program with all that it starts. The test
//! reads the cgroup's private and shared memory (`memory.stat`) all the time. Launcher and keeper
//! are outside the cgroup.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::cgroup::Limited;
use coldpress_tests::harness::Job;
use coldpress_tests::machine::{self, fixture, require};
use coldpress_tests::matrix::{self, Case, Lane, case};

/// Time between two readings of a group's charge.
const PERIOD: Duration = Duration::from_millis(5);
/// Most by which the reported peak and the charge may differ.
const APART: Bytes = Bytes::mib(4);
/// Most by which the report may exceed the charge while sixteen relatives have a fault for each
/// page at once, of their own memory or of System V's. Until coldpress asks the kernel, such faults
/// look like copies of shared pages.
const ABOVE_BY_FAULTS: Bytes = Bytes::mib(16);
/// Memory that relatives hold for less than this time is reported as far as it lasts (`Lasting` in
/// `budget.rs`).
const LASTING: Duration = Duration::from_millis(16);
/// Most by which relatives that write to all of their shared memory may pass the budget on a busy
/// machine.
const PASSED: Bytes = Bytes::mib(8);
/// A limit that none of the jobs reaches.
const PLENTY: Bytes = Bytes::mib(4096);

/// The memory charged to a group.
#[derive(Default)]
struct Charged {
    most: Bytes,
    /// The most memory that lasted.
    lasting: Bytes,
}

impl Charged {
    /// Reads the charge until `ended`.
    fn watch(group: &Limited, ended: &AtomicBool) -> Self {
        let mut charged = Self::default();
        let (mut least, mut since) = (Bytes(usize::MAX), Instant::now());
        // Relaxed: the flag orders nothing else.
        while !ended.load(Ordering::Relaxed) {
            let held = group.held().expect("the kernel counts them");
            charged.most = charged.most.max(held);
            least = least.min(held);
            if since.elapsed() >= LASTING {
                charged.lasting = charged.lasting.max(least);
                (least, since) = (held, Instant::now());
            }
            thread::sleep(PERIOD);
        }
        charged
    }
}

/// How near the reported peak has to be to the charge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Near at all times.
    Exactly,
    /// The report may be higher while all relatives have faults at once.
    AboveByFaults,
    /// The report may be lower for memory that lasts a moment.
    AsFarAsItLasts,
}

/// Runs `words` within `budget`, compares the peaks of report and charge, and returns the charged
/// peak.
fn compare(words: &[&str], budget: Bytes, near: Told) -> Option<Bytes> {
    let group = Limited::new(PLENTY)?;
    let entering = group.entering();
    let job = Job::new("account", &entering[0]).args(entering[1..].iter().cloned()).args(words);
    let ended = AtomicBool::new(false);
    let (run, charged) = thread::scope(|scope| {
        let judge = scope.spawn(|| Charged::watch(&group, &ended));
        let run = job.shares().managed(budget);
        ended.store(true, Ordering::Relaxed);
        (run, judge.join().expect("it reads a file"))
    });
    println!("{run}\n{}", run.stderr);
    assert_eq!(run.code, 0, "{}{}", String::from_utf8_lossy(&run.stdout), run.stderr);
    let told = Bytes(run.stats().count("peak_bytes") as usize);
    let (least, above) = match near {
        Told::Exactly => (charged.most, APART),
        Told::AboveByFaults => (charged.most, ABOVE_BY_FAULTS),
        Told::AsFarAsItLasts => (charged.lasting, APART),
    };
    let mib = |bytes: Bytes| bytes.0 as f64 / f64::from(1 << 20);
    let figures = [told, charged.most, charged.lasting].map(mib);
    let [told_mib, most_mib, lasting_mib] = figures;
    let line = format!("told {told_mib:.1} MiB, charged {most_mib:.1}, lasting {lasting_mib:.1}");
    println!("{words:?}: {line}");
    assert!(told <= charged.most + above && told + APART >= least, "{line}");
    Some(charged.most)
}

/// Holds `mib` MiB of a kind, within a budget of `budget` MiB.
fn hold(kind: &str, mib: usize, budget: usize, near: Told) -> Option<Bytes> {
    let python = require("python3")?.into_os_string().into_string().ok()?;
    let script = fixture("holds.py").into_os_string().into_string().ok()?;
    compare(&[&python, &script, kind, &mib.to_string()], Bytes::mib(budget), near)
}

fn held(kind: &'static str, lane: Lane, mib: usize, budget: usize) -> Case<'static> {
    case(kind, lane, move || hold(kind, mib, budget, Told::Exactly).map(drop))
}

/// Makes a case as `held` does, where the report may be higher for a moment.
fn faulted(kind: &'static str, lane: Lane, mib: usize, budget: usize) -> Case<'static> {
    case(kind, lane, move || hold(kind, mib, budget, Told::AboveByFaults).map(drop))
}

/// Makes a case as `held` does, where memory that lasts a moment may be missing from the report:
/// all relatives rise and fall at once.
fn lasting(kind: &'static str, lane: Lane, mib: usize, budget: usize) -> Case<'static> {
    case(kind, lane, move || hold(kind, mib, budget, Told::AsFarAsItLasts).map(drop))
}

/// Makes a case as `held` does, where the budget is enough: pages that relatives have stored before
/// any of them is free pass the budget by little.
fn kept(kind: &'static str, lane: Lane, mib: usize, budget: usize) -> Case<'static> {
    case(kind, lane, move || {
        let charged = hold(kind, mib, budget, Told::Exactly)?;
        assert!(charged <= Bytes::mib(budget) + PASSED, "{} MiB are held", charged.0 >> 20);
        Some(())
    })
}

/// Makes a case of a program that is found by its name.
fn found(words: &'static [&'static str], budget: usize) -> Case<'static> {
    case(words[0], Lane::Long, move || {
        require(words[0])?;
        compare(words, Bytes::mib(budget), Told::Exactly).map(drop)
    })
}

#[test]
fn the_peak_is_what_a_memory_cgroup_is_charged_with() {
    if !machine::is_root() {
        return println!("skipped: not root");
    }
    matrix::run(&[
        held("heap", Lane::Long, 64, 40),
        held("mapped", Lane::Short, 64, 40),
        held("executable", Lane::Long, 64, 48),
        held("huge", Lane::Short, 64, 40),
        held("locked", Lane::Long, 48, 40),
        held("threads", Lane::Long, 64, 40),
        held("grows", Lane::Long, 64, 40),
        held("dropped", Lane::Long, 64, 40),
        faulted("each its own", Lane::Long, 64, 160),
        held("read by children", Lane::Long, 48, 80),
        held("written by a child", Lane::Short, 48, 64),
        held("executed", Lane::Long, 64, 40),
        held("spawned", Lane::Long, 48, 64),
        held("anonymous, shared", Lane::Long, 48, 160),
        held("memfd", Lane::Short, 48, 40),
        held("tmpfs", Lane::Long, 48, 160),
        faulted("System V", Lane::Long, 48, 160),
        lasting("shared beside private", Lane::Long, 64, 160),
        kept("rebuilt by relatives", Lane::Long, 73, 80),
        found(&["sh", "-c", "seq 400000 | sort -S 60M -R --random-source=/bin/sh | tail -1"], 40),
        found(&["java", "-Xmx200m", "-version"], 64),
        found(&["xz", "-6", "-k", "-c", "/bin/bash"], 60),
        found(&["perl", "-e", "@a = map { $_ x 20 } 1 .. 600_000; print scalar @a"], 60),
    ]);
}
