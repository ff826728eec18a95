//! One run of a case: in a folder of its own, with a time limit. Nothing of the run is left behind.
//!
//! The program of `make cases` is the reaper of what its runs leave in the background. So all
//! processes of a run are its descendants until they end, and it ends them by their numbers.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::machine::{self, Scratch};
use coldpress_tests::watch::{self, Measure, RATE_SHARES_HZ, Watch};
use serde_json::Value;

use crate::most;
use crate::table::Case;

/// Pause between two looks for the end of a run.
const LOOK: Duration = Duration::from_millis(20);
/// Rounds of ending what is left. A round finds what the processes started during the one before.
const ROUNDS_MAX: u32 = 500;

/// The folders of the programs and of their sources.
pub struct Places {
    pub coldpress: PathBuf,
    pub out: PathBuf,
    pub review: PathBuf,
    pub public: PathBuf,
}

/// The result of a run.
pub struct Ended {
    /// The exit status, 128 + signal for a run that a signal ended; `None` for a run that hung.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// The most that all processes below the launcher held.
    pub held: Bytes,
    /// Pages that coldpress compressed.
    pub stored: u64,
}

/// Runs `case`, under coldpress or plain.
pub fn run(case: &Case, places: &Places, is_managed: bool) -> Ended {
    let scratch = Scratch::new("case");
    let (stdout, stderr) = (scratch.path("stdout"), scratch.path("stderr"));
    let stats = scratch.path("stats.json");
    let run = if is_managed {
        let (launcher, stats) = (places.coldpress.display(), stats.display());
        format!("{launcher} run --memory {} --stats {stats} --", case.budget)
    } else {
        String::new()
    };
    let file = |path: &Path| File::create(path).expect("the scratch directory takes files");
    let mut command = Command::new("sh");
    command.args(["-c", &case.command]).current_dir(scratch.path("")).process_group(0);
    command.env("RUN", run).env("PY", "/usr/bin/python3").env("LC_ALL", "C.UTF-8");
    command.env("COLDPRESS", &places.coldpress).env("OUT", &places.out);
    command.env("REVIEW", &places.review).env("PUBLIC", &places.public);
    command.stdin(Stdio::null()).stdout(file(&stdout)).stderr(file(&stderr));
    let mut child = command.spawn().expect("there is a shell");
    let watch = Watch::start(child.id(), Measure::Shares, RATE_SHARES_HZ, Some(most(case)));
    let code = wait(&mut child, case.limit);
    let held = watch.stop().peak_below;
    end_what_is_left();
    drop(child.wait());
    let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into();
    let stored = fs::read(&stats).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let stored = stored.and_then(|stats: Value| stats["swap_out_pages"].as_u64()).unwrap_or(0);
    Ended { code, stdout: text(&stdout), stderr: text(&stderr), held, stored }
}

/// Waits for `child`, and returns its status; `None` when it does not end in time.
fn wait(child: &mut Child, limit: Duration) -> Option<i32> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        }
        sleep(LOOK);
    }
    None
}

/// Ends all processes that the run has left, wherever they are in its tree.
fn end_what_is_left() {
    for _ in 0..ROUNDS_MAX {
        let left = watch::descendants(std::process::id());
        if left.is_empty() {
            return;
        }
        machine::signal("KILL", &left);
        for process in left {
            let process = i32::try_from(process).unwrap_or(0);
            // SAFETY: nothing is written, and a process that has ended is not waited for again:
            // `Child` waits for the child of the run, and takes an error for its end.
            unsafe { libc::waitpid(process, std::ptr::null_mut(), libc::WNOHANG) };
        }
        sleep(LOOK);
    }
    for process in watch::descendants(std::process::id()) {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        eprintln!("cases: cannot be ended: {stat}");
    }
}

/// Makes this process the parent of descendants that lose theirs. Returns whether that worked.
pub fn adopt() -> bool {
    // SAFETY: sets a flag of this process, and passes no pointer.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0 }
}
