//! Risk: a debugger or a core file shows other bytes than the program has, because pages are away
//! and the kernel does not wait for them.
//!
//! A program holds a pattern of which most is away. Thawed and stopped, all of it must be readable
//! from outside; going on, it must be whole, and pages must go away again.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::cgroup::Limited;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{self, Scratch, find, is_root};
use coldpress_tests::watch;

const STILL: &str = env!("CARGO_BIN_EXE_still");
const BUDGET: Bytes = Bytes::mib(24);
/// A program must be ready within this, and end, on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
const HANG: Duration = Duration::from_secs(60);

/// A program that waits with its memory.
struct Still {
    live: Live,
    scratch: Scratch,
    process: u32,
    /// Where its memory starts, and pages of it.
    place: [String; 2],
}

impl Still {
    fn start(job: impl FnOnce(Job) -> Job) -> Self {
        let scratch = Scratch::new("still");
        let hold = Job::new("still", STILL).arg("hold").arg(scratch.path("go on"));
        let live = Live::start(&job(hold), Some(BUDGET));
        live.wait_for_output("ready\n", READY_MAX);
        let output = String::from_utf8(live.output()).expect("it prints numbers");
        let words: Vec<&str> = output.split_whitespace().collect();
        let place = [words[1], words[2]].map(str::to_owned);
        let (process, _) = watch::find_service(live.root()).expect("it is managed");
        let still = Self { live, scratch, process, place };
        assert!(evicted(&output, 0) * 2 > still.pages(), "{output}");
        still
    }

    fn pages(&self) -> u64 {
        self.place[1].parse().expect("a number of pages")
    }

    fn ctl(&self, words: &[&str]) -> Output {
        let mut command = Command::new(machine::coldpress());
        command.args(["ctl", &self.process.to_string()]).args(words);
        command.output().expect("the command is built")
    }

    /// What the run uses of its budget.
    fn used(&self) -> Bytes {
        let output = self.ctl(&["get", "used_bytes"]);
        Bytes(String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number"))
    }

    /// Brings everything back, which must be possible.
    fn thaw(&self) {
        let output = self.ctl(&["thaw"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("every page is in memory"), "{text}");
    }

    /// What another process finds there.
    fn look(&self, how: &str, subject: &str) -> String {
        let [start, pages] = &self.place;
        let words = ["-k", "60", "60", STILL, how, subject, start, pages];
        let output = Command::new("timeout").args(words).output().expect("timeout is there");
        println!("{how}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn all_right(&self) -> String {
        format!("wrong=0 failed=0 of {}\n", self.place[1])
    }

    /// Lets it end, and asserts that it found all of its bytes; the pages that were away then, and
    /// when it had walked much other memory.
    fn finish(self) -> [u64; 2] {
        self.scratch.write("go on", b"");
        let run = self.live.finish(HANG);
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(run.code == 0 && output.ends_with("wrong=0\n"), "{output}{}", run.stderr);
        [0, 1].map(|number| evicted(&output, number))
    }
}

/// The number that `still` printed for the time `number`.
fn evicted(output: &str, number: usize) -> u64 {
    let mut found = output.split_whitespace().filter_map(|word| word.strip_prefix("evicted="));
    found.nth(number).expect("it was printed").parse().expect("a number")
}

#[test]
fn a_stopped_program_that_was_thawed_shows_every_byte() {
    let still = Still::start(|job| job);
    let process = still.process.to_string();
    assert_ne!(still.look("mem", &process), still.all_right(), "nothing was away");
    still.thaw();
    machine::signal("STOP", &[still.process]);
    let found = ["mem", "vm"].map(|how| still.look(how, &process));
    machine::signal("CONT", &[still.process]);
    assert_eq!(found, [still.all_right(), still.all_right()]);
    // Thawed until the end: nothing went away however much was walked.
    assert_eq!(still.finish(), [0, 0]);
}

#[test]
fn pages_go_away_again_when_thawing_ends() {
    let still = Still::start(|job| job);
    let pages = still.pages();
    still.thaw();
    assert!(still.ctl(&["set", "thawed=off"]).status.success());
    let begun = Instant::now();
    while still.used() > BUDGET {
        assert!(begun.elapsed() < HANG, "{:?} are still used", still.used());
        sleep(Duration::from_millis(20));
    }
    let [_, away] = still.finish();
    assert!(away * 2 > pages, "{away} of {pages} went away");
}

/// Reads all memory of a process that may be written to, as one who looks for something in it.
fn read_all_of(process: u32) -> usize {
    let memory = File::open(format!("/proc/{process}/mem")).expect("it is ours");
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("it runs");
    let mut buffer = vec![0; 1 << 20];
    let mut sum = 0;
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (start, rest) = line.split_once('-').expect("proc(5)");
        let end = rest.split_once(' ').expect("proc(5)").0;
        let [mut at, end] = [start, end].map(|text| u64::from_str_radix(text, 16).expect("hex"));
        while at < end {
            let length = buffer.len().min((end - at) as usize);
            // Some of it may not be there to be read.
            sum += memory.read_at(&mut buffer[..length], at).unwrap_or(0);
            at += length as u64;
        }
    }
    sum
}

/// Who reads where nothing is leaves zeros there, in our own memory too.
#[test]
fn what_an_onlooker_leaves_is_not_taken_for_pages() {
    let still = Still::start(|job| job);
    for _ in 0..2 {
        still.thaw();
        println!("{} bytes were read", read_all_of(still.process));
        assert!(still.ctl(&["set", "thawed=off"]).status.success());
        let begun = Instant::now();
        while still.used() > BUDGET {
            assert!(begun.elapsed() < HANG, "{:?} are still used", still.used());
            sleep(Duration::from_millis(20));
        }
    }
    still.thaw();
    let process = still.process.to_string();
    assert_eq!(still.look("mem", &process), still.all_right());
    still.finish();
}

#[test]
fn a_core_of_a_thawed_program_has_every_byte() {
    let Some(gcore) = find("gcore") else { return println!("skipped: gcore is not installed") };
    let still = Still::start(|job| job);
    still.thaw();
    let prefix = still.scratch.path("core");
    let process = still.process.to_string();
    let output = Command::new(gcore).arg("-o").arg(&prefix).arg(&process).output();
    let output = output.expect("gcore was found");
    let file = format!("{}.{process}", prefix.display());
    if !Path::new(&file).exists() {
        println!("skipped: gcore may not: {}", String::from_utf8_lossy(&output.stderr));
    } else {
        assert_eq!(still.look("core", &file), still.all_right());
    }
    still.finish();
}

/// Where the kernel would kill it, it is refused, and the program goes on as before.
#[test]
fn thawing_without_room_is_refused() {
    if !is_root() {
        return;
    }
    let Some(group) = Limited::new(BUDGET + Bytes::mib(32)) else { return };
    let still = Still::start(|job| job.before(group.entering()));
    let output = still.ctl(&["thaw"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("--force"), "{text}");
    still.finish();
    assert_eq!(group.kills(), 0);
}

/// Who stops the program does not stop its service; one whose service is stopped too is told of.
#[test]
fn a_stopped_program_is_thawed_and_a_stopped_service_told() {
    let still = Still::start(|job| job);
    machine::signal("STOP", &[still.process]);
    still.thaw();
    machine::signal("CONT", &[still.process]);
    still.finish();
    let still = Still::start(|job| job);
    let (_, service) = watch::find_service(still.live.root()).expect("it is managed");
    machine::signal("STOP", &[service]);
    let output = still.ctl(&["thaw"]);
    machine::signal("CONT", &[service]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("stopped"), "{text}");
    // It is thawed as soon as it goes on.
    still.thaw();
    still.finish();
}
