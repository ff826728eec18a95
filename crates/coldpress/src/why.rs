//! `coldpress why`: the memory of a process that stays in place, by the reason.
//!
//! The keeper knows whether the process is managed and what is away of it. What is registered for
//! faults, and what the rest is, the kernel says (`area`, `reason`).

mod area;
mod reason;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use coldpress_common::failure::{Failure, Result};
use coldpress_common::size::show;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use crate::args::WhyArgs;
use crate::broker::late::WORTH_IT;
use crate::control::{self, PROCESSES};
use crate::runs::Keeper;
use crate::text::printable;
use crate::{print, say};
use area::{Area, areas};
use reason::Reason;

/// The version of the document's keys.
const SCHEMA: u32 = 1;

/// Says why memory of a process stays. Exit status 1 when that fails.
pub(crate) fn why(args: &WhyArgs) -> ExitCode {
    match explain(args) {
        Ok(text) if print(&text) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            say(failure);
            ExitCode::FAILURE
        }
    }
}

fn explain(args: &WhyArgs) -> Result<String> {
    let number = args.process;
    let keeper = Keeper::of(number)?;
    let run = keeper.ask(&[PROCESSES.to_owned()], control::PATIENCE)?;
    let tree = run["tree"].as_array().map(Vec::as_slice).unwrap_or_default();
    let process = tree.iter().find(|it| it["process"] == number).ok_or_else(|| {
        let cause = match run["processes_left_out"].as_u64() {
            Some(1..) => format!("process {number} is not among the largest of its run"),
            _ => format!("process {number} is of the run, but no program that holds memory"),
        };
        Failure::ours(cause, "give the number of a program, which `coldpress top` lists")
    })?;
    let is_joined = process["joined"] == true;
    let areas = match is_joined {
        true => areas(&smaps(number)?),
        false => Vec::new(),
    };
    let kept = Kept::of(&areas);
    let document = document(&run, process, &kept);
    Ok(if args.json { format!("{document:#}\n") } else { lines(&document) })
}

fn smaps(process: u32) -> Result<String> {
    let path = format!("/proc/{process}/smaps");
    // Names of files need not be UTF-8.
    let text = fs::read(&path).map_err(|error| {
        let cause = format!("cannot read {path}: {error}");
        Failure::ours(cause, "run this as the user of the program, or as root")
    })?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Memory in place for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    bytes: u64,
    mappings: u64,
    /// The largest mapping, and what of it is in place.
    largest: (u64, String),
}

/// All memory of a process that is in place.
#[derive(Debug, Default)]
struct Kept {
    parts: BTreeMap<Reason, Part>,
    /// Bytes of managed mappings that relatives have too.
    shared: u64,
}

impl Kept {
    fn of(areas: &[Area]) -> Self {
        let mut kept = Self::default();
        for area in areas {
            for (reason, bytes) in Reason::of(area).into_iter().filter(|(_, bytes)| *bytes > 0) {
                let part = kept.parts.entry(reason).or_default();
                part.bytes += bytes;
                part.mappings += 1;
                if bytes > part.largest.0 {
                    let (start, end) = (area.range.start, area.range.end);
                    let name = printable(&area.name);
                    part.largest = (bytes, format!("{start:x}-{end:x} {name}").trim_end().into());
                }
                if reason == Reason::Managed {
                    kept.shared += area.shared;
                }
            }
        }
        kept
    }
}

fn document(run: &Value, process: &Value, kept: &Kept) -> Value {
    let managed = kept.parts.get(&Reason::Managed).map_or(0, |part| part.bytes);
    let mut others: Vec<_> =
        kept.parts.iter().filter(|(reason, _)| **reason != Reason::Managed).collect();
    others.sort_by_key(|(_, part)| std::cmp::Reverse(part.bytes));
    let others = others.into_iter().map(|(reason, part)| {
        json!({
            "reason": reason.key(), "text": reason.text(), "bytes": part.bytes,
            "mappings": part.mappings, "largest": part.largest.1, "largest_bytes": part.largest.0,
        })
    });
    json!({
        "schema": SCHEMA,
        "process": process,
        "run": {
            "used_bytes": run["used_bytes"], "budget_bytes": run["budget_bytes"],
            "knobs": run["knobs"],
        },
        "managed": { "in_place_bytes": managed, "shared_bytes": kept.shared },
        "not_managed": others.collect::<Value>(),
    })
}

/// Formats a number of bytes for people.
fn bytes(value: &Value) -> String {
    show(Bytes(value.as_u64().unwrap_or(0) as usize))
}

/// Formats the document for people.
fn lines(document: &Value) -> String {
    let (process, run) = (&document["process"], &document["run"]);
    let (number, name) = (&process["process"], process["name"].as_str().unwrap_or("?"));
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect("a string takes what is written");
    let held = bytes(&process["used_bytes"]);
    if process["joined"] != true {
        let why = process["why"].as_str().map_or_else(
            || match process["used_bytes"].as_u64() {
                Some(used) if used >= WORTH_IT.bytes().0 as u64 => {
                    "it is large enough, and about to join the run".to_owned()
                }
                _ => {
                    format!("it joins the run when it has grown to some {}", show(WORTH_IT.bytes()))
                }
            },
            |why| format!("it {why}"),
        );
        line(format!("process {number} ({name}) holds {held} and is not managed: {why}"));
        return text;
    }
    line(format!("process {number} ({name}) holds {held}, compressed pages included"));
    line(format!(
        "away: {} in limbo, {} in the pool ({} compressed), {} on disk",
        bytes(&process["limbo_bytes"]),
        bytes(&process["pool_original_bytes"]),
        bytes(&process["pool_compressed_bytes"]),
        bytes(&process["disk_original_bytes"]),
    ));
    let managed = &document["managed"];
    line(format!("in place, managed: {}", bytes(&managed["in_place_bytes"])));
    for reason in staying(run, managed) {
        line(format!("  {reason}"));
    }
    line("in place, not managed:".to_owned());
    for part in document["not_managed"].as_array().into_iter().flatten() {
        let (size, why) = (bytes(&part["bytes"]), part["text"].as_str().unwrap_or("?"));
        let largest = part["largest"].as_str().unwrap_or("?");
        let several = match part["mappings"].as_u64() {
            Some(1) | None => largest.to_owned(),
            Some(count) => format!("{count} mappings, the largest {largest}"),
        };
        line(format!("{size:>10}  {why}"));
        line(format!("            {several}"));
    }
    text
}

/// Returns why pages stay that might leave.
fn staying(run: &Value, managed: &Value) -> Vec<String> {
    let is = |knob: &str, value: &str| run["knobs"][knob] == value;
    let mut reasons = Vec::new();
    if is("thawed", "on") {
        reasons
            .push("all of it stays: the run is thawed (`coldpress ctl PID set thawed=off`)".into());
    }
    if is("enabled", "off") {
        reasons.push("none of it is compressed: the knob `enabled` is off".into());
    }
    if managed["shared_bytes"].as_u64() > Some(0) {
        let shared = bytes(&managed["shared_bytes"]);
        reasons.push(format!("{shared} are shared with relatives since a fork, and leave last"));
    }
    let (used, budget) = (bytes(&run["used_bytes"]), bytes(&run["budget_bytes"]));
    reasons.push(format!("the run holds {used} of {budget}; the longest untouched leaves first"));
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_summed_by_reason_the_largest_first() {
        let smaps = "1000-2000 rw-p 0 00:00 0 [stack]\nRss: 4 kB\nVmFlags: rd wr\n\
                     100000-200000 rw-p 0 00:00 0\nRss: 8 kB\nVmFlags: rd wr lo\n\
                     200000-300000 rw-p 0 00:00 0\nRss: 12 kB\nVmFlags: rd wr lo\n\
                     400000-500000 rw-p 0 00:00 0\nRss: 64 kB\nShared_Dirty: 16 kB\n\
                     VmFlags: rd wr um uw\n\
                     500000-600000 rw-p 0 00:00 0\nRss: 0 kB\nVmFlags: rd wr\n";
        let kept = Kept::of(&areas(smaps));
        let run = json!({
            "used_bytes": 5 << 20, "budget_bytes": 32 << 20,
            "knobs": { "thawed": "on", "enabled": "on" },
        });
        let process = json!({ "process": 7, "name": "job", "joined": true, "used_bytes": 1 << 20 });
        let document = document(&run, &process, &kept);
        let parts = document["not_managed"].as_array().unwrap();
        assert_eq!(parts.len(), 2);
        assert_eq!((&parts[0]["reason"], &parts[0]["bytes"]), (&json!("locked"), &json!(20 << 10)));
        assert_eq!(parts[0]["largest"], "200000-300000");
        assert_eq!(parts[1]["reason"], "stack");
        assert_eq!(document["managed"]["in_place_bytes"], 64 << 10);
        let text = lines(&document);
        for part in ["process 7 (job)", "thawed=off", "16 KiB are shared", "20 KiB  locked"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn a_process_that_is_not_managed_says_why() {
        let run = json!({});
        let mut process = json!({ "process": 7, "name": "job", "joined": false });
        let told = |process: &Value| lines(&document(&run, process, &Kept::default()));
        assert!(told(&process).contains("has grown to some 4 MiB"));
        process["used_bytes"] = json!(300 << 20);
        assert!(told(&process).ends_with("is large enough, and about to join the run\n"));
        process["why"] = json!("is static");
        assert!(told(&process).ends_with("is not managed: it is static\n"));
    }
}
