//! `coldpress bench`: figures of this machine, each beside the same work without coldpress.
//!
//! The command starts itself as the program that is measured ([`workload`]), so a figure needs no
//! more than the command.

mod codecs;
mod fault;
mod fit;
mod frames;
mod launch;
mod options;
mod policy;
mod pools;
mod programs;
mod sides;
mod slab;
mod start;
mod swap;
mod workload;
mod zswap;

use std::io::{self, Write as _};
use std::process::ExitCode;

use coldpress_bench::machine::Machine;
use coldpress_bench::report::{document, folder, keep, text};

use crate::failure::{Failure, Result};
use crate::say;
use launch::{Launcher, failed};
use options::{AllArgs, What, defaults};
pub(crate) use options::{BenchArgs, WorkloadArgs};
use swap::goals::Elsewhere;
pub(crate) use workload::workload;

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
        What::Slab(args) => (slab::measure(args)?, args.json),
        What::Frames(args) => (frames::measure(&launcher, args)?, args.json),
        What::Pools(args) => (pools::measure(args)?, args.json),
        What::Codecs(args) => (codecs::measure(&launcher, args)?, args.json),
        What::Policy(args) => (policy::measure(args)?, args.json),
        What::Swap(args) => (swap::measure(&launcher, args, &Elsewhere::default())?, args.json),
        What::Programs(args) => (programs::measure(&launcher, args)?, args.json),
        What::Zswap(args) => (zswap::measure(&launcher, args)?, args.json),
        What::All(args) => return all(&launcher, &machine, args),
    };
    print(&if is_json { document(&machine, &[report]) } else { text(&machine, &[report]) });
    Ok(())
}

/// Measures everything, prints it and keeps it.
fn all(launcher: &Launcher, machine: &Machine, args: &AllArgs) -> Result<()> {
    // Made before minutes of work, so that a directory nobody may write to is known at once.
    folder(&args.out, machine).map_err(cannot_keep)?;
    let mut reports = vec![
        fault::measure(launcher, &defaults())?,
        fit::measure(launcher, &defaults())?,
        start::measure(launcher, &defaults())?,
        slab::measure(&defaults())?,
        frames::measure(launcher, &defaults())?,
        pools::measure(&defaults())?,
        codecs::measure(launcher, &defaults())?,
        policy::measure(&defaults())?,
        zswap::measure(launcher, &zswap::modest())?,
        programs::measure(launcher, &programs::modest())?,
    ];
    reports.push(swap::measure(launcher, &swap::modest(), &Elsewhere::of(&reports))?);
    print(&text(machine, &reports));
    for path in keep(&args.out, "", machine, &reports).map_err(cannot_keep)? {
        say(format!("wrote {}", path.display()));
    }
    Ok(())
}

fn cannot_keep(error: io::Error) -> Failure {
    failed(error.to_string())
}

fn print(text: &str) {
    // Whoever closed standard output does not want to read on.
    let _ = io::stdout().write_all(text.as_bytes());
}
