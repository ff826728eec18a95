//! Risk: a function of the program's runs on the service's way and waits for memory that only the
//! service can bring; or the library keeps a program from starting that runs alone.
//!
//! Programs are compiled here: one that has libc's functions of its own, and one for another libc.

use std::path::PathBuf;
use std::process::Command;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Run};
use coldpress_tests::machine::{self, Scratch, fixture, require};

const BUDGET: Bytes = Bytes::mib(32);

/// A fixture, compiled with `flags`. `None` with a printed line where that cannot be done.
fn compile(scratch: &Scratch, compiler: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let program = scratch.path("program");
    let mut command = Command::new(require(compiler)?);
    command.args(["-O1", "-w"]).args(flags).arg(fixture(source)).arg("-o").arg(&program);
    let output = command.output().expect("it is there");
    if !output.status.success() {
        machine::skip(&format!(
            "{compiler} {flags:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
        return None;
    }
    Some(program)
}

/// Runs `job` alone and within the budget; asserts the same outcome.
fn compare(job: &Job) -> Run {
    let plain = job.plain();
    assert!(plain.stdout.starts_with(b"wrong words: 0"), "{}", plain.stderr);
    let run = job.managed(BUDGET);
    println!("{run}");
    run.assert_same(&plain);
    run
}

#[test]
fn a_program_with_libcs_functions_of_its_own_is_managed() {
    let scratch = Scratch::new("own");
    let flags = ["-fno-builtin", "-fno-tree-loop-distribute-patterns", "-rdynamic"];
    let Some(program) = compile(&scratch, "gcc", "own_memory.c", &flags) else { return };
    let run = compare(&Job::new("own functions", program));
    run.assert_stored();
    run.assert_within_budget();
}

/// Its loader puts the library in too, and ends a program for a symbol that it does not find.
#[test]
fn a_program_of_another_libc_runs_below_a_managed_one() {
    let scratch = Scratch::new("musl");
    let Some(program) = compile(&scratch, "musl-gcc", "own_memory.c", &[]) else { return };
    let run = compare(&Job::new("musl", "sh").arg("-c").arg(format!("{}; :", program.display())));
    assert!(!run.complaints(&["not managed: ", "musl"]).is_empty(), "{}", run.stderr);
}
