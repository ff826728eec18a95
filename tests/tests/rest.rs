//! Risk: pages recompressed while a program rests, or computes, come back wrong; or no such time is
//! found, and the room they take is wasted.
//!
//! A program fills memory with text, rests, and reads all of it, in half of what it needs.
//! Meanwhile stored pages must have become smaller by a quarter, and the program must load many of
//! them in that form.

use std::path::Path;
use std::sync::OnceLock;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Fraction, Job, Run};
use coldpress_tests::machine::{fixture, require};
use coldpress_tests::matrix;

const DATA: &str = "96";
/// Seconds of rest: long enough for a busy machine, as each of some 10000 pages takes 60 us.
const REST_SECONDS: &str = "5";
/// Fewest bytes to which LZ4 compresses a page of that text.
const YOUNG_BYTES: u64 = 1200;

/// Makes a job of the program.
fn rest(python: &Path, seconds: &str) -> Job {
    Job::new("rest", python).arg(fixture("rest.py")).args([DATA, seconds])
}

/// Runs the program without coldpress, which need not rest.
fn plain(python: &Path) -> &'static Run {
    static PLAIN: OnceLock<Run> = OnceLock::new();
    PLAIN.get_or_init(|| rest(python, "0").plain())
}

#[test]
fn pages_become_denser_while_a_program_rests() {
    let Some(python) = require("python3") else { return };
    let (job, plain) = (rest(&python, REST_SECONDS), plain(&python));
    let budget = Fraction::Half.of(plain.memory.peak_total);
    let run = job.managed(budget);
    println!("{run}");
    run.assert_same(plain);
    run.assert_stored();
    run.assert_within_budget();
    let count = |key| run.stats().at("zswap", key);
    let (aged, saved) = (count("recompressed_pages"), count("recompressed_saved_bytes"));
    println!("{aged} pages denser by {saved} bytes, {} loaded", count("loaded_dense"));
    assert!(aged > 2000, "{aged} pages of {}", run.stats().count("swap_out_pages"));
    assert!(saved > aged * YOUNG_BYTES / 4, "{saved} bytes of {aged} pages");
    assert!(count("loaded_dense") > 0);
    // Pages stored before the rest are loaded after it.
    let old = run.stats().at_least("loaded_age_ms", 2048);
    assert!(old >= count("loaded_dense") / 2, "{old} pages loaded after seconds");
}

#[test]
fn pages_stay_as_they_are_when_ageing_is_off() {
    if matrix::is_left_out() {
        return;
    }
    let Some(python) = require("python3") else { return };
    let (job, plain) = (rest(&python, REST_SECONDS), plain(&python));
    let run =
        job.options(["--set", "dense=off"]).managed(Fraction::Half.of(plain.memory.peak_total));
    println!("{run}");
    run.assert_same(plain);
    run.assert_stored();
    for counter in ["recompressed_pages", "dictionaries", "loaded_dense"] {
        assert_eq!(run.stats().at("zswap", counter), 0, "{counter}");
    }
}

/// A computing program leaves little time, but some: a page takes 60 us, so 2 % are some 300 pages
/// a second, and on a busy machine far fewer.
#[test]
fn pages_become_denser_while_a_program_computes() {
    let Some(python) = require("python3") else { return };
    let (job, plain) = (rest(&python, REST_SECONDS), plain(&python));
    let job = job.arg("compute");
    let run = job.managed(Fraction::Half.of(plain.memory.peak_total));
    println!("{run}");
    run.assert_same(plain);
    run.assert_stored();
    run.assert_within_budget();
    let aged = run.stats().at("zswap", "recompressed_pages");
    println!("{aged} pages denser");
    assert!(aged > 50, "{aged} pages denser");
}

/// While a program rests, hardly anything looks at it. The kernel wakes the service when the
/// program runs, so memory is seen in time that a program fills at once, and has mapped by the bare
/// instruction, of which nothing is told.
#[test]
fn a_program_that_has_rested_may_grow_at_once() {
    const GROWS: &str = r"
import ctypes, mmap, sys, time
held = [bytearray(b'x' * 2048 + bytes([i % 251]) * 2048) for i in range(25600)]
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
# mov $9, %rax; mov %rcx, %r10; syscall; ret
page.write(bytes.fromhex('48c7c0090000004989ca0f05c3'))
kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_long] * 4)
map = kind(ctypes.addressof(ctypes.c_char.from_buffer(page)))
time.sleep(int(sys.argv[1]))
size = 256 << 20
new = map(None, size, 3, 0x22, -1, 0)
ctypes.memset(new, 7, size)
print(sum(page[4000] for page in held), ctypes.string_at(new + size - 3, 3))
";
    let Some(python) = require("python3") else { return };
    let job = |seconds| Job::new("grows", &python).args(["-c", GROWS, seconds]);
    let run = job("3").managed(Bytes::mib(150));
    println!("{run}");
    run.assert_same(&job("0").plain());
    run.assert_stored();
    run.assert_within_budget();
}
