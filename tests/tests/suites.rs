//! Risk: a tree of processes under pressure (forked workers, servers with a process a client,
//! compilers side by side) ends otherwise than it does without coldpress.
//!
//! Each suite prints a line for each of its cases and how it ended. It runs plain, then within a
//! budget that is a fraction of what it holds: the output must be the same, and pages must have
//! been stored. A case that fails without coldpress too is no difference.
//!
//! `make suites` runs the suites of CPython, Redis and PostgreSQL, and builds of a real project,
//! from the sources in the folder that COLDPRESS_SUITES names; that takes an hour. Without the
//! variable short forms run, of programs that are installed.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{Scratch, find, fixture, require, skip};

/// Time limits of a whole suite on a busy machine, and of a short form.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_secs(240);

/// Runs a job plain, then within `budget_mib` MiB.
fn check(job: &Job, budget_mib: usize, limit: Duration) {
    let plain = Live::start(job, None).finish(limit);
    println!("{plain}");
    assert_eq!(plain.code, 0, "without coldpress: {}", plain.stderr);
    assert!(!plain.stdout.is_empty(), "no case ran: {}", plain.stderr);
    let run = Live::start(job, Some(Bytes::mib(budget_mib))).finish(limit);
    println!("{run}\n{}\n{}", String::from_utf8_lossy(&run.stdout), run.stderr);
    run.assert_same(&plain);
    run.assert_none_ended();
    run.assert_stored();
}

/// Makes a job of the script `name`, which works in `scratch`.
fn job(name: &'static str, script: &str, scratch: &Scratch) -> Job {
    Job::new(name, fixture(script)).environment("TMPDIR", scratch.path("")).forks()
}

/// Returns the folder of the source `name`; `None` in short runs.
fn source(name: &str) -> Option<PathBuf> {
    let Some(folder) = env::var_os("COLDPRESS_SUITES") else {
        println!("skipped: only `make suites` runs it");
        return None;
    };
    let path = PathBuf::from(folder).join(name);
    assert!(path.is_dir(), "{} is missing: run `make suites`", path.display());
    Some(path)
}

/// Finds a Python with these modules of its own suite. The one that `PATH` names may be a slow
/// script.
fn python(modules: &[&str]) -> Option<OsString> {
    let script = "import importlib.util, sys\n\
                  for name in sys.argv[1:]:\n    assert importlib.util.find_spec('test.' + name)\n\
                  print(sys.executable)";
    let look = |name: &str| {
        let output = Command::new(name).args(["-c", script]).args(modules).output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| path.trim().into())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find_map(look);
    if found.is_none() {
        skip("no python3 with its own suite");
    }
    found
}

/// Runs modules of CPython's suite, with options of its runner.
fn cpython(modules: &[&str], options: &[&str], budget_mib: usize, limit: Duration) {
    let Some(python) = python(modules) else { return };
    let scratch = Scratch::new("cpython");
    let job = job("cpython", "suites/python.sh", &scratch).arg(python).arg(scratch.path(""));
    let words = options.iter().chain(modules).copied();
    check(&job.args(words), budget_mib, limit);
}

/// Runs parts of Redis's suite.
fn redis(parts: &[&str], budget_mib: usize) {
    let Some(source) = source("redis") else { return };
    if require("tclsh").is_none() {
        return;
    }
    let scratch = Scratch::new("redis-suite");
    let job = job("redis", "suites/redis.sh", &scratch).arg(source).arg(scratch.path(""));
    check(&job.args(parts.iter().copied()), budget_mib, LONG);
}

/// Runs PostgreSQL: some queries, or the suite of `source`.
fn postgres(source: Option<PathBuf>, budget_mib: usize, limit: Duration) {
    if find("pg_config").is_none() && !PathBuf::from("/usr/lib/postgresql").is_dir() {
        return skip("PostgreSQL is not installed");
    }
    let scratch = Scratch::new("postgres");
    let job = job("postgres", "suites/postgres.sh", &scratch).arg(scratch.path(""));
    check(&job.args(source), budget_mib, limit);
}

/// Runs a build with a compiler, of `jobs` jobs: of files made for it, or of `source`.
fn compile(compiler: &str, jobs: &str, source: Option<PathBuf>, mib: usize, limit: Duration) {
    if require("make").is_none() || require(compiler).is_none() {
        return;
    }
    let scratch = Scratch::new("compile");
    let job = job("compile", "suites/compile.sh", &scratch).arg(scratch.path(""));
    check(&job.args([compiler, jobs]).args(source), mib, limit);
}

#[test]
fn cpython_in_short_gives_the_same() {
    // Without the cases that only wait, of which test_fork1 has most.
    let options =
        ["-m", "*preexec*", "-m", "*_std_fds*", "-m", "*test_wait", "-m", "*.MmapTests.*"];
    cpython(&["test_fork1", "test_subprocess", "test_mmap"], &options, 20, SHORT);
}

#[test]
fn postgres_in_short_gives_the_same() {
    postgres(None, 40, SHORT);
}

#[test]
fn gcc_in_short_gives_the_same() {
    compile("gcc", "3", None, 32, SHORT);
}

/// Three compilers hold 52 MiB, of which more than half are data of libraries and stay in place.
#[test]
fn clang_in_short_gives_the_same() {
    compile("clang", "3", None, 50, SHORT);
}

#[test]
fn cpython_threads_and_memory() {
    if source("").is_some() {
        cpython(&["test_threading", "test_os", "test_mmap", "test_gc"], &[], 16, LONG);
    }
}

#[test]
fn cpython_processes() {
    if source("").is_some() {
        cpython(&["test_fork1", "test_subprocess"], &[], 16, LONG);
    }
}

#[test]
fn cpython_multiprocessing() {
    if source("").is_some() {
        let name = |end| format!("test_multiprocessing_{end}");
        let names = ["main_handling", "fork", "forkserver", "spawn"].map(name);
        cpython(&names.each_ref().map(String::as_str), &[], 64, LONG);
    }
}

#[test]
fn redis_types() {
    redis(
        &[
            "unit/dump",
            "unit/type/string",
            "unit/type/list",
            "unit/type/set",
            "unit/type/zset",
            "unit/type/hash",
            "unit/type/stream",
            "unit/other",
            "unit/lazyfree",
        ],
        24,
    );
}

#[test]
fn redis_files_and_replicas() {
    redis(
        &[
            "unit/aofrw",
            "unit/memefficiency",
            "integration/rdb",
            "integration/aof",
            "integration/aof-multi-part",
            "integration/dismiss-mem",
            "integration/replication-psync",
        ],
        64,
    );
}

/// The budget is half of the 639 MiB that a server, its saving child and three replicas hold. The
/// suite reads and writes their data at random. The data grow until the replicas have come, for
/// which these have 50 s.
#[test]
fn redis_replicas() {
    redis(&["integration/replication"], 320);
}

#[test]
fn postgres_regression() {
    if let Some(source) = source("postgresql") {
        postgres(Some(source), 64, LONG);
    }
}

#[test]
fn compile_with_gcc() {
    if let Some(source) = source("redis") {
        compile("gcc", "6", Some(source), 96, LONG);
    }
}

#[test]
fn compile_with_clang() {
    if let Some(source) = source("redis") {
        compile("clang", "6", Some(source), 160, LONG);
    }
}
