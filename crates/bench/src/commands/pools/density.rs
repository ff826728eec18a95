//! T4: the memory that a pool holds relative to the bytes stored, over time.

use crate::pools::density::{Churn, Density, PoolDensity};
use crate::pools::store::{density, metadata_each};
use crate::pools::{Kind, PoolStats};
use crate::report::{Goal, Table};
use coldpress_common::failure::Result;
use serde_json::{Value, json};

use super::{Bench, Measured, row, table, worst};
use crate::progress::note;

/// The pool of our own and its goals: density when fresh, density after churn and compaction, and
/// the time that compaction may take.
const OURS: &str = "segment";
const FRESH_MAX: f64 = 1.010;
const CHURNED_MAX: f64 = 1.03;
const COMPACTION_MS_MAX: f64 = 1000.0;
/// The pool with the longest zspages and its goals: density when fresh with many objects, and
/// against shorter zspages with few objects.
const LONG: &str = "zsmalloc-16";
const SHORTER: &str = "zsmalloc-8";
const LONG_MAX: f64 = 1.035;
/// The goal of both pools for metadata, in bytes an object while all objects are stored.
const METADATA_MAX: f64 = 16.0;

/// One pool with one trace after one churn.
struct Case {
    kind: Kind,
    trace: String,
    objects: usize,
    /// Whether the trace is repeated to many objects.
    is_large: bool,
    churn: Churn,
    held: PoolDensity,
}

impl Case {
    fn compaction_ms(&self) -> f64 {
        1e3 * self.held.compaction.time.as_secs_f64()
    }

    fn about(&self) -> String {
        format!("{}, {} objects, {}", self.trace, self.objects, self.churn.name())
    }
}

/// Measures T4 after the churns that the user asks for; after all churns by default.
pub(super) fn measure(bench: &Bench, churns: &[Churn]) -> Result<Measured> {
    let churns = if churns.is_empty() { &Churn::ALL[..] } else { churns };
    let (mut cases, mut tables) = (Vec::new(), Vec::new());
    for trace in &bench.traces {
        let large = trace.repeated(bench.scale.many);
        for (sizes, is_large) in [(bench.own(trace), false), (&large, true)] {
            if sizes.is_empty() {
                continue;
            }
            let (first, objects) = (cases.len(), sizes.len());
            for kind in &bench.pools {
                note(format!("pools: t4 {}, {objects} in {}", trace.name(), kind.name()));
                for churn in churns.iter().copied() {
                    let held = bench.run(*kind, objects, Density { sizes, churn })?;
                    let trace = trace.name();
                    cases.push(Case { kind: *kind, trace, objects, is_large, churn, held });
                }
            }
            let title = format!("T4: {}, {objects} objects", trace.name());
            tables.push(to_table(&title, bench, churns, &cases[first..]));
        }
    }
    let about = "frames held by bytes stored, metadata apart. Each churn starts with a pool just\n\
                 filled: half or nine tenths of the objects, any, are freed; ten turnovers one by\n\
                 one; every object replaced twice, in any order, the new one stored first.\n\
                 \"compacted\": then compact was called until nothing moved; ms is the longest of\n\
                 these. Metadata is in bytes an object, with all objects there."
        .to_owned();
    let numbers = cases.iter().map(to_json).collect();
    Ok(Measured { about, tables, goals: goals(bench, &cases), numbers })
}

fn to_table(title: &str, bench: &Bench, churns: &[Churn], cases: &[Case]) -> Table {
    let columns = churns.iter().flat_map(|churn| [churn.name(), "compacted"]);
    let mut table = table(title, columns.chain(["metadata", "ms"]));
    for kind in &bench.pools {
        let own = || cases.iter().filter(|case| case.kind == *kind);
        let cells = own().flat_map(|case| {
            [&case.held.left, &case.held.compacted].map(|stats| format!("{:.3}", density(stats)))
        });
        let metadata = own().filter(|case| case.churn.keeps_count()).map(metadata);
        let metadata = metadata.reduce(f64::max).map_or_else(String::new, |b| format!("{b:.1}"));
        let ms = own().map(Case::compaction_ms).fold(0.0, f64::max);
        table.row(row(kind.name(), cells.chain([metadata, format!("{ms:.0}")])));
    }
    table
}

/// Returns the metadata in bytes an object: the larger of the values before and after compaction.
fn metadata(case: &Case) -> f64 {
    metadata_each(&case.held.left).max(metadata_each(&case.held.compacted))
}

fn goals(bench: &Bench, cases: &[Case]) -> Vec<Goal> {
    let of = |pool: &'static str| cases.iter().filter(move |case| case.kind.name() == pool);
    let fresh = |case: &&Case| case.churn == Churn::Fresh;
    let left = |case: &Case| (density(&case.held.left), case.about());
    let mut goals = Vec::new();
    goals.extend(worst(
        format!("T4: {OURS}: at most {FRESH_MAX:.3} fresh"),
        FRESH_MAX,
        4,
        of(OURS).filter(fresh).map(left),
    ));
    let churned = || of(OURS).filter(|case| case.churn != Churn::Fresh);
    goals.extend(worst(
        format!("T4: {OURS}: at most {CHURNED_MAX} after churn, compacted"),
        CHURNED_MAX,
        4,
        churned().map(|case| (density(&case.held.compacted), case.about())),
    ));
    goals.extend(worst(
        format!("T4: {OURS}: compacted within {COMPACTION_MS_MAX} ms"),
        COMPACTION_MS_MAX,
        0,
        churned().map(|case| (case.compaction_ms(), case.about())),
    ));
    goals.extend(worst(
        format!("T4: {LONG}: at most {LONG_MAX} fresh with many objects"),
        LONG_MAX,
        4,
        of(LONG).filter(fresh).filter(|case| case.is_large).map(left),
    ));
    if bench.pool(LONG).is_some() && bench.pool(SHORTER).is_some() {
        let long = of(LONG).filter(fresh).filter(|case| !case.is_large);
        let pairs = long.filter_map(|long| {
            let short = of(SHORTER).filter(fresh).find(|short| {
                !short.is_large && short.trace == long.trace && short.objects == long.objects
            })?;
            Some((density(&long.held.left) / density(&short.held.left), long.about()))
        });
        let text = format!("T4: {LONG}: never above {SHORTER} fresh at a trace's own size");
        goals.extend(worst(text, 1.0, 4, pairs));
    }
    for pool in [OURS, LONG] {
        let full = of(pool).filter(|case| case.churn.keeps_count());
        goals.extend(worst(
            format!("T4: {pool}: at most {METADATA_MAX} B of metadata an object"),
            METADATA_MAX,
            1,
            full.map(|case| (metadata(case), case.about())),
        ));
    }
    goals
}

fn to_json(case: &Case) -> Value {
    let stats = |stats: &PoolStats| {
        json!({
            "objects": stats.objects,
            "bytes_stored": stats.bytes_stored.0,
            "frames": stats.frames.0,
            "metadata_bytes": stats.metadata.0,
            "density": density(stats),
            "metadata_an_object": metadata_each(stats),
        })
    };
    json!({
        "pool": case.kind.name(),
        "trace": case.trace,
        "objects": case.objects,
        "churn": case.churn.name(),
        "left": stats(&case.held.left),
        "compacted": stats(&case.held.compacted),
        "bytes_moved": case.held.compaction.done.moved.0,
        "frames_freed": case.held.compaction.done.freed.0,
        "compaction_ns": case.held.compaction.time.as_nanos() as u64,
    })
}
