//! What a run came to: one line for people, one JSON document for programs.

use std::fmt;
use std::time::Duration;

use coldpress_runtime::ledger::{Counter, Seat};
use coldpress_sys::{Bytes, PAGE_BYTES};
use serde_json::{Value, json};

use crate::size::show;
use crate::supervise::{Ending, ExitReport};

/// The version of the JSON document's keys.
const SCHEMA: u32 = 1;

/// The sum over all processes of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    counters: Vec<u64>,
    joined: u64,
    managed: u64,
}

impl Totals {
    /// Adds the numbers of a process that leaves its seat.
    pub(crate) fn add(&mut self, seat: &Seat) {
        self.counters.resize(Counter::ALL.len(), 0);
        for (sum, counter) in self.counters.iter_mut().zip(Counter::ALL) {
            *sum += seat.get(*counter);
        }
        self.joined += 1;
        self.managed += u64::from(seat.is_managing());
    }

    fn get(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }

    /// Stored pages' size before compression to after; 0 when nothing was stored.
    fn ratio(&self) -> f64 {
        let before = self.get(Counter::PagesStored) * PAGE_BYTES as u64;
        let after = self.get(Counter::BytesStored);
        if before == 0 { 0.0 } else { before as f64 / after.max(1) as f64 }
    }
}

/// What happened in a run.
pub(crate) struct Summary {
    pub(crate) program: String,
    pub(crate) budget: Bytes,
    /// The most that all processes held at a time.
    pub(crate) peak: Bytes,
    pub(crate) totals: Totals,
    pub(crate) exit: ExitReport,
}

impl Summary {
    /// One JSON document. Sizes are bytes, times nanoseconds.
    pub(crate) fn to_json(&self) -> String {
        let mut document = json!({
            "schema": SCHEMA,
            "program": self.program,
            "exit_status": self.exit.ending.exit_code(),
            "budget_bytes": self.budget.0,
            "peak_bytes": self.peak.0,
            "ratio": (self.totals.ratio() * 1000.0).round() / 1000.0,
            "processes": self.totals.joined,
            "managed_processes": self.totals.managed,
            "wall_ns": u64::try_from(self.exit.wall_time.as_nanos()).unwrap_or(u64::MAX),
        });
        for counter in Counter::ALL {
            document[counter.key()] = Value::from(self.totals.get(*counter));
        }
        format!("{document:#}\n")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ending::Signaled(signal) = self.exit.ending {
            write!(f, "the program was ended by signal {signal}; ")?;
        }
        write!(f, "peak {} of {}, ", show(self.peak), show(self.budget))?;
        let stored = self.totals.get(Counter::PagesStored);
        if stored == 0 {
            return f.write_str("no page had to be compressed");
        }
        let stalled = Duration::from_nanos(self.totals.get(Counter::StallNs));
        write!(
            f,
            "{stored} pages compressed {:.2} to 1, {} written to disk, {} faults, stalled {:.2} s",
            self.totals.ratio(),
            self.totals.get(Counter::PagesWrittenBack),
            self.totals.get(Counter::Faults),
            stalled.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coldpress_codec::CodecId;
    use coldpress_mem::pools::PoolKind;
    use coldpress_runtime::ledger::{Ledger, Terms};
    use coldpress_sys::PageCount;

    fn summary(stored: u64) -> Summary {
        let terms = Terms {
            budget: PageCount(10_000),
            pool_max: PageCount(5_000),
            spill_max: Bytes(0),
            codec: CodecId::Lz4,
            pool: PoolKind::Zsmalloc,
            verbose: false,
        };
        let (_fd, ledger) = Ledger::create(terms).unwrap();
        let mut totals = Totals::default();
        for seat in &ledger.seats[..2] {
            seat.assign(7);
            seat.add(Counter::PagesStored, stored);
            seat.add(Counter::BytesStored, stored * 1024);
            seat.add(Counter::StallNs, 1_500_000_000);
            totals.add(seat);
        }
        let exit = ExitReport { ending: Ending::Signaled(9), wall_time: Duration::from_secs(3) };
        let (budget, peak) = (Bytes::mib(150), Bytes::mib(149));
        Summary { program: "job".to_owned(), budget, peak, totals, exit }
    }

    #[test]
    fn the_line_says_what_the_user_asked_for() {
        let line = summary(50).to_string();
        for part in ["signal 9", "149", "150", "100 pages", "4.00 to 1", "3.00 s"] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(summary(0).to_string().contains("no page had to be compressed"));
    }

    #[test]
    fn the_document_has_every_counter() {
        let document: Value = serde_json::from_str(&summary(50).to_json()).unwrap();
        assert_eq!(document["exit_status"], 137);
        assert_eq!(document["pages_stored"], 100);
        assert_eq!(document["ratio"], 4.0);
        assert_eq!(document["processes"], 2);
        for counter in Counter::ALL {
            assert!(document[counter.key()].is_u64(), "{}", counter.key());
        }
    }
}
