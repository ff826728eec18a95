//! Risk: coldpress takes idle memory and loses a byte of it; or does not find it; or a program
//! without idle memory is slowed by the looks at it.
//!
//! Programs hold memory within a budget that has room for all of it, and touch a part of it all the
//! time. The memory that a watcher outside sees must fall to what they use, while they wait for no
//! more than their share of the time.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live, Run};
use coldpress_tests::machine::{self, Scratch, fixture, require};
use coldpress_tests::matrix;
use coldpress_tests::watch::{self, Measure};

const BUDGET: Bytes = Bytes::mib(1024);
/// Time limit for what a program must do, on a busy machine: longer, it hangs.
const HANG: Duration = Duration::from_secs(120);
/// Times that the launcher is asked again.
const ASKED_AGAIN: usize = 5;
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// The share that `--idle` allows by itself, in per cent.
const SHARE: f64 = 0.5;

/// A program that holds memory until a file asks it to end.
struct Holder {
    live: Live,
    plain: Run,
    stop: PathBuf,
    _place: Scratch,
}

impl Holder {
    /// Starts a program that holds `mib` MiB and touches `hot` of them, when all of them are there.
    /// `None` without Python.
    fn start(mib: &str, hot: &str, options: &[&str]) -> Option<Self> {
        let place = Scratch::new("cold");
        let stop = place.path("stop");
        let job = Job::new("cold", require("python3")?).arg(fixture("cold.py")).args([mib, hot]);
        let job = job.arg(&stop).options(options.iter().copied());
        fs::write(&stop, "").expect("the place was made for it");
        let plain = job.plain();
        fs::remove_file(&stop).expect("it was written above");
        let live = Live::start(&job, Some(BUDGET));
        live.wait_for_output("full\n", HANG);
        Some(Self { live, plain, stop, _place: place })
    }

    /// Returns the output of `coldpress ctl` with `words`. The launcher closes a connection that is
    /// silent for half a second, so on a busy machine the test asks again.
    fn ctl(&self, words: &[&str]) -> String {
        let root = self.live.root().to_string();
        let ask = || {
            let mut command = Command::new(machine::coldpress());
            command.args(["ctl", &root]).args(words).output().expect("the command is built")
        };
        let mut output = ask();
        for _ in 0..ASKED_AGAIN {
            if output.status.success() {
                break;
            }
            output = ask();
        }
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("names and numbers").trim().to_owned()
    }

    fn number(&self, name: &str) -> f64 {
        self.ctl(&["get", name]).parse().expect("a number")
    }

    /// Returns the anonymous memory as seen from outside.
    fn held(&self) -> Bytes {
        watch::read_tree(self.live.root(), Measure::Resident).below
    }

    fn wait_until(&self, what: &str, done: impl Fn(&Self) -> bool) -> Duration {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < HANG, "{what} did not happen: {}", self.ctl(&["get"]));
            thread::sleep(LOOK);
        }
        begun.elapsed()
    }

    /// Ends the program, which must succeed.
    fn end(self) -> Run {
        fs::write(&self.stop, "").expect("the place was made for it");
        let run = self.live.finish(HANG);
        println!("{run}; {}", run.stderr);
        run.assert_same(&self.plain);
        run
    }
}

#[test]
fn memory_that_is_not_touched_goes_and_comes_back_right() {
    let Some(holder) = Holder::start("200", "40", &["--idle"]) else { return };
    let full = holder.held();
    assert!(full > Bytes::mib(200), "{full:?}");
    let goal = Bytes(full.0 * 48 / 100);
    let took = holder.wait_until("memory fell", |holder| holder.held() < goal);
    let (held, share) = (holder.held(), holder.number("idle_stall_percent"));
    println!("{held:?} of {full:?} after {took:?}, {share} % of the time stalled");
    assert!(share < SHARE, "{share} %");
    // coldpress reports the saved memory, with what holding it costs.
    let saved = holder.number("saved_bytes");
    let fallen = (full.0 - held.0) as f64;
    assert!((0.8..1.2).contains(&(saved / fallen)), "{saved} of {fallen}");
    let run = holder.end();
    run.assert_stored();
    assert!(run.stats().count("saved_average_bytes") > 1 << 20);
    assert!(run.stderr.contains("idle memory: "), "{}", run.stderr);
}

#[test]
fn a_program_that_uses_all_its_memory_keeps_it() {
    if matrix::is_left_out() {
        return;
    }
    let Some(holder) = Holder::start("100", "100", &["--idle"]) else { return };
    let full = holder.held();
    holder.wait_until("sampling", |holder| holder.number("idle_samples") >= 300.0);
    thread::sleep(Duration::from_secs(5));
    let share = holder.number("idle_stall_percent");
    let [samples, touched] = ["idle_samples", "idle_samples_touched"].map(|it| holder.number(it));
    println!("{touched} of {samples} samples touched, {share} % of the time stalled");
    assert!(share < SHARE, "{share} %");
    assert!(touched > samples / 2.0, "{touched} of {samples}");
    let held = holder.held();
    assert!(held.0 > full.0 * 9 / 10, "{held:?} of {full:?}");
    let run = holder.end();
    let taken = run.stats().count("idle_pages");
    assert!(taken < 100 * 256 / 5, "{taken} pages were taken");
}

#[test]
fn it_is_turned_on_and_off_while_a_program_runs() {
    let Some(holder) = Holder::start("100", "10", &[]) else { return };
    thread::sleep(Duration::from_secs(2));
    assert_eq!((holder.number("idle_samples"), holder.number("managed_processes")), (0.0, 0.0));
    holder.ctl(&["set", "idle=2%"]);
    holder.wait_until("saving", |holder| holder.number("saved_bytes") > 20e6);
    holder.ctl(&["set", "idle=off"]);
    assert_eq!(holder.ctl(&["get", "idle"]), "off");
    // Samples under way end first.
    thread::sleep(Duration::from_secs(1));
    let samples = holder.number("idle_samples");
    thread::sleep(Duration::from_secs(3));
    assert_eq!(holder.number("idle_samples"), samples);
    holder.end().assert_stored();
}

/// The share lets coldpress take all the idle memory that it finds.
#[test]
fn every_byte_survives_torture_while_idle_memory_is_taken() {
    const TORTURE: [&str; 8] =
        ["--seconds", "15", "--seed", "9", "--bytes", "160000000", "--threads", "2"];
    let job = Job::new("torture", env!("CARGO_BIN_EXE_torture")).args(TORTURE);
    let run = Live::start(&job.options(["--idle=50%"]), Some(BUDGET)).finish(HANG);
    println!("{run}; {}", run.stderr);
    let output = String::from_utf8_lossy(&run.stdout);
    let last = output.lines().last().unwrap_or_default();
    assert!(run.code == 0 && last.starts_with("torture: OK "), "{output}\n{}", run.stderr);
    assert!(run.stats().count("idle_samples") > 0, "it was never looked at");
}
