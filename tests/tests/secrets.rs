//! Risk: what a program holds in memory can be read on the disk.
//!
//! A job marks each of its pages, most of which go to the disk. Meanwhile the test reads the
//! unnamed file, as an attacker with the disk in hand would. zswap's own tests show that pages
//! would be readable there if they were not encrypted.

use std::fs;
use std::time::Duration;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{Scratch, fixture, require};
use coldpress_tests::watch;

/// A word that occurs only in this test.
const MARK: &str = "coldpress:4d1f0c7e:tell-nobody";
/// Data of the job, and its budget.
const DATA_MIB: &str = "64";
const BUDGET: Bytes = Bytes::mib(32);
/// Fewest bytes of the data that must be in the file.
const WRITTEN_MIN: usize = 16 << 20;
/// Time limit for a program to reach its "ready", on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
const END_MAX: Duration = Duration::from_secs(120);

/// Returns whether `bytes` hold `word`.
fn holds(bytes: &[u8], word: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| byte == word[0]) {
        rest = &rest[at..];
        if rest.starts_with(word) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// Returns the bytes of the unnamed file that only the service of a process below `root` has open.
fn spill_of(root: u32) -> Vec<u8> {
    let (_, service) = watch::find_service(root).expect("it is managed");
    let descriptors = fs::read_dir(format!("/proc/{service}/fd"));
    let descriptors = descriptors.expect("it lives as long as the program");
    let is_spill = |path: &std::path::PathBuf| {
        let target = fs::read_link(path).unwrap_or_default();
        let target = target.to_string_lossy();
        target.starts_with("/var/tmp/") && target.ends_with("(deleted)")
    };
    let paths: Vec<_> = descriptors.flatten().map(|entry| entry.path()).filter(is_spill).collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
    fs::read(&paths[0]).expect("who may look at a process may read its files")
}

#[test]
fn no_page_can_be_read_in_the_file() {
    let Some(python) = require("python3") else { return };
    let scratch = Scratch::new("secrets");
    let go = scratch.path("go");
    let job = Job::new("secrets", python)
        .arg(fixture("marked.py"))
        .args([MARK, DATA_MIB])
        .arg(&go)
        .options(["--disk", "/var/tmp", "--max-pool-percent", "5"]);
    let live = Live::start(&job, Some(BUDGET));
    live.wait_for_output("ready\n", READY_MAX);
    let mut file = spill_of(live.root());
    let written = file.iter().filter(|&&byte| byte != 0).count();
    println!("{written} of {} bytes of the file are not zero", file.len());
    assert!(written > WRITTEN_MIN, "too little was written to tell");
    assert!(!holds(&file, MARK.as_bytes()), "a page lies on the disk as it is");
    file.extend_from_slice(MARK.as_bytes());
    assert!(holds(&file, MARK.as_bytes()), "the search finds nothing anywhere");
    fs::write(&go, "").unwrap();
    let run = live.finish(END_MAX);
    println!("{run}");
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout, b"ready\nchecked 16384\n");
    assert!(run.stats().count("read_back_pages") > 1000, "{}", run.stderr);
}
