//! `--against FILE`: measures this build of coldpress and another one in turns, and judges whether
//! this build is worse.
//!
//! A benchmark supplies one step, which measures its figures once with a given launcher. The step
//! runs with the other build and with this one, in pairs whose order alternates. Both sides run the
//! workloads of this command, with options that every build knows, so the other build may be an old
//! one.
//!
//! Invariant: for every figure less is better, so a ratio above 1 is worse.

use std::path::{Path, PathBuf};

use clap::Args;
use coldpress_common::failure::{Failure, Result};
use serde_json::{Value, json};

use super::common::Rounds;
use super::launch::{Launcher, failed};
use crate::progress::note;
use crate::report::{Goal, Report, Table};
use crate::statistics::{Paired, Side, alternate};
use crate::verdict::{COVERAGE, Interval, PAIRS_MIN, RATIO_SAME, Verdict};

/// The option that compares with another build.
#[derive(Clone, Debug, Args)]
pub(crate) struct AgainstArgs {
    /// Compare with another build of coldpress
    ///
    /// It takes turns with this one in at least 20 rounds. The exit status is 1 when a figure is
    /// worse by more than 2 %.
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
}

/// A figure measured with both builds.
struct Figure {
    name: String,
    paired: Paired,
    interval: Interval,
}

/// A contest of two builds, with the figures found so far.
pub(super) struct Contest<'a> {
    this: &'a Launcher,
    other: Launcher,
    file: &'a Path,
    rounds: u32,
    figures: Vec<Figure>,
}

impl<'a> Contest<'a> {
    /// Returns the contest that `args` ask for; `None` when they ask for none. Fails when there are
    /// too few `rounds` for a verdict, or when the other build does not exist.
    pub(super) fn new(
        launcher: &'a Launcher,
        args: &'a AgainstArgs,
        rounds: &Rounds,
    ) -> Result<Option<Self>> {
        let Some(file) = args.against.as_deref() else { return Ok(None) };
        let rounds = rounds.rounds.unwrap_or(PAIRS_MIN);
        if rounds < PAIRS_MIN {
            let cause = format!("--rounds {rounds} are too few to compare builds");
            return Err(Failure::ours(cause, format!("ask for {PAIRS_MIN} or more")));
        }
        let other = Launcher::other(file)?;
        Ok(Some(Self { this: launcher, other, file, rounds, figures: Vec::new() }))
    }

    /// Has both builds take turns at `step`, which finds a value for each of `names`.
    pub(super) fn turns<const N: usize>(
        &mut self,
        what: &str,
        names: [String; N],
        step: impl Fn(&Launcher) -> Result<[f64; N]>,
    ) -> Result<()> {
        note(format!("{what}: {} rounds, against {}", self.rounds, self.file.display()));
        let pairs = alternate(self.rounds, |side| match side {
            Side::Plain => step(&self.other),
            Side::Managed => step(self.this),
        })?;
        for (index, name) in names.into_iter().enumerate() {
            let paired = Paired::new(&pairs, |values| values[index]);
            let paired = paired.ok_or_else(|| failed("no round".to_owned()))?;
            let interval = Interval::of(&paired.ratios);
            let interval = interval.ok_or_else(|| failed("too few rounds".to_owned()))?;
            self.figures.push(Figure { name, paired, interval });
        }
        Ok(())
    }

    /// Returns the figures of both builds as the report `name`.
    pub(super) fn report(self, name: &'static str, about: &str) -> Report {
        let about = format!(
            "This build and another one ({}) in turns, {} rounds.\n{about}\n\
             A ratio is this build by the other, of each round; its interval holds the true\n\
             median with {:.0} % at least (order statistics).",
            file_name(self.file),
            self.rounds,
            100.0 * COVERAGE,
        );
        let mut table =
            Table::new(&["figure", "other", "this", "median ratio", "interval", "verdict"]);
        for figure in &self.figures {
            table.row(figure.cells());
        }
        let worse: Vec<_> = self.figures.iter().filter(|figure| figure.is_worse()).collect();
        let names: Vec<_> = worse.iter().map(|figure| figure.name.as_str()).collect();
        let goal = Goal {
            text: format!("no interval above {RATIO_SAME}"),
            found: match names.as_slice() {
                [] => format!("none of {}", self.figures.len()),
                names => names.join("; "),
            },
            met: names.is_empty(),
        };
        let numbers = json!({
            "against": file_name(self.file),
            "rounds": self.rounds,
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
        });
        Report { name, about, tables: vec![table], goals: vec![goal], numbers }
    }
}

/// Returns the name of a file without its folder: figures are kept, and the folder is private.
fn file_name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Figure {
    fn is_worse(&self) -> bool {
        self.interval.verdict() == Verdict::Worse
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            format!("{:.3}", self.paired.plain.median()),
            format!("{:.3}", self.paired.managed.median()),
            format!("{:.4}", self.interval.median),
            self.interval.to_string(),
            self.interval.verdict().name().to_owned(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "figure": self.name,
            "other": self.paired.plain.median(),
            "this": self.paired.managed.median(),
            "median_ratio": self.interval.median,
            "interval": [self.interval.low, self.interval.high],
            "verdict": self.interval.verdict().name(),
        })
    }
}

/// Fails when the reports of a comparison hold a figure that is worse with this build.
pub(super) fn judge(against: Option<&Path>, reports: &[Report]) -> Result<()> {
    let Some(file) = against else { return Ok(()) };
    let goals = reports.iter().flat_map(|report| &report.goals);
    let worse: Vec<_> = goals.filter(|goal| !goal.met).map(|goal| goal.found.as_str()).collect();
    if worse.is_empty() {
        return Ok(());
    }
    let percent = 100.0 * (RATIO_SAME - 1.0);
    let cause =
        format!("worse than {} by more than {percent:.0} %: {}", file.display(), worse.join("; "));
    Err(Failure::ours(cause, "measure again with more --rounds before you believe it"))
}

#[cfg(test)]
mod tests {
    //! Risk: a slower build ends with status 0, or a figure is compared with another figure.

    use super::*;

    /// Returns the report of a contest in which `value` supplies the figures, given whether it is
    /// this build's turn, and the number of the turn.
    fn contest(value: impl Fn(bool, usize) -> [f64; 2]) -> Report {
        let this = Launcher::new(Some(Path::new("/proc/self/exe"))).expect("the test itself");
        let file = std::env::current_exe().expect("as above").with_file_name("before");
        let other = Launcher::other(Path::new("/proc/self/exe")).expect("it is there");
        let mut contest =
            Contest { other, this: &this, file: &file, rounds: PAIRS_MIN, figures: Vec::new() };
        let turn = std::cell::Cell::new(0);
        let step = |launcher: &Launcher| {
            turn.set(turn.get() + 1);
            Ok(value(std::ptr::eq(launcher, &raw const this), turn.get()))
        };
        contest.turns("test", ["one".to_owned(), "two".to_owned()], step).expect("it measures");
        contest.report("test", "Nothing.")
    }

    #[test]
    fn the_figure_that_is_worse_is_named_and_fails() {
        // The machine grows steadily slower, which affects both builds alike.
        let report = contest(|is_this, turn| {
            let speed = turn as f64;
            [speed * if is_this { 1.5 } else { 1.0 }, 2.0]
        });
        let figures = &report.numbers["figures"];
        assert_eq!(
            (&figures[0]["verdict"], &figures[1]["verdict"]),
            (&"worse".into(), &"same".into())
        );
        assert!(figures[0]["median_ratio"].as_f64() > Some(1.4), "{figures}");
        let file = Path::new("before");
        let failure = judge(Some(file), &[report]).expect_err("it is worse").to_string();
        assert!(failure.contains("before") && failure.contains(": one;"), "{failure}");
        assert!(!failure.contains("two"), "{failure}");
    }

    #[test]
    fn one_that_is_faster_or_as_fast_passes() {
        for factor in [0.5, 1.0, 1.01] {
            let report = contest(|is_this, _| [if is_this { factor } else { 1.0 }, 1.0]);
            let verdict = if factor < 0.9 { "better" } else { "same" };
            assert_eq!(report.numbers["figures"][0]["verdict"], verdict);
            assert!(!report.numbers.to_string().contains('/'), "a path: {}", report.numbers);
            judge(Some(Path::new("before")), &[report]).expect("it is no worse");
        }
    }

    #[test]
    fn a_build_that_is_not_there_is_named() {
        let launcher = Launcher::new(Some(Path::new("/proc/self/exe"))).expect("the test itself");
        let file = Some(PathBuf::from("/nowhere/coldpress"));
        let args = AgainstArgs { against: file };
        let usual = Rounds { rounds: None };
        let Err(failure) = Contest::new(&launcher, &args, &usual) else { panic!("it was found") };
        let text = failure.to_string();
        assert!(text.contains("/nowhere/coldpress") && text.contains("No such file"), "{text}");
        let none = AgainstArgs { against: None };
        assert!(Contest::new(&launcher, &none, &usual).unwrap().is_none());
    }

    #[test]
    fn rounds_that_tell_nothing_are_refused() {
        let launcher = Launcher::new(Some(Path::new("/proc/self/exe"))).expect("the test itself");
        let args = AgainstArgs { against: Some(PathBuf::from("/proc/self/exe")) };
        for (rounds, is_enough) in [(PAIRS_MIN - 1, false), (PAIRS_MIN, true)] {
            let contest = Contest::new(&launcher, &args, &Rounds { rounds: Some(rounds) });
            assert_eq!(contest.is_ok(), is_enough, "{rounds}");
        }
    }
}
