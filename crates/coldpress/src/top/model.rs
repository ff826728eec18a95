//! The rows of the table: runs, and the tree of the processes of each, sorted and folded.
//!
//! The documents come from other processes, so a parent may be anything: a process whose parent is
//! not in the list stands below its run, and one that leads to no such process is not shown.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::column::Column;
use super::row::{Figures, Fold, Id, Row};
use super::sample::{Run, Sample, Silent, number};
use crate::broker::late::WORTH_IT;

/// How the user wants to see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) by: Column,
    pub(super) is_rising: bool,
    pub(super) closed: BTreeSet<Id>,
    /// Whether runs that have not answered have rows.
    pub(super) shows_silent: bool,
}

impl Order {
    pub(super) fn new(shows_silent: bool) -> Self {
        Self { by: Column::Used, is_rising: false, closed: BTreeSet::new(), shows_silent }
    }

    fn compare(&self, one: &Row, other: &Row) -> Ordering {
        let order = self.by.compare(one, other);
        let order = if self.is_rising { order } else { order.reverse() };
        order.then(one.id.cmp(&other.id))
    }
}

/// Returns the rows of a look, in `order`.
pub(super) fn rows(sample: &Sample, order: &Order) -> Vec<Row> {
    let mut runs: Vec<(Row, Option<&Run>)> =
        sample.runs.iter().map(|run| (row_of_run(run, order), Some(run))).collect();
    if order.shows_silent {
        runs.extend(sample.silent.iter().map(|silent| (row_of_silent(silent), None)));
    }
    runs.sort_by(|(one, _), (other, _)| order.compare(one, other));
    let mut rows = Vec::new();
    for (row, run) in runs {
        let is_open = row.fold == Fold::Open;
        rows.push(row);
        if let Some(run) = run.filter(|_| is_open) {
            add_tree(&mut rows, run, order);
        }
    }
    rows
}

fn row_of_run(run: &Run, order: &Order) -> Row {
    let id = Id::Run(run.keeper);
    let has_tree = run.document["tree"].as_array().is_some_and(|tree| !tree.is_empty());
    let left_out = number(&run.document, "processes_left_out");
    let name = run.document["program"].as_str().unwrap_or("?");
    Row {
        id,
        depth: 0,
        name: if left_out > 0 { format!("{name} (+{left_out})") } else { name.to_owned() },
        fold: fold(id, has_tree, order),
        figures: Figures::of(&run.document),
        budget: Some(number(&run.document, "budget_bytes")),
        note: None,
    }
}

fn row_of_silent(silent: &Silent) -> Row {
    let of = silent.user.map(|user| format!("of user {user}: ")).unwrap_or_default();
    Row {
        id: Id::Run(silent.keeper),
        depth: 0,
        name: "(run)".to_owned(),
        fold: Fold::Leaf,
        figures: Figures::default(),
        budget: None,
        note: Some(format!("{of}{}", silent.failure.cause)),
    }
}

fn fold(id: Id, has_below: bool, order: &Order) -> Fold {
    match (has_below, order.closed.contains(&id)) {
        (false, _) => Fold::Leaf,
        (true, true) => Fold::Closed,
        (true, false) => Fold::Open,
    }
}

/// Adds the processes of a run below its row.
fn add_tree(rows: &mut Vec<Row>, run: &Run, order: &Order) {
    let tree = run.document["tree"].as_array().map(Vec::as_slice).unwrap_or_default();
    let numbers: BTreeSet<u64> = tree.iter().map(|it| number(it, "process")).collect();
    let mut below: BTreeMap<Option<u64>, Vec<Row>> = BTreeMap::new();
    for process in tree {
        let parent = Some(number(process, "parent")).filter(|parent| numbers.contains(parent));
        below.entry(parent).or_default().push(row_of_process(run.keeper, process));
    }
    for rows in below.values_mut() {
        // They are taken from the end.
        rows.sort_by(|one, other| order.compare(other, one));
    }
    let take = |below: &mut BTreeMap<_, _>, parent| below.remove(&parent).unwrap_or_default();
    let mut open: Vec<(usize, Row)> =
        take(&mut below, None).into_iter().map(|row| (1, row)).collect();
    while let Some((depth, mut row)) = open.pop() {
        let children = take(&mut below, Some(u64::from(row.id.number())));
        row.depth = depth;
        row.fold = fold(row.id, !children.is_empty(), order);
        if row.fold == Fold::Closed {
            let mut hidden = children;
            while let Some(one) = hidden.pop() {
                row.figures.add(&one.figures);
                hidden.extend(take(&mut below, Some(u64::from(one.id.number()))));
            }
        } else {
            open.extend(children.into_iter().map(|row| (depth + 1, row)));
        }
        rows.push(row);
    }
}

fn row_of_process(keeper: u32, process: &Value) -> Row {
    let is_joined = process["joined"].as_bool().unwrap_or(false);
    let why = process["why"].as_str();
    let note = match (is_joined, why) {
        (true, _) => None,
        (false, Some(why)) => Some(format!("not managed: it {why}")),
        (false, None) if number(process, "used_bytes") < WORTH_IT.bytes().0 as u64 => {
            Some("small: not managed yet".to_owned())
        }
        (false, None) => Some("about to join: not managed yet".to_owned()),
    };
    let number = u32::try_from(number(process, "process")).unwrap_or(0);
    Row {
        id: Id::Process(keeper, number),
        depth: 0,
        name: process["name"].as_str().unwrap_or("?").to_owned(),
        fold: Fold::Leaf,
        figures: Figures::of(process),
        budget: None,
        note,
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a process is lost, stands below another's parent, or is counted twice.

    use coldpress_common::failure::Failure;
    use serde_json::json;

    use super::*;

    fn process(process: u32, parent: u32, used: u64) -> Value {
        json!({
            "process": process, "parent": parent, "name": format!("p{process}"), "joined": true,
            "used_bytes": used, "pool_original_bytes": 300, "pool_compressed_bytes": 100,
            "disk_held_bytes": 7, "faults_per_second": 2.0, "stall_percent": null,
        })
    }

    fn sample(tree: &[Value]) -> Sample {
        let run = |keeper, used: u64, tree: &[Value]| Run {
            keeper,
            document: json!({
                "program": "job", "used_bytes": used, "budget_bytes": 99, "tree": tree,
            }),
            timeline: None,
        };
        let failure = Failure::ours("no", "yes");
        let silent = Silent { keeper: 3, user: Some(9), failure };
        Sample { runs: vec![run(1, 10, &[]), run(2, 50, tree)], silent: vec![silent] }
    }

    fn tree() -> Sample {
        let processes = [(10, 4711, 5), (11, 10, 1), (12, 10, 9), (13, 12, 2), (14, 1, 70)];
        sample(&processes.map(|(number, parent, used)| process(number, parent, used)))
    }

    fn shape(rows: &[Row]) -> Vec<(u32, usize)> {
        rows.iter().map(|row| (row.id.number(), row.depth)).collect()
    }

    #[test]
    fn a_process_that_has_not_joined_says_why() {
        let note = |used: u64, why: Option<&str>| {
            let process = json!({ "process": 7, "used_bytes": used, "why": why });
            row_of_process(1, &process).note.unwrap()
        };
        assert_eq!(note(1 << 20, None), "small: not managed yet");
        assert_eq!(note(300 << 20, None), "about to join: not managed yet");
        assert_eq!(note(300 << 20, Some("is static")), "not managed: it is static");
    }

    #[test]
    fn processes_stand_below_their_parents_the_largest_first() {
        let mut order = Order::new(false);
        let all = rows(&tree(), &order);
        let wanted = [(2, 0), (14, 1), (10, 1), (12, 2), (13, 3), (11, 2), (1, 0)];
        assert_eq!(shape(&all), wanted);
        assert_eq!((all[0].fold, all[1].fold), (Fold::Open, Fold::Leaf));
        order.is_rising = true;
        let wanted = [(1, 0), (2, 0), (10, 1), (11, 2), (12, 2), (13, 3), (14, 1)];
        assert_eq!(shape(&rows(&tree(), &order)), wanted);
        order.by = Column::Process;
        order.is_rising = false;
        let wanted = [(2, 0), (14, 1), (10, 1), (12, 2), (13, 3), (11, 2), (1, 0)];
        assert_eq!(shape(&rows(&tree(), &order)), wanted);
    }

    #[test]
    fn a_closed_row_has_the_sum_of_what_it_hides() {
        let mut order = Order::new(false);
        order.closed.insert(Id::Process(2, 10));
        let all = rows(&tree(), &order);
        assert_eq!(shape(&all), [(2, 0), (14, 1), (10, 1), (1, 0)]);
        let figures = all[2].figures;
        assert_eq!(all[2].fold, Fold::Closed);
        assert_eq!((figures.used, figures.disk), (17, 28));
        assert_eq!((figures.faults, figures.stall, figures.ratio()), (Some(8.0), None, Some(3.0)));
        order.closed.insert(Id::Run(2));
        assert_eq!(shape(&rows(&tree(), &order)), [(2, 0), (1, 0)]);
    }

    #[test]
    fn parents_that_lead_nowhere_hang_nothing_up() {
        let circle = sample(&[process(7, 8, 1), process(8, 7, 1), process(9, 9, 1), json!("x")]);
        assert!(rows(&circle, &Order::new(false)).len() <= 3);
    }

    #[test]
    fn what_has_no_figures_says_why() {
        let mut static_one = process(10, 1, 5);
        static_one["joined"] = json!(false);
        static_one["why"] = json!("is static");
        let mut order = Order::new(true);
        let all = rows(&sample(&[static_one]), &order);
        assert_eq!(all[1].note.as_deref(), Some("not managed: it is static"));
        assert_eq!(all.last().unwrap().note.as_deref(), Some("of user 9: no"));
        order.shows_silent = false;
        assert_eq!(rows(&tree(), &order).len(), 7);
    }
}
