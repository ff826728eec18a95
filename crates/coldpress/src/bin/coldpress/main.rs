//! The command `coldpress`: one subcommand, one file.
#![forbid(unsafe_code)]

mod account;
mod along;
mod args;
mod bench;
mod broker;
mod budget;
mod cgroup;
mod claims;
mod config;
mod control;
mod ctl;
mod disk;
mod doctor;
mod door;
mod elf;
mod failure;
mod helper;
mod keeper;
mod knobs;
mod leftovers;
mod member;
mod outer;
mod outliving;
mod own_number;
mod parts;
mod preload;
mod program;
mod psi;
mod record;
mod required;
mod run;
mod seating;
mod shared;
mod size;
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
use std::io::{self, Write};
use std::process::ExitCode;

use crate::args::{Cli, Command};
use crate::failure::EXIT_OURS;

/// A wrong command line, for every subcommand but `run`.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    match args::parse() {
        Ok(Cli { command: Command::Run(args) }) => run::run(&args),
        Ok(Cli { command: Command::Doctor(args) }) => doctor::doctor(&args),
        Ok(Cli { command: Command::Ctl(args) }) => ctl::ctl(&args.0),
        Ok(Cli { command: Command::Trial(args) }) => trial::program(&args),
        Ok(Cli { command: Command::InPlace(args) }) => own_number::in_place(&args),
        Ok(Cli { command: Command::Bench(args) }) => bench::bench(&args.0),
        Ok(Cli { command: Command::BenchWorkload(args) }) => bench::workload(&args.0),
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

/// 0 for help and version; else 125 for `run`, whose other numbers belong to the program, and 2.
fn usage_code(error: &clap::Error) -> u8 {
    let is_run = std::env::args_os().nth(1).is_some_and(|argument| argument == "run");
    match (error.use_stderr(), is_run) {
        (false, _) => 0,
        (true, true) => EXIT_OURS,
        (true, false) => EXIT_USAGE,
    }
}

/// Prints `text` on standard output; false, and the user is told, when not all of it could be
/// written. Whoever closed it does not want to read on.
pub(crate) fn print(text: &str) -> bool {
    let mut output = io::stdout();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(format!("standard output cannot be written: {error}; make room there"));
            false
        }
        _ => true,
    }
}

/// Prints one line of ours on standard error, which may be closed.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(io::stderr(), "coldpress: {line}");
}
