//! Many cases of one kind in one test.
//!
//! A case states what is right and panics where it does not hold. All cases run, and those that
//! fail are reported together. A test runs the short cases; with COLDPRESS_ALL=1 (`make edges`) all
//! of them.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// The condition under which a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Always.
    Short,
    /// With COLDPRESS_ALL=1.
    Long,
}

/// One case.
pub struct Case<'a> {
    /// The case's name.
    pub name: &'a str,
    /// The condition under which the case runs.
    pub lane: Lane,
    /// The case itself, which panics when it fails; `None`, with a printed line, when this machine
    /// cannot try it.
    pub run: Box<dyn Fn() -> Option<()> + 'a>,
}

/// Makes a case named `name`.
pub fn case<'a>(name: &'a str, lane: Lane, run: impl Fn() -> Option<()> + 'a) -> Case<'a> {
    Case { name, lane, run: Box::new(run) }
}

/// Returns whether all cases run.
pub fn is_all() -> bool {
    env::var("COLDPRESS_ALL").is_ok_and(|value| value == "1")
}

/// Returns whether a test is left out, and prints a line if so: the test takes long, and another is
/// of its kind.
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

/// Runs `cases`, prints a line for each, and returns those that failed.
fn judge(cases: &[Case<'_>], is_all: bool) -> Vec<String> {
    let mut failed = Vec::new();
    for Case { name, lane, run } in cases {
        if *lane == Lane::Long && !is_all {
            println!("left to `make edges`: {name}");
            continue;
        }
        let begun = Instant::now();
        // A case shares with the others nothing that it may leave half done.
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

/// Returns the message of a panic.
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
