//! Children of forks that cannot take over pages that are away, and copies for which there is no
//! room.

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Run, SLACK};
use coldpress_tests::machine::{Scratch, fixture, is_root, require};
use coldpress_tests::matrix::{self, Lane, case};

use super::{BUDGET, assert_passed_and_told, number, output};

/// Pages that children inherit from their parent.
const INHERITED: u64 = 8192;
/// Tries of a run: a busy disk may take longer than a copy waits for room.
const TRIES: usize = 5;
/// Half of the excess over the budget that all copies together would cause.
const HALF: Bytes = Bytes::mib(12);
/// A budget below the memory of a parent.
const SMALL: Bytes = Bytes::mib(24);
/// Options with which most pages that are away are on disk.
const DISK: &[&str] = &["--verbose", "--max-pool-percent", "5"];
const NO_DISK: &[&str] = &["--verbose", "--max-pool-percent", "90", "--disk", "none"];

/// A run of `heirs`, which makes generations of children.
struct Heirs {
    run: Run,
    /// Pages away in the parent of each generation when it made the child.
    parents: Vec<u64>,
    /// Pages away in the child of each generation, when it began and at last.
    children: Vec<[u64; 2]>,
}

impl Heirs {
    fn of(way: &str, generations: usize, options: &[&str]) -> Self {
        let job = Job::new("heirs", env!("CARGO_BIN_EXE_heirs"));
        let job = job.args([way.to_owned(), generations.to_string()]);
        let run = job.options(options.iter().copied()).managed(SMALL);
        println!("{run}\n{}{}", output(&run), run.stderr);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let (mut parents, mut children) = (Vec::new(), Vec::new());
        let text = output(&run);
        for line in text.lines().filter(|line| line.contains(" away")) {
            let words = line.split(' ').map(|word| word.trim_matches(&[',', ';', ':'][..]));
            let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
            match numbers[..] {
                [away] => parents.push(away),
                [_, first, last, 0] => children.push([first, last]),
                _ => panic!("{line}"),
            }
        }
        assert_eq!([parents.len(), children.len()], [generations; 2], "{text}");
        assert!(text.ends_with("parent: 0 wrong, the child ended with 0\n"), "{text}");
        Self { run, parents, children }
    }

    fn count(&self, name: &str) -> u64 {
        self.run.stats().count(name)
    }

    /// Asserts that all pages were brought back for the last child first, for which the budget had
    /// no room.
    fn assert_brought_back(&self) {
        let away = *self.parents.last().expect("there is one");
        assert!(away * 2 > INHERITED, "too little was away to be brought back");
        let pages = self.count("fork_pages");
        assert!(pages >= away, "{pages} pages of {away} were brought back");
        let mib = number(&self.run.stderr, "fork: brought ", " MiB back in ");
        assert_eq!(mib, pages >> 8, "{}", self.run.stderr);
        let peak = self.count("peak_bytes");
        assert!(peak > (SMALL + SLACK).0 as u64, "the budget has room for it: {} MiB", peak >> 20);
    }

    fn last_child(&self) -> [u64; 2] {
        *self.children.last().expect("there is one")
    }

    /// Asserts that the child's pages go away like those of any program.
    fn assert_managed_again(&self) {
        let [_, away] = self.last_child();
        assert!(away * 2 > INHERITED, "{}", self.run.stderr);
    }
}

/// Compares with the child of a fork that can be taken over.
fn inherits() -> Option<()> {
    let heirs = Heirs::of("fork", 1, DISK);
    assert_eq!((heirs.count("heirs"), heirs.count("fork_pages")), (1, 0));
    let (before, [first, _]) = (heirs.parents[0], heirs.last_child());
    assert!(before * 2 > INHERITED && first * 2 > INHERITED, "{}", heirs.run.stderr);
    Some(())
}

fn brings_back(way: &str, options: &[&str]) -> Heirs {
    let heirs = Heirs::of(way, 1, &[DISK, options].concat());
    assert_eq!(heirs.count("heirs"), 0);
    heirs.assert_brought_back();
    heirs
}

fn brings_back_when_recorded() -> Option<()> {
    let scratch = Scratch::new("recorded");
    let trace = scratch.path("trace");
    brings_back("fork", &["--record", trace.to_str()?]).assert_managed_again();
    Some(())
}

/// Runs a parent whose child may not look at its own memory either, so that the child is not
/// managed.
fn brings_back_without_proc() -> Option<()> {
    is_root().then_some(())?;
    let heirs = brings_back("dropped", &[]);
    assert_eq!(heirs.last_child(), [0, 0], "it is managed");
    let told = heirs.run.complaints(&["is not managed", "EACCES"]);
    assert!(!told.is_empty(), "{}", heirs.run.stderr);
    Some(())
}

fn brings_back_for_a_clone() -> Option<()> {
    let heirs = brings_back("clone", &[]);
    assert_eq!(heirs.last_child(), [0, 0], "it is managed");
    let told = heirs.run.complaints(&["not managed", "comes from a fork", "by clone"]);
    assert!(!told.is_empty(), "{}", heirs.run.stderr);
    Some(())
}

/// Forks five generations: each has a file of its own, and the files of all generations before.
fn brings_back_for_the_fifth() -> Option<()> {
    let heirs = Heirs::of("fork", 4, DISK);
    assert_eq!((heirs.count("heirs"), heirs.count("fork_pages")), (4, 0));
    assert!(heirs.count("written_back_pages") > 0, "nothing was on disk");
    let heirs = Heirs::of("fork", 5, DISK);
    assert_eq!(heirs.count("heirs"), 4);
    heirs.assert_brought_back();
    heirs.assert_managed_again();
    let heirs = Heirs::of("fork", 5, NO_DISK);
    assert_eq!((heirs.count("heirs"), heirs.count("fork_pages")), (5, 0));
    Some(())
}

#[test]
fn a_child_that_cannot_take_over_has_everything_brought_back_first() {
    matrix::run(&[
        case("others take over", Lane::Long, inherits),
        case("recorded", Lane::Short, brings_back_when_recorded),
        case("after MADV_WIPEONFORK", Lane::Long, || {
            brings_back("wipe", &[]).assert_managed_again();
            Some(())
        }),
        case("without its files in /proc", Lane::Short, brings_back_without_proc),
        case("by clone, with another stack", Lane::Long, brings_back_for_a_clone),
        case("of the fifth generation", Lane::Long, brings_back_for_the_fifth),
    ]);
}

/// Lets parent and child write to all of their shared memory, for which there is no room twice.
fn copies_of_noise(options: &[&str]) -> Option<Run> {
    let job = Job::new("noise", require("python3")?).arg(fixture("copies.py"));
    let job = job.args(["24", "2", "noise"]).options(options.iter().copied()).shares();
    let plain = job.plain();
    let run = job.managed(BUDGET);
    println!("{run}\n{}", run.stderr);
    run.assert_same(&plain);
    assert_eq!(run.stats().count("heirs"), 2);
    Some(run)
}

/// Checks that all copies find room where the disk keeps up, so that room is made all the time.
fn noise_goes_to_the_disk() -> Option<()> {
    for _ in 0..TRIES {
        let run = copies_of_noise(&[])?;
        assert!(run.stats().count("copy_faults") > 0, "{run}");
        assert!(run.stats().count("written_back_pages") > 1000, "{run}");
        if run.memory.peak_below < BUDGET + HALF {
            return Some(());
        }
    }
    panic!("nobody waits until the disk has what cannot be compressed");
}

/// Checks that no copy waits where no process can make room.
fn noise_passes_the_budget() -> Option<()> {
    let run = copies_of_noise(&["--disk", "none"])?;
    assert_eq!(run.stats().count("written_back_pages"), 0);
    assert_passed_and_told(&run);
    Some(())
}

#[test]
fn copies_that_cannot_be_compressed_go_to_the_disk_or_pass_the_budget() {
    matrix::run(&[
        case("to the disk", Lane::Long, noise_goes_to_the_disk),
        case("there is none", Lane::Long, noise_passes_the_budget),
    ]);
}
