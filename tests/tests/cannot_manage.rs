//! The risk: what docs/limits.md says of unmanaged programs and memory, and of forks, no longer
//! holds; or the user of such a program never hears of it.
//!
//! Each test checks the statements of one bullet there, as cases.

#[path = "cannot_manage/forks.rs"]
mod forks;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live, Run, SLACK};
use coldpress_tests::machine::{self, Scratch, find, fixture, is_root, require};
use coldpress_tests::matrix::{self, Lane, case};
use coldpress_tests::watch;

const BUDGET: Bytes = Bytes::mib(32);
/// MiB of one kind of memory that `floor` holds: more than the budget.
const FLOOR_MIB: u32 = 48;
/// MiB that `floor` holds besides, so that it is managed.
const MORE_MIB: u32 = 8;
/// Milliseconds for which `floor` holds its memory: first, long enough for a look; then, long
/// enough for the warning that the budget cannot be kept; last, for a run that waits for nothing.
const FLOOR_MS: &str = "1000";
const TOLD_MS: &str = "2000";
const BRIEF_MS: &str = "300";
/// Time limit of a run: longer, it hangs.
const HANG: Duration = Duration::from_secs(60);

/// Compiles `fixtures/floor.c` with `data_mib` MiB of written data. `None` with a printed line
/// where it cannot be compiled.
fn floor(scratch: &Scratch, data_mib: u32) -> Option<PathBuf> {
    compile_floor(scratch, &[&format!("-DDATA_MIB={data_mib}")])
}

fn compile_floor(scratch: &Scratch, flags: &[&str]) -> Option<PathBuf> {
    let program = scratch.path(format!("floor{}", flags.concat().replace('=', "-")));
    let mut command = Command::new(require("gcc")?);
    command.args(["-O1", "-pthread"]).args(flags);
    command.arg(fixture("floor.c")).arg("-o").arg(&program);
    let output = command.output().expect("it is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn output(run: &Run) -> String {
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// Prints a run, and asserts its status and the last line of its output.
fn assert_says(run: &Run, words: &str) {
    println!("{run}\n{}{}", output(run), run.stderr);
    let last = output(run).lines().last().unwrap_or_default().to_owned();
    assert!(run.code == 0 && last.contains(words), "{}: {last}; {}", run.code, run.stderr);
}

/// Asserts that more was in use than the budget and [`SLACK`], and that one line says so.
fn assert_passed_and_told(run: &Run) {
    let (budget, peak) = (run.budget.expect("a managed run"), run.stats().count("peak_bytes"));
    assert!(peak > (budget + SLACK).0 as u64, "a peak of {} MiB", peak >> 20);
    let told = run.complaints(&["warning", &format!("{} MiB", budget.0 >> 20), "cannot be kept"]);
    assert_eq!(told.len(), 1, "{}", run.stderr);
}

/// Returns the number between `words` and `unit` in a line of `text`.
fn number(text: &str, words: &str, unit: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.split_once(words));
    let mut found = lines.filter_map(|(_, rest)| rest.split_once(unit)?.0.parse().ok());
    found.next().unwrap_or_else(|| panic!("no {words:?} and {unit:?}: {text}"))
}

/// Runs a static program with a seccomp filter of its own below a managed one: it does not get the
/// library while it runs.
fn counts_with_a_filter() -> Option<()> {
    let scratch = Scratch::new("filter");
    let program = compile_floor(&scratch, &["-DDATA_MIB=1", "-static"])?;
    let filtered = env!("CARGO_BIN_EXE_filtered");
    // Nothing makes a call of this number.
    let script =
        format!("{filtered} --refuse 1000=1 {} private 64 {FLOOR_MS}; :", program.display());
    let run = Job::new("filter", "sh").args(["-c", &script]).managed(BUDGET);
    assert_says(&run, "0 wrong");
    let words = ["not managed: process", "held up to 64.", "it has a seccomp filter of its own"];
    assert_eq!(run.complaints(&words).len(), 1, "{}", run.stderr);
    assert!(run.stats().count("peak_bytes") >> 20 >= 64, "what it holds counts");
    Some(())
}

/// Runs a setuid program below a managed one: it keeps all of its memory resident. That memory
/// counts and is reported.
fn counts_with_the_rights_of_another() -> Option<()> {
    is_root().then_some(())?;
    let scratch = Scratch::new("setuid");
    let program = floor(&scratch, 1)?;
    for words in [["chown", "65534"], ["chmod", "4755"]] {
        let status = Command::new(words[0]).arg(words[1]).arg(&program).status();
        assert!(status.expect("coreutils").success(), "it is ours");
    }
    let job = |wait_ms: &str| {
        let script = format!("{} private 64 {wait_ms}; :", program.display());
        Job::new("setuid", "sh").args(["-c", &script])
    };
    let plain = job("0").plain();
    if !plain.stdout.starts_with(b"user 65534") {
        println!("skipped: {} is on a file system without setuid", program.display());
        return None;
    }
    let run = job(FLOOR_MS).managed(BUDGET);
    assert_says(&run, "0 wrong");
    let told = run.complaints(&["not managed: process", "held up to 64.", "is setuid"]);
    assert_eq!(told.len(), 1, "{}", run.stderr);
    assert!(run.stats().count("peak_bytes") >> 20 >= 64, "what it holds counts");
    assert_eq!(run.stats().count("swap_out_pages"), 0);
    Some(())
}

#[test]
fn programs_that_take_no_library_are_refused_or_told_of() {
    matrix::run(&[
        case("with a filter of its own, below another", Lane::Short, counts_with_a_filter),
        case("setuid, below another", Lane::Short, counts_with_the_rights_of_another),
    ]);
}

/// Eighteen processes hold 5 MiB each, one holds twice as much, and one holds too little.
#[test]
fn of_many_that_are_not_managed_sixteen_are_listed() {
    let scratch = Scratch::new("unmanaged");
    let Some(program) = floor(&scratch, 1) else { return };
    let start = |mib| {
        let program = program.display();
        format!("env -i COLDPRESS_SOCKET=none {program} private {mib} {FLOOR_MS} &")
    };
    let script = start(5).repeat(18) + &start(10) + &start(2) + " wait";
    let run = Job::new("unmanaged", "sh").args(["-c", &script]).managed(Bytes::mib(256));
    assert_eq!(run.code, 0, "{}", run.stderr);
    println!("{run}\n{}", run.stderr);
    assert_eq!(run.stats().count("unmanaged_processes"), 19);
    let list = run.stats().list("unmanaged");
    assert_eq!(list.len(), 16, "{list:?}");
    let mib = |at: usize| list[at]["most_bytes"].as_u64().expect("a number") >> 20;
    assert_eq!((mib(0), mib(1), mib(15)), (10, 5, 5), "{list:?}");
    let told =
        |key: &str| list.iter().all(|one| one[key].as_str().is_some_and(|text| !text.is_empty()));
    assert!(told("name") && told("why"), "{list:?}");
    let line = run.complaints(&["peak", "not managed: 19 processes", "held up to 10."]);
    assert_eq!(line.len(), 1, "{}", run.stderr);
}

/// Runs processes that join and wait, a count for each user in turn. Returns how many processes of
/// each user got in, and the run.
fn crowd(users: &[(u32, u32)]) -> Option<(Vec<u32>, Run)> {
    is_root().then_some(())?;
    let words = users.iter().flat_map(|(user, count)| [user.to_string(), count.to_string()]);
    let job = Job::new("crowd", require("python3")?).arg(fixture("seats.py")).args(words);
    let run = job.managed(Bytes::mib(2048));
    println!("{run}\n{}{}", output(&run), run.stderr);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let got = |line: &str| line.rsplit(' ').next()?.parse().ok();
    Some((output(&run).lines().filter_map(got).collect(), run))
}

/// Fills all seats with root's processes; a further one gets no seat.
fn all_for_root() -> Option<()> {
    let (got, run) = crowd(&[(0, 520)])?;
    assert_eq!(got, [512], "{}", run.stderr);
    assert_eq!(run.complaints(&["is not managed, as 512 others are"]).len(), 1, "{}", run.stderr);
    Some(())
}

/// Gives one user the most seats that it may have; then many users share the rest.
fn some_for_each_user() -> Option<()> {
    let (got, run) = crowd(&[(1001, 260), (1002, 70), (1003, 70), (1004, 70), (1005, 2), (0, 70)])?;
    assert_eq!(got, [256, 64, 64, 64, 0, 64], "{}", run.stderr);
    for (user, count) in [(1001, 256), (1002, 64), (1005, 0)] {
        let told = [&format!("user {user} is not managed"), &format!("as {count} of that user's")];
        assert_eq!(run.complaints(&told.map(String::as_str)).len(), 1, "{}", run.stderr);
    }
    Some(())
}

#[test]
fn of_too_many_processes_those_that_were_there_first_are_managed() {
    matrix::run(&[
        case("of root", Lane::Long, all_for_root),
        case("of many users", Lane::Short, some_for_each_user),
    ]);
}

/// Asserts what a process finds that shares the memory of an ended process, behind `words`.
fn outliving(words: &[&str], found: &str) -> Option<()> {
    let scratch = Scratch::new("outliving");
    let file = scratch.write("word", b"");
    let job = Job::new("outlives", env!("CARGO_BIN_EXE_outlives")).args(["clone", "64"]);
    let run = job.arg(&file).before(words.iter().copied()).managed(BUDGET);
    println!("{run}{}", run.stderr);
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.assert_stored();
    let begun = Instant::now();
    while fs::metadata(&file).expect("it was made").len() == 0 {
        assert!(begun.elapsed() < HANG, "it finds nothing");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read_to_string(&file).expect("as above"), found, "{words:?}");
    Some(())
}

/// Asserts the same for root of a container.
fn outliving_in(profile: &str, capabilities: &str, found: &str) -> Option<()> {
    is_root().then_some(())?;
    let profile = fixture(profile);
    let filtered = [env!("CARGO_BIN_EXE_filtered"), "--profile", profile.to_str()?];
    outliving(&[&filtered[..], &["--capabilities", capabilities]].concat(), found)
}

#[test]
fn memory_that_outlives_its_process_is_lost_where_nobody_may_ask_who_has_it() {
    let without = [env!("CARGO_BIN_EXE_without"), "unshare"];
    matrix::run(&[
        case("without unshare", Lane::Long, || outliving(&without, "sigbus")),
        case("as in Docker", Lane::Short, || {
            outliving_in("seccomp/docker.txt", "a80425fb", "sigbus")
        }),
        case("as in Podman", Lane::Long, || {
            outliving_in("seccomp/podman.txt", "800405fb", "right")
        }),
    ]);
}

/// Runs `floor` within the budget, on `mib` MiB of a kind and `more` private ones, behind a command
/// of the shell.
fn floor_of(before: &str, kind: &str, [mib, more]: [u32; 2], wait_ms: &str) -> Option<Run> {
    let scratch = Scratch::new("floor");
    let program = floor(&scratch, if kind == "data" { mib } else { 1 })?;
    let script = format!("{before}exec \"$0\" {kind} {mib} {wait_ms} {more}");
    let job = Job::new("floor", "sh").args(["-c".into(), script.into(), program.into_os_string()]);
    Some(job.managed(BUDGET))
}

/// Asserts that more than the budget stays resident, and that this is reported.
fn stays(kind: &str) -> Option<Run> {
    let run = floor_of("", kind, [FLOOR_MIB, MORE_MIB], TOLD_MS)?;
    assert_says(&run, "in place, 0 wrong");
    assert_passed_and_told(&run);
    Some(run)
}

/// Fills the budget with memory of a kind and with younger memory.
fn oldest(kind: &str, words: &str) -> Option<()> {
    let run = floor_of("", kind, [20, 32], BRIEF_MS)?;
    assert_says(&run, words);
    run.assert_stored();
    run.assert_within_budget();
    assert_eq!(run.complaints(&["cannot be kept"]), Vec::<&str>::new());
    Some(())
}

fn stays_as_data() -> Option<()> {
    let run = stays("data")?;
    let told = run.complaints(&["cannot be kept", " are data of its program and libraries"]);
    let line = told.first().copied().unwrap_or_default();
    // The report may come while the last of the data is written.
    let mib = line.rsplit_once(" MiB are data").and_then(|(line, _)| line.rsplit(' ').next());
    let mib = mib.and_then(|word| word.parse().ok());
    assert!(mib.is_some_and(|mib: u32| (24..=49).contains(&mib)), "{line}; {}", run.stderr);
    Some(())
}

/// Runs code in memory that is both writable and executable.
fn code_stays_with_a_limit() -> Option<()> {
    let script = format!("ulimit -v 2000000; exec {} 48 100", env!("CARGO_BIN_EXE_executable"));
    let job = Job::new("executable", "sh").args(["-c", &script]);
    let run = job.managed(Bytes::mib(24));
    assert_says(&run, "functions, 0 wrong");
    assert!(run.stats().count("swap_out_pages") < 1000, "{run}");
    assert_passed_and_told(&run);
    Some(())
}

#[test]
fn memory_of_these_kinds_stays() {
    matrix::run(&[
        case("not private memory", Lane::Long, || oldest("private", "away, 0 wrong")),
        case("not what may be written to and executed", Lane::Long, || {
            oldest("both", "away, 0 wrong")
        }),
        case("what may only be executed", Lane::Long, || oldest("code", "in place, 0 wrong")),
        case("the same with a limit of addresses", Lane::Long, code_stays_with_a_limit),
        case("the stack of a thread", Lane::Long, || stays("stack").map(drop)),
        case("the stack of the program", Lane::Long, || stays("main").map(drop)),
        case("written data", Lane::Short, stays_as_data),
    ]);
}

/// Returns what `floor` maps with all of its memory, in KiB.
fn mapped_kib(run: &Run) -> u64 {
    number(&output(run), "maps ", " KiB")
}

/// Checks what coldpress maps: an eighth more than the budget, 4 MiB, and a little for itself.
fn a_limit_counts_what_is_mapped() -> Option<()> {
    let scratch = Scratch::new("addresses");
    let program = floor(&scratch, 1)?;
    let script = format!("ulimit -v 300000; exec {} private 64 0", program.display());
    let job = Job::new("addresses", "sh").args(["-c", &script]);
    let plain = job.plain();
    let run = job.managed(BUDGET);
    run.assert_stored();
    let more = (mapped_kib(&run) - mapped_kib(&plain)) >> 10;
    println!("{run}\n{more} MiB more than {} KiB", mapped_kib(&plain));
    assert!((36 + 4..36 + 4 + 16).contains(&more), "{more} MiB");
    Some(())
}

/// Checks that twice as much must be left. The warning says what is missing, and with that room the
/// program is managed.
fn too_low_a_limit_is_told() -> Option<()> {
    let within =
        |mib: u64| floor_of(&format!("ulimit -v {}; ", mib << 10), "private", [64, 0], BRIEF_MS);
    let run = within(100)?;
    assert_says(&run, "in place, 0 wrong");
    assert_eq!(run.complaints(&["is not managed: no room for"]).len(), 1, "{}", run.stderr);
    let missing = number(&run.stderr, "raise its ulimit -v by ", " MiB");
    let left = 100 - (mapped_kib(&run) >> 10);
    let wanted = 2 * (36 + 4);
    assert!((left + missing).abs_diff(wanted) <= 4, "{left} and {missing} MiB");
    let run = within(100 + missing)?;
    assert_says(&run, "away, 0 wrong");
    assert_eq!(run.complaints(&["not managed"]), Vec::<&str>::new());
    Some(())
}

#[test]
fn a_limit_of_addresses_has_room_for_coldpress_or_nothing_is_managed() {
    matrix::run(&[
        case("what it counts", Lane::Long, a_limit_counts_what_is_mapped),
        case("half of what is left", Lane::Short, too_low_a_limit_is_told),
    ]);
}

/// The reader uses process_vm_readv, as the program's service goes on.
#[test]
fn who_reads_a_stopped_program_finds_every_byte() {
    const STILL: &str = env!("CARGO_BIN_EXE_still");
    let Some(timeout) = find("timeout") else { return println!("skipped: no timeout") };
    let scratch = Scratch::new("stopped");
    let file = scratch.path("go on");
    let live = Live::start(&Job::new("stopped", STILL).arg("hold").arg(&file), Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    let text = String::from_utf8(live.output()).expect("it prints numbers");
    let words: Vec<&str> = text.split([' ', '=', '\n']).collect();
    let ["at", start, pages, "evicted", evicted, ..] = words[..] else { panic!("{text}") };
    let numbers = [pages, evicted].map(|word| word.parse::<u32>().expect("a number"));
    assert!(numbers[1] * 2 > numbers[0], "{text}");
    let (process, _) = watch::find_service(live.root()).expect("it is managed");
    machine::signal("STOP", &[process]);
    let mut look = Command::new(timeout);
    let look = look.args(["60", STILL, "vm", &process.to_string(), start, pages]).output();
    machine::signal("CONT", &[process]);
    let found = String::from_utf8(look.expect("it was found").stdout).expect("text");
    assert_eq!(found, format!("wrong=0 failed=0 of {pages}\n"));
    fs::write(&file, "").expect("the scratch directory takes files");
    let run = live.finish(HANG);
    assert!(run.code == 0 && output(&run).ends_with("wrong=0\n"), "{}", run.stderr);
}
