//! Many cases of one kind in one test, of which some are known to fail.
//!
//! A case states what is right and panics where that is not so. What fails today stands in a list
//! with its reason, beside the cases. A case of the list that fails is told and fails no test; one
//! that passes does, so that its entry is taken away with what mends it.
//!
//! A test runs the short cases; with COLDPRESS_EDGES=1 (`make edges`) all of them.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Of what a failure says that is known.
const SHOWN_CHARS: usize = 300;

/// When a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Always.
    Short,
    /// With COLDPRESS_EDGES=1.
    Edges,
}

/// One case.
pub struct Case<'a> {
    /// Its name, as in the list of what is known to fail.
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
    env::var("COLDPRESS_EDGES").is_ok_and(|value| value == "1")
}

/// Runs `cases`, of which those of `known` (name and reason) are known to fail.
///
/// # Panics
/// When another one fails, or one of those passes.
pub fn run(cases: &[Case<'_>], known: &[(&str, &str)]) {
    let unexpected = judge(cases, known, is_all());
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

/// Runs them, prints a line each, and returns what was not expected.
fn judge(cases: &[Case<'_>], known: &[(&str, &str)], is_all: bool) -> Vec<String> {
    let mut unexpected = Vec::new();
    for Case { name, lane, run } in cases {
        if *lane == Lane::Edges && !is_all {
            println!("left to `make edges`: {name}");
            continue;
        }
        let reason = known.iter().find(|(of, _)| of == name).map(|(_, reason)| *reason);
        let begun = Instant::now();
        // What a case leaves half done is its own.
        let outcome = catch_unwind(AssertUnwindSafe(run));
        let seconds = begun.elapsed().as_secs_f64();
        match (outcome, reason) {
            (Ok(None), _) => println!("not tried: {name}"),
            (Ok(Some(())), None) => println!("ok: {name}, {seconds:.1} s"),
            (Ok(Some(())), Some(_)) => {
                unexpected.push(format!("{name}: passes now; take it off the list of what fails"));
            }
            (Err(panic), None) => unexpected.push(format!("{name}: {}", words(&*panic))),
            (Err(panic), Some(reason)) => {
                let said: String = words(&*panic).chars().take(SHOWN_CHARS).collect();
                println!("known to fail: {name}, {seconds:.1} s: {reason}\n  {said}");
            }
        }
    }
    unexpected
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}

#[cfg(test)]
mod tests {
    //! Risk: a case that fails passes, or an entry stays when what it is about is mended.

    use super::*;

    fn fails() -> Option<()> {
        panic!("number {}", 7)
    }

    #[test]
    fn what_is_not_as_listed_is_told() {
        let cases = [
            case("good", Lane::Short, || Some(())),
            case("bad", Lane::Short, fails),
            case("mended", Lane::Short, || Some(())),
            case("known", Lane::Short, fails),
            case("absent", Lane::Short, || None),
            case("long", Lane::Edges, fails),
        ];
        let known = [("mended", "it failed"), ("known", "it fails"), ("absent", "it fails")];
        let bad = "bad: number 7";
        let mended = "mended: passes now; take it off the list of what fails";
        assert_eq!(judge(&cases, &known, false), [bad, mended]);
        assert_eq!(judge(&cases, &known, true), [bad, mended, "long: number 7"]);
    }

    #[test]
    #[should_panic(expected = "number 7")]
    fn an_unexpected_failure_fails_the_test() {
        run(&[case("bad", Lane::Short, fails)], &[]);
    }
}
