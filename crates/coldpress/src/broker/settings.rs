//! The settings of a run that change while it goes on: by `coldpress ctl`, and with the limit that
//! the budget is a part of.

use coldpress_common::failure::Result;
use coldpress_sys::OwnedFd;
use coldpress_sys::net::Peer;
use serde_json::{Value, json};

use super::metrics::{self, Format};
use super::state::Serving;
use super::stats;
use super::timeline::Event;
use crate::budget::Budget;
use crate::control;
use crate::say;

impl Serving {
    /// Answers with the timeline, the metrics or the processes, or turns knobs as `text` asks, and
    /// answers with the resulting settings and figures.
    pub(super) fn answer_request(&mut self, socket: &OwnedFd, peer: Peer, text: &str) {
        let document = match text.trim_end() {
            _ if !control::may(peer) => Err(control::not_permitted(peer)),
            control::TIMELINE => {
                self.sample();
                Ok(self.reports.timeline.document())
            }
            control::METRICS => {
                let subject = &self.reports.subject;
                let text = metrics::text(subject, &self.standing(), Format::OpenMetrics);
                Ok(json!({ "metrics": text.lines().collect::<Vec<_>>() }))
            }
            control::PROCESSES => Ok(self.processes()),
            _ => self.turn(text),
        };
        control::answer(socket, &document.unwrap_or_else(|failure| control::refusal(&failure)));
    }

    /// Turns knobs as `text` asks, and returns the resulting settings and figures.
    fn turn(&mut self, text: &str) -> Result<Value> {
        let wanted = self.now.clone().turned(text)?;
        if wanted.knobs != self.now.knobs {
            self.note(Event::Knobs(text.trim_end().replace('\n', " ")));
            self.now.knobs = wanted.knobs;
            self.ledger.set_knobs(&wanted.knobs);
        }
        if wanted.budget != self.now.budget {
            self.voice.warn(wanted.budget.complaint());
            self.set_budget(wanted.budget);
        }
        Ok(stats::live(&self.standing()))
    }

    /// Follows the limit that the budget is a part of, and the part that other programs need.
    pub(super) fn follow_limit(&mut self) {
        let given_percent = self.pressure.look(&self.now.budget.origin);
        if let Some(budget) = self.now.budget.changed(given_percent) {
            self.set_budget(budget);
        }
    }

    /// Sets another budget from now on.
    fn set_budget(&mut self, budget: Budget) {
        self.ledger.set_budget(budget.bytes.pages_down());
        if self.voice.is_verbose() {
            say(format!("the budget is now {budget}"));
        }
        self.note(Event::Budget(budget.bytes));
        self.now.budget = budget;
    }
}
