//! `coldpress-bench pools`: the same objects through every pool. Tables T1 and T2 are those of the
//! mails on xcfmalloc and zsmalloc, T3 is the microbenchmark that reviewers of xcfmalloc asked for,
//! T4 is density over time, T5 is speed.

mod classes;
mod density;
mod mail;
pub(super) mod options;
mod speed;
mod sweep;
mod traces;

use crate::pools::sizes::Sizes;
use crate::pools::sweep::Sweep;
use crate::pools::{Kind, Work};
use crate::report::{Goal, Report, Table};
use coldpress_common::failure::Result;
use serde_json::{Map, Value};

use super::launch::failed;
use crate::progress::note;
use options::{PoolTable, PoolsArgs};

/// The findings of one table.
struct Measured {
    about: String,
    tables: Vec<Table>,
    goals: Vec<Goal>,
    numbers: Value,
}

/// The amount of work.
struct Scale {
    /// The number of pages of the mail's program that are stored: 256 MiB, like its budget.
    mail: usize,
    /// The most objects of a trace.
    own: usize,
    /// The number of objects in the large pools of T4; 0 for no large pools.
    many: usize,
    sweep: Sweep,
    /// The number of rounds of the sweep; pools take turns.
    rounds: u32,
    /// The number of objects of T5.
    speed: usize,
}

impl Scale {
    fn new(args: &PoolsArgs) -> Self {
        if args.common.quick {
            let sweep = Sweep { step: 512, each: 16 };
            return Self { mail: 1000, own: 500, many: 1000, sweep, rounds: 1, speed: 500 };
        }
        Self {
            mail: 1 << 16,
            own: usize::MAX,
            many: args.objects as usize,
            sweep: Sweep { step: 16, each: 256 },
            rounds: 5,
            speed: 100_000,
        }
    }
}

/// A benchmark of pools: the pools, the traces and the amount of work.
struct Bench {
    pools: Vec<Kind>,
    traces: Vec<Sizes>,
    scale: Scale,
}

impl Bench {
    /// Does a work with an empty pool of the kind.
    fn run<W: Work>(&self, kind: Kind, objects: usize, work: W) -> Result<W::Output> {
        kind.run(objects, work).map_err(|error| failed(format!("{}: {error}", kind.name())))
    }

    /// Returns the pool of this name, if it is measured.
    fn pool(&self, name: &str) -> Option<Kind> {
        self.pools.iter().copied().find(|kind| kind.name() == name)
    }

    /// Returns the objects of a trace, at most as many as the scale allows.
    fn own<'t>(&self, trace: &'t Sizes) -> &'t [u16] {
        &trace.sizes[..trace.sizes.len().min(self.scale.own)]
    }
}

/// Measures the tables that the user asks for; all tables by default.
pub(super) fn measure(args: &PoolsArgs) -> Result<Report> {
    let scale = Scale::new(args);
    let pools = if args.pool.is_empty() { Kind::ALL.to_vec() } else { args.pool.clone() };
    let bench = Bench { pools, traces: traces::find(args, &scale)?, scale };
    let which = if args.tables.is_empty() { &PoolTable::ALL[..] } else { &args.tables };
    let mut numbers = Map::new();
    let mut report = Report {
        name: "pools",
        about: format!("Sizes of objects: {}.", traces::list(&bench.traces)),
        tables: Vec::new(),
        goals: Vec::new(),
        numbers: Value::Null,
    };
    for table in which {
        note(format!("pools: {}", table.name()));
        let found = match table {
            PoolTable::T1 => mail::measure(&bench)?,
            PoolTable::T2 => classes::measure(&bench, args.classes)?,
            PoolTable::T3 => sweep::measure(&bench)?,
            PoolTable::T4 => density::measure(&bench, &args.churn)?,
            PoolTable::T5 => speed::measure(&bench)?,
        };
        report.about.push_str(&format!("\n\n{}: {}", table.name(), found.about));
        report.tables.extend(found.tables);
        report.goals.extend(found.goals);
        numbers.insert(table.name().to_owned(), found.numbers);
    }
    report.numbers = Value::Object(numbers);
    Ok(report)
}

/// Makes a table with this title over its first column.
fn table<C: AsRef<str>>(title: &str, columns: impl IntoIterator<Item = C>) -> Table {
    let columns: Vec<C> = columns.into_iter().collect();
    let columns = columns.iter().map(AsRef::as_ref);
    Table::new(&std::iter::once(title).chain(columns).collect::<Vec<_>>())
}

fn row(name: &str, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(cells).collect()
}

/// Makes a goal for the largest of some figures; `None` without figures. Each figure comes with the
/// name of what it belongs to.
fn worst(
    text: String,
    most: f64,
    decimals: usize,
    figures: impl IntoIterator<Item = (f64, String)>,
) -> Option<Goal> {
    let (value, whose) = figures.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let found = format!("at worst {value:.decimals$} ({whose})");
    Some(Goal { text, found, met: value <= most })
}
