//! Risk: a program that cannot be managed hangs, or computes something else, or passes its budget
//! and its user never learns why.
//!
//! The tests refuse in turn what the library asks the kernel for while it sets up: descriptors,
//! address space, calls, files of /proc. Whatever is refused, the program must end as it does
//! alone. It must be managed without the refused thing, or be reported with a reason.

use std::fs;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Run};
use coldpress_tests::machine::{self, Scratch};
use coldpress_tests::matrix;

const BUDGET: Bytes = Bytes::mib(32);
/// The most runs of a test at a time.
const AT_A_TIME: usize = 5;
const GROWER: &str = env!("CARGO_BIN_EXE_grower");

/// Runs `job` within the budget; it must end as the program does alone. Returns the run, and
/// whether the program was managed.
fn check(job: &Job) -> (Run, bool) {
    let run = job.managed(BUDGET);
    println!("{run}; {}", run.stderr.trim());
    let ended = (run.code, String::from_utf8_lossy(&run.stdout));
    assert_eq!(ended, (0, "wrong words: 0\n".into()), "{}", run.stderr);
    let is_managed = run.stats().count("swap_out_pages") > 0;
    let why = ["not managed:", "is not managed: "].map(|words| run.complaints(&[words]).len());
    let is_told = why.iter().sum::<usize>() > 0;
    assert!(is_managed || is_told, "nobody says why it is not managed; {}", run.stderr);
    (run, is_managed)
}

/// Returns the step through a list: `make test` tries one item in `count`, and `make edges` all.
fn every(count: usize) -> usize {
    if matrix::is_all() { 1 } else { count }
}

/// Does `one` with each of `items`, a few at a time: the programs mostly wait.
fn each<T: Send>(items: impl Iterator<Item = T>, one: impl Fn(T) + Sync) {
    let items: Vec<T> = items.collect();
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        std::thread::scope(|scope| {
            items.by_ref().take(AT_A_TIME).for_each(|item| {
                scope.spawn(|| one(item));
            });
        });
    }
}

/// The program runs alone.
#[test]
fn the_program_is_right_alone() {
    assert_eq!(Job::new("alone", GROWER).plain().stdout, b"wrong words: 0\n");
}

/// Descriptors run out at every step in turn.
#[test]
fn too_few_descriptors_at_any_step_leave_the_program_whole() {
    let mut managed = [false; 20];
    each(managed.iter_mut().enumerate().skip(4).step_by(every(5)), |(limit, is_managed)| {
        let script = format!("ulimit -n {limit}; exec {GROWER}");
        *is_managed = check(&Job::new("ulimit -n", "sh").args(["-c", &script])).1;
    });
    println!("{managed:?}");
    // Thus the test saw both sides of the limit.
    assert!(!managed[4] && managed[19], "{managed:?}");
}

/// Address space runs out at several steps.
#[test]
fn too_little_address_space_leaves_the_program_whole() {
    each([80, 90, 100, 130, 160, 200, 300].into_iter().step_by(every(4)), |mebibytes| {
        let script = format!("ulimit -v {}; exec {GROWER}", mebibytes << 10);
        let (run, is_managed) = check(&Job::new("ulimit -v", "sh").args(["-c", &script]));
        match mebibytes {
            80 => {
                assert!(!is_managed, "there is no room for its pool");
                let why = ["is not managed: no room for", "raise its ulimit -v by"];
                assert_eq!(run.complaints(&why).len(), 1, "{}", run.stderr);
            }
            300 => assert!(is_managed, "{}", run.stderr),
            _ => {}
        }
    });
}

/// The test refuses each call of the setup.
#[test]
fn a_refused_call_leaves_the_program_whole() {
    let calls = [
        "close_range",
        "connect",
        "epoll_create1",
        "epoll_ctl",
        "eventfd2",
        "getrandom",
        "io_uring_setup",
        "ioctl",
        "madvise",
        "prctl",
        "recvmsg",
        "sched_setaffinity",
        "sendmsg",
        "sendto",
        "setpriority",
        "socket",
        "timerfd_create",
        "timerfd_settime",
        "unshare",
        "userfaultfd",
    ]
    .into_iter()
    .step_by(every(4));
    each(calls, |call| {
        println!("without {call}:");
        check(&Job::new("without", env!("CARGO_BIN_EXE_without")).args([call, GROWER]));
    });
}

/// Agents that keep keys hide themselves, so that not even their own thread may read the files in
/// /proc about their memory.
#[test]
fn a_program_that_hides_itself_is_left_alone_and_told_of() {
    if !machine::is_root() || machine::require("setpriv").is_none() {
        return;
    }
    // Other users may not look into the folder of the build.
    let scratch = Scratch::new("hidden");
    let grower = scratch.path("grower");
    fs::copy(GROWER, &grower).expect("the scratch directory takes files");
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let job = Job::new("hidden", "setpriv").args(nobody).arg(grower).arg("hidden");
    let (run, is_managed) = check(&job);
    assert!(!is_managed, "who hides is not managed");
    let told = run.complaints(&["is not managed", "EACCES", "PR_SET_DUMPABLE"]);
    assert!(!told.is_empty(), "{}", run.stderr);
}
