//! T5: the nanoseconds of single calls.

use crate::pools::Kind;
use crate::pools::speed::{Calls, STEP, Speed, Times};
use crate::random::Random;
use crate::report::{Goal, Table};
use crate::statistics::Sample;
use crate::ticks::Stopwatch;
use coldpress_common::failure::Result;
use serde_json::{Value, json};

use super::{Bench, Measured, row, table, worst};
use crate::commands::launch::failed;

/// The most that a read may add to its reader's work, in nanoseconds.
const READ_MAX: f64 = 150.0;
/// The longest time for which a step of compaction may hold a reader up, in nanoseconds.
const STEP_MAX: f64 = 50_000.0;

/// A percentile and its name.
const PERCENTILES: [(&str, f64); 2] = [("p50", 50.0), ("p99", 99.0)];

/// Measures T5.
pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let mut sizes: Vec<u16> =
        bench.traces.iter().flat_map(|trace| bench.own(trace)).copied().collect();
    Random::new(9).shuffle(&mut sizes);
    sizes.truncate(bench.scale.speed);
    let watch = Stopwatch::learn();
    let few = || failed("two objects are too few".to_owned());
    let mut pools = Vec::new();
    for kind in &bench.pools {
        let work = Speed { sizes: &sizes, watch: &watch };
        pools.push((*kind, bench.run(*kind, sizes.len(), work)?.ok_or_else(few)?));
    }
    let about = format!(
        "nanoseconds of single calls with {} objects of all traces in any order, by one thread,\n\
         and by two at once with half of the objects each. A store is an allocation and a\n\
         write. A read passes over all bytes; \"adds\" is what it takes beyond the same pass\n\
         over an allocation of its own, in turn. A step of compaction moves {} KiB, after half\n\
         of the objects were freed.",
        sizes.len(),
        STEP.0 >> 10
    );
    let goals = goals(&pools);
    let numbers = json!({
        "objects": sizes.len(),
        "pools": pools.iter().map(|(kind, times)| {
            let mut pool = calls_to_json(&times.alone);
            pool["pool"] = json!(kind.name());
            pool["two_threads"] = calls_to_json(&times.together);
            pool["compact"] = json!(times.compact.as_ref().map(to_json));
            pool
        }).collect::<Vec<_>>(),
    });
    Ok(Measured {
        about,
        tables: vec![to_table(&pools), together_to_table(&pools)],
        goals,
        numbers,
    })
}

/// Returns the names of columns, each at both percentiles.
fn columns<'n>(names: &'n [&str]) -> impl Iterator<Item = String> + use<'n> {
    let both = |name: &str| PERCENTILES.map(|(percentile, _)| format!("{name} {percentile}"));
    names.iter().flat_map(move |name| both(name))
}

fn show(ns: f64) -> String {
    format!("{ns:.0}")
}

fn both(sample: &Sample) -> [String; 2] {
    PERCENTILES.map(|(_, percent)| show(sample.percentile(percent)))
}

/// The columns of calls.
const CALLS: [&str; 4] = ["store", "read", "adds", "free"];

fn cells(calls: &Calls) -> Vec<String> {
    let adds = PERCENTILES.map(|(_, percent)| show(added(calls, percent)));
    [both(&calls.store), both(&calls.read), adds, both(&calls.free)].concat()
}

fn to_table(pools: &[(Kind, Times)]) -> Table {
    let compact = columns(&["compact"]).chain(["compact most".to_owned()]);
    let mut table = table("T5: ns", columns(&CALLS).chain(compact));
    for (kind, Times { alone, compact, .. }) in pools {
        let mut cells = cells(alone);
        cells.extend(compact.as_ref().map_or([const { String::new() }; 2], both));
        cells.push(compact.as_ref().map_or_else(String::new, |sample| show(sample.most())));
        table.row(row(kind.name(), cells));
    }
    table
}

fn together_to_table(pools: &[(Kind, Times)]) -> Table {
    let mut table = table("T5: ns, two threads", columns(&CALLS));
    for (kind, times) in pools {
        table.row(row(kind.name(), cells(&times.together)));
    }
    table
}

/// Returns the nanoseconds that a read adds at a percentile.
fn added(calls: &Calls, percent: f64) -> f64 {
    calls.read.percentile(percent) - calls.plain_read.percentile(percent)
}

fn goals(pools: &[(Kind, Times)]) -> Vec<Goal> {
    let reads = PERCENTILES.map(|(name, percent)| {
        let figures = pools
            .iter()
            .map(|(kind, times)| (added(&times.alone, percent), kind.name().to_owned()));
        worst(format!("T5: a read adds under {READ_MAX} ns at {name}"), READ_MAX, 0, figures)
    });
    // The longest step of all is the time slice of another program, wherever one runs.
    let steps = pools.iter().filter_map(|(kind, times)| {
        let steps = times.compact.as_ref()?;
        let about = format!("{}; its longest {:.0}", kind.name(), steps.most());
        Some((steps.percentile(99.0), about))
    });
    let text = format!("T5: a step of compaction takes at most {STEP_MAX} ns at p99");
    reads.into_iter().chain([worst(text, STEP_MAX, 0, steps)]).flatten().collect()
}

fn calls_to_json(calls: &Calls) -> Value {
    json!({
        "store": to_json(&calls.store),
        "read": to_json(&calls.read),
        "plain_read": to_json(&calls.plain_read),
        "free": to_json(&calls.free),
    })
}

fn to_json(sample: &Sample) -> Value {
    json!({
        "p50": sample.percentile(50.0),
        "p90": sample.percentile(90.0),
        "p99": sample.percentile(99.0),
        "most": sample.most(),
        "mean": sample.mean(),
    })
}
