//! T2, the tables of the mail on zsmalloc: classes with zspages of up to 4 frames and of up to 16.

use crate::pools::fill::{Fill, total};
use crate::pools::{ClassStats, Kind, PoolStats};
use crate::report::Table;
use coldpress_common::failure::Result;
use serde_json::{Value, json};

use super::{Bench, Measured, row, table};

/// The pools to compare: before the mail's change and after it.
const POOLS: [Kind; 2] = [Kind::Zsmalloc4, Kind::Zsmalloc16];

/// The classes of one pool with one trace.
struct Classes {
    kind: Kind,
    trace: String,
    stats: PoolStats,
    classes: Vec<ClassStats>,
}

/// Measures T2; `with_classes` prints every class and not only the sums.
pub(super) fn measure(bench: &Bench, with_classes: bool) -> Result<Measured> {
    let pools: Vec<Kind> = POOLS.into_iter().filter(|kind| bench.pools.contains(kind)).collect();
    let mut found = Vec::new();
    for trace in &bench.traces {
        for kind in &pools {
            let sizes = bench.own(trace);
            let filled = bench.run(*kind, sizes.len(), Fill { sizes, with_classes: true })?;
            let (stats, classes) = (filled.stats, filled.classes);
            found.push(Classes { kind: *kind, trace: trace.name(), stats, classes });
        }
    }
    let mut tables = Vec::new();
    if with_classes {
        tables.extend(found.iter().map(each_class));
    }
    if !found.is_empty() {
        tables.push(totals(&found));
    }
    let about = "all objects of a trace, stored once; sums over classes, as in the mail on 16\n\
                 frames a zspage. It saved 1,071 of 74,955 pages and 9,697 of 480,962."
        .to_owned();
    let numbers = found.iter().map(to_json).collect();
    Ok(Measured { about, tables, goals: Vec::new(), numbers })
}

const COLUMNS: [&str; 8] = [
    "size",
    "almost_full",
    "almost_empty",
    "obj_allocated",
    "obj_used",
    "pages_used",
    "pages_per_zspage",
    "freeable",
];

fn each_class(found: &Classes) -> Table {
    let title = format!("T2: {}, {}", found.trace, found.kind.name());
    let mut table = table(&title, COLUMNS);
    for class in &found.classes {
        let cells = [
            class.size.0,
            class.almost_full,
            class.almost_empty,
            class.obj_allocated,
            class.obj_used,
            class.pages_used.0,
            class.pages_per_zspage,
            class.freeable.0,
        ];
        table.row(row(&class.class.to_string(), cells.map(|cell| cell.to_string())));
    }
    table
}

fn totals(found: &[Classes]) -> Table {
    let sums = ["almost_full", "almost_empty", "obj_allocated", "obj_used", "pages_used"];
    let mut table = table("T2: sums", sums.into_iter().chain(["freeable", "saved", "saved, %"]));
    for one in found {
        let sum = total(&one.classes);
        let saved = found
            .iter()
            .find(|other| other.trace == one.trace && other.kind != one.kind)
            .filter(|_| one.kind == POOLS[1])
            .map(|before| before.stats.frames.0 as f64 - one.stats.frames.0 as f64);
        let before = |saved: f64| one.stats.frames.0 as f64 + saved;
        let cells = [
            sum.almost_full.to_string(),
            sum.almost_empty.to_string(),
            sum.obj_allocated.to_string(),
            sum.obj_used.to_string(),
            sum.pages_used.0.to_string(),
            sum.freeable.0.to_string(),
            saved.map_or_else(String::new, |saved| format!("{saved:.0}")),
            saved.map_or_else(String::new, |saved| format!("{:.1}", 100.0 * saved / before(saved))),
        ];
        table.row(row(&format!("{}, {}", one.trace, one.kind.name()), cells));
    }
    table
}

fn to_json(found: &Classes) -> Value {
    let class = |class: &ClassStats| {
        json!({
            "class": class.class,
            "size": class.size.0,
            "almost_full": class.almost_full,
            "almost_empty": class.almost_empty,
            "obj_allocated": class.obj_allocated,
            "obj_used": class.obj_used,
            "pages_used": class.pages_used.0,
            "pages_per_zspage": class.pages_per_zspage,
            "freeable": class.freeable.0,
        })
    };
    json!({
        "pool": found.kind.name(),
        "trace": found.trace,
        "pages_used": found.stats.frames.0,
        "classes": found.classes.iter().map(class).collect::<Vec<_>>(),
    })
}
