//! Exact LRU: evicts the page touched least recently.

use std::collections::VecDeque;

use super::{Policy, TouchOutcome};

/// Exact LRU.
#[derive(Debug)]
pub(crate) struct Lru {
    /// All touches since that of the oldest page in memory, with their times.
    touches: VecDeque<(usize, u64)>,
    /// The time of the last touch of each page in memory.
    last: Vec<Option<u64>>,
    now: u64,
    held: usize,
    room: usize,
}

impl Lru {
    /// Makes an empty LRU for ranks below `pages`.
    pub(crate) fn new(pages: usize, room: usize) -> Self {
        Self { touches: VecDeque::new(), last: vec![None; pages], now: 0, held: 0, room }
    }

    fn give_up(&mut self) {
        while let Some((rank, time)) = self.touches.pop_front() {
            if self.last[rank] == Some(time) {
                self.last[rank] = None;
                self.held -= 1;
                return;
            }
        }
    }
}

impl Policy for Lru {
    fn touch(&mut self, rank: usize) -> TouchOutcome {
        self.now += 1;
        let was_here = self.last[rank].is_some();
        if !was_here {
            if self.held == self.room {
                self.give_up();
            }
            self.held += 1;
        }
        self.last[rank] = Some(self.now);
        self.touches.push_back((rank, self.now));
        if was_here { TouchOutcome::Here } else { TouchOutcome::Away }
    }
}
