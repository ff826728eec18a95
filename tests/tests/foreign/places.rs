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
use coldpress_tests::machine::{self, require};
use coldpress_tests::matrix::{self, Lane, case};

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
struct Program(Child);

impl Program {
    fn start(mut words: Vec<OsString>, program: &Path) -> Self {
        words.extend([program.into(), MIB.to_string().into()]);
        words.extend(["2", "3", "wait"].map(OsString::from));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().expect("its words are programs"))
    }

    /// Returns its anonymous memory that is in place.
    fn resident(&self) -> Bytes {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()));
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
        drop(self.0.stdin.take());
        let mut said = String::new();
        let output = self.0.stdout.as_mut().expect("it is piped");
        output.read_to_string(&mut said).expect("it prints text");
        let status = self.0.wait().expect("it is a child");
        assert!(status.success() && said.starts_with("0 words and 0"), "{said}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // After its end, these fail.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Attaches to the program where it runs, with its half and its quarter, and leaves it.
fn attach_in(place: Place, kind: Kind) -> Option<()> {
    let (containers, path) = prepare(kind)?;
    let program = Program::start(place.words(&containers), &path);
    program.wait_until("it holds all", |held| held >= Bytes::mib(MIB));
    for budget in [HALF, QUARTER] {
        let mut words = place.words(&containers);
        words.extend([containers.launcher().into(), "attach".into(), "--memory".into()]);
        words.extend([format!("{}Mi", budget.0 >> 20), program.0.id().to_string()].map(Into::into));
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
        println!("{place:?}, {}: {}", kind.name, said.trim());
        assert!(output.status.success() && said.contains(" pages compressed"), "{said}");
        assert!(held <= budget + SLACK, "{held:?} are held; {said}");
        assert!(!said.contains("not managed"), "{said}");
        program.wait_until("all of it is back", |held| held >= Bytes::mib(MIB));
    }
    program.finish();
    Some(())
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
