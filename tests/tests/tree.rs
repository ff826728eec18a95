//! Risk: the memory of a killed process is never given out again; or a tree with more processes
//! than the launcher has descriptors for stops, or keeps the launcher busy.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{self, Scratch, fixture, require};

/// Time limit of a run: longer, it hangs.
const HANG: Duration = Duration::from_secs(120);
const BUDGET: Bytes = Bytes::mib(48);

/// Returns the figure `name` of a run.
fn get(live: &Live, name: &str) -> u64 {
    let root = live.root().to_string();
    let output = Command::new(machine::coldpress()).args(["ctl", &root, "get", name]).output();
    let output = output.expect("the command is built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

/// Four processes at a time hold twice the budget. They are killed while they start, fill memory,
/// learn the budget, or have most of their pages away. They rest now and then, because some
/// versions of Linux, 6.18 among them, let a group of programs that wake each other thousands of
/// times a second keep all processors. Then the kernel's own threads, for which the end of a
/// process waits, hardly run (<https://lkml.iu.edu/hypermail/linux/kernel/2602.2/04151.html>).
#[test]
fn processes_killed_at_any_point_leave_nothing() {
    let Some(python) = require("python3") else { return };
    let scratch = Scratch::new("killed");
    let end = scratch.path("end");
    let job = Job::new("killed", python).arg(fixture("killed.py")).arg("2").arg(&end);
    let job = job.arg(fixture("hold.py")).args(["private", "24"]).arg(scratch.path("never"));
    let job = job.arg("rest");
    let live = Live::start(&job, Some(BUDGET));
    live.wait_for_output("killed", HANG);
    // Only the killing process is left, which may be managed: it holds less than those that hold
    // memory.
    let begun = Instant::now();
    while get(&live, "used_bytes") > 16 << 20 || get(&live, "processes_not_thawed") > 1 {
        assert!(begun.elapsed() < HANG, "{} bytes are still used", get(&live, "used_bytes"));
        thread::sleep(Duration::from_millis(50));
    }
    scratch.write("end", b"");
    let run = live.finish(HANG);
    println!("{run}: {}", String::from_utf8_lossy(&run.stdout).trim());
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.assert_stored();
    assert!(run.stats().count("managed_processes") >= 4, "{}", run.stderr);
    assert_eq!(run.stdout, b"killed 16\n");
}

/// Returns the ticks of 10 ms that a process has run.
fn ticks(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let fields: Vec<_> = stat.rsplit_once(')').expect("proc(5)").1.split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().expect("proc(5)")).sum()
}

#[test]
fn a_launcher_out_of_descriptors_waits_and_all_programs_go_on() {
    let Some(python) = require("python3") else { return };
    // Each process has more memory than makes it join, and writes its line at once.
    let program = "import os, time; held = bytearray(b'x') * (4 << 20); time.sleep(3)\n\
                   os.write(1, b'held\\n')";
    let script = r#"for n in 1 2 3 4 5 6 7 8 9 10 11 12; do "$@" & done; wait"#;
    let job = Job::new("many", "sh").args(["-c", script, "sh"]).arg(python).args(["-c", program]);
    let limit = ["sh", "-c", "ulimit -n 20; exec \"$@\"", "sh"];
    let live = Live::start(&job.before(limit), Some(Bytes::mib(512)));
    live.wait_for_output("held\n", HANG);
    let ran = ticks(live.root());
    let run = live.finish(HANG);
    assert_eq!((run.code, run.stdout.as_slice()), (0, "held\n".repeat(12).as_bytes()));
    let joined = run.stats().count("processes");
    println!("{joined} processes joined; the launcher ran for {ran} ticks");
    assert!((1..12).contains(&joined), "{joined} of 12: the limit was none");
    // If the kernel reported again and again a connection that the launcher cannot take, the
    // launcher would run all of the three seconds.
    assert!(ran < 100, "the launcher ran for {ran} ticks of 10 ms");
}
