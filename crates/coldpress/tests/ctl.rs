//! The risk: `coldpress ctl` turns the knobs of another run, or half of them, or lets in a user
//! without business there, or leaves a user with an error that does not help.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::net;
use serde_json::Value;

mod common;

use common::{COLDPRESS, NOBODY, can_manage, coldpress};

/// The script that runs while it is controlled: it prints its number, and ends with its input.
const WAITING: &str = "echo $$; read line; exit 7";

/// Runs `coldpress ctl PID` with `args`.
fn ctl(process: u32, args: &[&str]) -> Output {
    let process = process.to_string();
    coldpress(&[&["ctl", &process], args].concat()).output().expect("the command is built")
}

/// Returns the standard output of a `ctl` that must succeed, without a word on standard error.
fn told(process: u32, args: &[&str]) -> String {
    let output = ctl(process, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("names and numbers")
}

/// Asserts an exit status and one line of standard error with all of `parts`.
fn assert_fails(output: &Output, code: i32, parts: &[&str]) {
    common::assert_fails(output, code, parts);
    assert!(output.stdout.is_empty());
}

/// Returns the socket of the run that a process was started in.
fn socket_of(process: u32) -> PathBuf {
    let environment = fs::read(format!("/proc/{process}/environ")).expect("it is there");
    let socket = environment.split(|byte| *byte == 0).find_map(|variable| {
        Some(PathBuf::from(OsStr::from_bytes(variable.strip_prefix(b"COLDPRESS_SOCKET=")?)))
    });
    socket.expect("it is of a run")
}

/// A run that waits.
struct Waiting {
    launcher: Child,
    input: Option<ChildStdin>,
    program: u32,
}

impl Waiting {
    /// Starts `coldpress run` with `options` and a shell that runs `script`, which prints the
    /// number of the program first.
    fn start(options: &[&str], script: &str) -> Self {
        let words = [&["run", "-q", "-m", "64M"], options, &["--", "sh", "-c", script]].concat();
        let mut command = coldpress(&words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut launcher = command.spawn().expect("the command is built");
        let output = launcher.stdout.as_mut().expect("it is piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("the shell prints text");
        let program = line.trim().parse().expect("the shell's number");
        let input = launcher.stdin.take();
        Self { launcher, input, program }
    }

    fn launcher(&self) -> u32 {
        self.launcher.id()
    }

    /// Lets the program end. It must not have noticed anything.
    fn finish(mut self) {
        drop(self.input.take());
        assert_eq!(self.launcher.wait().expect("it is our child").code(), Some(7));
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The program ends with its input, and the launcher with the program.
        drop(self.input.take());
        let _ = self.launcher.wait();
    }
}

#[test]
fn knobs_are_seen_and_turned_by_either_number() {
    if !can_manage() {
        return;
    }
    let run = Waiting::start(&[], WAITING);
    for process in [run.launcher(), run.program] {
        let text = told(process, &["get"]);
        for name in ["codec", "max_pool_percent", "pool_pages", "stored_pages", "budget_bytes"] {
            assert_eq!(
                text.lines().filter(|line| line.starts_with(&format!("{name} "))).count(),
                1
            );
        }
    }
    assert_eq!(told(run.program, &["get", "codec"]), "wk\n");
    let turned = told(run.program, &["set", "codec=zstd:3", "max_pool_percent=30"]);
    assert_eq!(turned, "codec zstd:3\nmax_pool_percent 30\n");
    assert_eq!(told(run.launcher(), &["get", "codec"]), "zstd:3\n");
    assert_eq!(told(run.launcher(), &["get", "max_pool_percent", "--json"]), "30\n");
    let document: Value = serde_json::from_str(&told(run.program, &["--json", "get"])).unwrap();
    assert_eq!(document["knobs"]["codec"], "zstd:3");
    assert_eq!(document["zswap"]["reject_compress_poor"], 0);
    assert_eq!(document["held"]["outstanding_flushes"], 0);
    assert_eq!(document["budget_bytes"], 64 << 20);
    run.finish();
}

#[test]
fn a_wrong_setting_turns_nothing_and_says_what_is_possible() {
    if !can_manage() {
        return;
    }
    let run = Waiting::start(&[], WAITING);
    let before = told(run.program, &["get"]);
    for (setting, parts) in [
        ("max_pool_percent=91", &["max_pool_percent=91", "1 to 90", "nothing was changed"][..]),
        ("frob=1", &["\"frob\"", "max_pool_percent", "same_filled"]),
        ("codec=gzip", &["gzip", "wk, lz4, lzo"]),
        ("pool=zbud", &["zbud", "xcfmalloc, segment"]),
        ("codec", &["\"codec\"", "NAME=VALUE"]),
        ("", &["NAME=VALUE"]),
        ("writeback_limit=1", &["64 KiB", "none"]),
    ] {
        let output = ctl(run.program, &["set", "enabled=off", setting]);
        assert_fails(&output, 1, parts);
    }
    assert_fails(&ctl(run.program, &["get", "frob"]), 1, &["\"frob\"", "ctl PID get"]);
    let mut often = vec!["set"];
    often.extend(["max_pool_percent=90"; 300]);
    assert_fails(&ctl(run.program, &often), 1, &["6004 bytes", "4096", "once"]);
    let knobs = |text: &str| text.lines().take(13).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(knobs(&told(run.program, &["get"])), knobs(&before));
    run.finish();
}

/// Connections that say nothing must not keep others waiting: at half a second each, these would
/// take longer than `ctl` waits.
#[test]
fn silent_connections_hold_nobody_up() {
    if !can_manage() {
        return;
    }
    let run = Waiting::start(&[], WAITING);
    let path = CString::new(socket_of(run.program).into_os_string().into_vec()).expect("no zero");
    let silent: Vec<_> = (0..100).map(|_| net::connect(&path).expect("it accepts")).collect();
    assert!(told(run.program, &["get", "max_pool_percent"]).contains("50"));
    drop(silent);
    run.finish();
}

#[test]
fn what_is_no_run_is_named() {
    // The test itself is in no run, and the number below is above what Linux gives out.
    assert_fails(&ctl(std::process::id(), &["get"]), 1, &["is in no coldpress run", "pgrep"]);
    assert_fails(&ctl(5_000_000, &["get"]), 1, &["no process 5000000", "pgrep"]);
    let usage = coldpress(&["ctl", "x", "get"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
    for args in [&["ctl"][..], &["ctl", "1"], &["ctl", "1", "set"], &["ctl", "1", "frob"]] {
        assert_eq!(coldpress(args).output().unwrap().status.code(), Some(2), "{args:?}");
    }
    let help = coldpress(&["help", "ctl"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for part in ["max_pool_percent (1 to 90; default 50)", "Examples:", "coldpress ctl 4711 get"] {
        assert!(help.contains(part), "{part:?} is not in: {help}");
    }
}

/// Waits until `is_so` returns true.
fn until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not come true");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_a_program_leaves_in_the_background_has_its_run_until_it_ends() {
    if !can_manage() {
        return;
    }
    // The output must end with the launcher, or this would wait for the keeper.
    let output = coldpress(&["run", "-q", "-m", "64M", "--", "sh", "-c"])
        .arg("sleep 20 >&- 2>&- & echo $!")
        .output()
        .unwrap();
    let orphan: u32 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    assert_eq!(told(orphan, &["get", "budget_bytes"]), format!("{}\n", 64 << 20));
    let directory = socket_of(orphan).parent().expect("it is in a directory").to_owned();
    let stat = fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap();
    let keeper: u32 = stat.split(' ').nth(3).expect("a parent").parse().expect("a number");
    let name = || fs::read_to_string(format!("/proc/{keeper}/comm")).unwrap_or_default();
    assert_eq!(name(), "coldpress-keep\n");
    Command::new("kill").arg(orphan.to_string()).status().unwrap();
    until(|| !directory.exists() && name() != "coldpress-keep\n");
}

#[test]
fn a_run_within_a_run_is_the_outer_one() {
    if !can_manage() {
        return;
    }
    let inner = format!("exec {COLDPRESS} run -q -m 32M --set codec=lzo -- sh -c '{WAITING}'");
    let run = Waiting::start(&[], &inner);
    told(run.launcher(), &["set", "codec=zstd:5"]);
    assert_eq!(told(run.program, &["get", "codec"]), "zstd:5\n");
    assert_eq!(told(run.program, &["get", "budget_bytes"]), format!("{}\n", 64 << 20));
    run.finish();
}

#[test]
fn knobs_can_be_set_at_the_start_and_are_in_the_statistics() {
    if !can_manage() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let stats = directory.path().join("stats.json");
    let path = stats.to_str().expect("temporary directories have plain names");
    let settings = ["--set", "codec=lzo,writeback=off", "--stats", path];
    let options = [&["--max-pool-percent", "40", "--pool", "xvmalloc"], &settings[..]].concat();
    let run = Waiting::start(&options, WAITING);
    let expected =
        [("codec", "lzo"), ("writeback", "off"), ("max_pool_percent", "40"), ("pool", "xvmalloc")];
    for (name, value) in expected {
        assert_eq!(told(run.program, &["get", name]), format!("{value}\n"));
    }
    assert_eq!(told(run.program, &["set", "pool=segment"]), "pool segment\n");
    told(run.program, &["set", "writeback_limit=1G"]);
    run.finish();
    let document: Value = serde_json::from_str(&fs::read_to_string(&stats).unwrap()).unwrap();
    assert_eq!(document["knobs"]["codec"], "lzo");
    assert_eq!(document["knobs"]["writeback_limit"], 1 << 30);
    assert_eq!(document["knobs"]["pool"], "segment");
    for (setting, part) in [("max_pool_percent=0", "1 to 90"), ("frob=1", "there is no knob")] {
        let output = coldpress(&["run", "--set", setting, "true"]).output().unwrap();
        assert_fails(&output, 125, &[setting.split_once('=').unwrap().0, part]);
    }
}

#[test]
fn strangers_are_refused() {
    if !fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0) {
        return eprintln!("skipped: only root can be somebody else");
    }
    if !can_manage() {
        return;
    }
    let run = Waiting::start(&[], WAITING);
    // The command itself may lie where user nobody may not look.
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = directory.path().join("coldpress");
    fs::copy(COLDPRESS, &copy).unwrap();
    for verb in [&["get"][..], &["set", "enabled=off"], &["timeline"], &["metrics"]] {
        let mut command = Command::new(&copy);
        command.args(["ctl", &run.program.to_string()]).args(verb);
        let output = command.uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap();
        assert_fails(&output, 1, &["user 65534", "user 0"]);
    }
    assert_eq!(told(run.program, &["get", "enabled"]), "on\n");
    // Whatever a keeper of another user tells is not shown among one's own runs.
    let mut command = Command::new(&copy);
    command.args(["top", "--json", "--interval", "0.1"]).current_dir("/");
    let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
    let all: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let keeper = keeper_of(run.program);
    let is_it = |it: &&Value| it["keeper"] == keeper;
    let named = all["not_shown"].as_array().unwrap().iter().find(is_it).expect("it is named");
    assert!(named["user"] == 0 && named["why"] == "only that user and root see it", "{named}");
    assert_eq!(all["runs"].as_array().unwrap().iter().find(is_it), None);
    run.finish();
}

/// Returns the number in the path of a run's socket.
fn keeper_of(process: u32) -> u32 {
    let socket = socket_of(process).display().to_string();
    let number = socket.rsplit('/').nth(1).and_then(|name| name.split('-').nth(1));
    number.expect("the directory has a number").parse().expect("it is the keeper's")
}

#[test]
fn sockets_that_pose_as_those_of_a_run_hold_nobody_up() {
    if !can_manage() {
        return;
    }
    let run = Waiting::start(&[], WAITING);
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    // They are in the list before the true one, by the numbers of the program and its keeper. Not
    // all of their paths are text.
    let mut fakes = Vec::new();
    for number in [run.program, keeper_of(run.program)] {
        let mut name = format!("coldpress-{number}-").into_bytes();
        for rest in [&b"000000"[..], b"\xff00000"] {
            name.truncate(name.iter().rposition(|byte| *byte == b'-').unwrap() + 1);
            name.extend(rest);
            let directory = place.path().join(OsStr::from_bytes(&name));
            fs::create_dir(&directory).unwrap();
            let path = directory.join("socket").into_os_string().into_vec();
            fakes.push(net::listen(&CString::new(path).unwrap()).unwrap());
        }
    }
    let begun = Instant::now();
    assert_eq!(told(run.program, &["get", "enabled"]), "on\n");
    assert_eq!(told(run.launcher(), &["get", "enabled"]), "on\n");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    drop(fakes);
    run.finish();
}
