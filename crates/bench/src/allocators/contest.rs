//! Contests of allocators: the table of works and contestants, and the goals.

use std::alloc::GlobalAlloc;

use serde_json::{Value, json};

use super::work::{Group, Work};
use crate::report::{Goal, Table};
use crate::statistics::{Sample, take_turns};

/// The ratio to the fastest allocator up to which an allocator still counts as fast: 5 %.
const NEAR: f64 = 1.05;

/// A contestant: an allocator in a contest.
#[derive(Clone, Copy)]
pub struct Contestant<'a> {
    /// The name of the allocator in tables.
    pub name: &'static str,
    /// The allocator that the works call.
    pub allocator: &'a (dyn GlobalAlloc + Sync),
    /// Whether the goals compare our allocator with this one: not if it does nothing.
    pub is_peer: bool,
}

/// The outcome of a contest.
pub struct Result {
    /// The tables of medians and of their spread.
    pub tables: Vec<Table>,
    /// The goals: whether our allocator is among the fastest.
    pub goals: Vec<Goal>,
    /// The same figures for programs, as JSON.
    pub numbers: Value,
    /// Nanoseconds for each object: a row for each work, a sample for each contestant.
    pub(crate) samples: Vec<Vec<Sample>>,
}

/// Measures each work with each contestant in `rounds` rounds, at least one. The goals judge the
/// contestant called `ours`.
pub fn contest(works: &[Work], contestants: &[Contestant<'_>], rounds: u32, ours: &str) -> Result {
    let samples: Vec<Vec<Sample>> = works
        .iter()
        .map(|work| {
            let measure = |index: usize| work.run(contestants[index].allocator);
            take_turns(contestants.len(), rounds.max(1), measure).into_iter().flatten().collect()
        })
        .collect();
    let names = || contestants.iter().map(|contestant| contestant.name);
    let head = |title| std::iter::once(title).chain(names()).collect::<Vec<_>>();
    let mut medians = Table::new(&head("ns an object"));
    let mut spreads = Table::new(&head("p10 to p90, % of the median"));
    let mut numbers = Vec::new();
    for (work, row) in works.iter().zip(&samples) {
        let name = || std::iter::once(work.name().to_owned());
        medians.row(name().chain(row.iter().map(|s| format!("{:.2}", s.median()))).collect());
        spreads.row(name().chain(row.iter().map(spread)).collect());
        let cells = contestants.iter().zip(row);
        let found = cells.map(|(contestant, sample)| (contestant.name.to_owned(), to_json(sample)));
        numbers.push(json!({
            "work": work.name(),
            "objects": work.objects(),
            "ns": found.collect::<serde_json::Map<_, _>>(),
        }));
    }
    let goals = [
        (Group::Pairs, "pairs"),
        (Group::Batches, "batches"),
        (Group::Shuffled, "shuffled frees of a large batch"),
    ]
    .into_iter()
    .filter_map(|(group, name)| goal(works, contestants, &samples, ours, group, name))
    .collect();
    let numbers = json!({ "rounds": rounds, "works": numbers });
    Result { tables: vec![medians, spreads], goals, numbers, samples }
}

/// Returns the goal that `ours` is the fastest, or near it, in every work of `group`; `None` when
/// there is no peer to compare with.
fn goal(
    works: &[Work],
    contestants: &[Contestant<'_>],
    samples: &[Vec<Sample>],
    ours: &str,
    group: Group,
    name: &str,
) -> Option<Goal> {
    let own = contestants.iter().position(|contestant| contestant.name == ours)?;
    let is_other = |index: &usize| contestants[*index].is_peer && *index != own;
    let rows = works.iter().zip(samples).filter(|(work, _)| work.group() == group);
    let against = rows.filter_map(|(work, row)| {
        let others = (0..row.len()).filter(is_other);
        let best = others.min_by(|a, b| row[*a].median().total_cmp(&row[*b].median()))?;
        Some((row[own].median() / row[best].median(), work.name(), contestants[best].name))
    });
    let (ratio, work, best) = against.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Goal {
        text: format!("{name}: {ours} is the fastest or within 5 % of it"),
        found: format!("at worst {ratio:.2} times {best} ({work})"),
        met: ratio <= NEAR,
    })
}

fn spread(sample: &Sample) -> String {
    let part = |percent| 100.0 * sample.percentile(percent) / sample.median();
    format!("{:.0} to {:.0}", part(10.0), part(90.0))
}

fn to_json(sample: &Sample) -> Value {
    json!({
        "median": sample.median(),
        "p10": sample.percentile(10.0),
        "p90": sample.percentile(90.0),
        "least": sample.least(),
    })
}
