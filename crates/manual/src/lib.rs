//! The man pages and completions of a command, made from the definition of its command line.
//!
//! They lie in the tree, so an installation copies files, and the installed command holds no code
//! for them. Tests of each command call [`check`], which fails when a file is not fresh, and writes
//! it with `COLDPRESS_WRITE_DOCS=1` (`make docs`). No command links this crate.
//!
//! 1. `packaging/man/COMMAND/` holds the pages of a command and of its subcommands, nothing else.
//! 2. `packaging/completions/` holds a script for each of bash, zsh and fish.
//! 3. What is hidden from the help has no page and is not completed.
#![forbid(unsafe_code)]

mod complaints;
mod page;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;

/// The shells that get completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Files by their paths below `packaging`.
type Files = BTreeMap<PathBuf, String>;

/// Checks that `packaging` of the tree at `root` holds the man pages and completions of `command`,
/// and that its help is short, plain and complete. Writes the files first with
/// `COLDPRESS_WRITE_DOCS=1`.
///
/// # Panics
///
/// Panics with all that is wrong.
pub fn check(command: Command, root: &Path) {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut found = complaints::all(&command);
    let files = files(&command);
    let packaging = root.join("packaging");
    let pages = Path::new("man").join(command.get_name());
    let absent = |path: &PathBuf| !files.contains_key(path);
    let left_over: Vec<_> = names_in(&packaging, &pages).into_iter().filter(absent).collect();
    if std::env::var_os("COLDPRESS_WRITE_DOCS").is_some() {
        left_over.iter().for_each(|path| fs::remove_file(packaging.join(path)).expect("ours"));
        files.iter().for_each(|(path, text)| write(&packaging.join(path), text));
    }
    let stale = files.iter().filter(|(path, text)| {
        fs::read_to_string(packaging.join(path)).ok().as_ref() != Some(*text)
    });
    let of_now = left_over.iter().filter(|path| packaging.join(path).exists());
    for path in stale.map(|(path, _)| path).chain(of_now) {
        found.push(format!("packaging/{} is not fresh: run `make docs`", path.display()));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Returns the subcommands that the help shows.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

/// Returns what of `command` is completed. Scripts would complete what is hidden, too.
fn completed(command: &Command) -> Command {
    Command::new(kept(command.get_name()))
        .about(command.get_about().cloned().unwrap_or_default())
        .version(kept(command.get_version().unwrap_or_default()))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(command.get_arguments().cloned())
        .subcommands(shown(command).cloned())
}

/// Keeps a text for as long as the process lasts, as clap has it for names.
fn kept(text: &str) -> &'static str {
    Box::leak(text.into())
}

/// Returns all files of a command.
fn files(command: &Command) -> Files {
    let mut files = Files::new();
    add_pages(&mut files, &Path::new("man").join(command.get_name()), command, command);
    for shell in SHELLS {
        let name = match shell {
            Shell::Zsh => format!("_{}", command.get_name()),
            _ => format!("{}.{shell}", command.get_name()),
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut completed(command), command.get_name(), &mut script);
        let script = String::from_utf8(script).expect("scripts are text");
        files.insert(Path::new("completions").join(name), script);
    }
    files
}

fn add_pages(files: &mut Files, folder: &Path, command: &Command, whole: &Command) {
    files.insert(folder.join(page::file_name(command)), page::page(command, whole));
    for below in shown(command) {
        add_pages(files, folder, below, whole);
    }
}

/// Returns the files in a folder below `packaging`.
fn names_in(packaging: &Path, folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(packaging.join(folder)).into_iter().flatten().flatten();
    entries.map(|entry| folder.join(entry.file_name())).collect()
}

fn write(path: &Path, text: &str) {
    let folder = path.parent().expect("each file lies in a folder");
    fs::create_dir_all(folder).expect("the tree can be written");
    fs::write(path, text).expect("the tree can be written");
}
