//! The settings of a run that change while it goes on: by `coldpress ctl`, and with the limit that
//! the budget is a part of.

use coldpress_sys::OwnedFd;
use coldpress_sys::net::Peer;

use super::state::Serving;
use super::stats;
use crate::budget::Budget;
use crate::control;
use crate::say;

impl Serving {
    /// Turns knobs as `text` asks, and answers with the resulting settings and figures.
    pub(super) fn answer_request(&mut self, socket: &OwnedFd, peer: Peer, text: &str) {
        let turned = if control::may(peer) {
            self.now.clone().turned(text)
        } else {
            Err(control::not_permitted(peer))
        };
        let document = match turned {
            Ok(wanted) => {
                if wanted.knobs != self.now.knobs {
                    self.now.knobs = wanted.knobs;
                    self.ledger.set_knobs(&wanted.knobs);
                }
                if wanted.budget != self.now.budget {
                    self.voice.warn(wanted.budget.complaint());
                    self.set_budget(wanted.budget);
                }
                stats::live(&self.totals_now(), &self.ledger, self.memory, &self.now)
            }
            Err(failure) => control::refusal(&failure),
        };
        control::answer(socket, &document);
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
        self.now.budget = budget;
    }
}
