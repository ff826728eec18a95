//! Parts that the commands share: failures with a way out, sizes as people write them, the memory
//! that machine and cgroup leave to a process, output and progress. This crate knows no pages.
#![forbid(unsafe_code)]

pub mod cgroup;
pub mod failure;
pub mod progress;
pub mod size;

use std::fmt::Display;
use std::io::{self, Write as _};

/// Prints one line on standard error, which may be closed, with the name of the `command` in front.
pub fn say(command: &str, line: impl Display) {
    let _ = writeln!(io::stderr(), "{command}: {line}");
}

/// Returns whether all of `text` was written on standard output. Says why on standard error if not.
/// A reader that has closed its end is no failure.
pub fn print(command: &str, text: &str) -> bool {
    let mut output = io::stdout();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(command, format!("standard output cannot be written: {error}; make room there"));
            false
        }
        _ => true,
    }
}
