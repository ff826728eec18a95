//! Belady's optimum: evicts the page whose next touch is farthest away.

use std::collections::BinaryHeap;

use super::trace::Trace;
use super::{Policy, TouchOutcome};

/// A touch that never comes.
const NEVER: usize = usize::MAX;

/// Belady's optimum for one trace.
#[derive(Debug)]
pub(crate) struct Belady {
    /// For each touch of the trace, the time of the next touch of its page.
    next: Vec<usize>,
    /// The time of the next touch of each page in memory.
    coming: Vec<Option<usize>>,
    /// The pages by their next touch, latest first; entries of pages that were touched since are
    /// stale.
    latest: BinaryHeap<(usize, usize)>,
    now: usize,
    held: usize,
    room: usize,
}

impl Belady {
    /// Makes the optimum for the touches of `trace`, from the first to the last.
    pub(crate) fn new(trace: &Trace, room: usize) -> Self {
        let mut next = vec![NEVER; trace.count()];
        let mut seen = vec![NEVER; trace.distinct()];
        for (at, (rank, _)) in trace.touches().enumerate().rev() {
            next[at] = std::mem::replace(&mut seen[rank], at);
        }
        let coming = vec![None; trace.distinct()];
        Self { next, coming, latest: BinaryHeap::new(), now: 0, held: 0, room }
    }

    fn give_up(&mut self) {
        while let Some((next, rank)) = self.latest.pop() {
            if self.coming[rank] == Some(next) {
                self.coming[rank] = None;
                self.held -= 1;
                return;
            }
        }
    }
}

impl Policy for Belady {
    fn touch(&mut self, rank: usize) -> TouchOutcome {
        let was_here = self.coming[rank].is_some();
        if !was_here {
            if self.held == self.room {
                self.give_up();
            }
            self.held += 1;
        }
        let next = self.next[self.now];
        self.now += 1;
        self.coming[rank] = Some(next);
        self.latest.push((next, rank));
        if was_here { TouchOutcome::Here } else { TouchOutcome::Away }
    }
}
