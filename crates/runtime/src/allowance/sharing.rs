//! Memory that is shared with relatives since a `fork` counts once among them.
//!
//! RssAnon has a page in every process that maps it. The kernel also gives each process's fair part
//! of what it maps (Pss_Anon), but walks all page tables for it, 30 to 130 ns a page. So the
//! service asks for it rarely, for 2 % of a processor's time, and 5 % while the budget seems to be
//! passed, by all processes of the run together. The difference is the *credit*: what relatives are
//! charged with. In between, a shared page becomes a process's own when that process writes to it,
//! by a minor fault, so such faults since are subtracted from its credit. That is too much rather
//! than too little: some of these faults are first touches, which RssAnon has as well, or map
//! shared memory. Faults that we served are known.
//!
//! A page that a relative copies becomes this process's own, too. These copies are subtracted
//! likewise as far as they are known (`copies`).
//!
//! So one copy is charged to each relative. Most of that is in *doubt*: it is no room for anything,
//! and not reported as held either. So is what the credit lacks because of relatives that have come
//! since it was found: with them a larger part of each page is charged to others.
//!
//! After a fork the credit is half of everything, whether the child is there to be charged with the
//! other half, is still to join, or has ended already. The part that no process has been seen to be
//! charged with is *pending* for a while: no room for anything.

use coldpress_sys::PageCount;

use super::gauges::Gauges;

/// Time from a fork to the first asking: the child should not wait for it.
const FRESH_NS: u64 = 20_000_000;
/// Time by which a child has joined, or has ended, or is not managed.
const JOINED_NS: u64 = 200_000_000;
/// Least time between two askings, and the factor by which that time exceeds what this process ran
/// for one asking, for each of the processes that share its processor.
const ASK_NS_MIN: u64 = 50_000_000;
const ASK_COST_FACTOR: u64 = 50;
/// The factor in place of `ASK_COST_FACTOR` when a relative may have ended.
const SOON_COST_FACTOR: u64 = 5;
/// The factor in place of `ASK_COST_FACTOR` while the budget seems to be passed, as the excess has
/// to be known then, and when there are more relatives.
const PASSED_COST_FACTOR: u64 = 20;
/// Credit below which there is none: 1 MiB.
const NOTHING: PageCount = PageCount(256);
/// Divisor of the credit: when others have let go of this part, a relative may have ended, and the
/// kernel is asked at once.
const LET_GO_PART: usize = 4;

/// Divisor of the credit: when this part may have been lost, or not, the kernel is asked sooner.
const UNSURE_PART: usize = 8;

/// What a process need not be charged with.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    state: State,
    credit: PageCount,
    /// Faults when the credit was found, without those that we served.
    faults: u64,
    /// The most that others have held since.
    others: PageCount,
    /// Until when a child may still have to be charged with its part, and what others held when the
    /// child was made.
    child_until_ns: u64,
    before_child: PageCount,
    /// Part of the credit that no process is charged with, as far as is known.
    pending: PageCount,
    ask_at_ns: u64,
    /// Until when the fork may not have happened yet, so that the kernel may say that nothing is
    /// shared.
    fresh_until_ns: u64,
    /// When the kernel was last asked, and how long this process ran meanwhile.
    asked_ns: u64,
    asking_ran_ns: u64,
    /// When the credit was found: what others had copied, what this process had copied that they
    /// know of, and what of ours had been touched first.
    copied: u64,
    noted: u64,
    own: u64,
    /// Faults by which shared memory and files may have been mapped by that time.
    mapped: u64,
    /// Number of relatives at that time, with a child that is to come.
    relatives: u64,
    /// What is likely left of the credit beyond what is counted on.
    doubt: PageCount,
    /// Least number of processes that have each shared page, this one included.
    sharers: u64,
    /// Shared pages that became its own since [`Sharing::take_broken`], and the faults counted so
    /// far.
    broken: u64,
    counted: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// There are no relatives that share much.
    #[default]
    Alone,
    /// There has just been a fork.
    Fresh,
    /// The credit is known.
    Known,
}

/// What is known at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharingInput {
    /// RssAnon of this process.
    pub(crate) resident: PageCount,
    /// What other processes of the run hold.
    pub(crate) others: PageCount,
    /// Faults that we have served.
    pub(crate) served: u64,
    /// Pages of ours that were touched first.
    pub(crate) own: u64,
    /// Faults by which shared memory and files may have been mapped.
    pub(crate) mapped: u64,
    /// Pages that other processes of the run have copied.
    pub(crate) copied: u64,
    /// Pages that this process has copied, of those that the others know of.
    pub(crate) noted: u64,
    /// Other processes of its family.
    pub(crate) relatives: u64,
    /// Whether more than the budget seems to be in use.
    pub(crate) is_passed: bool,
    /// Processes that share memory, for each processor, at least 1: all of them ask.
    pub(crate) crowd: u64,
}

impl Sharing {
    /// Records that this process has forked.
    pub(crate) fn begin(&mut self) {
        self.state = State::Fresh;
    }

    /// Has the kernel asked at once, because this process may have forked before that was noted.
    pub(crate) fn look(&mut self) {
        if self.state == State::Alone {
            self.become_known();
            self.ask_at_ns = 0;
        }
    }

    /// Has the kernel asked; what was copied before that is no growth.
    fn become_known(&mut self) {
        (self.state, self.counted) = (State::Known, u64::MAX);
    }

    /// Returns the state for a child that inherits, and shares as much as its parent does since the
    /// fork.
    pub(crate) fn go_on_in_child(self) -> Self {
        // The child's faults are counted from nothing, and its parent is charged with the other
        // half.
        let none = PageCount(0);
        Self {
            faults: 0,
            own: 0,
            mapped: 0,
            counted: 0,
            others: none,
            pending: none,
            child_until_ns: 0,
            ..self
        }
    }

    /// Returns what is no room, though no process holds it.
    pub(crate) fn pending(&self) -> PageCount {
        self.pending
    }

    /// Returns the pages that are no credit, although most of them are likely to be. No use is made
    /// of them, because they may not be.
    pub(crate) fn doubt(&self) -> PageCount {
        self.doubt
    }

    /// Returns whether much is shared, as far as is known.
    pub(crate) fn is_much(&self) -> bool {
        self.state != State::Alone
    }

    /// Returns the part of what is resident that others are charged with. The kernel is asked for
    /// the rest only when that is due.
    pub(crate) fn credit(&mut self, now: SharingInput, gauges: &impl Gauges) -> PageCount {
        if self.state == State::Alone {
            self.relatives = self.relatives.min(now.relatives);
            let is_time = now.relatives > self.relatives && self.shall_ask(gauges.now_ns(), now);
            if !is_time {
                return PageCount(0);
            }
            self.become_known();
        }
        let faults = gauges.minor_faults().saturating_sub(now.served);
        self.broken += faults.saturating_sub(self.counted.max(self.faults));
        self.counted = faults;
        let begun = gauges.now_ns();
        if self.state == State::Fresh {
            self.broken = 0;
            // One more process shares everything: a part of 1/n becomes one of 1/(n + 1).
            let part = now.resident.saturating_sub(self.left(faults, now));
            let all = now.resident + part;
            let part = PageCount(part.0 * now.resident.0 / all.0.max(1));
            // The child is to come, and so may be others over which the credit is spread already.
            let before = if self.credit > PageCount(0) { self.relatives } else { now.relatives };
            self.note(now, faults, now.resident.saturating_sub(part));
            self.state = State::Known;
            self.relatives = before + 1;
            (self.fresh_until_ns, self.ask_at_ns) = (begun + FRESH_NS, begun + FRESH_NS);
            (self.child_until_ns, self.before_child) = (begun + JOINED_NS, now.others);
        } else if self.shall_ask(begun, now) {
            let ran = gauges.ran_ns();
            // Where the kernel does not say, everything counts.
            let part = gauges.fair_part().unwrap_or(now.resident);
            // The kernel counts a child that has not joined yet.
            let expected = if begun < self.child_until_ns { self.relatives } else { 0 };
            self.note(now, faults, now.resident.saturating_sub(part));
            self.relatives = self.relatives.max(expected);
            self.asked_ns = gauges.now_ns();
            // Not the time that asking took: on a busy machine this process waits for most of it.
            self.asking_ran_ns = gauges.ran_ns().saturating_sub(ran);
            let cost = self.asking_ran_ns * now.crowd;
            self.ask_at_ns = self.asked_ns + ASK_NS_MIN.max(cost * ASK_COST_FACTOR);
            if self.credit < NOTHING {
                *self = self.left_alone();
            }
        }
        let credit = self.left(faults, now).min(now.resident);
        let likely = self.likely_left(faults, now).min(now.resident);
        self.doubt = likely.saturating_sub(credit);
        self.others = self.others.max(now.others);
        let of_child = now.others.saturating_sub(self.before_child);
        if of_child >= credit || begun >= self.child_until_ns {
            self.child_until_ns = 0;
        }
        // Relatives are charged with as much as this process is spared.
        let charged = if self.child_until_ns > 0 { of_child } else { now.others };
        self.pending = credit.saturating_sub(charged);
        credit
    }

    /// Returns the pages that became its own, as far as is known, since the last call.
    pub(crate) fn take_broken(&mut self) -> PageCount {
        PageCount(core::mem::take(&mut self.broken).min(self.credit.0 as u64) as usize)
    }

    /// Returns what is left of the credit at least, after `faults` and after what others have
    /// copied: what would be left if all of these pages were this process's.
    fn left(&self, faults: u64, now: SharingInput) -> PageCount {
        let broken = faults.saturating_sub(self.faults);
        let broken = broken.saturating_add(now.copied.saturating_sub(self.copied));
        self.credit.saturating_sub(PageCount(broken as usize))
    }

    /// Returns what is likely left of the credit. Of a page that n processes have, each is charged
    /// with 1/n. A process that copies the page is then charged with all of it, and each of the
    /// others with 1/(n - 1), if they know.
    fn likely_left(&self, faults: u64, now: SharingInput) -> PageCount {
        let mapped = now.mapped.saturating_sub(self.mapped);
        let own = now.own.saturating_sub(self.own).saturating_add(mapped);
        let copied = faults.saturating_sub(self.faults).saturating_sub(own);
        let noted = now.noted.saturating_sub(self.noted).min(copied);
        let n = self.sharers.max(2);
        let of_others = now.copied.saturating_sub(self.copied).div_ceil(n * (n - 1));
        let credit = self.spread(now);
        credit.saturating_sub(PageCount((copied - noted / n + of_others) as usize))
    }

    /// Returns what the credit becomes with relatives that have come since, if all share what it is
    /// for: of n processes that have a page, n - 1 are others.
    fn spread(&self, now: SharingInput) -> PageCount {
        let (before, others) = (self.relatives.max(1), now.relatives);
        if others <= before {
            return self.credit;
        }
        let (part, all) = ((before + 1) * others, before * (others + 1));
        let most = u128::from(others) * now.resident.0 as u128 / u128::from(others + 1);
        let credit = u128::from(part) * self.credit.0 as u128 / u128::from(all);
        PageCount(credit.min(most) as usize).max(self.credit)
    }

    /// Returns the state in which nothing much is shared, which may change with more relatives.
    fn left_alone(&self) -> Self {
        let Self { relatives, ask_at_ns, asked_ns, asking_ran_ns, .. } = *self;
        Self { relatives, ask_at_ns, asked_ns, asking_ran_ns, ..Self::default() }
    }

    /// Returns whether the kernel is to be asked at this time.
    fn shall_ask(&self, now_ns: u64, now: SharingInput) -> bool {
        let cost = self.asking_ran_ns * now.crowd;
        let after = |factor| now_ns >= self.asked_ns + cost * factor;
        let is_wanted = now.is_passed || now.relatives > self.relatives;
        now_ns >= self.ask_at_ns
            || (is_wanted || self.is_unsure(now))
                && now_ns >= self.fresh_until_ns
                && after(PASSED_COST_FACTOR)
            || after(SOON_COST_FACTOR) && self.has_let_go(now.others)
    }

    /// Returns whether many faults may have been copies, or may have mapped shared memory.
    fn is_unsure(&self, now: SharingInput) -> bool {
        let much = (self.credit.0 / UNSURE_PART).max(NOTHING.0) as u64;
        self.credit > PageCount(0) && now.mapped.saturating_sub(self.mapped) > much
    }

    /// Returns whether others hold enough less than when the credit was found that it may be
    /// smaller.
    fn has_let_go(&self, others: PageCount) -> bool {
        self.credit > PageCount(0)
            && self.others.saturating_sub(others).0 > self.credit.0 / LET_GO_PART
    }

    fn note(&mut self, now: SharingInput, faults: u64, credit: PageCount) {
        (self.credit, self.faults, self.others) = (credit, faults, now.others);
        (self.copied, self.noted, self.own) = (now.copied, now.noted, now.own);
        self.mapped = now.mapped;
        self.relatives = now.relatives;
        // At least this many, because what the process has alone counts as shared too.
        let part = now.resident.saturating_sub(credit);
        self.sharers = (now.resident.0 / part.0.max(1)) as u64;
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a page that no process is charged with, so that the budget is passed.

    use super::super::gauges::Answers;
    use super::*;

    /// Faults of the process.
    const ALL: u64 = 3_000;
    const NOW: SharingInput = SharingInput {
        resident: PageCount(0),
        others: PageCount(0),
        served: 0,
        own: 0,
        mapped: 0,
        copied: 0,
        noted: 0,
        relatives: 0,
        is_passed: false,
        crowd: 1,
    };

    #[test]
    fn a_fresh_credit_is_half_and_shrinks_with_every_write() {
        let now = SharingInput { resident: PageCount(10_000), others: PageCount(5_000), ..NOW };
        let mut sharing = Sharing::default();
        assert_eq!(sharing.credit(now, &Answers::of(ALL, None)), PageCount(0));
        sharing.begin();
        assert!(sharing.is_much());
        let fresh = sharing.credit(now, &Answers::of(ALL, None));
        assert!(fresh <= PageCount(5_000) && fresh > PageCount(4_000), "{fresh:?}");
        let passed = SharingInput { is_passed: true, ..now };
        assert_eq!(sharing.credit(passed, &Answers::unasked(ALL)), fresh);
        // One more child: a third of it is charged.
        sharing.begin();
        let third = sharing.credit(now, &Answers::of(ALL, None));
        assert!((6_000..=6_667).contains(&third.0), "{third:?}");
        sharing = Sharing::default();
        sharing.begin();
        sharing.credit(now, &Answers::of(ALL, None));
        // Faults that were served are not subtracted; others are.
        sharing.faults = 0;
        let served = SharingInput { served: ALL, ..now };
        assert!(sharing.credit(served, &Answers::of(ALL, None)) > PageCount(4_900));
        assert!(sharing.credit(now, &Answers::of(ALL, None)) <= PageCount(5_000 - ALL as usize));
    }

    /// The risk: three processes that copy what they share seem to hold three times what they
    /// copied, and that is reported as the peak.
    #[test]
    fn a_copy_is_likely_to_be_charged_once_and_may_be_to_all() {
        let now = SharingInput { resident: PageCount(9_000), others: PageCount(18_000), ..NOW };
        // `own` is what this process has copied, `of_others` what others have, `first` what of ours
        // was touched first.
        let held = |own: u64, of_others: u64, first: u64| {
            let mut sharing = Sharing { state: State::Known, ..Sharing::default() };
            sharing.credit(now, &Answers::of(ALL, Some(3_000)));
            let now = SharingInput { copied: of_others, noted: own, own: first, ..now };
            let credit = sharing.credit(now, &Answers::of(ALL + own + first, None));
            (9_000 - credit.0, sharing.doubt().0)
        };
        assert_eq!(held(0, 0, 0), (3_000, 0));
        let one = held(300, 0, 0);
        assert_eq!(one, (3_300, 100));
        let others = held(0, 300, 0);
        assert_eq!(others, (3_300, 250));
        let likely = |(held, doubt): (usize, usize)| held - doubt;
        assert_eq!(likely(one) + 2 * likely(others), 9_300);
        assert_eq!(likely(held(300, 0, 500)), likely(one));
        // No other process knows of what was copied without us.
        let mut alone = Sharing { state: State::Known, ..Sharing::default() };
        alone.credit(now, &Answers::of(ALL, Some(3_000)));
        assert_eq!(alone.credit(now, &Answers::of(ALL + 300, None)), PageCount(5_700));
        assert_eq!(alone.doubt(), PageCount(0));
    }

    /// The risk: sixteen processes that read shared memory seem to copy what they share at each
    /// fault; or a process that copies seems to read for ever.
    #[test]
    fn a_fault_that_may_have_mapped_shared_memory_is_likely_no_copy_until_the_kernel_tells() {
        let now = SharingInput { resident: PageCount(9_000), others: PageCount(18_000), ..NOW };
        let mut sharing = Sharing { state: State::Known, ..Sharing::default() };
        sharing.credit(now, &Answers::of(ALL, Some(3_000)));
        // A slow machine does not ask again.
        (sharing.ask_at_ns, sharing.asked_ns) = (u64::MAX, u64::MAX / 2);
        let few = SharingInput { mapped: 700, ..now };
        let credit = sharing.credit(few, &Answers::unasked(ALL + 800));
        assert_eq!((credit, sharing.doubt()), (PageCount(5_200), PageCount(700)));
        sharing.asked_ns = 0;
        let many = SharingInput { mapped: 800, ..now };
        let credit = sharing.credit(many, &Answers::of(ALL + 800, Some(3_700)));
        assert_eq!((credit, sharing.doubt()), (PageCount(5_300), PageCount(0)));
    }

    /// The risk: a parent that was alone never hears that it has children by now; or many processes
    /// with nothing in common ask all the time.
    #[test]
    fn one_that_is_alone_asks_when_there_are_more_relatives() {
        let now = |relatives| SharingInput { resident: PageCount(6_000), relatives, ..NOW };
        let mut sharing = Sharing::default();
        assert_eq!(sharing.credit(now(0), &Answers::unasked(ALL)), PageCount(0));
        assert_eq!(sharing.credit(now(1), &Answers::of(ALL, Some(5_900))), PageCount(0));
        assert!(!sharing.is_much());
        assert_eq!(sharing.credit(now(1), &Answers::unasked(ALL)), PageCount(0));
        // An asking took a second.
        (sharing.asked_ns, sharing.asking_ran_ns) = (Answers::default().now_ns(), 1_000_000_000);
        sharing.ask_at_ns = u64::MAX;
        assert_eq!(sharing.credit(now(2), &Answers::unasked(ALL)), PageCount(0));
        (sharing.asked_ns, sharing.ask_at_ns) = (0, 0);
        assert_eq!(sharing.credit(now(2), &Answers::of(ALL, Some(3_000))), PageCount(3_000));
        (sharing.ask_at_ns, sharing.asked_ns) = (u64::MAX, u64::MAX / 2);
        // Its faults until then were no copies.
        assert_eq!(sharing.take_broken(), PageCount(0));
        sharing.credit(now(2), &Answers::of(ALL + 9, None));
        assert_eq!(sharing.take_broken(), PageCount(9));
    }

    /// The risk: until the kernel is asked, an elder child believes that it shares with its parent
    /// alone, and all three seem to hold more than there is.
    #[test]
    fn one_more_relative_makes_the_credit_larger_and_no_room() {
        let now = SharingInput {
            resident: PageCount(6_000),
            others: PageCount(3_000),
            relatives: 1,
            ..NOW
        };
        let mut sharing = Sharing { state: State::Known, ..Sharing::default() };
        let mut held = |relatives| {
            let now = SharingInput { relatives, ..now };
            let credit = sharing.credit(now, &Answers::of(ALL, Some(3_000)));
            // A slow machine does not ask again.
            (sharing.ask_at_ns, sharing.asked_ns) = (u64::MAX, u64::MAX / 2);
            (6_000 - credit.0, sharing.doubt().0)
        };
        assert_eq!([held(1), held(2), held(4)], [(3_000, 0), (3_000, 1_000), (3_000, 1_800)]);
        assert_eq!([held(1), held(0)], [(3_000, 0); 2]);
        // The process has less than its part of what it shares, if all of it is shared.
        assert_eq!(held(500), (3_000, 2_988));
        // Four forks before the first child has joined.
        let mut sharing = Sharing::default();
        for _ in 0..4 {
            sharing.begin();
            sharing.credit(SharingInput { relatives: 0, ..now }, &Answers::of(ALL, None));
        }
        (sharing.ask_at_ns, sharing.fresh_until_ns) = (u64::MAX, u64::MAX);
        let mut doubt = |relatives| {
            sharing.credit(SharingInput { relatives, ..now }, &Answers::unasked(ALL));
            sharing.doubt().0
        };
        assert!(doubt(4) == 0 && doubt(5) > 0);
    }

    /// The risk: the room of a child that ended at once is filled, and was never there.
    #[test]
    fn what_nobody_is_charged_with_is_pending_until_it_is_known() {
        let now =
            |others| SharingInput { resident: PageCount(10_000), others: PageCount(others), ..NOW };
        let mut sharing = Sharing::default();
        sharing.begin();
        let pending = |sharing: &mut Sharing, others, fair| {
            let credit = sharing.credit(now(others), &Answers::of(ALL, Some(fair)));
            (credit.0, sharing.pending().0)
        };
        let (credit, all) = pending(&mut sharing, 700, 0);
        assert_eq!(credit, all);
        assert_eq!(pending(&mut sharing, 1_700, 0), (credit, credit - 1_000));
        // The child has ended before it was charged.
        assert_eq!(pending(&mut sharing, 700, 0), (credit, credit));
        assert_eq!(pending(&mut sharing, 9_000, 0), (credit, 0));
        // Nor is anything pending in a child, whose parent is charged, unless the parent goes.
        let mut child = Sharing::default();
        child.begin();
        pending(&mut child, 700, 0);
        let mut child = child.go_on_in_child();
        let (credit, none) = pending(&mut child, 6_000, 0);
        assert_eq!((none, pending(&mut child, 5_000, 0).1), (0, credit.saturating_sub(5_000)));
        // The others let go: the kernel is asked at once.
        assert_eq!(pending(&mut sharing, 700, 9_900), (0, 0));
    }

    #[test]
    fn a_process_without_relatives_soon_knows_it() {
        let mut sharing = Sharing::default();
        sharing.begin();
        sharing.credit(NOW, &Answers::of(ALL, None));
        sharing.ask_at_ns = 0;
        assert_eq!(sharing.credit(NOW, &Answers::of(ALL, None)), PageCount(0));
        assert!(!sharing.is_much());
        // Relatives that are looked for, and are not there.
        sharing.look();
        assert!(sharing.is_much());
        assert_eq!(sharing.credit(NOW, &Answers::of(ALL, None)), PageCount(0));
        assert!(!sharing.is_much());
    }

    /// The risk: what only seems to be in use stops everything, or is reported as the peak.
    #[test]
    fn the_kernel_is_asked_sooner_when_the_budget_seems_to_be_passed() {
        let sharing = Sharing {
            ask_at_ns: 1_000_000_000,
            asked_ns: 900_000_000,
            asking_ran_ns: 1_000_000,
            ..Sharing::default()
        };
        let now = |is_passed| SharingInput { is_passed, ..NOW };
        let asks = |at_ms: u64, is_passed| sharing.shall_ask(at_ms * 1_000_000, now(is_passed));
        assert_eq!([asks(999, false), asks(1000, false)], [false, true]);
        assert_eq!([asks(919, true), asks(920, true)], [false, true]);
        // A hundred processes that each ask for that part of the time would do nothing else.
        let crowd = SharingInput { is_passed: true, crowd: 4, ..NOW };
        assert!(!sharing.shall_ask(979_000_000, crowd) && sharing.shall_ask(980_000_000, crowd));
    }

    #[test]
    fn others_that_let_go_are_noticed() {
        let sharing =
            Sharing { credit: PageCount(400), others: PageCount(1000), ..Sharing::default() };
        assert!(!sharing.has_let_go(PageCount(1200)) && !sharing.has_let_go(PageCount(900)));
        assert!(sharing.has_let_go(PageCount(899)));
    }
}
