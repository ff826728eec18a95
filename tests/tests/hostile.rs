//! Risk: a process of a run, or of another user beside it, makes the launcher or other processes do
//! what their user did not ask for: hold more or less than the budget, print what a terminal obeys,
//! write to files, hand out what root has, or read zeros where bytes were.
//!
//! `docs/security.md` says what each process may and may not do, and names the test here. The
//! hostile process is `fixtures/hostile.py`, usually run as nobody in a run of root; so most tests
//! need root.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live, Run};
use coldpress_tests::machine::{self, Scratch, fixture, require};
use coldpress_tests::watch;

/// A python that every user may run; one in a home directory is not such a python.
const PYTHON: &str = "/usr/bin/python3";
/// Words that run the command after them as nobody.
const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups --";
const BUDGET: Bytes = Bytes::mib(32);
const READY_MAX: Duration = Duration::from_secs(60);
const HANG: Duration = Duration::from_secs(120);

/// The files that the user nobody needs, in a place that this user can read.
struct Ground {
    scratch: Scratch,
    hostile: PathBuf,
    hold: PathBuf,
}

impl Ground {
    /// Copies the files; `None` with a printed line where the test cannot run.
    fn new() -> Option<Self> {
        if !machine::is_root() {
            return None;
        }
        require("setpriv")?;
        if !Path::new(PYTHON).exists() {
            machine::skip("no python3 that every user may run");
            return None;
        }
        let scratch = Scratch::new("hostile");
        let copy = |name: &str| {
            let path = scratch.path(name);
            fs::copy(fixture(name), &path).expect("the scratch directory takes files");
            path
        };
        let (hostile, hold) = (copy("hostile.py"), copy("hold.py"));
        Some(Self { scratch, hostile, hold })
    }

    /// Returns a command of the shell by which the hostile process does `what`.
    fn hostile(&self, what: &str) -> String {
        format!("{NOBODY} {PYTHON} {} {what}", self.hostile.display())
    }

    /// Returns a command whose process holds 64 MiB and checks them.
    fn victim(&self) -> String {
        format!("{PYTHON} {} private 64 8", self.hold.display())
    }
}

/// Runs `script` by the shell within [`BUDGET`].
fn run(script: &str, options: &[&str]) -> Run {
    let job = Job::new("hostile", "sh").args(["-c", script]).options(options.iter().copied());
    let run = job.managed(BUDGET);
    println!("{run}{}", run.stderr);
    run
}

fn output(run: &Run) -> String {
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// The budget was root's for all of the run, with a process of nobody that tries to change it.
#[test]
fn orders_of_the_launcher_can_be_read_and_not_written() {
    let Some(ground) = Ground::new() else { return };
    let run = run(&ground.hostile("join orders"), &[]);
    let output = output(&run);
    assert!(output.contains("user 65534 joined: True"), "{output}; {}", run.stderr);
    for what in ["map", "map again", "write", "cut"] {
        assert!(output.contains(&format!("{what}: refused")), "{output}");
    }
    assert!(output.contains("read: True"), "{output}");
}

#[test]
fn random_words_in_the_seats_harm_neither_figures_nor_others() {
    let Some(ground) = Ground::new() else { return };
    let plain = Job::new("alone", "sh").args(["-c", &ground.victim()]).plain();
    // By then, zeros, ones and all values between have come to each word.
    let scribbler = ground.hostile("join scribble 20261 6");
    let run = run(&format!("{scribbler} >&2 & {}; wait", ground.victim()), &[]);
    assert_eq!((run.code, output(&run)), (0, output(&plain)), "{}", run.stderr);
    assert_eq!(run.complaints(&["scribbles with seed 20261"]).len(), 1, "{}", run.stderr);
    let stats = run.stats();
    assert_eq!(stats.count("budget_bytes"), BUDGET.0 as u64);
    let machine = machine_memory();
    let peak = stats.count("peak_bytes");
    assert!(peak <= machine, "a peak of {peak} of {machine}");
    assert!(stats.count("swap_out_bytes") <= i64::MAX as u64);
}

/// Returns the memory of the machine in bytes.
fn machine_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("/proc is there");
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).expect("it is there");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn one_process_cannot_take_all_seats() {
    let Some(ground) = Ground::new() else { return };
    let script = format!("{}; {}", ground.hostile("join seats"), ground.victim());
    let run = run(&script, &[]);
    // The library in that process has a seat, too.
    assert!(["seats: 7\n", "seats: 8\n"].iter().any(|line| output(&run).contains(line)));
    assert_eq!(run.complaints(&["asks for 9 seats"]).len(), 1, "{}", run.stderr);
    run.assert_stored();
}

#[test]
fn notes_are_printed_without_what_a_terminal_obeys() {
    let Some(ground) = Ground::new() else { return };
    let run = run(&ground.hostile("join notes"), &[]);
    let shown = "warning: hello\\u{1b}[2J\\u{7}\\u{a}\\u{202e}fake";
    assert_eq!(run.complaints(&[shown]).len(), 1, "{}", run.stderr);
    assert!(!run.stderr.chars().any(|char| char.is_control() && char != '\n'), "{}", run.stderr);
    assert_eq!(run.complaints(&["nothing"]), Vec::<&str>::new());
}

/// A stranger's connections do not keep processes of the run from joining.
#[test]
fn a_flood_of_connections_leaves_runs_as_they_are() {
    let Some(ground) = Ground::new() else { return };
    let words = [PYTHON.into(), ground.hold.clone().into(), "private".into(), "64".into()];
    let [python, script, kind, size]: [OsString; 4] = words;
    let job = Job::new("victim", python).args([script, kind, size, "4".into()]);
    let plain = job.plain();
    // Holds the run open until the test has found its socket.
    let gate = ground.scratch.path("gate");
    let wait = format!(
        "while ! test -e {gate}; do sleep 0.05; done; for n in 1 2 3; do {} || exit 9; done",
        format_args!("{PYTHON} {} private 64 4", ground.hold.display()),
        gate = gate.display()
    );
    let job = Job::new("flooded", "sh").args(["-c", &wait]);
    let live = Live::start(&job, Some(BUDGET));
    let path = socket_of(live.root());
    let mut floods: Vec<_> = (0..2)
        .map(|_| {
            let script = ground.hostile(&format!("flood {}", path.display()));
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exec {script}")]).stdout(Stdio::null());
            command.spawn().expect("sh is everywhere")
        })
        .collect();
    fs::write(&gate, "").expect("the scratch directory takes files");
    let run = live.finish(HANG);
    for flood in &mut floods {
        // The flooder may have seen that the socket is gone.
        drop(flood.kill());
        flood.wait().expect("it is our child");
    }
    println!("{run}{}", run.stderr);
    let thrice = plain.stdout.repeat(3);
    assert_eq!((run.code, output(&run)), (0, String::from_utf8_lossy(&thrice).into_owned()));
    assert_eq!(run.stats().count("managed_processes"), 3, "{}", run.stderr);
}

/// Returns the path on which the keeper of the run of `launcher` listens.
fn socket_of(launcher: u32) -> PathBuf {
    let begun = Instant::now();
    loop {
        let part = watch::keeper(launcher).map(|keeper| format!("/coldpress-{keeper}-"));
        let sockets = fs::read_to_string("/proc/net/unix").expect("/proc is there");
        let is_there = |line: &&str| part.as_ref().is_some_and(|part| line.contains(part));
        let path = sockets.lines().find(is_there);
        if let Some(path) = path.and_then(|line| line.split_once(" /")) {
            return PathBuf::from(format!("/{}", path.1));
        }
        assert!(begun.elapsed() < READY_MAX, "no keeper of {launcher} listens");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn who_poses_as_a_launcher_cannot_write_to_the_terminal() {
    let Some(ground) = Ground::new() else { return };
    let job = Job::new("pose", "sh").args(["-c", &format!("exec {}", ground.hostile("pose"))]);
    let live = Live::start(&job, None);
    live.wait_for_output("poses\n", READY_MAX);
    let mut command = Command::new(machine::coldpress());
    let output = command.args(["ctl", &live.root().to_string(), "get"]).output();
    let output = output.expect("the command is built");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!text.chars().any(|char| char.is_control() && char != '\n'), "{text:?}");
    assert!(text.contains("codec wk\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\u{a}fake 1\n"), "{text}");
    live.finish(HANG);
}

#[test]
fn a_recording_does_not_follow_links_that_were_put_in_its_way() {
    let Some(ground) = Ground::new() else { return };
    let trace = ground.scratch.path("trace");
    let precious = ground.scratch.write("precious", b"precious");
    symlink(&precious, ground.scratch.path("trace.2")).expect("the scratch directory takes links");
    let script = format!("{0} & {0}; wait", ground.victim());
    let run = run(&script, &["--record", trace.to_str().expect("a path of text")]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let found = fs::read(&precious).expect("it was written");
    assert!(found == b"precious", "{}", String::from_utf8_lossy(&found[..found.len().min(20)]));
    assert_eq!(
        run.complaints(&["cannot write", "trace.2", "remove it"]).len(),
        1,
        "{}",
        run.stderr
    );
    assert!(fs::metadata(&trace).expect("it is the first").len() > 100);
}

#[test]
fn a_process_gets_one_file_to_record_in() {
    let Some(ground) = Ground::new() else { return };
    let trace = ground.scratch.path("trace");
    let options = ["--record", trace.to_str().expect("a path of text")];
    let run = run(&ground.hostile("join records"), &options);
    assert!(output(&run).contains("files: 1\n"), "{}; {}", output(&run), run.stderr);
}

#[test]
fn what_root_may_is_lent_to_nobody_when_that_is_asked() {
    let Some(ground) = Ground::new() else { return };
    let nobody = format!("{NOBODY} {}", ground.victim());
    let plain = Job::new("alone", "sh").args(["-c", &nobody]).plain();
    let lends = run(&nobody, &[]);
    lends.assert_stored();
    let keeps = run(&nobody, &["--no-lend"]);
    assert_eq!((keeps.code, output(&keeps)), (0, output(&plain)), "{}", keeps.stderr);
    assert_eq!(keeps.stats().count("swap_out_pages"), 0);
    let why = ["is of user 65534", "--no-lend"];
    assert!(!keeps.complaints(&why).is_empty(), "{}", keeps.stderr);
    // Nor when a process asks for it.
    let asks = run(&ground.hostile("join look"), &["--no-lend"]);
    assert!(asks.stderr.contains("PermissionError"), "{}; {}", output(&asks), asks.stderr);
    // Root's own programs are managed as ever.
    run(&ground.victim(), &["--no-lend"]).assert_stored();
}

/// A process that shares the memory of an ended process reads its bytes, or gets a signal that it
/// cannot.
#[test]
fn memory_that_outlives_its_process_never_reads_as_zeros() {
    let scratch = Scratch::new("outlives");
    // A copy with a name of its own, so that the test finds what the launcher leaves behind.
    let launcher = scratch.path("coldpress");
    fs::copy(machine::coldpress(), &launcher).expect("the scratch directory takes files");
    fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).expect("it is ours");
    for (way, code) in [("clone", 0), ("vfork", 137)] {
        let file = scratch.write(way, b"");
        let job = Job::new("outlives", env!("CARGO_BIN_EXE_outlives")).args([way, "64"]);
        let run = job.arg(&file).launcher(&launcher).managed(BUDGET);
        println!("{way}: {run}{}", run.stderr);
        assert_eq!(run.code, code, "{}", run.stderr);
        run.assert_stored();
        let word = wait_for_word(&file);
        // The service of the ended process goes on until no process has the memory any more.
        assert_eq!(word, "right", "{way}");
    }
    let begun = Instant::now();
    while keepers(&launcher) > 0 {
        assert!(begun.elapsed() < READY_MAX, "what keeps memory from being zeros stays");
        thread::sleep(Duration::from_millis(50));
    }
}

fn wait_for_word(file: &Path) -> String {
    let begun = Instant::now();
    loop {
        let word = fs::read_to_string(file).expect("it was made");
        if !word.is_empty() || begun.elapsed() > READY_MAX {
            return word;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the number of processes of that command that go on.
fn keepers(launcher: &Path) -> usize {
    let processes = fs::read_dir("/proc").expect("/proc is there").flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let name = launcher.as_os_str().as_encoded_bytes();
    lines.filter(|line| line.starts_with(name)).count()
}
