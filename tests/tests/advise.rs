//! Risk: a budget is advised that was not tried, or of a program that failed; a program is run more
//! often than was said, or goes on after an interrupt; or its output is mixed with the advice.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use coldpress_tests::machine::{self, Scratch, fixture, require};
use coldpress_tests::terminal::Terminal;
use serde_json::Value;

const SIGTERM: i32 = 15;
/// The memory of the program, in MiB.
const HELD: &str = "64";
/// The longest time that anything here takes on a busy machine.
const HANG: Duration = Duration::from_secs(120);

/// A program, and the runs of it.
struct Advised {
    python: PathBuf,
    scratch: Scratch,
}

impl Advised {
    fn new() -> Option<Self> {
        Some(Self { python: require("python3")?, scratch: Scratch::new("advise") })
    }

    fn log(&self) -> PathBuf {
        self.scratch.path("log")
    }

    /// Returns what asks for advice on the program with these words behind its memory.
    fn command(&self, options: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new(machine::coldpress());
        command.arg("advise").args(options).arg("--").arg(&self.python);
        command.arg(fixture("advised.py")).arg(self.log()).arg(HELD).args(words);
        command.stdin(Stdio::null());
        command
    }

    /// Returns the process and the input of each run.
    fn runs(&self) -> Vec<(u32, String)> {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let of = |line: &str| {
            let (process, input) = line.split_once(' ').expect("two words");
            (process.parse().expect("a number"), input.to_owned())
        };
        log.lines().map(of).collect()
    }
}

fn output(command: &mut Command) -> (Output, String, String) {
    let output = command.output().expect("the command is built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    (output, out, error)
}

#[test]
fn a_budget_is_advised_that_was_tried_with_the_whole_input_each_time() {
    let Some(advised) = Advised::new() else { return };
    let input = advised.scratch.write("input", b"line\n");
    let mut command = advised.command(&["--json", "--slower", "200%", "--runs", "4"], &[]);
    command.stdin(File::open(input).expect("it was just written"));
    let (ended, out, error) = output(&mut command);
    assert!(ended.status.success(), "{error}");
    assert_eq!(error, "");
    let document: Value = serde_json::from_str(&out).expect("JSON and nothing else");
    let runs = document["runs"].as_array().expect("a list");
    let ran = advised.runs();
    assert_eq!(ran.len(), runs.len());
    assert!((2..=4).contains(&ran.len()), "{ran:?}");
    assert!(ran.iter().all(|(_, input)| input == "'line\\n'"), "{ran:?}");
    assert!(runs[0]["budget_bytes"].is_null() && runs[0]["expected_ns"].is_null(), "{out}");
    let (best, peak) = (&document["advised"], document["peak_bytes"].as_u64());
    assert!(runs[1..].contains(best), "{out}");
    assert!(best["budget_bytes"].as_u64() < peak && peak >= Some(64 << 20), "{out}");
    assert!(best["time_ns"].as_u64() <= document["time_ns"].as_u64().map(|ns| 3 * ns), "{out}");
    // The program goes over 16 MiB again and again, and all else may be away.
    let curve = document["curve"].as_array().expect("a list");
    assert!(curve.len() > 10, "{out}");
    assert_eq!(curve[0]["budget_bytes"].as_u64().map(|it| it / 100), peak.map(|it| it / 100));
}

#[test]
fn people_get_a_table_and_a_sentence_and_no_output_of_the_program() {
    let Some(advised) = Advised::new() else { return };
    let (ended, out, error) = output(&mut advised.command(&["--runs", "3"], &[]));
    assert!(ended.status.success(), "{error}");
    assert!(error.contains("up to 3 times; what it prints is thrown away"), "{error}");
    assert!(!out.contains("much output") && !error.contains("much output"), "{out}{error}");
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 2 + advised.runs().len(), "{out}");
    assert!(lines[0].trim_start().starts_with("budget"), "{out}");
    assert!(lines[1].trim_start().starts_with("all"), "{out}");
    let last = lines[lines.len() - 1];
    assert!(last.starts_with("--memory ") || last.starts_with("No budget below"), "{out}");

    let (ended, out, error) = output(&mut advised.command(&["--curve", "--runs", "3"], &[]));
    assert!(ended.status.success(), "{error}");
    assert!(out.lines().count() > 10 && !out.contains("--memory"), "{out}");
}

#[test]
fn a_program_that_fails_ends_it_with_a_line_that_says_why() {
    let Some(advised) = Advised::new() else { return };
    for (at, words) in [("1", "within 100%"), ("2", "within ")] {
        let (ended, out, error) = output(&mut advised.command(&[], &[at, "3"]));
        assert_eq!((ended.status.code(), out.as_str()), (Some(1), ""), "{error}");
        for part in ["ended with status 3", words, "this is why", "status 0, each time"] {
            assert!(error.contains(part), "{part} in {error}");
        }
        let ran = advised.runs().len();
        assert_eq!(ran.to_string(), at);
        fs::remove_file(advised.log()).expect("it is there");
    }
}

#[test]
fn what_cannot_run_is_named() {
    let advise = |words: &[&str]| {
        let mut command = Command::new(machine::coldpress());
        let (ended, out, error) = output(command.arg("advise").args(words));
        assert_eq!(out, "", "{error}");
        (ended.status.code(), error)
    };
    let (code, error) = advise(&["--", "no-such-program"]);
    assert!(code == Some(127) && error.contains("no-such-program"), "{error}");
    let (code, error) = advise(&["--", "/etc/passwd"]);
    assert!(code == Some(126) && error.contains("/etc/passwd"), "{error}");
    let (code, error) = advise(&["--codec", "zip", "--", "true"]);
    assert!(code == Some(2) && error.contains("zip"), "{error}");
    for words in [&["--runs", "2", "--", "true"][..], &["--slower", "0", "--", "true"], &[]] {
        assert_eq!(advise(words).0, Some(2));
    }
}

#[test]
fn of_a_program_that_holds_next_to_nothing_little_is_said() {
    let mut command = Command::new(machine::coldpress());
    let (ended, out, error) = output(command.args(["advise", "--", "true"]));
    // It may end before anything looks at its memory.
    let is_said = match ended.status.code() {
        Some(0) => out.contains("--memory 16M: true fits the least budget"),
        _ => out.is_empty() && error.contains("longer run"),
    };
    assert!(is_said, "{out}{error}");
}

#[test]
fn inside_a_run_there_is_nothing_to_advise() {
    let Some(advised) = Advised::new() else { return };
    let inner = advised.command(&[], &[]);
    let mut command = Command::new(machine::coldpress());
    command.args(["run", "--quiet", "--memory", "64M", "--"]).arg(inner.get_program());
    let (ended, _, error) = output(command.args(inner.get_args()).stdin(Stdio::null()));
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(error.contains("inside another run"), "{error}");
    assert_eq!(advised.runs(), []);
}

#[test]
fn what_can_be_read_once_is_not_read() {
    let Some(advised) = Advised::new() else { return };
    let mut command = advised.command(&["--runs", "3"], &[]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command is built");
    // It stays open: nobody waits for its end.
    let held = child.stdin.take();
    let ended = child.wait_with_output().expect("it ends");
    drop(held);
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success() && error.contains("can be read once only"), "{error}");
    assert!(advised.runs().iter().all(|(_, input)| input == "''"), "{:?}", advised.runs());
}

/// Waits until a run of the program hangs, and returns its process.
fn hangs(advised: &Advised) -> u32 {
    let begun = Instant::now();
    loop {
        if let Some((process, _)) = advised.runs().first() {
            return *process;
        }
        assert!(begun.elapsed() < HANG, "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a process is gone.
fn is_gone(process: u32) {
    let begun = Instant::now();
    while Path::new(&format!("/proc/{process}")).exists() {
        assert!(begun.elapsed() < HANG, "the program goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_signal_ends_the_program_and_then_the_command() {
    let Some(advised) = Advised::new() else { return };
    let mut command = advised.command(&[], &["1", "hang"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the command is built");
    let program = hangs(&advised);
    machine::signal("TERM", &[child.id()]);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.signal(), Some(SIGTERM));
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(error.contains("interrupted; the program has ended, too"), "{error}");
    assert_eq!(ended.stdout, b"");
    is_gone(program);
}

#[test]
fn a_terminal_shows_how_far_it_has_come_and_a_key_ends_it() {
    let Some(advised) = Advised::new() else { return };
    let command = advised.command(&[], &["1", "hang"]);
    let mut terminal = Terminal::run(command.get_program(), command.get_args(), &[], (100, 24));
    let is_shown = |text: &str| text.contains("run 1 of 5, --memory 100%");
    terminal.wait_for(HANG, is_shown);
    let program = hangs(&advised);
    terminal.press("\u{3}");
    terminal.wait_for(HANG, |text| text.contains("interrupted; the program has ended, too"));
    assert!(!terminal.finish(HANG).success());
    is_gone(program);
}
