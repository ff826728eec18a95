//! The risk: hours of work end without a report because its name was wrong; or a file that is no
//! statistics makes a report all the same. Reports of real runs are in the system tests.

use std::fs;
use std::path::Path;

mod common;

use common::{assert_fails, coldpress, stdout};

/// Statistics of which reports are made in unit tests.
const EXAMPLE: &str = include_str!("../src/report/example.json");

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

#[test]
fn a_name_that_cannot_be_written_is_known_before_the_program_starts() {
    let directory = tempfile::tempdir().unwrap();
    let (file, mark) = (directory.path().join("file"), directory.path().join("mark"));
    let run = |options: &[&str]| {
        let mut words = vec!["run", "--memory", "64M"];
        words.extend(options);
        words.extend(["--", "touch", text(&mark)]);
        coldpress(&words).output().expect("the command is built")
    };
    fs::write(&file, "kept").unwrap();
    let refused = run(&["--stats", text(&file), "--report", "/absent/report.html"]);
    assert_fails(&refused, 125, &["--report /absent/report.html", "a directory you may write to"]);
    let refused = run(&["--stats", text(&file), "--report", text(&file)]);
    assert_fails(&refused, 125, &["--stats and --report name one file", "name another"]);
    let link = directory.path().join("link");
    fs::hard_link(&file, &link).unwrap();
    let refused = run(&["--stats", text(&file), "--report", text(&link)]);
    assert_fails(&refused, 125, &["--stats and --report name one file", "name another"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    assert!(!mark.exists(), "the program has started");
}

#[test]
fn what_is_no_statistics_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stats.json");
    for (content, part) in [
        ("<html>", "no JSON"),
        ("[1]", "no \"schema\""),
        ("{}", "no \"schema\""),
        ("{\"schema\": 2}", "its schema is 2, and this reads 1"),
        ("{\"schema\": 1}", "missing field"),
        (&EXAMPLE.replace("\"faults\": 2000000", "\"faults\": \"many\""), "faults: invalid type"),
        (&EXAMPLE[..EXAMPLE.len() / 2], "EOF"),
    ] {
        fs::write(&path, content).unwrap();
        let output = coldpress(&["report", text(&path)]).output().unwrap();
        assert_fails(&output, 1, &[text(&path), part, "coldpress run --stats"]);
        assert_eq!(stdout(&output), "", "{content}");
    }
    let output = coldpress(&["report", "/absent.json"]).output().unwrap();
    assert_fails(&output, 1, &["cannot read /absent.json", "name a file"]);
    assert_fails(&coldpress(&["report"]).output().unwrap(), 2, &["STATS"]);
}

#[test]
fn a_page_that_cannot_be_written_is_a_failure_and_no_statistics_are_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stats.json");
    fs::write(&path, EXAMPLE).unwrap();
    let report = |page: &str| {
        coldpress(&["report", text(&path), "-o", page]).output().expect("the command is built")
    };
    assert_fails(&report("/absent/a.html"), 1, &["cannot write /absent/a.html", "name a file"]);
    assert_fails(&report("/dev/full"), 1, &["cannot write /dev/full", "room"]);
    assert_fails(&report(text(&path)), 1, &["would replace", "another"]);
    let link = directory.path().join("link");
    fs::hard_link(&path, &link).unwrap();
    assert_fails(&report(text(&link)), 1, &["would replace", "another"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), EXAMPLE);
}
