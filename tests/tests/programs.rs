//! Risk: a real program gives another answer, or does not keep its budget.
//!
//! Each job runs plain once, which measures its own peak of anonymous memory, and then within parts
//! of that peak. Output, exit status and written files must be the same, pages must really have
//! been stored, and memory must have stayed within the budget. Each job names its required parts: a
//! quarter only where code, stacks, and what a runtime keeps unmovable leave room.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;

use coldpress_sys::Bytes;
use coldpress_sys::ring::Ring;
use coldpress_tests::harness::{Fraction, Job, check};
use coldpress_tests::machine::{Scratch, fixture, require};
use coldpress_tests::matrix::{self, Lane};

/// Programs whose floor is small beside their data.
const HALF_AND_QUARTER: &[Fraction] = &[Fraction::Half, Fraction::Quarter];
/// Programs that bring a large runtime: its code cache, heap tables and collector.
const HALF: &[Fraction] = &[Fraction::Half];
/// The part for jobs that another case runs at half.
const QUARTER: &[Fraction] = &[Fraction::Quarter];

/// Lines of the input of sort: about 38 MB of text, 70 MB in sort.
const SORT_LINES: u64 = 740_000;
/// Functions of the C file: about 100 MB in the compiler.
const C_FUNCTIONS: u32 = 600;
/// Keys of redis-server: about 75 MB there; below, half as many.
const REDIS_KEYS: &str = "120000";
const REDIS_KEYS_SHORT: &str = "60000";

/// Budget for two programs of up to 75 MiB each.
const TWO_BUDGET: Bytes = Bytes::mib(72);

/// A job with the place its files are in, and the budgets it must keep.
struct Case {
    job: Job,
    fractions: &'static [Fraction],
    /// Kept because dropping it removes the files.
    _scratch: Scratch,
}

impl Case {
    fn new(job: Job, fractions: &'static [Fraction], scratch: Scratch) -> Option<Self> {
        // Dumps and temporary files of a program that fails stay in the scratch directory.
        let directory = scratch.path("");
        let job = job.directory(directory.clone()).environment("TMPDIR", directory);
        Some(Self { job, fractions, _scratch: scratch })
    }

    /// Compares the managed runs with the plain one.
    fn check(&self) {
        // The last part is the smallest.
        let most = if matrix::is_all() { self.fractions.len() } else { 1 };
        let fractions = &self.fractions[self.fractions.len() - most..];
        check(&self.job, fractions);
    }
}

/// Makes a job of a script for `sh -c`, with words it finds in `$1`, `$2`, ...
fn shell(name: &'static str, script: &str, words: impl IntoIterator<Item = OsString>) -> Job {
    Job::new(name, "sh").args(["-c", script, "sh"]).args(words)
}

fn python_mixed() -> Option<Case> {
    let job = Job::new("python3", require("python3")?).arg(fixture("job.py")).args(["1", "100"]);
    Case::new(job, HALF_AND_QUARTER, Scratch::new("python"))
}

fn python_fork() -> Option<Case> {
    let job = Job::new("python3 fork", require("python3")?).arg(fixture("fork.py")).arg("120");
    Case::new(job.forks(), HALF_AND_QUARTER, Scratch::new("fork"))
}

fn sqlite() -> Option<Case> {
    let job = Job::new("sqlite3", require("sqlite3")?).arg(":memory:").stdin(fixture("table.sql"));
    Case::new(job, HALF_AND_QUARTER, Scratch::new("sqlite"))
}

fn sort(
    name: &'static str,
    parallel: &str,
    lines: u64,
    fractions: &'static [Fraction],
) -> Option<Case> {
    let scratch = Scratch::new("sort");
    let input = scratch.write("input", sort_input(lines).as_bytes());
    let job = Job::new(name, require("sort")?).args([parallel, "-S", "300M"]).arg(input);
    Case::new(job.environment("LC_ALL", "C"), fractions, scratch)
}

/// Makes lines of hexadecimal words and some text, from a linear congruential generator (Knuth,
/// MMIX).
fn sort_input(lines: u64) -> String {
    let mut state = 42_u64;
    let mut text = String::new();
    for number in 0..lines {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = state >> 16;
        writeln!(text, "{word:012x} line {number} of the file, {:08x}", word >> 9)
            .expect("a String takes everything");
    }
    text
}

fn gcc() -> Option<Case> {
    let scratch = Scratch::new("gcc");
    let source = scratch.write("large.c", c_source().as_bytes());
    let object = scratch.path("large.o");
    let job = Job::new("gcc", require("gcc")?)
        .args(["-O2", "-c", "-o"])
        .args([&object, &source])
        .artefact(object.clone());
    Case::new(job, HALF_AND_QUARTER, scratch)
}

/// Makes C functions with a table, loops and branches each, so that all passes of the compiler have
/// work.
fn c_source() -> String {
    let mut text = String::from("#include <stddef.h>\n");
    for number in 0..C_FUNCTIONS {
        let (a, b) = (number * 7919 % 251 + 3, number * 104_729 % 127 + 5);
        let table: Vec<_> = (0..64).map(|j| ((number * 31 + j * j) % 65_521).to_string()).collect();
        write!(
            text,
            "struct s{number} {{ int key[{b}]; double weight; struct s{number} *next; }};\n\
             static const unsigned short t{number}[] = {{ {} }};\n\
             unsigned f{number}(struct s{number} *list, const unsigned *in, size_t count) {{\n\
             \x20 unsigned sum = {a}u;\n\
             \x20 for (size_t i = 0; i < count; i++) {{\n\
             \x20   if (in[i] % 7u == {}u) sum += in[i] * t{number}[i & 63u];\n\
             \x20   else sum ^= in[i] >> 3;\n\
             \x20 }}\n\
             \x20 for (; list; list = list->next)\n\
             \x20   list->weight += list->key[{}] * 1.5 + sum;\n\
             \x20 return sum;\n}}\n",
            table.join(","),
            a % 7,
            b / 2,
        )
        .expect("a String takes everything");
    }
    text
}

fn redis(name: &'static str, save: &str) -> Option<Case> {
    require("redis-cli")?;
    require("redis-benchmark")?;
    require("redis-server")?;
    let scratch = Scratch::new("redis");
    let keys = if matrix::is_all() { REDIS_KEYS } else { REDIS_KEYS_SHORT };
    let words = [scratch.path("").into_os_string(), keys.into(), save.into()];
    let job = Job::new(name, fixture("redis.sh")).args(words);
    if save.is_empty() {
        Case::new(job, HALF_AND_QUARTER, scratch)
    } else {
        Case::new(job.forks(), HALF, scratch)
    }
}

fn node() -> Option<Case> {
    let job = Job::new("node", require("node")?).arg(fixture("job.js")).arg("60");
    Case::new(job, HALF, Scratch::new("node"))
}

fn java(name: &'static str, collector: &[&str]) -> Option<Case> {
    let job = Job::new(name, require("java")?).args(collector.iter().copied());
    let job = job.args(["-XX:-UsePerfData", "-Xmx400m"]).arg(fixture("Job.java")).arg("50");
    Case::new(job, HALF, Scratch::new("java"))
}

/// Returns the interpreter and the words of the mixed job at three fifths of its size.
fn small_python(seed: &str) -> Option<Vec<OsString>> {
    let script: PathBuf = fixture("job.py");
    Some(vec![require("python3")?.into(), script.into(), seed.into(), "60".into()])
}

fn through_a_shell() -> Option<Case> {
    let job = shell("sh -c", "\"$@\"; echo \"status $?\"", small_python("3")?);
    Case::new(job, HALF, Scratch::new("shell"))
}

fn through_env() -> Option<Case> {
    let job = Job::new("env", require("env")?).arg("MARK=1").args(small_python("4")?);
    Case::new(job, HALF, Scratch::new("env"))
}

fn through_a_shim() -> Option<Case> {
    let job = Job::new("shim", fixture("shim.sh")).arg(fixture("shim.sh"));
    Case::new(job.args(small_python("5")?), HALF, Scratch::new("shim"))
}

/// Makes one test for each job. `make system` runs those that are `Short`.
macro_rules! cases {
    ($($name:ident: $lane:ident, $make:expr;)*) => {
        $(#[test]
        fn $name() {
            if Lane::$lane == Lane::Long && !matrix::is_all() {
                return println!("skipped: only `make suites` runs it");
            }
            if let Some(case) = $make {
                case.check();
            }
        })*
    };
}

cases! {
    python3_mixed_gives_the_same: Short, python_mixed();
    python3_fork_gives_the_same: Short, python_fork();
    sqlite3_gives_the_same: Short, sqlite();
    sort_gives_the_same: Long, sort("sort", "--parallel=1", SORT_LINES, QUARTER);
    sort_in_two_threads_gives_the_same: Short,
        sort("sort, two threads", "--parallel=2", SORT_LINES / 2, HALF);
    gcc_gives_the_same: Short, gcc();
    redis_gives_the_same: Long, redis("redis", "");
    redis_with_a_background_save_gives_the_same: Short, redis("redis, bgsave", "bgsave");
    node_gives_the_same: Short, node();
    java_serial_gives_the_same: Long, java("java, serial", &["-XX:+UseSerialGC"]);
    java_default_collector_gives_the_same: Short, java("java", &[]);
    a_program_through_a_shell_is_managed: Short, through_a_shell();
    a_program_through_env_is_managed: Short, through_env();
    a_program_through_shims_is_managed: Short, through_a_shim();
}

/// The pool that the user picks holds the pages.
#[test]
fn every_pool_gives_the_same() {
    let Some(words) = small_python("8") else { return };
    let job = Job::new("pools", words[0].clone()).args(words.into_iter().skip(1));
    let plain = job.plain();
    let budget = Fraction::Half.of(plain.memory.peak_total);
    for pool in ["zsmalloc", "xvmalloc", "xcfmalloc", "segment"] {
        let run = job.clone().options(["--verbose", "--pool", pool]).managed(budget);
        println!("{pool}: {run}");
        run.assert_same(&plain);
        run.assert_stored();
        run.assert_within_budget();
        assert!(!run.complaints(&["is managed", pool]).is_empty(), "{pool}: {}", run.stderr);
        // The job frees what it holds, so meanwhile the pools that can compact do so.
        let moves = matches!(pool, "zsmalloc" | "segment");
        assert!(!moves || run.stats().count("compacted_bytes") > 0, "{pool} was not compacted");
    }
}

/// Most pages go to disk and come back from there, through io_uring and where io_uring is
/// forbidden.
#[test]
fn pages_on_disk_come_back_the_same() {
    let Some(words) = small_python("9") else { return };
    let job = Job::new("disk", words[0].clone()).args(words.into_iter().skip(1));
    let job = job.options(["--max-pool-percent", "5", "--verbose"]);
    let plain = job.plain();
    let budget = Fraction::Half.of(plain.memory.peak_total);
    let without = [env!("CARGO_BIN_EXE_without"), "io_uring_setup"];
    let here = Ring::new().is_ok();
    for (name, before) in [("io_uring", None), ("plain calls", Some(without))] {
        let run = job.clone().before(before.into_iter().flatten()).managed(budget);
        println!("{name}: {run}");
        run.assert_same(&plain);
        run.assert_within_budget();
        let by_ring = !run.complaints(&["writes to the disk", "io_uring"]).is_empty();
        assert_eq!(by_ring, here && before.is_none(), "{name}: {}", run.stderr);
        for counter in ["written_back_pages", "read_back_pages"] {
            assert!(run.stats().count(counter) > 1000, "{name}: {counter}; {}", run.stderr);
        }
    }
}

#[test]
fn two_programs_share_one_budget() {
    let Some(words) = small_python("") else { return };
    let scratch = Scratch::new("two");
    let script = "\"$1\" \"$2\" 6 60 > one & first=$!; \"$1\" \"$2\" 7 60 > two & second=$!; \
                  wait $first && wait $second";
    let job = shell("two together", script, words).directory(scratch.path(""));
    let job = job.artefact(scratch.path("one")).artefact(scratch.path("two"));
    let plain = job.plain();
    println!("{plain}");
    // A fixed budget, not a part of a peak: by chance both programs peak at the same time or not.
    let run = job.managed(TWO_BUDGET);
    println!("{run}");
    run.assert_same(&plain);
    run.assert_stored();
    run.assert_within_budget();
}
