//! CLOCK: a hand goes round all pages and gives up the first that was not touched since it last
//! came by (Corbato 1968).

use std::collections::VecDeque;

use super::{Found, Policy};

/// CLOCK with one bit.
#[derive(Debug)]
pub struct Clock {
    /// The hand is at the front.
    circle: VecDeque<usize>,
    /// Whether a page in memory was touched since the hand came by; nothing where it is away.
    accessed: Vec<Option<bool>>,
    room: usize,
}

impl Clock {
    /// For ranks below `pages`.
    pub fn new(pages: usize, room: usize) -> Self {
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
    fn touch(&mut self, rank: usize) -> Found {
        if self.accessed[rank].is_some() {
            self.accessed[rank] = Some(true);
            return Found::Here;
        }
        if self.circle.len() == self.room {
            self.give_up();
        }
        // Behind the hand: it comes by last.
        self.circle.push_back(rank);
        self.accessed[rank] = Some(true);
        Found::Away
    }
}
