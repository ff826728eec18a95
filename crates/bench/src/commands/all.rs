//! `coldpress-bench all`: runs every benchmark and keeps the reports as files.
//!
//! A run takes an hour. So each report is printed and kept at once, and a benchmark that fails is
//! named and does not stop the others.

use std::path::{Path, PathBuf};

use crate::machine::Machine;
use crate::report::{Report, keep, text};
use clap::Args;
use coldpress_common::failure::Result;

use super::build::options::SOURCE;
use super::common::defaults;
use super::launch::{Launcher, failed};
use super::{
    build, cannot_keep, codecs, fault, fit, fork, frames, keep_all, policy, pools, print, programs,
    slab, start, swap, trees, zswap,
};
use crate::commands::{check_signals, say};

/// The options of `coldpress-bench all`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AllArgs {
    /// Directory for the figures
    ///
    /// Each processor gets a folder, each date and commit two files.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// The source of PostgreSQL 15 for `build`, which is left out without it
    #[arg(long, value_name = "DIR", default_value = SOURCE)]
    pub(crate) source: PathBuf,
}

/// Runs all benchmarks. Fails when a benchmark could not be measured or a report could not be kept.
pub(super) fn measure(launcher: &Launcher, machine: &Machine, args: &AllArgs) -> Result<()> {
    let mut all = Collected { machine, out: &args.out, reports: Vec::new(), missing: Vec::new() };
    print(&text(machine, &[]));
    all.add("fault", fault::measure(launcher, &defaults()))?;
    all.add("fit", fit::measure(launcher, &defaults()))?;
    all.add("start", start::measure(launcher, &defaults()))?;
    all.add("fork", fork::measure(launcher, &defaults()))?;
    all.add("slab", slab::measure(&defaults()))?;
    all.add("frames", frames::measure(&defaults()))?;
    all.add("pools", pools::measure(&defaults()))?;
    all.add("codecs", codecs::measure(&defaults()))?;
    all.add("policy", policy::measure(&defaults()))?;
    all.add("zswap", zswap::measure(launcher, &zswap::modest()))?;
    all.add("programs", programs::measure(launcher, &programs::modest()))?;
    all.add("trees", trees::measure(launcher, &trees::modest()))?;
    all.add("swap", swap::measure(launcher, &swap::modest()))?;
    match build::lacks(&args.source) {
        None => all.add("build", build::measure(launcher, &build::modest(&args.source)))?,
        Some(why) => say(format!("build: left out: {why}")),
    }
    all.finish()
}

/// The reports collected so far.
struct Collected<'a> {
    machine: &'a Machine,
    out: &'a Path,
    reports: Vec<Report>,
    /// The benchmarks that could not be measured.
    missing: Vec<&'static str>,
}

impl Collected<'_> {
    /// Prints and keeps the report of the benchmark `name`, or says why there is none.
    fn add(&mut self, name: &'static str, result: Result<Report>) -> Result<()> {
        check_signals()?;
        match result {
            Ok(report) => {
                print(&format!("\n{report}"));
                self.reports.push(report);
                self.keep().map(drop)
            }
            Err(failure) => {
                say(format!("{name}: {failure}"));
                self.missing.push(name);
                Ok(())
            }
        }
    }

    fn keep(&self) -> Result<[PathBuf; 2]> {
        keep(self.out, "", self.machine, &self.reports).map_err(cannot_keep)
    }

    /// Says where the reports are. Fails with the names of the benchmarks that could not be
    /// measured.
    fn finish(self) -> Result<()> {
        keep_all(self.out, "", self.machine, &self.reports)?;
        if self.missing.is_empty() {
            return Ok(());
        }
        Err(failed(format!("could not be measured: {}", self.missing.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    //! Risk: a failure at the end loses an hour of work, or an incomplete run passes for a complete
    //! one.

    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_measured_is_kept_whatever_becomes_of_the_rest() {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = Machine::look();
        let mut all = Collected {
            machine: &machine,
            out: folder.path(),
            reports: Vec::new(),
            missing: Vec::new(),
        };
        let report = |name| Report {
            name,
            about: format!("About {name}."),
            tables: Vec::new(),
            goals: Vec::new(),
            numbers: json!({ "of": name }),
        };
        all.add("first", Ok(report("first"))).expect("it is kept");
        let kept = |all: &Collected<'_>| {
            all.keep().expect("it is kept").map(|path| std::fs::read_to_string(path).unwrap())
        };
        assert!(kept(&all)[0].contains("About first."));
        all.add("second", Err(failed("no such thing".to_owned()))).expect("the others go on");
        all.add("third", Ok(report("third"))).expect("it is kept");
        for (contents, word) in kept(&all).iter().zip(["About third.", "\"third\""]) {
            assert!(contents.contains("first") && contents.contains(word), "{contents}");
        }
        let failure = all.finish().expect_err("one is missing").to_string();
        assert!(failure.contains("second") && !failure.contains("third"), "{failure}");
    }
}
