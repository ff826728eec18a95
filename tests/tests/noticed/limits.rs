//! Programs at a limit: with more robust mutexes or ranges than coldpress remembers, with locked
//! memory, or with data that does not compress.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Run};
use coldpress_tests::machine::{self, Scratch, Setting, is_root, require};
use coldpress_tests::matrix::{self, Lane, case};

use super::PYTHON;

const GIVEN: &str = env!("CARGO_BIN_EXE_given");
/// A budget below half of what `given` walks.
const BUDGET: Bytes = Bytes::mib(24);
/// A script that holds 40 MiB of noise, and checks it twice. It rests before each check, because
/// coldpress looks at what it holds twenty times a second.
const NOISE: &str = "
import random, time
chance = random.Random(5)
parts = [chance.randbytes(1 << 20) for _ in range(40)]
for _ in range(2):
    time.sleep(0.3)
    chance.seed(5)
    print(all(part == chance.randbytes(1 << 20) for part in parts))
";

/// Runs `given`, plain and managed; `None` where this machine forbids what it does.
fn given(words: &[&str]) -> Option<(Run, Run)> {
    let job = Job::new("given", GIVEN).args(words.iter().copied());
    let plain = job.plain();
    assert_eq!(plain.code, 0, "{}{}", text(&plain), plain.stderr);
    if text(&plain).starts_with("skip: ") {
        println!("skipped: {}", text(&plain));
        return None;
    }
    let run = job.managed(BUDGET);
    println!("{run}\n{}{}", text(&run), run.stderr);
    assert_eq!(run.code, 0, "{}{}", text(&run), run.stderr);
    run.assert_stored();
    Some((plain, run))
}

fn text(run: &Run) -> String {
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// Returns the numbers that a line of the run's standard error has behind `words`.
fn numbers(run: &Run, words: &str) -> Vec<u64> {
    let line = run.stderr.lines().find_map(|line| line.strip_prefix(words));
    let line = line.unwrap_or_else(|| panic!("no {words:?}: {}", run.stderr));
    line.split(' ').filter_map(|word| word.parse().ok()).collect()
}

/// Shows that the mutex's page stays, and pages beside it go.
fn mutexes_that_hand_on_priority_stay() -> Option<()> {
    let (plain, run) = given(&["inherit"])?;
    run.assert_same(&plain);
    assert_eq!(text(&run), "the waiter got (0, 0)\n");
    assert_eq!(numbers(&run, "in place "), [1, 1]);
    let beside = numbers(&run, "beside ");
    assert!(beside[0] * 2 < beside[1], "{beside:?} beside it are in place");
    Some(())
}

/// Shows that as many mutexes as coldpress remembers stay, and the end of their owner is reported;
/// of more mutexes, some go.
fn so_many_mutexes_stay() -> Option<()> {
    let (plain, run) = given(&["mutexes", "192"])?;
    run.assert_same(&plain);
    assert_eq!(text(&run), "told of 192\n");
    let in_place = numbers(&run, "in place ");
    assert!(in_place[0] == 192 && in_place[1] < 8, "{in_place:?} of 192 and 8 are in place");
    let more = [&plain, &run].map(|run| numbers(run, "told of ")[0]);
    assert!(more[0] == 8 && more[1] < 8, "plain and managed, of 8 more are told of: {more:?}");
    Some(())
}

/// Shows that as many ranges as coldpress remembers can be watched; for more, the kernel says
/// EBUSY.
fn so_many_ranges_are_watched() -> Option<()> {
    let (plain, run) = given(&["ranges", "64"])?;
    assert_eq!(text(&plain), "watched 72, busy 0, of 72\n");
    assert_eq!(text(&run), "watched 64, busy 8, of 72\n");
    Some(())
}

/// Shows that locked memory stays, and goes again when it is unlocked. Memory with a guard page
/// stays then too.
fn unlocked_memory_goes_again() -> Option<()> {
    let run = Job::new("unlocks", GIVEN).arg("unlocks").managed(BUDGET);
    println!("{run}\n{}{}", text(&run), run.stderr);
    assert_eq!(run.code, 0, "{}{}", text(&run), run.stderr);
    if text(&run).starts_with("skip: ") {
        return None;
    }
    let text = text(&run);
    let numbers = text.split(|sign: char| !sign.is_ascii_digit()).filter(|word| !word.is_empty());
    let numbers: Vec<u64> = numbers.map(|word| word.parse().expect("digits")).collect();
    let [before, guarded, locked, locked_too, after, stays] = numbers[..] else { panic!("{text}") };
    assert!(before < 256 && guarded < 256, "nothing was away: {text}");
    assert_eq!([locked, locked_too], [511, 511], "{text}");
    assert!(after < 256 && stays == 511, "{text}");
    Some(())
}

/// Shows that locked memory may always grow once. A second growth at once may be refused, and libc
/// copies the memory instead.
fn locked_memory_grows_again() -> Option<()> {
    let (plain, run) = given(&["grows"])?;
    run.assert_same(&plain);
    assert_eq!(text(&run), "grown\n");
    let refused = [&plain, &run].map(|run| numbers(run, "refused again ")[0]);
    println!("plain and managed, refused: {refused:?}");
    assert_eq!(refused[0], 0);
    Some(())
}

/// Shows that the thread waits for ever where coldpress may not look what the thread waits for:
/// with a launcher without rights, and a program that others may not inspect.
fn locked_memory_hangs_where_nobody_may_look() -> Option<()> {
    if !is_root() {
        return None;
    }
    require("setpriv")?;
    let Some(_all) = Setting::set("/proc/sys/vm/unprivileged_userfaultfd", "1") else {
        println!("skipped: the kernel has no such setting");
        return None;
    };
    let scratch = Scratch::new("nobody");
    let copy = |from: &Path, name: &str| {
        let to = scratch.path(name);
        fs::copy(from, &to).expect("the scratch directory takes files");
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).expect("it is ours");
        to
    };
    let launcher = copy(&machine::coldpress(), "coldpress");
    let program = copy(Path::new(GIVEN), "given");
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];
    let run = |how: &[&str]| {
        let words = ["-s", "KILL", "15"];
        let job = Job::new("grows", "timeout").args(words).arg(&program).arg("grows");
        let job = job.args(how.iter().copied()).launcher(&launcher).directory("/");
        let run = job.before(nobody).managed(BUDGET);
        println!("{run}\n{}{}", text(&run), run.stderr);
        run
    };
    // The launcher may look at programs of its own user.
    let open = run(&[]);
    if open.code != 0 || text(&open) != "grown\n" {
        println!("skipped: a user without rights may not do this: {}", open.stderr);
        return None;
    }
    let hidden = run(&["hidden"]);
    assert_eq!((hidden.code, text(&hidden).as_str()), (128 + 9, ""), "{}", hidden.stderr);
    Some(())
}

/// Runs the noise with `options`.
fn noise(options: &[&str]) -> Option<Run> {
    if !Path::new(PYTHON).exists() {
        machine::skip("no python3 that every user may run");
        return None;
    }
    let job = Job::new("noise", PYTHON).args(["-c", NOISE]).options(options.iter().copied());
    let run = job.managed(BUDGET);
    println!("{run}\n{}{}", text(&run), run.stderr);
    assert_eq!((run.code, text(&run).as_str()), (0, "True\nTrue\n"), "{}", run.stderr);
    Some(run)
}

fn noise_goes_to_the_disk() -> Option<()> {
    let run = noise(&["--max-pool-percent", "10"])?;
    run.assert_within_budget();
    let written = run.stats().count("written_back_pages");
    assert!(written > 1000, "{written} pages went to the disk");
    Some(())
}

fn noise_stays_without_a_disk() -> Option<()> {
    let run = noise(&["--disk", "none"])?;
    assert_eq!(run.stats().count("written_back_pages"), 0);
    assert!(run.memory.peak_below > Bytes::mib(40), "{:?}", run.memory.peak_below);
    let told = run.complaints(&["the budget of 24 MiB cannot be kept"]);
    assert_eq!(told.len(), 1, "{}", run.stderr);
    Some(())
}

#[test]
fn what_meets_a_limit() {
    let cases = [
        case("a mutex that hands on priority", Lane::Short, mutexes_that_hand_on_priority_stay),
        case("192 robust mutexes and more", Lane::Short, so_many_mutexes_stay),
        case("64 watched ranges and more", Lane::Short, so_many_ranges_are_watched),
        case("locked memory, unlocked again", Lane::Short, unlocked_memory_goes_again),
        case("locked memory grows again", Lane::Short, locked_memory_grows_again),
        case("locked memory where nobody may look", Lane::Long, || {
            locked_memory_hangs_where_nobody_may_look()
        }),
        case("noise goes to the disk", Lane::Short, noise_goes_to_the_disk),
        case("noise without a disk", Lane::Short, noise_stays_without_a_disk),
    ];
    matrix::run(&cases);
}
