//! Risk: a debugger or a core file shows other bytes than the program has, because pages are away
//! and the kernel does not wait for them.
//!
//! A program holds a pattern of which most is away. When it is thawed and stopped, all of the
//! pattern must be readable from outside. When it goes on, it must be whole, and pages must go away
//! again.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::cgroup::Limited;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{self, Scratch, Setting, find, is_root, require};
use coldpress_tests::watch;

const STILL: &str = env!("CARGO_BIN_EXE_still");
const BUDGET: Bytes = Bytes::mib(24);
/// Most bytes that the program holds and walks, and some more.
const HELD_MAX: Bytes = Bytes::mib(160);
/// Pages that the test asks gdb for.
const LOOKS: u64 = 16;
/// Time limits for a program to be ready, and to end, on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
const HANG: Duration = Duration::from_secs(60);

/// A program that waits with its memory.
struct Still {
    live: Live,
    scratch: Scratch,
    process: u32,
    /// The start of the program's memory, and its pages.
    place: [String; 2],
}

impl Still {
    fn start(job: impl FnOnce(Job) -> Job) -> Self {
        let scratch = Scratch::new("still");
        let hold = Job::new("still", STILL).arg("hold").arg(scratch.path("go on"));
        let live = Live::start(&job(hold), Some(BUDGET));
        live.wait_for_output("ready\n", READY_MAX);
        let output = String::from_utf8(live.output()).expect("it prints numbers");
        watch::find_service(live.root()).expect("it is managed");
        let (place, process) = held(&output);
        Self { live, scratch, process, place }
    }

    fn pages(&self) -> u64 {
        self.place[1].parse().expect("a number of pages")
    }

    fn ctl(&self, words: &[&str]) -> Output {
        let mut command = Command::new(machine::coldpress());
        command.args(["ctl", &self.process.to_string()]).args(words);
        command.output().expect("the command is built")
    }

    /// Returns what the run uses of its budget.
    fn used(&self) -> Bytes {
        let output = self.ctl(&["get", "used_bytes"]);
        Bytes(String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number"))
    }

    /// Brings every page back, which must succeed.
    fn thaw(&self) {
        let output = self.ctl(&["thaw"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("every page is in memory"), "{text}");
        assert!(text.contains("of a budget of 24 MiB") && self.used() > BUDGET, "{text}");
    }

    /// Returns what another process finds there.
    fn look(&self, how: &str, subject: &str) -> String {
        look(how, subject, &self.place)
    }

    /// Asks gdb for some of the program's pages. Returns for how many gdb says that it cannot
    /// access them.
    fn refused_to_gdb(&self) -> usize {
        let start: u64 = self.place[0].parse().expect("an address");
        let pages = (0..LOOKS).map(|look| start + look * (self.pages() / LOOKS) * 4096);
        let looks = pages.flat_map(|page| ["-ex".to_owned(), format!("x/1xg {page}")]);
        let mut command = Command::new("timeout");
        command.args(["-k", "60", "60", "gdb", "-nx", "-batch", "-p", &self.process.to_string()]);
        let output = command.args(looks).output().expect("timeout is there");
        let [shown, said] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        println!("gdb: {shown}{said}");
        // gdb begins each line of output or complaint with the address.
        assert_eq!(shown.matches(":\t").count(), LOOKS as usize);
        said.matches("Cannot access memory at address").count()
    }

    /// Lets gcore write a core file; `None` where it may not.
    fn gcore(&self) -> Option<String> {
        let (prefix, process) = (self.scratch.path("core"), self.process.to_string());
        let output = Command::new("gcore").arg("-o").arg(&prefix).arg(&process).output();
        let output = output.expect("gcore was found");
        let file = format!("{}.{process}", prefix.display());
        if Path::new(&file).exists() {
            return Some(file);
        }
        println!("skipped: gcore may not: {}", String::from_utf8_lossy(&output.stderr));
        None
    }

    fn all_right(&self) -> String {
        format!("wrong=0 failed=0 of {}\n", self.place[1])
    }

    /// Ends the program, and asserts that it found all of its bytes. Returns the pages that were
    /// away then, and when the program had walked much other memory.
    fn finish(self) -> [u64; 2] {
        self.scratch.write("go on", b"");
        let run = self.live.finish(HANG);
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(run.code == 0 && output.ends_with("wrong=0\n"), "{output}{}", run.stderr);
        [0, 1].map(|number| evicted(&output, number))
    }
}

/// Returns what another process finds at that place.
fn look(how: &str, subject: &str, [start, pages]: &[String; 2]) -> String {
    let words = ["-k", "60", "60", STILL, how, subject, start, pages];
    let output = Command::new("timeout").args(words).output().expect("timeout is there");
    println!("{how}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the pages with wrong bytes among those found, and the pages that cannot be read.
fn counts(found: &str) -> [u64; 2] {
    let word = |name| found.split_whitespace().find_map(|word| word.strip_prefix(name));
    ["wrong=", "failed="].map(|name| word(name).expect("it is told").parse().expect("a number"))
}

/// Returns where a program's memory is by what it printed, and its process. Most of the memory must
/// be away.
fn held(output: &str) -> ([String; 2], u32) {
    let words: Vec<&str> = output.split_whitespace().collect();
    let place = [words[1], words[2]].map(str::to_owned);
    let process = words[4].strip_prefix("process=").expect("its process").parse();
    let pages: u64 = place[1].parse().expect("a number of pages");
    assert!(evicted(output, 0) * 2 > pages, "{output}");
    (place, process.expect("a number"))
}

/// Returns the `number`-th count that `still` printed.
fn evicted(output: &str, number: usize) -> u64 {
    let mut found = output.split_whitespace().filter_map(|word| word.strip_prefix("evicted="));
    found.nth(number).expect("it was printed").parse().expect("a number")
}

#[test]
fn a_stopped_program_that_was_thawed_shows_every_byte() {
    let still = Still::start(|job| job);
    let process = still.process.to_string();
    machine::signal("STOP", &[still.process]);
    // A reader of /proc/PID/mem is refused pages, and sees no other bytes in their place.
    // process_vm_readv gets them from the service.
    let [wrong, failed] = counts(&still.look("mem", &process));
    assert!(wrong == 0 && failed * 2 > still.pages(), "{wrong} wrong, {failed} refused");
    assert_eq!(still.look("vm", &process), still.all_right());
    machine::signal("CONT", &[still.process]);
    still.thaw();
    machine::signal("STOP", &[still.process]);
    let found = ["mem", "vm"].map(|how| still.look(how, &process));
    machine::signal("CONT", &[still.process]);
    assert_eq!(found, [still.all_right(), still.all_right()]);
    // The program stayed thawed until the end: no page went away however much memory was walked.
    assert_eq!(still.finish(), [0, 0]);
}

#[test]
fn pages_go_away_again_when_thawing_ends() {
    let still = Still::start(|job| job);
    let pages = still.pages();
    still.thaw();
    assert!(still.ctl(&["set", "thawed=off"]).status.success());
    let begun = Instant::now();
    while still.used() > BUDGET {
        assert!(begun.elapsed() < HANG, "{:?} are still used", still.used());
        sleep(Duration::from_millis(20));
    }
    let [_, away] = still.finish();
    assert!(away * 2 > pages, "{away} of {pages} went away");
}

#[test]
fn an_interrupted_thaw_is_given_up() {
    let still = Still::start(|job| job);
    let thawed = || String::from_utf8_lossy(&still.ctl(&["get", "thawed"]).stdout).into_owned();
    // A stopped program brings nothing back, so the command waits.
    machine::signal("STOP", &[still.process]);
    let mut command = Command::new(machine::coldpress());
    command.args(["ctl", &still.process.to_string(), "thaw"]).stderr(Stdio::piped());
    let child = command.spawn().expect("the command is built");
    let begun = Instant::now();
    while thawed() != "on\n" {
        assert!(begun.elapsed() < HANG, "it does not begin");
        sleep(Duration::from_millis(5));
    }
    machine::signal("INT", &[child.id()]);
    let output = child.wait_with_output().expect("a child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(2), "{said}");
    assert!(said.contains("off again") && said.lines().count() == 1, "{said}");
    assert_eq!(thawed(), "off\n");
    machine::signal("CONT", &[still.process]);
    let pages = still.pages();
    let [_, away] = still.finish();
    assert!(away * 2 > pages, "{away} of {pages} went away");
}

/// Reads all writable memory of a process, as a tool does that looks for something in it.
fn read_all_of(process: u32) -> usize {
    let memory = File::open(format!("/proc/{process}/mem")).expect("it is ours");
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("it runs");
    let mut buffer = vec![0; 1 << 20];
    let mut sum = 0;
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (start, rest) = line.split_once('-').expect("proc(5)");
        let end = rest.split_once(' ').expect("proc(5)").0;
        let [mut at, end] = [start, end].map(|text| u64::from_str_radix(text, 16).expect("hex"));
        while at < end {
            let length = buffer.len().min((end - at) as usize);
            // Some of it may be missing or unreadable.
            sum += memory.read_at(&mut buffer[..length], at).unwrap_or(0);
            at += length as u64;
        }
    }
    sum
}

/// An onlooker that reads where no page is leaves zeros there, in coldpress's own memory too.
#[test]
fn what_an_onlooker_leaves_is_not_taken_for_pages() {
    let still = Still::start(|job| job);
    for _ in 0..2 {
        still.thaw();
        println!("{} bytes were read", read_all_of(still.process));
        assert!(still.ctl(&["set", "thawed=off"]).status.success());
        let begun = Instant::now();
        while still.used() > BUDGET {
            assert!(begun.elapsed() < HANG, "{:?} are still used", still.used());
            sleep(Duration::from_millis(20));
        }
    }
    still.thaw();
    let process = still.process.to_string();
    assert_eq!(still.look("mem", &process), still.all_right());
    still.finish();
}

#[test]
fn a_core_of_a_thawed_program_has_every_byte() {
    if find("gcore").is_none() {
        return println!("skipped: gcore is not installed");
    }
    let still = Still::start(|job| job);
    still.thaw();
    if let Some(file) = still.gcore() {
        assert_eq!(still.look("core", &file), still.all_right());
    }
    still.finish();
}

#[test]
fn gdb_and_gcore_cannot_access_what_is_away() {
    if require("gdb").is_none() {
        return;
    }
    let still = Still::start(|job| job);
    let refused = still.refused_to_gdb();
    assert!(refused * 2 > LOOKS as usize, "{refused} of {LOOKS}");
    if let Some(file) = find("gcore").and_then(|_| still.gcore()) {
        let lacking: u64 = counts(&still.look("core", &file)).iter().sum();
        assert!(lacking * 2 > still.pages(), "{lacking} of {} are missing", still.pages());
    }
    still.thaw();
    assert_eq!(still.refused_to_gdb(), 0);
    still.finish();
}

/// Returns what the kernel's core file shows of the memory of a program that a signal ends; `None`
/// where the kernel writes none.
fn core_of(is_thawed: bool) -> Option<([u64; 2], u64)> {
    let place = Scratch::new("cores");
    let all = "ulimit -c $(ulimit -Hc); exec \"$@\"";
    let still = Still::start(|job| job.before(["sh", "-c", all, "sh"]).directory(place.path("")));
    if is_thawed {
        still.thaw();
    }
    machine::signal("ABRT", &[still.process]);
    let Still { live, place: memory, .. } = still;
    assert_eq!(live.finish(HANG).code, 128 + 6);
    let mut files = fs::read_dir(place.path("")).expect("it is ours").flatten();
    let core = files.find(|file| file.file_name().to_string_lossy().starts_with("core"))?;
    let core = core.path().to_str().expect("plain names").to_owned();
    Some((counts(&look("core", &core, &memory)), memory[1].parse().expect("a number of pages")))
}

#[test]
fn a_core_of_the_kernels_lacks_what_is_away() {
    const PATTERN: &str = "/proc/sys/kernel/core_pattern";
    let is_plain = fs::read_to_string(PATTERN).is_ok_and(|pattern| pattern.trim() == "core");
    // Elsewhere another program gets the core file.
    let changed = if is_plain { None } else { Setting::set(PATTERN, "core") };
    if !is_plain && changed.is_none() {
        return println!("skipped: core files go elsewhere");
    }
    let Some((found, _)) = core_of(true) else { return println!("skipped: no core is written") };
    assert_eq!(found, [0, 0], "of a thawed program");
    let ([wrong, failed], pages) = core_of(false).expect("one was written before");
    assert!((wrong + failed) * 2 > pages, "{wrong} wrong and {failed} missing of {pages}");
}

#[test]
fn every_process_of_a_run_is_thawed() {
    let scratch = Scratch::new("other");
    let output = scratch.path("output");
    let still = Still::start(|job| job.arg(&output));
    let begun = Instant::now();
    let text = loop {
        let text = fs::read_to_string(&output).unwrap_or_default();
        if text.ends_with("ready\n") {
            break text;
        }
        assert!(begun.elapsed() < READY_MAX, "{text}");
        sleep(Duration::from_millis(20));
    };
    let (place, other) = held(&text);
    let numbers = [other, still.process].map(|process| process.to_string());
    let find = || [look("mem", &numbers[0], &place), still.look("mem", &numbers[1])];
    for found in find() {
        assert!(counts(&found)[1] > 0, "nothing is away: {found}");
    }
    still.thaw();
    assert_eq!(find(), [still.all_right(), still.all_right()]);
    assert_eq!(still.finish(), [0, 0]);
    let text = fs::read_to_string(&output).expect("it was read above");
    assert!(text.ends_with("wrong=0\n") && evicted(&text, 2) == 0, "{text}");
}

/// Where the kernel would kill the program, thawing is refused, and the program goes on as before.
#[test]
fn thawing_without_room_is_refused() {
    if !is_root() {
        return;
    }
    let Some(group) = Limited::new(BUDGET + Bytes::mib(32)) else { return };
    let still = Still::start(|job| job.before(group.entering()));
    let output = still.ctl(&["thaw"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("--force"), "{text}");
    still.finish();
    assert_eq!(group.kills(), 0);
}

/// The group has cached enough of a file that nothing is free. The kernel drops cached pages when
/// others need room.
#[test]
fn thawing_is_forced_where_there_is_room_only_for_who_asks_for_it() {
    if !is_root() {
        return;
    }
    let mounts = fs::read_to_string("/proc/mounts").expect("it is there");
    if mounts.lines().any(|line| line.contains(" /tmp tmpfs ")) {
        return println!("skipped: files of /tmp are memory");
    }
    let Some(group) = Limited::new(HELD_MAX + Bytes::mib(64)) else { return };
    let still = Still::start(|job| job.before(group.entering()));
    let words = group.entering();
    let mut fill = Command::new(&words[0]);
    fill.args(&words[1..]).args(["dd", "if=/dev/zero", "bs=1M", "count=256", "conv=fsync"]);
    let mut target = OsString::from("of=");
    target.push(still.scratch.path("cached"));
    let filled = fill.arg(target).stderr(Stdio::null()).status();
    assert!(filled.is_ok_and(|status| status.success()), "the disk takes no file");
    let refused = still.ctl(&["thaw"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("--force"), "{text}");
    let forced = still.ctl(&["thaw", "--force"]);
    let text = String::from_utf8_lossy(&forced.stdout).into_owned();
    assert!(forced.status.success() && text.contains("every page is in memory"), "{text}");
    assert_eq!(still.finish(), [0, 0]);
    assert_eq!(group.kills(), 0);
}

/// A signal that stops the program does not stop its service. A service that is stopped too is
/// reported.
#[test]
fn a_stopped_program_is_thawed_and_a_stopped_service_told() {
    let still = Still::start(|job| job);
    machine::signal("STOP", &[still.process]);
    still.thaw();
    machine::signal("CONT", &[still.process]);
    still.finish();
    let still = Still::start(|job| job);
    let (_, service) = watch::find_service(still.live.root()).expect("it is managed");
    machine::signal("STOP", &[service]);
    let output = still.ctl(&["thaw"]);
    machine::signal("CONT", &[service]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("stopped"), "{text}");
    // The program is thawed as soon as its service goes on.
    still.thaw();
    still.finish();
}
