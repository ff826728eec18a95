//! S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm
//! 1): three queues and two bits a page.
//!
//! ```text
//! fault ---> [ small, a tenth ] --touched twice--> [ main ] --not touched--> given up
//!                   '--else--> given up, kept in [ ghost ]     ^   '--touched--'
//! fault of a page in ghost ------------------------------------'
//! ```

use std::collections::VecDeque;

use super::{Policy, TouchOutcome};

/// The small queue's part of the room, as a divisor.
const SMALL: usize = 10;
const FREQUENCY_MAX: u8 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    #[default]
    Away,
    Small,
    Main,
    /// The page is away too, but its place among all pages that left is known.
    Ghost(u64),
}

/// S3-FIFO.
#[derive(Debug)]
pub(crate) struct S3Fifo {
    places: Vec<Line>,
    /// The touches of each page in memory, counted to at most three.
    frequency: Vec<u8>,
    small: VecDeque<usize>,
    main: VecDeque<usize>,
    /// The number of pages that went from small to ghost so far. Ghost holds only the last of them.
    left: u64,
    room: usize,
}

impl S3Fifo {
    /// Makes empty queues for ranks below `pages`.
    pub(crate) fn new(pages: usize, room: usize) -> Self {
        Self {
            places: vec![Line::Away; pages],
            frequency: vec![0; pages],
            small: VecDeque::new(),
            main: VecDeque::new(),
            left: 0,
            room,
        }
    }

    fn give_up(&mut self) {
        let is_small_full = self.small.len() >= (self.room / SMALL).max(1);
        let is_done = is_small_full && self.shrink_small() || self.shrink_main();
        if !is_done {
            self.shrink_small();
        }
    }

    /// Returns whether a page of small could be evicted. Moves pages touched twice to main on the
    /// way.
    fn shrink_small(&mut self) -> bool {
        while let Some(rank) = self.small.pop_front() {
            if self.frequency[rank] <= 1 {
                self.places[rank] = Line::Ghost(self.left);
                self.left += 1;
                return true;
            }
            self.enter(rank, Line::Main);
        }
        false
    }

    /// Returns whether a page of main could be evicted. Moves touched pages to the back on the way.
    fn shrink_main(&mut self) -> bool {
        while let Some(rank) = self.main.pop_front() {
            if self.frequency[rank] == 0 {
                self.places[rank] = Line::Away;
                return true;
            }
            self.frequency[rank] -= 1;
            self.main.push_back(rank);
        }
        false
    }

    fn enter(&mut self, rank: usize, place: Line) {
        self.places[rank] = place;
        self.frequency[rank] = 0;
        if place == Line::Main { &mut self.main } else { &mut self.small }.push_back(rank);
    }
}

impl Policy for S3Fifo {
    fn touch(&mut self, rank: usize) -> TouchOutcome {
        if let Line::Small | Line::Main = self.places[rank] {
            self.frequency[rank] = (self.frequency[rank] + 1).min(FREQUENCY_MAX);
            return TouchOutcome::Here;
        }
        if self.small.len() + self.main.len() == self.room {
            self.give_up();
        }
        let ghosts = (self.room - self.room / SMALL) as u64;
        match self.places[rank] {
            Line::Ghost(at) if self.left - at <= ghosts => self.enter(rank, Line::Main),
            _ => self.enter(rank, Line::Small),
        }
        TouchOutcome::Away
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::course;
    use super::*;

    #[test]
    fn s3_fifo_keeps_what_was_touched_twice_and_knows_who_left() {
        let mut fifo = S3Fifo::new(40, 10);
        (0..10).for_each(|rank| assert_eq!(fifo.touch(rank), TouchOutcome::Away));
        // Page 0 is touched twice, page 1 once: page 0 goes to main, page 1 becomes a ghost.
        assert_eq!(course(&mut fifo, &[0, 0, 1, 10]), "...X");
        assert_eq!((fifo.places[0], fifo.places[1]), (Line::Main, Line::Ghost(0)));
        // A ghost comes back into main, and page 2 leaves for it.
        assert_eq!(course(&mut fifo, &[1]), "X");
        assert_eq!((fifo.places[1], fifo.places[2]), (Line::Main, Line::Ghost(1)));
        // A scan passes through small and leaves main alone; of nine ghosts the oldest is
        // forgotten.
        (11..31).for_each(|rank| assert_eq!(fifo.touch(rank), TouchOutcome::Away));
        assert_eq!(course(&mut fifo, &[0, 1]), "..");
        assert_eq!(course(&mut fifo, &[2]), "X");
        assert_eq!(fifo.places[2], Line::Small);
    }

    #[test]
    fn main_gives_its_pages_as_many_rounds_as_they_were_touched() {
        let mut fifo = S3Fifo::new(10, 2);
        fifo.enter(0, Line::Main);
        fifo.enter(1, Line::Main);
        assert_eq!(course(&mut fifo, &[0, 0, 1, 2]), "...X");
        // Page 0 went to the back twice and page 1 once; then page 1 was in front with no touches
        // left.
        assert_eq!((fifo.places[0], fifo.frequency[0]), (Line::Main, 0));
        assert_eq!(fifo.places[1], Line::Away);
    }
}
