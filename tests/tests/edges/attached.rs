//! Tools that attach to a running program.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{self, Scratch, fixture, require};
use coldpress_tests::matrix::{self, Lane, case};

use super::{HANG, PYTHON};

/// The budget of `sampled.py`: 40 % of the 62 MiB that it holds.
const BUDGET: Bytes = Bytes::mib(25);
/// Most by which the answer of a sampling profiler may take longer than on a plain program.
const ANSWER: Duration = Duration::from_secs(2);
/// The profiler with that limit: it stops the program for each sample. Other tools may take their
/// time.
const PROFILER: &str = "py-spy";
/// Seconds after which a tool is ended: one that waits for itself would wait for ever.
const TOOL_MAX: &str = "30";

/// A run of `sampled.py`, which goes on until a file asks it to end.
struct Target {
    live: Live,
    scratch: Scratch,
    process: String,
}

impl Target {
    fn start(budget: Option<Bytes>) -> Self {
        let scratch = Scratch::new("attached");
        let job = Job::new("sampled", PYTHON).arg(fixture("sampled.py"));
        let live = Live::start(&job.arg(scratch.path("end")), budget);
        live.wait_for_output("ready\n", HANG);
        let output = String::from_utf8(live.output()).expect("it prints text");
        let process = output.split(' ').next().expect("its process").to_owned();
        Self { live, scratch, process }
    }

    /// Runs a tool with `words` made for this target.
    fn tool(&self, words: &[String]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["-k", "2", "-s", "INT", TOOL_MAX]).args(words).stdin(Stdio::null());
        command.output().expect("timeout is there")
    }

    /// Ends the target, and returns what it printed.
    fn finish(self) -> String {
        self.scratch.write("end", b"");
        let run = self.live.finish(HANG);
        assert_eq!(run.code, 0, "{}", run.stderr);
        if run.budget.is_some() {
            run.assert_stored();
        }
        String::from_utf8(run.stdout).expect("it prints text")
    }
}

/// Runs the tool of `words`, given the target's process and a file of its own, on a plain program
/// and on a managed one. Its output and that file must hold `wanted` for both, and the program must
/// go on as if nothing had happened.
fn attach(name: &str, words: impl Fn(&str, &str) -> Vec<String>, wanted: &str) -> Option<()> {
    require(name)?;
    if !PathBuf::from(PYTHON).exists() {
        machine::skip("no python3 that every user may run");
        return None;
    }
    let answer =
        |budget| {
            let target = Target::start(budget);
            let file = target.scratch.path("answer");
            let begun = Instant::now();
            let output = target.tool(&words(&target.process, file.to_str().expect("plain names")));
            let elapsed = begun.elapsed();
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.push_str(&fs::read(&file).map_or_else(
                |_| String::new(),
                |bytes| String::from_utf8_lossy(&bytes).into_owned(),
            ));
            text.push_str(&String::from_utf8_lossy(&output.stderr));
            (target, text, elapsed)
        };
    let (target, text, plain) = answer(None);
    let sum = target.finish();
    if !text.contains(wanted) {
        println!("skipped: without coldpress {name} says no {wanted:?}: {text}");
        return None;
    }
    let (target, text, managed) = answer(Some(BUDGET));
    assert!(text.contains(wanted), "{name} says no {wanted:?} after {managed:.1?}: {text}");
    let is_prompt = name != PROFILER || managed < plain + ANSWER;
    assert!(is_prompt, "{name}: {managed:.1?}, plain {plain:.1?}");
    assert_eq!(target.finish(), sum);
    Some(())
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[test]
fn tools_that_attach() {
    let gdb = |process: &str, _: &str| {
        let mut words = words(&format!("gdb -nx -batch -p {process} -ex"));
        words.push("thread apply all bt".to_owned());
        words
    };
    let cases = [
        case("gdb, backtrace", Lane::Short, || attach("gdb", gdb, "#0")),
        case("gcore, not thawed", Lane::Long, || {
            let gcore = |process: &str, file: &str| words(&format!("gcore -o {file} {process}"));
            attach("gcore", gcore, "Saved corefile")
        }),
        case("strace -f -p", Lane::Long, || {
            let strace = |process: &str, file: &str| {
                words(&format!("timeout -s INT 2 strace -f -o {file} -p {process}"))
            };
            attach("strace", strace, "/end")
        }),
        case("py-spy dump", Lane::Long, || {
            let dump = |process: &str, _: &str| words(&format!("py-spy dump --pid {process}"));
            attach(PROFILER, dump, "touches")
        }),
        case("py-spy dump --nonblocking", Lane::Long, || {
            let dump = |process: &str, _: &str| {
                words(&format!("py-spy dump --nonblocking --pid {process}"))
            };
            attach(PROFILER, dump, "touches")
        }),
        case("py-spy record", Lane::Long, || {
            let record = |process: &str, file: &str| {
                words(&format!("py-spy record -d 2 -r 20 -f raw -o {file} --pid {process}"))
            };
            attach(PROFILER, record, "touches")
        }),
        case("perf record -p", Lane::Long, || {
            let perf = |process: &str, file: &str| {
                words(&format!("perf record -g -e cpu-clock -o {file} -p {process} -- sleep 2"))
            };
            attach("perf", perf, "Captured and wrote")
        }),
    ];
    matrix::run(&cases);
}
