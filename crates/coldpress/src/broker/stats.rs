//! The outcome of a run: one line for people, one JSON document for programs.

use std::fmt;
use std::time::Duration;

use coldpress_common::size::show;
use coldpress_runtime::tally::{Counter, Group};
use coldpress_sys::Bytes;
use serde_json::{Map, Value, json};

use super::account::Account;
use super::standing::Standing;
use super::timeline::{self, Timeline};
use super::totals::rounded;
use super::unmanaged::UnmanagedOfRun;
use crate::knobs;
use crate::supervise::{Ending, ExitReport};

/// The version of the JSON document's keys.
pub(super) const SCHEMA: u32 = 1;

impl Standing {
    /// Returns what can be reported of a run at any time: its counters, and the groups beside them.
    fn document(&self) -> Map<String, Value> {
        let Self { totals, settings: now, peak, .. } = self;
        let mut run = json!({
            "budget_bytes": now.budget.bytes.0,
            "peak_bytes": peak.0,
            "ratio": rounded(totals.ratio()),
            "processes": totals.joined(),
            "managed_processes": totals.managed(),
            "saved_average_bytes": totals.saved_on_average().0,
            "idle_stall_percent": totals.idle_stall_percent(),
        });
        for counter in Counter::ALL {
            run[counter.key()] = Value::from(totals.get(*counter));
        }
        run["knobs"] = Value::from(knobs::document(&now.knobs));
        run["knobs"]["memory"] = now.budget.ask.value();
        run["show_memory"] = now.show_memory.value();
        run["zswap"] = Value::from(totals.named(Group::Zswap));
        run["histograms"] = totals.histograms();
        match run {
            Value::Object(map) => map,
            _ => unreachable!("an object was made above"),
        }
    }
}

/// The events of a run.
pub(crate) struct Summary {
    pub(crate) program: String,
    /// The run at its end.
    pub(crate) standing: Standing,
    /// The account when the run held most, as far as the launcher saw it.
    pub(crate) at_peak: Account,
    pub(crate) timeline: Timeline,
    /// The number of processes that had joined and have not ended.
    pub(crate) left: usize,
    /// The processes that could not be managed.
    pub(crate) unmanaged: UnmanagedOfRun,
    /// The reason why the run was ended, if it was.
    pub(crate) ended_for: Option<String>,
    /// Advice that would have helped this run.
    pub(crate) hint: Option<String>,
    pub(crate) exit: ExitReport,
}

impl Summary {
    /// Returns one JSON document. Sizes are in bytes, times in nanoseconds.
    pub(crate) fn to_json(&self) -> String {
        let mut document = Value::from(self.standing.document());
        document["schema"] = SCHEMA.into();
        document["at_peak"] = self.at_peak.document();
        document["saved_at_end_bytes"] = self.saved_at_end().0.into();
        document["unmanaged_processes"] = self.unmanaged.count().into();
        document["unmanaged"] = self.unmanaged.document();
        document["hint"] = self.hint.as_deref().into();
        document["program"] = self.program.as_str().into();
        document["exit_status"] = self.exit.ending.exit_code().into();
        document["wall_ns"] =
            u64::try_from(self.exit.wall_time.as_nanos()).unwrap_or(u64::MAX).into();
        let text = format!("{document:#}");
        let timeline = timeline::text_of(&self.timeline.document()).replace('\n', "\n  ");
        let text = text.strip_suffix("\n}").expect("the document is an object with members");
        format!("{text},\n  \"timeline\": {timeline}\n}}\n")
    }

    fn budget(&self) -> Bytes {
        self.standing.settings.budget.bytes
    }

    /// Returns whether nothing was managed although more private memory was held than the budget.
    fn is_all_unmanaged(&self) -> bool {
        let shared = self.at_peak.shared.bytes();
        self.standing.totals.managed() == 0 && self.standing.peak.0 > self.budget().0 + shared.0
    }

    /// Returns why some process that should have been managed was not, if there was one.
    pub(crate) fn unmanaged_for(&self) -> Option<String> {
        let nothing = || {
            let (peak, budget) = (show(self.standing.peak), show(self.budget()));
            format!("nothing was managed, and {peak} were held of {budget}")
        };
        let found = || (self.unmanaged.count() > 0).then(|| self.unmanaged.to_string());
        let ended_for = self.ended_for.clone().or_else(found);
        ended_for.or_else(|| self.is_all_unmanaged().then(nothing))
    }

    /// Returns what most of the peak was, when that is why the budget was passed.
    fn largest(&self) -> String {
        let is_passed = self.standing.peak > self.budget();
        let largest = self.at_peak.largest().filter(|_| is_passed);
        largest.map(|largest| format!(" ({largest})")).unwrap_or_default()
    }

    /// Returns the bytes saved at the end: by the processes that are left, else when the last
    /// managed process ended.
    fn saved_at_end(&self) -> Bytes {
        let saved = if self.left > 0 {
            self.standing.totals.saved()
        } else {
            self.standing.totals.saved_at_end()
        };
        Bytes(saved as usize)
    }

    /// Writes what the search for idle memory gained, if there was one; which processes were not
    /// managed; and what would have helped.
    fn write_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.standing.totals.get(Counter::IdleNs) > 0 {
            self.write_idle(f)?;
        }
        match self.unmanaged.count() {
            0 if self.is_all_unmanaged() => f.write_str("; nothing was managed")?,
            0 => {}
            _ => write!(f, "; {}", self.unmanaged)?,
        }
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }

    fn write_idle(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "; idle memory: {} saved on average, {} at the end, {} % of the time stalled",
            show(self.standing.totals.saved_on_average()),
            show(self.saved_at_end()),
            self.standing.totals.idle_stall_percent()
        )
    }
}

/// Returns the document of a run that goes on: the same as at the end, and what is held now.
pub(crate) fn live(standing: &Standing) -> Value {
    let mut document = Value::from(standing.document());
    document["schema"] = SCHEMA.into();
    document["used_bytes"] = standing.used.0.into();
    document["processes_not_thawed"] = standing.not_thawed.into();
    document["held"] = Value::from(standing.totals.named(Group::Held));
    document
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ending::Signaled(signal) = self.exit.ending {
            write!(f, "the program was ended by signal {signal}; ")?;
        }
        let budget = show(self.budget());
        match self.standing.peak {
            Bytes(0) => write!(f, "ended before its memory was looked at, of {budget}, ")?,
            peak => write!(f, "peak {} of {budget}{}, ", show(peak), self.largest())?,
        }
        let stored = self.standing.totals.get(Counter::PagesStored);
        if stored == 0 {
            f.write_str("no page had to be compressed")?;
            return self.write_rest(f);
        }
        let stalled = Duration::from_nanos(self.standing.totals.get(Counter::StallNs));
        write!(
            f,
            "{stored} pages compressed {:.2} to 1, {} written to disk, {} faults, stalled {:.2} s",
            self.standing.totals.ratio(),
            self.standing.totals.get(Counter::PagesWrittenBack),
            self.standing.totals.get(Counter::Faults),
            stalled.as_secs_f64()
        )?;
        self.write_rest(f)
    }
}

#[cfg(test)]
mod tests {
    use super::super::totals::Totals;
    use super::*;
    use crate::budget::{Ask, Budget};
    use crate::control::Changeable;
    use crate::view;
    use coldpress_runtime::knobs::Knobs;
    use coldpress_runtime::ledger::{Keeper, Terms};
    use coldpress_sys::{PAGE_BYTES, PageCount};

    fn run(stored: u64) -> (Keeper, Totals) {
        let terms =
            Terms { budget: PageCount(10_000), spill_max: Bytes(0), verbose: false, processors: 2 };
        let (_fds, ledger) = Keeper::create(terms, &Knobs::default()).unwrap();
        let mut totals = Totals::default();
        for seat in 0..2 {
            ledger.assign(seat, 7, PageCount(1 << 20));
            let tally = ledger.tally(seat);
            tally.add(Counter::PagesStored, stored);
            tally.add(Counter::BytesStored, stored * 1024);
            tally.add(Counter::StallNs, 1_500_000_000);
            tally.note_latency(Group::LoadNs, 3000);
            totals.add(&ledger, seat);
        }
        (ledger, totals)
    }

    fn changeable() -> Changeable {
        let budget = Budget::find(Ask::parse("150M").unwrap()).unwrap();
        Changeable { budget, knobs: Knobs::default(), show_memory: view::Ask::Auto }
    }

    fn summary(stored: u64) -> Summary {
        let (ledger, totals) = run(stored);
        assert_eq!(ledger.used(), PageCount(0));
        let exit = ExitReport { ending: Ending::Signaled(9), wall_time: Duration::from_secs(3) };
        let peak = Bytes::mib(149);
        let standing = Standing { totals, peak, ..Standing::at_start(changeable()) };
        Summary {
            program: "job".to_owned(),
            standing,
            at_peak: Account::default(),
            timeline: Timeline::begin(),
            left: 0,
            unmanaged: UnmanagedOfRun::default(),
            ended_for: None,
            hint: None,
            exit,
        }
    }

    #[test]
    fn the_line_says_what_the_budget_was_passed_for() {
        let shared = Bytes::mib(140).pages_up();
        let at_peak = Account::of(PageCount(2_560), PageCount(0), shared);
        let mut summary = Summary { at_peak, ..summary(0) };
        assert!(!summary.to_string().contains("shared"), "{summary}");
        summary.standing.peak = Bytes::mib(151);
        let line = summary.to_string();
        assert!(
            line.starts_with("the program was ended by signal 9; peak 151 MiB of 150 MiB (140")
        );
        // Shared memory could not have been managed, and nothing else had to be.
        assert!(!line.contains("nothing was managed"), "{line}");
        assert_eq!(summary.unmanaged_for(), None);
        let document: Value = serde_json::from_str(&summary.to_json()).unwrap();
        assert_eq!(document["at_peak"]["shared_bytes"], 140 << 20);
        assert_eq!(document["at_peak"]["managed_bytes"], 10 << 20);
    }

    #[test]
    fn the_line_says_what_the_user_asked_for() {
        let line = summary(50).to_string();
        for part in ["signal 9", "149", "150", "100 pages", "4.00 to 1", "3.00 s"] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(summary(0).to_string().contains("no page had to be compressed"));
        assert!(!line.contains("idle"), "{line}");
    }

    #[test]
    fn a_run_that_managed_nothing_says_so_when_it_should_have() {
        let (ledger, _) = run(0);
        let mut summary = summary(0);
        assert_eq!(summary.unmanaged_for(), None);
        assert!(!summary.to_string().contains("managed"), "{summary}");
        summary.standing.peak = Bytes::mib(151);
        assert!(summary.to_string().ends_with("; nothing was managed"), "{summary}");
        let why = summary.unmanaged_for().expect("more than the budget was held");
        assert!(why.contains("151 MiB") && why.contains("150 MiB"), "{why}");
        ledger.set_managing(0);
        summary.standing.totals.add(&ledger, 0);
        assert_eq!(summary.unmanaged_for(), None);
        summary.ended_for = Some("one".to_owned());
        assert_eq!(summary.unmanaged_for().as_deref(), Some("one"));
    }

    #[test]
    fn the_line_tells_of_idle_memory_when_it_was_looked_for() {
        let (ledger, _) = run(50);
        let mut totals = Totals::default().after(Duration::from_secs(3));
        for seat in 0..2 {
            let tally = ledger.tally(seat);
            // This is 90 MiB for a second and a half, in a run of three.
            tally.add(Counter::SavedPageMs, (90 << 20) / PAGE_BYTES as u64 * 1500);
            tally.add(Counter::IdleNs, 2_000_000_000);
            tally.add(Counter::IdleStallNs, 5_000_000);
            ledger.set_managing(0);
            totals.add_ended(&ledger, seat, [70 << 20, 0][seat]);
        }
        let mut summary = summary(50);
        summary.standing.totals = totals;
        let line = summary.to_string();
        for part in ["90 MiB saved on average", "70 MiB at the end", "0.25 % of the time"] {
            assert!(line.contains(part), "{part} in {line}");
        }
        let document: Value = serde_json::from_str(&summary.to_json()).unwrap();
        assert_eq!(document["saved_average_bytes"], 90 << 20);
        assert_eq!(document["saved_at_end_bytes"], 70 << 20);
        assert_eq!(document["idle_stall_percent"], 0.25);
    }

    #[test]
    fn the_document_has_every_counter() {
        let document: Value = serde_json::from_str(&summary(50).to_json()).unwrap();
        assert_eq!(document["exit_status"], 137);
        assert_eq!(document["swap_out_pages"], 100);
        assert_eq!(document["ratio"], 4.0);
        assert_eq!(document["processes"], 2);
        for counter in Counter::ALL {
            assert!(document[counter.key()].is_u64(), "{}", counter.key());
        }
        for name in Group::Zswap.names() {
            assert_eq!(document["zswap"][name], 0, "{name}");
        }
        assert_eq!(document["knobs"]["max_pool_percent"], 50);
        assert_eq!(document["knobs"]["memory"], 150 << 20);
        assert_eq!(document["show_memory"], "auto");
        assert_eq!(document["histograms"]["load_ns"], json!([{ "below": 4096, "count": 2 }]));
        for name in ["stored_size", "loaded_age_ms", "flushed_age_ms"] {
            assert_eq!(document["histograms"][name], json!([]), "{name}");
        }
    }

    #[test]
    fn a_run_that_goes_on_tells_what_it_holds_too() {
        let (ledger, totals) = run(50);
        let used = ledger.used().bytes() + PageCount(25).bytes();
        let standing = Standing { totals, used, ..Standing::at_start(changeable()) };
        let document = live(&standing);
        assert_eq!(
            (&document["used_bytes"], &document["swap_out_pages"]),
            (&json!(102_400), &json!(100))
        );
        for name in Group::Held.names() {
            assert_eq!(document["held"][name], 0, "{name}");
        }
    }
}
