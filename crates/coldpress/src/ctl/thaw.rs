//! `coldpress ctl PID thaw`: brings every page of a run back, and waits until all have come.
//!
//! Thawed is a knob, so it holds for every process of the run, also for those that come later, and
//! until it is turned off. A stopped process cannot do anything; the command says so, because users
//! easily mistake the order of these steps.

use std::time::{Duration, Instant};

use coldpress_common::cgroup;
use coldpress_common::failure::{Failure, Result};
use coldpress_common::progress::Progress;
use coldpress_common::size::show;
use coldpress_sys::{Bytes, PAGE_BYTES};
use serde_json::{Value, json};

use crate::pause::pause;

/// The interval between two questions.
const INTERVAL: Duration = Duration::from_millis(20);
/// The time without a new page after which no more pages are coming.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time after which a terminal shows how far it has come.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// The settings that turn thawing on and off.
pub(crate) const ON: &str = "thawed=on";
pub(crate) const OFF: &str = "thawed=off";

/// Thaws the run of `process`. `ask` turns knobs and returns the figures after that. When
/// `is_given_up` returns true, the knob gets its old setting back.
pub(crate) fn thaw(
    process: u32,
    is_forced: bool,
    ask: impl Fn(&[String]) -> Result<Value>,
    is_given_up: impl Fn() -> bool,
) -> Result<Value> {
    let before = ask(&[])?;
    if !is_forced {
        check_room(process, away(&before))?;
    }
    let away = away(&before);
    let begun = Instant::now();
    let mut line = None;
    let mut document = ask(&[ON.to_owned()])?;
    let mut seen = (progress(&document), begun);
    while figure(&document, "processes_not_thawed") > 0 {
        if is_given_up() {
            drop(line);
            return Err(give_up(&before, &ask)?);
        }
        pause(INTERVAL);
        document = ask(&[])?;
        if begun.elapsed() > SHOWN_AFTER {
            let line = line.get_or_insert_with(|| Progress::bytes("thaw", away.0 as u64));
            line.set(away.0.saturating_sub(self::away(&document).0) as u64);
        }
        let now = progress(&document);
        if now != seen.0 {
            seen = (now, Instant::now());
        } else if seen.1.elapsed() > PATIENCE {
            return Err(Failure::ours(
                "a process of the run brings nothing back; is it stopped?",
                format!(
                    "let it go on (kill -CONT), thaw, then stop it; `coldpress ctl {process} set \
                     {OFF}` gives up"
                ),
            ));
        }
    }
    let bytes = |name| Value::from(figure(&document, name));
    Ok(json!({
        "thawed": true,
        "used_bytes": bytes("used_bytes"),
        "budget_bytes": bytes("budget_bytes"),
    }))
}

/// Describes the result of thawing, for people.
pub(crate) fn line(process: u32, done: &Value) -> String {
    let bytes = |name| show(Bytes(figure(done, name) as usize));
    format!(
        "thawed: every page is in memory, {} of a budget of {}; `coldpress ctl {process} set \
         {OFF}` ends it\n",
        bytes("used_bytes"),
        bytes("budget_bytes")
    )
}

/// Fails where there is no room for the pages of the run of `process` that are `away`.
pub(crate) fn check_room(process: u32, away: Bytes) -> Result<()> {
    // Where the machine does not report its room, the user decides.
    match cgroup::room_of(process) {
        Ok(room) if room < away => Err(Failure::ours(
            format!("{} are to come back, and {} are free", show(away), show(room)),
            "raise the limit, free memory, or give --force",
        )),
        _ => Ok(()),
    }
}

/// Turns thawing off again, unless it was on `before`, and returns the failure to report.
fn give_up(before: &Value, ask: &impl Fn(&[String]) -> Result<Value>) -> Result<Failure> {
    if before["knobs"]["thawed"] == "on" {
        let way_out = "the run was being thawed before; it goes on";
        return Ok(Failure::ours("interrupted", way_out));
    }
    ask(&[OFF.to_owned()])?;
    Ok(Failure::ours("interrupted", "thawing is off again; pages that came may leave again"))
}

/// Returns the memory that is away.
pub(crate) fn away(document: &Value) -> Bytes {
    Bytes(figure(&document["held"], "stored_pages") as usize * PAGE_BYTES)
}

/// Returns figures that change as pages come.
fn progress(document: &Value) -> [u64; 3] {
    let stored = figure(&document["held"], "stored_pages");
    let (used, open) = (figure(document, "used_bytes"), figure(document, "processes_not_thawed"));
    [stored, used, open]
}

/// Returns a whole number of the document; 0 where there is none.
fn figure(document: &Value, name: &str) -> u64 {
    document.get(name).and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    //! The risk: the command says that thawing is done when it is not, or never says so.

    use std::cell::RefCell;

    use super::*;

    /// Plays the answers in turn, and notes what was asked.
    fn play(answers: &[Value], is_forced: bool) -> (Result<Value>, Vec<String>) {
        play_until(answers, is_forced, usize::MAX)
    }

    /// Plays the answers, and gives up after so many.
    fn play_until(
        answers: &[Value],
        is_forced: bool,
        patience: usize,
    ) -> (Result<Value>, Vec<String>) {
        let asked = RefCell::new(Vec::new());
        let ask = |settings: &[String]| {
            asked.borrow_mut().push(settings.join(","));
            Ok(answers[asked.borrow().len() - 1].clone())
        };
        let is_given_up = || asked.borrow().len() >= patience;
        let result = thaw(std::process::id(), is_forced, ask, is_given_up);
        (result, asked.into_inner())
    }

    fn answer(open: u64, stored: u64) -> Value {
        json!({
            "processes_not_thawed": open, "used_bytes": 5000, "budget_bytes": 4000,
            "held": { "stored_pages": stored },
        })
    }

    #[test]
    fn it_is_done_when_no_process_has_pages_away() {
        let answers = [answer(2, 9), answer(2, 9), answer(2, 3), answer(1, 3), answer(0, 0)];
        let (done, asked) = play(&answers, false);
        assert_eq!(asked, ["", ON, "", "", ""]);
        let done = done.unwrap();
        assert_eq!(done["used_bytes"], 5000);
        assert!(line(7, &done).contains("coldpress ctl 7 set thawed=off"));
    }

    #[test]
    fn without_room_nothing_is_asked_for_unless_forced() {
        let much = answer(1, 1 << 40);
        let (refused, asked) = play(std::slice::from_ref(&much), false);
        assert!(refused.unwrap_err().cause.contains("come back"));
        assert_eq!(asked, [""]);
        let (done, asked) = play(&[much.clone(), much, answer(0, 0)], true);
        assert!(done.is_ok());
        assert_eq!(asked, ["", ON, ""]);
    }

    #[test]
    fn what_is_given_up_is_as_before() {
        let answers = [answer(1, 9), answer(1, 9), answer(1, 5), answer(0, 5)];
        let (given_up, asked) = play_until(&answers, false, 3);
        assert!(given_up.unwrap_err().way_out.contains("off again"));
        assert_eq!(asked, ["", ON, "", OFF]);
        let mut thawed = answer(1, 9);
        thawed["knobs"] = json!({ "thawed": "on" });
        let (given_up, asked) = play_until(&[thawed.clone(), thawed.clone(), thawed], false, 3);
        assert!(given_up.unwrap_err().way_out.contains("goes on"));
        assert_eq!(asked, ["", ON, ""]);
    }
}
