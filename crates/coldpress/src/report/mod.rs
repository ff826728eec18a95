//! The report of a run: one page of HTML, made of its statistics alone.
//!
//! `coldpress run --report` and `coldpress report` make the same page of the same document, and
//! that is what `--stats` writes. So a report says what all others say. The modules, from below,
//! where no module knows one above it:
//!
//! 1. Words and numbers: [`words`], [`scale`].
//! 2. [`figures`]: the document, read.
//! 3. [`curve`], what another budget would have cost, and [`advice`], sentences, above it.
//! 4. [`picture`]: drawings with their tables.
//! 5. [`chapters`]: the pictures of a report. [`page`]: all of it.

mod advice;
mod chapters;
mod curve;
#[cfg(test)]
mod example;
mod figures;
mod page;
mod picture;
mod scale;
mod words;

use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;

use coldpress_common::failure::{Failure, Result};

use crate::args::ReportArgs;
use crate::{output, print, say};
pub(crate) use curve::Shape;
pub(crate) use figures::Figures;
pub(crate) use words::{percent, size, time};

/// The exit status of `coldpress report` when it has failed.
const EXIT_FAILED: u8 = 1;

/// Returns the page of such statistics. The error says what is wrong with them.
pub(crate) fn page_of(statistics: &str) -> std::result::Result<String, String> {
    Figures::read(statistics).map(|figures| page::page(&figures))
}

/// Makes the report of a file of statistics.
pub(crate) fn report(args: &ReportArgs) -> ExitCode {
    match try_report(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_FAILED),
        Err(failure) => {
            say(failure);
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Returns whether all of the report was written.
fn try_report(args: &ReportArgs) -> Result<bool> {
    let name = args.statistics.display();
    let read = File::open(&args.statistics).and_then(|statistics| {
        let text = io::read_to_string(&statistics)?;
        Ok((statistics, text))
    });
    let (statistics, text) = read.map_err(|error| {
        Failure::ours(
            format!("cannot read {name}: {error}"),
            "name a file that --stats has written",
        )
    })?;
    let page = page_of(&text).map_err(|error| {
        let cause = format!("{name} has no statistics of this version: {error}");
        Failure::ours(cause, "name a file that `coldpress run --stats` of this version has written")
    })?;
    let Some(path) = &args.output else { return Ok(print(&page)) };
    let failed = |error: io::Error| {
        let cause = format!("cannot write {}: {error}", path.display());
        Failure::ours(cause, "name a file in a directory you may write to, with room")
    };
    let mut file = output::open(path).map_err(failed)?;
    if output::is_same(&file, &statistics) {
        let cause = format!("the page would replace the statistics in {name}");
        return Err(Failure::ours(cause, "name another file with --output"));
    }
    let written = output::empty(&file).and_then(|()| file.write_all(page.as_bytes()));
    written.map(|()| true).map_err(failed)
}
