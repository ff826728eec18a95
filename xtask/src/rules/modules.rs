//! Every Rust file is part of something and says what it is for.

use crate::report::Report;
use crate::tree::Tree;

/// Finds files that no target and no `mod` leads to.
pub(crate) fn every_file_is_reached(tree: &Tree, report: &mut Report) {
    for file in tree.rust.iter().filter(|file| !file.reached) {
        report.fail(&file.path, 1, "dead file: no `mod` leads here");
    }
}

/// Finds files that do not open with `//!`.
pub(crate) fn every_file_says_its_purpose(tree: &Tree, report: &mut Report) {
    for file in tree.rust.iter().filter(|file| !file.text.starts_with("//! ")) {
        report.fail(&file.path, 1, "open with `//!`: purpose, idea, numbered invariants");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    #[test]
    fn a_file_without_a_mod_is_dead() {
        let files = [
            ("crates/sys/Cargo.toml", "[package]"),
            ("crates/sys/src/lib.rs", "//! X.\nmod a;"),
            ("crates/sys/src/a.rs", "//! A.\n"),
            ("crates/sys/src/b.rs", "//! B.\n"),
        ];
        let wanted = ["crates/sys/src/b.rs:1: dead file: no `mod` leads here"];
        assert_eq!(findings(every_file_is_reached, &files), wanted);
    }

    #[test]
    fn a_file_opens_with_its_purpose() {
        let run =
            |text: &str| findings(every_file_says_its_purpose, &[("crates/sys/src/a.rs", text)]);
        assert!(run("//! Pages.\n").is_empty());
        assert_eq!(run("use core::fmt;\n").len(), 1);
        assert_eq!(run("").len(), 1);
    }
}
