//! The table of SLUB's double-word compare-and-swap mail on struct page: the cost of 64, 56, 32 and
//! 8 bytes a frame.
//!
//! Times are those of this machine. Cachegrind counts the misses, in a process for each layout and
//! plan, less those of a process that only makes everything ready.

use std::time::Instant;

use crate::descriptors::{Descriptor, PAIRS_OF_REFERENCE, Plan, SIZES};
use crate::report::{Goal, Table};
use crate::statistics::{Sample, take_turns};
use coldpress_common::failure::Result;
use coldpress_common::size::show;
use coldpress_sys::{Bytes, PAGE_BYTES};
use serde_json::{Value, json};

use super::FrameCounts;
use super::cachegrind::{self, Misses};
use super::options::{DESCRIPTORS, FramesArgs};
use crate::commands::launch::{self, failed, is_valgrind_here};
use crate::commands::say;
use crate::progress::note;

/// The number of frames in 1 TiB.
const FRAMES_OF_A_TIB: usize = (1 << 40) / PAGE_BYTES;
/// The approximate number of pairs in a native measurement; the loop of SLUB's double-word
/// compare-and-swap mail runs in full length.
const PAIRS: usize = 1 << 20;

/// Measures the cost of descriptors.
pub(super) fn measure(args: &FramesArgs) -> Result<FrameCounts> {
    let mut tables = vec![reserved()];
    let (times, time_numbers) = times(args)?;
    tables.push(times);
    let mut numbers = json!({ "ns": time_numbers, "reserved_bytes_for_1_tib": Value::Null });
    numbers["reserved_bytes_for_1_tib"] =
        Descriptor::ALL.map(|layout| layout.bytes() * FRAMES_OF_A_TIB).into();
    let mut goals = vec![reserved_goal()];
    let counted = if is_valgrind_here() {
        let counts = counts(args)?;
        tables.extend(miss_tables(&counts));
        goals.extend(miss_goals(&counts));
        numbers["misses"] = counts.iter().map(to_json).collect();
        "Misses are those of one pass by cachegrind: 32 KiB 8-way, then 1 MiB 16-way."
    } else {
        say("frames: there is no valgrind; misses are not counted");
        "Misses are not counted: there is no valgrind."
    };
    let about = format!(
        "a slab allocator's model on 64 MiB of frames, four ways to describe a frame: 56 bytes\n\
         padded to 64, 56 with the pair of the compare-and-swap aligned inside, 32, and 8 with a\n\
         record of 32 for each slab. Medians of {} rounds in turn; `pair` is {} times alloc(32) \
         and\nfree natively. {counted}",
        args.turns(),
        pairs_of_reference(args)
    );
    Ok(FrameCounts { about, tables, goals, numbers })
}

fn head(title: &str) -> Vec<String> {
    let layouts = Descriptor::ALL.map(|layout| format!("{} bytes", layout.bytes()));
    std::iter::once(title.to_owned()).chain(layouts).collect()
}

fn table(title: &str) -> Table {
    let head = head(title);
    Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>())
}

fn row(name: &str, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(cells).collect()
}

fn reserved() -> Table {
    let mut table = table("memory for descriptors");
    let sizes = Descriptor::ALL.map(|layout| show(Bytes(layout.bytes() * FRAMES_OF_A_TIB)));
    table.row(row("of 1 TiB of frames", sizes));
    table
}

fn reserved_goal() -> Goal {
    let bytes = Descriptor::Word8.bytes() * FRAMES_OF_A_TIB;
    Goal {
        text: "2 GiB of descriptors for 1 TiB of frames".to_owned(),
        found: format!("{}, and 32 bytes for each slab", show(Bytes(bytes))),
        met: bytes <= 2 << 30,
    }
}

/// Measures the nanoseconds a pair, natively.
fn times(args: &FramesArgs) -> Result<(Table, Vec<Value>)> {
    let named = Plan::NAMES.into_iter().filter(|name| !["warm", "cold"].contains(name));
    let mut plans: Vec<Plan> = named.filter_map(Plan::named).collect();
    let sweeps = if args.common.quick { &[][..] } else { &[false, true] };
    for is_cold in sweeps.iter().copied() {
        plans.extend(SIZES.map(|bytes| Plan::sweep(bytes, is_cold)));
    }
    let mut table = table("ns a pair");
    let mut numbers = Vec::new();
    for plan in &plans {
        let wanted = if plan.name() == "pair" { pairs_of_reference(args) } else { pairs(args) };
        let passes = (wanted / plan.pairs()).max(1);
        let mut ready = Descriptor::ALL.map(|layout| layout.prepare(plan));
        let samples = take_turns(ready.len(), args.turns(), |index| {
            let started = Instant::now();
            (0..passes).for_each(|_| ready[index].pass());
            started.elapsed().as_nanos() as f64 / (passes * plan.pairs()) as f64
        });
        let samples = samples.into_iter().collect::<Option<Vec<Sample>>>();
        let samples = samples.ok_or_else(|| failed("no round".to_owned()))?;
        table.row(row(plan.name(), samples.iter().map(|ns| format!("{:.2}", ns.median()))));
        let ns = |of: fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<_>>();
        numbers.push(json!({
            "plan": plan.name(),
            "pairs": passes * plan.pairs(),
            "median": ns(Sample::median),
            "p10": ns(|sample| sample.percentile(10.0)),
            "p90": ns(|sample| sample.percentile(90.0)),
        }));
    }
    Ok((table, numbers))
}

fn pairs(args: &FramesArgs) -> usize {
    if args.common.quick { 1 } else { PAIRS }
}

fn pairs_of_reference(args: &FramesArgs) -> usize {
    if args.common.quick { 1 } else { PAIRS_OF_REFERENCE }
}

/// The misses of one plan.
struct Counted {
    name: &'static str,
    pairs: usize,
    /// The misses by layout, in the order of [`Descriptor::ALL`].
    misses: [Misses; Descriptor::ALL.len()],
}

fn counts(args: &FramesArgs) -> Result<Vec<Counted>> {
    // A quick run counts one plan of the six.
    let names = if args.common.quick { &Plan::NAMES[..1] } else { &Plan::NAMES[..] };
    names.iter().map(|name| counted(name)).collect()
}

fn counted(name: &'static str) -> Result<Counted> {
    note(format!("frames: counting misses, {name}"));
    let plan = Plan::named(name).ok_or_else(|| failed(format!("no plan {name}")))?;
    let count = |layout: Descriptor, passes: &str| {
        let bytes = layout.bytes().to_string();
        let arguments = [DESCRIPTORS, "--layout", &bytes, "--plan", name, "--passes", passes];
        cachegrind::count(&launch::workload(&arguments))
    };
    let mut misses = [Misses::default(); Descriptor::ALL.len()];
    for (misses, layout) in misses.iter_mut().zip(Descriptor::ALL) {
        *misses = count(layout, "1")?.since(count(layout, "0")?);
    }
    Ok(Counted { name, pairs: plan.pairs(), misses })
}

/// A table's title and the function that picks its numbers.
type Kind = (&'static str, fn(&Misses) -> u64);

/// The tables of misses.
const KINDS: [Kind; 3] = [
    ("D1 misses = last-level references a pair", |misses| misses.d1),
    ("last-level misses a pair", |misses| misses.ll),
    ("instructions a pair", |misses| misses.instructions),
];

fn miss_tables(counts: &[Counted]) -> Vec<Table> {
    let rows = |(title, of): Kind| {
        let mut table = table(title);
        for Counted { name, pairs, misses } in counts {
            let each = |misses| format!("{:.4}", of(misses) as f64 / *pairs as f64);
            table.row(row(name, misses.iter().map(each)));
        }
        table
    };
    KINDS.into_iter().map(rows).collect()
}

/// Returns the goals that 8 bytes have fewer misses than 56, in every plan that spreads
/// descriptors.
fn miss_goals(counts: &[Counted]) -> Vec<Goal> {
    let place = |bytes| Descriptor::ALL.iter().position(|layout| layout.bytes() == bytes);
    let (Some(aligned), Some(word)) = (place(56), place(8)) else { return Vec::new() };
    let spread: Vec<_> =
        counts.iter().filter(|counted| Plan::SPREAD.contains(&counted.name)).collect();
    let goal = |(title, of): &Kind| {
        let ratios = spread.iter().map(|counted| {
            let [less, more] = [word, aligned].map(|place| of(&counted.misses[place]) as f64);
            (less / more.max(1.0), counted.name)
        });
        let (ratio, name) = ratios.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Goal {
            text: format!("{title}: 8 bytes have fewer than 56 in every spread plan"),
            found: format!("at worst {ratio:.3} times ({name})"),
            met: ratio < 1.0,
        })
    };
    KINDS[..2].iter().filter_map(goal).collect()
}

fn to_json(counted: &Counted) -> Value {
    let each = |of: fn(&Misses) -> u64| counted.misses.iter().map(of).collect::<Vec<_>>();
    json!({
        "plan": counted.name,
        "pairs": counted.pairs,
        "d1_misses": each(|misses| misses.d1),
        "last_level_misses": each(|misses| misses.ll),
        "instructions": each(|misses| misses.instructions),
    })
}
