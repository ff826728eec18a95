//! Programs that took their sizes from the machine's memory, and then spent most of the time
//! waiting for pages: a hint at the end of the run, if the run did not show them another size.

use std::collections::BTreeMap;
use std::time::Duration;

use coldpress_common::size::show;
use coldpress_runtime::ledger::Ledger;
use coldpress_runtime::tally::Counter;
use coldpress_sys::Bytes;

use super::member::Member;
use crate::control::Changeable;
use crate::view;

/// The size of the machine's memory, in budgets, above which there is a hint: a program that takes
/// its part of that takes more than one budget.
const BUDGETS: usize = 4;
/// Programs that do so, by how their names begin, each with the setting by which users limit it.
/// Others may have asked for another reason: libc's `qsort` asks, and python does whatever it runs.
const KNOWN: [(&str, &str); 7] = [
    ("java", "-Xmx"),
    ("node", "--max-old-space-size"),
    ("sort", "-S"),
    ("beam.smp", "vm_memory_high_watermark"),
    ("duckdb", "memory_limit"),
    ("clickhouse", "max_server_memory_usage"),
    ("dotnet", "DOTNET_GCHeapHardLimit"),
];
/// The program that asks by reading a file, which goes unnoticed.
const ASKS_BY_FILE: &str = "node";

/// The number of processes of each name that did so.
#[derive(Debug, Default)]
pub(crate) struct Sizing {
    found: BTreeMap<String, usize>,
}

impl Sizing {
    /// Looks at a member that ends, or is left at the end of the run.
    pub(crate) fn note(&mut self, ledger: &Ledger, member: &Member) {
        let stalled = ledger.tally(member.seat).get(Counter::StallNs);
        let has_asked = ledger.has_asked(member.seat);
        let stalled = Duration::from_nanos(stalled);
        self.judge(&member.name, has_asked, stalled, member.since.elapsed());
    }

    fn judge(&mut self, name: &str, has_asked: bool, stalled: Duration, lasted: Duration) {
        if stalled > lasted / 2 && (has_asked || name == ASKS_BY_FILE) {
            *self.found.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Returns the hint after a run with these settings at its end. There is none where programs
    /// were shown another size, or where the machine's memory is no more than a few budgets.
    pub(crate) fn hint(&self, at_end: &Changeable) -> Option<String> {
        if self.found.is_empty() || at_end.show_memory != view::Ask::Off {
            return None;
        }
        self.hint_within(view::most().ok()?, at_end.budget.bytes)
    }

    fn hint_within(&self, most: Bytes, budget: Bytes) -> Option<String> {
        if most.0 <= budget.0.saturating_mul(BUDGETS) {
            return None;
        }
        let known = self.found.iter().filter_map(|(name, count)| {
            let (_, setting) = KNOWN.iter().find(|(known, _)| name.starts_with(known))?;
            Some((name, count, setting))
        });
        let (name, count, setting) = known.max_by_key(|(_, count, _)| **count)?;
        let processes = if *count > 1 { format!(" ({count} processes)") } else { String::new() };
        Some(format!(
            "{name}{processes} mostly waited, and may have sized itself for {}: --show-memory \
             auto, or 1x if it can go to disk by itself, or {setting} has it take less",
            show(most)
        ))
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a hint after each run, or none after a run that took hours for nothing.

    use coldpress_runtime::knobs::Knobs;

    use super::*;
    use crate::budget::Budget;

    const BUDGET: Bytes = Bytes::mib(512);

    fn hint(name: &str, has_asked: bool, stalled_ms: u64) -> Option<String> {
        let mut sizing = Sizing::default();
        let [stalled, lasted] = [stalled_ms, 10_000].map(Duration::from_millis);
        sizing.judge(name, has_asked, stalled, lasted);
        sizing.hint_within(Bytes::mib(24_576), BUDGET)
    }

    #[test]
    fn who_asked_and_mostly_waited_is_named() {
        let told = hint("java", true, 6_000).expect("it waited");
        for part in ["java mostly", "24 GiB", "--show-memory auto", "-Xmx"] {
            assert!(told.contains(part), "{told}");
        }
        assert!(hint("node", false, 6_000).is_some_and(|told| told.contains("max-old-space")));
        assert_eq!([hint("java", true, 4_000), hint("python3.11", false, 9_000)], [None, None]);
        assert_eq!([hint("a.out", true, 9_000), hint("python3", true, 9_000)], [None, None]);
    }

    #[test]
    fn many_are_counted_and_nothing_is_said_where_nothing_would_help() {
        let mut sizing = Sizing::default();
        let second = Duration::from_secs(1);
        (0..3).for_each(|_| sizing.judge("java", true, second, second));
        let told = sizing.hint_within(Bytes::mib(24_576), BUDGET).expect("they waited");
        assert!(told.contains("java (3 processes)"), "{told}");
        assert_eq!(sizing.hint_within(Bytes::mib(2_048), BUDGET), None);
        let budget = Budget::fixed(BUDGET);
        let show_memory = view::Ask::Auto;
        let at_end = Changeable { budget, knobs: Knobs::default(), show_memory };
        assert_eq!(sizing.hint(&at_end), None);
    }
}
