//! The columns of the table: what each shows, how wide it is, and which go where there is no room.

use std::cmp::Ordering;

use super::row::{Figures, Row};

/// The least width of the names.
const NAME_MIN: usize = 12;

/// A column beside the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Process,
    Used,
    Budget,
    Original,
    Compressed,
    Ratio,
    Disk,
    Faults,
    Stall,
}

impl Column {
    /// All columns, from left to right.
    pub(super) const ALL: [Self; 9] = [
        Self::Process,
        Self::Used,
        Self::Budget,
        Self::Original,
        Self::Compressed,
        Self::Ratio,
        Self::Disk,
        Self::Faults,
        Self::Stall,
    ];
    /// The columns in the order in which room is given to them.
    const BY_WORTH: [Self; 9] = [
        Self::Used,
        Self::Faults,
        Self::Stall,
        Self::Ratio,
        Self::Original,
        Self::Budget,
        Self::Compressed,
        Self::Process,
        Self::Disk,
    ];

    /// Returns the columns that have room in a line, and the width of the names beside them.
    pub(super) fn fitting(width: usize) -> (Vec<Self>, usize) {
        let mut left = width.saturating_sub(NAME_MIN);
        let mut taken = Vec::new();
        for column in Self::BY_WORTH {
            // What is worth less does not take the place of what is worth more.
            let Some(rest) = left.checked_sub(column.width()) else { break };
            left = rest;
            taken.push(column);
        }
        let shown = Self::ALL.into_iter().filter(|column| taken.contains(column)).collect();
        (shown, NAME_MIN + left)
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Process => "pid",
            Self::Used => "used",
            Self::Budget => "budget",
            Self::Original => "original",
            Self::Compressed => "compr.",
            Self::Ratio => "ratio",
            Self::Disk => "disk",
            Self::Faults => "faults/s",
            Self::Stall => "stall%",
        }
    }

    /// Returns the width, with the space before it.
    pub(super) const fn width(self) -> usize {
        match self {
            // The largest number of a process has seven digits (PID_MAX_LIMIT).
            Self::Process => 8,
            Self::Used | Self::Ratio | Self::Disk => 6,
            _ => self.title().len() + 1,
        }
    }

    /// Returns whether the figure is one of a joined process: others have no pages away.
    pub(super) const fn is_of_joined(self) -> bool {
        !matches!(self, Self::Process | Self::Used | Self::Budget)
    }

    /// Returns what the column shows of a row.
    pub(super) fn cell(self, row: &Row) -> String {
        let Figures { used, original, compressed, disk, faults, stall, .. } = row.figures;
        match self {
            Self::Process => row.id.number().to_string(),
            // A run that has not answered holds something, too.
            Self::Used if used == 0 && row.note.is_some() => String::new(),
            Self::Used => size(used),
            Self::Budget => row.budget.map(size).unwrap_or_default(),
            Self::Original => size(original),
            Self::Compressed => size(compressed),
            Self::Ratio => row.figures.ratio().map_or("-".to_owned(), |it| format!("{it:.2}")),
            Self::Disk => size(disk),
            Self::Faults => faults.map_or("-".to_owned(), count),
            Self::Stall => stall.map_or("-".to_owned(), |it| format!("{it:.1}")),
        }
    }

    /// Compares two rows by this column, the smaller first.
    pub(super) fn compare(self, one: &Row, other: &Row) -> Ordering {
        let key = |row: &Row| {
            let figures = &row.figures;
            match self {
                Self::Process => f64::from(row.id.number()),
                Self::Used => figures.used as f64,
                Self::Budget => row.budget.unwrap_or(0) as f64,
                Self::Original => figures.original as f64,
                Self::Compressed => figures.compressed as f64,
                Self::Ratio => figures.ratio().unwrap_or(0.0),
                Self::Disk => figures.disk as f64,
                Self::Faults => figures.faults.unwrap_or(0.0),
                Self::Stall => figures.stall.unwrap_or(0.0),
            }
        };
        key(one).total_cmp(&key(other))
    }

    /// Returns the column that is so many steps to the right, round the ends.
    pub(super) fn step(self, by: isize) -> Self {
        let at = Self::ALL.iter().position(|it| *it == self).unwrap_or(0).cast_signed() + by;
        Self::ALL[at.rem_euclid(Self::ALL.len().cast_signed()).cast_unsigned()]
    }
}

/// Formats bytes in five characters at most.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes == 0 {
        return "0".to_owned();
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    // Below that, two digits would say less than the eye takes in.
    let digits = usize::from(value < 9.95 && unit > 0);
    format!("{value:.digits$}{}", UNITS[unit])
}

/// Formats a count in seven characters at most.
pub(super) fn count(value: f64) -> String {
    match value {
        100_000.0.. => format!("{:.0}K", value / 1000.0),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short_and_right() {
        for (bytes, text) in [
            (0, "0"),
            (1, "0K"),
            (4096, "4K"),
            (1023 << 10, "1023K"),
            (1 << 20, "1.0M"),
            (10 << 20, "10M"),
            (1536 << 20, "1.5G"),
            (1023 << 30, "1023G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
            assert!(size(bytes).len() < Column::Used.width());
        }
        assert_eq!(count(99_999.4), "99999");
        assert_eq!(count(123_456.0), "123K");
    }

    #[test]
    fn a_line_of_80_has_all_columns_and_a_narrow_one_the_best() {
        let (all, name) = Column::fitting(80);
        assert_eq!(all, Column::ALL);
        assert!(name >= NAME_MIN);
        for width in 0..200 {
            let (columns, name) = Column::fitting(width);
            let sum = name + columns.iter().map(|it| it.width()).sum::<usize>();
            assert!(sum == width.max(NAME_MIN), "{width}: {columns:?}");
        }
        let narrow = Column::fitting(40).0;
        assert_eq!(narrow, [Column::Used, Column::Ratio, Column::Faults, Column::Stall]);
    }

    #[test]
    fn steps_go_round() {
        assert_eq!(Column::Process.step(-1), Column::Stall);
        assert_eq!(Column::Stall.step(1), Column::Process);
    }
}
