//! CLOCK: a hand circles over all pages and evicts the first page that was not touched since the
//! hand last came by (Corbato 1968).

use std::collections::VecDeque;

use super::{Policy, TouchOutcome};

/// CLOCK with one bit.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The pages in a circle, with the hand at the front.
    circle: VecDeque<usize>,
    /// Whether a page in memory was touched since the hand came by; `None` for a page that is away.
    accessed: Vec<Option<bool>>,
    room: usize,
}

impl Clock {
    /// Makes an empty CLOCK for ranks below `pages`.
    pub(crate) fn new(pages: usize, room: usize) -> Self {
        Self { circle: VecDeque::new(), accessed: vec![None; pages], room }
    }

    fn give_up(&mut self) {
        while let Some(rank) = self.circle.pop_front() {
            if self.accessed[rank] != Some(true) {
                self.accessed[rank] = None;
                return;
            }
            self.accessed[rank] = Some(false);
            self.circle.push_back(rank);
        }
    }
}

impl Policy for Clock {
    fn touch(&mut self, rank: usize) -> TouchOutcome {
        if self.accessed[rank].is_some() {
            self.accessed[rank] = Some(true);
            return TouchOutcome::Here;
        }
        if self.circle.len() == self.room {
            self.give_up();
        }
        // The page goes behind the hand, which comes by there last.
        self.circle.push_back(rank);
        self.accessed[rank] = Some(true);
        TouchOutcome::Away
    }
}
