//! The reclaim queue: which run of the program is taken next.
//!
//! Runs are taken in the order of their last fault-in. A run with a fault since it was queued
//! passes through the queue once more (second chance), as does a run of which pages still wait in
//! limbo.
//!
//! A program that walks again and again through more memory than there is room for would find
//! nothing in place that way: each run is taken just before its turn comes again. So runs that a
//! long walk brings back wait in a line of their own, which is short. They are taken when the walk
//! has gone on, and everything else stays in place. One run in `WALKED_IN_MAIN` waits with the
//! others, so that a walk which there is room for finds more of its runs in place each time, until
//! all are. What is read ahead from disk waits with the others, too.
//!
//! ```text
//! walked: [run] ..... [run]  beyond 16, its first is taken
//!           | the 33rd, while nothing is taken
//!           v
//! main:   [run] ............ [run]  else the older of both first runs, usually this
//! ```
//!
//! Sources: inserting only a few of the pages of a loop so that they stay is the bimodal insertion
//! policy (Qureshi et al., ISCA 2007); the short line of what may not stay is part of 2Q (Johnson
//! and Shasha, VLDB 1994).
//!
//! Invariants:
//! 1. A run that is marked as queued in the [`PageTable`] is in one line once, with the time of its
//!    mark. Any other entry is stale: its run was forgotten meanwhile, and may be in use again.
//! 2. The line of walks has no more entries than `WALKED_MAX`. The main line has no more than
//!    `STALE_MAX`, or twice the entries that were not stale when stale ones were last dropped.

use alloc::collections::VecDeque;
use core::cmp::Reverse;

use crate::pages::{Origin, PageNumber, PageState, PageTable, Run, RunNumber, Way};

/// A run, and the time at which it was put here.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: RunNumber,
    queued_at: u32,
}

impl Entry {
    fn is_stale(self, pages: &PageTable) -> bool {
        let is_of = |run: &Run| run.queued && run.queued_at == self.queued_at;
        !pages.run(self.number).is_some_and(is_of)
    }
}

/// Runs that have resident pages, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    main: VecDeque<Entry>,
    /// Runs that long walks brought.
    walked: VecDeque<Entry>,
    /// Length of `main` at which stale entries are dropped.
    purged_at: usize,
    /// Number of runs that long walks have brought so far.
    walked_count: usize,
    /// Runs looked at since pages of one were moved, but for those that got their second chance.
    looked_at: usize,
}

/// The outcome of looking for a cold run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evicted {
    /// Pages of a run have been moved.
    Run,
    /// The runs looked at have to wait; there are others.
    NothingYet,
    /// All runs have to wait.
    Nothing,
}

/// Runs looked at in one step: 0.1 ms. Most of a queue may have to wait, and a fault waits
/// meanwhile.
const LOOKED_AT_MAX: usize = 256;
/// Entries that may all be stale: 64 KiB.
const STALE_MAX: usize = 4096;
/// Runs that wait in the line of walks while others are taken: for each of eight walks, the run
/// that is being read and the run that is being brought. With 8 and 32, five programs have a few
/// more faults.
const WALKED_KEPT: usize = 16;
/// Largest number of runs in the line of walks. More come only while none is taken: then the first
/// of them was passed long ago, and moves to the main line.
const WALKED_MAX: usize = 2 * WALKED_KEPT;
/// Of this many runs that long walks bring, one waits in the main line. With 2 and 4, programs have
/// more faults; with 32 a few less, but a loop that fits takes longer until all of it is in place.
const WALKED_IN_MAIN: usize = 8;

impl RunQueue {
    /// Puts a run at the end unless it is in the queue.
    pub(crate) fn enqueue(&mut self, pages: &mut PageTable, number: RunNumber, now: u32) {
        if pages.note_queued(number, now) {
            self.push(pages, Entry { number, queued_at: now });
        }
    }

    /// Puts a run that has been marked at the end of the main line.
    fn push(&mut self, pages: &PageTable, entry: Entry) {
        if self.main.len() >= self.purged_at.max(STALE_MAX) {
            self.main.retain(|entry| !entry.is_stale(pages));
            self.purged_at = 2 * self.main.len();
            self.main.shrink_to(self.purged_at);
        }
        self.main.push_back(entry);
    }

    /// Records that a page has been brought in at the time `now`.
    pub(crate) fn arrive(
        &mut self,
        pages: &mut PageTable,
        page: PageNumber,
        from: Origin,
        way: Way,
        now: u32,
    ) {
        // A page that comes back soon is in use, and a page in limbo was not far.
        let is_walked = way == Way::Walk
            && pages.state(page) == PageState::Stored
            && !pages.was_stored_lately(page);
        if !pages.arrive(page, from, way, now) {
            return;
        }
        let entry = Entry { number: page.run(), queued_at: now };
        if !is_walked {
            return self.push(pages, entry);
        }
        self.walked_count += 1;
        if self.walked_count.is_multiple_of(WALKED_IN_MAIN) {
            return self.push(pages, entry);
        }
        self.walked.push_back(entry);
        if self.walked.len() > WALKED_MAX {
            self.walked.pop_front().into_iter().for_each(|entry| self.push(pages, entry));
        }
    }

    /// Puts the main line into the order of the last faults, and of addresses where these say
    /// nothing. Relatives that have the same runs then take them in the same order, wherever each
    /// relative was in its round.
    pub(crate) fn put_in_order(&mut self, pages: &PageTable, now: u32) {
        self.main.retain(|entry| !entry.is_stale(pages));
        let age = |number| pages.run(number).map_or(0, |run| now.wrapping_sub(run.stamp));
        let place = |entry: &Entry| (Reverse(age(entry.number)), entry.number.0);
        self.main.make_contiguous().sort_by_cached_key(place);
    }

    /// Returns how many runs to look at in one step.
    pub(crate) fn step(&self) -> usize {
        self.len().min(LOOKED_AT_MAX)
    }

    /// Records that pages of a run were moved.
    pub(crate) fn note_moved(&mut self) -> Evicted {
        self.looked_at = 0;
        Evicted::Run
    }

    /// Records that a step is over, and nothing was moved.
    pub(crate) fn note_nothing_moved(&mut self) -> Evicted {
        if self.looked_at < self.len() {
            return Evicted::NothingYet;
        }
        self.looked_at = 0;
        Evicted::Nothing
    }

    /// Takes the first run from the queue, and returns it if it may be moved now. If not, the run
    /// is at the end of the main line, or nothing is known of it any more.
    pub(crate) fn next_if_cold(&mut self, pages: &mut PageTable, now: u32) -> Option<RunNumber> {
        let line = if self.is_walked_next() { &mut self.walked } else { &mut self.main };
        let entry = line.pop_front()?;
        if entry.is_stale(pages) {
            return None;
        }
        let number = entry.number;
        let run = pages.run_mut(number);
        let touched_since = run.stamp.wrapping_sub(run.queued_at).cast_signed() > 0;
        // A run that gets its second chance now may be taken next time.
        self.looked_at += usize::from(!touched_since);
        if touched_since || run.unfit_sweeps > 0 || run.slot.is_some() {
            run.queued_at = now;
            run.unfit_sweeps = run.unfit_sweeps.saturating_sub(1);
            // Not in the other line, where waiting runs would keep others from their turn.
            self.push(pages, Entry { number, queued_at: now });
            return None;
        }
        run.queued = false;
        Some(number)
    }

    /// Returns whether the next run is the first of those that long walks brought.
    fn is_walked_next(&self) -> bool {
        if self.walked.len() > WALKED_KEPT {
            return true;
        }
        match (self.walked.front(), self.main.front()) {
            (Some(walked), Some(main)) => {
                walked.queued_at.wrapping_sub(main.queued_at).cast_signed() < 0
            }
            (walked, _) => walked.is_some(),
        }
    }

    fn len(&self) -> usize {
        self.main.len() + self.walked.len()
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a run that is taken while it is in use, or never.

    use coldpress_sys::PageCount;
    use proptest::prelude::*;

    use std::vec::Vec;

    use super::*;

    fn page(run: usize) -> PageNumber {
        RunNumber(run).first()
    }

    /// Creates a queue of these runs, each touched first at the time of its place.
    fn queued(runs: &[usize]) -> (RunQueue, PageTable) {
        let (mut queue, mut pages) = (RunQueue::default(), PageTable::new(PageCount(1000)));
        for (time, run) in runs.iter().enumerate() {
            queue.arrive(&mut pages, page(*run), Origin::FirstTouch, Way::Alone, time as u32);
        }
        (queue, pages)
    }

    #[test]
    fn runs_come_in_the_order_of_their_last_fault_and_once_each() {
        let (mut queue, mut pages) = queued(&[5, 9, 2, 5]);
        queue.enqueue(&mut pages, RunNumber(9), 4);
        assert_eq!(queue.step(), 3);
        // Run 5 was touched again since it was queued, so it passes through once more.
        let order: Vec<_> = (0..4).map(|_| queue.next_if_cold(&mut pages, 5)).collect();
        assert_eq!(order, [None, Some(RunNumber(9)), Some(RunNumber(2)), Some(RunNumber(5))]);
        assert_eq!((queue.step(), queue.next_if_cold(&mut pages, 6)), (0, None));
        // What was taken can be queued again.
        queue.enqueue(&mut pages, RunNumber(2), 7);
        assert_eq!(queue.next_if_cold(&mut pages, 8), Some(RunNumber(2)));
    }

    /// Stores a page of each of these runs, and many others behind them.
    fn store(pages: &mut PageTable, runs: impl Iterator<Item = usize>) {
        let others = (1 << 20..).take(2000).map(PageNumber);
        for page in runs.map(page).chain(others) {
            pages.set_state(page, PageState::Limbo);
            pages.note_stored(page);
        }
    }

    #[test]
    fn what_long_walks_bring_goes_first_but_for_a_part() {
        let (mut queue, mut pages) = queued(&[1, 2, 3]);
        let runs = 100..130;
        store(&mut pages, runs.clone());
        for run in runs.clone() {
            queue.arrive(&mut pages, page(run), Origin::Readahead, Way::Walk, run as u32);
        }
        assert_eq!(queue.step(), 33);
        let order = (0..33).map(|_| queue.next_if_cold(&mut pages, 200).unwrap().0);
        let order: Vec<_> = order.collect();
        let (in_main, walked): (Vec<_>, Vec<_>) =
            runs.partition(|run| (run - 99).is_multiple_of(WALKED_IN_MAIN));
        let (first, rest) = walked.split_at(walked.len() - WALKED_KEPT);
        let mut rest = [rest, &in_main].concat();
        rest.sort_unstable();
        assert_eq!(order, [first, &[1, 2, 3], &rest].concat());
    }

    #[test]
    fn a_walk_makes_no_run_younger_that_is_there() {
        let (mut queue, mut pages) = queued(&[5, 9]);
        let other = page(5).plus(1);
        queue.arrive(&mut pages, other, Origin::Store, Way::Walk, 7);
        queue.arrive(&mut pages, page(9).plus(1), Origin::Store, Way::Alone, 8);
        let order = [(); 3].map(|()| queue.next_if_cold(&mut pages, 9));
        assert_eq!(order, [Some(RunNumber(5)), None, Some(RunNumber(9))]);
    }

    #[test]
    fn runs_of_walks_that_have_to_wait_keep_no_others_from_their_turn() {
        let (mut queue, mut pages) = queued(&[1, 2]);
        let runs = 100..140;
        store(&mut pages, runs.clone());
        for run in runs {
            queue.arrive(&mut pages, page(run), Origin::Readahead, Way::Walk, run as u32);
            pages.run_mut(RunNumber(run)).slot = Some(1);
        }
        let order = (0..queue.step()).filter_map(|_| queue.next_if_cold(&mut pages, 200));
        assert_eq!(order.collect::<Vec<_>>(), [1, 2].map(RunNumber));
        assert_eq!(queue.note_nothing_moved(), Evicted::Nothing);
    }

    #[test]
    fn what_comes_back_soon_or_from_limbo_stays_though_a_walk_brought_it() {
        let (mut queue, mut pages) = queued(&[1]);
        store(&mut pages, 0..0);
        for run in 100..200 {
            pages.set_state(page(run), PageState::Limbo);
            if run % 2 == 0 {
                pages.note_stored(page(run));
            }
        }
        for run in 100..200 {
            queue.arrive(&mut pages, page(run), Origin::Readahead, Way::Walk, run as u32);
        }
        assert_eq!(queue.next_if_cold(&mut pages, 200), Some(RunNumber(1)));
        assert_eq!(queue.walked.len(), 0);
    }

    /// The risk: relatives that store what they share, each starting at another place, until
    /// nothing of it is free and all of it is stored once for each relative.
    #[test]
    fn relatives_take_the_same_runs_first_wherever_each_is_in_its_round() {
        let order = |turns: usize| {
            let (mut queue, mut pages) = queued(&[7, 3, 9, 5]);
            for time in 0..turns {
                let number = queue.next_if_cold(&mut pages, 10 + time as u32);
                number.into_iter().for_each(|it| queue.enqueue(&mut pages, it, 10 + time as u32));
            }
            // A run that was touched first in this process alone, and is youngest.
            queue.arrive(&mut pages, page(1), Origin::FirstTouch, Way::Alone, 20);
            queue.put_in_order(&pages, 21);
            (0..5).map(|_| queue.next_if_cold(&mut pages, 22).unwrap().0).collect::<Vec<_>>()
        };
        for turns in 0..9 {
            assert_eq!(order(turns), [7, 3, 9, 5, 1], "{turns}");
        }
    }

    #[test]
    fn nothing_can_be_moved_once_all_were_looked_at() {
        let runs: Vec<usize> = (0..LOOKED_AT_MAX + 9).collect();
        let (mut queue, mut pages) = queued(&runs);
        let mut step = |queue: &mut RunQueue| {
            for _ in 0..queue.step() {
                let number = queue.next_if_cold(&mut pages, 1000);
                number.into_iter().for_each(|number| queue.enqueue(&mut pages, number, 1000));
            }
        };
        for _ in 0..2 {
            step(&mut queue);
            assert_eq!(queue.note_nothing_moved(), Evicted::NothingYet);
            step(&mut queue);
            assert_eq!(queue.note_nothing_moved(), Evicted::Nothing);
        }
        step(&mut queue);
        assert_eq!(queue.note_moved(), Evicted::Run);
        step(&mut queue);
        assert_eq!(queue.note_nothing_moved(), Evicted::NothingYet);
    }

    #[test]
    fn what_is_unmapped_and_touched_again_is_as_young_as_its_last_touch_and_there_once() {
        let (mut queue, mut pages) = queued(&[1, 20]);
        let block = page(16)..page(32);
        for now in 2..10_000 {
            pages.forget(block.clone(), |_| {});
            queue.arrive(&mut pages, page(20), Origin::FirstTouch, Way::Alone, now);
        }
        assert!(queue.len() <= STALE_MAX, "{}", queue.len());
        queue.enqueue(&mut pages, RunNumber(30), 10_000);
        let order = core::iter::from_fn(|| {
            (queue.step() > 0).then(|| queue.next_if_cold(&mut pages, 10_001))
        });
        let order: Vec<_> = order.flatten().collect();
        assert_eq!(order, [1, 20, 30].map(RunNumber));
    }

    #[test]
    fn a_run_with_pages_in_limbo_waits_and_an_unknown_one_is_dropped() {
        let (mut queue, mut pages) = queued(&[3, 4, 200]);
        pages.run_mut(RunNumber(3)).slot = Some(1);
        pages.run_mut(RunNumber(4)).unfit_sweeps = 2;
        pages.forget(page(192)..page(256), |state| assert_eq!(state, PageState::Resident));
        assert_eq!([(); 3].map(|()| queue.next_if_cold(&mut pages, 9)), [None; 3]);
        assert_eq!(queue.step(), 2);
        pages.run_mut(RunNumber(3)).slot = None;
        let order = [(); 3].map(|()| queue.next_if_cold(&mut pages, 9));
        assert_eq!(order, [Some(RunNumber(3)), None, Some(RunNumber(4))]);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Arrive(usize, Way),
        /// The page is given up, and was stored far back in the past.
        Store(usize),
        Forget(usize),
        Next,
    }

    fn step() -> impl Strategy<Value = Step> {
        let (runs, way) = (0..80_usize, prop_oneof![Just(Way::Alone), Just(Way::Walk)]);
        prop_oneof![
            4 => (runs.clone(), way).prop_map(|(run, way)| Step::Arrive(run, way)),
            3 => runs.clone().prop_map(Step::Store),
            1 => runs.prop_map(Step::Forget),
            3 => Just(Step::Next),
        ]
    }

    proptest! {
        #[test]
        fn each_run_that_is_marked_is_in_one_line_once(
            steps in prop::collection::vec(step(), 1..400),
        ) {
            let (mut queue, mut pages) = queued(&[]);
            for (now, step) in steps.into_iter().enumerate() {
                // A fault is a tick, so no run is marked twice at one time.
                let now = 10 + now as u32;
                match step {
                    Step::Arrive(run, way) => {
                        queue.arrive(&mut pages, page(run), Origin::Store, way, now);
                    }
                    Step::Store(run) => store(&mut pages, run..run + 1),
                    Step::Forget(run) => pages.forget(page(run)..page(run + 1), |_| {}),
                    Step::Next => {
                        if let Some(number) = queue.next_if_cold(&mut pages, now) {
                            prop_assert!(!pages.run(number).unwrap().queued);
                        }
                    }
                }
                prop_assert!(queue.walked.len() <= WALKED_MAX);
                for run in (0..80).map(RunNumber) {
                    let entries = queue.walked.iter().chain(&queue.main);
                    let valid = entries.filter(|entry| entry.number == run);
                    let valid = valid.filter(|entry| !entry.is_stale(&pages)).count();
                    let is_marked = pages.run(run).is_some_and(|run| run.queued);
                    prop_assert_eq!(valid, usize::from(is_marked));
                }
            }
        }
    }
}
