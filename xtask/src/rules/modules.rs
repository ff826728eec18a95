//! Every Rust file is part of something, says what it is for, and is used by none that it uses.

use crate::modules;
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

/// Finds modules of one folder that use each other, directly or by way of others.
pub(crate) fn no_circle_of_modules(tree: &Tree, report: &mut Report) {
    for (folder, uses) in modules::uses(tree) {
        for circle in modules::circles(&uses) {
            let names = circle.join(", ");
            let message = format!("circle of modules: {names}; put what they share below them");
            report.fail(&folder, 1, message);
        }
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
    fn each_circle_is_named_also_inside_a_folder() {
        let files = [
            ("crates/sys/Cargo.toml", "[package]"),
            ("crates/sys/src/a/mod.rs", "use crate::b::X;\n"),
            ("crates/sys/src/a/c.rs", "use super::d::Y;\n"),
            ("crates/sys/src/a/d.rs", "use crate::a::c::Z;\n"),
            ("crates/sys/src/b.rs", "fn f() { crate::a::g() }\n"),
            ("crates/sys/src/e.rs", "use crate::a;\n"),
        ];
        let wanted = [
            "crates/sys/src/:1: circle of modules: a, b; put what they share below them",
            "crates/sys/src/a/:1: circle of modules: c, d; put what they share below them",
        ];
        assert_eq!(findings(no_circle_of_modules, &files), wanted);
        assert_eq!(findings(no_circle_of_modules, &files[..4]).len(), 1);
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
