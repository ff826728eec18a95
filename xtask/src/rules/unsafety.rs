//! `unsafe` has a home, and its reasons say something.
//!
//! Clippy checks that a block has a `SAFETY` comment at all (`undocumented_unsafe_blocks`).

use crate::report::Report;
use crate::rust_file::RustFile;
use crate::tree::Tree;

/// The folders in which `unsafe` may stand.
const HOMES: &[&str] = &[
    "crates/sys/",
    "crates/mem/",
    "crates/runtime/",
    "crates/codec/src/ffi/",
    // The benchmark calls allocators, which is `unsafe` by their trait; no user's program runs it.
    "crates/bench/",
    "bench/",
    "tests/",
];
/// The folder of tests outside a crate, which replace functions of the system, and do what programs
/// do.
const TEST_FOLDER: &str = "/tests/";

/// The roots of crates, and of what makes a command in one, that must forbid `unsafe`, so that the
/// compiler says the same.
const FORBIDDING: &[&str] = &[
    "crates/backing/src/lib.rs",
    "crates/zswap/src/lib.rs",
    "crates/common/src/lib.rs",
    "crates/coldpress/src/main.rs",
    "crates/bench/src/commands/mod.rs",
    "crates/bench/src/main.rs",
    "xtask/src/main.rs",
];

/// The fewest words of a reason: a shorter one cannot name a fact.
const SAFETY_WORDS_MIN: usize = 4;
/// The fewest words of a reason that are not ritual.
const SAFETY_FACTS_MIN: usize = 2;
/// The words that fill a reason without naming a fact.
const RITUAL: &[&str] = &[
    "a",
    "all",
    "always",
    "and",
    "are",
    "arguments",
    "as",
    "because",
    "call",
    "caller",
    "correct",
    "fine",
    "guaranteed",
    "here",
    "in",
    "is",
    "it",
    "know",
    "of",
    "ok",
    "okay",
    "parameters",
    "pointer",
    "pointers",
    "safe",
    "since",
    "sound",
    "supposedly",
    "that",
    "the",
    "they",
    "this",
    "to",
    "trivially",
    "valid",
    "value",
    "values",
    "we",
];

/// Finds `unsafe` outside its homes.
pub(crate) fn unsafe_stays_home(tree: &Tree, report: &mut Report) {
    for file in &tree.rust {
        let is_home = HOMES.iter().any(|home| file.path.starts_with(home));
        if is_home || file.path.contains(TEST_FOLDER) {
            continue;
        }
        for (line, _) in file.words().filter(|(_, word)| *word == "unsafe") {
            report.fail(
                &file.path,
                line,
                "`unsafe` outside sys, mem, runtime, bench and codec/src/ffi",
            );
        }
    }
}

/// Finds crate roots that do not forbid `unsafe`.
pub(crate) fn unsafe_is_forbidden_elsewhere(tree: &Tree, report: &mut Report) {
    for file in tree.rust.iter().filter(|file| FORBIDDING.contains(&file.path.as_str())) {
        if !file.masked.code.contains("#![forbid(unsafe_code)]") {
            report.fail(&file.path, 1, "add `#![forbid(unsafe_code)]`: this crate needs none");
        }
    }
}

/// Finds `SAFETY` comments that name no fact.
pub(crate) fn safety_texts_say_something(tree: &Tree, report: &mut Report) {
    for file in &tree.rust {
        for (line, reason) in reasons(file) {
            let is_sign = |char: char| !char.is_alphanumeric() && char != '_';
            let words: Vec<_> = reason.split(is_sign).filter(|word| !word.is_empty()).collect();
            let is_fact = |word: &&&str| !RITUAL.contains(&word.to_lowercase().as_str());
            let facts = words.iter().filter(is_fact).count();
            if words.len() < SAFETY_WORDS_MIN || facts < SAFETY_FACTS_MIN {
                let message = "this SAFETY text names no fact: say which line makes it right";
                report.fail(&file.path, line, message);
            }
        }
    }
}

/// Returns the texts behind `SAFETY:`, each with its line from 1 and the comment lines that follow
/// it.
fn reasons(file: &RustFile) -> Vec<(usize, String)> {
    let comments: Vec<_> = file.masked.comments.lines().collect();
    let code: Vec<_> = file.masked.code.lines().collect();
    let mut reasons = Vec::new();
    for (index, comment) in comments.iter().enumerate() {
        let Some((_, first)) = comment.split_once("SAFETY:") else { continue };
        let goes_on = |line: &usize| {
            code[*line].trim().is_empty()
                && !comments[*line].trim().is_empty()
                && !comments[*line].contains("SAFETY:")
        };
        let rest = (index + 1..comments.len()).take_while(goes_on).map(|line| comments[line]);
        let text: Vec<_> = std::iter::once(first).chain(rest).collect();
        reasons.push((index + 1, text.join(" ")));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    #[test]
    fn unsafe_outside_its_homes_fails() {
        let run = |path: &str, text: &str| findings(unsafe_stays_home, &[(path, text)]);
        assert_eq!(run("crates/zswap/src/a.rs", "fn f() {\nunsafe { g() } }").len(), 1);
        assert_eq!(run("crates/codec/src/lz4.rs", "unsafe fn f();").len(), 1);
        assert_eq!(run("crates/codec/src/tests.rs", "unsafe fn f();").len(), 1);
        assert!(run("crates/codec/src/ffi/mod.rs", "unsafe fn f();").is_empty());
        assert!(run("crates/codec/tests/malloc.rs", "unsafe fn f();").is_empty());
        assert!(run("crates/zswap/src/a.rs", "#![forbid(unsafe_code)] // unsafe").is_empty());
    }

    #[test]
    fn crates_without_unsafe_forbid_it() {
        let run = |text: &str| {
            findings(unsafe_is_forbidden_elsewhere, &[("crates/zswap/src/lib.rs", text)])
        };
        assert_eq!(run("//! x\n// #![forbid(unsafe_code)]").len(), 1);
        assert!(run("//! x\n#![forbid(unsafe_code)]").is_empty());
    }

    #[test]
    fn ritual_reasons_fail() {
        let run = |reason: &str| {
            let text = format!("    // SAFETY: {reason}\n    unsafe {{ f() }}\n");
            !findings(safety_texts_say_something, &[("crates/mem/src/a.rs", &text)]).is_empty()
        };
        for ritual in [
            "",
            "safe",
            "safe because valid",
            "Safe because the values are valid.",
            "the pointer is always valid here, trust",
        ] {
            assert!(run(ritual), "{ritual}");
        }
        for real in [
            "`carve` placed `slot` inside the frames of this zspage.",
            "the class lock is\n    // held since the top",
            "`len` bytes were mapped by `reserve`",
        ] {
            assert!(!run(real), "{real}");
        }
    }
}
