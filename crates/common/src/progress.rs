//! One line on a terminal that shows how far something long has come; nothing elsewhere.
//!
//! The line is on standard error, and gone when the value is dropped.

use std::borrow::Cow;

use indicatif::{ProgressBar, ProgressStyle};

/// What a spinner goes through; the last one is of the end.
const TICKS: &str = "-\\|/ ";
const SPINNER: &str = "{spinner} {wide_msg} {elapsed}";
const BAR: &str = "{msg} [{bar:30}] {binary_bytes} of {binary_total_bytes}";

/// A line that shows progress.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Returns a line for what has no known end: what is done, and since when.
    pub fn spinner() -> Self {
        Self(ProgressBar::no_length().with_style(style(SPINNER).tick_chars(TICKS)))
    }

    /// Returns a line for `total` bytes.
    pub fn bytes(name: &'static str, total: u64) -> Self {
        let style = style(BAR).progress_chars("=> ");
        Self(ProgressBar::new(total).with_style(style).with_message(name))
    }

    /// Says what is done.
    pub fn note(&self, text: impl Into<Cow<'static, str>>) {
        self.0.set_message(text);
        self.0.tick();
    }

    /// Turns the spinner. No thread does, as it would disturb what is measured.
    pub fn turn(&self) {
        self.0.tick();
    }

    /// Says how many bytes are done.
    pub fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Prints by `print`, and keeps the line below what is printed.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Takes the line away.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a template of ours is right")
}

#[cfg(test)]
mod tests {
    //! The risk: a log fills with lines that only a terminal can take back.

    use super::*;

    #[test]
    fn templates_are_right_and_nothing_is_drawn_elsewhere() {
        let spinner = Progress::spinner();
        spinner.note("x");
        let bar = Progress::bytes("x", 2);
        bar.set(1);
        assert_eq!((bar.0.position(), spinner.aside(|| 7)), (1, 7));
        bar.end();
        assert!(bar.0.is_finished());
    }
}
