//! The cost of `--idle`, and the memory that it leaves alone.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Live, Run};
use coldpress_tests::machine::{self, Scratch};
use coldpress_tests::matrix::{self, Lane, case};
use coldpress_tests::watch;

use super::{HANG, proc_text, python, wait_for};

/// A budget with room for all that programs hold here.
const BUDGET: Bytes = Bytes::mib(1024);
/// MiB that the programs hold; below, the same in pages.
const HELD_MIB: &str = "96";
const HELD_PAGES: u64 = 96 << 8;
/// Length of a watch over a service; below, the number of watches, as other processes may have kept
/// the service from running.
const WATCHED: Duration = Duration::from_secs(4);
const WATCHED_AGAIN: usize = 5;

/// A run of `resting.py`, which rests until a file asks it to end.
struct Resting {
    live: Live,
    scratch: Scratch,
}

impl Resting {
    /// Starts the program with `words` behind the file and the size.
    fn start(mib: &str, words: &[&str], options: &[&str]) -> Option<Self> {
        let scratch = Scratch::new("resting");
        let job = python("resting", "resting.py")?.arg(scratch.path("end")).arg(mib);
        let job = job.args(words.iter().copied()).options(options.iter().copied());
        let live = Live::start(&job, Some(BUDGET));
        live.wait_for_output("ready\n", HANG);
        Some(Self { live, scratch })
    }

    /// Returns a figure of the run's.
    fn number(&self, name: &str) -> u64 {
        // On a busy machine the launcher may close a connection that was silent for too long.
        wait_for("an answer", || {
            let mut command = Command::new(machine::coldpress());
            command.args(["ctl", &self.live.root().to_string(), "get", name]);
            let output = command.output().expect("the command is built");
            String::from_utf8_lossy(&output.stdout).trim().parse().ok()
        })
    }

    /// Waits for management, and returns a managed process of the run, and its service.
    fn managed(&self) -> (u32, u32) {
        wait_for("management", || watch::find_service(self.live.root()))
    }

    fn finish(self) -> Run {
        self.scratch.write("end", b"");
        let run = self.live.finish(HANG);
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(run.code == 0 && output.ends_with("whole\n"), "{output}{}", run.stderr);
        run
    }
}

/// Returns the looks of a service while it is watched, and the part of that time in which it ran.
fn looks_of(service: u32) -> (u64, f64) {
    let state = || {
        let naps = proc_text(service, "status");
        let naps = naps.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let naps: u64 = naps.expect("proc(5)").trim().parse().expect("a number");
        // The first number is nanoseconds on a processor.
        let ran = proc_text(service, "schedstat");
        let ran: f64 = ran.split(' ').next().expect("a word").parse().expect("a number");
        (naps, ran / 1e9)
    };
    let (before, begun) = (state(), Instant::now());
    thread::sleep(WATCHED);
    let (after, passed) = (state(), begun.elapsed().as_secs_f64());
    (after.0 - before.0, (after.1 - before.1) / passed)
}

fn looks_while_the_program_rests() -> Option<()> {
    let resting = Resting::start("32", &["0"], &["--idle"])?;
    let (_, service) = resting.managed();
    // Until all idle pages have gone.
    wait_for("that most is taken", || (resting.number("idle_pages") > 16 << 8).then_some(()));
    let mut seen = Vec::new();
    let is_so = |(looks, part): &(u64, f64)| {
        let a_second = *looks as f64 / WATCHED.as_secs_f64();
        (50.0..500.0).contains(&a_second) && (0.001..0.03).contains(part)
    };
    while seen.len() < WATCHED_AGAIN && !seen.last().is_some_and(is_so) {
        seen.push(looks_of(service));
    }
    println!("{seen:?}");
    assert!(seen.last().is_some_and(is_so), "looks, and the part of a processor: {seen:?}");
    resting.finish();
    Some(())
}

/// Returns the MiB that a process has in huge pages.
fn huge(process: u32) -> u64 {
    let text = proc_text(process, "smaps_rollup");
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.expect("proc(5)") >> 10
}

fn splits_huge_pages() -> Option<()> {
    let resting = Resting::start(HELD_MIB, &["0", "huge"], &["--idle=50%"])?;
    let output = String::from_utf8_lossy(&resting.live.output()).into_owned();
    let given = output.lines().find_map(|line| line.strip_prefix("huge ")?.parse::<u64>().ok());
    if given.expect("it prints it") < 48 {
        println!("skipped: the kernel gave no huge pages: {output}");
        return None;
    }
    let (program, _) = resting.managed();
    wait_for("that they are split", || (huge(program) < 8).then_some(()));
    resting.finish();
    Some(())
}

/// Shows that a program that is alone loses most of its idle memory, and keeps for twice as long
/// what it shares with children.
fn relatives_keep_what_they_share() -> Option<()> {
    let alone = Resting::start(HELD_MIB, &["0"], &["--idle=50%"])?;
    let begun = Instant::now();
    let is_most = || (alone.number("idle_pages") > HELD_PAGES / 2).then_some(());
    wait_for("that most is taken", is_most);
    let taken_within = begun.elapsed();
    alone.finish();
    let family = Resting::start(HELD_MIB, &["4"], &["--idle=50%"])?;
    family.managed();
    thread::sleep(taken_within * 2);
    let run = family.finish();
    let taken = run.stats().count("idle_pages");
    println!("most in {taken_within:?}; {taken} pages of relatives in twice as long");
    assert!(taken < HELD_PAGES / 5, "{taken} pages of relatives were taken");
    Some(())
}

#[test]
fn what_is_idle() {
    let cases = [
        case("looks while the program rests", Lane::Long, looks_while_the_program_rests),
        case("huge pages are split", Lane::Long, splits_huge_pages),
        case("relatives keep what they share", Lane::Long, relatives_keep_what_they_share),
    ];
    matrix::run(&cases);
}
