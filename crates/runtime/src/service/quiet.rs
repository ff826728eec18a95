//! Quiet: when a program that rests is left alone.
//!
//! A look at what is due reads the gauges, and each tick wakes the service: with 8 ms between them,
//! both take half a second a minute. A program that rests cannot grow before it runs, so a timer on
//! its running time wakes the service then. The slow ticks that remain compare what the ledger
//! says: other processes may need room, and the user may turn a knob.

use coldpress_sys::run_timer::RunTimer;
use coldpress_sys::{Bytes, PageCount, costs};

use crate::ledger::Ledger;

/// Time without a message of the kernel, and without anything that a look has done or found
/// changed, after which a program may rest: what begins or is lowered step by step has ended.
const QUIET_NS: u64 = 1_000_000_000;
/// Time between two ticks while a program rests, and the longest time between two looks. The timer
/// does not expire within one long system call, which may fill memory that nothing was told of.
pub(super) const TICK_NS: u64 = 40_000_000;
const LOOK_NS: u64 = 2_000_000_000;
/// Running time after which a program rests no more: it cannot have grown by more than 1 MiB. The
/// kernel looks at its own ticks, so the timer may come 4 ms later.
const RAN_NS: u64 = (Bytes::mib(1).0 / costs::GROWTH_BYTES_PER_US) as u64 * 1000;
/// Least change of what others hold that asks for a look.
const OTHERS: PageCount = Bytes::mib(1).pages_down();

/// What the ledger says that concerns a process that rests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outside {
    generation: u64,
    budget: PageCount,
    others: PageCount,
}

impl Outside {
    /// Reads it for the process in `seat`.
    pub(super) fn of(ledger: &Ledger, seat: usize) -> Self {
        let others = ledger.others(seat);
        let others = others.used + others.doubt;
        Self { generation: ledger.generation(), budget: ledger.budget(), others }
    }

    fn is_as(self, before: Self) -> bool {
        let others = PageCount(self.others.0.abs_diff(before.others.0));
        self.generation == before.generation && self.budget == before.budget && others < OTHERS
    }
}

/// What a look finds, and steps of which the next look takes another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// What is used, the budget that is kept, and what our own memory takes.
    pub(super) used: PageCount,
    pub(super) total: PageCount,
    pub(super) own: PageCount,
    /// Bytes that compaction has moved since the start.
    pub(super) compacted: u64,
}

/// Whether the program rests, since when, and what there was at the last look.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// The timer on the program's running time, once it has rested, and whether it was refused.
    pub(super) timer: Option<RunTimer>,
    pub(super) is_refused: bool,
    rests: bool,
    /// Whether the program has asked for anything since the last look, and when it last had.
    is_asked: bool,
    asked_at_ns: u64,
    looked_at_ns: u64,
    ran_ns: u64,
    outside: Outside,
    found: Found,
}

impl Quiet {
    /// Notes that the program has asked for something.
    pub(super) fn note_asked(&mut self) {
        self.is_asked = true;
    }

    /// Returns whether the program rests from now on, at a look: it `may`, has asked for nothing
    /// for a while, in which nothing has changed, and hardly runs.
    pub(super) fn begin(
        &mut self,
        now_ns: u64,
        ran_ns: u64,
        (outside, found): (impl FnOnce() -> Outside, Found),
        may: bool,
    ) -> bool {
        let has_changed = core::mem::replace(&mut self.found, found) != found;
        if core::mem::take(&mut self.is_asked) || has_changed {
            self.asked_at_ns = now_ns;
        }
        let has_run = ran_ns.saturating_sub(self.ran_ns) >= RAN_NS;
        self.rests = may && !has_run && now_ns.saturating_sub(self.asked_at_ns) >= QUIET_NS;
        (self.looked_at_ns, self.ran_ns) = (now_ns, ran_ns);
        if self.rests {
            self.outside = outside();
        }
        self.rests
    }

    /// Notes that the program does not rest after all.
    pub(super) fn end(&mut self) {
        self.rests = false;
    }

    /// Returns the running time at which the program rests no more.
    pub(super) fn until_ran_ns(&self) -> u64 {
        self.ran_ns + RAN_NS
    }

    /// Returns whether the program rests and nothing else asks for a look.
    pub(super) fn goes_on(
        &self,
        now_ns: u64,
        outside: impl FnOnce() -> Outside,
        ran_ns: impl FnOnce() -> u64,
    ) -> bool {
        self.rests
            && !self.is_asked
            && now_ns.saturating_sub(self.looked_at_ns) < LOOK_NS
            && outside().is_as(self.outside)
            && ran_ns() < self.until_ran_ns()
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a program that grows while nothing looks, or processors that do nothing but look.

    use super::*;

    const MS: u64 = 1_000_000;
    const OUTSIDE: Outside =
        Outside { generation: 3, budget: PageCount(50_000), others: PageCount(4_000) };
    const FOUND: Found = Found {
        used: PageCount(30_000),
        total: PageCount(50_000),
        own: PageCount(2_000),
        compacted: 7,
    };

    /// Returns the state of a program that asked for something at 0, runs for `ran_ns` between two
    /// looks and was looked at every 8 ms until 1600 ms.
    fn looked_at(ran_ns: u64, may: bool) -> Quiet {
        let mut quiet = Quiet::default();
        quiet.note_asked();
        (0..=200).for_each(|look| {
            quiet.begin(look * 8 * MS, look * ran_ns, (|| OUTSIDE, FOUND), may);
        });
        quiet
    }

    #[test]
    fn a_program_that_rests_is_looked_at_every_two_seconds() {
        let quiet = looked_at(0, true);
        let goes_on = |now_ms: u64| quiet.goes_on(now_ms * MS, || OUTSIDE, || 0);
        assert!(goes_on(1700) && goes_on(3599) && !goes_on(3600));
        assert!(!looked_at(0, false).goes_on(1608 * MS, || OUTSIDE, || 0));
        assert!(!looked_at(RAN_NS, true).goes_on(1608 * MS, || OUTSIDE, || 200 * RAN_NS));
    }

    #[test]
    fn a_program_that_runs_or_asks_rests_no_more() {
        let mut quiet = looked_at(1000, true);
        let ran_ns = 200 * 1000;
        assert_eq!(quiet.until_ran_ns(), ran_ns + RAN_NS);
        assert!(quiet.goes_on(1700 * MS, || OUTSIDE, || ran_ns + RAN_NS - 1));
        assert!(!quiet.goes_on(1700 * MS, || OUTSIDE, || ran_ns + RAN_NS));
        quiet.note_asked();
        assert!(!quiet.goes_on(1700 * MS, || OUTSIDE, || ran_ns));
        let mut begins = |ms: u64| quiet.begin(ms * MS, ran_ns, (|| OUTSIDE, FOUND), true);
        assert!(!begins(1708) && !begins(2700) && begins(2708), "it asked lately");
        quiet.end();
        assert!(!quiet.goes_on(2709 * MS, || OUTSIDE, || ran_ns));
    }

    /// A budget is lowered by a little at each look.
    #[test]
    fn while_a_look_finds_something_changed_the_next_one_comes_soon() {
        let mut quiet = looked_at(0, true);
        let changes = [
            Found { total: PageCount(49_936), ..FOUND },
            Found { used: PageCount(29_999), ..FOUND },
            Found { own: PageCount(1_999), ..FOUND },
            Found { compacted: 8, ..FOUND },
        ];
        for (index, found) in changes.into_iter().enumerate() {
            let now_ns = (1608 + index as u64 * 2_000) * MS;
            assert!(!quiet.begin(now_ns, 0, (|| OUTSIDE, found), true), "{found:?}");
            assert!(quiet.begin(now_ns + QUIET_NS, 0, (|| OUTSIDE, found), true));
        }
    }

    #[test]
    fn what_others_need_is_looked_at() {
        let quiet = looked_at(0, true);
        let goes_on = |outside| quiet.goes_on(1700 * MS, || outside, || 0);
        let others = |pages| Outside { others: PageCount(pages), ..OUTSIDE };
        assert!(goes_on(others(4_000 + OTHERS.0 - 1)) && goes_on(others(4_001 - OTHERS.0)));
        assert!(!goes_on(others(4_000 + OTHERS.0)) && !goes_on(others(4_000 - OTHERS.0)));
        assert!(!goes_on(Outside { generation: 4, ..OUTSIDE }));
        assert!(!goes_on(Outside { budget: PageCount(49_999), ..OUTSIDE }));
    }
}
