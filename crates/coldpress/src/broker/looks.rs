//! The broker's looks at the run: what its processes hold, managed or not, and what the user should
//! know of it.

use std::time::Instant;

use coldpress_runtime::ledger::Told;
use coldpress_sys::PageCount;

use super::account::Account;
use super::member::Member;
use super::state::Serving;
use super::unmanaged;
use crate::proc;
use crate::say;

impl Serving {
    /// Counts what processes without a seat hold.
    pub(super) fn look_at_tree(&mut self) {
        if !self.has_started {
            return;
        }
        // A service has no memory but its program's.
        let seated = self.members.iter().map(|member| member.program.process()).collect();
        // Services have no children either; a process that claims to serve itself may have some.
        let serves = |member: &&Member| member.peer.process != member.program.process();
        let services = self.members.iter().filter(serves).map(|it| it.peer.process).collect();
        self.unseated.look(&seated, &services);
        self.ledger.set_unseated(self.unseated.pages());
        self.shared.look(self.unseated.processes(), Instant::now());
        self.ledger.set_shared(self.shared.pages());
        let holds = |it: &Member| (it.program.process(), self.ledger.claimed(it.seat).used);
        let members = self.members.iter().map(holds);
        self.in_place.look(self.ledger.used(), members, Instant::now());
        self.note_peak();
        let saved = self.view.as_ref().map(|_| self.totals_now().saved());
        let used = self.ledger.used();
        self.view.iter_mut().zip(saved).for_each(|(view, saved)| view.show(used, saved));
        self.look_at_unmanaged();
        self.complain_of_shared(false);
    }

    /// Raises the peak to what is used now, and limits what is believed of members that claim more
    /// than they hold.
    pub(super) fn note_peak(&mut self) {
        let (mut liars, now) = (Vec::new(), Instant::now());
        let (unmanaged, shared) = (self.unseated.pages(), self.shared.pages());
        let mut managed = PageCount(0);
        for Member { program, seat, claims, .. } in &mut self.members {
            // Read once, because the claim may change at any moment.
            let claimed = self.ledger.claimed(*seat);
            let all = PageCount(claimed.used.0.saturating_add(claimed.doubt.0)).min(self.memory);
            let verdict = claims.judge(all, || proc::anonymous(program.process()), now);
            managed += claims.counted(claimed.used.min(self.memory));
            match verdict {
                Some(Some(most)) => {
                    self.ledger.limit(*seat, most);
                    liars.push(program.process());
                }
                Some(None) => self.ledger.limit(*seat, self.memory),
                None => {}
            }
        }
        let account = Account::of(managed, unmanaged, shared);
        if account.sum() > self.at_peak.sum() {
            let seats = self.members.iter().map(|member| member.seat);
            self.at_peak = account.with_parts(&self.ledger, seats, &self.in_place);
        }
        self.ledger.note_peak(account.sum().min(self.memory));
        for process in liars {
            if self.voice.is_news(process, "claims") {
                self.voice.warn(Some(format!(
                    "process {process} says that it holds more memory than /proc shows, and is not \
                     believed; some process of the run has written to the memory they share"
                )));
            }
        }
    }

    /// Warns the user, once, when shared memory takes up the budget.
    pub(super) fn complain_of_shared(&mut self, is_last: bool) {
        let (used, budget) = (self.ledger.used().bytes(), self.now.budget.bytes);
        let is_stuck = self.ledger.is_told(Told::OverByShared);
        let complaint = self.shared.complaint(used, budget, is_stuck, is_last, Instant::now());
        // A service may already have said that the budget cannot be kept.
        self.voice.warn(complaint.filter(|_| self.ledger.is_first_to_tell(Told::OverBudget)));
    }

    /// Finds processes that cannot be managed. Warns the user when they pass the budget.
    fn look_at_unmanaged(&mut self) {
        if self.ledger.are_over() {
            // Programs are being left, and are themselves again.
            return;
        }
        let takes_others = self.takes_others;
        let may = |process| unmanaged::reason(process, takes_others).is_none();
        let held = |process| (process, self.unseated.held_by(process));
        self.supplies.late.look(self.unseated.processes().map(held), may);
        for (process, why) in self.supplies.late.take_refusals() {
            self.unmanaged.tell(process, format!("cannot be managed: {why}"));
        }
        let held = |process| self.unseated.held_by(process);
        let processes = self.unseated.processes();
        let reason = |process| unmanaged::reason(process, takes_others);
        let found = self.unmanaged.look(held, processes, Instant::now(), reason);
        if self.voice.is_verbose() {
            found.iter().for_each(|one| say(format!("not managed: {one}")));
        } else if !found.is_empty() && self.totals_now().managed() == 0 {
            self.voice.tell_of_none(&found[0]);
        }
        if let (Some(required), [first, ..]) = (&mut self.required, &found[..]) {
            required.end_for(first.to_string());
        }
        let (used, budget) = (self.ledger.used().bytes(), self.now.budget.bytes);
        // Another line reports shared memory.
        let is_theirs = self.unseated.pages() > self.shared.pages();
        let complaint = self.unmanaged.complaint(held, used, budget).filter(|_| is_theirs);
        self.voice.complain_of_unmanaged(complaint);
    }
}
