//! `coldpress bench`: figures of this machine, each beside the same work without coldpress.
//!
//! The command starts itself as the program that is measured ([`workload`]), so a figure needs no
//! more than the command.

mod fault;
mod fit;
mod launch;
mod machine;
mod options;
mod report;
mod start;
mod statistics;
mod workload;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use crate::failure::{Failure, Result};
use crate::say;
use launch::{Launcher, failed};
use machine::Machine;
use options::{AllArgs, What, defaults};
pub(crate) use options::{BenchArgs, WorkloadArgs};
use report::Report;
pub(crate) use workload::workload;

/// The version of the JSON document's keys.
const SCHEMA: u32 = 1;

/// Measures and prints. Exit status 1 when something could not be measured.
pub(crate) fn bench(args: &BenchArgs) -> ExitCode {
    match try_bench(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure);
            ExitCode::FAILURE
        }
    }
}

fn try_bench(args: &BenchArgs) -> Result<()> {
    let machine = Machine::look();
    let launcher = Launcher::new()?;
    let (report, is_json) = match &args.what {
        What::Fault(args) => (fault::measure(&launcher, args)?, args.json),
        What::Fit(args) => (fit::measure(&launcher, args)?, args.json),
        What::Start(args) => (start::measure(&launcher, args)?, args.json),
        What::All(args) => return all(&launcher, &machine, args),
    };
    print(&if is_json { document(&machine, &[report]) } else { text(&machine, &[report]) });
    Ok(())
}

/// Measures everything, prints it and keeps it.
fn all(launcher: &Launcher, machine: &Machine, args: &AllArgs) -> Result<()> {
    // Opened before minutes of work, so that a directory nobody may write to is known at once.
    let directory = args.out.join(machine.slug());
    fs::create_dir_all(&directory).map_err(|error| cannot_write(&directory, &error))?;
    let reports = [
        fault::measure(launcher, &defaults())?,
        fit::measure(launcher, &defaults())?,
        start::measure(launcher, &defaults())?,
    ];
    let text = text(machine, &reports);
    print(&text);
    for (ending, contents) in [("md", text), ("json", document(machine, &reports))] {
        let path = directory.join(format!("{}.{ending}", machine.file_stem()));
        fs::write(&path, contents).map_err(|error| cannot_write(&path, &error))?;
        say(format!("wrote {}", path.display()));
    }
    Ok(())
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    failed(format!("cannot write {}: {error}", path.display()))
}

fn text(machine: &Machine, reports: &[Report]) -> String {
    let mut text = format!("# Figures of {}\n\n{}", machine.file_stem(), machine.text());
    for report in reports {
        write!(text, "\n{report}").expect("a string takes all");
    }
    text
}

fn document(machine: &Machine, reports: &[Report]) -> String {
    let mut document = json!({ "schema": SCHEMA, "machine": machine.json() });
    for report in reports {
        document[report.name] = report.numbers.clone();
    }
    format!("{document:#}\n")
}

fn print(text: &str) {
    // Whoever closed standard output does not want to read on.
    let _ = io::stdout().write_all(text.as_bytes());
}
