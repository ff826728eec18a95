//! Risk: a program of an ordinary user is not managed, or its user is not shown what to do.
//!
//! A full userfaultfd needs a privilege that ordinary users lack; the launcher brokers it. There
//! are three ways. Without any access the user gets the doctor's line and status 125. A launcher
//! with access serves a program that then gives up its privileges. Where the kernel's setting opens
//! userfaultfd to all, an ordinary user's launcher works too.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Fraction, Job, check};
use coldpress_tests::machine::{self, Scratch, Setting, fixture, require};

/// The kernel's setting that opens userfaultfd to everyone.
const OPEN_TO_ALL: &str = "/proc/sys/vm/unprivileged_userfaultfd";
/// The device that opens userfaultfd by its permissions.
const DEVICE: &str = "/dev/userfaultfd";
/// A python that every user may run; one in a home directory is not such a python.
const PYTHON: &str = "/usr/bin/python3";

/// Lock of the setting: it is the whole machine's, so one test at a time reads or changes it.
static SETTING: Mutex<()> = Mutex::new(());

/// The files that the user nobody needs, in a place that this user can read.
struct Ground {
    scratch: Scratch,
    launcher: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Ground {
    /// Copies the files; `None` with a printed line where the test cannot run.
    fn new() -> Option<Self> {
        if !machine::is_root() {
            return None;
        }
        require("setpriv")?;
        if !Path::new(PYTHON).exists() {
            machine::skip("no python3 that every user may run");
            return None;
        }
        let alone = SETTING.lock().unwrap_or_else(PoisonError::into_inner);
        let scratch = Scratch::new("nobody");
        let launcher = scratch.path("coldpress");
        fs::copy(machine::coldpress(), &launcher).expect("the scratch directory takes files");
        fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).expect("it is ours");
        fs::copy(fixture("hold.py"), scratch.path("hold.py")).expect("as above");
        Some(Self { scratch, launcher, _alone: alone })
    }

    /// Returns the program, its script and arguments.
    fn words(&self) -> [OsString; 4] {
        let script = self.scratch.path("hold.py");
        [PYTHON.into(), script.into(), "private".into(), "96".into()]
    }
}

/// Returns words that run the command after them as nobody.
fn as_nobody() -> impl Iterator<Item = OsString> {
    let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    words.into_iter().map(OsString::from)
}

/// Returns whether an ordinary user has access on this machine as it is.
fn is_open() -> bool {
    let setting = fs::read_to_string(OPEN_TO_ALL).is_ok_and(|text| text.trim() != "0");
    let device = fs::metadata(DEVICE).is_ok_and(|meta| meta.permissions().mode() & 0o006 != 0);
    setting || device
}

#[test]
fn without_access_run_refuses_with_the_line_of_doctor() {
    let Some(ground) = Ground::new() else { return };
    if is_open() {
        return println!("skipped: userfaultfd is open to everyone here");
    }
    let [program, rest @ ..] = ground.words();
    let job = Job::new("nobody", program).args(rest).before(as_nobody());
    let run = job.launcher(&ground.launcher).managed(Bytes::mib(64));
    assert_eq!(run.code, 125, "{}", run.stderr);
    assert!(run.stdout.is_empty(), "the program ran");

    let words: Vec<_> = as_nobody().collect();
    let mut doctor = Command::new(&words[0]);
    doctor.args(&words[1..]).arg(&ground.launcher).arg("doctor");
    let doctor = doctor.output().unwrap();
    assert_eq!(doctor.status.code(), Some(1), "{doctor:?}");
    let advice = String::from_utf8_lossy(&doctor.stdout);
    let line = run.complaints(&["userfaultfd"]);
    let parts = line.iter().flat_map(|line| line.split("; "));
    let shared = parts.filter(|part| part.contains("userfaultfd") && advice.contains(part.trim()));
    assert!(shared.count() > 0, "run says {:?}, doctor says {advice}", run.stderr);
}

#[test]
fn a_launcher_with_access_serves_a_program_without() {
    let Some(ground) = Ground::new() else { return };
    let job = Job::new("root, then nobody", "setpriv").args(as_nobody().skip(1));
    let job = job.args(ground.words());
    check(&job, &[Fraction::Half, Fraction::Quarter]);
    // The helper has root's rights, and a desk says what the helper reads.
    let run = job.managed(Bytes::mib(48));
    run.assert_stored();
    assert_eq!(run.stats().at("zswap", "stored_by_helper"), 0, "the helper works for another user");
}

#[test]
fn the_kernel_setting_is_enough() {
    let Some(ground) = Ground::new() else { return };
    let Some(_setting) = Setting::set(OPEN_TO_ALL, "1") else {
        return println!("skipped: {OPEN_TO_ALL} cannot be set here");
    };
    let [program, rest @ ..] = ground.words();
    let job = Job::new("nobody, kernel setting", program).args(rest).before(as_nobody());
    check(&job.launcher(&ground.launcher), &[Fraction::Half, Fraction::Quarter]);
}
