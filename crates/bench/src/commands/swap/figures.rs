//! The figures of turns, and the ratios between contestants.

use crate::kernel::Peer;
use crate::statistics::Sample;
use crate::touch::pattern::Pattern;
use coldpress_common::failure::Result;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::data::Kind;
use super::options::Percent;
use crate::commands::common::Share;
use crate::commands::launch::{failed, number};

/// A contestant, which runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contestant {
    Ours,
    Kernel(Peer),
}

impl Contestant {
    /// Returns the name of the contestant in tables.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Ours => "coldpress".to_owned(),
            Self::Kernel(peer) => peer.name(),
        }
    }
}

/// One run.
pub(super) struct Turn {
    /// The JSON that the program printed; null when a process was killed.
    pub(super) printed: Value,
    /// The most that the pool beside the limit held.
    pub(super) pool: Bytes,
    /// The most memory that was held in total.
    pub(super) held: Bytes,
    /// The number of processes that the kernel killed.
    pub(super) kills: u64,
    /// The share of the machine's processors that others had.
    pub(super) others: f64,
    /// The statistics of `coldpress run --stats`.
    pub(super) stats: Value,
}

impl Turn {
    /// Returns the share of the processors that others had; 0 when a process was killed, which
    /// counts whoever had them.
    pub(super) fn others(&self) -> f64 {
        if self.kills > 0 { 0.0 } else { self.others }
    }
}

/// All turns of one contestant.
pub(super) struct Line {
    pub(super) contestant: Contestant,
    /// The limit of the cgroup, or the budget of coldpress.
    pub(super) limit: Bytes,
    pub(super) turns: Vec<Turn>,
    /// The shares of the processors that others had in turns that do not count.
    pub(super) thrown_away: Vec<f64>,
}

/// A kind of touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) pattern: Pattern,
    /// The share of touches that write.
    pub(super) writes: Percent,
}

impl Work {
    /// Returns touches in each order, with each share of writes.
    pub(super) fn all(writes: &[Percent]) -> Vec<Self> {
        let each = |pattern| writes.iter().map(move |writes| Self { pattern, writes: *writes });
        Pattern::ALL.into_iter().flat_map(each).collect()
    }

    /// Returns reads in an order.
    pub(super) const fn reads(pattern: Pattern) -> Self {
        Self { pattern, writes: Percent(0) }
    }

    /// Random reads: the kind that the figures of single faults refer to.
    pub(super) const UNIFORM: Self = Self::reads(Pattern::Uniform);

    pub(super) fn name(self) -> String {
        let name = self.pattern.name();
        match self.writes {
            Percent(0) => format!("{name}, reads"),
            Percent(writes) => format!("{name}, {writes} % writes"),
        }
    }

    /// Returns the time of a touch in a run, in microseconds.
    pub(super) fn touch_us(self, printed: &Value) -> Result<f64> {
        let found =
            self.of(printed).ok_or_else(|| failed(format!("no figure: {}", self.name())))?;
        Ok(1e6 / number(found, "accesses_per_second")?)
    }

    /// Returns what a run printed of this kind of touches.
    fn of(self, printed: &Value) -> Option<&Value> {
        printed["works"]
            .as_array()?
            .iter()
            .find(|work| work["pattern"] == self.pattern.name() && work["writes"] == self.writes.0)
    }
}

impl Line {
    pub(super) fn new(contestant: Contestant, limit: Bytes) -> Self {
        Self { contestant, limit, turns: Vec::new(), thrown_away: Vec::new() }
    }

    /// Returns the figure that `of` finds in what the turns printed of a work; `None` when all
    /// turns have kills.
    pub(super) fn of_work(&self, work: Work, of: impl Fn(&Value) -> Option<f64>) -> Option<Sample> {
        let works = self.turns.iter().filter_map(|turn| work.of(&turn.printed));
        Sample::new(works.filter_map(of))
    }

    /// Returns the touches a second.
    pub(super) fn speed(&self, work: Work) -> Option<f64> {
        self.of_work(work, |found| found["accesses_per_second"].as_f64())
            .as_ref()
            .map(Sample::median)
    }

    /// Returns a time of one touch, in microseconds, by its key.
    pub(super) fn time_us(&self, work: Work, key: &str) -> Option<f64> {
        let us = |found: &Value| Some(found[key].as_f64()? / 1000.0);
        self.of_work(work, us).as_ref().map(Sample::median)
    }

    /// Returns the cost of a fault in microseconds: elapsed time for `slow_ns`, the time of all
    /// processors for `cpu_seconds`.
    pub(super) fn per_fault_us(&self, work: Work, key: &str) -> Option<f64> {
        let unit = if key == "cpu_seconds" { 1e6 } else { 1e-3 };
        let us = |found: &Value| {
            let slow = found["slow"].as_f64().filter(|slow| *slow > 0.0)?;
            Some(found[key].as_f64()? * unit / slow)
        };
        self.of_work(work, us).as_ref().map(Sample::median)
    }

    /// Returns the time of all processors for a touch, in microseconds, faults and hits alike.
    pub(super) fn cpu_us(&self, work: Work) -> Option<f64> {
        let us = |found: &Value| {
            Some(found["cpu_seconds"].as_f64()? * 1e6 / found["accesses"].as_f64()?)
        };
        self.of_work(work, us).as_ref().map(Sample::median)
    }

    /// Returns the number of processors that the contestant had, on average.
    pub(super) fn processors(&self, work: Work) -> Option<f64> {
        let processors = |found: &Value| {
            let per_touch = found["cpu_seconds"].as_f64()? / found["accesses"].as_f64()?;
            Some(per_touch * found["accesses_per_second"].as_f64()?)
        };
        self.of_work(work, processors).as_ref().map(Sample::median)
    }

    /// Returns the share of touches that were faults, judged by their time.
    pub(super) fn faults(&self, work: Work) -> Option<f64> {
        let share = |found: &Value| Some(found["slow"].as_f64()? / found["accesses"].as_f64()?);
        self.of_work(work, share).as_ref().map(Sample::median)
    }

    /// Returns the pages filled in a second, over the later half.
    pub(super) fn fill_speed(&self) -> Option<f64> {
        let fills = self.turns.iter().map(|turn| &turn.printed["fill"]);
        let speeds =
            fills.filter_map(|fill| Some(fill["pages"].as_f64()? / fill["seconds"].as_f64()?));
        Sample::new(speeds).as_ref().map(Sample::median)
    }

    /// Returns the median of a size.
    pub(super) fn size(&self, of: impl Fn(&Turn) -> Bytes) -> Bytes {
        let sizes = Sample::new(self.turns.iter().map(|turn| of(turn).0 as f64));
        Bytes(sizes.map_or(0.0, |sample| sample.median()) as usize)
    }

    /// Returns the median of the shares that others had in turns that count.
    pub(super) fn others(&self) -> Option<f64> {
        Sample::new(self.turns.iter().map(Turn::others)).map(|sample| sample.median())
    }

    pub(super) fn kills(&self) -> usize {
        self.turns.iter().filter(|turn| turn.kills > 0).count()
    }

    fn json(&self) -> Value {
        let turns = self.turns.iter().map(|turn| {
            let Turn { printed, pool, held, kills, others, stats } = turn;
            json!({ "seen": printed, "pool_bytes": pool.0, "held_bytes": held.0, "kills": kills,
                "others": others, "stats": stats })
        });
        json!({
            "contestant": self.contestant.name(),
            "limit_bytes": self.limit.0,
            "turns": turns.collect::<Vec<_>>(),
            "thrown_away": self.thrown_away,
        })
    }
}

/// What all contestants have in common in a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setting {
    /// The pages that the data are copies of.
    pub(super) pages: Kind,
    pub(super) share: Share,
    pub(super) threads: u32,
}

impl Setting {
    /// Returns the words for the setting in tables.
    pub(super) fn title(self) -> String {
        let Self { pages, share, threads } = self;
        format!("{}, {}, {}", pages.name(), share.name(), threads_text(threads))
    }
}

/// Returns a number of threads in words.
pub(super) fn threads_text(threads: u32) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// All contestants in one setting.
pub(super) struct Block {
    pub(super) setting: Setting,
    /// The kinds of touches that each turn measured.
    pub(super) works: Vec<Work>,
    pub(super) lines: Vec<Line>,
}

impl Block {
    /// Returns the line of a contestant.
    pub(super) fn line(&self, contestant: Contestant) -> Option<&Line> {
        self.lines.iter().find(|line| line.contestant == contestant)
    }

    /// Returns our figure relative to that of another contestant.
    pub(super) fn ratio(
        &self,
        other: Contestant,
        of: impl Fn(&Line) -> Option<f64>,
    ) -> Option<f64> {
        Some(of(self.line(Contestant::Ours)?)? / of(self.line(other)?)?)
    }

    /// Returns the block for programs, as JSON.
    pub(super) fn json(&self) -> Value {
        json!({
            "pages": self.setting.pages.name(),
            "share": self.setting.share.name(),
            "threads": self.setting.threads,
            "lines": self.lines.iter().map(Line::json).collect::<Vec<_>>(),
        })
    }
}
