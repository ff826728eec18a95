//! The processes of a run, each with its figures, for `coldpress top`.
//!
//! What a process holds and counts is read once, and the run's figures are made of that. So gauges
//! and counters are the sums of the figures of its processes, and of what ended processes have
//! counted. `used_bytes` is not: processes change it while others are read, and what several
//! processes share counts once in the run.

use std::cmp::Reverse;
use std::collections::HashSet;

use coldpress_sys::PageCount;
use serde_json::{Value, json};

use super::figures;
use super::grid::nanoseconds;
use super::state::Serving;
use super::stats::SCHEMA;
use super::totals::{Totals, rounded};
use super::unmanaged::name_of;
use crate::{knobs, proc};

/// The most processes without a seat that are told of, those that hold most. The time to look at
/// each adds up, and no process can join in it. Those with a seat are `SEATS` at most.
const UNSEATED_MAX: usize = 500;

impl Serving {
    /// Returns how the run stands and what each of its processes has, as one document.
    pub(super) fn processes(&self) -> Value {
        let age = self.reports.timeline.age();
        let mut totals = self.totals.after(age);
        let mut processes: Vec<Value> = Vec::new();
        for member in &self.members {
            let one = Totals::of(&self.ledger, member.seat);
            totals.include(&one);
            let (used, is_managed) =
                (self.ledger.holding(member.seat).used, self.ledger.is_managing(member.seat));
            let row = Row { process: member.program.process(), used, is_joined: true, is_managed };
            processes.push(row.document(&one, None));
        }
        let seated: HashSet<u32> = self.members.iter().map(|it| it.program.process()).collect();
        let others = self.unseated.processes().filter(|process| !seated.contains(process));
        let held = |process| (process, self.unseated.held_by(process));
        let mut others: Vec<_> = others.map(held).collect();
        others.sort_by_key(|(_, held)| Reverse(*held));
        let left_out = others.len().saturating_sub(UNSEATED_MAX);
        for (process, used) in others.into_iter().take(UNSEATED_MAX) {
            let row = Row { process, used, is_joined: false, is_managed: false };
            processes.push(row.document(&Totals::default(), self.unmanaged.reason_of(process)));
        }
        let standing = self.standing_with(totals);
        let mut document = Value::from(figures::of_run(&standing));
        document["schema"] = SCHEMA.into();
        document["program"] = self.reports.subject.program().into();
        document["time_ns"] = nanoseconds(age).into();
        document["ratio"] = rounded(standing.totals.ratio()).into();
        document["knobs"] = Value::from(knobs::document(&self.now.knobs));
        document["knobs"]["memory"] = self.now.budget.ask.value();
        document["processes_left_out"] = left_out.into();
        document["tree"] = processes.into();
        document
    }
}

/// A process of the run.
struct Row {
    process: u32,
    /// The memory of its own.
    used: PageCount,
    is_joined: bool,
    is_managed: bool,
}

impl Row {
    /// Returns the process with its numbers, and `why` it is not managed.
    fn document(&self, totals: &Totals, why: Option<&str>) -> Value {
        let mut document = json!({
            "process": self.process,
            "parent": proc::parent(self.process),
            "name": name_of(self.process),
            "joined": self.is_joined,
            "managed": self.is_managed,
            "why": why,
            "used_bytes": self.used.bytes().0,
            "ratio": rounded(totals.ratio()),
        });
        for (name, value) in figures::of_process(totals) {
            document[name] = value;
        }
        document
    }
}
