//! Orders: the part of the ledger that the launcher alone writes.
//!
//! They lie in memory of their own, which is sealed once the launcher has its mapping. A process
//! that gets the descriptor can map it to read and in no other way, whatever user and rights the
//! process has. So what is in here holds, whatever a process of the run does.
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

/// The decisions and the knowledge of the launcher.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Orders {
    version: AtomicU32,
    verbose: AtomicU32,
    budget_pages: AtomicU64,
    spill_bytes_max: AtomicU64,
    /// The number of times that the knobs were written.
    generation: AtomicU64,
    knobs: [AtomicU64; KNOBS],
    /// Anonymous pages of processes of the tree that have no seat, as the launcher last saw them.
    unseated_pages: AtomicU64,
    /// Pages of shared memory that the tree has mapped, as the launcher last saw them.
    shared_pages: AtomicU64,
    /// The number of seats that were ever taken, from the first one on.
    seats_taken: AtomicU32,
    processors: AtomicU32,
    /// 1 when every service brings all pages back and ends.
    are_over: AtomicU32,
    /// The launcher's knowledge of each seat, on cache lines of its own because it hardly ever
    /// changes.
    pub(super) places: [SeatHolder; SEATS],
}

/// The launcher's knowledge of a seat.
#[repr(C)]
#[derive(Debug)]
pub(super) struct SeatHolder {
    /// The process that has the seat, 0 for none.
    process: AtomicU32,
    /// The most that the process in the seat can hold, whatever the seat says.
    used_pages_max: AtomicU64,
}

impl SeatHolder {
    /// Returns the process that has the seat, 0 for none.
    pub(super) fn process(&self) -> u32 {
        // Acquire pairs with the Release in `assign`: the numbers read after it are of this
        // process.
        self.process.load(Ordering::Acquire)
    }

    /// Returns the most that is believed of the seat.
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
        // Relaxed: no other memory depends on this word.
        self.budget_pages.store(budget.0 as u64, Ordering::Relaxed);
    }

    fn set_knobs(&self, knobs: &Knobs) {
        for (knob, word) in Knob::ALL.iter().zip(&self.knobs) {
            word.store(knobs.get(*knob), Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `generation`. Each knob is a word of its own, so a
        // process that reads the knobs before it sees the next generation gets values that the user
        // did ask for.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns the terms, or `None` when the launcher is of another version.
    pub(crate) fn terms(&self) -> Option<Terms> {
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

    /// Returns all memory that the tree may hold.
    pub(crate) fn budget(&self) -> PageCount {
        // Relaxed: no other memory depends on this word.
        PageCount(self.budget_pages.load(Ordering::Relaxed) as usize)
    }

    /// Returns the number of processors that the tree may use.
    pub(crate) fn processors(&self) -> u32 {
        // Relaxed: the number is written before the first process joins.
        self.processors.load(Ordering::Relaxed)
    }

    /// Returns a number that changes when the knobs do.
    pub(crate) fn generation(&self) -> u64 {
        // Acquire pairs with the Release in `set_knobs`: knobs read after this are at least as new.
        self.generation.load(Ordering::Acquire)
    }

    /// Whether every service is to bring all pages back and end.
    pub(crate) fn are_over(&self) -> bool {
        // Relaxed: no other memory depends on this word.
        self.are_over.load(Ordering::Relaxed) != 0
    }

    fn end(&self) {
        // Relaxed: as above.
        self.are_over.store(1, Ordering::Relaxed);
        // A service that rests looks at this number. Release pairs as in `set_knobs`.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns the knobs.
    pub(crate) fn knobs(&self) -> Knobs {
        Knobs::from_words(array::from_fn(|index| self.knobs[index].load(Ordering::Relaxed)))
    }

    /// Returns the number of seats that were ever taken.
    pub(super) fn seats_taken(&self) -> usize {
        // Relaxed: a process that does not see the latest number misses a process that holds little
        // so far.
        (self.seats_taken.load(Ordering::Relaxed) as usize).min(SEATS)
    }

    /// Returns the pages that processes without a seat hold.
    pub(super) fn unseated(&self) -> PageCount {
        PageCount(self.unseated_pages.load(Ordering::Relaxed) as usize)
    }

    /// Returns the pages of shared memory that all processes have.
    pub(super) fn shared(&self) -> PageCount {
        PageCount(self.shared_pages.load(Ordering::Relaxed) as usize)
    }
}

/// The ledger as the launcher has it, through which it writes the orders.
#[derive(Debug)]
pub struct Keeper {
    ledger: Ledger,
    /// The most that was in use whenever the launcher looked, which no process can write.
    peak_pages: AtomicU64,
}

impl Deref for Keeper {
    type Target = Ledger;
    fn deref(&self) -> &Ledger {
        &self.ledger
    }
}

/// The part that is believed of a peak that processes report, beyond twice what the launcher saw
/// itself: as much as all processes can touch between two of its looks, at 1 GiB a second.
const PEAK_BETWEEN_LOOKS: PageCount = Bytes::mib(64).pages_down();

impl Keeper {
    /// Makes the ledger of a run. Returns the descriptors to hand to its processes, of the orders
    /// and of the seats, and the launcher's own view.
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

    /// Sets all memory that the tree may hold from now on.
    pub fn set_budget(&self, budget: PageCount) {
        self.orders.set_budget(budget);
    }

    /// Writes the knobs.
    pub fn set_knobs(&self, knobs: &Knobs) {
        self.orders.set_knobs(knobs);
    }

    /// Has every service bring all pages back, and end. Their programs go on.
    pub fn end_services(&self) {
        self.orders.end();
    }

    /// Sets the pages that processes without a seat hold.
    pub fn set_unseated(&self, pages: PageCount) {
        self.orders.unseated_pages.store(pages.0 as u64, Ordering::Relaxed);
    }

    /// Sets the pages of shared memory that all processes have, each counted once.
    pub fn set_shared(&self, pages: PageCount) {
        self.orders.shared_pages.store(pages.0 as u64, Ordering::Relaxed);
    }

    /// Gives a seat to `process` (0 takes it back), of which no more than `used_max` is believed,
    /// and clears its numbers.
    pub fn assign(&self, seat: usize, process: u32, used_max: PageCount) {
        let place = &self.orders.places[seat];
        self.tally(seat).clear();
        self.seat(seat).clear();
        self.limit(seat, used_max);
        // Relaxed: see `Orders::seats_taken`.
        self.orders.seats_taken.fetch_max(seat as u32 + 1, Ordering::Relaxed);
        // Release pairs with the Acquire in `SeatHolder::process`.
        place.process.store(process, Ordering::Release);
    }

    /// Limits what is believed of the process in `seat` to `used_max`, the most that it can hold.
    pub fn limit(&self, seat: usize, used_max: PageCount) {
        let word = &self.orders.places[seat].used_pages_max;
        // Relaxed: no other memory depends on this word.
        word.store(used_max.0 as u64, Ordering::Relaxed);
    }

    /// Wakes the helper, even if a process has begun to wake it and ended before that was done.
    pub fn wake_helper(&self) {
        self.shared.bell.ring_again();
    }

    /// Sleeps until the helper is woken, unless there is something to do. Only the helper calls
    /// this function.
    pub fn sleep_as_helper(&self, is_something_to_do: impl FnOnce() -> bool) {
        self.shared.bell.sleep_unless(is_something_to_do);
    }

    /// Raises the peak to `used`, which the launcher has found to be in use.
    pub fn note_peak(&self, used: PageCount) {
        // Relaxed: the peak is only for reports.
        self.peak_pages.fetch_max(used.0 as u64, Ordering::Relaxed);
    }

    /// Returns the most pages that were ever used, of the `most` that there are: the most that the
    /// launcher found, or the peak that processes report, as far as that is believed.
    pub fn peak(&self, most: PageCount) -> PageCount {
        let seen = PageCount(self.peak_pages.load(Ordering::Relaxed) as usize);
        let believed = PageCount(2 * seen.0) + PEAK_BETWEEN_LOOKS;
        self.peak_told().min(believed).max(seen).min(most)
    }
}
