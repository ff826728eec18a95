//! Risk: the timeline, the statistics, the line at the end and `coldpress ctl` tell different
//! stories of one run; or the statistics are not what their schema says, so that a program that
//! reads them by it fails.
//!
//! With the feature `schema`, which `make long` turns on, documents are checked against the schema.

use std::fs;
use std::process::Command;
use std::time::Duration;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live, Run};
use coldpress_tests::machine::{self, fixture, require};
use serde_json::Value;
#[cfg(feature = "schema")]
use serde_json::json;

/// Time limit for a program to reach its "ready", and to end.
const HANG: Duration = Duration::from_secs(60);
const BUDGET: Bytes = Bytes::mib(32);

/// Returns the schema, which here allows no key that it does not name: one that the documents have
/// and the schema has not is a mistake of ours.
fn schema() -> Value {
    fn close(schema: &mut Value) {
        if let Value::Object(members) = schema {
            if members.contains_key("properties") {
                members.insert("additionalProperties".to_owned(), false.into());
            }
            members.values_mut().for_each(close);
        } else if let Value::Array(values) = schema {
            values.iter_mut().for_each(close);
        }
    }
    let text = fs::read_to_string(machine::workspace_file("schema/stats-1.json"));
    let mut schema = serde_json::from_str(&text.expect("text")).expect("JSON");
    #[cfg(feature = "schema")]
    assert!(jsonschema::meta::is_valid(&schema), "the schema is none");
    close(&mut schema);
    schema
}

/// Returns the schema of one part of the document.
fn part(name: &str) -> Value {
    let mut part = schema();
    for key in ["type", "required", "properties", "additionalProperties"] {
        part.as_object_mut().expect("an object").remove(key);
    }
    part["$ref"] = format!("#/$defs/{name}").into();
    part
}

/// Returns what is wrong with a document.
#[cfg(feature = "schema")]
fn faults(schema: &Value, document: &Value) -> Vec<String> {
    let validator = jsonschema::draft202012::new(schema).expect("it is a schema");
    let errors = validator.iter_errors(document);
    errors.map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Returns whether a document lacks what each must have.
#[cfg(not(feature = "schema"))]
fn faults(schema: &Value, document: &Value) -> Vec<String> {
    let wanted = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let lacks = |name: &&str| document.get(*name).is_none();
    wanted.filter(lacks).map(|name| format!("no {name}")).collect()
}

fn assert_valid(schema: &Value, document: &Value) {
    assert_eq!(faults(schema, document), [""; 0]);
}

/// Returns a figure at all points of a timeline.
fn column<'a>(timeline: &'a Value, name: &str) -> &'a [Value] {
    let column = timeline["points"][name].as_array();
    column.unwrap_or_else(|| panic!("no figure {name}"))
}

/// Returns the events of a kind.
fn events<'a>(timeline: &'a Value, kind: &str) -> Vec<&'a Value> {
    let events = timeline["events"].as_array().expect("a list");
    events.iter().filter(|event| event["kind"] == kind).collect()
}

/// Asserts that all reports of a run agree.
fn assert_agree(run: &Run) {
    let document = run.stats().document();
    assert_valid(&schema(), document);
    let timeline = &document["timeline"];
    let points = timeline["points"].as_object().expect("an object");
    let count = column(timeline, "time_ns").len();
    assert!(count >= 1, "the end is missing");
    let mut compared = 0;
    for (name, values) in points {
        let values = values.as_array().expect("a list");
        assert_eq!(values.len(), count, "{name}");
        if let Some(total) = document.get(name) {
            assert_eq!(values.last(), Some(total), "{name} at the end");
            compared += 1;
        }
    }
    assert!(compared >= 17, "{compared} figures are in both");
    let number = |value: &Value| value.as_u64().expect("a number");
    for at in 0..count {
        let value = |name| number(&column(timeline, name)[at]);
        let later = |name| at == 0 || value(name) >= number(&column(timeline, name)[at - 1]);
        for name in ["time_ns", "faults", "swap_out_pages", "stall_ns", "peak_bytes"] {
            assert!(later(name), "{name} falls at point {at}");
        }
        assert!(value("used_bytes") <= value("peak_bytes"), "point {at}");
        assert!(value("pool_compressed_bytes") <= value("pool_held_bytes"), "point {at}");
        let kinds = value("first_touch_faults") + value("limbo_faults") + value("major_faults");
        assert!(kinds <= value("faults") + value("copy_faults"), "point {at}");
    }
    let (stored, faults) = (&document["swap_out_pages"], &document["faults"]);
    let stalled = number(&document["stall_ns"]) as f64 / 1e9;
    let line = if number(stored) == 0 {
        "no page had to be compressed".to_owned()
    } else {
        let ratio = document["ratio"].as_f64().expect("a ratio");
        let written = &document["written_back_pages"];
        // The ratio of the document is rounded to three digits, and that of the line to two.
        let begin = format!("{stored} pages compressed ");
        assert!(run.stderr.contains(&begin), "{begin} is not in {}", run.stderr);
        let told = run.stderr.split(&begin).nth(1).and_then(|rest| rest.split(' ').next());
        let told: f64 = told.and_then(|told| told.parse().ok()).expect("a ratio");
        assert!((told - ratio).abs() <= 0.0056, "{told} {ratio}");
        format!(" to 1, {written} written to disk, {faults} faults, stalled {stalled:.2} s")
    };
    assert!(run.stderr.contains(&line), "{line} is not in {}", run.stderr);
}

/// Returns the figures of the processes of a timeline by name, of which each has some moments.
fn processes(timeline: &Value) -> Vec<(&str, &serde_json::Map<String, Value>)> {
    let all = timeline["processes"].as_array().expect("a list").iter();
    let all = all.map(|process| {
        let points = process["points"].as_object().expect("an object");
        let counts = points.values().map(|values| values.as_array().map_or(0, Vec::len));
        let counts: Vec<_> = counts.collect();
        assert!(counts[0] > 0 && counts.iter().all(|count| *count == counts[0]), "{process}");
        (process["name"].as_str().expect("text"), points)
    });
    all.collect()
}

/// Runs `coldpress ctl` on a run.
fn ctl(live: &Live, words: &[&str]) -> String {
    let (command, root) = (machine::coldpress(), live.root().to_string());
    let output = Command::new(command).args(["ctl", &root]).args(words).output();
    let output = output.expect("the command is built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_tight_run_tells_one_story_everywhere() {
    let Some(python) = require("python3") else { return };
    let job = Job::new("hold", python).arg(fixture("hold.py")).args(["private", "64", "12"]);
    let live = Live::start(&job, Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    ctl(&live, &["set", "memory=36M", "codec=lz4"]);
    let timeline: Value = serde_json::from_str(&ctl(&live, &["timeline"])).expect("JSON");
    assert_valid(&part("timeline"), &timeline);
    assert_eq!(events(&timeline, "budget")[0]["bytes"], 36 << 20);
    assert_eq!(events(&timeline, "knobs")[0]["text"], "memory=36M codec=lz4");
    assert_eq!(events(&timeline, "joined").len(), 1);
    let run = live.finish(HANG);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_agree(&run);
    let whole = &run.stats().document()["timeline"];
    // What was there in the middle is there at the end.
    let seen = column(&timeline, "faults").len();
    assert_eq!(column(&timeline, "faults"), &column(whole, "faults")[..seen]);
    assert_eq!((events(whole, "joined").len(), events(whole, "left").len()), (1, 1));
    let most = |name| column(whole, name).iter().filter_map(Value::as_u64).max().expect("points");
    assert!(most("resident_bytes") > 8 << 20 && most("limbo_bytes") > 1 << 20);
    assert!(most("pool_original_bytes") > most("pool_held_bytes"), "it compresses");
    assert_eq!([most("shared_bytes"), most("copy_faults")], [0, 0]);
    let processes = processes(whole);
    assert_eq!(processes.len(), 1);
    let (name, figures) = processes[0];
    assert!(name.starts_with("python"), "{name}");
    let own = |name: &str| figures[name].as_array().expect("a list").iter().map(Value::as_u64);
    for name in ["resident_bytes", "pool_original_bytes", "major_faults", "stall_ns"] {
        let least = own(name).max().flatten().expect("moments");
        assert!(least > 0 && least <= most(name), "{name}: {least} of {}", most(name));
    }
    for at in 0..column(whole, "time_ns").len() {
        let value = |name| column(whole, name)[at].as_u64().expect("a number");
        let own = ["resident_bytes", "limbo_bytes", "pool_held_bytes"].map(value);
        // What a process tells of its parts is a moment older or newer than of the sum.
        assert!(own.iter().sum::<u64>() <= value("used_bytes") + (4 << 20), "point {at}");
    }
}

#[test]
fn runs_of_other_kinds_tell_one_story_too() {
    let Some(python) = require("python3") else { return };
    let fits = Job::new("fits", "true");
    let forks = "echo warm; for word in a b c; do (echo $word); done | sort";
    let forks = Job::new("forks", "sh").args(["-c", forks]);
    let shares = ["memfd", "40", "1", "0"];
    let shares = Job::new("shares", python).arg(fixture("shared.py")).args(shares);
    for job in [fits, forks, shares] {
        let run = job.managed(BUDGET);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_agree(&run);
        let timeline = &run.stats().document()["timeline"];
        if run.name == "shares" {
            let most = column(timeline, "shared_bytes").iter().filter_map(Value::as_u64).max();
            assert!(most.is_some_and(|most| most >= 40 << 20), "{most:?}");
            let warnings = events(timeline, "warning");
            let told = |it: &&&Value| it["text"].as_str().is_some_and(|it| it.contains("shared"));
            assert_eq!(warnings.iter().filter(told).count(), 1, "{warnings:?}");
        }
    }
}

#[cfg(feature = "schema")]
#[test]
fn a_document_that_is_wrong_is_found() {
    let run = Job::new("true", "true").managed(BUDGET);
    let right = run.stats().document();
    assert_valid(&schema(), right);
    for (wrong, pointer, value) in [
        ("a negative count", "/faults", json!(-1)),
        ("a text in place of a number", "/timeline/points/faults/0", json!("1")),
        ("an event of no kind", "/timeline/events", json!([{ "time_ns": 1, "kind": "x" }])),
        ("another version", "/schema", json!(2)),
    ] {
        let mut document = right.clone();
        *document.pointer_mut(pointer).expect("it is there") = value;
        assert!(!faults(&schema(), &document).is_empty(), "{wrong}");
    }
    let mut document = right.clone();
    document["zswap"]["frobs"] = 1.into();
    assert_eq!(faults(&schema(), &document).len(), 1);
}
