//! The same programs where rights are fewer, and programs that run already.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::container::{Containers, DOCKER, ROOT};
use coldpress_tests::harness::{Fraction, Job, SLACK, check};
use coldpress_tests::machine::{self, Scratch, require};
use coldpress_tests::matrix::{self, Lane, case};
use coldpress_tests::watch;

use super::{HALF, Kind, MIB, QUARTER, build};

/// The time in which anything here happens, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// Where a program runs, and the command with it.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// As root, without bounds.
    Root,
    /// As nobody, with the device.
    Nobody,
    /// As root within Docker's filter, with the device and what Docker leaves of root's rights.
    Docker,
}

impl Place {
    /// Returns words that run the words after them there.
    fn words(self, containers: &Containers) -> Vec<OsString> {
        match self {
            // Thus there is a word.
            Self::Root => vec!["env".into()],
            Self::Nobody => containers.as_nobody(),
            Self::Docker => containers.container(DOCKER, ROOT, &[]),
        }
    }
}

/// Prepares, and makes the program, if this machine can do both.
fn prepare(kind: Kind) -> Option<(Containers, PathBuf)> {
    let containers = Containers::prepare(env!("CARGO_BIN_EXE_filtered"))?;
    let program = containers.path("foreign");
    build(&program, kind)?;
    Some((containers, program))
}

/// Runs the program in its half and its quarter.
fn run_in(place: Place, kind: Kind) -> Option<()> {
    let (containers, program) = prepare(kind)?;
    let job = Job::new("foreign", program).args([&MIB.to_string(), "2", "3"]).shares();
    let job = job.before(place.words(&containers)).launcher(containers.launcher());
    let plain = job.plain();
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    for budget in [HALF, QUARTER] {
        let run = job.managed(budget);
        println!("{place:?}: {run}");
        run.assert_same(&plain);
        run.assert_stored();
        kind.assert_within_budget(&run);
        assert!(run.complaints(&["not managed"]).is_empty(), "{}", run.stderr);
    }
    Some(())
}

/// A program that goes on until its input ends.
struct Program {
    child: Child,
    /// Its process, which may be one below the child.
    process: u32,
}

impl Program {
    fn start(mut words: Vec<OsString>, program: &Path) -> Self {
        words.extend([program.into(), MIB.to_string().into()]);
        words.extend(["2", "3", "wait"].map(OsString::from));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().expect("its words are programs");
        let process = child.id();
        Self { child, process }
    }

    /// Finds the process below the child that runs `program`.
    fn below(mut self, program: &str) -> Self {
        let begun = Instant::now();
        let runs = |process: &u32| {
            let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            words.starts_with(program.as_bytes())
        };
        self.process = loop {
            match watch::descendants(self.child.id()).into_iter().find(runs) {
                Some(process) => break process,
                None => assert!(begun.elapsed() < LIMIT, "{program} does not begin"),
            }
            sleep(PAUSE);
        };
        self
    }

    /// Returns its anonymous memory that is in place.
    fn resident(&self) -> Bytes {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process));
        let status = status.expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        Bytes(kib.unwrap_or(0) << 10)
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(Bytes) -> bool) {
        let begun = Instant::now();
        while !is_so(self.resident()) {
            assert!(begun.elapsed() < LIMIT, "not in time: {what}: {:?}", self.resident());
            sleep(PAUSE);
        }
    }

    /// Ends the program's input, and asserts that it has found all bytes right.
    fn finish(mut self) {
        drop(self.child.stdin.take());
        let mut said = String::new();
        let output = self.child.stdout.as_mut().expect("it is piped");
        output.read_to_string(&mut said).expect("it prints text");
        let status = self.child.wait().expect("it is a child");
        assert!(status.success() && said.starts_with("0 words and 0"), "{said}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // After its end, these fail.
        machine::signal("KILL", &[self.process]);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Attaches to the program where it runs, with its half and its quarter, and leaves it.
fn attach_in(place: Place, kind: Kind) -> Option<()> {
    let (containers, path) = prepare(kind)?;
    let program = Program::start(place.words(&containers), &path);
    let name = format!("{place:?}, {}", kind.name);
    attach_to(program, &name, || {
        let mut words = place.words(&containers);
        words.push(containers.launcher().into());
        words
    });
    Some(())
}

/// Attaches to the program by the command that `words` start.
fn attach_to(program: Program, name: &str, words: impl Fn() -> Vec<OsString>) {
    program.wait_until("it holds all", |held| held >= Bytes::mib(MIB));
    for budget in [HALF, QUARTER] {
        let mut words = words();
        words.extend(["attach".into(), "--memory".into()]);
        let memory = format!("{}Mi", budget.0 >> 20);
        words.extend([memory, program.process.to_string()].map(Into::into));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stderr(Stdio::piped());
        let mut attached = command.spawn().expect("its words are programs");
        let mut is_refused = || attached.try_wait().expect("it is a child").is_some();
        let begun = Instant::now();
        while program.resident() > budget + SLACK && !is_refused() && begun.elapsed() < LIMIT {
            sleep(PAUSE);
        }
        let held = program.resident();
        machine::signal("TERM", &[attached.id()]);
        let output = attached.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        println!("{name}: {}", said.trim());
        assert!(output.status.success() && said.contains(" pages compressed"), "{said}");
        assert!(held <= budget + SLACK, "{held:?} are held; {said}");
        assert!(!said.contains("not managed"), "{said}");
        program.wait_until("all of it is back", |held| held >= Bytes::mib(MIB));
    }
    program.finish();
}

/// A root of its own, in name spaces of its own.
struct Root(Scratch);

/// Mounts /proc in the root that is the first word, and runs the others there.
const ENTER: &str = r#"mount -t proc proc "$0/proc" && exec chroot "$0" "$@""#;
/// The program's place there.
const THERE: &str = "/foreign";

impl Root {
    fn with(kind: Kind) -> Option<Self> {
        require("unshare")?;
        machine::is_root().then_some(())?;
        let root = Scratch::new("root");
        for folder in ["proc", "bin", "dev", "tmp"] {
            fs::create_dir(root.path(folder)).expect("there is room");
        }
        build(&root.path("foreign"), kind)?;
        if kind.starts_programs() {
            fs::copy(require("busybox")?, root.path("bin/echo")).expect("there is room");
            // What such a program reads. Nothing is in it either.
            root.write("dev/null", b"");
        }
        Some(Self(root))
    }

    /// Returns words that run those behind them there.
    fn words(&self, spaces: &str) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            ["unshare", spaces, "sh", "-c", ENTER].map(Into::into).into();
        words.push(self.0.path("").into());
        words
    }

    /// Puts a shell there, and returns words that run those behind them below it, as processes of a
    /// name space of their own.
    fn words_below_a_shell(&self) -> Option<Vec<OsString>> {
        fs::copy(require("busybox")?, self.0.path("bin/sh")).expect("there is room");
        let mut words = self.words("-mnpf");
        words.extend(["/bin/sh", "-c", r#""$0" "$@"; exit $?"#].map(OsString::from));
        Some(words)
    }
}

/// Attaches to the program from outside.
fn attach_in_another_root(kind: Kind) -> Option<()> {
    let root = Root::with(kind)?;
    let program = Program::start(root.words("-mn"), Path::new(THERE));
    attach_to(program, kind.name, || vec![machine::coldpress().into()]);
    if matrix::is_all() {
        let words = root.words_below_a_shell()?;
        let program = Program::start(words, Path::new(THERE)).below(THERE);
        attach_to(program, kind.name, || vec![machine::coldpress().into()]);
    }
    Some(())
}

/// Runs the program in a run whose programs change the root: it is found there.
fn run_in_another_root(kind: Kind) -> Option<()> {
    let root = Root::with(kind)?;
    for words in [root.words("-mn"), root.words_below_a_shell()?] {
        let job = Job::new("foreign, elsewhere", &words[0]).args(words[1..].iter().cloned());
        let job = job.args([THERE, &MIB.to_string(), "2", "3"]).shares();
        super::compare(&job, HALF);
    }
    Some(())
}

#[test]
fn they_are_managed_in_another_root_too() {
    let lane = |kind: Kind| if kind.name == "static, glibc" { Lane::Short } else { Lane::Long };
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_alone());
    let pairs: Vec<_> = kinds.map(|kind| (format!("{}, attached to", kind.name), kind)).collect();
    let attached = pairs
        .iter()
        .map(|(name, kind)| (&**name, lane(*kind), *kind, attach_in_another_root as fn(_) -> _));
    let run = pairs
        .iter()
        .map(|(_, kind)| (kind.name, Lane::Long, *kind, run_in_another_root as fn(_) -> _));
    let cases: Vec<_> = attached
        .chain(run)
        .map(|(name, lane, kind, one)| case(name, lane, move || one(kind)))
        .collect();
    matrix::run(&cases);
}

/// Runs `one` with each kind of program in each place; in `make test` with those that `is_short`.
fn each(is_short: fn(Place, Kind) -> bool, one: fn(Place, Kind) -> Option<()>) {
    let places = [Place::Root, Place::Nobody, Place::Docker];
    let pairs = places.iter().flat_map(|place| Kind::ALL.map(|kind| (*place, kind)));
    let named: Vec<_> =
        pairs.map(|(place, kind)| (format!("{place:?}, {}", kind.name), place, kind)).collect();
    let cases: Vec<_> = named
        .iter()
        .map(|(name, place, kind)| {
            let lane = if is_short(*place, *kind) { Lane::Short } else { Lane::Long };
            case(name, lane, move || one(*place, *kind))
        })
        .collect();
    matrix::run(&cases);
}

#[test]
fn they_run_wherever_they_have_the_device() {
    each(|_, _| false, run_in);
}

#[test]
fn they_are_attached_to_wherever_they_have_the_device() {
    each(|place, kind| matches!(place, Place::Root) && kind.is_short, attach_in);
}

/// busybox is static, and its `sort` and `awk` are of another make than those of Debian.
#[test]
fn busybox_sorts_and_counts_within_a_budget() {
    let Some(busybox) = require("busybox").filter(|_| matrix::is_all()) else { return };
    let scratch = machine::Scratch::new("busybox");
    let lines = (0..700_000_u64).map(|line| {
        let word = line.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{:x} {} {line}\n", word >> 40, word % 9973)
    });
    let text = scratch.write("text", lines.collect::<String>().as_bytes());
    // The keys come in the order of the memory that they take.
    let count = "{ n[int($3 / 2)] += $2 } END { for (k in n) s += n[k]; print s }";
    for words in [&["sort"][..], &["sort", "-k2,2n", "-k1,1r"], &["awk", count]] {
        let job = Job::new("busybox", &busybox).args(words).arg(&text);
        check(&job, &[Fraction::Half]);
    }
}
