//! `coldpress doctor`: what this machine offers, one line for each point, and the exact command
//! that mends what is missing.
//!
//! [`host`] tries things and records what happened. [`place`] records the settings of the place
//! where this runs. [`crate::trial`] runs a program of ours as a run would. [`checks`] judges the
//! record and touches nothing, so every verdict can be tested for machines that are not at hand;
//! [`mend`] has the line that mends. `coldpress run` asks the same checks through [`access`] and
//! [`mod@trial`], so both say the same in the same words.

mod checks;
mod finding;
mod host;
mod mend;
mod place;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use coldpress_common::failure::Failure;

use crate::args::{DiskChoice, DoctorArgs};
use crate::config::DEFAULT_DISK;
use crate::preload::Preload;
use crate::print;
use crate::supervise::{self, Signals};
use crate::trial::{self, Obstacle};
pub(crate) use finding::{Finding, Level};
use place::SpillPlace;

/// The ways to a full userfaultfd, the better one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The device /dev/userfaultfd, which the launcher can hand to a program with fewer rights.
    Device,
    /// The system call, which every process must be allowed to make by itself.
    Syscall,
}

/// Returns how `coldpress run` can work here, or the first finding that says why it cannot.
pub(crate) fn access() -> Result<Access, Finding> {
    fn first_fail(faults: &host::Faults) -> Option<Finding> {
        checks::of_faults(faults).into_iter().find(|finding| finding.level == Level::Fail)
    }

    // Only the text of a finding needs the place, and asking for it takes longer than everything
    // else.
    let mut faults = host::Faults::gather(SpillPlace::default());
    if first_fail(&faults).is_some() {
        faults.place = SpillPlace::here();
    }
    match first_fail(&faults) {
        Some(finding) => Err(finding),
        None => Ok(checks::best_access(&faults).expect("the check of access passed above")),
    }
}

/// Tries what a run does, with the library of `preload`. Returns the finding that says why it does
/// not work, if it does not.
pub(crate) fn trial(preload: &Preload) -> Result<(), Finding> {
    let place = SpillPlace::here();
    trial::run(preload).map(drop).map_err(|obstacle| checks::of_trial(&place, &Err(obstacle)))
}

fn try_out() -> Result<Duration, Obstacle> {
    let other = |failure: Failure| Obstacle::Other(failure.cause);
    supervise::become_reaper().map_err(other)?;
    let preload = Preload::lay_out().map_err(other)?;
    let passed = trial::run(&preload)?;
    // A launcher needs this besides.
    drop(Signals::keep().map_err(other)?);
    Ok(passed)
}

/// Runs all checks and prints them. Exit status 1 when `coldpress run` cannot work here.
pub(crate) fn doctor(args: &DoctorArgs) -> ExitCode {
    let directory = match &args.disk {
        Some(DiskChoice::None) => None,
        Some(DiskChoice::Directory(path)) => Some(path.as_path()),
        None => Some(Path::new(DEFAULT_DISK)),
    };
    let mut host = host::Host::gather(directory, args.disk.is_some());
    if checks::of_host(&host).iter().all(|finding| finding.level != Level::Fail) {
        host.trial = Some(try_out());
    }
    let findings = checks::of_host(&host);
    let works = findings.iter().all(|finding| finding.level != Level::Fail);
    let text = if args.json { finding::json(&findings) } else { finding::text(&findings) };
    if print(&text) && works { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
