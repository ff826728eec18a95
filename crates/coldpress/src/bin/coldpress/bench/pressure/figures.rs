//! What turns told, and what they come to.

use coldpress_bench::statistics::Sample;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::Contestant;

/// What a run came to that did all of the work.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Figures {
    /// Pages that came from the disk.
    pub(in crate::bench) pages_in: u64,
    /// Pages that went there.
    pub(in crate::bench) pages_out: u64,
    /// Faults that waited for a page from a pool or the disk.
    pub(in crate::bench) faults: u64,
    /// What the disk moved for it, both ways.
    pub(in crate::bench) disk: Bytes,
    /// From the start to the end.
    pub(in crate::bench) seconds: f64,
    /// All processors together.
    pub(in crate::bench) cpu_seconds: f64,
}

impl Figures {
    /// Pages in and out, and faults: the sum of the reference's table.
    pub(in crate::bench) fn sum(&self) -> f64 {
        self.disk_pages() + self.faults as f64
    }

    /// Pages in and out.
    pub(in crate::bench) fn disk_pages(&self) -> f64 {
        (self.pages_in + self.pages_out) as f64
    }

    /// Processors that were busy, in per cent of one.
    pub(in crate::bench) fn cpu_percent(&self) -> f64 {
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
pub(in crate::bench) struct Turn {
    /// Nothing when the kernel killed a process, or a part of the work failed.
    pub(in crate::bench) figures: Option<Figures>,
    /// The most that the pool beside the limit held.
    pub(in crate::bench) pool: Bytes,
    /// The most that was held in all.
    pub(in crate::bench) held: Bytes,
    /// Processes that the kernel killed.
    pub(in crate::bench) kills: u64,
    /// Parts of the work that failed.
    pub(in crate::bench) failed: u32,
    /// What `coldpress run --stats` told.
    pub(in crate::bench) stats: Value,
}

/// All turns of one contestant.
pub(in crate::bench) struct Line {
    pub(in crate::bench) contestant: Contestant,
    /// The cgroup's, or our budget.
    pub(in crate::bench) limit: Bytes,
    pub(in crate::bench) turns: Vec<Turn>,
}

impl Line {
    /// A figure of all turns that have figures.
    pub(in crate::bench) fn sample(&self, of: impl Fn(&Figures) -> f64) -> Option<Sample> {
        Sample::new(self.turns.iter().filter_map(|turn| turn.figures.as_ref()).map(of))
    }

    /// The median of a figure.
    pub(in crate::bench) fn median(&self, of: impl Fn(&Figures) -> f64) -> Option<f64> {
        self.sample(of).map(|sample| sample.median())
    }

    /// The median of what was held in all.
    pub(in crate::bench) fn held(&self) -> Bytes {
        let held = Sample::new(self.turns.iter().map(|turn| turn.held.0 as f64));
        Bytes(held.map_or(0.0, |sample| sample.median()) as usize)
    }

    /// Turns in which the kernel killed.
    pub(in crate::bench) fn kills(&self) -> usize {
        self.turns.iter().filter(|turn| turn.kills > 0).count()
    }

    /// Parts of the work that failed in all turns.
    pub(in crate::bench) fn failed(&self) -> u32 {
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
pub(in crate::bench) struct Block {
    pub(in crate::bench) jobs: u32,
    pub(in crate::bench) lines: Vec<Line>,
}

impl Block {
    /// The line of a contestant.
    pub(in crate::bench) fn line(&self, contestant: Contestant) -> Option<&Line> {
        self.lines.iter().find(|line| line.contestant == contestant)
    }

    /// The median of a figure of one contestant by that of another.
    pub(in crate::bench) fn ratio(
        &self,
        one: Contestant,
        other: Contestant,
        of: impl Fn(&Figures) -> f64,
    ) -> Option<f64> {
        let ratio = self.line(one)?.median(&of)? / self.line(other)?.median(&of)?;
        ratio.is_finite().then_some(ratio)
    }

    pub(in crate::bench) fn json(&self) -> Value {
        json!({
            "jobs": self.jobs,
            "contestants": self.lines.iter().map(Line::json).collect::<Vec<_>>(),
        })
    }
}
