//! Risk: a program that no loader of glibc starts (static, of musl, of Go) reads other bytes once
//! the library is in it, or lives outside the budget, or a child of it reads zeros.
//!
//! Each program checks all of its memory itself. It gets the library at its exec, where it is the
//! program of the run, or while it runs, where a shell has started it.

#[path = "foreign/places.rs"]
mod places;
#[path = "foreign/real.rs"]
mod real;

use std::path::{Path, PathBuf};
use std::process::Command;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Run};
use coldpress_tests::machine::{self, Scratch, fixture, require};
use coldpress_tests::matrix::{self, Lane, case};

/// MiB that the programs hold, and a half and a quarter of it.
const MIB: usize = 64;
const HALF: Bytes = Bytes::mib(32);
const QUARTER: Bytes = Bytes::mib(16);
/// What a program that tells nothing of its growth may map before it is seen.
const BURST: Bytes = Bytes::mib(8);

/// A kind of program, and what makes it.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    /// Whether `make test` tries it too.
    is_short: bool,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::short("static, glibc", "gcc", &["-O1", "-static", "-pthread"]),
        Self::short("static, musl", "musl-gcc", &["-O1", "-static"]),
        Self::short("Go", "go", &["build"]),
        Self::long("static and moved, glibc", "gcc", &["-O2", "-static-pie", "-pthread"]),
        Self::long("dynamic, musl", "musl-gcc", &["-O2"]),
        Self::long("Go, moved", "go", &["build", "-buildmode=pie"]),
        Self::long(
            "Rust, musl",
            "rustc",
            &["-O", "--edition=2024", "--target=x86_64-unknown-linux-musl"],
        ),
    ];

    const fn short(
        name: &'static str,
        compiler: &'static str,
        flags: &'static [&'static str],
    ) -> Self {
        Self { name, compiler, flags, is_short: true }
    }

    const fn long(
        name: &'static str,
        compiler: &'static str,
        flags: &'static [&'static str],
    ) -> Self {
        Self { is_short: false, ..Self::short(name, compiler, flags) }
    }

    /// Asserts that a run was within its budget. The growth of a program of Go is seen, not told: a
    /// burst may pass the budget until the service runs on a busy machine.
    fn assert_within_budget(self, run: &Run) {
        run.assert_within_budget_and(if self.compiler == "go" { BURST } else { Bytes(0) });
    }

    /// Whether it needs no loader.
    fn is_alone(self) -> bool {
        !self.name.starts_with("dynamic") && self.name != "Go, moved"
    }

    /// Whether it starts `echo` meanwhile.
    fn starts_programs(self) -> bool {
        matches!(self.compiler, "go" | "rustc")
    }

    fn source(self) -> PathBuf {
        fixture(match self.compiler {
            "go" => "foreign.go",
            "rustc" => "foreign.rs",
            _ => "foreign.c",
        })
    }
}

/// Makes `program` of this kind from a fixture, if this machine can.
fn build(program: &Path, kind: Kind) -> Option<()> {
    let mut command = Command::new(require(kind.compiler)?);
    command.args(kind.flags).arg("-o").arg(program).arg(kind.source());
    command.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=mod");
    let output = command.output().expect("it is there");
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        machine::skip(&format!("{}: {said}", kind.compiler));
        return None;
    }
    Some(())
}

/// Returns the job that starts the program at once, or below a shell.
fn job(program: &Path, is_late: bool) -> Job {
    let words = [MIB.to_string(), "2".to_owned(), "3".to_owned()];
    let job = if is_late {
        let script = format!("{} {}; exit $?", program.display(), words.join(" "));
        Job::new("foreign, late", "sh").args(["-c", &script])
    } else {
        Job::new("foreign", program).args(words)
    };
    // Parent and child have the same pages.
    job.shares()
}

/// Runs `job` alone and within `budget`, and asserts the same outcome, pages stored, and that
/// nothing was left unmanaged.
fn compare(job: &Job, budget: Bytes) -> Run {
    let plain = job.plain();
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    let run = job.managed(budget);
    println!("{run}");
    run.assert_same(&plain);
    run.assert_stored();
    assert!(run.complaints(&["not managed"]).is_empty(), "{}", run.stderr);
    run
}

/// Runs a program at its half and its quarter, at once and late.
fn check(kind: Kind) -> Option<()> {
    let scratch = Scratch::new("foreign");
    let program = scratch.path("foreign");
    build(&program, kind)?;
    kind.assert_within_budget(&compare(&job(&program, false), HALF));
    if matrix::is_all() {
        kind.assert_within_budget(&compare(&job(&program, false), QUARTER));
        // All that it holds may come before it has the library.
        compare(&job(&program, true), QUARTER);
    }
    compare(&job(&program, true), HALF);
    Some(())
}

/// Runs a program that confines itself, then maps its memory: code of ours in its threads must make
/// no call of its own any more.
fn check_confined(compiler: &str, flags: &[&str]) -> Option<()> {
    let scratch = Scratch::new("confined");
    let program = scratch.path("confined");
    let mut command = Command::new(require(compiler)?);
    command.args(flags).arg("-o").arg(&program).arg(fixture("confined.c"));
    assert!(command.status().expect("it is there").success(), "{compiler} {flags:?}");
    compare(&Job::new("confined", program).arg(MIB.to_string()), HALF);
    Some(())
}

#[test]
fn a_program_that_confines_itself_lives_and_keeps_its_bytes() {
    matrix::run(&[
        case("dynamic, glibc", Lane::Short, || check_confined("gcc", &["-O1"])),
        case("static, glibc", Lane::Short, || check_confined("gcc", &["-O1", "-static"])),
        case("static, musl", Lane::Long, || check_confined("musl-gcc", &["-O1", "-static"])),
    ]);
}

/// The keeper is killed at each of its requests while it puts the library in, in `make test` at
/// some: the program ends before it has begun, or does all that it does alone.
#[test]
fn a_keeper_that_is_killed_meanwhile_leaves_a_program_whole_or_not_begun() {
    let scratch = Scratch::new("foreign");
    let program = scratch.path("foreign");
    let Some(()) = build(&program, Kind::ALL[0]) else { return };
    let job = |number: usize| {
        let job = Job::new("killed", &program).args(["8", "1", "1"]);
        job.environment("COLDPRESS_TEST_ENDS_AT_TRACE", number.to_string())
    };
    let plain = job(0).plain();
    let (mut begun, mut ended) = (0, 0);
    for number in (1..).step_by(if matrix::is_all() { 1 } else { 9 }) {
        let run = job(number).managed(HALF);
        if run.complaints(&["fatal: the keeper", "signal 9"]).is_empty() {
            run.assert_same(&plain);
            break;
        }
        if run.stdout.is_empty() {
            assert_eq!(run.code, 128 + 9, "{number}: {}", run.stderr);
            ended += 1;
        } else {
            assert_eq!((run.code, &run.stdout), (plain.code, &plain.stdout), "{number}");
            begun += 1;
        }
    }
    println!("killed before the program began: {ended}, and where it went on: {begun}");
    assert!(ended > 2, "{ended}");
}

/// A program whose calls nobody finds, at its exec and late.
#[test]
fn a_program_whose_forks_are_not_seen_is_managed_only_if_the_user_wants_it() {
    let Some(gcc) = require("gcc") else { return };
    let scratch = Scratch::new("hidden");
    let program = scratch.path("hidden");
    let mut command = Command::new(gcc);
    command.args(["-O1", "-static", "-nostdlib", "-fno-stack-protector"]);
    command.arg("-o").arg(&program).arg(fixture("hidden.c"));
    assert!(command.status().expect("it is there").success());
    let at_once = Job::new("hidden", &program).arg(MIB.to_string());
    let script = format!("{} {MIB}; exit $?", program.display());
    let late = Job::new("hidden, late", "sh").args(["-c", &script]);
    let plain = at_once.plain();
    let is_told = |run: &Run, words: &[&str]| {
        let unseen = "calls by which it makes children are not found";
        assert!(!run.complaints(&[words, &[unseen]].concat()).is_empty(), "{}", run.stderr);
    };
    let run = at_once.managed(HALF);
    assert_eq!((run.code, &run.stdout[..]), (125, &b""[..]), "{}", run.stderr);
    is_told(&run, &["--unsafe-fork", "--allow-unmanaged"]);
    for job in [at_once.clone().options(["--allow-unmanaged"]), late.clone()] {
        let run = job.managed(HALF);
        run.assert_same(&plain);
        assert!(!run.complaints(&["child: 0"]).is_empty(), "{}", run.stderr);
        is_told(&run, &["not managed", "(hidden)"]);
    }
    for job in [at_once, late] {
        let run = job.options(["--unsafe-fork"]).managed(HALF);
        run.assert_same(&plain);
        run.assert_stored();
        // The child lacks what was away, and reads no zeros in its place.
        assert!(!run.complaints(&["child: 139"]).is_empty(), "{}", run.stderr);
    }
}

#[test]
fn foreign_programs_keep_their_bytes_within_a_budget() {
    let lane = |kind: Kind| if kind.is_short { Lane::Short } else { Lane::Long };
    matrix::run(&Kind::ALL.map(|kind| case(kind.name, lane(kind), move || check(kind))));
}
