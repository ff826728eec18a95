//! Checks of the source tree: `cargo xtask tidy [ROOT]`.
//!
//! Rules that the compiler and clippy do not know, each in a file of `rules/` with its own tests.
//! Findings go to standard output as `file:line: message`; any that is not a warning fails the run.
#![forbid(unsafe_code)]

mod graph;
mod manifest;
mod masked;
mod report;
mod rules;
mod tree;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use report::Report;
use tree::Tree;

fn main() -> ExitCode {
    let mut words = env::args_os().skip(1);
    if words.next().is_none_or(|verb| verb != "tidy") {
        eprintln!("usage: cargo xtask tidy [ROOT]");
        return ExitCode::from(2);
    }
    // Cargo runs this wherever the user stands, and says where the package is.
    let home =
        || env::var_os("CARGO_MANIFEST_DIR").map(|package| PathBuf::from(package).join(".."));
    let root = words.next().map(PathBuf::from).or_else(home).unwrap_or_else(|| PathBuf::from("."));
    match Tree::read(&root) {
        Ok(tree) => tidy(&tree),
        Err(error) => {
            eprintln!("xtask: cannot read {}: {error}", root.display());
            ExitCode::from(2)
        }
    }
}

/// Prints the findings of every rule.
fn tidy(tree: &Tree) -> ExitCode {
    let mut report = Report::default();
    for rule in rules::ALL {
        rule(tree, &mut report);
    }
    for finding in report.sorted() {
        println!("{finding}");
    }
    if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
