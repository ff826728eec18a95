//! The results of a run, and the assertions on them.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use coldpress_sys::Bytes;
use serde_json::Value;

use super::SLACK;
use crate::watch::Memory;

/// Bytes of two outputs shown around their first difference.
const SHOWN_BYTES: usize = 200;

/// The statistics of a managed run, as `--stats` wrote them.
#[derive(Clone, Debug)]
pub struct Stats(Value);

impl Stats {
    /// Reads the file; `None` when it is missing or is no JSON.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        serde_json::from_str(&text).ok().map(Self)
    }

    /// Returns the whole document.
    pub fn document(&self) -> &Value {
        &self.0
    }

    /// Returns the whole number under `key`.
    ///
    /// # Panics
    /// When there is none.
    pub fn count(&self, key: &str) -> u64 {
        let found = self.0.get(key).and_then(Value::as_u64);
        found.unwrap_or_else(|| panic!("no count {key:?} in the statistics: {}", self.0))
    }

    /// Returns the whole number under `key` of the object `group`.
    ///
    /// # Panics
    /// When there is none.
    pub fn at(&self, group: &str, key: &str) -> u64 {
        let found = self.0.get(group).and_then(|group| group.get(key)).and_then(Value::as_u64);
        found.unwrap_or_else(|| panic!("no count {group}.{key} in the statistics: {}", self.0))
    }

    /// Returns how many entries of the histogram `name`, one of times, are in classes that begin at
    /// `least` or above.
    ///
    /// # Panics
    /// When there is no such histogram.
    pub fn at_least(&self, name: &str, least: u64) -> u64 {
        let classes = self.0["histograms"][name].as_array();
        let classes = classes.unwrap_or_else(|| panic!("no histogram {name:?}: {}", self.0));
        // Each class ends at twice what it begins with.
        let is_in = |class: &&Value| class["below"].as_u64().is_some_and(|end| end >= 2 * least);
        classes.iter().filter(is_in).filter_map(|class| class["count"].as_u64()).sum()
    }

    /// Returns the entries of the list `key`.
    ///
    /// # Panics
    /// When there is no such list.
    pub fn list(&self, key: &str) -> &[Value] {
        let found = self.0.get(key).and_then(Value::as_array);
        found.unwrap_or_else(|| panic!("no list {key:?} in the statistics: {}", self.0))
    }

    /// Returns the number under `key`.
    ///
    /// # Panics
    /// When there is none.
    pub fn number(&self, key: &str) -> f64 {
        let found = self.0.get(key).and_then(Value::as_f64);
        found.unwrap_or_else(|| panic!("no number {key:?} in the statistics: {}", self.0))
    }
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The job's name.
    pub name: &'static str,
    /// The job's budget, when the run was managed.
    pub budget: Option<Bytes>,
    /// Exit status, 128 + signal for a run that a signal ended.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
    /// The job's files, `None` for a file that the job did not write.
    pub files: Vec<Option<Vec<u8>>>,
    /// Time from start to end.
    pub wall: Duration,
    /// The memory that the watcher saw.
    pub memory: Memory,
    /// The statistics that coldpress wrote.
    pub stats: Option<Stats>,
}

/// Returns the status as a shell gives it, which is how `coldpress run` passes it on.
pub(super) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

impl Run {
    /// Returns the statistics.
    ///
    /// # Panics
    /// When the run wrote none.
    pub fn stats(&self) -> &Stats {
        let stats = self.stats.as_ref();
        stats.unwrap_or_else(|| panic!("{}: no statistics; {}", self.name, self.stderr))
    }

    /// Returns lines of standard error that hold every one of `words`, whatever their case.
    pub fn complaints(&self, words: &[&str]) -> Vec<&str> {
        let holds_all = |line: &&str| {
            let line = line.to_lowercase();
            words.iter().all(|word| line.contains(&word.to_lowercase()))
        };
        self.stderr.lines().filter(holds_all).collect()
    }

    /// Asserts that status, output and files are those of `plain`.
    ///
    /// # Panics
    /// When one differs; the message shows where.
    pub fn assert_same(&self, plain: &Self) {
        let name = self.name;
        assert_eq!(self.code, plain.code, "{name}: exit status; {}", self.stderr);
        assert_equal_bytes(&self.stdout, &plain.stdout, &format!("{name}: output"));
        for (number, (ours, theirs)) in self.files.iter().zip(&plain.files).enumerate() {
            let what = format!("{name}: file {number}");
            match (ours, theirs) {
                (Some(ours), Some(theirs)) => assert_equal_bytes(ours, theirs, &what),
                _ => assert!(ours.is_none() && theirs.is_none(), "{what} was not written by both"),
            }
        }
    }

    /// Asserts that coldpress has ended no process: the parent of an ended process may have tried
    /// again.
    ///
    /// # Panics
    /// When coldpress has ended one.
    pub fn assert_none_ended(&self) {
        assert!(!self.stderr.contains("coldpress: fatal:"), "{}: {}", self.name, self.stderr);
    }

    /// Asserts that pages were really stored.
    ///
    /// # Panics
    /// When none was.
    pub fn assert_stored(&self) {
        let stored = self.stats().count("swap_out_pages");
        assert!(stored > 0, "{}: nothing was stored; {}", self.name, self.stderr);
    }

    /// Asserts that no sample of the managed tree was over the budget and [`SLACK`].
    ///
    /// # Panics
    /// When one was, or the watcher took none.
    pub fn assert_within_budget(&self) {
        self.assert_within_budget_and(Bytes(0));
    }

    /// Asserts as [`Run::assert_within_budget`] does, with `more` that a sample may be over.
    ///
    /// # Panics
    /// As there.
    pub fn assert_within_budget_and(&self, more: Bytes) {
        let budget = self.budget.expect("only managed runs have one");
        let memory = &self.memory;
        assert!(memory.samples > 0, "{}: the watcher saw nothing", self.name);
        assert!(
            memory.peak_below <= budget + SLACK + more,
            "{}: peak {} over budget {}; {} of {} samples over, first {:?}",
            self.name,
            Mib(memory.peak_below),
            Mib(budget),
            memory.over_count,
            memory.samples,
            memory.over.first(),
        );
    }
}

impl Display for Run {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let memory = &self.memory;
        write!(out, "{}: {:.2} s, ", self.name, self.wall.as_secs_f64())?;
        match (self.budget, &self.stats) {
            (Some(budget), Some(stats)) => write!(
                out,
                "budget {}, peak {}, launcher {}, {} pages stored, {} loaded, {} dropped, \
                 ratio {:.2}",
                Mib(budget),
                Mib(memory.peak_below),
                Mib(memory.peak_total - memory.peak_below),
                stats.count("swap_out_pages"),
                stats.count("swap_in_pages"),
                stats.count("dropped_pages"),
                stats.number("ratio"),
            )?,
            (Some(budget), None) => write!(out, "budget {}, no statistics", Mib(budget))?,
            (None, _) => write!(out, "plain, peak {}", Mib(memory.peak_total))?,
        }
        write!(out, " ({} samples, gap {:.0?} at most)", memory.samples, memory.gap_max)
    }
}

/// A size as people read it.
struct Mib(Bytes);

impl Display for Mib {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{:.1} MiB", self.0.0 as f64 / 1_048_576.0)
    }
}

/// Asserts that two outputs are equal, and shows their first difference when they are not.
fn assert_equal_bytes(ours: &[u8], theirs: &[u8], what: &str) {
    if ours == theirs {
        return;
    }
    let at = ours.iter().zip(theirs).position(|(a, b)| a != b);
    let at = at.unwrap_or(ours.len().min(theirs.len()));
    let shown = |bytes: &[u8]| {
        let start = at.saturating_sub(SHOWN_BYTES / 2);
        let end = (at + SHOWN_BYTES / 2).min(bytes.len());
        String::from_utf8_lossy(&bytes[start.min(end)..end]).into_owned()
    };
    panic!(
        "{what} differs at byte {at} ({} bytes managed, {} plain)\nmanaged: {:?}\nplain:   {:?}",
        ours.len(),
        theirs.len(),
        shown(ours),
        shown(theirs),
    );
}

#[cfg(test)]
mod tests {
    //! Risk: a comparison that passes whatever it is given.

    use super::super::Job;
    use super::*;

    fn shell(script: &str) -> Run {
        Job::new("shell", "sh").args(["-c", script]).plain()
    }

    #[test]
    fn equal_runs_are_the_same() {
        shell("echo a; exit 3").assert_same(&shell("echo a; echo b >&2; exit 3"));
    }

    #[test]
    #[should_panic(expected = "output differs at byte 2")]
    fn another_output_is_seen() {
        shell("echo abc").assert_same(&shell("echo abd"));
    }

    #[test]
    #[should_panic(expected = "output differs at byte 4")]
    fn a_longer_output_is_seen() {
        shell("echo abc").assert_same(&shell("echo abc; echo d"));
    }

    #[test]
    #[should_panic(expected = "exit status")]
    fn another_status_is_seen() {
        shell("exit 1").assert_same(&shell("exit 2"));
    }

    #[test]
    fn a_signal_is_128_and_its_number() {
        assert_eq!(shell("kill -KILL $$").code, 137);
    }

    #[test]
    #[should_panic(expected = "over budget")]
    fn a_peak_over_the_budget_is_seen() {
        let mut run = shell("true");
        run.budget = Some(Bytes::mib(1));
        run.memory.samples = 1;
        run.memory.peak_below = Bytes::mib(5) + Bytes(1);
        run.assert_within_budget();
    }
}
