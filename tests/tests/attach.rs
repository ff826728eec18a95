//! Risk: a program that coldpress attaches to while it runs reads other bytes, or notices; or
//! something of coldpress's is left in it when coldpress has gone.
//!
//! Each program checks all that it holds, again and again, and says so at its end.

#[path = "attach/servers.rs"]
mod servers;

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use coldpress_tests::machine::{self, coldpress, is_root, require};
use coldpress_tests::matrix;

/// The time in which anything here happens, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);
/// KiB that a program holds, and the budget that it is given.
const HELD_KIB: u64 = 64 << 10;
const BUDGET: &str = "24M";
const BUDGET_KIB: u64 = 24 << 10;

/// Holds [`HELD_KIB`] and a little more, and checks it until its input ends. The first check may
/// map memory of Python's own.
const HOLD: &str = "
import select, sys
held = [bytes([n % 251]) * 5000 for n in range(13500)]
is_right = True
def check():
    global is_right
    is_right = is_right and all(one[0] == one[-1] == n % 251 for n, one in enumerate(held))
check()
print('ready', flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    check()
print(is_right)";

const READY: &[u8; 6] = b"ready\n";

/// A program that runs [`HOLD`].
struct Program(Child);

impl Program {
    /// Starts the program, where this machine has what it takes, and lets one attach.
    fn start() -> Option<Self> {
        let python = require("python3").filter(|_| may())?;
        let mut command = Command::new(python);
        command.args(["-c", HOLD]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Some(Self::of(command))
    }

    /// Starts a program that says when it is ready, and at its end whether all was right.
    fn of(mut command: Command) -> Self {
        let mut program = Self(command.spawn().expect("it is there"));
        let mut ready = [0; READY.len()];
        let output = program.0.stdout.as_mut().expect("it is piped");
        output.read_exact(&mut ready).expect("it says when it is ready");
        assert_eq!(&ready, READY);
        program
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Returns a file of /proc about the program.
    fn file(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.pid())).unwrap_or_default()
    }

    /// Returns the KiB of its anonymous memory.
    fn resident(&self) -> u64 {
        let status = self.file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// Waits until what it holds is as `is_so` wants it.
    fn wait_until(&self, what: &str, is_so: impl Fn(u64) -> bool) {
        let begun = Instant::now();
        while !is_so(self.resident()) {
            assert!(begun.elapsed() < LIMIT, "not in time: {what}: {} KiB", self.resident());
            sleep(PAUSE);
        }
    }

    /// Returns what shows of the program: its mappings without their sizes in memory, descriptors,
    /// threads, and children.
    fn looks(&self) -> [Vec<String>; 4] {
        let folder = format!("/proc/{}", self.pid());
        let list = |name: &str| {
            let entries = fs::read_dir(format!("{folder}/{name}")).expect("it lives");
            let mut names: Vec<_> = entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        let lines = |text: String| text.lines().map(str::to_owned).collect();
        let children = self.file(&format!("task/{}/children", self.pid()));
        [lines(self.file("maps")), list("fd"), list("task"), lines(children)]
    }

    /// Ends the program, and asserts that all bytes were right.
    fn finish(mut self) {
        drop(self.0.stdin.take());
        let output = self.0.wait_with_output().expect("it ends");
        assert!(output.status.success() && output.stdout == b"True\n", "{output:?}");
    }
}

/// A `coldpress attach` that goes on.
struct Attached(Child);

impl Attached {
    fn to(program: &Program) -> Self {
        Self::start(program.pid(), BUDGET, 0)
    }

    /// Attaches to a process. The command is killed when the process that stops the program for it
    /// makes a request of this number.
    fn start(process: u32, budget: &str, request: usize) -> Self {
        let mut command = Command::new(coldpress());
        command.args(["attach", "--memory", budget, "--disk", "none"]).arg(process.to_string());
        command.env("COLDPRESS_TEST_ENDS_AT_TRACE", format!("parent:{request}"));
        Self(command.stderr(Stdio::piped()).spawn().expect("it is built"))
    }

    /// Whether the command has ended.
    fn is_over(&mut self) -> bool {
        self.0.try_wait().expect("it is ours").is_some()
    }

    /// Attaches to a process, and returns once it has the library.
    fn begin(process: u32, budget: &str) -> Self {
        let mut attached = Self::start(process, budget, 0);
        let maps = || fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let begun = Instant::now();
        while !maps().contains("libcoldpress") {
            assert!(begun.elapsed() < LIMIT, "it is not attached to");
            assert!(!attached.is_over(), "it has ended");
            sleep(PAUSE);
        }
        attached
    }

    /// Leaves by a signal. Returns what it said.
    fn leave(self) -> String {
        self.signal("TERM");
        let output = self.finish();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    }

    fn signal(&self, signal: &str) {
        machine::signal(signal, &[self.0.id()]);
    }

    fn finish(self) -> Output {
        self.0.wait_with_output().expect("it ends")
    }
}

/// Runs the command to its end.
fn run(words: &[&str]) -> Output {
    Command::new(coldpress()).args(words).output().expect("it is built")
}

/// Asserts an exit status of 125, and words of the message.
fn assert_refused(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(125) && said.contains(words), "{said}");
}

/// Whether programs may be attached to here.
fn may() -> bool {
    if !is_root() {
        println!("skipped: only root may attach everywhere");
    }
    is_root()
}

/// `make edges` runs the full number of rounds, `make test` a few.
#[test]
fn a_program_is_as_before_when_it_was_left() {
    let Some(program) = Program::start() else { return };
    let before = program.looks();
    for round in 0..if matrix::is_all() { 50 } else { 3 } {
        let attached = Attached::to(&program);
        program.wait_until("it is within its budget", |kib| kib <= BUDGET_KIB);
        if round % 2 == 0 {
            attached.signal(["TERM", "INT", "HUP"][round % 3]);
        } else {
            let detached = run(&["detach", &program.pid().to_string()]);
            assert!(detached.status.success(), "{detached:?}");
        }
        let output = attached.finish();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains(" pages compressed"), "{said}");
        program.wait_until("all of it is back", |kib| kib >= HELD_KIB);
        for (now, before) in program.looks().iter().zip(&before) {
            let new: Vec<_> = now.iter().filter(|line| !before.contains(line)).collect();
            let gone: Vec<_> = before.iter().filter(|line| !now.contains(line)).collect();
            assert!(new.is_empty() && gone.is_empty(), "round {round}: {new:?}, not {gone:?}");
        }
    }
    program.finish();
}

#[test]
fn a_program_outlives_the_command_that_has_attached_to_it() {
    let Some(program) = Program::start() else { return };
    let mut attached = Attached::to(&program);
    program.wait_until("it is within its budget", |kib| kib <= BUDGET_KIB);
    let pid = program.pid().to_string();
    assert_refused(&run(&["attach", &pid]), "is in a run of coldpress already");
    // The program does not descend from what has attached to it.
    let told = run(&["ctl", &pid, "get", "budget_bytes"]);
    let (said, budget) = (String::from_utf8_lossy(&told.stdout), BUDGET_KIB << 10);
    assert_eq!(said, format!("{budget}\n"), "{told:?}");
    let told = run(&["why", &pid]);
    assert!(String::from_utf8_lossy(&told.stdout).contains("in place, managed"), "{told:?}");
    attached.0.kill().expect("it is ours");
    attached.finish();
    // It checks all of its memory some times more.
    sleep(Duration::from_millis(300));
    assert_refused(&run(&["detach", &pid]), "was not attached to");
    let told = run(&["ctl", &pid, "get"]);
    assert!(String::from_utf8_lossy(&told.stderr).contains("is in no coldpress run"), "{told:?}");
    program.finish();
}

/// The command is killed at each request of the process that stops the program for it, in `make
/// test` at some.
#[test]
fn a_program_goes_on_whenever_the_command_is_killed_that_attaches_to_it() {
    let mut killed = 0;
    for request in (1..).step_by(if matrix::is_all() { 1 } else { 37 }) {
        let Some(program) = Program::start() else { return };
        let mut attached = Attached::start(program.pid(), BUDGET, request);
        let begun = Instant::now();
        while program.resident() > BUDGET_KIB && !attached.is_over() {
            assert!(begun.elapsed() < LIMIT, "{request}: nothing happens");
            sleep(PAUSE);
        }
        let is_killed = attached.is_over();
        attached.signal("TERM");
        attached.finish();
        while !program.file("status").contains("TracerPid:\t0") {
            assert!(begun.elapsed() < LIMIT, "{request}: it is still traced");
            sleep(PAUSE);
        }
        program.finish();
        if !is_killed {
            break;
        }
        killed += 1;
    }
    println!("killed {killed} times");
    assert!(killed > 1, "{killed}");
}

#[test]
fn what_cannot_be_attached_to_is_refused_and_goes_on() {
    let Some(program) = Program::start() else { return };
    assert_refused(&run(&["attach", "4194304"]), "there is no process");
    assert_refused(&run(&["detach", "4194304"]), "there is no process");
    let pid = program.pid().to_string();
    assert_refused(&run(&["detach", &pid]), "was not attached to");
    machine::signal("STOP", &[program.pid()]);
    while !program.file("status").contains("State:\tT") {
        sleep(PAUSE);
    }
    assert_refused(&run(&["attach", &pid]), "it is stopped");
    machine::signal("CONT", &[program.pid()]);
    program.finish();
}

/// A shell that starts programs: each comes within the budget, late.
#[test]
fn what_an_attached_program_starts_is_of_the_run() {
    let (true, Some(python)) = (may(), require("python3")) else { return };
    let script = "import sys, subprocess\nsys.stdin.readline()\n\
        code = 'held = [bytes([n % 251]) * 5000 for n in range(16000)]\\n\
        print(all(one[0] == one[-1] == n % 251 for _ in range(8) for n, one in enumerate(held)))'\n\
        print(subprocess.run([sys.executable, '-c', code]).returncode, flush=True)";
    let mut child = Command::new(python)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it is there");
    let stats = PathBuf::from(format!("/tmp/coldpress-attach-{}.json", child.id()));
    let report = stats.with_extension("html");
    let mut command = Command::new(coldpress());
    command.args(["attach", "--memory", "32M", "--disk", "none", "--stats"]).arg(&stats);
    command.arg("--report").arg(&report);
    let attached = command.arg(child.id().to_string()).spawn().expect("it is built");
    let begun = Instant::now();
    let maps = || fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap_or_default();
    while !maps().contains("libcoldpress") {
        assert!(begun.elapsed() < LIMIT, "it is not attached to");
        sleep(PAUSE);
    }
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "True\n0\n");
    assert!(attached.wait_with_output().expect("it ends").status.success());
    let text = fs::read_to_string(&stats).expect("it was written");
    fs::remove_file(&stats).expect("it is ours");
    let document: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert!(document["swap_out_pages"].as_u64() > Some(0), "{text}");
    let page = fs::read_to_string(&report).expect("it was written");
    fs::remove_file(&report).expect("it is ours");
    assert!(page.contains("Ran in ") && page.trim_end().ends_with("</html>"), "no report");
}
