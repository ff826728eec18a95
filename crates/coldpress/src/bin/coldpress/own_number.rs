//! Programs that are told their own number by a variable: systemd says so whom it has opened
//! sockets for (sd_listen_fds(3)), and who feeds its watchdog (sd_watchdog_enabled(3)).
//!
//! It says the launcher's number, but means the program. What number that has is known only when it
//! runs: so this command comes first in its place, corrects the variables, and is replaced by it.

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::process::{self, Command, ExitCode};

use clap::Args;
use coldpress_sys::signals;

use crate::failure::{Failure, Result};
use crate::program::Program;
use crate::{say, supervise};

/// The variables that may have our number.
const VARIABLES: [&str; 2] = ["LISTEN_PID", "WATCHDOG_PID"];
/// What says so besides, of this very process (systemd 259).
const BESIDE: &str = "LISTEN_PIDFDID";
/// The subcommand.
const NAME: &str = "in-place";

/// The arguments of `coldpress in-place`.
#[derive(Debug, Args)]
pub(crate) struct InPlaceArgs {
    #[arg(value_delimiter = ',')]
    variables: Vec<String>,
    /// The path of the program, the name that it is called by, and its arguments.
    #[arg(last = true, required = true)]
    words: Vec<OsString>,
}

/// The variables that name this process, which is the launcher.
pub(crate) fn variables() -> Vec<&'static str> {
    let number = process::id().to_string();
    VARIABLES.into_iter().filter(|name| env::var(name).is_ok_and(|value| value == number)).collect()
}

/// `command`, made from `program`, for a program that shall find its own number in `variables`.
pub(crate) fn through(program: &Program, command: Command, variables: &[&str]) -> Command {
    if variables.is_empty() {
        return command;
    }
    let mut first = Command::new("/proc/self/exe");
    first.args([NAME, &variables.join(","), "--"]).arg(&program.path).arg(&program.name);
    first.args(command.get_args());
    signals::hand_on_ignored(&mut first);
    first
}

/// Corrects the variables, and puts the program in our place. Returns only when that failed.
pub(crate) fn in_place(args: &InPlaceArgs) -> ExitCode {
    let Err(failure) = try_in_place(args);
    say(&failure);
    ExitCode::from(failure.code)
}

fn try_in_place(args: &InPlaceArgs) -> Result<Infallible> {
    let [path, name, arguments @ ..] = &args.words[..] else {
        return Err(Failure::ours("no program and no name", "run `coldpress run`, not this"));
    };
    let program = Program { name: name.clone(), ..Program::find(path)? };
    let mut command = supervise::command(&program, arguments);
    for variable in &args.variables {
        command.env(variable, process::id().to_string());
    }
    command.env_remove(BESIDE);
    Err(supervise::replace_by(&program, command))
}
