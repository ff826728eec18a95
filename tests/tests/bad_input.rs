//! Risk: something around the program is wrong, and the program hangs or loses data, or nobody
//! hears of it.
//!
//! These tests need a running program: places for pages that are full or are memory themselves,
//! memory that cannot be moved, helpers that are killed, descriptors that are closed. Input that is
//! refused before a program starts is tested beside the command line.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live, Run};
use coldpress_tests::machine::{self, TinyDisk, fixture, require};
use coldpress_tests::watch;

/// The exit status by which `hold.py` reports that it may not lock memory.
const CANNOT_LOCK: i32 = 77;
/// Time limit for a program to reach its "ready", on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
/// Time limit for a process to end after a kill: longer, it hangs.
const HANG: Duration = Duration::from_secs(10);
/// Rounds that keep `hold.py` busy for seconds after it is ready: coldpress looks at memory that
/// cannot be moved four times a second.
const MANY_ROUNDS: &str = "12";

/// Makes a job of `hold.py` with `words`.
fn hold(name: &'static str, words: &[&str]) -> Option<Job> {
    Some(Job::new(name, require("python3")?).arg(fixture("hold.py")).args(words.iter().copied()))
}

/// Runs `job` plain and within `budget`, and asserts the same outcome.
fn compare(job: &Job, budget: Bytes) -> Run {
    let plain = job.plain();
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    let run = job.managed(budget);
    println!("{run}");
    run.assert_same(&plain);
    run
}

/// Asserts exactly one line of standard error with all of `words`.
fn assert_told_once(run: &Run, words: &[&str]) {
    let lines = run.complaints(words);
    assert_eq!(lines.len(), 1, "wanted one line with {words:?}; {}", run.stderr);
}

#[test]
fn a_disk_that_is_memory_is_told_once() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    if !mounts.lines().any(|line| line.contains(" /dev/shm tmpfs ")) {
        return println!("skipped: no tmpfs at /dev/shm");
    }
    let Some(job) = hold("disk on tmpfs", &["private", "64"]) else { return };
    let run = compare(&job.options(["--disk", "/dev/shm"]), Bytes::mib(40));
    assert_told_once(&run, &["warning", "tmpfs"]);
    run.assert_stored();
}

/// Checks that pages beyond the pool's limit go to the disk until it is full, and then stay in
/// memory.
fn check_full(job: Job) {
    let job = job.options(["--max-pool-percent", "10"]);
    let run = compare(&job, Bytes::mib(64));
    assert_told_once(&run, &["warning", "disk", "full"]);
    assert!(run.stats().count("written_back_pages") > 0, "{}", run.stderr);
}

#[test]
fn a_disk_size_that_is_used_up_loses_nothing() {
    let Some(job) = hold("disk size", &["private", "112"]) else { return };
    check_full(job.options(["--disk-size", "4M"]));
}

#[test]
fn a_full_disk_loses_nothing() {
    if !machine::is_root() {
        return;
    }
    let Some(job) = hold("full disk", &["private", "112"]) else { return };
    let Some(disk) = TinyDisk::mount("4M") else { return };
    check_full(job.options(["--disk".into(), disk.path().to_owned()]));
}

/// Pages that cannot be encrypted are not written.
#[test]
fn without_a_key_nothing_goes_to_the_disk() {
    let Some(job) = hold("no key", &["private", "112"]) else { return };
    let plain = job.plain();
    let job = job.before([env!("CARGO_BIN_EXE_without"), "getrandom"]);
    let run = job.options(["--max-pool-percent", "10"]).managed(Bytes::mib(64));
    println!("{run}");
    run.assert_same(&plain);
    run.assert_stored();
    assert_told_once(&run, &["warning", "encrypt", "no key", "getrandom"]);
    assert_eq!(run.stats().count("written_back_pages"), 0, "{}", run.stderr);
}

#[test]
fn locked_memory_over_the_budget_is_told_once() {
    let Some(job) = hold("locked", &["locked", "56", MANY_ROUNDS]) else { return };
    if job.plain().code == CANNOT_LOCK {
        return println!("skipped: locking so much memory is not allowed here");
    }
    let run = compare(&job, Bytes::mib(32));
    assert_told_once(&run, &["budget", "32 MiB", "locked"]);
}

#[test]
fn shared_memory_over_the_budget_is_told_once() {
    let Some(job) = hold("shared", &["shared", "56", MANY_ROUNDS]) else { return };
    let run = compare(&job, Bytes::mib(32));
    assert_told_once(&run, &["budget", "32 MiB", "shared"]);
}

#[test]
fn a_program_that_closes_every_descriptor_keeps_its_data() {
    let Some(job) = hold("close", &["private", "64", "3", "close"]) else { return };
    let run = compare(&job, Bytes::mib(32));
    run.assert_stored();
    run.assert_within_budget();
}

#[test]
fn other_preloaded_libraries_are_kept() {
    let Some(grep) = require("grep") else { return };
    let script = "case \"$LD_PRELOAD\" in *libm.so.6*) \"$1\" -c libm.so.6 /proc/self/maps;; esac";
    let job = Job::new("LD_PRELOAD", "sh").args(["-c", script, "sh"]).arg(grep);
    let run = compare(&job.environment("LD_PRELOAD", "libm.so.6"), Bytes::mib(32));
    let lines: u32 = String::from_utf8_lossy(&run.stdout).trim().parse().expect("a count");
    assert!(lines > 0, "the library was not loaded; {}", run.stderr);
}

/// Starts a run that has moved pages out and will be busy for long.
fn start_busy() -> Option<Live> {
    let job = hold("killed", &["private", "64", MANY_ROUNDS])?;
    let live = Live::start(&job, Some(Bytes::mib(32)));
    live.wait_for_output("ready\n", READY_MAX);
    Some(live)
}

/// Pages that only the service holds are lost with it: the program must not read other pages
/// instead.
#[test]
fn a_killed_service_ends_the_program_loudly() {
    let Some(live) = start_busy() else { return };
    let (process, service) = watch::find_service(live.root()).expect("it is managed");
    println!("killing {service}, the service of process {process}");
    machine::signal("KILL", &[service]);
    let run = live.finish(HANG);
    assert_eq!(run.code, 128 + 9, "{}", run.stderr);
    assert!(run.stderr.contains("has ended; do not end"), "{}", run.stderr);
}

/// The launcher acts only when processes start. So without it a program may well finish, and then
/// with the right output; or it ends. It does not wait for ever.
#[test]
fn a_killed_launcher_does_not_leave_a_hanging_program() {
    let Some(job) = hold("killed", &["private", "64", MANY_ROUNDS]) else { return };
    let plain = job.plain();
    let Some(mut live) = start_busy() else { return };
    live.kill_root();
    assert!(live.wait_output_end(HANG + plain.wall * 4), "the program hangs");
    let output = live.output();
    let whole = output == plain.stdout;
    assert!(whole || output == b"ready\n", "{:?}", String::from_utf8_lossy(&output));
}

/// A launcher that is killed cannot remove its directory; the next run of the same user removes it.
#[test]
fn the_next_run_removes_what_a_killed_launcher_left() {
    let script = "grep -m 1 -o '/[^ ]*libcoldpress.so' /proc/self/maps; kill -KILL $PPID";
    let job = Job::new("left", "sh").args(["-c", script]);
    let live = Live::start(&job, Some(Bytes::mib(32)));
    assert!(live.wait_output_end(HANG), "it does not end");
    let library = String::from_utf8(live.output()).expect("a plain path");
    let directory = Path::new(library.trim_end()).parent().expect("the library is in a directory");
    println!("{}", directory.display());
    let run = || Job::new("next", "true").managed(Bytes::mib(32));
    run();
    assert!(directory.exists(), "it may be of a launcher that is about to listen");
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    File::open(directory).and_then(|file| file.set_modified(hour_ago)).expect("it is still there");
    run();
    assert!(!directory.exists(), "it is still there");
}
