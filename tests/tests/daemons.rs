//! Risk: a server that forks away loses its budget, its pages or its signals when the program that
//! started it ends; or the launcher hangs for the server where no user wants that; or a container,
//! whose first process is the launcher, cannot be stopped.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live, Run};
use coldpress_tests::machine::{self, Scratch, find, fixture, require, workspace_file};

const BUDGET: Bytes = Bytes::mib(32);
/// Time limit of a run: longer, it hangs.
const HANG: Duration = Duration::from_secs(120);
/// A script that starts the words behind it in a session of their own, writing to `$0`. It ends
/// with 3 when they are ready.
const FORK_AWAY: &str =
    r#"setsid "$@" > "$0" 2>&1 & until grep -q ready "$0"; do sleep 0.05; done; exit 3"#;

/// Adds `hold.py` on 64 MiB for `rounds` to the words of `job`.
fn hold(job: Job, rounds: &str) -> Option<Job> {
    Some(job.arg(require("python3")?).arg(fixture("hold.py")).args(["private", "64", rounds]))
}

/// Runs `hold.py` plain, for its output.
fn plain() -> Option<Run> {
    hold(Job::new("plain", "env"), "1").map(|job| job.plain())
}

/// Makes a job of `hold.py` in the background, which writes to `output` and outlives its starter.
fn daemon(output: &Path) -> Option<Job> {
    let job = Job::new("daemon", "sh").args(["-c", FORK_AWAY]).arg(output);
    hold(job.args(["timeout", "120"]), "3")
}

#[test]
fn with_wait_a_server_that_forks_away_keeps_its_budget() {
    let Some(plain) = plain() else { return };
    let scratch = Scratch::new("daemon");
    let output = scratch.path("output");
    let Some(job) = daemon(&output) else { return };
    let run = job.options(["--wait"]).managed(BUDGET);
    println!("{run}");
    assert_eq!(run.code, 3, "{}", run.stderr);
    // The server has written all of its output before the launcher ended.
    assert_eq!(fs::read(&output).expect("it was made"), plain.stdout);
    run.assert_stored();
    run.assert_within_budget();
}

#[test]
fn without_wait_it_goes_on_in_its_budget_and_the_user_is_told() {
    let Some(plain) = plain() else { return };
    let scratch = Scratch::new("daemon");
    let output = scratch.path("output");
    let Some(job) = daemon(&output) else { return };
    let run = job.managed(BUDGET);
    println!("{run}");
    assert_eq!(run.code, 3, "{}", run.stderr);
    let line = "managed processes go on in the background: 1; see --wait";
    assert!(run.stderr.contains(line), "{}", run.stderr);
    let begun = Instant::now();
    while fs::read(&output).expect("it was made") != plain.stdout {
        assert!(begun.elapsed() < HANG, "{:?}", fs::read_to_string(&output));
        thread::sleep(Duration::from_millis(50));
    }
}

/// A signal to the launcher reaches the server, whose starter has ended.
#[test]
fn signals_reach_what_is_left() {
    // Until the program `$$` is reaped, a signal goes to it.
    let script = "(trap 'echo got; exit' TERM; while kill -0 $$; do sleep 0.05; done 2>/dev/null
        echo ready; while :; do sleep 0.05; done) & exit 6";
    let job = Job::new("signals", "sh").args(["-c", script]).options(["--wait"]);
    let live = Live::start(&job, Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    machine::signal("TERM", &[live.root()]);
    let run = live.finish(HANG);
    assert_eq!((run.code, run.stdout.as_slice()), (6, &b"ready\ngot\n"[..]), "{}", run.stderr);
}

/// Returns words in front of a command that make it the first process of a PID name space.
fn as_first() -> Option<[&'static str; 5]> {
    let words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    if !machine::is_root() {
        return None;
    }
    let works = Command::new(words[0]).args(&words[1..]).arg("true").status();
    let works = works.is_ok_and(|status| status.success());
    if !works {
        println!("skipped: PID name spaces are not allowed here");
    }
    works.then_some(words)
}

#[test]
fn the_first_process_of_a_container_manages_reaps_and_passes_signals_on() {
    let (Some(plain), Some(words)) = (plain(), as_first()) else { return };
    // Orphans that end while the program runs must not be taken for it.
    let script = r#"for n in 1 2 3; do (sleep 0.$n & ) ; done; exec "$@""#;
    let job = Job::new("first", "sh").args(["-c", script, "sh"]).before(words);
    let Some(job) = hold(job, "3") else { return };
    let run = job.managed(BUDGET);
    println!("{run}");
    run.assert_same(&plain);
    run.assert_stored();
    let script = "trap 'echo got; exit 7' TERM; kill -TERM 1; while :; do sleep 0.05; done";
    let job = Job::new("signalled", "sh").args(["-c", script]).before(words);
    let run = job.managed(BUDGET);
    assert_eq!((run.code, run.stdout.as_slice()), (7, &b"got\n"[..]), "{}", run.stderr);
}

/// Runs a script in a file with `first` as its first line, within a run behind `before`, on a
/// terminal. Returns its output and its status.
fn on_a_terminal(first: &str, before: &[&str], word: &str) -> Option<(String, i32)> {
    let python = require("python3")?;
    let scratch = Scratch::new("terminal");
    let script = format!("{first}echo ready; read line; echo \"got $line\"");
    let file = scratch.write("script", script.as_bytes());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let mut command = Command::new(python);
    command.arg(fixture("terminal.py")).arg(word).args(before).arg(machine::coldpress());
    command.args(["run", "-q", "-m", "64M", "--"]).arg(file);
    let output = command.output().expect("python3 was found");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{first:?} {before:?} {word}: {text:?} {:?}", output.status.code());
    Some((text, output.status.code().expect("it tells a status")))
}

/// The program is the terminal's foreground, whatever it is, and wherever its numbers come from.
#[test]
fn the_program_reads_its_terminal_and_is_interrupted_there() {
    let first = as_first();
    let first = first.as_ref().map_or(&[][..], |words| words);
    // A file without a first line for the kernel is run by the shell.
    for (line, before) in [("#!/bin/sh\n", &[][..]), ("", &[]), ("", first)] {
        let Some((text, status)) = on_a_terminal(line, before, "line") else { return };
        assert!(status == 0 && text.ends_with("got hello\n"), "{text}");
        let Some((_, status)) = on_a_terminal(line, before, "interrupt") else { return };
        // The status that the shell reports, or the parent of all others in a name space.
        assert!([130, 254, 2].contains(&status), "{status}");
    }
}

/// Orphans of other starters in a container become children of its first process.
#[test]
fn the_first_process_of_a_container_reaps_whom_it_has_not_started() {
    let Some(words) = as_first() else { return };
    let job = Job::new("first", "sh").args(["-c", "echo ready; sleep 3"]).before(words);
    let live = Live::start(&job, Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    let children = |process: u32| {
        let path = format!("/proc/{process}/task/{process}/children");
        let list = fs::read_to_string(path).unwrap_or_default();
        list.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
    };
    // The launcher is a child of `unshare`, which stays outside.
    let launcher = children(live.root())[0];
    let mut command = Command::new("nsenter");
    command.args(["--pid", "--mount", "--target", &launcher.to_string(), "sh", "-c"]);
    let status = command.arg("for n in 1 2 3; do sleep 0.1 & done").status();
    assert!(status.is_ok_and(|status| status.success()), "nsenter is of util-linux, as unshare is");
    let begun = Instant::now();
    // One of the children is the keeper.
    while children(launcher).len() > 1 {
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", children(launcher));
        thread::sleep(Duration::from_millis(10));
    }
    live.finish(HANG);
}

/// Memory that is not managed counts as well, and `ctl` reports it.
#[test]
fn what_is_left_counts_although_nobody_manages_it() {
    let Some(python) = require("python3") else { return };
    let scratch = Scratch::new("left");
    let output = scratch.path("output");
    // Tests beside this one also run the fixture.
    let script = scratch.path("left.py");
    fs::copy(fixture("hold.py"), &script).expect("the scratch directory takes files");
    let hold = [script.clone().into_os_string(), "private".into(), "40".into(), "3".into()];
    let job = Job::new("left", "sh").args(["-c", FORK_AWAY]).arg(&output);
    let job = job.args(["env", "COLDPRESS_SOCKET=none"]).arg(python).args(hold).arg("rest");
    let run = job.managed(Bytes::mib(64));
    assert_eq!(run.code, 3, "{}", run.stderr);
    let left = machine::running(&script).expect("it rests for some seconds");
    let mut command = Command::new(machine::coldpress());
    let told = command.args(["ctl", &left.to_string(), "get", "used_bytes"]).output();
    let told = String::from_utf8_lossy(&told.expect("it is built").stdout).into_owned();
    machine::signal("KILL", &[left]);
    let used: usize = told.trim().parse().expect("a number");
    assert!(used >= 40 << 20, "{used} bytes are in use, it says");
}

/// The example of a unit file, with programs that exist here.
#[test]
fn the_unit_is_one_for_systemd() {
    let Some(systemd) = find("systemd-analyze") else {
        return println!("skipped: no systemd-analyze");
    };
    let unit = fs::read_to_string(workspace_file("packaging/redis-coldpress.service"));
    let unit = unit.expect("it is text");
    let launcher = machine::coldpress();
    // systemd looks a name without a folder up in /usr/local/bin and /usr/bin.
    let start = format!("ExecStart={} ", launcher.display());
    let here = unit.replace("ExecStart=coldpress ", &start);
    assert_ne!(here, unit, "the unit names another launcher");
    let scratch = Scratch::new("unit");
    let path = scratch.write("redis-coldpress.service", here.as_bytes());
    let output = Command::new(systemd).args(["verify", "--man=no"]).arg(&path).output();
    let output = output.expect("it was found");
    let errors = String::from_utf8_lossy(&output.stderr);
    // systemd-analyze also reports other units of the machine.
    let ours = errors.lines().filter(|line| line.contains("redis-coldpress"));
    assert_eq!(ours.collect::<Vec<_>>(), [""; 0], "{errors}");
    // The unit starts a command line that coldpress understands.
    let line = here.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let words: Vec<_> = line.split(' ').take_while(|word| *word != "--").collect();
    let status = Command::new(words[0]).args(&words[1..]).args(["--", "true"]).status();
    assert!(status.expect("it is built").success(), "{line}");
}
