//! Risk: a function of the program's, or of a tool inside it, runs in the service's code path and
//! waits for memory that only the service can bring; or the library keeps a program from starting
//! that runs alone.
//!
//! The tests compile programs: one that has libc's functions of its own, one for another libc, and
//! some with the checks that compilers put into programs.

use std::path::PathBuf;
use std::process::Command;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Run};
use coldpress_tests::machine::{self, Scratch, fixture, require};

const BUDGET: Bytes = Bytes::mib(32);
/// An option against the search for leaks at the end, which stops all threads of a process and then
/// reads its memory.
const NO_SEARCH: &str = "detect_leaks=0";

/// Compiles a fixture with `flags`. `None` with a printed line where that fails.
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

/// Runs `job` alone and within the budget, and asserts the same outcome.
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

/// musl's loader loads the library too, and ends a program for a symbol that it does not find. The
/// program is managed by the library that is put into it while it runs.
#[test]
fn a_program_of_another_libc_runs_below_a_managed_one() {
    let scratch = Scratch::new("musl");
    let Some(program) = compile(&scratch, "musl-gcc", "own_memory.c", &[]) else { return };
    let run = compare(&Job::new("musl", "sh").arg("-c").arg(format!("{}; :", program.display())));
    run.assert_stored();
}

/// Checks kinds of a compiler's sanitizers, each as a library of its own and inside the program.
fn check_sanitizers(compiler: &str, kinds: &[&[&str]]) {
    let look = |job: Job| job.environment("ASAN_OPTIONS", NO_SEARCH);
    for flags in kinds {
        println!("{compiler} {flags:?}:");
        let scratch = Scratch::new("sanitized");
        let Some(program) = compile(&scratch, compiler, "sanitized.c", flags) else { continue };
        compare(&look(Job::new("sanitized", &program))).assert_stored();
        // The program as a child of one without a sanitizer.
        let script = format!("{}; :", program.display());
        compare(&look(Job::new("its child", "sh").args(["-c", &script]))).assert_stored();
    }
}

#[test]
fn programs_with_sanitizers_of_gcc_are_managed() {
    check_sanitizers(
        "gcc",
        &[
            &["-fsanitize=address"],
            &["-fsanitize=address", "-static-libasan"],
            &["-fsanitize=thread"],
            &["-fsanitize=thread", "-static-libtsan"],
            &["-fsanitize=undefined"],
            &["-fsanitize=address,undefined"],
        ],
    );
}

#[test]
fn programs_with_sanitizers_of_clang_are_managed() {
    check_sanitizers(
        "clang",
        &[
            &["-fsanitize=address"],
            &["-fsanitize=memory"],
            &["-fsanitize=thread"],
            &["-fsanitize=undefined"],
        ],
    );
}

/// valgrind translates the program, and the library put into it.
#[test]
fn a_program_below_valgrind_runs_unmanaged_and_is_told_of() {
    let scratch = Scratch::new("valgrind");
    let Some(valgrind) = require("valgrind") else { return };
    let Some(program) = compile(&scratch, "gcc", "sanitized.c", &[]) else { return };
    let run = compare(&Job::new("valgrind", valgrind).args(["-q", "--tool=none"]).arg(program));
    assert!(!run.complaints(&["not managed: ", "valgrind"]).is_empty(), "{}", run.stderr);
}
