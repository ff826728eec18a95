//! The risk: a recorded trace that cannot be replayed, that is missing when the run is over, or a
//! program that suffers from being recorded. The method: real runs of the command, whose traces the
//! benchmark reads and replays on an allocator that checks itself.

use std::fs;
use std::path::Path;
use std::process::Output;

use coldpress_mem::frames::Mobility;
use coldpress_mem::frames::trace::{EVENT_BYTES, Event, HEAD};

mod common;

use common::{BENCH, can_manage, coldpress, command, stderr};

/// The number of programs that the benchmark runs at once.
const PROGRAMS: usize = 7;

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

/// Returns the events of a trace.
fn read(path: &Path) -> Vec<Event> {
    let bytes = fs::read(path).expect("the trace is there");
    let (words, rest) = bytes.strip_prefix(&HEAD).expect("the head").as_chunks::<EVENT_BYTES>();
    assert!(rest.is_empty(), "{} ends within an event", path.display());
    let event = |word| Event::decode(u32::from_le_bytes(word)).expect("an event");
    words.iter().copied().map(event).collect()
}

/// Replays the trace at `path`, which has `events`, with one zone and with two. The replay refuses
/// a trace that makes no sense, and checks the allocator at its end.
fn replay(path: &Path, events: &[Event]) {
    let mut bench = command(&["frames", "--part", "huge", "--quick", "--rounds", "1", "--json"]);
    let output = bench.arg("--trace").arg(path).output().expect("the command is built");
    assert!(output.status.success(), "{}: {}", path.display(), stderr(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one document");
    let huge = &found["frames"]["huge"];
    assert_eq!(huge["events"], PROGRAMS * events.len());
    for zones in ["one_zone", "two_zones"] {
        for course in huge[zones].as_array().expect("a list") {
            assert_eq!(course["refused"], 0, "{zones}: {course}");
        }
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
    let events = read(&path);
    // 48 MiB of pages that compress 2.5 to 1 do not fit 32 MiB without some 8 MiB of frames.
    let easy = |event: &&Event| {
        matches!(event, Event::Alloc { mobility: Mobility::EasyReclaim, order: 0, .. })
    };
    assert!(events.iter().filter(easy).count() > 2000, "{}", events.len());
    assert!(events.iter().any(|event| matches!(event, Event::Free { .. })));
    replay(&path, &events);
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
        let path = directory.path().join(name);
        let events = read(&path);
        assert!(!events.is_empty(), "{name}");
        replay(&path, &events);
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
    let events = read(&path);
    assert_eq!(events.len(), (2048 - 16) / 4);
    replay(&path, &events);
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
