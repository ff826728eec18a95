//! Risk: docs/limits.md is untrue of what a user notices beside a program, or of a program that
//! meets a limit there: it says too little, or excuses what no longer holds.
//!
//! Each case shows one statement, and fails where the statement is no longer true: then the page
//! has to change with it. The tests of each subject show most other statements there.

#[path = "noticed/beside.rs"]
mod beside;
#[path = "noticed/idle.rs"]
mod idle;
#[path = "noticed/limits.rs"]
mod limits;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use coldpress_tests::harness::Job;
use coldpress_tests::machine::{self, fixture};

/// A python that every user may run; one in a home directory is not such a python.
const PYTHON: &str = "/usr/bin/python3";
/// Time limit for whatever must happen: longer, it hangs, on a busy machine.
const HANG: Duration = Duration::from_secs(120);

/// Makes a job of `script` of the fixtures; `None` with a printed line where there is no python.
fn python(name: &'static str, script: &str) -> Option<Job> {
    if !Path::new(PYTHON).exists() {
        machine::skip("no python3 that every user may run");
        return None;
    }
    Some(Job::new(name, PYTHON).arg(fixture(script)))
}

/// Waits until `find` returns something, and returns it.
fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(begun.elapsed() < HANG, "{what} did not happen");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the text of a process's file in /proc.
fn proc_text(process: u32, file: &str) -> String {
    let path: PathBuf = format!("/proc/{process}/{file}").into();
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
