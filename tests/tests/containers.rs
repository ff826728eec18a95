//! Risk: in a container nothing is managed and no message says so, or `doctor` says otherwise than
//! a run does; or a run that must be managed goes on when it is not.
//!
//! The test builds containers from their parts (`coldpress_tests::container`). On top of a profile,
//! the test refuses calls that a managed program makes for coldpress, each in turn. No run may end
//! with status 0 and nothing managed. With `COLDPRESS_ALL=1` the test refuses each call under each
//! profile, else a few.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_sys::calls::{self, Call};
use coldpress_tests::container::{Containers, DOCKER, NOBODY, PODMAN, ROOT, Runtime};
use coldpress_tests::harness::{Job, Live, Run};
use coldpress_tests::machine::{self, require};
use coldpress_tests::{matrix, watch};

const BUDGET: Bytes = Bytes::mib(32);
/// Bytes that the program holds and checks.
const HELD: &str = "96M";
/// Time limit of a run: longer, it hangs.
const HANG: Duration = Duration::from_secs(120);
/// EPERM, the error by which calls are refused beside a profile.
const EPERM: i32 = 1;
const RUNTIMES: [Runtime; 2] = [DOCKER, PODMAN];
const USERS: [u32; 2] = [NOBODY, ROOT];

/// The programs, in a place where every user may run them.
struct Ground(Containers);

/// Whether the test refuses every call under every profile.
static ALL: LazyLock<bool> = LazyLock::new(matrix::is_all);

impl Ground {
    /// `None` with a printed line where the test cannot run.
    fn new() -> Option<Self> {
        let containers = Containers::prepare(env!("CARGO_BIN_EXE_filtered"))?;
        containers.add("dropper", Path::new(env!("CARGO_BIN_EXE_dropper")));
        Some(Self(containers))
    }

    fn launcher(&self) -> PathBuf {
        self.0.launcher()
    }

    /// Makes a job of the program, which checks what it holds.
    fn job(&self) -> Job {
        let job = Job::new("dropper", self.0.path("dropper"));
        job.args(["--bytes", HELD, "--touches", "2000"]).launcher(self.launcher())
    }

    /// Runs the program in `container`, where it must be managed.
    fn required(&self, container: Vec<OsString>) -> Run {
        self.job().before(container).options(["--require-managed"]).managed(BUDGET)
    }

    /// Runs doctor in `container`. Returns whether all was well, and its output.
    fn doctor(&self, container: &[OsString]) -> (bool, String) {
        let mut command = Command::new(&container[0]);
        command.args(&container[1..]).arg(self.launcher()).arg("doctor");
        let output: Output = command.output().expect("unshare is there");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), text + &String::from_utf8_lossy(&output.stderr))
    }
}

/// Returns each runtime with each user, or two of these pairs.
fn containers() -> impl Iterator<Item = (Runtime, u32)> {
    let all = RUNTIMES.into_iter().flat_map(|runtime| USERS.map(|user| (runtime, user)));
    // Podman with the user nobody, and Docker with root.
    all.enumerate().filter(|(index, _)| *ALL || matches!(index, 1 | 2)).map(|(_, one)| one)
}

#[test]
fn under_the_default_profiles_a_program_is_managed_and_doctor_says_so() {
    let Some(ground) = Ground::new() else { return };
    for (runtime, user) in containers() {
        let container = || ground.0.container(runtime, user, &[]);
        let (is_ok, told) = ground.doctor(&container());
        assert!(is_ok && told.contains("ok    trial:"), "{runtime:?}, user {user}: {told}");
        assert!(told.contains("seccomp filter"), "{runtime:?} is not in force: {told}");
        let run = ground.required(container());
        println!("{runtime:?}, user {user}: {run}");
        assert_eq!((run.code, &run.stdout[..]), (0, &b"dropper: OK\n"[..]), "{}", run.stderr);
        run.assert_stored();
        run.assert_within_budget();
        assert_eq!(run.stats().count("managed_processes"), 1);
        let job = Job::new("true", "true").launcher(ground.launcher()).before(container());
        let run = job.options(["--require-managed"]).managed(BUDGET);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
}

#[test]
fn without_the_device_doctor_and_run_name_the_line() {
    let Some(ground) = Ground::new() else { return };
    for runtime in RUNTIMES {
        let mut container = ground.0.container(runtime, NOBODY, &[]);
        // The words behind the shell that gives the device.
        let container = container.split_off(6);
        let (is_ok, told) = ground.doctor(&container);
        if is_ok {
            return println!("skipped: userfaultfd is open to everyone here");
        }
        assert!(told.contains("FAIL  access:"), "{runtime:?}: {told}");
        let run = ground.required(container);
        assert_eq!((run.code, run.stdout.len()), (125, 0), "{runtime:?}: {}", run.stderr);
        assert_eq!(run.complaints(&["userfaultfd"]).len(), 1, "{}", run.stderr);
    }
}

/// Asserts that a run that must be managed is managed, or ends with 125 and the name of the refused
/// call; and that doctor says the same.
fn check_refused(ground: &Ground, runtime: Runtime, user: u32, call: &Call) {
    let container = || ground.0.container(runtime, user, &[call]);
    let what = format!("{} refused by {}, user {user}", call.name, runtime.profile);
    let run = ground.required(container());
    let (is_ok, told) = ground.doctor(&container());
    println!("{what}: status {}, doctor says {is_ok}", run.code);
    assert_eq!(run.code == 0, is_ok, "{what}: {}; {told}", run.stderr);
    if run.code == 0 {
        assert_eq!(run.stdout, b"dropper: OK\n", "{what}");
        assert!(run.stats().count("managed_processes") > 0, "{what}: {}", run.stderr);
        run.assert_stored();
        run.assert_within_budget();
    }
    assert!(run.code != 0 || !call.is_needed, "{what}: it is not needed, it seems");
    if run.code == 125 && call.is_needed {
        // Without `clone` there is no trial, and without `ioctl` no userfaultfd.
        let reasons = [call.name, "no child can be started", "userfaultfd"];
        let is_named = reasons.iter().any(|reason| !run.complaints(&[reason]).is_empty());
        assert!(is_named, "{what}: {}", run.stderr);
    }
}

#[test]
fn a_call_that_is_refused_leaves_nothing_unmanaged_unsaid() {
    let Some(ground) = Ground::new() else { return };
    let few = ["close_range", "clock_gettime", "epoll_create1", "userfaultfd", "io_uring_setup"];
    for call in calls::ALL.iter().filter(|call| *ALL || few.contains(&call.name)) {
        if call.name == "exit" {
            // Without `exit` no thread ends, neither of the launcher nor of the program.
            continue;
        }
        for (runtime, user) in containers().take(if *ALL { 4 } else { 1 }) {
            check_refused(&ground, runtime, user, call);
        }
    }
}

/// The filter does not refuse the call but kills the caller.
#[test]
fn a_call_that_kills_is_named() {
    let Some(ground) = Ground::new() else { return };
    let number = calls::ALL.iter().find(|call| call.name == "close_range").expect("it is used");
    let mut words: Vec<OsString> = vec![ground.0.path("filtered").into()];
    words.extend(["--kill".into(), number.number.to_string().into()]);
    let run = ground.required(words);
    assert_eq!((run.code, run.stdout.len()), (125, 0), "{}", run.stderr);
    assert_eq!(run.complaints(&["close_range", "killed"]).len(), 1, "{}", run.stderr);
}

/// The user asked only for a budget. The run is short, but longer than 50 ms, the time between two
/// looks of the launcher at its processes.
#[test]
fn a_run_that_manages_nothing_says_so_although_it_is_short() {
    let Some(ground) = Ground::new() else { return };
    let refused = calls::ALL.iter().find(|call| call.name == "close_range").expect("it is used");
    let container = ground.0.container(RUNTIMES[0], 0, &[refused]);
    let job = ground.job().args(["--touches", "3000000"]);
    let run = job.before(container).managed(BUDGET);
    println!("{run}");
    assert_eq!((run.code, &run.stdout[..]), (0, &b"dropper: OK\n"[..]), "{}", run.stderr);
    let told = run.complaints(&["peak", "managed"]);
    assert_eq!(told.len(), 1, "{}", run.stderr);
    assert!(!told[0].contains("dropped its rights"), "{}", told[0]);
    assert_eq!(run.stats().count("managed_processes"), 0);
}

/// Only the program is filtered, so no trial can show it. The program lasts as long as the one of
/// the test before.
#[test]
fn a_process_that_gives_up_says_why_at_once_and_at_the_end() {
    let Some(ground) = Ground::new() else { return };
    let refused = calls::ALL.iter().find(|call| call.name == "ioctl").expect("it is used");
    let job = |touches: &str| {
        let job = Job::new("filtered", ground.0.path("filtered")).arg("--refuse");
        let job = job.arg(format!("{}={EPERM}", refused.number)).arg(ground.0.path("dropper"));
        job.args(["--bytes", HELD, "--touches", touches]).launcher(ground.launcher())
    };
    let run = job("3000000").managed(BUDGET);
    assert_eq!((run.code, &run.stdout[..]), (0, &b"dropper: OK\n"[..]), "{}", run.stderr);
    let reason = "ioctl(USERFAULTFD_IOC_NEW): EPERM";
    assert_eq!(run.complaints(&["warning: process", "is not managed", reason]).len(), 1);
    assert_eq!(run.complaints(&["peak", "not managed: process", reason]).len(), 1);
    assert_eq!(run.stats().count("managed_processes"), 0);
    let run = job("100000000").options(["--require-managed"]).managed(BUDGET);
    assert_eq!((run.code, run.stdout.len()), (125, 0), "{}", run.stderr);
    assert_eq!(run.complaints(&["was to be managed", reason]).len(), 1, "{}", run.stderr);
}

/// All calls of a service at work, as strace sees them, are in the list that coldpress tries.
#[test]
fn the_list_of_calls_is_complete() {
    let Some(ground) = Ground::new() else { return };
    let Some(strace) = require("strace") else { return };
    let trace = ground.0.path("trace");
    let job = Job::new("busy", ground.0.path("dropper")).args(["--bytes", HELD]);
    let job = job.args(["--touches", "100000000"]).launcher(ground.launcher());
    let live = Live::start(&job, Some(BUDGET));
    let begun = Instant::now();
    let service = loop {
        if let Some((_, service)) = watch::find_service(live.root()) {
            break service;
        }
        assert!(begun.elapsed() < HANG, "no service was found");
    };
    let mut words = vec!["2".into(), strace.into_os_string(), "-o".into()];
    words.extend([trace.clone().into_os_string(), "-p".into(), service.to_string().into()]);
    let traced = Command::new("timeout").args(words).stderr(Stdio::null()).status();
    assert!(traced.is_ok(), "{traced:?}");
    drop(live);
    let text = fs::read_to_string(&trace).expect("strace wrote it");
    let made: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split_once('('))
        .map(|(name, _)| name)
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
        .collect();
    // Whether the service ever waits depends on which side is faster under strace.
    assert!(made.contains("ioctl"), "no service seen: {made:?}");
    let known: BTreeSet<&str> = calls::ALL.iter().map(|call| call.name).collect();
    let unknown: Vec<_> = made.difference(&known).collect();
    assert!(unknown.is_empty(), "not in the list of coldpress_sys::calls: {unknown:?}");
}

#[test]
fn a_process_that_is_not_managed_ends_a_run_that_must_be_and_no_other() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.0.path("before");
    let after = ground.0.path("after");
    // One process was a child of the launcher before the program began; in the run, another ignores
    // the request to end.
    let script = r#"sleep 120 > /dev/null 2>&1 & echo $! > "$0"; exec "$@""#;
    let holder = r#"trap "" TERM; echo $$ > "$0"; env -i COLDPRESS_SOCKET=none "$@" & wait
        sleep 60; echo done"#;
    let mut job = Job::new("stubborn", "sh").args(["-c", holder]).arg(&after);
    job = job.arg(ground.0.path("dropper")).args(["--bytes", "64M", "--touches", "100000000"]);
    job = job.before(["sh".into(), "-c".into(), script.into(), before.clone().into_os_string()]);
    let run = Live::start(&job.options(["--require-managed"]), Some(BUDGET)).finish(HANG);
    assert_eq!((run.code, run.stdout.len()), (125, 0), "{}", run.stderr);
    assert_eq!(run.complaints(&["was to be managed", "names another run"]).len(), 1);
    let is_there = |file: &PathBuf| {
        let process = fs::read_to_string(file).expect("it was written");
        let process: u32 = process.trim().parse().expect("a number");
        (process, fs::read_to_string(format!("/proc/{process}/stat")).is_ok())
    };
    let ((bystander, stays), (_, goes)) = (is_there(&before), is_there(&after));
    machine::signal("KILL", &[bystander]);
    assert!(stays, "a process that is none of the run's was ended");
    assert!(!goes, "the program lives on");
}

#[test]
fn to_require_and_to_allow_the_contrary_is_refused() {
    let run = Job::new("true", "true").options(["--require-managed", "--allow-unmanaged"]);
    let run = run.managed(BUDGET);
    assert_eq!(run.code, 125);
    assert_eq!(run.complaints(&["--require-managed", "--allow-unmanaged"]).len(), 1);
}
