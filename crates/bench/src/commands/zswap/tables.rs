//! The goals, and what the figures should have been.

use crate::codecs::sealing::Sealing;
use crate::report::Goal;
use serde_json::{Value, json};

use crate::commands::pressure::figures::{Block, Figures};
use crate::commands::pressure::tables::{BASE, OURS, most, percent};

/// The goals at the highest pressure, relative to the base. zswap v4's mail published 0.24 and 0.47
/// ("Performance, Kernel Building").
const IO_MAX: f64 = 0.20;
const TIME_MAX: f64 = 0.40;
/// The largest share of the processors' time that encryption may take.
const SEALING_MAX: f64 = 0.03;

/// The cost of encryption in a run: its share of the processors' time, and the nanoseconds of a
/// page, both ways.
pub(super) struct Share {
    seal_ns: f64,
    open_ns: f64,
    /// The shares by the number of jobs.
    of_cpu: Vec<(u32, f64)>,
}

impl Share {
    /// Finds the shares in the runs of coldpress that wrote something, if a page takes what it took
    /// by itself.
    pub(super) fn new(blocks: &[Block], sealing: &Sealing) -> Self {
        let (seal_ns, open_ns) = (sealing.seal_ns.median(), sealing.open_ns.median());
        let share = |figures: &Figures| {
            let ns = figures.pages_out as f64 * seal_ns + figures.pages_in as f64 * open_ns;
            ns / 1e9 / figures.cpu_seconds
        };
        let of_block = |block: &Block| {
            let share = block.line(OURS)?.median(share)?;
            Some((block.jobs, share)).filter(|_| share > 0.0)
        };
        Self { seal_ns, open_ns, of_cpu: blocks.iter().filter_map(of_block).collect() }
    }

    fn goal(&self) -> Option<Goal> {
        let (jobs, worst) =
            self.of_cpu.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1))?;
        Some(Goal {
            text: format!(
                "encryption takes less than {:.0} % of the processors' time",
                100.0 * SEALING_MAX
            ),
            found: format!(
                "at most {:.2} %, with {jobs} jobs; {:.0} ns a page out, {:.0} in",
                100.0 * worst,
                self.seal_ns,
                self.open_ns
            ),
            met: worst < SEALING_MAX,
        })
    }

    /// Returns the same for programs, as JSON.
    pub(super) fn json(&self) -> Value {
        let shares =
            self.of_cpu.iter().map(|(jobs, share)| json!({ "jobs": jobs, "share": share }));
        json!({
            "seal_ns": self.seal_ns,
            "open_ns": self.open_ns,
            "of_cpu": shares.collect::<Vec<_>>(),
        })
    }
}

/// Returns the goals, judged by the measured figures.
pub(super) fn goals(blocks: &[Block], share: &Share) -> Vec<Goal> {
    let Some(last) = blocks.last() else { return Vec::new() };
    let at = format!("with {} jobs at a time, by {}", last.jobs, BASE.name());
    let goals = [
        most(
            last.ratio(OURS, BASE, Figures::disk_pages),
            IO_MAX,
            format!("{at}: pages from disk and to it {:+.0} %", percent(IO_MAX)),
        ),
        most(
            last.ratio(OURS, BASE, Figures::sum),
            IO_MAX,
            format!("{at}: the same with faults, the published sum, {:+.0} %", percent(IO_MAX)),
        ),
        most(
            last.ratio(OURS, BASE, |figures| figures.seconds),
            TIME_MAX,
            format!("{at}: time {:+.0} %", percent(TIME_MAX)),
        ),
        never_slower(blocks),
        share.goal(),
    ];
    goals.into_iter().flatten().collect()
}

/// Returns the goal that coldpress is never slower, judged at the number of jobs with which it is
/// worst.
fn never_slower(blocks: &[Block]) -> Option<Goal> {
    let ratio = |block: &Block| {
        let ratio = block.ratio(OURS, BASE, |figures| figures.seconds)?;
        Some((block.jobs, ratio))
    };
    let ratios = blocks.iter().filter_map(ratio);
    let (jobs, worst) = ratios.max_by(|one, other| one.1.total_cmp(&other.1))?;
    Some(Goal {
        text: format!("never slower than {}", BASE.name()),
        found: format!("at worst {:+.0} % time, with {jobs} jobs", percent(worst)),
        met: worst <= 1.0,
    })
}

#[cfg(test)]
mod tests {
    //! The risk: a wrong figure meets a goal.
    use super::*;
    use crate::commands::pressure::Contestant;
    use crate::commands::pressure::figures::{Line, Turn};
    use crate::commands::pressure::tables::table;
    use coldpress_sys::Bytes;

    fn line(contestant: Contestant, pages: u64, faults: u64, seconds: f64) -> Line {
        let figures = Figures {
            pages_in: pages,
            pages_out: pages,
            faults,
            disk: Bytes(0),
            seconds,
            cpu_seconds: 1.0,
        };
        let turn = |figures| Turn {
            figures,
            pool: Bytes(0),
            held: Bytes(0),
            kills: u64::from(figures.is_none()),
            failed: 0,
            stats: Value::Null,
        };
        let turns = vec![turn(Some(figures)), turn(None)];
        Line { contestant, limit: Bytes(0), turns }
    }

    fn share() -> Share {
        Share { seal_ns: 500.0, open_ns: 500.0, of_cpu: vec![(8, 0.01), (24, 0.04)] }
    }

    #[test]
    fn goals_are_about_the_highest_pressure_and_about_the_worst() {
        let blocks = [
            Block { jobs: 8, lines: vec![line(BASE, 0, 0, 10.0), line(OURS, 0, 0, 10.5)] },
            Block { jobs: 24, lines: vec![line(BASE, 100, 50, 50.0), line(OURS, 19, 20, 20.0)] },
        ];
        let goals = goals(&blocks, &share());
        let found: Vec<(&str, bool)> =
            goals.iter().map(|goal| (goal.found.as_str(), goal.met)).collect();
        assert_eq!(found[..3], [("-81 %", true), ("-77 %", false), ("-60 %", true)]);
        assert_eq!(found[3], ("at worst +5 % time, with 8 jobs", false));
        assert!(!found[4].1 && found[4].0.contains("4.00 %, with 24 jobs"), "{}", found[4].0);
        assert!(table(&blocks).to_string().contains("1 of 2"));
    }

    #[test]
    fn without_a_base_or_without_its_disk_there_is_no_ratio() {
        let ours = || line(OURS, 10, 20, 20.0);
        let alone = [Block { jobs: 8, lines: vec![ours()] }];
        assert_eq!(goals(&alone, &share()).len(), 1);
        let idle = [Block { jobs: 8, lines: vec![line(BASE, 0, 0, 10.0), ours()] }];
        assert_eq!(goals(&idle, &share()).len(), 3);
        assert!(goals(&[], &share()).is_empty());
    }

    #[test]
    fn encryption_is_a_share_of_the_processors_time() {
        let blocks = [
            Block { jobs: 8, lines: vec![line(OURS, 0, 0, 1.0)] },
            Block { jobs: 24, lines: vec![line(OURS, 1_000_000, 0, 9.0)] },
        ];
        let watch = crate::ticks::Stopwatch::learn();
        let sealing = crate::codecs::sealing::measure(Bytes(1640), &watch);
        let sealing = sealing.unwrap().unwrap();
        let share = Share::new(&blocks, &sealing);
        let wanted = (share.seal_ns + share.open_ns) / 1e3;
        assert_eq!(share.of_cpu.len(), 1);
        assert!((share.of_cpu[0].1 - wanted).abs() < 1e-9 * wanted, "{:?}", share.of_cpu);
    }
}
