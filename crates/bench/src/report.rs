//! The figures as a person reads them, on a terminal or in a file: Markdown with aligned tables.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::statistics::Sample;

/// The version of the JSON document's keys.
const SCHEMA: u32 = 1;

/// Returns the reports of one machine for people.
pub fn text(machine: &Machine, reports: &[Report]) -> String {
    let mut text = format!("# Figures of {}\n\n{}", machine.file_stem(), machine.text());
    for report in reports {
        write!(text, "\n{report}").expect("a string takes all");
    }
    text
}

/// Returns the reports of one machine for programs: one JSON document.
pub fn document(machine: &Machine, reports: &[Report]) -> String {
    let mut document = json!({ "schema": SCHEMA, "machine": machine.json() });
    for report in reports {
        document[report.name] = report.numbers.clone();
    }
    format!("{document:#}\n")
}

/// Returns the folder below `out` for the reports of one machine; makes it when it is not there.
pub(crate) fn folder(out: &Path, machine: &Machine) -> io::Result<PathBuf> {
    let folder = out.join(machine.slug());
    fs::create_dir_all(&folder).map_err(|error| named(&folder, &error))?;
    Ok(folder)
}

/// Writes the reports into that folder, for people and for programs. Their names are the date, the
/// commit and `ending`.
pub fn keep(
    out: &Path,
    ending: &str,
    machine: &Machine,
    reports: &[Report],
) -> io::Result<[PathBuf; 2]> {
    let folder = folder(out, machine)?;
    let path = |kind| folder.join(format!("{}{ending}.{kind}", machine.file_stem()));
    let paths = [path("md"), path("json")];
    for (path, contents) in paths.iter().zip([text(machine, reports), document(machine, reports)]) {
        fs::write(path, contents).map_err(|error| named(path, &error))?;
    }
    Ok(paths)
}

/// Adds the path of the file to an error.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}

/// The findings of one benchmark.
pub struct Report {
    /// The name of the benchmark on the command line.
    pub name: &'static str,
    /// What was done, in a sentence or two.
    pub about: String,
    /// The figures for people.
    pub tables: Vec<Table>,
    /// The goals, met or missed.
    pub goals: Vec<Goal>,
    /// The same figures for programs.
    pub numbers: Value,
}

/// A goal: what a figure should be, and what it is.
pub struct Goal {
    /// The words of the goal.
    pub text: String,
    /// The measured figure, with its spread.
    pub found: String,
    /// Whether the figure is what it should be.
    pub met: bool,
}

impl Goal {
    /// Makes the goal that the median of `ratios` is at most `most`, with so many `digits` shown.
    pub(crate) fn at_most(text: String, ratios: &Sample, most: f64, digits: usize) -> Self {
        let (ratio, low, high) =
            (ratios.median(), ratios.percentile(10.0), ratios.percentile(90.0));
        let found = format!("{ratio:.digits$} (p10 {low:.digits$}, p90 {high:.digits$})");
        Self { text, found, met: ratio <= most }
    }
}

/// Rows of cells under a head.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with these columns and no row.
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row, a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.rows[0].len());
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    /// Writes the table. The first column holds words and starts left; the others hold numbers and
    /// end right.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows[0].len();
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].len()).max().unwrap_or(0).max(3);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            write!(f, "| {:<width$} |", row[0], width = widths[0])?;
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                write!(f, " {cell:>width$} |")?;
            }
            writeln!(f)?;
            if index == 0 {
                write!(f, "| {} |", "-".repeat(widths[0]))?;
                for width in &widths[1..] {
                    write!(f, " {}: |", "-".repeat(width - 1))?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n\n{}", self.name, self.about)?;
        for table in &self.tables {
            write!(f, "\n{table}")?;
        }
        if !self.goals.is_empty() {
            writeln!(f)?;
        }
        for Goal { text, found, met } in &self.goals {
            writeln!(f, "- goal: {text}; {}: {found}", if *met { "met" } else { "MISSED" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_markdown() {
        let mut table = Table::new(&["job", "ms"]);
        table.row(vec!["python3".into(), "1234.5".into()]);
        table.row(vec!["x".into(), "7".into()]);
        let wanted = "\
| job     |     ms |
| ------- | -----: |
| python3 | 1234.5 |
| x       |      7 |
";
        assert_eq!(table.to_string(), wanted);
    }

    #[test]
    fn a_missed_goal_stands_out() {
        let goal = |met| Goal { text: "less".into(), found: "3 us".into(), met };
        let (about, tables) = ("About.".to_owned(), Vec::new());
        let goals = vec![goal(true), goal(false)];
        let report = Report { name: "fault", about, tables, goals, numbers: Value::Null };
        let wanted = "## fault\n\nAbout.\n\n- goal: less; met: 3 us\n- goal: less; MISSED: 3 us\n";
        assert_eq!(report.to_string(), wanted);
    }
}
