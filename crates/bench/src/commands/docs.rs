//! The risk: the man pages or the completions disagree with the command, or its help is long and
//! hard to read.

use std::path::Path;

use clap::CommandFactory as _;

use super::options::Cli;

#[test]
fn man_pages_and_completions_are_fresh_and_the_help_is_plain() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    coldpress_manual::check(Cli::command(), &root);
}
