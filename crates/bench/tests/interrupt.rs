//! The risk: a benchmark that is interrupted leaves a program running or files behind, or passes
//! for one that was measured; or its progress fills a log.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

mod common;

use common::{BENCH, can_manage, command, started_program, stderr};

/// The longest that an interrupted benchmark takes, on a busy machine.
const END_MAX: Duration = Duration::from_secs(20);

/// Interrupts a benchmark while it runs a program. It must end by the signal, after the program.
fn interrupt(args: &[&str], signal: i32, program: &str) {
    let mut command = command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command is built");
    let started = started_program(child.id(), program);
    let told = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
    assert!(told.expect("there is a kill").success());
    let begun = Instant::now();
    let output = child.wait_with_output().expect("a child");
    assert!(begun.elapsed() < END_MAX, "{args:?}");
    assert_eq!(output.status.signal(), Some(signal), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted; "), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    while std::fs::read_to_string(format!("/proc/{started}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z "))
    {
        assert!(begun.elapsed() < END_MAX, "{args:?}: the program lives on");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_interrupt_ends_the_program_and_then_the_benchmark() {
    if !can_manage() {
        return;
    }
    interrupt(&["fit", "--rounds", "1000"], 15, "coldpress");
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_str().expect("plain names");
    let mut args = vec!["view", "--program", "sort", "--directory", place];
    interrupt(&args, 2, "timeout");
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0, "files are left");
    // Several runs over swap need root; coldpress alone does not.
    args = vec!["zswap", "--peer", "none", "--directory", place];
    interrupt(&args, 1, "workload");
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0, "files are left");
}

#[test]
fn progress_is_on_a_terminal_and_nowhere_else() {
    let args = ["frames", "--part", "order-0", "--quick"];
    let output = command(&args).output().expect("the command is built");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
    let plain = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!plain.contains("frames: order-0"), "{plain}");
    let words = [&[BENCH][..], &args].concat().join(" ");
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &words, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
    let Ok(output) = terminal.output() else {
        eprintln!("skipped: there is no script(1) to make a terminal");
        return;
    };
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("frames: order-0") && shown.contains('\r'), "{shown:?}");
    assert!(shown.contains("ns an object"), "the report is missing: {shown:?}");
    assert!(shown.ends_with("\u{1b}[2K"), "the line is left: {shown:?}");
}
