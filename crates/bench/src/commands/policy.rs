//! `coldpress-bench policy`: which page to evict, on touches of real programs and of models.
//!
//! Faults are compared with Belady's optimum, which knows all touches to come. First touches are
//! left out, because no policy can avoid them, and so are rows in which the optimum hardly faults.

mod options;
mod ours;
mod record;
mod rows;

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::Path;

use crate::policy::generate::Model;
use crate::policy::trace::Trace;
use crate::report::{Goal, Report};
use coldpress_common::failure::Result;
use serde_json::json;

use super::launch::failed;
use super::name_missing;
use crate::progress::note;
pub(super) use options::PolicyArgs;
use rows::Row;

/// The number of pages of a model: 64 MiB.
const MODEL_PAGES: usize = 1 << 14;
/// The number of pages of a model in tests, and the fewest pages of a trace: of a quarter of them,
/// limbo and its chunks take a good part.
const PAGES_MIN: usize = 1 << 11;
/// The goals: our faults relative to those of the optimum, and to those of the active and inactive
/// lists.
const OPTIMUM_GOAL: f64 = 1.6;
const ACTIVE_GOAL: f64 = 1.0;

/// A trace and its origin.
struct Subject {
    name: String,
    /// Whether the trace is of a real program.
    is_recorded: bool,
    trace: Trace,
}

/// Records a program, or replays traces, and returns the report.
pub(super) fn measure(args: &PolicyArgs) -> Result<Report> {
    match &args.record {
        Some(file) => keep(file, &args.program),
        None => play(args),
    }
}

/// Records a program into a file.
fn keep(path: &Path, program: &[std::ffi::OsString]) -> Result<Report> {
    let error = |error: std::io::Error| failed(format!("{}: {error}", path.display()));
    // Makes the file before minutes of work, so that a file that cannot be written is known at
    // once.
    let mut file = BufWriter::new(File::create(path).map_err(error)?);
    let trace = record::user(program)?;
    trace.write(&mut file).and_then(|()| file.flush()).map_err(error)?;
    let numbers = json!({ "touches": trace.count(), "pages": trace.distinct() });
    let about = format!(
        "{} touches of {} pages, kept in {}.",
        trace.count(),
        trace.distinct(),
        path.display()
    );
    Ok(Report { name: "policy", about, tables: Vec::new(), goals: Vec::new(), numbers })
}

fn play(args: &PolicyArgs) -> Result<Report> {
    let (subjects, missing) = subjects(args)?;
    let mut found = Vec::new();
    for subject in &subjects {
        note(format!("policy: {}", subject.name));
        found.extend(args.budget.iter().map(|percent| Row::of(subject, *percent)));
    }
    let mut about = "\
Refaults (first touches left out) by those of Belady's optimum, in room for a share of all pages\n\
touched; limbo counts in the room. Walks are not served ahead but in the last columns. Minor\n\
faults of ours are pages that are touched while they wait in limbo. A minor fault counts for\n\
5 us and a major one for 25 us."
        .to_owned();
    name_missing(&mut about, &missing);
    let judged = rows::judge(&found);
    let numbers = json!({
        "missing": missing,
        "by_optimum": judged.by_optimum,
        "by_active": judged.by_active,
        "ahead_by_optimum": judged.ahead_by_optimum,
        "rows": found.iter().map(Row::json).collect::<Vec<_>>(),
    });
    let tables = vec![rows::of_policies(&found), rows::of_ours(&found)];
    Ok(Report { name: "policy", about, tables, goals: goals(&judged), numbers })
}

fn goals(judged: &rows::Judged) -> Vec<Goal> {
    let number = |found: Option<f64>| {
        found.map_or_else(|| "not measured".to_owned(), |found| format!("{found:.2}"))
    };
    let goal = |text: String, found: Option<f64>, bound: f64| {
        let met = found.is_some_and(|found| found <= bound);
        Goal { text, found: format!("{} ({})", number(found), judged.what), met }
    };
    let ahead = number(judged.ahead_by_optimum);
    vec![
        goal(
            format!("faults by Belady's optimum <= {OPTIMUM_GOAL} (walks served ahead: {ahead})"),
            judged.by_optimum,
            OPTIMUM_GOAL,
        ),
        goal(format!("faults by active/inactive <= {ACTIVE_GOAL}"), judged.by_active, ACTIVE_GOAL),
    ]
}

/// Returns the traces to replay, and the names of those that had to be left out.
fn subjects(args: &PolicyArgs) -> Result<(Vec<Subject>, Vec<String>)> {
    if !args.trace.is_empty() {
        let subjects: Result<Vec<Subject>> = args.trace.iter().map(|path| read(path)).collect();
        return Ok((subjects?, Vec::new()));
    }
    let (mut subjects, mut missing) = (Vec::new(), Vec::new());
    if !args.common.quick {
        for (name, trace) in record::own_set()? {
            match trace {
                Ok(trace) if trace.distinct() >= PAGES_MIN => {
                    subjects.push(Subject { name, is_recorded: true, trace });
                }
                Ok(trace) => missing.push(format!("{name}: {} pages only", trace.distinct())),
                Err(why) => missing.push(format!("{name}: {why}")),
            }
        }
    }
    let pages = if args.common.quick { PAGES_MIN } else { MODEL_PAGES };
    subjects.extend(Model::ALL.into_iter().map(|model| Subject {
        name: model.name().to_owned(),
        is_recorded: false,
        trace: model.trace(pages),
    }));
    Ok((subjects, missing))
}

fn read(path: &Path) -> Result<Subject> {
    let error = |error: &dyn std::fmt::Display| failed(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|cause| error(&cause))?;
    let trace = Trace::read(&mut BufReader::new(file)).map_err(|cause| error(&cause))?;
    if trace.distinct() < PAGES_MIN {
        let pages = trace.distinct();
        return Err(error(&format!("only {pages} pages are touched, of at least {PAGES_MIN}")));
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let name = name.trim_end_matches(".zst").trim_end_matches(".touches").to_owned();
    Ok(Subject { name, is_recorded: true, trace })
}
