//! Risk: a tool or a sandbox that works on a plain program does not work on a managed one, or ends
//! it, or makes it run unmanaged without a message.
//!
//! Each case runs a program behind or within a tool, plain and within a budget: output and status
//! must be the same, pages must have been stored, and the budget kept. Tools that attach to a
//! running program must answer as they do on a plain one, and leave it whole.
//!
//! `docs/compatibility.md` records the results. `make test` runs one case of each kind, `make
//! edges` all of them.

#[path = "edges/attached.rs"]
mod attached;
#[path = "edges/browser.rs"]
mod browser;
#[path = "edges/own.rs"]
mod own;
#[path = "edges/service.rs"]
mod service;
#[path = "edges/wrapped.rs"]
mod wrapped;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live, Run};
use coldpress_tests::machine::{self, Scratch, fixture};

/// The budget of the programs here; they hold more than twice as much.
const BUDGET: Bytes = Bytes::mib(24);
/// MiB that `hold.py` holds.
const HELD_MIB: &str = "56";
/// Time limit of a run: longer, it hangs. A plain run takes seconds.
const HANG: Duration = Duration::from_secs(60);
/// A python that every user may run; one in a home directory is not such a python.
const PYTHON: &str = "/usr/bin/python3";
/// The program `edge` of `src/bin`.
const EDGE: &str = env!("CARGO_BIN_EXE_edge");

/// The programs, in a place where every user can read them.
struct Ground {
    scratch: Scratch,
}

impl Ground {
    fn new() -> Self {
        let ground = Self { scratch: Scratch::new("edges") };
        ground.copy(&fixture("hold.py"));
        ground.copy(&fixture("system-service.txt"));
        ground.copy(&machine::coldpress());
        ground.copy(Path::new(EDGE));
        ground
    }

    fn copy(&self, file: &Path) {
        let name = file.file_name().expect("a file has a name");
        let name = if file == machine::coldpress() { "coldpress".as_ref() } else { name };
        let copy = self.scratch.path(name);
        fs::copy(file, &copy).expect("the scratch directory takes files");
        fs::set_permissions(copy, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("plain names").to_owned()
    }

    /// Makes a job of `hold.py` behind `words`; `None` where that python is missing.
    fn hold(&self, name: &'static str, words: &[&str]) -> Option<Job> {
        if !Path::new(PYTHON).exists() {
            machine::skip("no python3 that every user may run");
            return None;
        }
        let words: Vec<&str> = words.iter().copied().chain([PYTHON]).collect();
        let job = Job::new(name, words[0]).args(words[1..].iter().copied());
        let job = job.launcher(self.path("coldpress")).arg(self.path("hold.py"));
        Some(job.args(["private", HELD_MIB, "2"]))
    }
}

/// Runs `job` plain and within [`BUDGET`]. The runs must differ only in the memory they hold.
/// `None` where the plain run fails.
fn compare(job: &Job, limit: Duration) -> Option<Run> {
    let plain = Live::start(job, None).finish(limit);
    let is_forbidden = plain.stdout.starts_with(b"skip: ");
    if plain.code != 0 || is_forbidden {
        let said = String::from_utf8_lossy(&plain.stdout).into_owned() + &plain.stderr;
        println!("skipped: without coldpress it ends with {}: {said}", plain.code);
        return None;
    }
    let run = Live::start(job, Some(BUDGET)).finish(limit);
    println!("{run}");
    run.assert_same(&plain);
    Some(run)
}

/// Compares as [`compare`] does; the program must also have been managed.
fn compare_managed(job: &Job, limit: Duration) -> Option<()> {
    let run = compare(job, limit)?;
    run.assert_stored();
    run.assert_within_budget();
    Some(())
}
