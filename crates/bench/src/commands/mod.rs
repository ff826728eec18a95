//! The command `coldpress-bench`: measures coldpress on this machine, beside the same work without
//! coldpress. Every benchmark takes its options, measures with the modules below this one, and
//! makes a report.
//!
//! The command starts itself as the measured program ([`workload`]), under the `coldpress` that
//! lies beside it, so a figure needs no more than the two files.
//!
//! The modules, from below, where no module knows one above it:
//!
//! 1. [`launch`] runs programs, [`common`] has the options that several benchmarks take, [`pages`]
//!    what fills the memory of workloads.
//! 2. [`against`] compares with another build, [`sides`] with the kernel's swap, and [`pressure`]
//!    with that under growing pressure.
//! 3. The benchmarks, a file or a folder each, with their options. Some take a part from another:
//!    `codecs` < `swap` < `programs` < `trees`, `view`, `advise`.
//! 4. [`all`] runs the benchmarks, [`workload`] what they measure.
//! 5. [`options`] has the whole command line.
#![forbid(unsafe_code)]

mod advise;
mod against;
mod all;
mod build;
mod codecs;
mod common;
#[cfg(test)]
mod docs;
mod fault;
mod fit;
mod fork;
mod frames;
mod launch;
mod options;
mod pages;
mod policy;
mod pools;
mod pressure;
mod programs;
mod sides;
mod slab;
mod start;
mod swap;
mod trees;
mod view;
mod workload;
mod zswap;

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use crate::interrupt;
use crate::machine::Machine;
use crate::progress;
use crate::report::{Report, document, folder, keep, text};
use clap::Parser as _;
use coldpress_common::failure::{Failure, Result};

use launch::{Launcher, failed};
use options::{Cli, What};

/// The name of the command, which precedes its messages.
const NAME: &str = "coldpress-bench";

/// Does what the command line asks for: measures, and prints the report.
///
/// The exit status is 1 when a benchmark could not be measured, or when a figure is worse than with
/// the other build. A signal ends the process after everything is put back.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    if let What::Workload(args) = &cli.what {
        return workload::workload(args);
    }
    progress::begin();
    let done = try_bench(&cli);
    progress::end();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure);
            interrupt::pass_on();
            ExitCode::FAILURE
        }
    }
}

fn try_bench(args: &Cli) -> Result<()> {
    let machine = Machine::look();
    let given = args.coldpress.as_deref();
    if let What::All(args) = &args.what {
        return all::measure(&Launcher::new(given)?, &machine, args);
    }
    let Some(common) = args.what.common() else { return Ok(()) };
    if let Some(out) = &common.out {
        // Makes the folder before minutes of work, so that a folder that cannot be written is known
        // at once.
        folder(out, &machine).map_err(cannot_keep)?;
    }
    let report = report_of(given, &args.what);
    check_signals()?;
    let report = report?;
    let name = report.name;
    let reports = [report];
    print(&if common.json { document(&machine, &reports) } else { text(&machine, &reports) });
    if let Some(out) = &common.out {
        keep_all(out, &format!("-{name}"), &machine, &reports)?;
    }
    against::judge(args.what.against(), &reports)
}

/// Fails when a signal has ended what was measured: its figures mean nothing.
fn check_signals() -> Result<()> {
    let ended = |_| Failure::ours("interrupted", "what ran has ended, and everything is put back");
    interrupt::check().map_err(ended)
}

/// Returns the report of one benchmark.
fn report_of(given: Option<&Path>, what: &What) -> Result<Report> {
    match what {
        What::Fault(args) => fault::measure(&Launcher::new(given)?, args),
        What::Fit(args) => fit::measure(&Launcher::new(given)?, args),
        What::Start(args) => start::measure(&Launcher::new(given)?, args),
        What::Fork(args) => fork::measure(&Launcher::new(given)?, args),
        What::Slab(args) => slab::measure(args),
        What::Frames(args) => frames::measure(args),
        What::Pools(args) => pools::measure(args),
        What::Codecs(args) => codecs::measure(args),
        What::Policy(args) => policy::measure(args),
        What::Swap(args) => swap::measure(&Launcher::new(given)?, args),
        What::Programs(args) => programs::measure(&Launcher::new(given)?, args),
        What::Trees(args) => trees::measure(&Launcher::new(given)?, args),
        What::Zswap(args) => zswap::measure(&Launcher::new(given)?, args),
        What::Build(args) => build::measure(&Launcher::new(given)?, args),
        What::View(args) => view::measure(&Launcher::new(given)?, args),
        What::Advise(args) => advise::measure(&Launcher::new(given)?, args),
        What::All(_) | What::Workload(_) => Err(failed("no benchmark by itself".to_owned())),
    }
}

/// Writes reports into files, and says where.
fn keep_all(out: &Path, ending: &str, machine: &Machine, reports: &[Report]) -> Result<()> {
    for path in keep(out, ending, machine, reports).map_err(cannot_keep)? {
        say(format!("wrote {}", path.display()));
    }
    Ok(())
}

/// Adds to `about` what the machine lacks.
fn name_missing(about: &mut String, missing: &[String]) {
    for text in missing {
        about.push_str("\nLeft out: ");
        about.push_str(text);
    }
}

fn cannot_keep(error: io::Error) -> Failure {
    failed(error.to_string())
}

/// Prints `text` on standard output; a reader that stops reading is no failure.
fn print(text: &str) {
    progress::aside(|| coldpress_common::print(NAME, text));
}

/// Prints a line of this command on standard error, which may be closed.
fn say(line: impl Display) {
    progress::aside(|| coldpress_common::say(NAME, line));
}
