//! The user's view of the service and of the keeper.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{self, Scratch, fixture, is_root, require};
use coldpress_tests::matrix::{self, Lane, case};
use coldpress_tests::watch::{self, Measure};

use super::{HANG, PYTHON, proc_text, python};

const BUDGET: Bytes = Bytes::mib(32);
/// A script that burns half a second of a processor, in a child of its own.
const BURN: &str = "import time
while time.process_time() < 0.5: pass";
const BURNT: f64 = 0.5;

/// Finds the program and its service by their command line: both hold the program's memory.
fn is_found_twice() -> Option<()> {
    require("pgrep").and_then(|_| require("ps"))?;
    let scratch = Scratch::new("twice");
    let script = scratch.path("found-twice.py");
    fs::copy(fixture("hold.py"), &script).expect("the scratch directory takes files");
    let end = scratch.path("end");
    let job = python("twice", "hold.py").map(|_| Job::new("twice", PYTHON).arg(&script))?;
    let live = Live::start(&job.args(["private", "48"]).arg(&end).arg("rest"), Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    let (program, service) = watch::find_service(live.root()).expect("it is managed");
    let both = [program, service];
    let list = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).output().expect("it was found");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let found = list(&["pgrep", "-f", "found-twice.py"]);
    let found: Vec<u32> = found.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(both.iter().all(|process| found.contains(process)), "{both:?} in {found:?}");
    let [ours, theirs] = both.map(|process| proc_text(process, "cmdline"));
    assert_eq!(ours, theirs);
    let [held, held_again] = both.map(|process| Measure::Resident.read(process));
    println!("{held:?} and {held_again:?}");
    let near = Bytes::mib(4);
    assert!(held > Bytes::mib(16) && held_again + near > held && held + near > held_again);
    let named = list(&["ps", "-e", "-o", "pid=,comm="]);
    let named = named.lines().find_map(|line| line.trim().strip_prefix(&service.to_string()));
    assert_eq!(named.map(str::trim), Some("coldpress"));
    scratch.write("end", b"");
    assert_eq!(live.finish(HANG).code, 0);
    Some(())
}

fn keeper_is_the_parent() -> Option<()> {
    let run = Job::new("parent", "sh").args(["-c", "cat /proc/$PPID/comm"]).managed(BUDGET);
    assert_eq!(String::from_utf8_lossy(&run.stdout), "coldpress-keep\n", "{}", run.stderr);
    Some(())
}

/// Returns the seconds of processor time that a shell's `times` prints for a run that burns some.
/// The program leaves another process in the background if `leaves`.
fn seconds_told(leaves: bool) -> f64 {
    let scratch = Scratch::new("times");
    // The process left behind ends when this file goes with the scratch directory.
    let (left_for, output) = (scratch.write("left", b""), scratch.path("output"));
    let left = "(while [ -e \"$2\" ]; do sleep 0.05; done) >/dev/null 2>&1 &";
    let program = format!("{}\n\"$0\" -c \"$1\"", if leaves { left } else { "" });
    let mut command = Command::new("sh");
    command.args(["-c", "\"$@\" 2>/dev/null; times", "sh"]).arg(machine::coldpress());
    command.args(["run", "--memory", "64M", "--", "sh", "-c", &program, PYTHON, BURN]);
    command.arg(left_for);
    // Into a file: the process left behind holds the output for a moment longer.
    let file = File::create(&output).expect("the scratch directory takes files");
    let status = command.stdout(file).stdin(Stdio::null()).status().expect("there is a shell");
    let text = fs::read_to_string(&output).expect("it was made above");
    assert!(status.success(), "{text}");
    // The shell's own times come first, then its children's: user and system, each as 0m0.010000s.
    let seconds = |word: &str| {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        Some(60.0 * minutes.parse::<f64>().ok()? + seconds.parse::<f64>().ok()?)
    };
    let words = text.lines().nth(1).expect("two lines").split_whitespace();
    words.map(|word| seconds(word).expect("minutes and seconds")).sum()
}

fn time_lacks_the_programs() -> Option<()> {
    python("times", "hold.py")?;
    let (alone, leaving) = (seconds_told(false), seconds_told(true));
    println!("{alone} s told, {leaving} s when another is left");
    // A shell may round to hundredths.
    assert!(alone > BURNT - 0.05, "{alone} s of {BURNT} s");
    assert!(leaving < BURNT - 0.05, "{leaving} s, and {BURNT} s are the program's");
    Some(())
}

/// Shows that the first process of a name space gets all orphans there.
fn first_of_a_name_space_gets_the_service() -> Option<()> {
    if !is_root() {
        return None;
    }
    python("nested", "hold.py")?;
    let words = ["--pid", "--fork", "--mount-proc", PYTHON];
    let job = Job::new("nested", require("unshare")?).args(words).arg(fixture("reaper.py"));
    let run = job.arg(PYTHON).arg(fixture("beside.py")).arg("dumpable").managed(BUDGET);
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(text.starts_with("reaper 1\n"), "{text}{}", run.stderr);
    assert!(text.contains("whole\nstatus 0\nothers "), "{text}{}", run.stderr);
    assert!(!text.contains("others 0\n"), "{text}{}", run.stderr);
    Some(())
}

/// Returns the name of the parent of a program's service, for a program that runs behind `words`.
fn parent_of_service(words: &[&str]) -> Option<String> {
    python("parent", "beside.py")?;
    let job = match words {
        [] => Job::new("parent", PYTHON),
        [first, rest @ ..] => Job::new("parent", first).args(rest.iter().copied()).arg(PYTHON),
    };
    let live = Live::start(&job.arg(fixture("beside.py")).arg("term"), Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    let (program, service) = watch::find_service(live.root()).expect("it is managed");
    let status = proc_text(service, "status");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("proc(5)");
    let name = proc_text(parent.trim().parse().expect("a number"), "comm");
    machine::signal("TERM", &[program]);
    assert_eq!(live.finish(HANG).code, 7);
    Some(name.trim_end().to_owned())
}

fn keeper_gets_the_service() -> Option<()> {
    assert_eq!(parent_of_service(&[])?, "coldpress-keep");
    Some(())
}

fn tini_gets_the_service() -> Option<()> {
    require("tini")?;
    assert_eq!(parent_of_service(&["tini", "-s", "--"])?, "tini");
    Some(())
}

#[test]
fn what_an_onlooker_sees() {
    let cases = [
        case("a program is found twice", Lane::Short, is_found_twice),
        case("the keeper is the parent", Lane::Short, keeper_is_the_parent),
        case("the shell's time lacks the program's", Lane::Short, time_lacks_the_programs),
        case("the keeper gets the service", Lane::Short, keeper_gets_the_service),
        case("tini gets the service", Lane::Short, tini_gets_the_service),
        case("the first of a name space gets the service", Lane::Short, || {
            first_of_a_name_space_gets_the_service()
        }),
    ];
    matrix::run(&cases);
}
