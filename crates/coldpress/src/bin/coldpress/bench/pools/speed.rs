//! T5: nanoseconds of single calls.

use coldpress_bench::pools::Kind;
use coldpress_bench::pools::speed::{STEP, Speed, Times};
use coldpress_bench::random::Random;
use coldpress_bench::report::{Goal, Table};
use coldpress_bench::statistics::Sample;
use coldpress_bench::ticks::Stopwatch;
use serde_json::{Value, json};

use super::{Bench, Found, row, table, worst};
use crate::bench::launch::failed;
use crate::failure::Result;

/// What a read may add to its reader's work, in nanoseconds.
const READ_MAX: f64 = 150.0;
/// How long a step of compaction may hold a reader up, in nanoseconds.
const STEP_MAX: f64 = 50_000.0;

/// A percentile and its name.
const PERCENTILES: [(&str, f64); 2] = [("p50", 50.0), ("p99", 99.0)];

/// Measures.
pub(super) fn measure(bench: &Bench) -> Result<Found> {
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
        "nanoseconds of single calls with {} objects of all traces in any order, by one thread.\n\
         A store is an allocation and a write. A read passes over all bytes; \"adds\" is what it\n\
         takes beyond the same pass over an allocation of its own, in turn. A step of\n\
         compaction moves {} KiB, after half of the objects were freed.",
        sizes.len(),
        STEP.0 >> 10
    );
    let goals = goals(&pools);
    let numbers = json!({
        "objects": sizes.len(),
        "pools": pools.iter().map(|(kind, times)| json!({
            "pool": kind.name(),
            "store": to_json(&times.store),
            "read": to_json(&times.read),
            "plain_read": to_json(&times.plain_read),
            "free": to_json(&times.free),
            "compact": times.compact.as_ref().map(to_json),
        })).collect::<Vec<_>>(),
    });
    Ok(Found { about, tables: vec![to_table(&pools)], goals, numbers })
}

fn to_table(pools: &[(Kind, Times)]) -> Table {
    let both = |name: &str| PERCENTILES.map(|(percentile, _)| format!("{name} {percentile}"));
    let columns = ["store", "read", "adds", "free", "compact"].iter().flat_map(|name| both(name));
    let mut table = table("T5: ns", columns.chain(["compact most".to_owned()]));
    for (kind, times) in pools {
        let Times { store, read, free, compact, .. } = times;
        let show = |ns: f64| format!("{ns:.0}");
        let at = |sample: &Sample| PERCENTILES.map(|(_, percent)| show(sample.percentile(percent)));
        let added = PERCENTILES.map(|(_, percent)| show(added(times, percent)));
        let mut cells = [at(store), at(read), added, at(free)].concat();
        cells.extend(compact.as_ref().map_or([const { String::new() }; 2], at));
        cells.push(compact.as_ref().map_or_else(String::new, |sample| show(sample.most())));
        table.row(row(kind.name(), cells));
    }
    table
}

/// What a read adds at a percentile.
fn added(times: &Times, percent: f64) -> f64 {
    times.read.percentile(percent) - times.plain_read.percentile(percent)
}

fn goals(pools: &[(Kind, Times)]) -> Vec<Goal> {
    let reads = PERCENTILES.map(|(name, percent)| {
        let figures =
            pools.iter().map(|(kind, times)| (added(times, percent), kind.name().to_owned()));
        worst(format!("T5: a read adds under {READ_MAX} ns at {name}"), READ_MAX, 0, figures)
    });
    // The very longest is a time slice of another program, wherever one runs.
    let steps = pools.iter().filter_map(|(kind, times)| {
        let steps = times.compact.as_ref()?;
        let about = format!("{}; its longest {:.0}", kind.name(), steps.most());
        Some((steps.percentile(99.0), about))
    });
    let text = format!("T5: a step of compaction takes at most {STEP_MAX} ns at p99");
    reads.into_iter().chain([worst(text, STEP_MAX, 0, steps)]).flatten().collect()
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
