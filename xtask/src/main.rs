//! Checks of the source tree (`cargo xtask tidy [ROOT]`), pages that are made from others (`cargo
//! xtask pages`), and counts of how the tree reads (`cargo xtask score`).
//!
//! Tidy has rules that the compiler and clippy do not know, each in a file of `rules/` with its own
//! tests. Findings go to standard output as `file:line: message`; any finding that is not a warning
//! fails the run.
#![forbid(unsafe_code)]

mod graph;
mod history;
mod items;
mod manifest;
mod masked;
mod modules;
mod pages;
mod paths;
mod prose;
mod report;
mod rules;
mod rust_file;
mod score;
mod tree;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use report::Report;
use tree::Tree;

fn main() -> ExitCode {
    let mut words = env::args_os().skip(1);
    let verb = words.next();
    let act = match verb.as_ref().and_then(|verb| verb.to_str()) {
        Some("tidy") => tidy,
        Some("pages") => write_pages,
        Some("score") => print_score,
        _ => {
            eprintln!("usage: cargo xtask tidy|pages|score [ROOT]");
            return ExitCode::from(2);
        }
    };
    // Cargo runs this in the user's current folder, and says where the package is.
    let home =
        || env::var_os("CARGO_MANIFEST_DIR").map(|package| PathBuf::from(package).join(".."));
    let root = words.next().map(PathBuf::from).or_else(home).unwrap_or_else(|| PathBuf::from("."));
    match Tree::read(&root) {
        Ok(tree) => act(&root, &tree),
        Err(error) => {
            eprintln!("xtask: cannot read {}: {error}", root.display());
            ExitCode::from(2)
        }
    }
}

/// Prints the findings of every rule.
fn tidy(_root: &Path, tree: &Tree) -> ExitCode {
    let mut report = Report::default();
    for rule in rules::ALL {
        rule(tree, &mut report);
    }
    for finding in report.sorted() {
        println!("{finding}");
    }
    if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Writes the pages that are made from figures.
fn write_pages(root: &Path, tree: &Tree) -> ExitCode {
    for (path, text) in pages::made(tree) {
        if let Err(error) = fs::write(root.join(path), text) {
            eprintln!("xtask: cannot write {path}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Prints the counts of how the tree reads.
fn print_score(_root: &Path, tree: &Tree) -> ExitCode {
    print!("{}", score::score(tree));
    ExitCode::SUCCESS
}
