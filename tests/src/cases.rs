//! Programs made of many small cases, run plain and within a budget, and judged case by case.
//!
//! Such a program prints a line for each case, `ok NAME evicted=E/P`, `skip NAME: why` or `FAIL
//! NAME ...`, and at the end `evicted_pages=E of P`: of the P pages that the cases had, E were not
//! in memory when they began.

use std::collections::BTreeSet;

use coldpress_sys::Bytes;

use crate::harness::{Job, Run};

/// The part of the pages that must have been away, for the cases to test anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// 1/3 of the pages.
    AThird,
    /// 3/4 of the pages.
    MostOf,
}

impl Evicted {
    fn is_met(self, away: u64, all: u64) -> bool {
        match self {
            Self::AThird => away * 3 >= all,
            Self::MostOf => away * 4 >= all * 3,
        }
    }
}

/// Runs `job` plain, then within `budget`. There no case may fail, all cases must pass that passed
/// before, and pages must be away as `evicted` says.
///
/// # Panics
/// When any of this does not hold.
pub fn check(job: &Job, budget: Bytes, evicted: Evicted) -> Run {
    let plain = job.plain();
    let wanted = text(&plain);
    assert_eq!(plain.code, 0, "without coldpress: {wanted}\n{}", plain.stderr);
    let run = job.managed(budget);
    let found = text(&run);
    println!("{run}\n{found}");
    let bad: Vec<_> = found.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert!(run.code == 0 && bad.is_empty(), "{}: {bad:#?}\n{}", run.code, run.stderr);
    let missing: Vec<_> = passed(&wanted).difference(&passed(&found)).copied().collect();
    assert!(missing.is_empty(), "passed without coldpress only: {missing:?}\n{}", run.stderr);
    run.assert_stored();
    let (away, all) = evicted_pages(&found).expect("the program prints it");
    assert!(evicted.is_met(away, all), "only {away} of {all} pages were away");
    run
}

/// Returns a run's output.
fn text(run: &Run) -> String {
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// Returns the cases that were found right.
fn passed(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("ok "));
    lines.map(|line| line.split(" evicted=").next().unwrap_or(line)).collect()
}

/// Returns the number of pages that were away when cases began, and of all pages that the cases
/// had.
fn evicted_pages(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("evicted_pages="))?;
    let (away, all) = line.split_once(" of ")?;
    Some((away.parse().ok()?, all.parse().ok()?))
}
