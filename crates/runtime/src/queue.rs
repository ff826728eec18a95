//! The reclaim queue: which run of the program is taken next.
//!
//! Runs are taken in the order of their last fault-in. One that was faulted into since it was
//! queued goes round once more, as does one of which pages still wait in limbo.
//!
//! Invariants:
//! 1. A run that is marked as queued in the [`PageTable`] is in the queue once, with the time of
//!    its mark. Any other entry is stale: its run was forgotten meanwhile, and may be in use again.
//! 2. There are no more entries than `STALE_MAX`, or twice what was not stale when stale ones
//!    were last dropped.

use alloc::collections::VecDeque;

use crate::pages::{Origin, PageNumber, PageTable, Run, RunNumber};

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
pub struct RunQueue {
    order: VecDeque<Entry>,
    /// At this length stale entries are dropped.
    purged_at: usize,
    /// Runs looked at since pages of one were moved.
    looked_at: usize,
}

/// What came of looking for a cold run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// Pages of one have been moved.
    Run,
    /// Those looked at have to wait; there are others.
    NothingYet,
    /// All have to wait.
    Nothing,
}

/// Runs looked at in one step: 0.1 ms. Most of a queue may have to wait, and a fault waits for
/// whoever looks.
const LOOKED_AT_MAX: usize = 256;
/// So many entries, 64 KiB, may all be stale.
const STALE_MAX: usize = 4096;

impl RunQueue {
    /// Puts a run at the end unless it is in the queue.
    pub fn enqueue(&mut self, pages: &mut PageTable, number: RunNumber, now: u32) {
        if pages.note_queued(number, now) {
            self.push(pages, number, now);
        }
    }

    /// Puts a run at the end that has just been marked.
    fn push(&mut self, pages: &PageTable, number: RunNumber, queued_at: u32) {
        if self.order.len() >= self.purged_at.max(STALE_MAX) {
            self.order.retain(|entry| !entry.is_stale(pages));
            self.purged_at = 2 * self.order.len();
            self.order.shrink_to(self.purged_at);
        }
        self.order.push_back(Entry { number, queued_at });
    }

    /// A page has been brought in at the time `now`.
    pub fn arrive(&mut self, pages: &mut PageTable, page: PageNumber, from: Origin, now: u32) {
        if pages.arrive(page, from, now) {
            self.push(pages, page.run(), now);
        }
    }

    /// How many runs to look at in one step.
    pub fn step(&self) -> usize {
        self.order.len().min(LOOKED_AT_MAX)
    }

    /// Pages of a run were moved.
    pub fn note_moved(&mut self) -> Evicted {
        self.looked_at = 0;
        Evicted::Run
    }

    /// A step is over, and nothing was moved.
    pub fn note_nothing_moved(&mut self) -> Evicted {
        if self.looked_at < self.order.len() {
            return Evicted::NothingYet;
        }
        self.looked_at = 0;
        Evicted::Nothing
    }

    /// Takes the first run from the queue. Gives it back if it may be moved now; if not, it is at
    /// the end again, or nothing is known of it any more.
    pub fn next_if_cold(&mut self, pages: &mut PageTable, now: u32) -> Option<RunNumber> {
        let entry = self.order.pop_front()?;
        if entry.is_stale(pages) {
            return None;
        }
        self.looked_at += 1;
        let number = entry.number;
        let run = pages.run_mut(number);
        let touched_since = run.stamp.wrapping_sub(run.queued_at).cast_signed() > 0;
        if touched_since || run.unfit_sweeps > 0 || run.slot.is_some() {
            run.queued_at = now;
            run.unfit_sweeps = run.unfit_sweeps.saturating_sub(1);
            self.order.push_back(Entry { number, queued_at: now });
            return None;
        }
        run.queued = false;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a run that is taken while it is in use, or never.

    use coldpress_sys::PageCount;

    use std::vec::Vec;

    use super::*;
    use crate::pages::PageState;

    fn page(run: usize) -> PageNumber {
        RunNumber(run).first()
    }

    /// A queue of these runs, each touched first at the time of its place.
    fn queued(runs: &[usize]) -> (RunQueue, PageTable) {
        let (mut queue, mut pages) = (RunQueue::default(), PageTable::new(PageCount(1000)));
        for (time, run) in runs.iter().enumerate() {
            queue.arrive(&mut pages, page(*run), Origin::FirstTouch, time as u32);
        }
        (queue, pages)
    }

    #[test]
    fn runs_come_in_the_order_of_their_last_fault_and_once_each() {
        let (mut queue, mut pages) = queued(&[5, 9, 2, 5]);
        queue.enqueue(&mut pages, RunNumber(9), 4);
        assert_eq!(queue.step(), 3);
        // 5 was touched again since it was queued, so it goes round.
        let order: Vec<_> = (0..4).map(|_| queue.next_if_cold(&mut pages, 5)).collect();
        assert_eq!(order, [None, Some(RunNumber(9)), Some(RunNumber(2)), Some(RunNumber(5))]);
        assert_eq!((queue.step(), queue.next_if_cold(&mut pages, 6)), (0, None));
        // What was taken can be queued again.
        queue.enqueue(&mut pages, RunNumber(2), 7);
        assert_eq!(queue.next_if_cold(&mut pages, 8), Some(RunNumber(2)));
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
            queue.arrive(&mut pages, page(20), Origin::FirstTouch, now);
        }
        assert!(queue.order.len() <= STALE_MAX, "{}", queue.order.len());
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
}
