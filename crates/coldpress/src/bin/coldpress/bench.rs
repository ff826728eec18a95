//! `coldpress bench`: figures of this machine, each beside the same work without coldpress.
//!
//! The command starts itself as the program that is measured ([`workload`]), so a figure needs no
//! more than the command.

mod against;
mod all;
mod build;
mod codecs;
mod fault;
mod fit;
mod fork;
mod frames;
mod launch;
mod options;
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

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use coldpress_bench::machine::Machine;
use coldpress_bench::report::{Report, document, folder, keep, text};

use crate::failure::{Failure, Result};
use crate::say;
use launch::{Launcher, failed};
use options::What;
pub(crate) use options::{BenchArgs, WorkloadArgs};
use swap::goals::Elsewhere;
pub(crate) use workload::workload;

/// Measures and prints. Exit status 1 when something could not be measured, or is worse than with
/// the build that it is compared with.
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
    let out = out_of(&args.what, &machine)?;
    let (report, is_json) = match &args.what {
        What::Fault(args) => (fault::measure(&launcher, args)?, args.json),
        What::Fit(args) => (fit::measure(&launcher, args)?, args.json),
        What::Start(args) => (start::measure(&launcher, args)?, args.json),
        What::Fork(args) => (fork::measure(&launcher, args)?, args.json),
        What::Slab(args) => (slab::measure(args)?, args.json),
        What::Frames(args) => (frames::measure(&launcher, args)?, args.json),
        What::Pools(args) => (pools::measure(args)?, args.json),
        What::Codecs(args) => (codecs::measure(&launcher, args)?, args.json),
        What::Policy(args) => (policy::measure(args)?, args.json),
        What::Swap(args) => (swap::measure(&launcher, args, &Elsewhere::default())?, args.json),
        What::Programs(args) => (programs::measure(&launcher, args)?, args.json),
        What::Trees(args) => (trees::measure(&launcher, args)?, args.json),
        What::Zswap(args) => (zswap::measure(&launcher, args)?, args.json),
        What::Build(args) => (build::measure(&launcher, args)?, args.json),
        What::View(args) => (view::measure(&launcher, args)?, args.json),
        What::All(args) => return all::measure(&launcher, &machine, args),
    };
    let name = report.name;
    let reports = [report];
    print(&if is_json { document(&machine, &reports) } else { text(&machine, &reports) });
    if let Some(out) = out {
        keep_all(out, &format!("-{name}"), &machine, &reports)?;
    }
    against::judge(args.what.against(), &reports)
}

/// The directory to keep the figures in, with those that can be kept alone. It is made before
/// minutes of work, so that one nobody may write to is known at once.
fn out_of<'a>(what: &'a What, machine: &Machine) -> Result<Option<&'a Path>> {
    let out = match what {
        What::Build(args) => args.out.as_deref(),
        What::Fork(args) => args.out.as_deref(),
        What::View(args) => args.out.as_deref(),
        What::All(args) => Some(args.out.as_path()),
        _ => None,
    };
    match out.map(|out| folder(out, machine)) {
        Some(Err(error)) => Err(cannot_keep(error)),
        _ => Ok(out),
    }
}

/// Writes reports into files, and says where.
fn keep_all(out: &Path, ending: &str, machine: &Machine, reports: &[Report]) -> Result<()> {
    for path in keep(out, ending, machine, reports).map_err(cannot_keep)? {
        say(format!("wrote {}", path.display()));
    }
    Ok(())
}

/// Says what the machine lacks.
fn name_missing(about: &mut String, missing: &[String]) {
    for text in missing {
        about.push_str("\nLeft out: ");
        about.push_str(text);
    }
}

fn cannot_keep(error: io::Error) -> Failure {
    failed(error.to_string())
}

fn print(text: &str) {
    // Whoever closed standard output does not want to read on.
    let _ = io::stdout().write_all(text.as_bytes());
}
