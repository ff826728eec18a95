//! The risk: a recorded trace that cannot be replayed, that is missing when the run is over, or a
//! program that suffers from being recorded. The method: real runs of the command, whose traces are
//! read and replayed on an allocator that checks itself.

use std::fs::{self, File};
use std::path::Path;
use std::process::Output;

use coldpress_bench::frames::Mobility;
use coldpress_bench::frames::replay::{Mix, Replay};
use coldpress_bench::frames::trace::{Event, Trace};
use coldpress_bench::ours;

mod common;

use common::{BENCH, can_manage, coldpress, stderr};

/// Runs `coldpress run --memory 32M --disk none --record PATH -- sh -c SCRIPT`, where `$job` fills
/// 48 MiB and touches pages at random.
fn record(path: &Path, script: &str) -> Output {
    let mut command = coldpress(&["run", "--memory", "32M", "--disk", "none", "--record"]);
    command.arg(path);
    command.args(["--", "sh", "-c", script]);
    let job = format!("{BENCH} workload fault --data 48M --accesses 3000");
    command.env("job", job).output().expect("the command is built")
}

/// Asserts that the job succeeded.
fn assert_worked(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(found["wrong_pages"], 0, "{found}");
}

fn read(path: &Path) -> Trace {
    let mut file = File::open(path).expect("the trace is there");
    Trace::read(&mut file).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replays `trace` with one zone and with two; the replay checks the allocator at its end.
fn replay(trace: &Trace) {
    let mix = Mix::new(&[trace, trace], 1);
    let (blocks, core) = mix.blocks();
    for core in [None, Some(core)] {
        let source = ours::zones(blocks, core).expect("address space");
        let course = Replay::new(&mix, &*source).course(&mix, true);
        assert_eq!(course.refused, 0);
    }
}

#[test]
fn a_run_leaves_a_trace_that_is_replayed() {
    if !can_manage() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    let output = record(&path, "exec $job");
    assert_worked(&output);
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    let trace = read(&path);
    // 48 MiB of pages that compress 2.5 to 1 do not fit 32 MiB without some 8 MiB of frames.
    let easy = |event: &&Event| {
        matches!(event, Event::Alloc { mobility: Mobility::EasyReclaim, order: 0, .. })
    };
    assert!(trace.events().iter().filter(easy).count() > 2000, "{}", trace.events().len());
    assert!(trace.events().iter().any(|event| matches!(event, Event::Free { .. })));
    replay(&trace);
}

#[test]
fn each_process_that_is_managed_has_a_trace() {
    if !can_manage() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    let output = record(&path, "$job > /dev/null && $job");
    assert_worked(&output);
    for name in ["trace", "trace.2"] {
        let trace = read(&directory.path().join(name));
        assert!(!trace.events().is_empty(), "{name}");
        replay(&trace);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    if !can_manage() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    // Four blocks of 512 bytes: reaching the limit of a file is treated like the end of the disk.
    let output = record(&path, "ulimit -f 4; exec $job");
    assert_worked(&output);
    let warnings = stderr(&output);
    let warnings: Vec<_> = warnings.lines().filter(|line| line.contains("warning")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("not recorded"), "{warnings:?}");
    assert_eq!(read(&path).events().len(), (2048 - 16) / 4);
}

#[test]
fn a_name_that_cannot_be_written_is_known_before_the_program_starts() {
    if !can_manage() {
        return;
    }
    for path in ["/absent/trace", "/dev/full", "/proc"] {
        let output = record(Path::new(path), "echo started");
        assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
        assert!(stderr(&output).contains(&format!("--record {path}")), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}
