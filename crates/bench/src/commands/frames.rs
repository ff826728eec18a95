//! `coldpress-bench frames`: single frames, the price of a frame's descriptor, and whole huge
//! pages.

mod cachegrind;
mod descriptors;
mod huge;
pub(super) mod options;
mod order_0;

use crate::report::{Goal, Report, Table};
use coldpress_common::failure::Result;
use serde_json::{Map, Value};

use crate::progress::note;
use options::{FramesArgs, Part};

/// The findings of one part.
struct FrameCounts {
    about: String,
    tables: Vec<Table>,
    goals: Vec<Goal>,
    numbers: Value,
}

/// Measures the parts that the user asks for; all parts by default.
pub(super) fn measure(args: &FramesArgs) -> Result<Report> {
    let parts = if args.part.is_empty() { &Part::ALL[..] } else { &args.part };
    let mut numbers = Map::new();
    let mut report = Report {
        name: "frames",
        about: String::new(),
        tables: Vec::new(),
        goals: Vec::new(),
        numbers: Value::Null,
    };
    for part in parts {
        note(format!("frames: {}", part.name()));
        let found = match part {
            Part::Order0 => order_0::measure(args)?,
            Part::Descriptors => descriptors::measure(args)?,
            Part::Huge => huge::measure(args)?,
        };
        if !report.about.is_empty() {
            report.about.push_str("\n\n");
        }
        report.about.push_str(&format!("{}: {}", part.name(), found.about));
        report.tables.extend(found.tables);
        report.goals.extend(found.goals);
        numbers.insert(part.name().to_owned(), found.numbers);
    }
    report.numbers = Value::Object(numbers);
    Ok(report)
}
