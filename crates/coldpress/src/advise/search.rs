//! The budgets that are tried: those that lead to the smallest one that keeps within a slow-down,
//! or those that show the whole curve.

use coldpress_runtime::ledger::BUDGET_FLOOR;
use coldpress_sys::Bytes;

use super::estimate::{Estimate, Measured};

/// The part of the peak that is tried first: half would thrash in many a program, and tell little
/// of budgets above.
const FIRST: f64 = 0.6;
/// The part of the smallest budget tried that is tried next where nothing is known below it.
const LOWER: f64 = 0.65;
/// The part of the peak below which two budgets are not worth telling apart.
const APART: f64 = 0.02;
/// The part of the slow-down that the last run aims at: it should keep within all of it.
const CAUTION: f64 = 0.7;
/// The largest and the smallest part of the peak on a curve.
const CURVE: (f64, f64) = (0.85, 0.28);
/// How many times as long as without a limit a run may take, and a smaller budget is still tried
/// for the curve; and the nanoseconds that any run may take.
const SLOWEST: f64 = 10.0;
const BRIEF_NS: f64 = 60e9;
/// All budgets are whole numbers of this.
const STEP: usize = 1 << 20;

/// Returns the budget of the next run in a search for the smallest one with this `slower`, as a
/// part of the time; `None` where no other is worth a run.
pub(super) fn next(runs: &[Measured], slower: f64, is_last: bool) -> Option<Bytes> {
    let estimate = Estimate::of(runs)?;
    let peak = estimate.peak();
    let most = estimate.time_ns() * (1.0 + slower);
    let (kept, passed): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.keeps(most));
    let above = kept.iter().map(|run| run.budget.unwrap_or(peak)).min()?;
    let below = passed.iter().filter_map(|run| run.budget).max();
    let apart = part(peak, APART).max(Bytes(STEP)).0;
    let least = below.map_or(BUDGET_FLOOR.0, |below| below.0 + apart);
    if above.0 <= least {
        return None;
    }
    let largest = above.0.saturating_sub(apart).max(least);
    let aim = if is_last { CAUTION } else { 1.0 };
    let wanted = estimate.time_ns() * (1.0 + slower * aim);
    let keeps = |budget: &Bytes| estimate.at(*budget).is_some_and(|it| it.time_ns <= wanted);
    let budget = if runs.len() == 1 {
        part(peak, FIRST)
    } else if estimate.at(Bytes(largest)).is_none() {
        // Nothing is known below what kept within the slow-down.
        part(above, LOWER)
    } else {
        let budgets = (least.div_ceil(STEP)..=largest / STEP).map(|mib| Bytes(mib * STEP));
        budgets.rev().take_while(keeps).last().unwrap_or(Bytes(largest))
    };
    Some(whole(Bytes(budget.0.clamp(least, largest))))
}

/// Returns the budgets of all runs but the first, for a curve, largest first.
pub(super) fn curve(peak: Bytes, runs: u32) -> Vec<Bytes> {
    let (largest, smallest) = CURVE;
    let steps = f64::from(runs.max(3) - 2);
    let share = |step: u32| largest * (smallest / largest).powf(f64::from(step) / steps);
    let mut all: Vec<Bytes> = (0..runs - 1)
        .map(|step| whole(part(peak, share(step))).max(BUDGET_FLOOR))
        .filter(|budget| *budget < peak)
        .collect();
    all.dedup();
    all
}

/// Returns whether a smaller budget is to be tried for the curve.
pub(super) fn goes_on(runs: &[Measured]) -> bool {
    let (first, last) = (runs.first(), runs.last());
    first.zip(last).is_some_and(|(first, last)| last.keeps(BRIEF_NS.max(SLOWEST * first.wall_ns)))
}

fn part(size: Bytes, part: f64) -> Bytes {
    Bytes((size.0 as f64 * part) as usize)
}

fn whole(size: Bytes) -> Bytes {
    Bytes(size.0.next_multiple_of(STEP))
}

#[cfg(test)]
mod tests {
    //! The risk: the search ends without a budget although one keeps within the slow-down, tries
    //! what it knows already, or never ends.

    use super::*;

    const PEAK: usize = 400;

    /// A program of 10 s and 400 MiB that takes twice as long in this part of it, and waits the
    /// more the less it has.
    fn measured(budget: Option<Bytes>, doubles_at: f64) -> Measured {
        let part = budget.map_or(1.0, |budget| budget.0 as f64 / Bytes::mib(PEAK).0 as f64);
        let lacking = (1.0 - part).max(0.0) / (1.0 - doubles_at);
        let stall_ns = 10e9 * lacking.powi(4);
        Measured::of(budget, 10e9 + stall_ns, stall_ns, Bytes::mib(PEAK))
    }

    /// Searches with so many runs, and returns all budgets that were tried.
    fn search(runs: u32, slower: f64, doubles_at: f64) -> Vec<Bytes> {
        let mut all = vec![measured(None, doubles_at)];
        while (all.len() as u32) < runs {
            let is_last = all.len() as u32 + 1 == runs;
            let Some(budget) = next(&all, slower, is_last) else { break };
            assert!(all.iter().all(|run| run.budget != Some(budget)), "{budget:?} again");
            assert!(budget >= BUDGET_FLOOR && budget < Bytes::mib(PEAK), "{budget:?}");
            assert!(budget.0.is_multiple_of(STEP));
            all.push(measured(Some(budget), doubles_at));
        }
        all.iter().filter_map(|run| run.budget).collect()
    }

    #[test]
    fn a_search_comes_close_to_the_smallest_budget_in_few_runs() {
        for doubles_at in [0.8, 0.5, 0.3, 0.1] {
            // Where the time is 5 % longer.
            let right = 1.0 - 0.05_f64.powf(0.25) * (1.0 - doubles_at);
            let most = |tried: &Bytes| measured(Some(*tried), doubles_at).wall_ns <= 10.5e9;
            for (runs, off) in [(5, 0.12), (8, 0.04)] {
                let tried = search(runs, 0.05, doubles_at);
                assert!(tried.len() < runs as usize);
                let best = tried.iter().filter(|it| most(it)).min().expect("one keeps within it");
                let part = best.0 as f64 / Bytes::mib(PEAK).0 as f64;
                assert!((right - 0.001..right + off).contains(&part), "{right} {part} {tried:?}");
            }
        }
    }

    #[test]
    fn a_search_ends_where_nothing_is_left_to_try() {
        // It never takes longer, so the floor is right; and always takes much longer, so the peak.
        let tried = search(50, 1e6, 0.5);
        assert_eq!(tried.last(), Some(&BUDGET_FLOOR), "{tried:?}");
        assert!(search(50, 1e-9, 0.5).len() < 12);
        let small = [Measured::of(None, 1e9, 0.0, Bytes::mib(10))];
        assert_eq!(next(&small, 0.05, false), None, "it fits the least budget there is");
    }

    #[test]
    fn the_budgets_of_a_curve_are_spread_and_end_where_it_takes_too_long() {
        let peak = Bytes::mib(1000);
        let budgets = curve(peak, 5);
        assert_eq!(budgets, [850, 588, 406, 280].map(Bytes::mib));
        assert_eq!(curve(peak, 3), [850, 280].map(Bytes::mib));
        assert_eq!(curve(Bytes::mib(20), 5), [17, 16].map(Bytes::mib));
        assert_eq!(curve(Bytes::mib(10), 5), []);
        let run = |wall_ns| Measured::of(Some(Bytes::mib(1)), wall_ns, 0.0, peak);
        assert!(goes_on(&[run(10e9), run(99e9)]) && !goes_on(&[run(10e9), run(101e9)]));
        assert!(goes_on(&[run(1e9), run(59e9)]) && !goes_on(&[run(1e9), run(61e9)]));
    }
}
