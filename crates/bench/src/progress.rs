//! How far the command has come: a line on a terminal, and nothing elsewhere.
//!
//! No thread draws it. It changes when something begins, and about once a second while a program
//! runs.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use coldpress_common::progress::Progress;

/// The line, while the command measures.
static LINE: Mutex<Option<Progress>> = Mutex::new(None);

fn with_line<T>(action: impl FnOnce(&mut Option<Progress>) -> T) -> T {
    action(&mut LINE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Shows the line from now on.
pub(crate) fn begin() {
    with_line(|line| *line = Some(Progress::spinner()));
    note("measuring");
}

/// Takes the line away.
pub(crate) fn end() {
    with_line(|line| *line = None);
}

/// Says what is measured now.
pub(crate) fn note(text: impl Display) {
    with_line(|line| line.iter().for_each(|line| line.note(text.to_string())));
}

/// Shows that it still goes on.
pub(crate) fn turn() {
    with_line(|line| line.iter().for_each(Progress::turn));
}

/// Prints by `print`, above the line.
pub(crate) fn aside<T>(print: impl FnOnce() -> T) -> T {
    with_line(|line| match line {
        Some(line) => line.aside(print),
        None => print(),
    })
}
