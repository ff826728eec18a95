//! What the broker says to the user: as much as was asked for, and nothing twice.

use std::collections::HashSet;
use std::fmt::Display;
use std::time::Instant;

use coldpress_runtime::wire::Loudness;

use crate::say;
use crate::text::printable;

/// The most users and processes that warnings name: more would fill a log.
const TOLD_OF_MAX: usize = 64;
/// The most warnings kept between two looks.
const KEPT_MAX: usize = 64;

/// The lines that were asked for, and those that were said.
pub(super) struct Voice {
    is_quiet: bool,
    is_verbose: bool,
    /// The warnings said of one user or process: of users with enough seats, of processes not
    /// believed or not managed.
    told_of: HashSet<(u32, &'static str)>,
    /// Whether the user has heard that unmanaged processes pass the budget.
    told_of_unmanaged: bool,
    /// Whether the user has heard that nothing is managed, or why a process is not.
    told_of_none: bool,
    /// The warnings for the timeline, said or not, and when.
    warnings: Vec<(Instant, String)>,
}

impl Voice {
    /// Makes a voice that has said nothing.
    pub(super) fn new(is_quiet: bool, is_verbose: bool) -> Self {
        Self {
            is_quiet,
            is_verbose,
            told_of: HashSet::new(),
            told_of_unmanaged: false,
            told_of_none: false,
            warnings: Vec::new(),
        }
    }

    /// Returns whether more than warnings is to be said.
    pub(super) fn is_verbose(&self) -> bool {
        self.is_verbose
    }

    /// Says a warning, if there is one.
    pub(super) fn warn(&mut self, warning: Option<impl Display>) {
        if let Some(warning) = warning {
            self.keep(warning.to_string());
            if !self.is_quiet {
                say(format!("warning: {warning}"));
            }
        }
    }

    /// Says that a program is lost.
    pub(super) fn fatal(&mut self, text: impl Display) {
        let text = format!("fatal: {text}");
        self.keep(text.clone());
        say(text);
    }

    /// Returns the warnings since the last call, and when each was.
    pub(super) fn take_warnings(&mut self) -> Vec<(Instant, String)> {
        std::mem::take(&mut self.warnings)
    }

    fn keep(&mut self, warning: String) {
        if self.warnings.len() < KEPT_MAX {
            self.warnings.push((Instant::now(), warning));
        }
    }

    /// Says the note of a process, which begins with how loud it is.
    pub(super) fn pass_on(&mut self, note: &[u8]) {
        let text = printable(&String::from_utf8_lossy(&note[1..]));
        match Loudness::decode(note[0]) {
            Some(Loudness::Verbose) if self.is_verbose => say(text),
            Some(Loudness::Warning) => self.warn(Some(text)),
            Some(Loudness::Fatal) => self.fatal(text),
            _ => {}
        }
    }

    /// Returns whether `what` may be said of `whom`, and was not yet: such warnings are limited.
    pub(super) fn is_news(&mut self, whom: u32, what: &'static str) -> bool {
        self.told_of.len() < TOLD_OF_MAX && self.told_of.insert((whom, what))
    }

    /// Says why `process` is not managed.
    pub(super) fn tell_of_one(&mut self, process: u32, why: &str) {
        self.warn(Some(format!("process {process} is not managed: {why}")));
        self.told_of_none = true;
    }

    /// Says, once, that nothing is managed, and what is not.
    pub(super) fn tell_of_none(&mut self, what: &impl Display) {
        if !std::mem::replace(&mut self.told_of_none, true) {
            self.warn(Some(format!("nothing is managed so far; {what}")));
        }
    }

    /// Says, once, that unmanaged processes pass the budget.
    pub(super) fn complain_of_unmanaged(&mut self, complaint: Option<impl Display>) {
        if complaint.is_some() && !std::mem::replace(&mut self.told_of_unmanaged, true) {
            self.warn(complaint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_said_of_one_process_once_and_of_few_processes() {
        let mut voice = Voice::new(true, false);
        assert!(voice.is_news(1, "seats"));
        assert!(!voice.is_news(1, "seats"));
        assert!(voice.is_news(1, "claims"));
        let news = (2..1000).filter(|process| voice.is_news(*process, "claims")).count();
        assert_eq!(news, TOLD_OF_MAX - 2);
    }
}
