//! The process that puts the library into a program that runs, or takes it out.
//!
//! It is this command once more. Neither the keeper's waits for its children see the stops of the
//! threads that it traces, nor does it reap a child of the keeper's. And it can be ended when a
//! thread does not stop, as while another thread of the program calls exec: all threads go on then.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::{Injector, Refusal};
use crate::config::Forks;

/// The name of the subcommand.
const NAME: &str = "inject";
/// The longest time in which threads are stopped. From then on nothing waits for others.
const PATIENCE: Duration = Duration::from_secs(4);
/// What the process writes when all threads stand still. It changes nothing before it reads a word
/// in answer: from then on, the program would end with it.
const BEGINS: &[u8] = b"begins\n";
/// Its exit status when the program is in a state that may pass.
const NOT_NOW: u8 = 2;

/// What is to be done with a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    PutIn,
    TakeOut,
}

impl Verb {
    const ALL: [(Self, &'static str); 2] = [(Self::PutIn, "in"), (Self::TakeOut, "out")];
}

impl Forks {
    /// The words for them.
    const WORDS: [&str; 2] = ["seen", "any"];
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Done {
    Yes,
    Refused(String),
    /// The program is in a state that may pass.
    NotNow(String),
}

/// Does `verb` to `process` by a process of its own, and waits for that.
pub(super) fn run(injector: &Injector, verb: Verb, process: u32) -> Done {
    let name = Verb::ALL.iter().find(|(it, _)| *it == verb).map_or("", |(_, name)| name);
    let mut command = Command::new("/proc/self/exe");
    command.args([NAME, name]).arg(process.to_string());
    command.arg(Forks::WORDS[usize::from(injector.forks == Forks::Any)]).args(&injector.names);
    let variables = injector.variables.split(|byte| *byte == 0).filter(|one| !one.is_empty());
    command.args(variables.map(OsStr::from_bytes));
    // From some point on, the program would end with this process: a terminal's signals are for the
    // command, which waits for it.
    command.process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        return Done::NotNow("no process can be started".to_owned());
    };
    let (sender, said) = mpsc::channel();
    let (input, mut output) = (child.stdin.take(), child.stdout.take());
    let reader = thread::Builder::new().name("injector".to_owned()).spawn(move || {
        let mut all = Vec::new();
        let mut part = [0; 256];
        while let Some(Ok(count @ 1..)) = output.as_mut().map(|output| output.read(&mut part)) {
            all.extend_from_slice(&part[..count]);
            let _ = sender.send(());
        }
        all
    });
    match said.recv_timeout(PATIENCE) {
        Ok(()) => allow(input),
        Err(mpsc::RecvTimeoutError::Timeout) => drop(child.kill()),
        // The process has ended.
        Err(mpsc::RecvTimeoutError::Disconnected) => {}
    }
    let status = child.wait();
    let all = reader.ok().and_then(|reader| reader.join().ok()).unwrap_or_default();
    let text = String::from_utf8_lossy(all.strip_prefix(BEGINS).unwrap_or(&all)).into_owned();
    match status.ok().and_then(|status| status.code()) {
        Some(0) => Done::Yes,
        Some(code) if code == i32::from(NOT_NOW) => Done::NotNow(text),
        Some(_) => Done::Refused(text),
        None => Done::NotNow("its threads do not stop".to_owned()),
    }
}

/// Answers a process that is about to begin.
fn allow(input: Option<ChildStdin>) {
    // One that has ended needs no answer.
    let _ = input.map(|mut input| input.write_all(b"\n"));
}

/// Does what `words` say, as the process that [`run`] has started.
pub(crate) fn inject(words: &[OsString]) -> ExitCode {
    let [verb, process, forks, loaded, put_in, variables @ ..] = words else {
        return ExitCode::FAILURE;
    };
    let verb = Verb::ALL.iter().find(|(_, name)| verb == name).map(|(verb, _)| *verb);
    let process = process.to_str().and_then(|text| text.parse().ok());
    let (Some(verb), Some(process)) = (verb, process) else { return ExitCode::FAILURE };
    let pair = |text: &OsString| {
        let at = text.as_bytes().iter().position(|byte| *byte == b'=')?;
        let (name, value) = text.as_bytes().split_at(at);
        Some([name, &value[1..]].map(|part| OsStr::from_bytes(part).to_owned()).into())
    };
    let variables: Vec<(OsString, OsString)> = variables.iter().filter_map(pair).collect();
    let forks = if forks == Forks::WORDS[1] { Forks::Any } else { Forks::Seen };
    let injector = Injector::new([Path::new(loaded), Path::new(put_in)], &variables, forks);
    let begins = || {
        let said = std::io::stdout().write_all(BEGINS);
        let answered = said.and_then(|()| std::io::stdin().read_exact(&mut [0]));
        answered.map_err(|_| Refusal::NotNow("nobody waits for it any more"))
    };
    let done = match verb {
        Verb::PutIn => injector.put_in_now(process, &begins),
        Verb::TakeOut => injector.take_out_now(process, &begins),
    };
    let Err(refusal) = done else { return ExitCode::SUCCESS };
    let _ = std::io::stdout().write_all(refusal.to_string().as_bytes());
    match refusal {
        Refusal::NotNow(_) | Refusal::Changed => ExitCode::from(NOT_NOW),
        _ => ExitCode::FAILURE,
    }
}
