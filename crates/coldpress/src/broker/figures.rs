//! The figures of a moment: what a point of the timeline, metrics and `coldpress top` say of a run,
//! and of each process, under the same names.

use coldpress_runtime::tally::Counter;
use coldpress_sys::PAGE_BYTES;
use serde_json::{Map, Value};

use super::standing::Standing;
use super::totals::Totals;

/// The bytes of a slot on disk.
const SLOT_BYTES: u64 = 64 << 10;

/// A figure that may rise and fall.
pub(super) struct Gauge {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
    source: Source,
}

/// The way to find a figure.
enum Source {
    /// A run has the figure, and a process has not.
    Run(fn(&Standing) -> u64),
    /// Processes hold it, each a part.
    Held(fn(&Totals) -> u64),
}

impl Gauge {
    const fn of_run(
        name: &'static str,
        meaning: &'static str,
        value: fn(&Standing) -> u64,
    ) -> Self {
        Self { name, meaning, source: Source::Run(value) }
    }

    const fn held(name: &'static str, meaning: &'static str, value: fn(&Totals) -> u64) -> Self {
        Self { name, meaning, source: Source::Held(value) }
    }

    /// Returns the value for a run that stands as `now`.
    pub(super) fn of(&self, now: &Standing) -> u64 {
        match self.source {
            Source::Run(value) => value(now),
            Source::Held(value) => value(&now.totals),
        }
    }
}

/// What can be said of a moment.
pub(super) const GAUGES: &[Gauge] = &[
    Gauge::of_run("budget_bytes", "The budget.", |now| now.settings.budget.bytes.0 as u64),
    Gauge::of_run("used_bytes", "All memory that the run holds.", |now| now.used.0 as u64),
    Gauge::of_run("peak_bytes", "The most that the run has held at one time.", |now| {
        now.peak.0 as u64
    }),
    Gauge::held("resident_bytes", "Memory of the joined programs that is in place.", |totals| {
        held_pages(totals, "resident_pages")
    }),
    Gauge::held("limbo_bytes", "Pages taken from programs and not yet compressed.", |totals| {
        held_pages(totals, "limbo_pages")
    }),
    Gauge::held("pool_original_bytes", "Pages in the pool, before compression.", |totals| {
        held_pages(totals, "in_pool_pages")
    }),
    Gauge::held("pool_compressed_bytes", "Pages in the pool, after compression.", |totals| {
        totals.held("pool_bytes")
    }),
    Gauge::held("pool_held_bytes", "Memory that the pool takes.", |totals| {
        held_pages(totals, "pool_pages")
    }),
    Gauge::held("disk_original_bytes", "Pages on disk, before compression.", |totals| {
        held_pages(totals, "on_disk_pages")
    }),
    Gauge::held("disk_held_bytes", "The part of the files that is in use.", |totals| {
        totals.held("slots_used").saturating_mul(SLOT_BYTES)
    }),
    Gauge::held(
        "saved_bytes",
        "Pages that are away, less what is held in memory for them.",
        Totals::saved,
    ),
    Gauge::of_run("unmanaged_bytes", "Private memory of processes that have not joined.", |now| {
        now.unmanaged.0 as u64
    }),
    Gauge::of_run("shared_bytes", "Shared memory, each page once.", |now| now.shared.0 as u64),
    Gauge::of_run("members", "Processes that have joined and have not ended.", |now| {
        now.members as u64
    }),
    Gauge::of_run("processes", "Processes that have joined.", |now| now.totals.joined()),
    Gauge::of_run("managed_processes", "Processes that were managed.", |now| now.totals.managed()),
];
/// What has been counted since the start of the run.
pub(super) const COUNTERS: &[Counter] = &[
    Counter::Faults,
    Counter::FirstTouchFaults,
    Counter::LimboFaults,
    Counter::MajorFaults,
    Counter::CopyFaults,
    Counter::PagesReadAhead,
    Counter::PagesLoaded,
    Counter::PagesStored,
    Counter::BytesStored,
    Counter::PagesReadBack,
    Counter::PagesWrittenBack,
    Counter::StallNs,
    Counter::TurnWaitNs,
    Counter::ServiceNs,
];

/// Returns the bytes of pages that processes hold, under this name.
fn held_pages(totals: &Totals, name: &str) -> u64 {
    totals.held(name).saturating_mul(PAGE_BYTES as u64)
}

/// Returns all figures of a run that stands as `now`, by name.
pub(super) fn of_run(now: &Standing) -> Map<String, Value> {
    let gauges = GAUGES.iter().map(|gauge| (gauge.name, gauge.of(now)));
    named(gauges.chain(counted(&now.totals)))
}

/// Returns the figures of one process, whose numbers alone are in `totals`, by name.
pub(super) fn of_process(totals: &Totals) -> Map<String, Value> {
    let held = GAUGES.iter().filter_map(|gauge| match gauge.source {
        Source::Held(value) => Some((gauge.name, value(totals))),
        Source::Run(_) => None,
    });
    named(held.chain(counted(totals)))
}

fn counted(totals: &Totals) -> impl Iterator<Item = (&'static str, u64)> {
    COUNTERS.iter().map(|counter| (counter.key(), totals.get(*counter)))
}

fn named(figures: impl Iterator<Item = (&'static str, u64)>) -> Map<String, Value> {
    figures.map(|(name, value)| (name.to_owned(), value.into())).collect()
}
