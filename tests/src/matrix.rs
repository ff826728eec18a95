//! Many cases of one kind in one test.
//!
//! A case states what is right and panics where that is not so; all of them run, and those that
//! fail are told together. A test runs the short cases; with COLDPRESS_ALL=1 (`make edges`) all of
//! them.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// When a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Always.
    Short,
    /// With COLDPRESS_ALL=1.
    Long,
}

/// One case.
pub struct Case<'a> {
    /// Its name.
    pub name: &'a str,
    /// When it runs.
    pub lane: Lane,
    /// The case itself, which panics; `None` when this machine cannot try it, which it says.
    pub run: Box<dyn Fn() -> Option<()> + 'a>,
}

/// A case named `name`.
pub fn case<'a>(name: &'a str, lane: Lane, run: impl Fn() -> Option<()> + 'a) -> Case<'a> {
    Case { name, lane, run: Box::new(run) }
}

/// Whether all cases run.
pub fn is_all() -> bool {
    env::var("COLDPRESS_ALL").is_ok_and(|value| value == "1")
}

/// Whether a test is left out, which it says: it takes long, and another is of its kind.
pub fn is_left_out() -> bool {
    let is_left_out = !is_all();
    if is_left_out {
        println!("left to `make long`");
    }
    is_left_out
}

/// Runs `cases`.
///
/// # Panics
/// When one fails.
pub fn run(cases: &[Case<'_>]) {
    let failed = judge(cases, is_all());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Runs them, prints a line each, and returns those that failed.
fn judge(cases: &[Case<'_>], is_all: bool) -> Vec<String> {
    let mut failed = Vec::new();
    for Case { name, lane, run } in cases {
        if *lane == Lane::Long && !is_all {
            println!("left to `make edges`: {name}");
            continue;
        }
        let begun = Instant::now();
        // What a case leaves half done is its own.
        let outcome = catch_unwind(AssertUnwindSafe(run));
        let seconds = begun.elapsed().as_secs_f64();
        match outcome {
            Ok(None) => println!("not tried: {name}"),
            Ok(Some(())) => println!("ok: {name}, {seconds:.1} s"),
            Err(panic) => failed.push(format!("{name}: {}", words(&*panic))),
        }
    }
    failed
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}

#[cfg(test)]
mod tests {
    //! Risk: a case that fails passes.

    use super::*;

    fn fails() -> Option<()> {
        panic!("number {}", 7)
    }

    #[test]
    fn what_fails_is_told() {
        let cases = [
            case("good", Lane::Short, || Some(())),
            case("bad", Lane::Short, fails),
            case("absent", Lane::Short, || None),
            case("long", Lane::Long, fails),
        ];
        assert_eq!(judge(&cases, false), ["bad: number 7"]);
        assert_eq!(judge(&cases, true), ["bad: number 7", "long: number 7"]);
    }

    #[test]
    #[should_panic(expected = "number 7")]
    fn a_failure_fails_the_test() {
        run(&[case("bad", Lane::Short, fails)]);
    }
}
