//! The lines of the table, for the screen and for scripts alike.

use ratatui::text::Span;

use super::column::Column;
use super::model::{Order, rows};
use super::row::{Fold, Row};
use super::sample::Sample;

/// What every table says below it.
const SCOPE: &str = "not seen: other network name spaces";
/// The least width of a table for scripts: names of programs have 15 characters (TASK_COMM_LEN).
const SCRIPT_WIDTH: usize = 100;
/// The depth from which rows are not indented any more.
const DEPTH_SHOWN: usize = 12;

/// Returns the line of titles. That of the column that sorts is in capitals.
pub(super) fn head(order: &Order, width: usize) -> String {
    let (columns, name) = Column::fitting(width);
    let mut line = pad("program", name);
    for column in columns {
        let title = column.title();
        let title = if column == order.by { title.to_uppercase() } else { title.to_owned() };
        line.push_str(&format!("{title:>width$}", width = column.width()));
    }
    line
}

/// Returns the line of a row. A note may make it longer than `width`.
pub(super) fn line(row: &Row, width: usize) -> String {
    let (columns, name) = Column::fitting(width);
    let sign = match row.fold {
        Fold::Leaf => "  ",
        Fold::Open => "- ",
        Fold::Closed => "+ ",
    };
    let indent = "  ".repeat(row.depth.min(DEPTH_SHOWN));
    let mut line = pad(&format!("{indent}{sign}{}", row.name), name);
    let has_figures = row.note.is_none();
    for column in columns.iter().filter(|column| has_figures || !column.is_of_joined()) {
        line.push_str(&format!("{:>width$}", column.cell(row), width = column.width()));
    }
    if let Some(note) = &row.note {
        line.push_str("  ");
        line.push_str(note);
    }
    line
}

/// Returns what is to be said of runs that have no rows.
pub(super) fn unseen(sample: &Sample, order: &Order) -> String {
    match sample.silent.len() {
        1.. if order.shows_silent => SCOPE.to_owned(),
        0 => SCOPE.to_owned(),
        count => format!("{SCOPE}; not shown: {count} (--all)"),
    }
}

/// Returns the whole table as text.
pub(super) fn text(sample: &Sample, order: &Order) -> String {
    let rows = rows(sample, order);
    let longest = |row: &Row| 2 * row.depth.min(DEPTH_SHOWN) + 3 + Span::raw(&row.name).width();
    let (_, spare) = Column::fitting(SCRIPT_WIDTH);
    let more = rows.iter().map(longest).max().unwrap_or(0).saturating_sub(spare);
    let width = SCRIPT_WIDTH + more;
    let mut lines = vec![head(order, width)];
    lines.extend(rows.iter().map(|row| line(row, width)));
    if rows.is_empty() {
        lines.push("no run is seen".to_owned());
    }
    lines.push(unseen(sample, order));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Returns `text` in just so many columns of a terminal.
fn pad(text: &str, width: usize) -> String {
    let (mut line, mut taken) = (String::new(), 0);
    for char in text.chars() {
        let wide = Span::raw(char.to_string()).width();
        if taken + wide > width {
            break;
        }
        line.push(char);
        taken += wide;
    }
    line.extend(std::iter::repeat_n(' ', width - taken));
    line
}

#[cfg(test)]
mod tests {
    //! The risk: figures stand under the wrong title, or a script finds half a line.

    use serde_json::json;

    use super::super::sample::Run;
    use super::*;

    fn sample() -> Sample {
        let tree = json!([
            {
                "process": 4711, "parent": 1, "name": "python3", "joined": true,
                "used_bytes": 33 << 20, "pool_original_bytes": 90 << 20,
                "pool_compressed_bytes": 30 << 20, "disk_held_bytes": 0,
                "faults_per_second": 1234.4, "stall_percent": 12.34,
            },
            {
                "process": 4712, "parent": 4711, "name": "\u{5b57}\u{5b57}", "joined": false,
                "used_bytes": 5 << 20, "why": "is setuid, so its loader leaves the library out",
            },
        ]);
        let document = json!({
            "program": "python3", "budget_bytes": 64 << 20, "used_bytes": 38 << 20, "tree": tree,
        });
        let run = Run { keeper: 4700, document, timeline: None };
        Sample { runs: vec![run], silent: Vec::new() }
    }

    #[test]
    fn figures_stand_below_their_titles() {
        let text = text(&sample(), &Order::new(false));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        let end = |title: &str| lines[0].to_lowercase().find(title).unwrap() + title.len();
        let until = |line: &str, title: &str| {
            line[..end(title)].rsplit(' ').next().unwrap_or_default().to_owned()
        };
        for (title, value) in [
            ("pid", "4711"),
            ("used", "33M"),
            ("original", "90M"),
            ("compr.", "30M"),
            ("ratio", "3.00"),
            ("disk", "0"),
            ("faults/s", "1234"),
            ("stall%", "12.3"),
        ] {
            assert_eq!(until(lines[2], title), value, "{text}");
        }
        assert_eq!(until(lines[1], "budget"), "64M");
        let note = "5.0M         not managed: it is setuid, so its loader leaves the library out";
        assert!(lines[3].ends_with(note), "{text}");
        assert_eq!(lines[4], SCOPE);
    }

    #[test]
    fn names_of_any_script_take_the_room_they_are_given() {
        for width in 0..9 {
            for name in ["abc", "\u{5b57}\u{5b57}\u{5b57}", "", "e\u{301}e"] {
                assert_eq!(Span::raw(pad(name, width)).width(), width, "{name}");
            }
        }
    }

    #[test]
    fn without_a_run_the_table_says_so() {
        let text = text(&Sample::default(), &Order::new(true));
        assert!(text.contains("no run is seen\n") && text.ends_with(&format!("{SCOPE}\n")));
    }
}
