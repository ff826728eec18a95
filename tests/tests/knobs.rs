//! Risk: turning a knob while pages are stored loses a page, stops the program, or does nothing.
//!
//! Programs hold memory that does not fit their budget and read it again and again, while the test
//! turns knobs from outside. Their output must be that of a plain run, and the statistics must show
//! the requested values.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live, Run};
use coldpress_tests::machine::{self, fixture, require};
use coldpress_tests::watch::{self, Measure};

/// Time limit for a program to reach its "ready", on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
/// Time limit of a program: longer, it hangs.
const HANG: Duration = Duration::from_secs(120);
const BUDGET: Bytes = Bytes::mib(32);

/// Makes a job of `hold.py` on 64 MiB.
fn hold(rounds: &str) -> Option<Job> {
    let job = Job::new("hold", require("python3")?).arg(fixture("hold.py"));
    Some(job.args(["private", "64", rounds]))
}

/// Turns knobs of a run, which must succeed.
fn set(live: &Live, settings: &[&str]) {
    let (launcher, root) = (machine::coldpress(), live.root().to_string());
    let output = Command::new(launcher).args(["ctl", &root, "set"]).args(settings).output();
    let output = output.expect("the command is built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs `job` within [`BUDGET`] and lets `turn` turn knobs when it is ready. Asserts the output of
/// a plain run.
fn turned(job: &Job, turn: impl FnOnce(&Live)) -> Run {
    let plain = job.plain();
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    let live = Live::start(job, Some(BUDGET));
    live.wait_for_output("ready\n", READY_MAX);
    turn(&live);
    let run = live.finish(HANG);
    println!("{run}");
    run.assert_same(&plain);
    run
}

#[test]
fn a_smaller_pool_and_another_codec_are_in_force_at_once() {
    let Some(job) = hold("6") else { return };
    let run = turned(&job, |live| set(live, &["max_pool_percent=10", "codec=zstd:1"]));
    let stats = run.stats();
    assert_eq!(stats.at("knobs", "max_pool_percent"), 10);
    assert_eq!(stats.at("zswap", "codec_switched"), 1);
    // A pool of half the budget would have held all pages.
    assert!(stats.at("zswap", "flushed_pages") > 0, "the pool was not made smaller");
    run.assert_within_budget();
}

#[test]
fn codecs_switched_under_load_lose_nothing() {
    let Some(job) = hold("25") else { return };
    let codecs = ["zstd:1", "lzo", "auto", "wk", "zstd:9", "auto", "lz4", "zstd:-5", "lzo", "lz4"];
    let run = turned(&job, |live| {
        for codec in codecs {
            set(live, &[&format!("codec={codec}")]);
            thread::sleep(Duration::from_millis(100));
        }
    });
    // The last switch may come when the program has stopped looking.
    assert!(run.stats().at("zswap", "codec_switched") >= codecs.len() as u64 - 1);
    run.assert_stored();
    run.assert_within_budget();
}

/// Returns what `coldpress ctl PID get NAME` prints for a run.
fn get(live: &Live, name: &str) -> String {
    let (launcher, root) = (machine::coldpress(), live.root().to_string());
    let output = Command::new(launcher).args(["ctl", &root, "get", name]).output();
    let output = output.expect("the command is built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a name or a number").trim().to_owned()
}

/// While a program rests, the former pool becomes empty and goes. Its pages are read where they are
/// then.
#[test]
fn a_pool_that_is_left_is_empty_soon() {
    let Some(python) = require("python3") else { return };
    let job = |rest| Job::new("rest", &python).arg(fixture("rest.py")).args(["64", rest]);
    let plain = job("0").plain();
    let job = job("8").options(["--set", "writeback=off", "--pool", "zsmalloc"]);
    let live = Live::start(&job, Some(BUDGET));
    live.wait_for_output("full\n", READY_MAX);
    set(&live, &["pool=segment"]);
    let number = |name| get(&live, name).parse::<u64>().expect("a number");
    while number("drained_pages") == 0 || number("draining_pages") > 0 {
        thread::sleep(Duration::from_millis(50));
    }
    assert!(number("in_pool_pages") > 1000, "there is nothing in the pool");
    let run = live.finish(HANG);
    println!("{run}");
    run.assert_same(&plain);
    run.assert_within_budget();
}

#[test]
fn pools_switched_under_load_lose_nothing() {
    let Some(job) = hold("12") else { return };
    let run = turned(&job.options(["--set", "writeback=off"]), |live| {
        for pool in ["segment", "xvmalloc", "xcfmalloc", "zsmalloc"] {
            set(live, &[&format!("pool={pool}")]);
            assert_eq!(get(live, "pool"), pool);
            thread::sleep(Duration::from_millis(300));
        }
    });
    assert!(run.stats().at("zswap", "drained_pages") > 0, "no page moved");
    run.assert_stored();
    run.assert_within_budget();
}

/// Refused pages stay in the program: it goes on, above its budget, and comes back below when pages
/// are accepted again.
#[test]
fn pages_that_are_refused_stay_in_the_program() {
    let Some(job) = hold("12") else { return };
    let run = turned(&job, |live| {
        for (off, on) in [
            ("enabled=off", "enabled=on"),
            // Refuses every page but those of one word, because a quarter of each page is noise.
            ("max_compression_ratio=1", "max_compression_ratio=80"),
        ] {
            set(live, &[off, "keep_incompressible=off"]);
            thread::sleep(Duration::from_millis(400));
            set(live, &[on, "keep_incompressible=on"]);
            thread::sleep(Duration::from_millis(400));
        }
    });
    let stats = run.stats();
    for counter in ["reject_disabled", "reject_compress_poor"] {
        assert!(stats.at("zswap", counter) > 0, "{counter}");
    }
    // Refusals cost a moment of a service, not all of its time.
    assert!(run.wall < Duration::from_secs(60), "{:?}", run.wall);
    run.assert_stored();
}

#[test]
fn no_more_is_written_than_the_limit_of_a_period() {
    let Some(job) = hold("4") else { return };
    let options = ["--set", "max_pool_percent=10,writeback_limit=1M"];
    let run = turned(&job.options(options), |_| {});
    let written = run.stats().at("zswap", "flushed_bytes");
    assert!(written > 0 && written <= 1 << 20, "{written}");
    assert!(run.stats().at("zswap", "reject_writeback_limit") > 0);
    run.assert_within_budget();
}

/// One zone has no frames that can be emptied, and a core zone that was asked for is there.
#[test]
fn zones_are_laid_out_as_asked_for() {
    let Some(job) = hold("3") else { return };
    for (setting, has_easy) in [("one_zone=on", false), ("core=16M", true)] {
        let run = turned(&job.clone().options(["--set", setting]), |live| {
            let pages = |name| get(live, name).parse::<u64>().expect("a number");
            let (core, easy) = (pages("core_pages"), pages("easy_reclaim_pages"));
            println!("{setting}: {core} and {easy} pages");
            assert_eq!(easy > 0, has_easy, "{setting}");
            assert!(core > 0 && pages("descriptor_pages") > 0, "{setting}");
        });
        run.assert_within_budget();
    }
}

/// Memory that is moved while its pages are refused must be kept all the same.
#[test]
fn every_byte_survives_torture_while_knobs_are_turned() {
    const TURNS: [&[&str]; 9] = [
        &["thawed=on"],
        &["thawed=off", "enabled=off"],
        &["enabled=on", "keep_incompressible=off", "max_compression_ratio=40"],
        &["codec=zstd:1", "max_mean_zsize=600", "pool=segment", "idle=20%"],
        &["max_pool_percent=5", "accept_threshold_percent=60"],
        &["writeback=off", "same_filled=off", "dense=off", "pool=xvmalloc"],
        &["codec=lzo", "max_compression_ratio=80", "writeback=on", "writeback_limit=3M"],
        &[
            "writeback_limit=none",
            "max_mean_zsize=4096",
            "keep_incompressible=on",
            "pool=xcfmalloc",
        ],
        &[
            "codec=lz4",
            "max_pool_percent=50",
            "accept_threshold_percent=100",
            "same_filled=on",
            "dense=on",
            "idle=off",
        ],
    ];
    const TURNED: Duration = Duration::from_secs(9);
    const TORTURE: [&str; 8] =
        ["--seconds", "12", "--seed", "5", "--bytes", "160000000", "--threads", "2"];
    let job = Job::new("torture", env!("CARGO_BIN_EXE_torture")).args(TORTURE);
    let live = Live::start(&job, Some(Bytes::mib(64)));
    let begun = Instant::now();
    // The program goes on for 12 s; a turn takes longer on a busy machine.
    for turn in TURNS.iter().cycle().take_while(|_| begun.elapsed() < TURNED) {
        thread::sleep(Duration::from_millis(200));
        set(&live, turn);
    }
    let run = live.finish(HANG);
    println!("{run}");
    let output = String::from_utf8_lossy(&run.stdout);
    let last = output.lines().last().unwrap_or_default();
    assert!(run.code == 0 && last.starts_with("torture: OK "), "{output}\n{}", run.stderr);
    for counter in ["reject_disabled", "reject_compress_poor", "reject_mean_poor"] {
        assert!(run.stats().at("zswap", counter) > 0, "{counter}; {}", run.stderr);
    }
}

/// A budget is lowered by a little at each look, and at a program that rests hardly anything looks.
#[test]
fn a_lower_budget_reaches_a_program_that_rests() {
    const RESTS: &str = "
import sys, time
held = [bytearray(b'x' * 2048 + bytes([i % 251]) * 2048) for i in range(25600)]
print('ready', flush=True)
time.sleep(int(sys.argv[1]))
print(sum(page[4000] for page in held))
";
    let Some(python) = require("python3") else { return };
    let job = |seconds| Job::new("rests", &python).args(["-c", RESTS, seconds]);
    let (before, after, slack) = (Bytes::mib(64), Bytes::mib(40), Bytes::mib(4));
    let live = Live::start(&job("6"), Some(before));
    live.wait_for_output("ready\n", READY_MAX);
    thread::sleep(Duration::from_secs(2));
    let held = || watch::read_tree(live.root(), Measure::Resident).below;
    let full = held();
    set(&live, &["memory=40M"]);
    let set_at = Instant::now();
    while held() > after + slack && set_at.elapsed() < Duration::from_secs(3) {
        thread::sleep(Duration::from_millis(20));
    }
    let (left, took) = (held(), set_at.elapsed());
    println!("{full:?} before, {left:?} {took:?} after the budget was lowered");
    live.finish(HANG).assert_same(&job("0").plain());
    assert!(full > after + slack, "the program held {full:?}");
    assert!(left <= after + slack, "{left:?} are still held, of {full:?}");
}
