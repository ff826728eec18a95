//! Risk: a budget that changes during a run is not kept; or the program stops, or loses a page on
//! the way; or a budget by the machine takes memory from other programs that wait for it.
//!
//! A program reads its memory again and again, while the budget becomes smaller than that memory
//! and larger again. The memory in use must follow within the time that a busy machine takes.

use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::cgroup::Limited;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{self, Scratch, fixture, require};

/// Time limit for memory to follow the budget: later, it does not follow.
const HANG: Duration = Duration::from_secs(120);
/// A budget above the program's need.
const BUDGET: Bytes = Bytes::mib(100);

/// Makes a job of `hold.py` on 64 MiB, for `rounds` rounds, or until that file is there.
fn hold(rounds: impl Into<OsString>) -> Option<Job> {
    let job = Job::new("hold", require("python3")?).arg(fixture("hold.py"));
    Some(job.args(["private", "64"]).arg(rounds))
}

/// Runs `coldpress ctl PID` with `words`, which must succeed, and returns its output.
fn ctl(live: &Live, words: &[&str]) -> String {
    let mut command = Command::new(machine::coldpress());
    let output = command.args(["ctl", &live.root().to_string()]).args(words).output();
    let output = output.expect("the command is built");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("names and numbers").trim().to_owned()
}

/// Returns the figure `name`.
fn get(live: &Live, name: &str) -> Bytes {
    Bytes(ctl(live, &["get", name]).parse().expect("a number"))
}

/// Waits until `is_right` holds for the figure `name`.
fn wait_until(live: &Live, name: &str, is_right: impl Fn(Bytes) -> bool) {
    let begun = Instant::now();
    while !is_right(get(live, name)) {
        assert!(begun.elapsed() < HANG, "{name} stays at {:?}", get(live, name));
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_budget_is_changed_while_the_program_runs() {
    let Some(plain) = hold("1").map(|job| job.plain()) else { return };
    let scratch = Scratch::new("limits");
    let Some(job) = hold(scratch.path("end")) else { return };
    let live = Live::start(&job, Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    for _ in 0..2 {
        assert_eq!(ctl(&live, &["set", "memory=40M"]), "memory 41943040");
        wait_until(&live, "used_bytes", |used| used <= Bytes::mib(40));
        ctl(&live, &["set", "memory=100M"]);
        wait_until(&live, "used_bytes", |used| used > Bytes::mib(60));
    }
    ctl(&live, &["set", "memory=48M"]);
    scratch.write("end", b"");
    let run = live.finish(HANG);
    println!("{run}");
    run.assert_same(&plain);
    run.assert_stored();
    assert_eq!(run.stats().count("budget_bytes"), 48 << 20);
}

#[test]
fn a_budget_by_a_limit_follows_it() {
    let Some(plain) = hold("1").map(|job| job.plain()) else { return };
    if !machine::is_root() {
        return;
    }
    let scratch = Scratch::new("limits");
    let Some(job) = hold(scratch.path("end")) else { return };
    let Some(group) = Limited::new(Bytes::mib(200)) else { return };
    let live = Live::start(&job.before(group.entering()), Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    assert_eq!(ctl(&live, &["set", "memory=auto"]), "memory auto");
    let is_ninety_percent_of = |limit: usize| {
        let wanted = Bytes((limit << 20) / 10 * 9);
        move |budget| budget == wanted
    };
    wait_until(&live, "budget_bytes", is_ninety_percent_of(200));
    group.change(Bytes::mib(300)).expect("more is always possible");
    wait_until(&live, "budget_bytes", is_ninety_percent_of(300));
    // A smaller limit must have room at once; else the kernel refuses it or kills.
    ctl(&live, &["set", "memory=40M"]);
    wait_until(&live, "used_bytes", |used| used <= Bytes::mib(40));
    ctl(&live, &["set", "memory=50%"]);
    group.change(Bytes::mib(160)).expect("half of it is in use at most");
    wait_until(&live, "budget_bytes", |budget| budget == Bytes::mib(80));
    scratch.write("end", b"");
    let run = live.finish(HANG);
    println!("{run}");
    assert_eq!(group.kills(), 0, "{}", run.stderr);
    run.assert_same(&plain);
}

/// The file in which the kernel reports memory pressure.
const PRESSURE: &str = "/proc/pressure/memory";

/// Returns half of the machine's memory, which is the budget where no cgroup has a limit.
fn half_of_machine() -> Bytes {
    let text = fs::read_to_string("/proc/meminfo").expect("procfs is mounted");
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).expect("proc(5)");
    let kib: usize = total.trim().trim_end_matches(" kB").parse().expect("proc(5)");
    Bytes(kib << 9)
}

/// Other programs read pages of a file again and again for which their cgroup has no room.
#[test]
fn a_budget_by_the_machine_gives_way_to_others_and_comes_back() {
    let Some(python) = require("python3") else { return };
    let scratch = Scratch::new("limits");
    let Some(job) = hold(scratch.path("end")).map(|job| job.arg("rest")) else { return };
    if !machine::is_root() {
        return;
    }
    if fs::read(PRESSURE).is_err() {
        println!("skipped: no {PRESSURE}");
        return;
    }
    let Some(group) = Limited::new(Bytes::mib(48)) else { return };
    let live = Live::start(&job, Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    ctl(&live, &["set", "memory=auto"]);
    wait_until(&live, "budget_bytes", |budget| budget > BUDGET);
    let whole = get(&live, "budget_bytes");
    if whole == half_of_machine() {
        let mut words = group.entering().into_iter();
        let mut readers = Command::new(words.next().expect("it has a first word"))
            .args(words)
            .args([python.into_os_string(), fixture("hot_file.py").into_os_string()])
            .args([scratch.path("file").into_os_string(), "64".into()])
            .arg(scratch.path("read"))
            .spawn()
            .expect("there is a shell");
        wait_until(&live, "budget_bytes", |budget| budget < whole);
        scratch.write("read", b"");
        assert!(readers.wait().expect("they are children").success());
        wait_until(&live, "budget_bytes", |budget| budget == whole);
    } else {
        println!("skipped: a cgroup of this machine has a limit");
    }
    scratch.write("end", b"");
    assert_eq!(live.finish(HANG).code, 0);
}

/// A child in the environment of another run holds twice the budget.
#[test]
fn who_is_not_managed_is_named_and_why() {
    let Some(python) = require("python3") else { return };
    let program = "import time; held = b'x' * (64 << 20); time.sleep(1); print(len(held))";
    let job =
        Job::new("env", "sh").args(["-c", "env -i COLDPRESS_SOCKET=none \"$@\"; echo done", "sh"]);
    let job = job.arg(python).args(["-c", program]);
    let plain = job.plain();
    let run = job.managed(Bytes::mib(32));
    println!("{}", run.stderr);
    run.assert_same(&plain);
    assert_eq!(run.complaints(&["warning", "budget of 32 MiB", "names another run"]).len(), 1);
    assert_eq!(run.complaints(&["peak", "not managed", "names another run"]).len(), 1);
    assert_eq!(run.stats().count("unmanaged_processes"), 1);
}

#[test]
fn a_budget_above_the_limit_is_told_at_the_start() {
    let Some(job) = hold("1") else { return };
    let Some(group) = Limited::new(Bytes::mib(200)) else { return };
    let live = Live::start(&job.before(group.entering()), Some(Bytes::mib(300)));
    let run = live.finish(HANG);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let told = run.complaints(&["warning", "300 MiB", "200 MiB", "limit_in_bytes"]).len()
        + run.complaints(&["warning", "300 MiB", "200 MiB", "memory.max"]).len();
    assert_eq!(told, 1, "{}", run.stderr);
}

/// The program's limit holds for coldpress too: its tables still find room when the program has
/// used all of it.
#[test]
fn a_program_that_uses_up_its_limit_goes_on() {
    let Some(python) = require("python3") else { return };
    let program = "
held = []
try:
    while True: held.append(bytes([len(held) & 255]) * (1 << 20))
except MemoryError: pass
print(all(one[0] == one[-1] == at & 255 for at, one in enumerate(held)))";
    for limit in ["-d", "-v"] {
        let script = format!("ulimit {limit} 200000; exec \"$@\"");
        let job = Job::new("limited", "sh").args(["-c", &script, "sh"]).arg(&python);
        let job = job.args(["-c", program]);
        let plain = job.plain();
        let run = job.managed(Bytes::mib(64));
        println!("{run}\n{}", run.stderr);
        run.assert_same(&plain);
    }
}
