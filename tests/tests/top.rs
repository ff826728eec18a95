//! Risk: `coldpress top` shows other figures than the run has, changes a run unasked, or leaves a
//! terminal behind that cannot be used.

use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{self, Scratch, fixture, require};
use coldpress_tests::terminal::Terminal;
use serde_json::Value;

/// Time limit for whatever comes within a second on a machine that is not busy.
const HANG: Duration = Duration::from_secs(60);
const BUDGET: Bytes = Bytes::mib(32);
/// What the last line says while nothing is asked.
const KEYS: &str = "h help q quit b budget s knob t thaw enter fold < > sort r reverse";

/// A program with a child that do not fit, and rest.
struct Family {
    live: Live,
    scratch: Scratch,
}

impl Family {
    fn start() -> Option<Self> {
        let scratch = Scratch::new("top");
        let words = [scratch.path("end").into_os_string(), "40".into(), "24".into()];
        let job = Job::new("family", require("python3")?).arg(fixture("family.py")).args(words);
        let live = Live::start(&job, Some(BUDGET));
        live.wait_for_output("ready\n", HANG);
        Some(Self { live, scratch })
    }

    fn root(&self) -> String {
        self.live.root().to_string()
    }

    fn top(&self, environment: &[(&str, &str)]) -> Terminal {
        let words = ["top", "--interval", "0.2", &self.root()].map(str::to_owned);
        Terminal::run(machine::coldpress(), words, environment, (80, 24))
    }

    fn get(&self, name: &str) -> String {
        let output = coldpress(&["ctl", &self.root(), "get", name]);
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// Lets the programs end, which must not have noticed anything.
    fn finish(self) {
        self.scratch.write("end", b"");
        let run = self.live.finish(HANG);
        assert_eq!(String::from_utf8_lossy(&run.stdout), "ready\nwhole\n", "{}", run.stderr);
        run.assert_stored();
    }
}

fn coldpress(words: &[&str]) -> Output {
    Command::new(machine::coldpress()).args(words).output().expect("the command is built")
}

fn document(words: &[&str]) -> Value {
    let output = coldpress(words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

/// Returns a screen with "#" in place of each figure, without bars, and with single spaces.
fn masked(screen: &str) -> Vec<String> {
    let is_bar = |word: &str| word.chars().all(|it| ('\u{2581}'..='\u{2588}').contains(&it));
    let is_figure = |it: char| it.is_ascii_digit() || matches!(it, '.' | 'K' | 'M' | 'G');
    let mask = |word: &str| {
        let mut masked = word.replace(is_figure, "#");
        while masked.contains("##") {
            masked = masked.replace("##", "#");
        }
        masked
    };
    let line = |line: &str| {
        let words = line.split_whitespace().filter(|word| !is_bar(word));
        words.map(mask).collect::<Vec<_>>().join(" ")
    };
    screen.lines().map(line).filter(|line| !line.is_empty()).collect()
}

/// Returns the lines of a screen of 80 by 24 whose rows are `rows`.
fn wanted(rows: &[&str], last: &str) -> Vec<String> {
    let head = [
        "coldpress top: # run, # processes",
        "program pid USED budget original compr# ratio disk faults/s stall%",
    ];
    let minutes = ["python# (#), the last # minutes:", "used # of #", "faults/s #", "stall% #"];
    let end = ["not seen: other network name spaces", last];
    let all = head.iter().chain(rows).chain(&minutes).chain(&end);
    all.map(|line| (*line).to_owned()).collect()
}

#[test]
fn the_screen_shows_the_tree_and_keys_change_what_they_say() {
    let Some(family) = Family::start() else { return };
    let mut top = family.top(&[]);
    let run = "- python# # # # # # # # # #";
    let (parent, child) = ("- python# # # # # # # # #", "python# # # # # # # # #");
    let tree = wanted(&[run, parent, child], KEYS);
    top.wait_for(HANG, |screen| masked(screen) == tree);
    // Bars come when the run is some seconds old.
    top.wait_for(HANG, |_| top.has_colours());
    // The cursor keys, as a terminal sends them: down, left.
    top.press("\x1b[B\x1b[D");
    let folded = wanted(&[run, &parent.replacen('-', "+", 1)], KEYS);
    top.wait_for(HANG, |screen| masked(screen) == folded);
    top.press("\x1b[C>");
    let is_by_budget =
        |screen: &str| screen.contains("BUDGET") && masked(screen).len() == tree.len();
    top.wait_for(HANG, is_by_budget);

    // Only the right answer changes the budget.
    top.press("b48M\r");
    top.wait_for(HANG, |screen| screen.contains("set memory=48M for run"));
    top.press("n");
    top.wait_for(HANG, |screen| screen.contains("nothing was changed"));
    assert_eq!(family.get("budget_bytes"), BUDGET.0.to_string());
    top.press("xb48M\ry");
    top.wait_for(HANG, |screen| screen.contains("has memory=48M now"));
    assert_eq!(family.get("budget_bytes"), Bytes::mib(48).0.to_string());
    top.wait_for(HANG, |screen| screen.contains(" of 48M"));
    // The keeper says itself what is wrong.
    top.press("xb1K\ry");
    top.wait_for(HANG, |screen| screen.contains("16 MiB"));
    top.press("xscodec=lzo\ry");
    top.wait_for(HANG, |screen| screen.contains("has codec=lzo now"));
    assert_eq!(family.get("codec"), "lzo");

    top.press("xty");
    top.wait_for(HANG, |screen| screen.contains("has thawed=on now"));
    assert_eq!(family.get("thawed"), "on");
    top.press("x");
    top.wait_for(HANG, |screen| screen.contains(" 0 ") && !screen.contains("thawed=on"));
    top.press("ty");
    top.wait_for(HANG, |screen| screen.contains("has thawed=off now"));
    top.press("xh");
    top.wait_for(HANG, |screen| screen.contains("Any key goes back"));
    top.press("x");
    top.press("q");
    assert!(top.finish(HANG).success());
    family.finish();
}

#[test]
fn a_terminal_of_another_size_or_without_colours_shows_it_too() {
    let Some(family) = Family::start() else { return };
    let mut top = family.top(&[("NO_COLOR", "1"), ("LC_ALL", "C")]);
    let has_bars = |line: &str| line.starts_with("used") && line.contains(['#', '*', '+', '=']);
    top.wait_for(HANG, |screen| screen.lines().any(has_bars));
    assert!(!top.has_colours());
    top.resize((60, 15));
    let small = "program USED budget original ratio faults/s stall%";
    let is_small = |screen: &str| {
        let lines = masked(screen);
        lines.len() == 7 && lines[1] == small && screen.is_ascii()
    };
    top.wait_for(HANG, is_small);
    top.resize((80, 24));
    top.wait_for(HANG, |screen| screen.contains("the last 3 minutes"));
    top.press("\x03");
    assert!(top.finish(HANG).success());

    let ended = family.top(&[]);
    ended.wait_for(HANG, |screen| screen.contains("q quit"));
    family.finish();
    ended.wait_for(HANG, |screen| screen.contains("the run has ended"));
    assert!(ended.finish(HANG).success());
}

#[test]
fn a_signal_leaves_a_terminal_that_can_be_used() {
    let Some(family) = Family::start() else { return };
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let top = family.top(&[]);
        top.wait_for(HANG, |screen| screen.contains("q quit"));
        machine::signal(signal, &[top.process()]);
        let status = top.finish(HANG);
        let ended_by = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(ended_by, Some(number), "{status}");
    }
    family.finish();
}

/// Returns the sum of a figure over all processes of a run.
fn sum(run: &Value, name: &str) -> u64 {
    let tree = run["tree"].as_array().expect("a list of processes");
    tree.iter().filter_map(|process| process[name].as_u64()).sum()
}

#[test]
fn scripts_get_the_figures_of_ctl() {
    let Some(family) = Family::start() else { return };
    let root = family.root();
    let (mut run, begun) = (Value::Null, Instant::now());
    // What rests may still become denser, or be written to disk.
    let mut before = document(&["ctl", &root, "--json", "get"]);
    loop {
        let looked = document(&["top", "--json", "--interval", "0.1", &root]);
        let after = document(&["ctl", &root, "--json", "get"]);
        if after["held"] == before["held"] && after["used_bytes"] == before["used_bytes"] {
            run.clone_from(&looked["runs"][0]);
            assert_eq!(looked["not_shown"], Value::Array(Vec::new()));
            break;
        }
        assert!(begun.elapsed() < HANG, "it does not come to rest");
        before = after;
        thread::sleep(Duration::from_millis(50));
    }
    let held = |name: &str| before["held"][name].as_u64().expect("a number");
    for (ours, theirs) in [
        ("pool_original_bytes", held("in_pool_pages") * 4096),
        ("pool_compressed_bytes", held("pool_bytes")),
        ("disk_held_bytes", held("slots_used") << 16),
        ("resident_bytes", held("resident_pages") * 4096),
        ("saved_bytes", held("saved_bytes")),
    ] {
        assert_eq!(run[ours], theirs, "{ours}");
        assert_eq!(sum(&run, ours), theirs, "{ours} over all processes");
    }
    for name in ["used_bytes", "budget_bytes", "peak_bytes", "ratio", "processes", "swap_out_pages"]
    {
        assert_eq!(run[name], before[name], "{name}");
    }
    assert!(sum(&run, "used_bytes") <= run["used_bytes"].as_u64().expect("a number"));
    assert!(run["pool_ratio"].as_f64().expect("a ratio") > 2.0, "{run}");
    assert_eq!(run["faults_per_second"], 0.0);
    let tree = run["tree"].as_array().expect("a list");
    let by_parent = |one: &Value, other: &Value| one["parent"] == other["process"];
    assert!(tree.len() == 2 && by_parent(&tree[0], &tree[1]) != by_parent(&tree[1], &tree[0]));
    assert!(tree.iter().all(|process| process["managed"] == true), "{run}");

    // Among all runs of the machine, of which others may begin and end meanwhile.
    let all = document(&["top", "--json", "--interval", "0.1"]);
    let keepers = |all: &Value| -> Vec<u64> {
        let runs = all["runs"].as_array().expect("a list").iter();
        runs.filter_map(|run| run["keeper"].as_u64()).collect()
    };
    let keeper = family.keeper();
    assert!(keepers(&all).contains(&keeper), "{keeper} is not in {all}");
    let once = coldpress(&["top", "--once", "--interval", "0.1", &root]);
    let text = String::from_utf8(once.stdout).expect("text");
    let lines = masked(&text);
    assert_eq!(lines.len(), 5, "{text}");
    assert_eq!(lines[1], "- python# # # # # # # # # #");
    assert_eq!(lines[4], "not seen: other network name spaces");
    family.finish();
}

impl Family {
    /// Returns the process that leads the run: the launcher's only child.
    fn keeper(&self) -> u64 {
        let root = self.live.root();
        let children = fs::read_to_string(format!("/proc/{root}/task/{root}/children"));
        children.expect("it runs").trim().parse().expect("one child")
    }
}

#[test]
fn a_keeper_that_is_stopped_is_told_of() {
    let Some(family) = Family::start() else { return };
    let keeper = family.keeper();
    let number = u32::try_from(keeper).expect("a process");
    let mut top = family.top(&[]);
    top.wait_for(HANG, |screen| screen.contains("1 run, 2 processes"));
    machine::signal("STOP", &[number]);
    let all = document(&["top", "--json", "--interval", "0.1"]);
    let not_shown = all["not_shown"].as_array().expect("a list");
    let told = not_shown.iter().find(|run| run["keeper"] == keeper).expect("it is told of");
    assert!(told["why"].as_str().expect("text").contains("no answer"), "{told}");
    let once = coldpress(&["top", "--once", "--all", "--interval", "0.1"]);
    let text = String::from_utf8(once.stdout).expect("text");
    let is_listed = |line: &str| line.contains(&keeper.to_string()) && line.contains("no answer");
    assert!(text.lines().any(is_listed), "{text}");
    let one = coldpress(&["top", "--once", &family.root()]);
    assert_eq!(one.status.code(), Some(1), "{one:?}");
    top.wait_for(HANG, |screen| screen.contains("(run)") && screen.contains("the keeper, process"));
    machine::signal("CONT", &[number]);
    top.press("q");
    assert!(top.finish(HANG).success());
    family.finish();
}

#[test]
fn a_run_is_followed_when_the_process_that_named_it_has_ended() {
    let scratch = Scratch::new("followed");
    let (end, number) = (scratch.path("end"), scratch.path("number"));
    let script = format!(
        "sleep 1000 & echo $! >{}; echo ready; while [ ! -e {} ]; do sleep 0.1; done",
        number.display(),
        end.display()
    );
    let live = Live::start(&Job::new("followed", "sh").args(["-c", &script]), Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    let named = fs::read_to_string(number).expect("the shell has written it");
    let named = named.trim();
    let words = ["top", "--interval", "0.2", named].map(str::to_owned);
    let top = Terminal::run(machine::coldpress(), words, &[], (80, 24));
    top.wait_for(HANG, |screen| screen.contains(named) && screen.contains("1 run"));
    machine::signal("KILL", &[named.parse().expect("a number")]);
    top.wait_for(HANG, |screen| !screen.contains(named) && screen.contains("1 run"));
    scratch.write("end", b"");
    assert_eq!(live.finish(HANG).stdout, b"ready\n");
    top.wait_for(HANG, |screen| screen.contains("the run has ended"));
    assert!(top.finish(HANG).success());
}

#[test]
fn what_cannot_be_shown_is_said() {
    for (words, status, parts) in [
        (&["top"][..], 1, &["no terminal", "--once"][..]),
        (&["top", "--once", "1"], 1, &["process 1 (", "is in no coldpress run"]),
        (&["top", "--json", "4194304"], 1, &["there is no process 4194304"]),
        (&["top", "--once", "--interval", "0"], 2, &["0.1 to 3600"]),
        (&["top", "--all", "7"], 2, &["cannot be used with"]),
    ] {
        let output = coldpress(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{words:?}: {said}");
    }
    let words = ["top"].map(str::to_owned);
    let dumb = Terminal::run(machine::coldpress(), words, &[("TERM", "dumb")], (80, 24));
    dumb.wait_for(HANG, |screen| screen.contains("--once"));
    assert_eq!(dumb.finish(HANG).code(), Some(1));
}
