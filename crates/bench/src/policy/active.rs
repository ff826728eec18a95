//! Two lists, as Linux has them for anonymous memory where the multi-generational LRU is off:
//! mm/vmscan.c and mm/workingset.c of 6.12.
//!
//! ```text
//! fault -> [ inactive ... ] -> given up          accessed at the tail once:  again to its head
//!               ^      |                         accessed at the tail twice: to active
//!               |      v
//!          [ active ... ]                        its tail goes down whenever it is the longer one
//! ```
//!
//! A page that comes back goes to active at once if, since it left, no more pages were evicted or
//! made active than active holds (its refault distance). Two deviations: pages are looked at one by
//! one, not in batches of 32; and both lists are kept equal, as Linux does below 1 GiB
//! (`inactive_is_low`).

use std::collections::VecDeque;

use super::{Policy, TouchOutcome};

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    is_here: bool,
    /// The bit of the page table, set by hardware.
    is_accessed: bool,
    /// Whether the bit was found set before (PG_referenced).
    is_referenced: bool,
    /// The age at which the page was evicted.
    left_at: Option<u64>,
}

/// Linux's active and inactive lists.
#[derive(Debug)]
pub(crate) struct ActiveInactive {
    pages: Vec<Page>,
    /// The lists; their heads are at the back.
    active: VecDeque<usize>,
    inactive: VecDeque<usize>,
    /// The number of pages evicted or made active so far (`nonresident_age`).
    age: u64,
    room: usize,
}

impl ActiveInactive {
    /// Makes empty lists for ranks below `pages`.
    pub(crate) fn new(pages: usize, room: usize) -> Self {
        Self {
            pages: vec![Page::default(); pages],
            active: VecDeque::new(),
            inactive: VecDeque::new(),
            age: 0,
            room,
        }
    }

    fn give_up(&mut self) {
        loop {
            while self.inactive.len() < self.active.len() {
                let Some(rank) = self.active.pop_front() else { break };
                // The accessed bit is not read here, but it is cleared.
                self.pages[rank].is_accessed = false;
                self.inactive.push_back(rank);
            }
            let Some(rank) = self.inactive.pop_front() else { return };
            let page = &mut self.pages[rank];
            if !page.is_accessed {
                *page = Page { left_at: Some(self.age), ..Page::default() };
                self.age += 1;
                return;
            }
            page.is_accessed = false;
            if page.is_referenced {
                page.is_referenced = false;
                self.age += 1;
                self.active.push_back(rank);
            } else {
                page.is_referenced = true;
                self.inactive.push_back(rank);
            }
        }
    }
}

impl Policy for ActiveInactive {
    fn touch(&mut self, rank: usize) -> TouchOutcome {
        if self.pages[rank].is_here {
            self.pages[rank].is_accessed = true;
            return TouchOutcome::Here;
        }
        if self.active.len() + self.inactive.len() == self.room {
            self.give_up();
        }
        let page = &mut self.pages[rank];
        let distance = page.left_at.map(|left_at| self.age - left_at);
        *page = Page { is_here: true, is_accessed: true, ..Page::default() };
        if distance.is_some_and(|distance| distance <= self.active.len() as u64) {
            self.age += 1;
            self.active.push_back(rank);
        } else {
            self.inactive.push_back(rank);
        }
        TouchOutcome::Away
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::course;
    use super::*;

    #[test]
    fn a_page_is_active_when_it_was_found_accessed_twice() {
        let mut two = ActiveInactive::new(20, 8);
        // All eight pages pass once with their bits set; then page 0 is evicted.
        assert_eq!(course(&mut two, &[0, 1, 2, 3, 4, 5, 6, 7, 8]), "XXXXXXXXX");
        assert!(two.pages[1].is_referenced && two.active.is_empty());
        // Three pages are accessed again. Found accessed a second time, they become active, and
        // page 4 is evicted.
        assert_eq!(course(&mut two, &[1, 2, 3, 9]), "...X");
        assert_eq!(two.active, [1, 2, 3]);
        // Only page 5 leaves between the eviction of page 4 and its return: page 4 was evicted too
        // early, so it becomes active.
        assert_eq!(course(&mut two, &[4]), "X");
        assert_eq!(two.active, [1, 2, 3, 4]);
        // More pages have left since page 0 did than active holds.
        assert_eq!(course(&mut two, &[0]), "X");
        assert_eq!(two.active, [1, 2, 3, 4]);
        // When active is the longer list, its oldest page goes down.
        let one = two.inactive.pop_front().expect("there are four");
        two.active.push_back(one);
        two.touch(15);
        assert_eq!(two.active, [2, 3, 4, one]);
    }
}
