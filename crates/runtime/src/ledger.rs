//! The ledger: memory shared by the launcher and every managed process of a run.
//!
//! It has two parts. The orders are the launcher's: the terms, which it writes before the first
//! process joins, the budget, the knobs whenever the user turns one, and which process has which
//! seat. No process can write them. In the other part, `Seats`, each process owns one seat with
//! its tally, and should be the only writer of their numbers. Every process reads all seats, so
//! there is one budget although no process holds a lock. The launcher alone gives seats out and
//! takes them back. Tallies lie apart, and seats are taken from the first one on. So a process that
//! reads all seats, which each does a thousand times a second, touches one cache line for each of
//! as many seats as were ever taken at a time.
//!
//! A process of the run may write anything to any seat at any moment, so:
//!
//! 1. A reader reads a word of a seat once, bounds it, and only then uses it; no word is ever an
//!    index or a length.
//! 2. Sums over seats are of bounded words, or saturate.
//! 3. No process waits for a word to change without a limit of time.
//!
//! All numbers are plain counters: a reader may see one that is a moment old, never a torn one, so
//! every access is Relaxed but for those that `ledger/orders.rs` names.

use core::ops::Add;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use coldpress_sys::shared::Shared;
use coldpress_sys::{BorrowedFd, Bytes, PageCount, SysResult};

use crate::helper::Bell;
use crate::tally::Tally;

mod holding;
mod orders;
#[cfg(any(feature = "preload", test))]
mod processes;
mod turn;

pub use holding::Holding;
pub(crate) use holding::{Gain, Millionths};
pub use orders::Keeper;
pub(crate) use orders::Orders;
#[cfg(any(feature = "preload", test))]
pub(crate) use turn::Figure;
pub(crate) use turn::{Table, Turn};

/// The number of processes of a run that can be managed at the same time; any more stay unmanaged.
pub const SEATS: usize = 512;
/// The smallest budget: below it the launcher's parts, the pool's first blocks and the code, stacks
/// and libraries of even a small program leave nothing to manage. Eight blocks of 2 MiB.
pub const BUDGET_FLOOR: Bytes = Bytes::mib(16);
/// The version of the ledger, which changes whenever the layout of either part does.
pub const LEDGER_VERSION: u32 = 25;
/// The most time that memory can save: all the time of as many threads as a Linux machine may have
/// (4 Mi, its PID_MAX_LIMIT).
const GAIN_TIME_MAX: Millionths = Millionths(Millionths::ALL.0 << 22);

/// Both parts of the ledger, as a process of the run sees them.
#[derive(Debug)]
pub struct Ledger {
    orders: Shared<Orders>,
    shared: Shared<Seats>,
}

/// The part of the ledger that processes write.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Seats {
    peak_pages: AtomicU64,
    /// Pages shared since a fork that processes have copied; the original of each is a relative's
    /// alone by now.
    copied_pages: AtomicU64,
    /// The messages that the user has had, a bit for each [`Told`].
    told: AtomicU32,
    turns: Table,
    /// The bell on which the helper sleeps.
    bell: Bell,
    /// The seats; the first [`SEATS`] processes take them.
    seats: [Seat; SEATS],
    /// The counters of the processes, each tally at the index of its seat.
    tallies: [Tally; SEATS],
}

/// A message that the user gets once in a run, from the process that finds its cause first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Told {
    /// More memory is in use than the budget allows, and no more can be moved.
    OverBudget = 1,
    /// Stored pages are made denser.
    Recompression = 4,
    /// Processes take turns (load control).
    Turns = 8,
    /// A process waits for pages most of the time.
    Waits = 16,
    /// As `OverBudget`, while most of the budget is shared memory. For the launcher, which explains
    /// to the user what that is.
    OverByShared = 32,
}

/// The decisions of the launcher, which every process obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// All memory that the process tree may hold; the launcher may change it later.
    pub budget: PageCount,
    /// The most bytes on disk; 0 when there is no disk.
    pub spill_max: Bytes,
    /// Whether to report what costs time.
    pub verbose: bool,
    /// The number of processors that the tree may use.
    pub processors: u32,
}

/// The numbers of one process.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Seat {
    managing: AtomicU32,
    beginning: AtomicU32,
    thawed: AtomicU32,
    sharing: AtomicU32,
    asked: AtomicU32,
    /// The number shared by all processes that come from one process by forks, 0 in a process
    /// without relatives.
    family: AtomicU32,
    /// Pages in memory, shared with relatives or not. 0 in a process that takes nothing that its
    /// relatives share, or has had no fault lately.
    left_pages: AtomicU64,
    used_pages: AtomicU64,
    doubt_pages: AtomicU64,
    /// What more memory would gain: the pages of it, and millionths of the time.
    gain_pages: AtomicU64,
    gain_time: AtomicU64,
    pub(crate) turn: Turn,
}

impl Ledger {
    /// Maps the two parts that the launcher has handed over. Returns `None` when they are of
    /// another version.
    ///
    /// # Safety
    /// The descriptors must be those of a [`Keeper`], or of memory in which only atomics are kept.
    pub unsafe fn map(
        orders: BorrowedFd<'_>,
        seats: BorrowedFd<'_>,
    ) -> SysResult<Option<(Self, Terms)>> {
        // SAFETY: orders are made of atomics, as the caller promises of this memory.
        let orders: Shared<Orders> = unsafe { Shared::map_to_read(orders)? };
        let Some(terms) = orders.terms() else { return Ok(None) };
        // SAFETY: seats are made of atomics, as the caller promises of this memory.
        let seats: Shared<Seats> = unsafe { Shared::map(seats)? };
        Ok(Some((Self { orders, shared: seats }, terms)))
    }

    /// Returns all memory that the process tree may hold.
    pub fn budget(&self) -> PageCount {
        self.orders.budget()
    }

    /// Returns the number of processors that the tree may use.
    pub fn processors(&self) -> u32 {
        self.orders.processors()
    }

    /// Whether every service is to bring all pages back and end.
    pub fn are_over(&self) -> bool {
        self.orders.are_over()
    }

    /// Returns a number that changes when the knobs do.
    pub fn generation(&self) -> u64 {
        self.orders.generation()
    }

    /// Returns the knobs.
    pub fn knobs(&self) -> crate::knobs::Knobs {
        self.orders.knobs()
    }

    /// Returns the process that has `seat`, 0 for none.
    pub fn process_in(&self, seat: usize) -> u32 {
        self.orders.places[seat].process()
    }

    /// Returns what the process in `seat` holds, and would gain, bounded by what is possible.
    pub fn holding(&self, seat: usize) -> Holding {
        self.shared.seats[seat].holding(self.orders.places[seat].used_max())
    }

    /// Returns what the process in `seat` claims to hold, whatever is believed of it.
    pub fn claimed(&self, seat: usize) -> Holding {
        self.shared.seats[seat].holding(PageCount(usize::MAX))
    }

    /// Returns the seats that processes have, with their numbers.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (usize, &Seat)> {
        let places = self.orders.places[..self.orders.seats_taken()].iter();
        let all = places.zip(&self.shared.seats).enumerate();
        all.filter(|(_, (place, _))| place.process() != 0).map(|(index, (_, seat))| (index, seat))
    }

    /// Returns what all processes but the one in `seat` hold of their own, and would gain.
    pub fn others(&self, seat: usize) -> Holding {
        let others = self.taken().filter(|(index, _)| *index != seat);
        let unseated = Holding { used: self.orders.unseated(), ..Holding::default() };
        others.map(|(index, _)| self.holding(index)).fold(unseated, Holding::add)
    }

    /// Returns the pages that all processes hold, shared ones included.
    pub fn used(&self) -> PageCount {
        self.others(SEATS).used + self.shared()
    }

    /// Returns the pages of shared memory that processes have mapped, each counted once.
    pub fn shared(&self) -> PageCount {
        self.orders.shared()
    }

    /// Returns the number of processes that are managed and have pages away, or may have.
    pub fn not_thawed(&self) -> usize {
        self.taken().filter(|(_, seat)| seat.is_managing() && !seat.is_thawed()).count()
    }

    /// Returns the counters of the process in `seat`.
    pub fn tally(&self, seat: usize) -> &Tally {
        &self.shared.tallies[seat]
    }

    /// Publishes that the process in `seat` is managed now.
    pub fn set_managing(&self, seat: usize) {
        self.seat(seat).managing.store(1, Ordering::Relaxed);
    }

    /// Whether the process in `seat` was ever managed.
    pub fn is_managing(&self, seat: usize) -> bool {
        self.seat(seat).is_managing()
    }

    /// Whether the process in `seat` has asked how much memory the machine has.
    pub fn has_asked(&self, seat: usize) -> bool {
        self.seat(seat).asked.load(Ordering::Relaxed) != 0
    }

    /// Returns whether no process of the run has given the user this message yet, and notes that
    /// one has now.
    pub fn is_first_to_tell(&self, what: Told) -> bool {
        let told = &self.shared.told;
        // Relaxed, both: no other memory depends on the word. The message has usually been given,
        // and a load leaves the cache line with all its readers.
        told.load(Ordering::Relaxed) & what as u32 == 0
            && told.fetch_or(what as u32, Ordering::Relaxed) & what as u32 == 0
    }

    /// Whether a process has given the user this message.
    pub fn is_told(&self, what: Told) -> bool {
        // Relaxed: no other memory depends on this word.
        self.shared.told.load(Ordering::Relaxed) & what as u32 != 0
    }

    /// Returns the highest peak that a process has noted.
    fn peak_told(&self) -> PageCount {
        PageCount(self.shared.peak_pages.load(Ordering::Relaxed) as usize)
    }

    /// Returns the numbers of the process in `seat`.
    pub(crate) fn seat(&self, seat: usize) -> &Seat {
        &self.shared.seats[seat]
    }
}

impl Seat {
    /// Clears the seat for a process that is new in it.
    fn clear(&self) {
        self.managing.store(0, Ordering::Relaxed);
        self.beginning.store(0, Ordering::Relaxed);
        self.thawed.store(0, Ordering::Relaxed);
        self.sharing.store(0, Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
        self.set_family(0, PageCount(0));
        self.publish(Holding::default());
        self.turn.clear();
    }

    /// Publishes what this process holds, and would gain.
    pub(crate) fn publish(&self, holding: Holding) {
        self.used_pages.store(holding.used.0 as u64, Ordering::Relaxed);
        self.doubt_pages.store(holding.doubt.0 as u64, Ordering::Relaxed);
        self.gain_pages.store(holding.gain.pages.0 as u64, Ordering::Relaxed);
        self.gain_time.store(holding.gain.time.0, Ordering::Relaxed);
    }

    /// Returns what this process claims to hold, and would gain, up to `most`, the most that is
    /// possible.
    fn holding(&self, most: PageCount) -> Holding {
        let pages = |word: &AtomicU64| PageCount(word.load(Ordering::Relaxed) as usize).min(most);
        let time = Millionths(self.gain_time.load(Ordering::Relaxed)).min(GAIN_TIME_MAX);
        let gain = Gain { pages: pages(&self.gain_pages), time };
        let used = pages(&self.used_pages);
        let doubt = pages(&self.doubt_pages).min(most.saturating_sub(used));
        Holding { used, doubt, gain }
    }

    /// Publishes the family of this process, and the pages that it has `left` in memory.
    pub(crate) fn set_family(&self, family: u32, left: PageCount) {
        self.family.store(family, Ordering::Relaxed);
        self.left_pages.store(left.0 as u64, Ordering::Relaxed);
    }

    /// Whether all pages of this process are in the program, to stay there.
    pub(crate) fn is_thawed(&self) -> bool {
        self.thawed.load(Ordering::Relaxed) != 0
    }

    /// Whether this process was ever managed.
    pub(crate) fn is_managing(&self) -> bool {
        self.managing.load(Ordering::Relaxed) != 0
    }
}

/// Returns a ledger whose seats are all taken and full of random words.
#[cfg(test)]
pub(crate) fn scribbled(seed: u64) -> Keeper {
    let terms =
        Terms { budget: PageCount(40_000), spill_max: Bytes(0), verbose: false, processors: 2 };
    let (_fds, keeper) = Keeper::create(terms, &crate::knobs::Knobs::default()).unwrap();
    for seat in 0..SEATS {
        keeper.assign(seat, 1 + seat as u32, PageCount(1 << 20));
    }
    scribble(&keeper, seed);
    keeper
}

/// Writes random words over all that processes can write.
#[cfg(test)]
fn scribble(keeper: &Keeper, seed: u64) {
    let words = size_of::<Seats>() / size_of::<u64>();
    let mut state = seed | 1;
    let first = (&raw const *keeper.shared).cast::<AtomicU64>();
    for index in 0..words {
        // xorshift64 (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let edges = [0, 1, u64::MAX, 1 << 63, state, state >> 32, state >> 52, u64::MAX >> 1];
        // SAFETY: seats are made of atomics, in shared memory of that size, which is aligned.
        let word = unsafe { &*first.add(index) };
        word.store(edges[(state >> 13) as usize % edges.len()], Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    //! The risk: an order of the launcher's that a process can write, or a word of one process that
    //! the others believe.

    use coldpress_sys::{AsFd, AsRawFd, FromRawFd, OwnedFd, shared};

    use proptest::prelude::*;

    use super::*;
    use crate::allowance::{Answers, Budget, PastActivity};
    use crate::knobs::{Knob, Knobs};
    use crate::tally::Figures;

    const TERMS: Terms = Terms {
        budget: PageCount(40_000),
        spill_max: Bytes::mib(77),
        verbose: true,
        processors: 3,
    };
    const MACHINE: PageCount = PageCount(1 << 20);

    #[test]
    fn the_relative_with_most_left_is_found_among_those_that_are_managed() {
        let (_fds, ledger) = Keeper::create(TERMS, &Knobs::default()).unwrap();
        let seats = [(0, 7, 100, true), (1, 7, 300, true), (2, 7, 900, false), (3, 8, 900, true)];
        for (seat, family, left, is_managed) in seats {
            ledger.assign(seat, 1000 + seat as u32, MACHINE);
            ledger.seat(seat).set_family(family, PageCount(left));
            if is_managed {
                ledger.set_managing(seat);
            }
        }
        let most = |seat, family| ledger.most_left(seat, family).0;
        assert_eq!([most(0, 7), most(1, 7), most(3, 8), most(0, 0)], [300, 100, 0, 0]);
    }

    /// The version changes with these, and docs/formats.md has them.
    #[test]
    fn the_layout_is_the_one_of_its_version() {
        let sizes = [size_of::<Orders>(), size_of::<Seats>(), size_of::<Seat>()];
        let counts = [Knob::ALL.len(), crate::tally::WORDS];
        assert_eq!((LEDGER_VERSION, sizes, counts), (25, [8408, 1_376_384, 128], [19, 316]));
    }

    #[test]
    fn terms_and_knobs_come_back_as_they_were_set() {
        let mut knobs = Knobs::default();
        let ([orders, seats], first) = Keeper::create(TERMS, &knobs).unwrap();
        // SAFETY: the descriptors are of a ledger, made a line above.
        let (second, terms) = unsafe { Ledger::map(orders.as_fd(), seats.as_fd()) }
            .unwrap()
            .expect("it is of this version");
        assert_eq!((terms, second.knobs()), (TERMS, knobs));
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
        assert!(second.is_told(Told::OverBudget) && !second.is_told(Told::OverByShared));
        assert!(second.is_first_to_tell(Told::Recompression));
        first.set_budget(PageCount(50_000));
        assert_eq!(second.budget(), PageCount(50_000));
        let empty = shared::create(c"empty", Bytes(size_of::<Orders>())).unwrap();
        // SAFETY: zeroed memory is empty orders, which are made of atomics.
        let found = unsafe { Ledger::map(empty.as_fd(), seats.as_fd()) }.unwrap();
        assert!(found.is_none());
    }

    #[test]
    fn others_are_all_but_oneself_and_the_unseated_count() {
        let (_fds, ledger) = Keeper::create(TERMS, &Knobs::default()).unwrap();
        for (seat, pages) in [(0, 100), (3, 20), (5, 3)] {
            ledger.assign(seat, 1000 + seat as u32, MACHINE);
            let gain = Gain { pages: PageCount(pages / 2), time: Millionths(pages as u64 / 3) };
            let doubt = PageCount(pages / 10);
            ledger.seat(seat).publish(Holding { used: PageCount(pages), doubt, gain });
        }
        ledger.set_unseated(PageCount(7));
        assert_eq!(ledger.used(), PageCount(130));
        let gain = Gain { pages: PageCount(11), time: Millionths(7) };
        let (used, doubt) = (PageCount(30), PageCount(2));
        assert_eq!(ledger.others(0), Holding { used, doubt, gain });
        ledger.note_peak(ledger.used());
        for (seat, family) in [(0, 7), (3, 7), (5, 9)] {
            ledger.seat(seat).set_family(family, PageCount(0));
        }
        assert_eq!([7, 9, 0].map(|family| ledger.relatives(0, family)), [1, 1, 0]);
        ledger.set_managing(0);
        ledger.set_managing(3);
        ledger.seat(3).set_thawed(true);
        assert_eq!(ledger.not_thawed(), 1);
        ledger.seat(3).set_beginning(true);
        assert_eq!([0, 3].map(|seat| ledger.beginning_beside(seat)), [1, 0]);
        let taken: std::vec::Vec<_> = ledger.taken().map(|(seat, _)| seat).collect();
        assert_eq!(taken, [0, 3, 5]);
        ledger.assign(0, 0, MACHINE);
        assert_eq!((ledger.not_thawed(), ledger.relatives(3, 7)), (0, 0));
        assert_eq!(ledger.used(), PageCount(30));
        ledger.note_used(PageCount(129));
        assert_eq!(ledger.peak(MACHINE), PageCount(130));
        ledger.note_used(PageCount(140));
        assert_eq!(ledger.peak(MACHINE), PageCount(140));
        assert_eq!(ledger.peak(PageCount(135)), PageCount(135), "of the machine's memory");
    }

    proptest! {
        /// A member and the launcher go on, and arrive only at figures that are possible.
        #[test]
        fn whatever_stands_in_the_seats_figures_are_bounded(seed in any::<u64>()) {
            let keeper = scribbled(seed);
            let all = PageCount(SEATS << 20);
            prop_assert!(keeper.used() <= all && keeper.others(0).used <= all);
            prop_assert!(keeper.not_thawed() <= SEATS);
            prop_assert_eq!((keeper.budget(), keeper.knobs()), (TERMS.budget, Knobs::default()));
            let gain = keeper.others(0).gain;
            gain.shall_yield_to(keeper.holding(0).gain);
            prop_assert!(gain.pages <= all && gain.time.0 <= SEATS as u64 * GAIN_TIME_MAX.0);
            keeper.limit(0, PageCount(5));
            prop_assert!(keeper.holding(0).used <= PageCount(5));
            keeper.note_peak(PageCount(100));
            prop_assert!(keeper.peak(MACHINE) <= PageCount(200) + Bytes::mib(64).pages_down());
            let mut budget = Budget::new(&TERMS, 0);
            let Ok(()) = budget.read(&keeper, PastActivity::default(), 0, &Answers::of(9, None));
            prop_assert!(budget.total() == TERMS.budget && budget.share() <= TERMS.budget);
            let mut figures = Figures::default();
            for seat in 0..SEATS {
                figures.add(keeper.tally(seat));
            }
            let counted = crate::tally::Counter::ALL.iter().map(|it| figures.get(*it)).max();
            prop_assert!(counted <= Some(i64::MAX.cast_unsigned()));
        }
    }

    /// The words may change between any two reads.
    #[test]
    fn who_reads_while_others_write_anything_goes_on() {
        let keeper = scribbled(7);
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: no other memory depends on this word.
                for seed in (1..).take_while(|_| !is_done.load(Ordering::Relaxed)) {
                    scribble(&keeper, seed);
                }
            });
            let mut budget = Budget::new(&TERMS, 0);
            for _ in 0..500 {
                let Ok(()) =
                    budget.read(&keeper, PastActivity::default(), 0, &Answers::of(9, None));
                assert!(keeper.used().0 <= SEATS << 20 && keeper.peak(MACHINE).0 <= 1 << 20);
                assert!(budget.total() == TERMS.budget);
            }
            is_done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn nobody_but_the_launcher_can_write_orders() {
        let ([orders, _seats], keeper) = Keeper::create(TERMS, &Knobs::default()).unwrap();
        // SAFETY: orders are made of atomics.
        let writable = unsafe { Shared::<Orders>::map(orders.as_fd()) };
        assert_eq!(writable.map(|_| ()).unwrap_err().to_string(), "mmap: EPERM");
        let path = std::format!("/proc/self/fd/{}", orders.as_raw_fd());
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        assert!(std::os::unix::fs::FileExt::write_all_at(&file, &[1; 64], 0).is_err());
        assert!(file.set_len(0).is_err());
        // SAFETY: the number was the file's, which no longer has it.
        let again = unsafe { OwnedFd::from_raw_fd(std::os::fd::IntoRawFd::into_raw_fd(file)) };
        // SAFETY: orders are made of atomics.
        assert!(unsafe { Shared::<Orders>::map(again.as_fd()) }.is_err());
        // The launcher can still write.
        keeper.set_budget(PageCount(7));
        assert_eq!(keeper.budget(), PageCount(7));
    }
}
