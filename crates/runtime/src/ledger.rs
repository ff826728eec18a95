//! The ledger: one page range shared by the launcher and every managed process of a run.
//!
//! The launcher writes the terms once, before the first process joins, but the budget whenever it
//! becomes another, and the knobs whenever the user turns one. Each process owns one seat with its
//! tally and is the only writer of their numbers; everybody reads all seats, so the budget is one
//! although nobody holds a lock. A seat is given out and taken back by the launcher alone. Tallies
//! lie apart, and seats are taken from the first one on, so that reading all seats, which each
//! process does a thousand times a second, touches a line for each of as many as there ever were at
//! a time.
//!
//! All numbers are plain counters: a reader may see one a moment old, never a torn one, so every
//! access is Relaxed but for `Seat::process`, which publishes a seat, and the generation of the
//! knobs, which publishes them.

use core::array;
use core::ops::Add;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use coldpress_sys::shared::{self, Shared};
use coldpress_sys::{AsFd, Bytes, OwnedFd, PageCount, SysResult};

use crate::ahead::Bell;
use crate::knobs::{KNOBS, Knob, Knobs};
use crate::mean::Millionths;
use crate::shares::{Gain, Holding};
use crate::tally::Tally;
use crate::turns::{Table, Turn};

/// Processes of a run that can be managed at the same time; more stay unmanaged.
pub const SEATS: usize = 512;
/// Changes whenever the layout below does.
pub const LEDGER_VERSION: u32 = 13;

/// The terms of a run and the seats of its processes.
#[repr(C)]
#[derive(Debug)]
pub struct Ledger {
    version: AtomicU32,
    verbose: AtomicU32,
    budget_pages: AtomicU64,
    spill_bytes_max: AtomicU64,
    /// How often the knobs were written.
    generation: AtomicU64,
    knobs: [AtomicU64; KNOBS],
    /// Anonymous pages of processes of the tree that have no seat, as the launcher last saw them.
    unseated_pages: AtomicU64,
    peak_pages: AtomicU64,
    /// What the user was told, a bit for each [`Told`].
    told: AtomicU32,
    /// Seats that were ever taken, from the first one on.
    seats_taken: AtomicU32,
    processors: AtomicU32,
    pub(crate) turns: Table,
    /// Where the helper sleeps.
    pub bell: Bell,
    /// The seats; the first [`SEATS`] processes take them.
    pub seats: [Seat; SEATS],
    /// What the processes count, each in the place of its seat.
    pub tallies: [Tally; SEATS],
}

/// What the user is told once in a run, by the process that finds it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Told {
    /// More is in use than the budget, and nothing more can be moved.
    OverBudget = 1,
    /// Shared memory takes what the budget has.
    Immovable = 2,
    /// Stored pages are made denser.
    Ageing = 4,
    /// Processes take turns.
    Turns = 8,
    /// More is in use than the budget, for processes that are not managed.
    Unmanaged = 16,
}

/// What the launcher decides and every process obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// All memory the tree may hold; the launcher may change it later.
    pub budget: PageCount,
    /// Most bytes on disk; 0 when there is no disk.
    pub spill_max: Bytes,
    /// Whether to tell what costs time.
    pub verbose: bool,
    /// Processors that its processes may use.
    pub processors: u32,
}

/// One process's numbers.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Seat {
    process: AtomicU32,
    managing: AtomicU32,
    thawed: AtomicU32,
    used_pages: AtomicU64,
    /// What more memory would gain: pages of it, and millionths of the time.
    gain_pages: AtomicU64,
    gain_time: AtomicU64,
    pub(crate) turn: Turn,
}

impl Ledger {
    /// Makes the ledger of a run: a descriptor to hand to its processes, and the launcher's own
    /// view.
    pub fn create(terms: Terms, knobs: &Knobs) -> SysResult<(OwnedFd, Shared<Self>)> {
        let fd = shared::create(c"coldpress-ledger", Bytes(size_of::<Self>()))?;
        // SAFETY: a ledger is made of atomics, and zeroed memory is an empty one.
        let ledger: Shared<Self> = unsafe { Shared::map(fd.as_fd())? };
        ledger.set_knobs(knobs);
        ledger.set_terms(terms);
        Ok((fd, ledger))
    }

    /// Writes the terms into a fresh ledger.
    fn set_terms(&self, terms: Terms) {
        self.verbose.store(u32::from(terms.verbose), Ordering::Relaxed);
        self.processors.store(terms.processors, Ordering::Relaxed);
        self.set_budget(terms.budget);
        self.spill_bytes_max.store(terms.spill_max.0 as u64, Ordering::Relaxed);
        // Release pairs with the Acquire in `terms`.
        self.version.store(LEDGER_VERSION, Ordering::Release);
    }

    /// The terms, or `None` when the launcher is of another version.
    pub fn terms(&self) -> Option<Terms> {
        // Acquire pairs with the Release in `set_terms`.
        if self.version.load(Ordering::Acquire) != LEDGER_VERSION {
            return None;
        }
        Some(Terms {
            budget: self.budget(),
            spill_max: Bytes(self.spill_bytes_max.load(Ordering::Relaxed) as usize),
            verbose: self.verbose.load(Ordering::Relaxed) != 0,
            processors: self.processors(),
        })
    }

    /// All memory the tree may hold from now on. For the launcher.
    pub fn set_budget(&self, budget: PageCount) {
        // Relaxed: it stands for itself.
        self.budget_pages.store(budget.0 as u64, Ordering::Relaxed);
    }

    /// All memory the tree may hold.
    pub fn budget(&self) -> PageCount {
        // Relaxed: as above.
        PageCount(self.budget_pages.load(Ordering::Relaxed) as usize)
    }

    /// Processors that the tree may use.
    pub fn processors(&self) -> u32 {
        // Relaxed: it is written before anybody joins.
        self.processors.load(Ordering::Relaxed)
    }

    /// Writes the knobs. For the launcher.
    pub fn set_knobs(&self, knobs: &Knobs) {
        for (knob, word) in Knob::ALL.iter().zip(&self.knobs) {
            word.store(knobs.get(*knob), Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `generation`. Each knob is a word of its own, so who
        // reads them before the next generation shows sees knobs that somebody did ask for.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Changes when the knobs do.
    pub fn generation(&self) -> u64 {
        // Acquire pairs with the Release in `set_knobs`: knobs read after this are at least as new.
        self.generation.load(Ordering::Acquire)
    }

    /// The knobs.
    pub fn knobs(&self) -> Knobs {
        Knobs::from_words(array::from_fn(|index| self.knobs[index].load(Ordering::Relaxed)))
    }

    /// Gives a seat to `process` (0 takes it back) and clears its numbers. For the launcher.
    pub fn assign(&self, seat: usize, process: u32) {
        self.tallies[seat].clear();
        // Relaxed: who does not see it yet misses a process that holds little so far.
        self.seats_taken.fetch_max(seat as u32 + 1, Ordering::Relaxed);
        self.seats[seat].assign(process);
    }

    /// The seats that were ever taken.
    pub(crate) fn seats_taken(&self) -> &[Seat] {
        // Relaxed: as above.
        let end = self.seats_taken.load(Ordering::Relaxed) as usize;
        &self.seats[..end.min(SEATS)]
    }

    /// What all processes but the one in `seat` hold, and would gain.
    pub fn others(&self, seat: usize) -> Holding {
        let unseated = PageCount(self.unseated_pages.load(Ordering::Relaxed) as usize);
        (self.seats_taken().iter().enumerate())
            .filter(|(index, other)| *index != seat && other.is_taken())
            .map(|(_, other)| other.holding())
            .fold(Holding { used: unseated, ..Holding::default() }, Holding::add)
    }

    /// Pages that all processes hold.
    pub fn used(&self) -> PageCount {
        self.others(SEATS).used
    }

    /// Says what processes without a seat hold.
    pub fn set_unseated(&self, pages: PageCount) {
        self.unseated_pages.store(pages.0 as u64, Ordering::Relaxed);
    }

    /// Processes that are managed and have pages away, or may have.
    pub fn not_thawed(&self) -> usize {
        let managed =
            self.seats_taken().iter().filter(|seat| seat.is_taken() && seat.is_managing());
        managed.filter(|seat| !seat.is_thawed()).count()
    }

    /// Raises the peak to what is used now.
    pub fn note_peak(&self) {
        self.note_used(self.used());
    }

    /// Raises the peak to `used`, which all processes hold.
    pub fn note_used(&self, used: PageCount) {
        // Mostly it is no peak, and a load leaves the line with all who read it.
        if used.0 as u64 > self.peak_pages.load(Ordering::Relaxed) {
            self.peak_pages.fetch_max(used.0 as u64, Ordering::Relaxed);
        }
    }

    /// Whether nobody in the run has told the user of this yet; now somebody has.
    pub fn is_first_to_tell(&self, what: Told) -> bool {
        // Relaxed, both: it stands for itself. Mostly it was told, and a load leaves the line with
        // all who read it.
        self.told.load(Ordering::Relaxed) & what as u32 == 0
            && self.told.fetch_or(what as u32, Ordering::Relaxed) & what as u32 == 0
    }

    /// The most pages ever noted.
    pub fn peak(&self) -> PageCount {
        PageCount(self.peak_pages.load(Ordering::Relaxed) as usize)
    }
}

impl Seat {
    /// Whether a process has the seat.
    pub fn is_taken(&self) -> bool {
        self.process() != 0
    }

    /// The process that has the seat, 0 for none.
    pub fn process(&self) -> u32 {
        // Acquire pairs with the Release in `assign`: the numbers seen are of this process.
        self.process.load(Ordering::Acquire)
    }

    /// Gives the seat to `process` and clears its numbers.
    fn assign(&self, process: u32) {
        self.managing.store(0, Ordering::Relaxed);
        self.thawed.store(0, Ordering::Relaxed);
        self.publish(Holding::default());
        self.turn.clear();
        // Release pairs with the Acquire in `process`.
        self.process.store(process, Ordering::Release);
    }

    /// Says what this process holds, and would gain.
    pub fn publish(&self, holding: Holding) {
        self.used_pages.store(holding.used.0 as u64, Ordering::Relaxed);
        self.gain_pages.store(holding.gain.pages.0 as u64, Ordering::Relaxed);
        self.gain_time.store(holding.gain.time.0, Ordering::Relaxed);
    }

    /// What this process holds, and would gain.
    pub fn holding(&self) -> Holding {
        let pages = |word: &AtomicU64| PageCount(word.load(Ordering::Relaxed) as usize);
        let time = Millionths(self.gain_time.load(Ordering::Relaxed));
        let gain = Gain { pages: pages(&self.gain_pages), time };
        Holding { used: pages(&self.used_pages), gain }
    }

    /// Says that its pages are managed now.
    pub fn set_managing(&self) {
        self.managing.store(1, Ordering::Relaxed);
    }

    /// Says whether all its pages are in the program, to stay there.
    pub fn set_thawed(&self, is_thawed: bool) {
        self.thawed.store(u32::from(is_thawed), Ordering::Relaxed);
    }

    /// Whether all its pages are in the program, to stay there.
    pub fn is_thawed(&self) -> bool {
        self.thawed.load(Ordering::Relaxed) != 0
    }

    /// Whether its pages were ever managed.
    pub fn is_managing(&self) -> bool {
        self.managing.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        budget: PageCount(40_000),
        spill_max: Bytes::mib(77),
        verbose: true,
        processors: 3,
    };

    #[test]
    fn terms_and_knobs_come_back_as_they_were_set() {
        let mut knobs = Knobs::default();
        let (fd, first) = Ledger::create(TERMS, &knobs).unwrap();
        // SAFETY: the descriptor is of a ledger, made a line above.
        let second: Shared<Ledger> = unsafe { Shared::map(fd.as_fd()).unwrap() };
        assert_eq!((second.terms(), second.knobs()), (Some(TERMS), knobs));
        let generation = second.generation();
        for knob in Knob::ALL {
            let word = knobs.get(*knob);
            let near = [word.wrapping_sub(1), word.wrapping_add(1)];
            assert!(near.into_iter().any(|word| knobs.set(*knob, word)), "{knob:?}");
        }
        first.set_knobs(&knobs);
        assert_eq!(second.knobs(), knobs);
        assert_ne!(second.generation(), generation);
        assert!(first.is_first_to_tell(Told::OverBudget));
        assert!(!second.is_first_to_tell(Told::OverBudget));
        assert!(second.is_first_to_tell(Told::Ageing));
        first.set_budget(PageCount(50_000));
        assert_eq!(second.budget(), PageCount(50_000));
        let empty = shared::create(c"empty", Bytes(size_of::<Ledger>())).unwrap();
        // SAFETY: zeroed memory is an empty ledger, which is made of atomics.
        let empty: Shared<Ledger> = unsafe { Shared::map(empty.as_fd()).unwrap() };
        assert_eq!(empty.terms(), None);
    }

    #[test]
    fn others_are_all_but_oneself_and_the_unseated_count() {
        let (_fd, ledger) = Ledger::create(TERMS, &Knobs::default()).unwrap();
        for (seat, pages) in [(0, 100), (3, 20), (5, 3)] {
            ledger.assign(seat, 1000 + seat as u32);
            let gain = Gain { pages: PageCount(pages / 2), time: Millionths(pages as u64 / 3) };
            ledger.seats[seat].publish(Holding { used: PageCount(pages), gain });
        }
        ledger.set_unseated(PageCount(7));
        assert_eq!(ledger.used(), PageCount(130));
        let gain = Gain { pages: PageCount(11), time: Millionths(7) };
        assert_eq!(ledger.others(0), Holding { used: PageCount(30), gain });
        ledger.note_peak();
        ledger.seats[0].set_managing();
        ledger.seats[3].set_managing();
        ledger.seats[3].set_thawed(true);
        assert_eq!(ledger.not_thawed(), 1);
        assert_eq!(ledger.seats_taken().len(), 6);
        ledger.assign(0, 0);
        assert_eq!(ledger.not_thawed(), 0);
        assert_eq!(ledger.used(), PageCount(30));
        ledger.note_used(PageCount(129));
        assert_eq!(ledger.peak(), PageCount(130));
    }
}
