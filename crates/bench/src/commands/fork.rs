//! `coldpress-bench fork`: the cost of a fork to a program half of whose data are away, and what
//! parent and child hold when the child writes to all of the data.
//!
//! A program fills memory and forks children that end at once, in pairs of runs: without coldpress
//! and within a budget. The figures of a run are the medians over its forks. The amount of data
//! away is read before each fork and reported: with nothing away, the figures would say nothing.

pub(super) mod options;
mod workload;

use std::ffi::OsStr;

use crate::report::{Goal, Report, Table};
use crate::statistics::{Pair, Paired, Sample, Side, alternate};
use coldpress_common::failure::Result;
use coldpress_common::size::show;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::against::Contest;
use super::launch::{self, Launcher, failed, number, run};
use crate::progress::note;
use options::ForkArgs;
pub(super) use workload::forks;

/// The goal: the median of paired ratios.
const RATIO_GOAL: f64 = 1.3;
/// The number of rounds, unless the user asks for another.
const ROUNDS: u32 = 15;

/// The figures of one run.
#[derive(Clone, Copy)]
struct Turn {
    /// The time of `fork` itself, in the parent.
    fork_us: f64,
    /// The time until the parent has seen the end of the child.
    whole_us: f64,
    /// The bytes of the data that are away at each fork.
    away_bytes: f64,
    /// The child that writes: the time from the fork to its end, and the most that both processes
    /// held.
    written_seconds: f64,
    pss_bytes: f64,
    pss_anonymous_bytes: f64,
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(launcher: &Launcher, args: &ForkArgs) -> Result<Report> {
    if let Some(contest) = Contest::new(launcher, &args.against, &args.rounds)? {
        return beside(contest, args);
    }
    let rounds = args.rounds.or(ROUNDS, &args.common);
    note(format!("fork: {rounds} rounds"));
    let pairs = alternate(rounds, |side| turn(launcher, side, args))?;
    let of = |of: fn(&Turn) -> f64| compare(&pairs, of);
    let (fork, whole) = (of(|turn| turn.fork_us)?, of(|turn| turn.whole_us)?);
    let written = of(|turn| turn.written_seconds)?;
    let (pss, anonymous) = (of(|turn| turn.pss_bytes)?, of(|turn| turn.pss_anonymous_bytes)?);
    let away = of(|turn| turn.away_bytes)?;
    let mut times = Table::new(&[
        "time",
        "plain",
        "p10 to p90",
        "coldpress",
        "p10 to p90",
        "median paired ratio",
        "p10 to p90",
    ]);
    times.row(cells("fork, us", &fork, 0));
    times.row(cells("fork until the child has ended, us", &whole, 0));
    times.row(cells("fork, and the child writes to all pages, s", &written, 3));
    let mut memory = Table::new(&["memory, MiB", "plain", "coldpress", "least to most"]);
    for (name, paired) in [
        ("away at a fork", &away),
        ("parent and child, most Pss while it writes", &pss),
        ("of these, no file's", &anonymous),
    ] {
        let (low, high) = (mib(paired.managed.least()), mib(paired.managed.most()));
        memory.row(vec![
            name.to_owned(),
            format!("{:.1}", mib(paired.plain.median())),
            format!("{:.1}", mib(paired.managed.median())),
            format!("{low:.1} to {high:.1}"),
        ]);
    }
    let goals = vec![
        goal("fork", &fork),
        goal("fork until the child has ended", &whole),
        within(args.memory, &anonymous),
    ];
    let about = format!(
        "A program with {} of data, compressible 2.5 to 1, within {}: {} forks in each run, then\n\
         one whose child writes to every page; {} rounds. Figures of a run are the medians\n\
         of its forks. {:.0} % of the data were away at a fork (runs: {:.0} to {:.0} %).",
        show(args.data),
        show(args.memory),
        args.forks,
        rounds,
        100.0 * away.managed.median() / args.data.0 as f64,
        100.0 * away.managed.least() / args.data.0 as f64,
        100.0 * away.managed.most() / args.data.0 as f64,
    );
    let numbers = json!({
        "data_bytes": args.data.0,
        "memory_bytes": args.memory.0,
        "rounds": rounds,
        "forks": args.forks,
        "ratio_goal": RATIO_GOAL,
        "fork_us": to_json(&fork),
        "whole_us": to_json(&whole),
        "written_seconds": to_json(&written),
        "away_bytes": to_json(&away),
        "pss_bytes": to_json(&pss),
        "pss_anonymous_bytes": to_json(&anonymous),
    });
    Ok(Report { name: "fork", about, tables: vec![times, memory], goals, numbers })
}

/// Runs the benchmark against another build and returns the report.
fn beside(mut contest: Contest<'_>, args: &ForkArgs) -> Result<Report> {
    let names = [
        "fork, us",
        "fork until the child has ended, us",
        "fork, and the child writes to all pages, s",
        "parent and child, most Pss that is no file's, MiB",
    ];
    contest.turns("fork", names.map(str::to_owned), |launcher| {
        let turn = turn(launcher, Side::Managed, args)?;
        let held = mib(turn.pss_anonymous_bytes);
        Ok([turn.fork_us, turn.whole_us, turn.written_seconds, held])
    })?;
    let about = format!("Forks of {} within {}.", show(args.data), show(args.memory));
    Ok(contest.report("fork-against", &about))
}

/// Measures one run of one side.
fn turn(launcher: &Launcher, side: Side, args: &ForkArgs) -> Result<Turn> {
    let (data, forks) = (args.data.0.to_string(), args.forks.to_string());
    let plain = launch::workload(&["forks", "--data", &data, "--forks", &forks]);
    let memory = args.memory.0.to_string();
    let options: [&OsStr; 4] =
        ["--memory".as_ref(), memory.as_ref(), "--disk".as_ref(), args.directory.as_os_str()];
    let seen = match side {
        Side::Plain => run(&mut { plain })?,
        Side::Managed => run(&mut launcher.managed(&options, &plain))?,
    }
    .printed;
    let written = &seen["written"];
    if number(written, "wrong_pages")? != 0.0 {
        return Err(failed("a child of fork found WRONG PAGES".to_owned()));
    }
    if number(written, "looks")? == 0.0 {
        return Err(failed("a child wrote to its pages before it was looked at".to_owned()));
    }
    let turns = seen["forks"].as_array().map_or(&[][..], Vec::as_slice);
    let median = |key: &str| {
        let values: Result<Vec<f64>> = turns.iter().map(|turn| number(turn, key)).collect();
        let sample = Sample::new(values?).ok_or_else(|| failed("a run did not fork".to_owned()))?;
        Ok(sample.median())
    };
    let away_bytes = median("away")?;
    if side == Side::Managed && away_bytes == 0.0 {
        return Err(failed("nothing was away: the data fit the budget".to_owned()));
    }
    Ok(Turn {
        fork_us: median("fork_us")?,
        whole_us: median("whole_us")?,
        away_bytes,
        written_seconds: number(written, "seconds")?,
        pss_bytes: number(written, "pss_bytes")?,
        pss_anonymous_bytes: number(written, "pss_anonymous_bytes")?,
    })
}

fn compare(pairs: &[Pair<Turn>], of: impl Fn(&Turn) -> f64) -> Result<Paired> {
    Paired::new(pairs, of).ok_or_else(|| failed("no pair".to_owned()))
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

fn goal(name: &str, paired: &Paired) -> Goal {
    Goal::at_most(format!("{name}: ratio <= {RATIO_GOAL}"), &paired.ratios, RATIO_GOAL, 2)
}

/// Returns the goal that parent and child stay within the budget, by the kernel's count of memory
/// that belongs to no file.
fn within(budget: Bytes, held: &Paired) -> Goal {
    let most = held.managed.most();
    Goal {
        text: format!("parent and child stay within {}", show(budget)),
        found: format!("{:.1} MiB at most", mib(most)),
        met: most <= budget.0 as f64,
    }
}

fn cells(name: &str, paired: &Paired, digits: usize) -> Vec<String> {
    let spread = |sample: &Sample, digits: usize| {
        format!("{:.digits$} to {:.digits$}", sample.percentile(10.0), sample.percentile(90.0))
    };
    vec![
        name.to_owned(),
        format!("{:.digits$}", paired.plain.median()),
        spread(&paired.plain, digits),
        format!("{:.digits$}", paired.managed.median()),
        spread(&paired.managed, digits),
        format!("{:.2}", paired.ratios.median()),
        spread(&paired.ratios, 2),
    ]
}

fn to_json(paired: &Paired) -> Value {
    let all = |sample: &Sample| {
        json!({
            "median": sample.median(),
            "p10": sample.percentile(10.0),
            "p90": sample.percentile(90.0),
            "least": sample.least(),
            "most": sample.most(),
        })
    };
    json!({
        "plain": all(&paired.plain),
        "managed": all(&paired.managed),
        "paired_ratio": all(&paired.ratios),
    })
}

#[cfg(test)]
mod tests {
    //! The risk: a wrong figure meets a goal.
    use super::*;

    #[test]
    fn goals_are_about_pairs_and_the_worst_run() {
        let pair = |plain, managed| Pair { plain, managed };
        let pairs = [pair(10.0, 12.0), pair(100.0, 120.0), pair(10.0, 20.0)];
        let paired = Paired::new(&pairs, |value| *value).unwrap();
        assert!(goal("a", &paired).met && goal("a", &paired).found.starts_with("1.20 "));
        assert!(within(Bytes(120), &paired).met);
        assert!(!within(Bytes(119), &paired).met);
    }
}
