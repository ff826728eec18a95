//! The command `coldpress`: one subcommand, one file.
#![forbid(unsafe_code)]

mod account;
mod along;
mod args;
mod broker;
mod budget;
mod claims;
mod config;
mod control;
mod ctl;
mod directory;
mod disk;
#[cfg(test)]
mod docs;
mod doctor;
mod door;
mod elf;
mod helper;
mod keeper;
mod knobs;
mod leftovers;
mod member;
mod outer;
mod outliving;
mod own_number;
mod parts;
mod pause;
mod preload;
mod proc;
mod program;
mod psi;
mod record;
mod required;
mod run;
mod seating;
mod shared;
mod sizing;
mod stats;
mod supervise;
#[cfg(test)]
mod symbols;
mod text;
mod thaw;
mod tree;
mod trial;
mod unmanaged;
mod unseated;
mod view;

use std::fmt::Display;
use std::process::ExitCode;

use coldpress_cli::failure::EXIT_OURS;

use crate::args::{Cli, Command};

/// The name of the command, in front of each line it prints.
const NAME: &str = "coldpress";
/// The exit status for a wrong command line, for every subcommand but `run`.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    match args::parse() {
        Ok(Cli { command: Command::Run(args) }) => run::run(&args),
        Ok(Cli { command: Command::Doctor(args) }) => doctor::doctor(&args),
        Ok(Cli { command: Command::Ctl(args) }) => ctl::ctl(&args.0),
        Ok(Cli { command: Command::Trial(args) }) => trial::program(&args),
        Ok(Cli { command: Command::InPlace(args) }) => own_number::in_place(&args),
        Err(error) => {
            // A closed terminal is no reason to change the exit status.
            let _ = error.print();
            if let Some(variable) = args::variable_of(&error) {
                say(format!("that value is of the variable {variable}"));
            }
            ExitCode::from(usage_code(&error))
        }
    }
}

/// Returns the exit status for an error of clap: 0 for help and version; otherwise 125 for `run`,
/// whose other numbers belong to the program, and 2 for all else.
fn usage_code(error: &clap::Error) -> u8 {
    let is_run = std::env::args_os().nth(1).is_some_and(|argument| argument == "run");
    match (error.use_stderr(), is_run) {
        (false, _) => 0,
        (true, true) => EXIT_OURS,
        (true, false) => EXIT_USAGE,
    }
}

/// Returns whether all of `text` was written on standard output; see [`coldpress_cli::print`].
pub(crate) fn print(text: &str) -> bool {
    coldpress_cli::print(NAME, text)
}

/// Prints one line of ours on standard error, which may be closed.
pub(crate) fn say(line: impl Display) {
    coldpress_cli::say(NAME, line);
}
