//! Risk: a user, or the kernel when memory is short, kills a process of coldpress, and the program
//! hangs, reads wrong bytes, or something is left behind.
//!
//! The moments are random, from before the program begins until it has ended.
//! `COLDPRESS_KILLED_SEED` repeats a run, `COLDPRESS_KILLED_ROUNDS` makes it longer (5).

use std::env;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{self, Scratch, fixture};
use coldpress_tests::watch;

/// A program that waits with its memory, most of which is away.
const STILL: &str = env!("CARGO_BIN_EXE_still");

/// A python that every user may run.
const PYTHON: &str = "/usr/bin/python3";
/// MiB that the program holds; below, half of them as the budget.
const HELD_MIB: &str = "48";
const BUDGET: Bytes = Bytes::mib(24);
/// Time limit of a run: longer, it hangs.
const HANG: Duration = Duration::from_secs(60);
/// The exit status of a killed process.
const KILLED: i32 = 128 + 9;
/// Variable that marks the processes of a run: all of them have it in their environment.
const MARK: &str = "TEST_KILLED_MARK";

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// A source of random numbers: splitmix64.
struct Lot(u64);

impl Lot {
    fn new() -> Self {
        let seed = setting("COLDPRESS_KILLED_SEED").unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.map_or(1, |since| since.subsec_nanos().into())
        });
        println!("seed {seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % end
    }
}

/// Returns the processes with this mark.
fn marked(mark: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("it is there").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |process: &u32| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    numbers.filter(has).collect()
}

/// The end of a run of which a process was killed.
struct Ended {
    /// Whether `kill` found a process to kill.
    killed: bool,
    code: i32,
    /// Whether the output is that of a run without coldpress, not only its beginning.
    is_whole: bool,
    stderr: String,
}

/// Starts a program again and again, and lets `kill` end a process at a random moment. Hands the
/// end of the run to `judge`, once none of its processes is left.
fn at_any_moment(name: &'static str, kill: impl Fn(&Live) -> bool, judge: impl Fn(&Ended)) {
    if !Path::new(PYTHON).exists() {
        return machine::skip("no python3 that every user may run");
    }
    let job = || Job::new(name, PYTHON).arg(fixture("hold.py")).args(["private", HELD_MIB, "3"]);
    let plain = job().plain().stdout;
    let whole = job().managed(BUDGET).wall.as_micros() as u64;
    let mut lot = Lot::new();
    for round in 0..setting("COLDPRESS_KILLED_ROUNDS").unwrap_or(5) {
        let mark = format!("{name}-{}-{round}", std::process::id());
        let live = Live::start(&job().environment(MARK, &mark), Some(BUDGET));
        let moment = Duration::from_micros(lot.below(whole));
        thread::sleep(moment);
        let killed = kill(&live);
        // Processes that go on without the launcher hold the output.
        assert!(live.wait_output_end(HANG), "{moment:?}: hangs");
        let run = live.finish(HANG);
        let begun = Instant::now();
        while !marked(&format!("{MARK}={mark}")).is_empty() {
            assert!(begun.elapsed() < HANG, "{moment:?}: something is left; {}", run.stderr);
            thread::sleep(Duration::from_millis(5));
        }
        println!("{moment:?}: killed {killed}, status {}; {}", run.code, run.stderr);
        assert!(plain.starts_with(&run.stdout), "{moment:?}: other output");
        let is_whole = run.stdout == plain;
        judge(&Ended { killed, code: run.code, is_whole, stderr: run.stderr });
    }
}

#[test]
fn a_program_goes_on_whole_whenever_its_launcher_is_killed() {
    let kill = |live: &Live| {
        let is_made = watch::keeper(live.root()).is_some();
        machine::signal("KILL", &[live.root()]);
        is_made
    };
    at_any_moment("launcher", kill, |ended| {
        // Before there is a keeper, the run has no process but the launcher.
        assert!(ended.is_whole || !ended.killed, "{}", ended.stderr);
        assert!([0, KILLED].contains(&ended.code));
    });
}

#[test]
fn a_program_goes_on_whole_whenever_its_keeper_is_killed() {
    at_any_moment(
        "keeper",
        |live| kill(watch::keeper(live.root())),
        |ended| {
            if ended.is_whole && ended.code == 0 {
                let is_told = ended.stderr.contains("the keeper of this run was ended by signal 9");
                // The program may have been about to end.
                assert!(
                    is_told || !ended.killed || ended.stderr.contains("peak"),
                    "{}",
                    ended.stderr
                );
            } else {
                // The program had not begun, or the launcher had not heard of it.
                assert!(ended.killed && ended.code == KILLED, "{}: {}", ended.code, ended.stderr);
            }
        },
    );
}

#[test]
fn a_program_is_ended_or_goes_on_whole_whenever_its_service_is_killed() {
    let service = |live: &Live| kill(watch::find_service(live.root()).map(|(_, service)| service));
    at_any_moment("service", service, |ended| match ended.code {
        // The program had no service, or has all of its pages.
        0 => assert!(ended.is_whole),
        code => {
            assert!(ended.killed && code == KILLED, "{code}: {}", ended.stderr);
            assert!(
                ended.stderr.contains("the process that kept its cold pages"),
                "{}",
                ended.stderr
            );
        }
    });
}

/// By then the program has ended with a status of its own.
#[test]
fn a_keeper_killed_behind_its_program_takes_no_status_with_it() {
    let job = Job::new("behind", "sh").args(["-c", "sleep 1 & echo ready; exit 3"]);
    let live = Live::start(&job.options(["--wait"]), Some(BUDGET));
    live.wait_for_output("ready", HANG);
    thread::sleep(Duration::from_millis(200));
    assert!(kill(watch::keeper(live.root())));
    let run = live.finish(HANG);
    assert_eq!(run.code, 3, "{}", run.stderr);
}

/// Runs a program that waits, and lets `end` kill a process then. Returns how many of its pages
/// were wrong after that, and how many of those were zeros.
fn wrong_and_zeros(end: impl Fn(&Live)) -> [u64; 2] {
    let scratch = Scratch::new("killed");
    let job = Job::new("still", STILL).arg("hold").arg(scratch.path("go on"));
    let live = Live::start(&job, Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    end(&live);
    scratch.write("go on", b"");
    assert!(live.wait_output_end(HANG), "it hangs");
    let run = live.finish(HANG);
    let output = String::from_utf8_lossy(&run.stdout);
    println!("{output}{}", run.stderr);
    assert_eq!(run.code, 0, "{output}{}", run.stderr);
    let number = |name| output.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
    ["wrong=", "zeros="].map(|name| number(name).expect("it printed all"))
}

/// Without a keeper, no process ends the program when its service ends.
#[test]
fn without_a_keeper_a_program_goes_on_and_without_its_service_too_reads_zeros() {
    let kill_keeper = |live: &Live| assert!(kill(watch::keeper(live.root())));
    assert_eq!(wrong_and_zeros(kill_keeper), [0, 0]);
    let [wrong, zeros] = wrong_and_zeros(|live| {
        kill_keeper(live);
        let (_, service) = watch::find_service(live.root()).expect("it is managed");
        machine::signal("KILL", &[service]);
        let begun = Instant::now();
        while watch::is_service(service) {
            assert!(begun.elapsed() < HANG, "its service stays");
            thread::sleep(Duration::from_millis(5));
        }
    });
    assert!(wrong > 0 && zeros == wrong, "{zeros} of {wrong} wrong pages are zeros");
}

/// Kills the process, if there is one. Returns whether there was.
fn kill(process: Option<u32>) -> bool {
    machine::signal("KILL", process.as_slice());
    process.is_some()
}
