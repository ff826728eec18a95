//! `coldpress ctl`: sees and turns the knobs of a run, and thaws it, through the socket of its
//! keeper.

pub(crate) mod interrupt;
pub(crate) mod thaw;

use std::process::ExitCode;

use coldpress_common::failure::{Failure, Result};
use serde_json::Value;

use crate::args::{CtlArgs, CtlVerb};
use crate::broker::timeline;
use crate::control;
use crate::runs::Keeper;
use crate::{print, say};
use interrupt::Interrupt;

/// Does what `args` ask for. Exit status 1 when that fails; a signal that gave it up ends it.
pub(crate) fn ctl(args: &CtlArgs) -> ExitCode {
    let interrupt = matches!(args.verb, CtlVerb::Thaw { .. }).then(Interrupt::heed);
    match try_ctl(args, interrupt.as_ref()) {
        Ok(text) if print(&text) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            say(failure);
            interrupt.iter().for_each(Interrupt::pass_on);
            ExitCode::FAILURE
        }
    }
}

/// Does what `args` ask for, and returns the text to print.
fn try_ctl(args: &CtlArgs, interrupt: Option<&Interrupt>) -> Result<String> {
    let keeper = Keeper::of(args.process)?;
    let ask = |settings: &[String]| keeper.ask(settings, control::PATIENCE);
    match &args.verb {
        CtlVerb::Get { name: Some(name) } => one(&ask(&[])?, name, args.json),
        CtlVerb::Get { name: None } if args.json => Ok(format!("{:#}\n", ask(&[])?)),
        CtlVerb::Get { name: None } => Ok(lines(&ask(&[])?)),
        CtlVerb::Set { settings } if args.json => Ok(format!("{:#}\n", ask(settings)?["knobs"])),
        CtlVerb::Set { settings } => {
            let document = ask(settings)?;
            // The keeper has accepted the settings, so it knows the name of each.
            let names = settings.iter().filter_map(|setting| setting.split_once('='));
            names.map(|(name, _)| Ok(format!("{name} {}", one(&document, name, false)?))).collect()
        }
        CtlVerb::Timeline => {
            let timeline = ask(&[control::TIMELINE.to_owned()])?;
            Ok(format!("{}\n", timeline::text_of(&timeline)))
        }
        CtlVerb::Metrics => {
            let document = ask(&[control::METRICS.to_owned()])?;
            let lines = document["metrics"].as_array().into_iter().flatten();
            Ok(lines.filter_map(Value::as_str).map(|line| format!("{line}\n")).collect())
        }
        CtlVerb::Thaw { force } => {
            let is_given_up = || interrupt.is_some_and(Interrupt::has_come);
            let done = thaw::thaw(args.process, *force, ask, is_given_up)?;
            Ok(if args.json { format!("{done:#}\n") } else { thaw::line(args.process, &done) })
        }
    }
}

/// Returns the value of `name` alone.
fn one(document: &Value, name: &str, is_json: bool) -> Result<String> {
    let found = flat(document).into_iter().find(|(known, _)| known == name);
    match found {
        Some((_, value)) if is_json => Ok(format!("{value}\n")),
        Some((_, value)) => Ok(format!("{}\n", plain(value))),
        None => Err(Failure::ours(
            format!("there is no knob or counter \"{name}\" in this run"),
            "`coldpress ctl PID get` lists them all",
        )),
    }
}

/// Formats the document as lines.
fn lines(document: &Value) -> String {
    flat(document).iter().map(|(name, value)| format!("{name} {}\n", plain(value))).collect()
}

/// Returns every figure by name: the knobs, what is held, what the run counts, what zswap counts,
/// and the classes of the histograms that are not empty.
fn flat(document: &Value) -> Vec<(String, &Value)> {
    let members = |name: &str| document.get(name).and_then(Value::as_object).into_iter().flatten();
    let of_run = document.as_object().into_iter().flatten();
    let of_run = of_run.filter(|(_, value)| !value.is_object());
    let named = members("knobs").chain(members("held")).chain(of_run).chain(members("zswap"));
    let classes = members("histograms").flat_map(|(name, classes)| {
        let classes = classes.as_array().into_iter().flatten();
        classes.map(move |class| (format!("{name}_below_{}", class["below"]), &class["count"]))
    });
    named.map(|(name, value)| (name.clone(), value)).chain(classes).collect()
}

/// Formats a value without the quotes of JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_one_a_line_or_alone() {
        let document = json!({
            "budget_bytes": 5,
            "knobs": { "codec": "zstd:3" },
            "held": { "pool_pages": 9 },
            "zswap": { "renamed": 4 },
            "histograms": { "load_ns": [{ "below": 4096, "count": 2 }] },
        });
        let text = "codec zstd:3\npool_pages 9\nbudget_bytes 5\nrenamed 4\nload_ns_below_4096 2\n";
        assert_eq!(lines(&document), text);
        let some = [("codec", "zstd:3"), ("pool_pages", "9"), ("load_ns_below_4096", "2")];
        for (name, value) in some {
            assert_eq!(one(&document, name, false), Ok(format!("{value}\n")), "{name}");
        }
        assert_eq!(one(&document, "codec", true), Ok("\"zstd:3\"\n".to_owned()));
        let failure = one(&document, "absent", false).unwrap_err();
        assert!(failure.cause.contains("\"absent\""), "{failure}");
    }
}
