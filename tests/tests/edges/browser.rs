//! Chromium without a window, which has many processes and a sandbox of its own.

use std::path::Path;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live, Run};
use coldpress_tests::machine::{Scratch, is_root, require};
use coldpress_tests::matrix::{self, Lane, case};

use super::HANG;

/// A small budget; below, the memory that may be held within it.
const SMALL: Bytes = Bytes::mib(240);
const SMALL_HELD: Bytes = Bytes::mib(250);
const LARGE: Bytes = Bytes::mib(4096);

/// A page most of whose contents a script makes.
const PAGE: &str = "<!doctype html><html><body><div id=all></div><script>
const rows = [];
for (let i = 0; i < 20000; i++) {
  const row = document.createElement('p');
  row.textContent = 'row ' + i + ' ' + (i * 7919 % 1000);
  rows.push(row);
}
document.getElementById('all').append(...rows);
document.title = 'sum ' + rows.reduce((sum, row) => sum + row.textContent.length, 0);
</script></body></html>
";
/// Options for a machine without a network: the browser starts none of its network services.
const OPTIONS: &str = "--headless --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync";
/// A script that gives each run a folder of its own, because the browser keeps what it has learned.
const FRESH: &str =
    r#"HOME=$(mktemp -d -p "$0") && export HOME && exec "$@" --user-data-dir="$HOME/data""#;

/// Makes a job of Chromium behind `words`, which prints the page at the end.
fn browser(scratch: &Scratch, words: &[&str], options: &[&str]) -> Option<Job> {
    require("chromium")?;
    let page = scratch.write("page.html", PAGE.as_bytes());
    let url = format!("file://{}", page.display());
    let [first, rest @ ..] = words else { return None };
    let job = Job::new("chromium", *first).args(rest.iter().copied());
    let job = job.args(["sh", "-c", FRESH]).arg(scratch.path("")).arg("chromium");
    let job = job.args(OPTIONS.split_whitespace()).args(options.iter().copied());
    Some(job.arg("--dump-dom").arg(url).forks())
}

/// Asserts that the page is as without coldpress.
fn compare(job: &Job, budget: Bytes) -> Option<Run> {
    let plain = Live::start(job, None).finish(HANG);
    if plain.code != 0 || !String::from_utf8_lossy(&plain.stdout).contains("row 19999") {
        println!("skipped: without coldpress it ends with {}: {}", plain.code, plain.stderr);
        return None;
    }
    let run = Live::start(job, Some(budget)).finish(2 * HANG);
    println!("{run}");
    run.assert_same(&plain);
    Some(run)
}

fn as_root(budget: Bytes) -> Option<Run> {
    let scratch = Scratch::new("chromium");
    compare(&browser(&scratch, &["env"], &["--no-sandbox"])?, budget)
}

/// Checks all memory of the browser, by the shares of each process.
fn small() -> Option<()> {
    let run = as_root(SMALL)?;
    run.assert_stored();
    let peak = run.memory.peak_below;
    assert!(peak <= SMALL_HELD, "held {peak:?}, may be {SMALL_HELD:?}");
    Some(())
}

/// Runs the browser as nobody, where it makes name spaces for its processes, and filters for their
/// calls.
fn as_user() -> Option<()> {
    require("setpriv")?;
    assert!(Path::new("/bin/sh").exists());
    let scratch = Scratch::new("chromium");
    let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    compare(&browser(&scratch, &words, &[])?, LARGE).map(drop)
}

#[test]
fn browsers() {
    if !is_root() {
        return;
    }
    let cases = [
        case("as root without its sandbox, in 4G", Lane::Long, || as_root(LARGE).map(drop)),
        case("as root without its sandbox, in 240M", Lane::Long, small),
        case("as a user with its own sandbox", Lane::Long, as_user),
    ];
    matrix::run(&cases);
}
