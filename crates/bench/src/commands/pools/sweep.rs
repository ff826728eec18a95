//! T3: one sequence of allocations through every pool, the sizes swept from 32 bytes to 4096.

use crate::pools::Kind;
use crate::pools::sweep::Swept;
use crate::report::Table;
use crate::statistics::Sample;
use coldpress_common::failure::Result;
use serde_json::{Value, json};

use super::{Bench, Measured, row, table};
use crate::commands::launch::failed;

/// The sizes with a row of their own: the powers of two, and sizes near those for which reviewers
/// foresaw trouble with xcfmalloc.
const SHOWN: [usize; 10] = [32, 64, 128, 256, 512, 1024, 2048, 3072, 3584, 4096];

/// The medians of one pool.
struct Pool {
    kind: Kind,
    swept: Vec<Swept>,
}

/// A figure of a row: its name and the function that picks it.
type Figure = (&'static str, fn(&Swept) -> f64);

const TIMES: [Figure; 4] = [
    ("alloc, ns", |row| row.alloc_ns),
    ("free, ns", |row| row.free_ns),
    ("one at a time, ns", |row| row.pair_ns),
    ("one alone, ns", |row| row.alone_ns),
];
const GROWN: Figure = ("bytes an object", |row| row.grown);

/// Measures T3.
pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let (sweep, count) = (bench.scale.sweep, bench.pools.len());
    let mut runs: Vec<Vec<Vec<Swept>>> = vec![Vec::new(); count];
    for round in 0..bench.scale.rounds as usize {
        for turn in 0..count {
            let index = (round + turn) % count;
            runs[index].push(bench.run(bench.pools[index], sweep.objects(), sweep)?);
        }
    }
    let medians = |(kind, runs): (&Kind, &Vec<_>)| Some(Pool { kind: *kind, swept: median(runs)? });
    let pools = bench.pools.iter().zip(&runs).map(medians).collect::<Option<Vec<_>>>();
    let pools = pools.ok_or_else(|| failed("no round".to_owned()))?;
    let about = format!(
        "{} objects of each of {} sizes, from small to large: all allocated, then all freed in\n\
         the same order. One at a time: allocated and freed beside all these; alone: in an empty\n\
         pool, which gets and returns its frames for each. Nothing is written. Medians of {}\n\
         rounds in turn, means over the sizes; in brackets the worst size. Bytes an object: what\n\
         the pool grew by, with metadata.",
        sweep.each,
        sweep.sizes().count(),
        bench.scale.rounds
    );
    let sizes = sweep.sizes().filter(|size| SHOWN.contains(size)).collect::<Vec<_>>();
    let figures = TIMES.iter().chain([&GROWN]);
    let by_size = figures.map(|figure| by_size(figure, &sizes, &pools));
    let tables = std::iter::once(over_all(&pools)).chain(by_size).collect();
    Ok(Measured { about, tables, goals: Vec::new(), numbers: pools.iter().map(to_json).collect() })
}

/// Returns the median of each figure over all rounds.
fn median(runs: &[Vec<Swept>]) -> Option<Vec<Swept>> {
    let rows = runs.first()?.iter().enumerate().map(|(index, first)| {
        let of = |(_, figure): Figure| {
            Some(Sample::new(runs.iter().map(|run| figure(&run[index])))?.median())
        };
        let [alloc, free, pair, alone] = TIMES.map(of);
        Some(Swept {
            size: first.size,
            alloc_ns: alloc?,
            free_ns: free?,
            pair_ns: pair?,
            alone_ns: alone?,
            grown: of(GROWN)?,
        })
    });
    rows.collect()
}

fn over_all(pools: &[Pool]) -> Table {
    let columns = TIMES.map(|(name, _)| name).into_iter();
    let mut table = table("T3: sweep", columns.chain(["footprint by bytes"]));
    for pool in pools {
        let mean = |figure: fn(&Swept) -> f64| {
            pool.swept.iter().map(figure).sum::<f64>() / pool.swept.len() as f64
        };
        let times = TIMES.iter().map(|(_, figure)| {
            let worst = pool.swept.iter().max_by(|a, b| figure(a).total_cmp(&figure(b)));
            let size = worst.map_or(0, |row| row.size);
            format!("{:.0} ({:.0} at {size})", mean(*figure), worst.map_or(0.0, figure))
        });
        let footprint = mean(|row| row.grown) / mean(|row| row.size as f64);
        table.row(row(pool.kind.name(), times.chain([format!("{footprint:.3}")])));
    }
    table
}

fn by_size((name, figure): &Figure, sizes: &[usize], pools: &[Pool]) -> Table {
    let columns = sizes.iter().map(|size| format!("{size} B"));
    let mut table = table(&format!("T3: {name}"), columns);
    for pool in pools {
        let shown = pool.swept.iter().filter(|row| sizes.contains(&row.size));
        table.row(row(pool.kind.name(), shown.map(|row| format!("{:.0}", figure(row)))));
    }
    table
}

fn to_json(pool: &Pool) -> Value {
    let sizes = pool.swept.iter().map(|row| {
        json!({
            "size": row.size,
            "alloc_ns": row.alloc_ns,
            "free_ns": row.free_ns,
            "pair_ns": row.pair_ns,
            "alone_ns": row.alone_ns,
            "bytes_an_object": row.grown,
        })
    });
    json!({ "pool": pool.kind.name(), "sizes": sizes.collect::<Vec<_>>() })
}
