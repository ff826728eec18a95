//! What the processes of coldpress hold over a long time, and whether that grows.
//!
//! A leak of a page or a descriptor an hour is seen by no test that takes seconds. So each process
//! is looked at once a round, and the last third of its looks is compared with the first: what has
//! grown was never, in the last third, as low as it was at most in the first. Noise goes both ways,
//! and a table that fills up to its limit stops; only what goes on growing fails.

use std::fmt::{self, Write};
use std::fs;

/// The looks that a judgement needs: three thirds of two.
pub const LOOKS_MIN: usize = 6;

/// A figure of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Anonymous resident memory (`RssAnon` of proc_pid_status(5)), in KiB.
    AnonKib,
    /// Open descriptors.
    Descriptors,
    /// Mappings of its memory.
    Mappings,
    /// Threads.
    Threads,
}

impl Figure {
    /// All of them, in the order of a [`Look`].
    pub const ALL: [Self; 4] = [Self::AnonKib, Self::Descriptors, Self::Mappings, Self::Threads];

    /// Returns what may come on top of `before` without being a leak: an allocator keeps some of
    /// what it was given, and a thread or a descriptor may be there while we look.
    fn slack(self, before: u64) -> u64 {
        match self {
            Self::AnonKib => 256 + before / 50,
            Self::Mappings => 8 + before / 50,
            Self::Descriptors => 2,
            Self::Threads => 1,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::AnonKib => "KiB",
            Self::Descriptors => "descriptors",
            Self::Mappings => "mappings",
            Self::Threads => "threads",
        }
    }
}

/// One look at a process: its figures.
pub type Look = [u64; Figure::ALL.len()];

/// Looks at `process`. Returns `None` when it is gone.
pub fn look(process: u32) -> Option<Look> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let number = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count();
    let maps = fs::read(format!("/proc/{process}/maps")).ok()?;
    let mappings = maps.iter().filter(|byte| **byte == b'\n').count();
    Some([number("RssAnon:")?, descriptors as u64, mappings as u64, number("Threads:")?])
}

/// The looks at one process.
#[derive(Clone, Debug)]
pub struct Record {
    /// What the process is.
    pub name: String,
    /// The looks, the first one first.
    pub looks: Vec<Look>,
}

impl Record {
    /// Makes a record without looks.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), looks: Vec::new() }
    }

    /// Returns what became of a figure: the most of the first third, the least of the last, and
    /// whether it has grown. Returns `None` for less than [`LOOKS_MIN`] looks.
    pub fn judge(&self, figure: Figure) -> Option<Judgement> {
        if self.looks.len() < LOOKS_MIN {
            return None;
        }
        let values = |looks: &[Look]| looks.iter().map(|look| look[figure as usize]).collect();
        let third = self.looks.len() / 3;
        let first: Vec<u64> = values(&self.looks[..third]);
        let last: Vec<u64> = values(&self.looks[self.looks.len() - third..]);
        let (before, after) = (first.iter().max()?, last.iter().min()?);
        let grew = *after > *before + figure.slack(*before);
        Some(Judgement { before: *before, after: *after, grew })
    }
}

/// What became of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The most of the first third.
    pub before: u64,
    /// The least of the last third.
    pub after: u64,
    /// Whether the figure has grown by more than noise.
    pub grew: bool,
}

/// All records, shown as a table.
#[derive(Debug, Default)]
pub struct Records(pub Vec<Record>);

impl Records {
    /// Returns what has grown, a line each.
    pub fn grown(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for record in &self.0 {
            for figure in Figure::ALL {
                let Some(Judgement { before, after, grew: true }) = record.judge(figure) else {
                    continue;
                };
                let (name, unit) = (&record.name, figure.name());
                lines.push(format!("{name}: {unit} grew from {before} to {after}"));
            }
        }
        lines
    }
}

impl fmt::Display for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = format!("{:<26}{:>7}", "process", "looks");
        for figure in Figure::ALL {
            write!(line, "{:>18}", figure.name())?;
        }
        writeln!(f, "{line}  (most of the first third -> least of the last)")?;
        for record in &self.0 {
            let mut line = format!("{:<26}{:>7}", record.name, record.looks.len());
            for figure in Figure::ALL {
                let cell = match record.judge(figure) {
                    Some(it) => {
                        let mark = if it.grew { "!" } else { "" };
                        format!("{} -> {}{mark}", it.before, it.after)
                    }
                    None => "too few".into(),
                };
                write!(line, "{cell:>18}")?;
            }
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a leak is taken for noise, or noise for a leak.

    use super::*;

    fn record(values: impl IntoIterator<Item = u64>) -> Record {
        let mut record = Record::new("keeper");
        record.looks.extend(values.into_iter().map(|value| [5000, value, 100, 3]));
        record
    }

    #[test]
    fn a_leak_is_seen_and_noise_is_not() {
        let grew = |record: &Record| record.judge(Figure::Descriptors).unwrap().grew;
        assert!(grew(&record(10..40)), "one a round");
        assert!(grew(&record((0..30).map(|round| 10 + round / 5))), "one every five rounds");
        assert!(!grew(&record([10; 30])));
        assert!(!grew(&record((0..30).map(|round| 10 + round % 7))), "as many each week");
        assert!(!grew(&record((10..40).rev())), "fewer");
        let filled = record([10, 14, 18].into_iter().chain([18; 27]));
        assert!(!grew(&filled), "a table that filled in the first third");
        assert_eq!(record([10; 5]).judge(Figure::AnonKib), None, "too few looks");
    }

    #[test]
    fn what_grew_is_named_and_marked() {
        let records = Records(vec![record(10..40), record([10; 30])]);
        assert_eq!(records.grown(), ["keeper: descriptors grew from 19 to 30"]);
        let table = records.to_string();
        assert_eq!(table.matches("19 -> 30!").count(), 1, "{table}");
        assert_eq!(table.matches('!').count(), 1, "{table}");
    }

    #[test]
    fn a_look_has_all_figures() {
        let [kib, descriptors, mappings, threads] = look(std::process::id()).unwrap();
        assert!(kib > 0 && descriptors > 2 && mappings > 5 && threads > 0);
        assert_eq!(look(u32::MAX), None);
    }
}
