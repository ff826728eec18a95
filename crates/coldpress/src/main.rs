//! The command `coldpress`: one subcommand, one file.
//!
//! The modules, from below, where no module knows one above it:
//!
//! 1. The system: [`mappings`], [`proc`], [`tree`], [`elf`], [`disk`], [`pause`]; [`output`],
//!    files that a user names; and [`text`] that is not trusted.
//! 2. The words of a run: [`budget`], [`knobs`], [`view`], [`export`], and [`control`], what a run
//!    and `coldpress ctl` say to each other. [`args`] reads them, [`config`] makes them one.
//! 3. The surroundings of a program: [`program`] itself, the run's [`directory`], [`preload`],
//!    [`inject`], [`record`], [`outer`], [`supervise`], and above that [`keeper`] and
//!    [`own_number`].
//! 4. The threads of the keeper: [`helper`], and [`broker`] above it.
//! 5. [`trial`], a run of our own.
//! 6. [`runs`], those of this machine, as others see them.
//! 7. The subcommands: [`ctl`], [`top`], [`why`], [`doctor`], [`report`], [`run`], which asks the
//!    last two, [`attach`], which does a part of what `run` does, and [`advise`], which starts
//!    runs.
#![forbid(unsafe_code)]

mod advise;
mod args;
mod attach;
mod broker;
mod budget;
mod config;
mod control;
mod ctl;
mod directory;
mod disk;
#[cfg(test)]
mod docs;
mod doctor;
mod elf;
mod export;
mod helper;
mod inject;
mod keeper;
mod knobs;
mod mappings;
mod outer;
mod output;
mod own_number;
mod pause;
mod preload;
mod proc;
mod program;
mod record;
mod report;
mod run;
mod runs;
mod supervise;
mod text;
mod top;
mod tree;
mod trial;
mod view;
mod why;

use std::fmt::Display;
use std::process::ExitCode;

use coldpress_common::failure::EXIT_OURS;

use crate::args::{Cli, Command};

/// The name of the command, in front of each line it prints.
const NAME: &str = "coldpress";
/// The exit status for a wrong command line, for every subcommand but `run`.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    match args::parse() {
        Ok(Cli { command: Command::Run(args), .. }) => run::run(&args),
        Ok(Cli { command: Command::Doctor(args), .. }) => doctor::doctor(&args),
        Ok(Cli { command: Command::Report(args), .. }) => report::report(&args.0),
        Ok(Cli { command: Command::Advise(args), .. }) => advise::advise(&args.0),
        Ok(Cli { command: Command::Attach(args), .. }) => attach::attach(&args.0),
        Ok(Cli { command: Command::Detach(args), .. }) => attach::detach(&args),
        Ok(Cli { command: Command::Ctl(args), .. }) => ctl::ctl(&args.0),
        Ok(Cli { command: Command::Top(args), .. }) => top::top(&args.0),
        Ok(Cli { command: Command::Why(args), .. }) => why::why(&args.0),
        Ok(Cli { command: Command::Trial(args), .. }) => trial::program(&args),
        Ok(Cli { command: Command::InPlace(args), .. }) => own_number::in_place(&args),
        Ok(Cli { command: Command::Inject(args), .. }) => inject::apart::inject(&args.words),
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

/// Returns whether all of `text` was written on standard output; see [`coldpress_common::print`].
pub(crate) fn print(text: &str) -> bool {
    coldpress_common::print(NAME, text)
}

/// Prints one line of ours on standard error, which may be closed.
pub(crate) fn say(line: impl Display) {
    coldpress_common::say(NAME, line);
}
