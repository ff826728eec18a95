//! Risk: `coldpress why` names another reason than the one that keeps memory in place, or none.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{self, Scratch, fixture, require};
use serde_json::Value;

/// Time limit for a program to reach its "ready", and to end.
const HANG: Duration = Duration::from_secs(60);
const BUDGET: Bytes = Bytes::mib(32);
/// What the program holds of each kind.
const EACH: u64 = 2 << 20;

fn why(words: &[&str]) -> Output {
    let output = Command::new(machine::coldpress()).arg("why").args(words).output();
    output.expect("the command is built")
}

/// Returns the only child of a process.
fn child(process: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children = children.expect("it runs");
    children.split_whitespace().next().expect("it has a child").parse().expect("a number")
}

#[test]
fn memory_of_each_kind_is_named_with_its_reason() {
    let (Some(python), scratch) = (require("python3"), Scratch::new("why")) else { return };
    let (end, folder) = (scratch.path("end"), scratch.path(""));
    let script = format!(
        "{} {} {} {}; true",
        python.display(),
        fixture("kinds.py").display(),
        end.display(),
        folder.display()
    );
    let live = Live::start(&Job::new("kinds", "sh").args(["-c", &script]), Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    let keeper = child(live.root());
    let shell = child(keeper);
    let program = child(shell).to_string();
    let output = why(&["--json", &program]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let parts = document["not_managed"].as_array().expect("a list");
    let bytes = |reason: &str| {
        let part = parts.iter().find(|part| part["reason"] == reason);
        part.map_or(0, |part| part["bytes"].as_u64().expect("a number"))
    };
    for reason in ["locked", "executable", "shared"] {
        assert_eq!(bytes(reason), EACH, "{reason}: {document:#}");
    }
    assert!(bytes("shared_file") >= EACH, "{document:#}");
    // Python itself is some of each.
    for reason in ["file", "written_file", "stack", "guarded", "coldpress"] {
        assert!(bytes(reason) > 0, "{reason}: {document:#}");
    }
    // An arena that has just begun.
    assert!(bytes("not_taken_in") < EACH, "{document:#}");
    let sizes: Vec<_> = parts.iter().map(|part| part["bytes"].as_u64()).collect();
    assert!(sizes.is_sorted_by(|one, other| one >= other), "{sizes:?}");
    assert!(document["managed"]["in_place_bytes"].as_u64() > Some(0), "{document:#}");
    assert!(document["process"]["pool_original_bytes"].as_u64() > Some(EACH), "{document:#}");

    let text = String::from_utf8(why(&[&program]).stdout).expect("text");
    for part in ["2 MiB  locked (mlock)", "of 32 MiB", "in place, not managed:", "[stack]"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let small = String::from_utf8(why(&[&shell.to_string()]).stdout).expect("text");
    assert!(small.contains("(sh)") && small.contains("is not managed: it joins"), "{small}");
    for (number, part) in [(keeper.to_string(), "no program"), ("1".into(), "in no coldpress run")]
    {
        let output = why(&[&number]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(part), "{said}");
    }
    scratch.write("end", b"");
    let run = live.finish(HANG);
    assert_eq!(String::from_utf8_lossy(&run.stdout), "ready\nwhole\n", "{}", run.stderr);
}
