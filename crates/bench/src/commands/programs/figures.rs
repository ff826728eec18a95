//! The figures of a program's turns, and the ratios between contestants.

use crate::statistics::Sample;
use coldpress_sys::Bytes;
use serde_json::{Value, json};

use crate::commands::swap::figures::Contestant;
use crate::commands::swap::goals::JUDGE;

/// One run.
pub(crate) struct Turn {
    pub(crate) seconds: f64,
    /// The CPU time of all processes, with the kernel's work for them and coldpress's threads.
    pub(crate) cpu_seconds: f64,
    /// The most that the pool beside the limit held.
    pub(crate) pool: Bytes,
    /// The most memory that was held in total.
    pub(crate) held: Bytes,
    /// The number of processes that the kernel killed; if there is one, the times say nothing.
    pub(crate) kills: u64,
    /// The figures that the program printed; none when a process was killed.
    pub(crate) figures: Vec<f64>,
}

/// All turns of one contestant.
pub(crate) struct Line {
    pub(crate) contestant: Contestant,
    /// The limit of the cgroup, or the budget of coldpress.
    pub(crate) limit: Bytes,
    pub(crate) turns: Vec<Turn>,
}

impl Line {
    pub(crate) fn new(contestant: Contestant, limit: Bytes) -> Self {
        Self { contestant, limit, turns: Vec::new() }
    }

    /// Returns the number of turns in which the kernel killed a process.
    pub(crate) fn kills(&self) -> usize {
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
        let Self { seconds, cpu_seconds, pool, held, kills, figures } = self;
        json!({ "seconds": seconds, "cpu_seconds": cpu_seconds, "pool_bytes": pool.0,
            "held_bytes": held.0, "kills": kills, "figures": figures })
    }
}

/// Returns the output of a run without the lines of its figures, and these figures in the order of
/// `names`. The error is the name of a missing figure.
pub(crate) fn cut<'a>(printed: &[u8], names: &[&'a str]) -> Result<(Vec<u8>, Vec<f64>), &'a str> {
    let mut output = Vec::new();
    let mut found = vec![None; names.len()];
    for line in printed.split_inclusive(|byte| *byte == b'\n') {
        let figure = str::from_utf8(line).ok().and_then(figure);
        let named = figure.and_then(|(name, value)| {
            names.iter().position(|known| *known == name).map(|index| (index, value))
        });
        match named {
            Some((index, value)) => found[index] = Some(value),
            None => output.extend_from_slice(line),
        }
    }
    let figures = found.into_iter().zip(names).map(|(figure, name)| figure.ok_or(*name));
    Ok((output, figures.collect::<Result<_, _>>()?))
}

/// Returns name and value of a line `figure NAME NUMBER`.
fn figure(line: &str) -> Option<(&str, f64)> {
    let (name, value) = line.trim_end().strip_prefix("figure ")?.split_once(' ')?;
    let value: f64 = value.parse().ok()?;
    value.is_finite().then_some((name, value))
}

/// Returns a figure of the turns without kills; `None` when all turns have kills.
pub(crate) fn sample(turns: &[Turn], of: impl Fn(&Turn) -> f64) -> Option<Sample> {
    Sample::new(turns.iter().filter(|turn| turn.kills == 0).map(of))
}

/// All turns of one program.
pub(crate) struct Block {
    pub(crate) program: &'static str,
    /// The names of the figures that the program prints.
    pub(crate) figures: &'static [&'static str],
    /// The most memory that the program holds by itself.
    pub(crate) peak: Bytes,
    /// The turns without any limit.
    pub(crate) plain: Vec<Turn>,
    pub(crate) lines: Vec<Line>,
}

impl Block {
    /// Returns our median relative to the judge's; `None` when all turns of the judge have kills.
    pub(crate) fn ratio(&self, of: impl Fn(&Turn) -> f64) -> Option<f64> {
        let of = |contestant| {
            let line = self.lines.iter().find(|line| line.contestant == contestant)?;
            sample(&line.turns, &of).as_ref().map(Sample::median)
        };
        Some(of(Contestant::Ours)? / of(JUDGE)?)
    }

    /// Returns the block for programs, as JSON.
    pub(crate) fn json(&self) -> Value {
        json!({
            "program": self.program,
            "figures": self.figures,
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
            figures: Vec::new(),
        };
        Line { turns: turns.iter().map(turn).collect(), ..Line::new(contestant, Bytes(0)) }
    }

    #[test]
    fn a_turn_that_was_killed_is_counted_and_has_no_figures() {
        let ours = || line(Contestant::Ours, &[(3.0, 0), (5.0, 0), (3.0, 0)]);
        let block = |judge| Block {
            program: "a",
            figures: &[],
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

    #[test]
    fn figures_are_cut_out_and_all_else_is_left_as_it_is() {
        let printed = b"one\nfigure p99 0.25\nfigure other 3\n\xff\nfigure tps 12\nfigure p99 x";
        let (output, figures) = cut(printed, &["tps", "p99"]).unwrap();
        assert_eq!(output, b"one\nfigure other 3\n\xff\nfigure p99 x");
        assert_eq!(figures, [12.0, 0.25]);
        assert_eq!(cut(printed, &["tps", "p50"]), Err("p50"));
        assert_eq!(cut(b"figure p50 nan\n", &["p50"]), Err("p50"));
    }
}
