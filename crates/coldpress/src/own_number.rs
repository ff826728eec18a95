//! Programs that learn their own process number from a variable. systemd sets one for a process
//! that it has opened sockets for (sd_listen_fds(3)), and one for a process that feeds its watchdog
//! (sd_watchdog_enabled(3)).
//!
//! The variable has the launcher's number, but means the program. The program's number is known
//! only when it runs. So this command starts in the program's place, corrects the variables, and is
//! replaced by the program.

use std::convert::Infallible;
use std::env;
use std::process::{self, Command, ExitCode};

use coldpress_common::failure::{Failure, Result};
use coldpress_sys::signals;

use crate::args::InPlaceArgs;
use crate::program::Program;
use crate::{proc, say, supervise};

/// The variables that may have our number.
const VARIABLES: [&str; 2] = ["LISTEN_PID", "WATCHDOG_PID"];
/// A further variable with the same meaning, for this very process (systemd 259).
const BESIDE: &str = "LISTEN_PIDFDID";
/// The name of the subcommand.
const NAME: &str = "in-place";

/// Returns the variables that name this process, which is the launcher.
pub(crate) fn variables() -> Vec<&'static str> {
    let number = process::id().to_string();
    VARIABLES.into_iter().filter(|name| env::var(name).is_ok_and(|value| value == number)).collect()
}

/// Makes the command for a program that shall find its own number in `variables`, out of `command`,
/// which was made from `program`.
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

/// Whether `process` is still this command, in a program's place.
pub(crate) fn is_in_place(process: u32) -> bool {
    let words = proc::text(process, "cmdline").unwrap_or_default();
    words.split('\0').nth(1) == Some(NAME) && proc::is_this_command(process)
}

/// Corrects the variables, and puts the program in our place. Returns only on failure.
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
