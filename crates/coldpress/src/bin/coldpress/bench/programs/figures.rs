//! What turns of a program took, and what they come to.

use coldpress_bench::statistics::Sample;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use crate::bench::swap::figures::Contestant;
use crate::bench::swap::goals::JUDGE;

/// One run.
pub(super) struct Turn {
    pub(super) seconds: f64,
    /// Of all its processes, with the kernel's work for them and our threads in them.
    pub(super) cpu_seconds: f64,
    /// The most that the pool beside the limit held.
    pub(super) pool: Bytes,
    /// The most that was held in all.
    pub(super) held: Bytes,
    /// Processes that the kernel killed: then times say nothing.
    pub(super) kills: u64,
}

/// All turns of one contestant.
pub(super) struct Line {
    pub(super) contestant: Contestant,
    /// The cgroup's, or our budget.
    pub(super) limit: Bytes,
    pub(super) turns: Vec<Turn>,
}

impl Line {
    pub(super) fn new(contestant: Contestant, limit: Bytes) -> Self {
        Self { contestant, limit, turns: Vec::new() }
    }

    /// Turns in which the kernel killed something.
    pub(super) fn kills(&self) -> usize {
        self.turns.iter().filter(|turn| turn.kills > 0).count()
    }

    fn json(&self) -> Value {
        json!({
            "contestant": self.contestant.name(),
            "limit_bytes": self.limit.0,
            "turns": self.turns.iter().map(Turn::json).collect::<Vec<_>>(),
        })
    }
}

impl Turn {
    fn json(&self) -> Value {
        let Self { seconds, cpu_seconds, pool, held, kills } = self;
        json!({ "seconds": seconds, "cpu_seconds": cpu_seconds, "pool_bytes": pool.0,
            "held_bytes": held.0, "kills": kills })
    }
}

/// A figure of turns that were not killed; nothing when all were.
pub(super) fn sample(turns: &[Turn], of: impl Fn(&Turn) -> f64) -> Option<Sample> {
    Sample::new(turns.iter().filter(|turn| turn.kills == 0).map(of))
}

/// All turns of one program.
pub(super) struct Block {
    pub(super) program: &'static str,
    /// The most that it holds by itself.
    pub(super) peak: Bytes,
    /// Its turns without any limit.
    pub(super) plain: Vec<Turn>,
    pub(super) lines: Vec<Line>,
}

impl Block {
    /// Our median by the judge's; nothing when all turns of the judge were killed.
    pub(super) fn ratio(&self, of: impl Fn(&Turn) -> f64) -> Option<f64> {
        let of = |contestant| {
            let line = self.lines.iter().find(|line| line.contestant == contestant)?;
            sample(&line.turns, &of).as_ref().map(Sample::median)
        };
        Some(of(Contestant::Ours)? / of(JUDGE)?)
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "program": self.program,
            "peak_bytes": self.peak.0,
            "plain": self.plain.iter().map(Turn::json).collect::<Vec<_>>(),
            "contestants": self.lines.iter().map(Line::json).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(contestant: Contestant, turns: &[(f64, u64)]) -> Line {
        let turn = |(seconds, kills): &(f64, u64)| Turn {
            seconds: *seconds,
            cpu_seconds: 2.0 * seconds,
            pool: Bytes(0),
            held: Bytes(0),
            kills: *kills,
        };
        Line { turns: turns.iter().map(turn).collect(), ..Line::new(contestant, Bytes(0)) }
    }

    #[test]
    fn a_turn_that_was_killed_is_counted_and_has_no_figures() {
        let ours = || line(Contestant::Ours, &[(3.0, 0), (5.0, 0), (3.0, 0)]);
        let block = |judge| Block {
            program: "a",
            peak: Bytes(0),
            plain: Vec::new(),
            lines: vec![ours(), judge],
        };
        let half = block(line(JUDGE, &[(0.1, 2), (6.0, 0)]));
        assert_eq!(half.ratio(|turn| turn.seconds), Some(0.5));
        assert_eq!(half.lines[1].kills(), 1);
        let none = block(line(JUDGE, &[(0.1, 1)]));
        assert_eq!(none.ratio(|turn| turn.seconds), None);
    }
}
