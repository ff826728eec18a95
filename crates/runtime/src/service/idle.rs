//! Idle reclaim: taking idle memory although the budget does not ask for it (knob `idle`).
//!
//! ```text
//! in the program > a sample in limbo > the run in limbo > pool
//!        |    \____ touched: hot ____/        |
//!        `------- those touched: back -------'
//! ```
//!
//! No accessed bit exists for user space, so idle memory is found by sampling. In rounds, one page
//! of each run is moved to limbo. When it is touched there, the run is in use, and is sampled in
//! fewer and fewer rounds: the price of a run in use is one cheap fault each time. When nothing has
//! touched it for the age at which pages count as idle (`pressure`), the rest of the run goes to
//! limbo too. It waits there for that age again, so that pages in use among idle ones also come
//! back at the price of such a fault. What was not wanted by then is compressed. A page that does
//! not compress goes back to the program, because taking it saves nothing.
//!
//! Limbo's slots are in the order in which they were taken, so only the oldest is looked at.
//!
//! A process is managed when its memory has stopped growing, or when that takes too long. Until
//! then the kernel itself serves its first touches.

use alloc::collections::VecDeque;

use coldpress_sys::{Bytes, PageCount, costs};

use super::Service;
use super::rest::{Leisure, Taken};
use crate::allowance::{Allowance, Pressure, Refaults};
use crate::pages::{PageState, RUN_PAGES, RunNumber};
use crate::policy::{self, Drained, Refusals, STUCK_NS};
use crate::store::Storing;
use crate::tally::Counter;

/// Least memory of a process that is managed for being idle: with less, a process could save little
/// more than managing it takes.
const WORTH_MANAGING: PageCount = Bytes::mib(16).pages_down();
/// Growth in [`CALM_NS`] below which memory has stopped growing: this much, or a 32nd.
const CALM_GROWTH: PageCount = Bytes::mib(1).pages_down();
const CALM_NS: u64 = 1_000_000_000;
/// Longest wait for growth to stop: some programs grow and shrink all the time.
const PATIENCE_NS: u64 = 10 * CALM_NS;
/// Divisor of the time of a program that computes, of which this part is taken: at 5 us a page, 10
/// ms of each 200 ms move and compress 8 MiB.
const TAKEN_PARTS: u64 = 20;
/// A number behind all runs.
const END: RunNumber = RunNumber(usize::MAX);
/// Runs looked at in a step, or leaves that have none in the program: some ten microseconds.
const LOOKED_AT_MAX: usize = 64;
/// Distance between a run's samples in two successive rounds. 7 and 32 have no common divisor, so
/// all pages have their turn.
const SAMPLES_APART: usize = 7;

/// Watch over whether the memory of a process has stopped growing.
#[derive(Debug)]
pub(super) struct Growth {
    mark: PageCount,
    since_ns: u64,
    /// Since when the service waits for growth to stop.
    waits_since_ns: u64,
}

impl Growth {
    /// Begins the watch at `now_ns`, with no memory held.
    pub(super) fn new(now_ns: u64) -> Self {
        Self { mark: PageCount(0), since_ns: now_ns, waits_since_ns: now_ns }
    }

    /// Returns whether memory, now `pages`, hardly grew lately, or the longest wait for that is
    /// over.
    fn has_stopped(&mut self, pages: PageCount, now_ns: u64) -> bool {
        if pages > self.mark + CALM_GROWTH.max(PageCount(self.mark.0 / 32)) {
            (self.mark, self.since_ns) = (pages, now_ns);
        }
        self.mark = self.mark.min(pages);
        let has_stopped = now_ns.saturating_sub(self.since_ns) >= CALM_NS
            || now_ns.saturating_sub(self.waits_since_ns) >= PATIENCE_NS;
        if has_stopped {
            self.waits_since_ns = now_ns;
        }
        has_stopped
    }

    /// Returns whether a process that holds `used` now is to be managed for its idle memory.
    pub(super) fn is_worth_managing(&mut self, used: PageCount, now_ns: u64) -> bool {
        self.has_stopped(used, now_ns) && used >= WORTH_MANAGING
    }
}

/// How far idle reclaim has come.
#[derive(Debug)]
pub(super) struct Idle {
    pressure: Pressure,
    /// Time taken of a program that computes.
    taken: Taken,
    /// When time and stalls were last noted, and the stalls until then.
    noted_at_ns: u64,
    noted: Refaults,
    /// What this process saves, without what its parent had saved in memory that both share; that
    /// inherited part; and the time up to which savings are counted.
    saved: PageCount,
    inherited: PageCount,
    saved_at_ns: u64,
    /// The round, when it began, and the next run to look at.
    round: usize,
    round_began_ns: u64,
    next: RunNumber,
    /// Runs whose samples were not touched.
    cold: VecDeque<RunNumber>,
    /// Idle pages that zswap refused, and until when none is stored because of that.
    refusals: Refusals,
    refused_until_ns: u64,
}

impl Idle {
    /// Creates the state before anything was looked at; the time that counts begins at `began_ns`.
    pub(super) fn new(began_ns: u64) -> Self {
        Self {
            pressure: Pressure::default(),
            taken: Taken::default(),
            noted_at_ns: began_ns,
            noted: Refaults::default(),
            saved: PageCount(0),
            inherited: PageCount(0),
            saved_at_ns: began_ns,
            round: 0,
            round_began_ns: 0,
            next: RunNumber(0),
            cold: VecDeque::new(),
            refusals: Refusals::default(),
            refused_until_ns: 0,
        }
    }

    /// Begins anew in a child: what was saved and stalled until now belongs to its parent.
    pub(super) fn begin_as_heir(&mut self) {
        self.inherited += core::mem::take(&mut self.saved);
        self.noted = Refaults::default();
    }

    /// Notes the time that has passed, what was stalled and what is saved. Called every few
    /// milliseconds.
    pub(super) fn look_at_pressure(&mut self, allowance: &Allowance, now_ns: u64) {
        let saved_ms = now_ns.saturating_sub(self.saved_at_ns) / 1_000_000;
        self.saved_at_ns += saved_ms * 1_000_000;
        let passed = now_ns.saturating_sub(core::mem::replace(&mut self.noted_at_ns, now_ns));
        let before = core::mem::replace(&mut self.noted, allowance.refaults);
        let stalls = allowance.refaults.faults - before.faults;
        let saved_page_ms = self.saved.0 * saved_ms as usize;
        let Some(share) = allowance.tuning.knobs.idle_share() else { return };
        allowance.count(Counter::SavedPageMs, saved_page_ms);
        // What the budget has taken does not count here.
        if allowance.budget.used() > allowance.budget.soft() {
            return;
        }
        let stalled = allowance.time.span_ns(allowance.refaults.ticks - before.ticks)
            + stalls * costs::WAKE_UPS_NS;
        self.pressure.note(share, passed, stalled, stalls);
        allowance.count(Counter::IdleNs, passed as usize);
        allowance.count(Counter::IdleStallNs, stalled as usize);
    }

    /// Returns the bytes that were saved when that was last noted.
    pub(super) fn saved(&self) -> Bytes {
        self.saved.bytes()
    }

    /// Records that `pages` are away now, beyond what they take of our memory. How much is left of
    /// what was inherited cannot be known; it is no more than this.
    pub(super) fn note_saved(&mut self, pages: PageCount) {
        self.inherited = self.inherited.min(pages);
        self.saved = pages.saturating_sub(self.inherited);
    }
}

impl Service {
    /// Returns whether there may be more to do at once, after doing some of the work on idle
    /// memory, if the program leaves time for it.
    pub(super) fn idle_step(&mut self) -> bool {
        let somebody_waits = self.pager.memory.faults.any();
        let is_off = self.pager.allowance.tuning.knobs.idle_share().is_none();
        let is_wanted_otherwise = self.pager.allowance.budget.used()
            > self.pager.allowance.budget.soft()
            || self.pager.store.zswap.is_behind();
        if somebody_waits || is_off || is_wanted_otherwise || !policy::may_reclaim(self) {
            return false;
        }
        let begun = self.pager.allowance.time.now_ns();
        let rests = self.rest.leisure() == Leisure::All;
        if !rests && !self.idle.taken.is_paid(begun) {
            return false;
        }
        let is_more = self.take_cold_run() || self.drain_idle(begun) || self.sample_some(begun);
        if !rests {
            self.idle.taken.note(begun, self.pager.allowance.time.now_ns(), TAKEN_PARTS);
        }
        is_more
    }

    /// Returns whether there was a cold run, one whose sample was not touched, and room for it in
    /// limbo, after moving its pages there.
    fn take_cold_run(&mut self) -> bool {
        let Some(run) = self.idle.cold.front().copied() else { return false };
        if !self.pager.limbo_has_room() {
            return false;
        }
        let slot = self.pager.memory.pages.run(run).and_then(|run| run.slot);
        // The slot of its sample is ended first. Another slot means that the run was taken
        // meanwhile.
        if slot.is_some()
            && slot == self.pager.store.limbo.ring().oldest().map(|(oldest, ..)| oldest)
        {
            return false;
        }
        self.idle.cold.pop_front();
        if slot.is_none() {
            let moved = self.pager.move_run(run);
            self.pager.allowance.count(Counter::IdlePages, moved.0);
        }
        true
    }

    /// Returns whether there was a slot to work on, after compressing a page of limbo's oldest slot
    /// if the page is idle, or ending a slot that has none.
    fn drain_idle(&mut self, now_ns: u64) -> bool {
        if now_ns < self.idle.refused_until_ns {
            return false;
        }
        let now_ms = self.pager.allowance.now_ms();
        let Some((slot, run, next)) = self.pager.store.limbo.ring().oldest() else { return false };
        let is_ours = self.pager.memory.pages.run(run).is_some_and(|run| run.slot == Some(slot));
        let mut left = run.pages().skip(next.unwrap_or(RUN_PAGES));
        if is_ours && left.any(|page| self.pager.memory.pages.state(page) == PageState::Limbo) {
            let age_ms =
                u64::from(self.pager.store.limbo.ring().oldest_age_ms(now_ms).unwrap_or(0));
            let pressure = &self.idle.pressure;
            if age_ms * 1_000_000 < pressure.age_ns() || !pressure.allows(0) {
                return false;
            }
            if self.pager.store.limbo.ring().take_sample(slot) {
                self.pager.memory.pages.run_mut(run).hot = 0;
                self.idle.cold.push_back(run);
            }
        }
        let drained = self.pager.drain_step(Storing::Compressible);
        if self.idle.refusals.are_enough(drained) {
            self.idle.refused_until_ns = now_ns + STUCK_NS;
        }
        drained != Drained::Nothing
    }

    /// Returns whether there may be more to do, after moving to limbo a sample of the next run that
    /// is due in this round.
    fn sample_some(&mut self, now_ns: u64) -> bool {
        let samples = self.pager.store.limbo.ring().samples();
        let state = &self.idle;
        // Runs that are known to be cold come first.
        if !state.cold.is_empty() || !state.pressure.allows(samples) || !self.pager.limbo_has_room()
        {
            return false;
        }
        for _ in 0..LOOKED_AT_MAX {
            let state = &mut self.idle;
            let Some((run, is_resident)) = self.pager.memory.pages.look_for_resident(state.next)
            else {
                // So that nothing is looked at until the next round.
                state.next = END;
                if now_ns.saturating_sub(state.round_began_ns) < state.pressure.age_ns() {
                    return false;
                }
                state.round += 1;
                (state.round_began_ns, state.next) = (now_ns, RunNumber(0));
                return true;
            };
            state.next = RunNumber(run.0 + 1);
            if is_resident && self.is_due(run) && self.sample(run) {
                return true;
            }
        }
        true
    }

    /// Returns whether `run` is to be sampled in this round.
    fn is_due(&mut self, run: RunNumber) -> bool {
        let turn = self.idle.round.wrapping_add(run.0);
        let run = self.pager.memory.pages.run_mut(run);
        if run.unfit_sweeps > 0 {
            run.unfit_sweeps -= 1;
            return false;
        }
        run.slot.is_none() && turn.is_multiple_of(1 << run.hot)
    }

    /// Returns whether a page of `run` could be moved to limbo as a sample.
    fn sample(&mut self, run: RunNumber) -> bool {
        let first = self.idle.round * SAMPLES_APART + run.0;
        let mut indices = (0..RUN_PAGES).map(|place| (first + place) % RUN_PAGES);
        let found = indices.find(|index| self.pager.memory.pages.sweep(run.first().plus(*index)));
        let Some(index) = found else { return false };
        let mut wanted = [false; RUN_PAGES];
        wanted[index] = true;
        let moved = self.pager.move_wanted(run, wanted);
        let slot = self.pager.memory.pages.run(run).and_then(|run| run.slot);
        if let Some(slot) = slot.filter(|_| moved > PageCount(0)) {
            self.pager.store.limbo.ring().mark_sample(slot);
            self.pager.allowance.count(Counter::IdleSamples, 1);
        }
        moved > PageCount(0)
    }
}

#[cfg(test)]
mod tests {
    //! Risk: a program that is managed while it grows, or never; or a program that reports savings
    //! of another program.

    use std::vec::Vec;

    use super::*;

    /// Returns the tenth of a second at which a program is managed that holds `held` MiB at each.
    fn managed_at(held: impl IntoIterator<Item = usize>) -> Option<usize> {
        let mut growth = Growth::new(5_000_000_000);
        held.into_iter().enumerate().position(|(tenth, mib)| {
            let now = 5_000_000_000 + tenth as u64 * 100_000_000;
            growth.is_worth_managing(Bytes::mib(mib).pages_down(), now)
        })
    }

    #[test]
    fn a_program_is_managed_once_it_has_grown() {
        assert_eq!(managed_at([100; 30]), Some(10));
        assert_eq!(managed_at((0..20).map(|tenth| 100 + 10 * tenth).chain([290; 20])), Some(29));
        // Growth of less than a 32nd a second.
        assert_eq!(managed_at((0..20).map(|tenth| 1000 + 2 * tenth)), Some(10));
    }

    #[test]
    fn a_program_that_never_stops_growing_is_managed_after_a_while() {
        assert_eq!(managed_at((0..200).map(|tenth| 100 + 10 * tenth)), Some(100));
        let mut growth = Growth::new(0);
        let mut found = Vec::new();
        for tenth in 0..350 {
            if growth
                .has_stopped(PageCount([10_000, 90_000][tenth % 2]), tenth as u64 * CALM_NS / 10)
            {
                found.push(tenth);
            }
        }
        assert_eq!(found, [100, 200, 300]);
    }

    #[test]
    fn what_a_child_inherits_is_saved_once() {
        let mut child = Idle::new(0);
        child.note_saved(PageCount(100));
        child.begin_as_heir();
        let mut saved_with = |pages| {
            child.note_saved(PageCount(pages));
            child.saved.0
        };
        assert_eq!([100, 130, 60, 90].map(&mut saved_with), [0, 30, 0, 30]);
        child.begin_as_heir();
        child.note_saved(PageCount(91));
        assert_eq!(child.saved, PageCount(1));
    }

    #[test]
    fn what_holds_little_is_left_alone() {
        assert_eq!(managed_at([15; 100]), None);
        // The program has shrunk, and grows again.
        let held = [100; 5].into_iter().chain([15; 5]).chain([30; 30]);
        assert_eq!(managed_at(held), Some(20));
    }
}
