//! Risk: a run inside another has two services move the same pages, or a budget of its own beside
//! the outer budget; or it refuses to run where the outer run is over.
//!
//! `hold.py` runs below two launchers. Its output must be that of a plain run, and there must be
//! one budget.

use std::time::Duration;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{self, Scratch, fixture, require};

const BUDGET: Bytes = Bytes::mib(48);
/// Time limit of a run: longer, it hangs.
const HANG: Duration = Duration::from_secs(120);

/// Adds `hold.py` on 64 MiB to the words of `job`.
fn hold(job: Job) -> Option<Job> {
    Some(job.arg(require("python3")?).arg(fixture("hold.py")).args(["private", "64", "3"]))
}

/// Whatever the inner run asks for, the outer run decides. Its library is there again where a
/// program has taken it out.
#[test]
fn an_inner_run_joins_the_outer_one() {
    let Some(plain) = hold(Job::new("plain", "env")).map(|job| job.plain()) else { return };
    let scratch = Scratch::new("nested");
    let stats = scratch.path("inner.json");
    for unset in [&[][..], &["-u", "LD_PRELOAD"]] {
        let outer = Job::new("nested", "env").args(unset.iter().copied());
        let inner = outer.arg(machine::coldpress()).args(["run", "--memory", "1G", "--stats"]);
        let Some(job) = hold(inner.arg(&stats).arg("--")) else { return };
        let run = job.managed(BUDGET);
        println!("{run}");
        run.assert_same(&plain);
        run.assert_stored();
        run.assert_within_budget();
        assert_eq!(run.stats().count("managed_processes"), 1);
        let told = run.complaints(&["48 MiB", "ignored: --memory, --stats"]);
        assert_eq!(told.len(), 1, "{}", run.stderr);
        assert!(!stats.exists(), "the inner run has kept a budget of its own");
    }
}

/// The program kills the outer launcher, and then runs another program.
#[test]
fn without_the_outer_launcher_it_is_a_run_of_its_own() {
    let Some(plain) = hold(Job::new("plain", "env")).map(|job| job.plain()) else { return };
    let scratch = Scratch::new("orphaned");
    let stats = scratch.path("inner.json");
    let script = "kill -KILL $PPID; while kill -0 $PPID; do sleep 0.05; done; exec \"$@\"";
    let job = Job::new("orphaned", "sh").args(["-c", script, "sh"]).arg(machine::coldpress());
    let job = job.args(["run", "--memory", "32M", "--stats"]).arg(&stats).arg("--");
    let Some(job) = hold(job) else { return };
    let live = Live::start(&job, Some(BUDGET));
    assert!(live.wait_output_end(HANG), "the inner run hangs");
    assert_eq!(live.output(), plain.stdout);
    let stats = std::fs::read_to_string(&stats).expect("the inner run has written its own");
    assert!(stats.contains("\"managed_processes\": 1,"), "{stats}");
    assert!(stats.contains("\"budget_bytes\": 33554432"), "{stats}");
}
