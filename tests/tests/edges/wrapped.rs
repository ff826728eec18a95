//! Tools that start a program: around `coldpress run`, and inside it.

use std::fs;
use std::path::Path;
use std::process::Command;

use coldpress_tests::harness::Job;
use coldpress_tests::machine::{is_root, require};
use coldpress_tests::matrix::{self, Case, Lane, case};

use super::{Ground, HANG, PYTHON, compare, compare_managed};

/// Words of bubblewrap that keep the machine as it is.
const BWRAP: &[&str] =
    &["bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"];
const BWRAP_ALL: &[&str] =
    &["bwrap", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all"];
const NEW_USER: &[&str] = &["unshare", "--user", "--map-root-user"];
const NEW_PID: &[&str] = &["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
const NEW_MOUNT: &[&str] = &["unshare", "--mount"];
const NEW_NET: &[&str] = &["unshare", "--net"];
const STRACE: &[&str] = &["strace", "-f", "-o", "/dev/null"];
const VALGRIND: &[&str] = &["valgrind", "--quiet", "--error-exitcode=9"];
const FIREJAIL: &[&str] = &["firejail", "--quiet", "--noprofile"];
const RUNUSER: &[&str] = &["runuser", "-u", "nobody", "--"];
const TINI: &[&str] = &["tini", "-s", "--"];
const DUMB_INIT: &[&str] = &["dumb-init", "--"];

/// A script that holds and adds up 56 MiB.
const STRINGS: &str = "words = [str(number) * 100 for number in range(90_000)]
print(sum(map(len, words)), words[-1][:9])";

/// A script whose children read all of that memory.
const FORKS: &str = "import os
for number in range(3):
    child = os.fork()
    if child == 0:
        os._exit(sum(map(len, words)) != sum(len(str(number)) * 100 for number in range(90_000)))
    assert os.waitpid(child, 0)[1] == 0";

/// Makes a case of `coldpress run -- TOOL PROGRAM`.
fn inside(name: &'static str, lane: Lane, words: &'static [&'static str]) -> Case<'static> {
    case(name, lane, || {
        require(words[0])?;
        let ground = Ground::new();
        compare_managed(&ground.hold("inside", words)?, HANG)
    })
}

/// Makes a case of `TOOL coldpress run -- PROGRAM`.
fn around(name: &'static str, lane: Lane, words: &'static [&'static str]) -> Case<'static> {
    case(name, lane, || {
        require(words[0])?;
        let ground = Ground::new();
        let job = ground.hold("around", &[])?.before(words.iter().copied());
        compare_managed(&job, HANG)
    })
}

#[test]
fn name_spaces() {
    if !is_root() {
        return;
    }
    let cases = [
        inside("unshare user, inside", Lane::Short, NEW_USER),
        around("unshare user, around", Lane::Long, NEW_USER),
        inside("unshare pid, inside", Lane::Long, NEW_PID),
        around("unshare pid, around", Lane::Long, NEW_PID),
        inside("unshare mount, inside", Lane::Long, NEW_MOUNT),
        around("unshare mount, around", Lane::Long, NEW_MOUNT),
        inside("unshare net, inside", Lane::Long, NEW_NET),
        around("unshare net, around", Lane::Long, NEW_NET),
        inside("chroot to /", Lane::Short, &["chroot", "/"]),
        case("chroot to a tree of its own", Lane::Long, other_root),
    ];
    matrix::run(&cases);
}

#[test]
fn sandboxes() {
    let cases = [
        inside("bubblewrap, inside", Lane::Short, BWRAP),
        around("bubblewrap, around", Lane::Long, BWRAP),
        inside("bubblewrap --unshare-all, inside", Lane::Long, BWRAP_ALL),
        case("bubblewrap --unshare-all without the device, around", Lane::Long, no_device),
        inside("firejail --noprofile, inside", Lane::Long, FIREJAIL),
        around("firejail --noprofile, around", Lane::Long, FIREJAIL),
        case("firejail with its default profile, inside", Lane::Long, own_profile),
    ];
    matrix::run(&cases);
}

#[test]
fn tracers() {
    let cases = [
        inside("strace -f, inside", Lane::Short, STRACE),
        around("strace -f, around", Lane::Long, STRACE),
        case("valgrind, inside", Lane::Long, valgrind),
        case("gdb, inside, of a program that forks", Lane::Short, gdb),
    ];
    matrix::run(&cases);
}

#[test]
fn other_users() {
    if !is_root() {
        return;
    }
    let cases =
        [inside("runuser, inside", Lane::Short, RUNUSER), case("su, inside", Lane::Long, su)];
    matrix::run(&cases);
}

#[test]
fn inits() {
    let cases = [
        around("tini, around", Lane::Short, TINI),
        inside("tini, inside", Lane::Long, TINI),
        around("dumb-init, around", Lane::Long, DUMB_INIT),
        inside("dumb-init, inside", Lane::Long, DUMB_INIT),
    ];
    matrix::run(&cases);
}

/// Runs a program in a root without /proc: it runs unmanaged, and that is reported.
fn other_root() -> Option<()> {
    let ground = Ground::new();
    let root = ground.path("root");
    let output = Command::new("ldd").arg(ground.path("edge")).output().ok()?;
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let libraries = words.split_whitespace().filter(|word| word.starts_with('/'));
    for library in libraries {
        let to = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(to.parent()?).expect("the scratch directory takes folders");
        fs::copy(library, to).expect("as above");
    }
    fs::copy(ground.path("edge"), root.join("edge")).expect("as above");
    let job = Job::new("another root", "chroot").arg(&root).args(["/edge", "hold"]);
    is_told(&job)
}

fn own_profile() -> Option<()> {
    require("firejail")?;
    // The program sees nothing of /tmp, and lasts longer than the time between two looks of the
    // launcher.
    let strings = format!("{STRINGS}\nimport time; time.sleep(0.3)");
    let job = Job::new("firejail", "firejail").args(["--quiet", PYTHON, "-c", &strings]);
    is_told(&job)
}

/// Checks that the program runs as it does plain, and is managed or reported as not managed.
fn is_told(job: &Job) -> Option<()> {
    let run = compare(job, HANG)?;
    let is_managed = run.stats().count("swap_out_pages") > 0;
    let is_told = !run.complaints(&["coldpress", "not managed"]).is_empty();
    assert!(is_managed || is_told, "neither managed nor told: {}", run.stderr);
    Some(())
}

/// Runs in a sandbox without /dev/userfaultfd: the run is refused with a message that says what
/// mends it, and nothing runs.
fn no_device() -> Option<()> {
    require(BWRAP_ALL[0])?;
    let ground = Ground::new();
    let job = ground.hold("around", &[])?.before(BWRAP_ALL.iter().copied());
    let run = job.managed(super::BUDGET);
    let is_managed = run.code == 0;
    let is_refused = run.code == 125 && !run.complaints(&["/dev/userfaultfd"]).is_empty();
    assert!(is_managed || is_refused, "{}: {}", run.code, run.stderr);
    Some(())
}

/// Runs a program in valgrind: its programs make the system calls that valgrind knows. valgrind
/// holds more than the program does, and is static, so the case compares only the output.
fn valgrind() -> Option<()> {
    require("valgrind")?;
    let ground = Ground::new();
    let job = Job::new("valgrind", VALGRIND[0]).args(VALGRIND[1..].iter().copied());
    // Even alone, python takes minutes in valgrind.
    compare(&job.arg(ground.path("edge")).arg("hold"), 2 * HANG).map(drop)
}

/// Checks that a fork raises no signal of its own, because gdb stops at a signal that a program
/// gets. Where gdb stops, it finds the caller.
fn gdb() -> Option<()> {
    require("gdb")?;
    let steps = ["catch fork", "run", "backtrace", "delete", "continue"];
    let steps = steps.into_iter().flat_map(|step| ["-ex", step]);
    let forks = format!("{STRINGS}\n{FORKS}");
    let words = ["-nx", "-batch", "-return-child-result"].into_iter().chain(steps);
    let job = Job::new("gdb", "gdb").args(words).args(["--args", PYTHON, "-c", &forks]);
    let run = job.managed(super::BUDGET);
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(told.contains("exited normally]") && !told.contains("SIG"), "{told}");
    assert!(told.contains("[Detaching after fork from child"), "it has forked: {told}");
    // `fork` has other names where its debugging symbols are installed.
    let has_frame = |name| told.lines().any(|line| line.starts_with('#') && line.contains(name));
    assert!(has_frame("fork (") && has_frame("main ("), "who has called is not found: {told}");
    run.assert_stored();
    Some(())
}

fn su() -> Option<()> {
    require("su")?;
    let ground = Ground::new();
    assert!(Path::new("/bin/sh").exists());
    let words = ["su", "nobody", "-s", "/bin/sh", "-c", "exec \"$0\" \"$@\"", "--"];
    compare_managed(&ground.hold("su", &words)?, HANG)
}
