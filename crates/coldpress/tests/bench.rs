//! The risk: a benchmark that ends with an error after minutes, or counts that differ from run to
//! run. The method: the command with little work; no time is judged.

use std::fs;
use std::process::Command;

use serde_json::Value;

/// The JSON of `coldpress bench` with `args`.
fn bench(args: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coldpress"));
    command.arg("bench").args(args).args(["--small", "--rounds", "1", "--json"]);
    let output = command.output().expect("the command is built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one document")
}

fn length(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

#[test]
fn slab_measures_every_work_with_each_allocator() {
    let found = bench(&["slab"]);
    let works = found["slab"]["works"].as_array().expect("a list");
    assert_eq!(works.len(), 17);
    for work in works {
        for name in ["slab", "malloc", "nothing"] {
            assert!(work["ns"][name]["median"].as_f64() > Some(0.0), "{work}");
        }
    }
}

#[test]
fn frames_measures_every_part() {
    let found = bench(&["frames"]);
    let frames = &found["frames"];
    assert_eq!(length(&frames["order-0"]["works"]), 5);
    assert_eq!(length(&frames["descriptors"]["ns"]), 4);
    let reserved = &frames["descriptors"]["reserved_bytes_for_1_tib"];
    assert_eq!(
        *reserved,
        serde_json::json!([16_u64 << 30, 14_u64 << 30, 8_u64 << 30, 2_u64 << 30])
    );
    if let Some(misses) = frames["descriptors"].get("misses") {
        let instructions = misses[0]["instructions"].as_array().expect("a list");
        assert!(instructions.iter().all(|count| count.as_u64() > Some(0)), "{misses}");
    }
    assert!(frames["huge"]["two_zones"][0]["during"]["blocks"].is_u64());
}

#[test]
fn counts_of_huge_pages_follow_from_the_traces_alone() {
    let [one, two] = [(); 2].map(|()| bench(&["frames", "--part", "huge"]));
    for key in ["blocks", "core_blocks", "events", "one_zone", "two_zones"] {
        assert_eq!(one["frames"]["huge"][key], two["frames"]["huge"][key], "{key}");
    }
}

#[test]
fn recorded_traces_are_replayed_and_others_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("one.frames");
    let path = file.to_str().expect("plain names");
    // Two frames are allocated, one of them core; the other one is freed.
    fs::write(&file, b"cpframes\x01\0\0\0\0\0\0\0\x41\0\0\0\x82\0\0\0\x80\0\0\0").expect("a file");
    let found = bench(&["frames", "--part", "huge", "--trace", path]);
    assert_eq!(found["frames"]["huge"]["events"], 21);
    fs::write(&file, b"cpframes\x02\0\0\0\0\0\0\0").expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_coldpress"));
    let output = command.args(["bench", "frames", "--part", "huge", "--trace", path]).output();
    let output = output.expect("the command is built");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("one.frames") && words.contains("no trace of frames"), "{words}");
}
