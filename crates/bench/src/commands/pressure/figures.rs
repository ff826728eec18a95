//! The figures of turns, and the medians of the figures.

use crate::statistics::Sample;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::Contestant;

/// The figures of a run that did all of the work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// The pages that came from the disk.
    pub(crate) pages_in: u64,
    /// The pages that went to the disk.
    pub(crate) pages_out: u64,
    /// The faults that waited for a page from a pool or the disk.
    pub(crate) faults: u64,
    /// The bytes that the disk moved for the run, both ways.
    pub(crate) disk: Bytes,
    /// The seconds from the start to the end.
    pub(crate) seconds: f64,
    /// The CPU time of all processors together.
    pub(crate) cpu_seconds: f64,
}

impl Figures {
    /// Returns the pages in and out and the faults: the sum in the table of zswap v4's mail.
    pub(crate) fn sum(&self) -> f64 {
        self.disk_pages() + self.faults as f64
    }

    /// Returns the pages in and out.
    pub(crate) fn disk_pages(&self) -> f64 {
        (self.pages_in + self.pages_out) as f64
    }

    /// Returns the busy processors, in per cent of one.
    pub(crate) fn cpu_percent(&self) -> f64 {
        100.0 * self.cpu_seconds / self.seconds
    }

    fn json(&self) -> Value {
        json!({
            "pages_in": self.pages_in,
            "pages_out": self.pages_out,
            "faults": self.faults,
            "disk_bytes": self.disk.0,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
        })
    }
}

/// One run.
pub(crate) struct Turn {
    /// The figures; `None` when the kernel killed a process, or when a part of the work failed.
    pub(crate) figures: Option<Figures>,
    /// The most that the pool beside the limit held.
    pub(crate) pool: Bytes,
    /// The most memory that was held in total.
    pub(crate) held: Bytes,
    /// The number of processes that the kernel killed.
    pub(crate) kills: u64,
    /// The number of parts of the work that failed.
    pub(crate) failed: u32,
    /// The statistics of `coldpress run --stats`.
    pub(crate) stats: Value,
}

/// All turns of one contestant.
pub(crate) struct Line {
    pub(crate) contestant: Contestant,
    /// The limit of the cgroup, or the budget of coldpress.
    pub(crate) limit: Bytes,
    pub(crate) turns: Vec<Turn>,
}

impl Line {
    /// Returns a figure of all turns that have figures.
    pub(crate) fn sample(&self, of: impl Fn(&Figures) -> f64) -> Option<Sample> {
        Sample::new(self.turns.iter().filter_map(|turn| turn.figures.as_ref()).map(of))
    }

    /// Returns the median of a figure.
    pub(crate) fn median(&self, of: impl Fn(&Figures) -> f64) -> Option<f64> {
        self.sample(of).map(|sample| sample.median())
    }

    /// Returns the median of the memory held in total.
    pub(crate) fn held(&self) -> Bytes {
        let held = Sample::new(self.turns.iter().map(|turn| turn.held.0 as f64));
        Bytes(held.map_or(0.0, |sample| sample.median()) as usize)
    }

    /// Returns the number of turns in which the kernel killed a process.
    pub(crate) fn kills(&self) -> usize {
        self.turns.iter().filter(|turn| turn.kills > 0).count()
    }

    /// Returns the number of parts of the work that failed in all turns.
    pub(crate) fn failed(&self) -> u32 {
        self.turns.iter().map(|turn| turn.failed).sum()
    }

    fn json(&self) -> Value {
        let turns = self.turns.iter().map(|turn| {
            json!({
                "figures": turn.figures.as_ref().map(Figures::json),
                "pool_bytes": turn.pool.0,
                "held_bytes": turn.held.0,
                "kills": turn.kills,
                "failed": turn.failed,
                "stats": turn.stats,
            })
        });
        json!({
            "contestant": self.contestant.name(),
            "limit_bytes": self.limit.0,
            "turns": turns.collect::<Vec<_>>(),
        })
    }
}

/// All contestants with one number of jobs at a time.
pub(crate) struct Block {
    pub(crate) jobs: u32,
    pub(crate) lines: Vec<Line>,
}

impl Block {
    /// Returns the line of a contestant.
    pub(crate) fn line(&self, contestant: Contestant) -> Option<&Line> {
        self.lines.iter().find(|line| line.contestant == contestant)
    }

    /// Returns the median of a figure of contestant `one` relative to that of contestant `other`.
    pub(crate) fn ratio(
        &self,
        one: Contestant,
        other: Contestant,
        of: impl Fn(&Figures) -> f64,
    ) -> Option<f64> {
        let ratio = self.line(one)?.median(&of)? / self.line(other)?.median(&of)?;
        ratio.is_finite().then_some(ratio)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "jobs": self.jobs,
            "contestants": self.lines.iter().map(Line::json).collect::<Vec<_>>(),
        })
    }
}
