//! How the broker comes to know how its run stands, and has the timeline keep it.

use std::cmp::Reverse;
use std::time::Instant;

use super::member::Member;
use super::notice::Notice;
use super::series::PROCESSES_MAX;
use super::standing::Standing;
use super::state::Serving;
use super::timeline::Event;
use super::totals::Totals;

impl Serving {
    /// Returns how the run stands now.
    pub(super) fn standing(&self) -> Standing {
        self.standing_with(self.totals_now())
    }

    /// Returns how the run stands now, as far as a point of the timeline needs it.
    fn standing_for_point(&self) -> Standing {
        let mut totals = self.totals.after(self.reports.timeline.age());
        self.members.iter().for_each(|it| totals.add_for_point(&self.ledger, it.seat));
        self.standing_with(totals)
    }

    /// Returns how the run stands when its processes have these totals.
    pub(super) fn standing_with(&self, totals: Totals) -> Standing {
        Standing {
            totals,
            settings: self.now.clone(),
            used: self.ledger.used().bytes(),
            peak: self.ledger.peak(self.memory).bytes(),
            unmanaged: self.unseated.pages().bytes(),
            shared: self.shared.pages().bytes(),
            members: self.members.len(),
            not_thawed: self.ledger.not_thawed(),
        }
    }

    /// Takes a point if one is due, and tells the exporter with each point, and each second as
    /// well: points become rare in a long run.
    pub(super) fn sample(&mut self) {
        if !self.has_started {
            return;
        }
        self.note_warnings();
        let is_due = self.reports.timeline.is_due();
        if is_due {
            self.reports.timeline.add(self.reports.timeline.age(), &self.standing_for_point());
            self.sample_processes();
        }
        if self.reports.notice.as_ref().is_some_and(Notice::is_due) {
            let standing = self.standing();
            self.reports.notice.iter_mut().for_each(|notice| notice.tell(&standing));
        }
        if self.reports.exporter.as_ref().is_some_and(|exporter| is_due || exporter.is_due()) {
            let standing = self.standing();
            self.reports.exporter.iter_mut().for_each(|exporter| exporter.update(standing.clone()));
        }
    }

    /// Has the timeline keep how the processes that hold most stand.
    fn sample_processes(&mut self) {
        let age = self.reports.timeline.age();
        if !self.reports.timeline.series.is_due(age) {
            return;
        }
        let held = |member: &Member| self.ledger.holding(member.seat).used;
        let mut all: Vec<_> = self.members.iter().map(|member| (held(member), member)).collect();
        if all.len() > PROCESSES_MAX {
            all.select_nth_unstable_by_key(PROCESSES_MAX, |(used, _)| Reverse(*used));
        }
        let ledger = &self.ledger;
        let parts = all.into_iter().take(PROCESSES_MAX).map(|(used, member)| {
            let mut totals = Totals::default();
            totals.add_for_point(ledger, member.seat);
            (member.program.process(), member.name.as_str(), used, totals)
        });
        self.reports.timeline.series.add(age, parts);
    }

    /// Takes the last point. Returns how the run stands at it.
    pub(super) fn sample_end(&mut self) -> Standing {
        let standing = self.standing();
        self.reports.timeline.add(self.reports.timeline.age(), &standing);
        self.sample_processes();
        self.note_warnings();
        self.reports.exporter.iter_mut().for_each(|exporter| exporter.update(standing.clone()));
        standing
    }

    /// Notes what has just happened.
    pub(super) fn note(&mut self, event: Event) {
        self.note_warnings();
        self.reports.timeline.note(Instant::now(), event);
    }

    /// Notes the warnings since the last ones, so that events keep their order.
    fn note_warnings(&mut self) {
        for (at, text) in self.voice.take_warnings() {
            self.reports.timeline.note(at, Event::Warning(text));
        }
    }
}
