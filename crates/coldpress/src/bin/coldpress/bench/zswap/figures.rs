//! What turns told, and what they come to.

use coldpress_bench::statistics::Sample;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::options::Contestant;

/// What a run came to whose jobs all came to their ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// Pages that came from the disk.
    pub(super) pages_in: u64,
    /// Pages that went there.
    pub(super) pages_out: u64,
    /// Faults that waited for a page that was not in place, from wherever it came.
    pub(super) faults: u64,
    /// What the disk moved for it, both ways.
    pub(super) disk: Bytes,
    /// From the start to the end.
    pub(super) seconds: f64,
    /// All processors together.
    pub(super) cpu_seconds: f64,
}

impl Figures {
    /// Pages in and out, and faults: the sum of the reference's table.
    pub(super) fn sum(&self) -> f64 {
        self.disk_pages() + self.faults as f64
    }

    /// Pages in and out.
    pub(super) fn disk_pages(&self) -> f64 {
        (self.pages_in + self.pages_out) as f64
    }

    /// Processors that were busy, in per cent of one.
    pub(super) fn cpu_percent(&self) -> f64 {
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
pub(super) struct Turn {
    /// Nothing when the kernel killed a process.
    pub(super) figures: Option<Figures>,
    /// The most that the pool beside the limit held.
    pub(super) pool: Bytes,
    /// The most that was held in all.
    pub(super) held: Bytes,
    /// Processes that the kernel killed.
    pub(super) kills: u64,
    /// What `coldpress run --stats` told.
    pub(super) stats: Value,
}

/// All turns of one contestant.
pub(super) struct Line {
    pub(super) contestant: Contestant,
    /// The cgroup's, or our budget.
    pub(super) limit: Bytes,
    pub(super) turns: Vec<Turn>,
}

impl Line {
    /// A figure of all turns that have figures.
    pub(super) fn sample(&self, of: impl Fn(&Figures) -> f64) -> Option<Sample> {
        Sample::new(self.turns.iter().filter_map(|turn| turn.figures.as_ref()).map(of))
    }

    /// The median of a figure.
    pub(super) fn median(&self, of: impl Fn(&Figures) -> f64) -> Option<f64> {
        self.sample(of).map(|sample| sample.median())
    }

    /// The median of what was held in all.
    pub(super) fn held(&self) -> Bytes {
        let held = Sample::new(self.turns.iter().map(|turn| turn.held.0 as f64));
        Bytes(held.map_or(0.0, |sample| sample.median()) as usize)
    }

    /// Turns in which the kernel killed.
    pub(super) fn kills(&self) -> usize {
        self.turns.iter().filter(|turn| turn.kills > 0).count()
    }

    fn json(&self) -> Value {
        let turns = self.turns.iter().map(|turn| {
            json!({
                "figures": turn.figures.as_ref().map(Figures::json),
                "pool_bytes": turn.pool.0,
                "held_bytes": turn.held.0,
                "kills": turn.kills,
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
pub(super) struct Block {
    pub(super) jobs: u32,
    pub(super) lines: Vec<Line>,
}

impl Block {
    /// The line of a contestant.
    pub(super) fn line(&self, contestant: Contestant) -> Option<&Line> {
        self.lines.iter().find(|line| line.contestant == contestant)
    }

    /// The median of a figure of one contestant by that of another.
    pub(super) fn ratio(
        &self,
        one: Contestant,
        other: Contestant,
        of: impl Fn(&Figures) -> f64,
    ) -> Option<f64> {
        let ratio = self.line(one)?.median(&of)? / self.line(other)?.median(&of)?;
        ratio.is_finite().then_some(ratio)
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "jobs": self.jobs,
            "contestants": self.lines.iter().map(Line::json).collect::<Vec<_>>(),
        })
    }
}
