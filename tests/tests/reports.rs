//! Risk: the report of a run tells another story than its statistics and the line at its end; a
//! browser cannot read it, or a program writes into it; or making it changes what the run returns.
//!
//! `make report-check` opens reports in a browser.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Proof, Run};
use coldpress_tests::machine::{self, Scratch, fixture, require};
use serde_json::Value;

const BUDGET: Bytes = Bytes::mib(32);

/// Returns what a page says, and asserts that nothing is wrong with it.
fn read(python: &Path, page: &[u8]) -> Value {
    let mut reader = Command::new(python)
        .arg(fixture("page.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    reader.stdin.take().expect("asked for above").write_all(page).expect("it reads");
    let output = reader.wait_with_output().expect("it ends");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["faults"], serde_json::json!([]), "the page is not well formed");
    said
}

/// Returns the only page of a run.
fn page_of(run: &Run) -> &[u8] {
    run.files[0].as_deref().expect("the report was written")
}

/// Returns a count with its digits in groups, as a report has it.
fn grouped(number: u64) -> String {
    let (thousands, rest) = (number / 1000, number % 1000);
    if thousands == 0 { rest.to_string() } else { format!("{},{rest:03}", grouped(thousands)) }
}

#[test]
fn a_report_says_what_the_statistics_say() {
    let Some(python) = require("python3") else { return };
    let scratch = Scratch::new("report");
    let page = scratch.path("report.html");
    let job = Job::new("hold", &python).arg(fixture("hold.py")).args(["private", "64", "4"]);
    let job = job.options(["--report".into(), page.clone().into_os_string()]).artefact(&page);
    let run = job.managed(BUDGET);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let said = read(&python, page_of(&run));
    let stats = run.stats();
    let tiles = &said["tiles"];
    assert_eq!(tiles["faults"], grouped(stats.count("faults")));
    assert_eq!(tiles["budget"], "32 MiB");
    assert_eq!(tiles["ratio"], format!("{:.2} to 1", stats.number("ratio")));
    assert_eq!(tiles["managed processes"], "1 of 1");
    let share = stats.count("stall_ns") as f64 / stats.count("wall_ns") as f64 * 100.0;
    let told = tiles["waiting for pages"].as_str().and_then(|told| told.strip_suffix(" %"));
    let told: f64 = told.and_then(|told| told.parse().ok()).expect("a part");
    assert!((told - share).abs() <= 0.51, "{told} {share}");
    assert!(said["verdict"][0].as_str().is_some_and(|it| it.starts_with("Ran in ")), "{said}");
    let (pictures, tables) = (said["pictures"].as_u64(), said["tables"].as_u64());
    assert!(pictures >= Some(8) && tables > pictures, "{pictures:?} {tables:?}");

    // The same page comes of the statistics alone.
    let statistics = scratch.write("stats.json", stats.document().to_string().as_bytes());
    let made = Command::new(machine::coldpress()).arg("report").arg(&statistics).output();
    let made = made.expect("the command is built");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(made.stdout == page_of(&run), "coldpress report makes another page");
    let other = scratch.path("other.html");
    let written = Command::new(machine::coldpress())
        .args(["report".as_ref(), statistics.as_os_str(), "-o".as_ref(), other.as_os_str()])
        .status();
    assert!(written.is_ok_and(|status| status.success()));
    assert!(fs::read(&other).expect("it is there") == made.stdout);
}

#[test]
fn a_report_is_written_when_the_program_fails_and_its_name_stays_text() {
    let Some(python) = require("python3") else { return };
    let scratch = Scratch::new("report-fails");
    let (page, name) = (scratch.path("report.html"), "<b onclick='1'>\"&amp;");
    let program = scratch.path(name);
    std::os::unix::fs::symlink(require("sh").expect("each system has one"), &program)
        .expect("the folder is ours");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [scratch.path("").as_os_str(), &path].join(std::ffi::OsStr::new(":"));
    let job = Job::new("fails", name).args(["-c", "exit 3"]).proof(Proof::Output);
    let job = job.environment("PATH", path);
    let job = job.options(["--report".into(), page.clone().into_os_string()]).artefact(&page);
    let run = job.managed(BUDGET);
    assert_eq!(run.code, 3, "{}", run.stderr);
    let said = read(&python, page_of(&run));
    let sentences = said["sentences"].as_array().expect("a list");
    let says = |words: &str| sentences.iter().any(|it| it.as_str().is_some_and(|it| it == words));
    assert!(says("The program ended with status 3."), "{said}");
    let text = String::from_utf8_lossy(page_of(&run)).into_owned();
    assert!(text.contains("&lt;b onclick='1'&gt;&quot;&amp;amp;"), "{text}");
    assert!(!text.contains("<b "), "{text}");
}

#[test]
fn a_report_without_room_leaves_the_exit_status_alone() {
    let job = Job::new("full", "/bin/sh").args(["-c", "exit 4"]).proof(Proof::Output);
    let run = job.options(["--report", "/dev/full"]).managed(BUDGET);
    assert_eq!(run.code, 4, "{}", run.stderr);
    assert_eq!(
        run.complaints(&["cannot write the report", "make room"]).len(),
        1,
        "{}",
        run.stderr
    );
}
