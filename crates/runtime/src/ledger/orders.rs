//! Orders: the part of the ledger that the launcher alone writes.
//!
//! They lie in memory of their own, which is sealed when the launcher has its mapping: whoever gets
//! the descriptor can map it to read and in no other way, whatever user and rights it has. So what
//! is in here holds, whatever a process of the run does.
//!
//! Every access is Relaxed but for the version, which publishes the terms, the generation, which
//! publishes the knobs, and the process of a place, which publishes a seat.

use core::array;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use coldpress_sys::shared::{self, Shared};
use coldpress_sys::{AsFd, Bytes, OwnedFd, PageCount, SysResult};

use super::{LEDGER_VERSION, Ledger, SEATS, Seats, Terms};
use crate::knobs::{KNOBS, Knob, Knobs};

/// What the launcher decides and knows.
#[repr(C)]
#[derive(Debug)]
pub struct Orders {
    version: AtomicU32,
    verbose: AtomicU32,
    budget_pages: AtomicU64,
    spill_bytes_max: AtomicU64,
    /// How often the knobs were written.
    generation: AtomicU64,
    knobs: [AtomicU64; KNOBS],
    /// Anonymous pages of processes of the tree that have no seat, as the launcher last saw them.
    unseated_pages: AtomicU64,
    /// Pages of shared memory that the tree has mapped, likewise.
    shared_pages: AtomicU64,
    /// Seats that were ever taken, from the first one on.
    seats_taken: AtomicU32,
    processors: AtomicU32,
    /// What is known of each seat; lines of their own, as they hardly ever change.
    pub(super) places: [Place; SEATS],
}

/// What the launcher knows of a seat.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Place {
    /// Who has the seat, 0 for nobody.
    process: AtomicU32,
    /// Its process cannot hold more, whatever the seat says.
    used_pages_max: AtomicU64,
}

impl Place {
    /// The process that has the seat, 0 for none.
    pub(super) fn process(&self) -> u32 {
        // Acquire pairs with the Release in `assign`: the numbers seen are of this process.
        self.process.load(Ordering::Acquire)
    }

    /// The most that is believed of the seat.
    pub(super) fn used_max(&self) -> PageCount {
        PageCount(self.used_pages_max.load(Ordering::Relaxed) as usize)
    }
}

impl Orders {
    /// Writes the terms into fresh orders.
    fn set_terms(&self, terms: Terms) {
        self.verbose.store(u32::from(terms.verbose), Ordering::Relaxed);
        self.processors.store(terms.processors, Ordering::Relaxed);
        self.set_budget(terms.budget);
        self.spill_bytes_max.store(terms.spill_max.0 as u64, Ordering::Relaxed);
        // Release pairs with the Acquire in `terms`.
        self.version.store(LEDGER_VERSION, Ordering::Release);
    }

    fn set_budget(&self, budget: PageCount) {
        // Relaxed: it stands for itself.
        self.budget_pages.store(budget.0 as u64, Ordering::Relaxed);
    }

    fn set_knobs(&self, knobs: &Knobs) {
        for (knob, word) in Knob::ALL.iter().zip(&self.knobs) {
            word.store(knobs.get(*knob), Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `generation`. Each knob is a word of its own, so who
        // reads them before the next generation shows sees knobs that somebody did ask for.
        self.generation.fetch_add(1, Ordering::Release);
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

    /// All memory the tree may hold.
    pub fn budget(&self) -> PageCount {
        // Relaxed: it stands for itself.
        PageCount(self.budget_pages.load(Ordering::Relaxed) as usize)
    }

    /// Processors that the tree may use.
    pub fn processors(&self) -> u32 {
        // Relaxed: it is written before anybody joins.
        self.processors.load(Ordering::Relaxed)
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

    /// How many seats were ever taken.
    pub(super) fn seats_taken(&self) -> usize {
        // Relaxed: who does not see it yet misses a process that holds little so far.
        (self.seats_taken.load(Ordering::Relaxed) as usize).min(SEATS)
    }

    /// What processes without a seat hold.
    pub(super) fn unseated(&self) -> PageCount {
        PageCount(self.unseated_pages.load(Ordering::Relaxed) as usize)
    }

    /// What all processes have of shared memory.
    pub(super) fn shared(&self) -> PageCount {
        PageCount(self.shared_pages.load(Ordering::Relaxed) as usize)
    }
}

/// The ledger for the launcher: who writes the orders.
#[derive(Debug)]
pub struct Keeper {
    ledger: Ledger,
    /// The most that was used whenever the launcher looked, which no process can write.
    peak_pages: AtomicU64,
}

impl Deref for Keeper {
    type Target = Ledger;
    fn deref(&self) -> &Ledger {
        &self.ledger
    }
}

/// What is believed of a peak that processes tell, beyond twice what the launcher saw itself: as
/// much as all of them can touch between two of its looks, at 1 GiB a second.
const PEAK_BETWEEN_LOOKS: PageCount = Bytes::mib(64).pages_down();

impl Keeper {
    /// Makes the ledger of a run: the descriptors to hand to its processes, those of the orders and
    /// of the seats, and the launcher's own view.
    pub fn create(terms: Terms, knobs: &Knobs) -> SysResult<([OwnedFd; 2], Self)> {
        // SAFETY: orders are made of atomics, and zeroed memory is empty ones.
        let (orders_fd, orders) =
            unsafe { Shared::<Orders>::create_to_be_read(c"coldpress-orders")? };
        let seats_fd = shared::create(c"coldpress-ledger", Bytes(size_of::<Seats>()))?;
        // SAFETY: seats are made of atomics, and zeroed memory is empty ones.
        let seats: Shared<Seats> = unsafe { Shared::map(seats_fd.as_fd())? };
        orders.set_knobs(knobs);
        orders.set_terms(terms);
        let keeper =
            Self { ledger: Ledger { orders, shared: seats }, peak_pages: AtomicU64::new(0) };
        Ok(([orders_fd, seats_fd], keeper))
    }

    /// All memory the tree may hold from now on.
    pub fn set_budget(&self, budget: PageCount) {
        self.orders.set_budget(budget);
    }

    /// Writes the knobs.
    pub fn set_knobs(&self, knobs: &Knobs) {
        self.orders.set_knobs(knobs);
    }

    /// Says what processes without a seat hold.
    pub fn set_unseated(&self, pages: PageCount) {
        self.orders.unseated_pages.store(pages.0 as u64, Ordering::Relaxed);
    }

    /// Says what all processes have of shared memory, each page once.
    pub fn set_shared(&self, pages: PageCount) {
        self.orders.shared_pages.store(pages.0 as u64, Ordering::Relaxed);
    }

    /// Gives a seat to `process` (0 takes it back), of which no more than `used_max` is believed,
    /// and clears its numbers.
    pub fn assign(&self, seat: usize, process: u32, used_max: PageCount) {
        let place = &self.orders.places[seat];
        self.tallies[seat].clear();
        self.seats[seat].clear();
        self.limit(seat, used_max);
        // Relaxed: see `Orders::seats_taken`.
        self.orders.seats_taken.fetch_max(seat as u32 + 1, Ordering::Relaxed);
        // Release pairs with the Acquire in `Place::process`.
        place.process.store(process, Ordering::Release);
    }

    /// The process in `seat` cannot hold more than `used_max`, whatever it says.
    pub fn limit(&self, seat: usize, used_max: PageCount) {
        let word = &self.orders.places[seat].used_pages_max;
        // Relaxed: it stands for itself.
        word.store(used_max.0 as u64, Ordering::Relaxed);
    }

    /// Raises the peak to `used`, which the launcher has found to be in use.
    pub fn note_peak(&self, used: PageCount) {
        // Relaxed: it is for reports.
        self.peak_pages.fetch_max(used.0 as u64, Ordering::Relaxed);
    }

    /// The most pages that were ever used: whenever the launcher looked, or as processes tell, as
    /// far as that can be, of the `most` that there are.
    pub fn peak(&self, most: PageCount) -> PageCount {
        let seen = PageCount(self.peak_pages.load(Ordering::Relaxed) as usize);
        let believed = PageCount(2 * seen.0) + PEAK_BETWEEN_LOOKS;
        self.peak_told().min(believed).max(seen).min(most)
    }
}
