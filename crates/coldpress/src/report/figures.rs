//! The figures of a report, read from statistics: what `coldpress run --stats` writes.
//!
//! Statistics may come from another place or another version. A key that is missing or of another
//! type is named. Keys that later builds have added to the schema may be missing, and what they
//! would tell is not known then. Sums saturate, whatever numbers the file has.

use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};
use serde::Deserialize;
use serde_json::Value;

/// The version of the schema that this reads (schema/stats-1.json).
const SCHEMA: u64 = 1;
/// Lists of a timeline, by what they are called.
type Column<'a> = (&'static str, &'a [u64]);

/// The statistics of a run, as far as a report needs them.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(super) run: Run,
    pub(super) processes: Processes,
    pub(super) faults: Faults,
    pub(super) pages: Pages,
}

/// The run as a whole.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Run {
    pub(super) program: String,
    pub(super) exit_status: u8,
    pub(super) wall_ns: u64,
    pub(super) budget_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) ratio: f64,
    pub(super) forks: u64,
    pub(super) fork_pages: u64,
    /// Advice on a program that sized itself by the machine.
    #[serde(default)]
    pub(super) hint: Option<String>,
    pub(super) at_peak: AtPeak,
    pub(super) histograms: Histograms,
    pub(super) knobs: serde_json::Map<String, Value>,
    pub(super) timeline: Timeline,
}

/// The processes of a run.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Processes {
    #[serde(rename = "processes")]
    pub(super) joined: u64,
    #[serde(rename = "managed_processes")]
    pub(super) managed: u64,
    #[serde(rename = "unmanaged_processes")]
    pub(super) unmanaged: u64,
    /// Those that held most of the unmanaged ones.
    #[serde(rename = "unmanaged")]
    pub(super) largest_unmanaged: Vec<Unmanaged>,
}

/// A process that was not managed.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Unmanaged {
    pub(super) process: u64,
    pub(super) name: String,
    pub(super) why: String,
    pub(super) most_bytes: u64,
}

/// Faults, and the waits for them.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Faults {
    #[serde(rename = "faults")]
    pub(super) all: u64,
    #[serde(rename = "limbo_faults")]
    pub(super) limbo: u64,
    #[serde(rename = "major_faults")]
    pub(super) major: u64,
    pub(super) stall_ns: u64,
    pub(super) turn_wait_ns: u64,
    pub(super) limbo_stall_ns: Option<u64>,
    pub(super) pool_stall_ns: Option<u64>,
    pub(super) disk_stall_ns: Option<u64>,
}

/// Pages that left and came back.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pages {
    #[serde(rename = "swap_out_pages")]
    pub(super) stored: u64,
    #[serde(rename = "swap_in_pages")]
    pub(super) loaded: u64,
    #[serde(rename = "readahead_pages")]
    pub(super) read_ahead: u64,
    #[serde(rename = "written_back_pages")]
    pub(super) written_back: u64,
    #[serde(rename = "read_back_pages")]
    pub(super) read_back: u64,
    #[serde(rename = "same_filled_pages")]
    pub(super) same_filled: u64,
    #[serde(rename = "idle_pages")]
    pub(super) idle: u64,
}

/// What the run held when it held most.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct AtPeak {
    pub(super) shared_bytes: u64,
}

/// How often values were in which class.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Histograms {
    pub(super) fault_ns: Vec<Class>,
    pub(super) stored_size: Vec<Class>,
    pub(super) loaded_age_ms: Vec<Class>,
    pub(super) flushed_age_ms: Vec<Class>,
    #[serde(default)]
    pub(super) refault_permille: Vec<Waits>,
}

/// A class of a histogram.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Class {
    pub(super) below: u64,
    pub(super) count: u64,
}

/// A class of refault distances, with the waits for such faults.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Waits {
    pub(super) from: u64,
    pub(super) below: u64,
    pub(super) count: u64,
    pub(super) stall_ns: u64,
}

/// How the run stood at moments, and what happened.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Timeline {
    pub(super) points: Points,
    pub(super) events: Vec<Event>,
    pub(super) events_dropped: u64,
}

/// The figures of all moments. All lists have one length.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Points {
    pub(super) time_ns: Vec<u64>,
    pub(super) budget_bytes: Vec<u64>,
    pub(super) used_bytes: Vec<u64>,
    pub(super) resident_bytes: Vec<u64>,
    pub(super) limbo_bytes: Vec<u64>,
    pub(super) pool_original_bytes: Vec<u64>,
    pub(super) pool_held_bytes: Vec<u64>,
    pub(super) disk_original_bytes: Vec<u64>,
    pub(super) saved_bytes: Vec<u64>,
    pub(super) unmanaged_bytes: Vec<u64>,
    pub(super) shared_bytes: Vec<u64>,
    pub(super) stall_ns: Vec<u64>,
    pub(super) first_touch_faults: Vec<u64>,
    pub(super) limbo_faults: Vec<u64>,
    pub(super) major_faults: Vec<u64>,
}

/// Something that happened: of a kind, with what that kind has.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Event {
    pub(super) time_ns: u64,
    pub(super) kind: String,
    pub(super) bytes: Option<u64>,
    pub(super) text: Option<String>,
    pub(super) process: Option<u64>,
    pub(super) name: Option<String>,
}

impl Figures {
    /// Reads the text of a file. The error says what is wrong with it.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let document: Value =
            serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
        match document.get("schema").and_then(Value::as_u64) {
            Some(SCHEMA) => {}
            Some(other) => return Err(format!("its schema is {other}, and this reads {SCHEMA}")),
            None => return Err("it has no \"schema\"".to_owned()),
        }
        let figures = Self {
            run: part(&document)?,
            processes: part(&document)?,
            faults: part(&document)?,
            pages: part(&document)?,
        };
        figures.run.timeline.points.check()?;
        Ok(figures)
    }

    /// Returns whether waits of several threads are known to be added up.
    pub(super) fn is_several(&self) -> bool {
        self.processes.managed > 1 || self.faults.stall_ns > self.run.wall_ns
    }

    /// Returns whether the budget was another one before the end.
    pub(super) fn is_budget_changed(&self) -> bool {
        let budgets = &self.run.timeline.points.budget_bytes;
        budgets.iter().any(|budget| *budget != self.run.budget_bytes)
            || self.run.timeline.events.iter().any(|event| event.kind == "budget")
    }

    /// Returns the sum of all waits, as a part of the time: over 1 where several threads waited.
    pub(super) fn stall_share(&self) -> f64 {
        self.faults.stall_ns as f64 / self.run.wall_ns.max(1) as f64
    }

    /// Returns how many times as long the run took as its program alone, as far as waits tell.
    pub(super) fn slowdown(&self) -> Option<f64> {
        let alone = self.run.wall_ns.saturating_sub(self.faults.stall_ns);
        (!self.is_several() && alone > 0).then(|| self.run.wall_ns as f64 / alone as f64)
    }

    /// Returns the most memory that the run has asked for at one moment.
    pub(super) fn asked(&self) -> Bytes {
        let points = &self.run.timeline.points;
        let most = (0..points.count()).map(|at| points.asked(at)).max();
        bytes(most.unwrap_or(0).max(self.run.peak_bytes))
    }

    /// Returns the budget.
    pub(super) fn budget(&self) -> Bytes {
        bytes(self.run.budget_bytes)
    }

    /// Returns the time that the program took.
    pub(crate) fn wall_ns(&self) -> f64 {
        self.run.wall_ns as f64
    }

    /// Returns the waits of all threads.
    pub(crate) fn stall_ns(&self) -> f64 {
        self.faults.stall_ns as f64
    }

    /// Returns the exit status of the program.
    pub(crate) fn exit_status(&self) -> u8 {
        self.run.exit_status
    }

    /// Returns the most that was held.
    pub(crate) fn peak(&self) -> Bytes {
        bytes(self.run.peak_bytes)
    }

    /// Returns whether no page ever left its place.
    pub(super) fn is_fit(&self) -> bool {
        self.pages.stored == 0 && self.faults.limbo == 0
    }

    /// Returns the size of pages that were stored.
    pub(super) fn stored(&self) -> Bytes {
        pages(self.pages.stored)
    }
}

impl Points {
    /// Returns the number of moments.
    pub(super) fn count(&self) -> usize {
        self.time_ns.len()
    }

    /// Returns what the run has asked for at a moment: what it holds, and what is away beyond what
    /// is held for that. Without coldpress it would hold as much.
    pub(super) fn asked(&self, at: usize) -> u64 {
        self.used_bytes[at].saturating_add(self.saved_bytes[at])
    }

    /// Returns the pages that are away at a moment, before compression, in the pool and on disk.
    /// What lies there is more: copies of pages that came back stay for a while.
    pub(super) fn away(&self, at: usize) -> [u64; 2] {
        let lies_there = [self.pool_original_bytes[at], self.disk_original_bytes[at]];
        let most = lies_there[0].saturating_add(lies_there[1]);
        let others =
            [&self.resident_bytes, &self.limbo_bytes, &self.unmanaged_bytes, &self.shared_bytes];
        let asked = self.asked(at);
        let away = others.iter().fold(asked, |rest, part| rest.saturating_sub(part[at])).min(most);
        let part = |lies: u64| u128::from(lies) * u128::from(away) / u128::from(most.max(1));
        lies_there.map(|lies| part(lies) as u64)
    }

    /// Returns the memory at a moment that is none of the others: tables, buffers, codecs, and what
    /// is in no mapping that is managed.
    pub(super) fn other(&self, at: usize) -> u64 {
        let parts = [
            &self.resident_bytes,
            &self.limbo_bytes,
            &self.pool_held_bytes,
            &self.unmanaged_bytes,
            &self.shared_bytes,
        ];
        parts.iter().fold(self.used_bytes[at], |rest, part| rest.saturating_sub(part[at]))
    }

    /// Fails with the name of a list that is shorter or longer than that of times.
    fn check(&self) -> Result<(), String> {
        let columns: [Column<'_>; 14] = [
            ("budget_bytes", &self.budget_bytes),
            ("used_bytes", &self.used_bytes),
            ("resident_bytes", &self.resident_bytes),
            ("limbo_bytes", &self.limbo_bytes),
            ("pool_original_bytes", &self.pool_original_bytes),
            ("pool_held_bytes", &self.pool_held_bytes),
            ("disk_original_bytes", &self.disk_original_bytes),
            ("saved_bytes", &self.saved_bytes),
            ("unmanaged_bytes", &self.unmanaged_bytes),
            ("shared_bytes", &self.shared_bytes),
            ("stall_ns", &self.stall_ns),
            ("first_touch_faults", &self.first_touch_faults),
            ("limbo_faults", &self.limbo_faults),
            ("major_faults", &self.major_faults),
        ];
        match columns.iter().find(|(_, column)| column.len() != self.count()) {
            Some((name, column)) => Err(format!(
                "timeline.points.{name} has {} entries, and time_ns has {}",
                column.len(),
                self.count()
            )),
            None => Ok(()),
        }
    }
}

/// Reads a part of the document, whose keys lie side by side with those of others. The error names
/// the key.
fn part<'d, T: Deserialize<'d>>(document: &'d Value) -> Result<T, String> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!("{path}: ") };
        format!("{place}{}", error.inner())
    })
}

/// Returns a number of bytes that a file has, at most what the largest machine could hold.
pub(super) fn bytes(number: u64) -> Bytes {
    Bytes(usize::try_from(number).unwrap_or(usize::MAX).min(usize::MAX / 2))
}

/// Returns the size of a number of pages, with the same limit.
pub(super) fn pages(number: u64) -> Bytes {
    let most = usize::MAX / 2 / PAGE_BYTES;
    PageCount(usize::try_from(number).unwrap_or(most).min(most)).bytes()
}
