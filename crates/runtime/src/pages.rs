//! The page table: where each page of the program is, as far as we put it there.
//!
//! Pages are kept in leaves of 2 MiB, made when the first page of one becomes known. A page is in
//! exactly one state. A page that we do not know is [`PageState::None`], and a fault there gets
//! zeros, as the kernel would give. Recency is kept per run of 128 KiB (a *run* is what one MOVE
//! takes), because no accessed bit exists for us: our own faults are all that is known.
//!
//! The page word, 16 bits:
//!
//! | bits  | meaning |
//! | ----- | ------- |
//! | 0..2  | state |
//! | 2..5  | backoff: 2 for each time the page came back soon after it was taken, 0..=6 |
//! | 5..12 | in the program: sweeps that pass the page over, 0..=64 |
//! | 5..16 | stored: when that was, as a number of pages stored |
//!
//! A page that is asked for soon after it was taken, from limbo or from the store, was taken too
//! early: it belongs to the working set (the refault distance of Linux, mm/workingset.c).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::ops::Range;

use coldpress_sys::page::{BLOCK_BYTES, PAGE_SHIFT};
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

/// Pages moved at a time: each move costs one TLB shootdown (about 9 us with two threads), however
/// many pages it has.
pub(crate) const RUN_PAGES: usize = 32;
/// Bytes of a run.
pub(crate) const RUN_BYTES: Bytes = Bytes(RUN_PAGES * PAGE_BYTES);
/// Least size of a managed mapping: one run. Smaller ones add up to little, and each would cost a
/// mapping of the kernel's.
pub const REGION_BYTES_MIN: Bytes = RUN_BYTES;
/// Largest size of a guard. A writable mapping right above an inaccessible one of at most this size
/// is taken for a thread's stack with its guard (pthread_attr_setguardsize(3): one page by default;
/// Java asks for more) and left alone.
pub const GUARD_BYTES_MAX: Bytes = Bytes(16 * PAGE_BYTES);
/// Step and maximum of the exponent of a run's sampling interval. A run whose sample was touched is
/// sampled in a fourth of the rounds as before, and in at least one of 2^6 rounds.
const HOT_STEP: u8 = 2;
const HOT_MAX: u8 = 6;
const LEAF_PAGES: usize = BLOCK_BYTES / PAGE_BYTES;
const RUNS_PER_LEAF: usize = LEAF_PAGES / RUN_PAGES;
/// Highest backoff: a page is passed over for 2^6 sweeps.
const BACKOFF_MAX: u16 = 6;
/// Step of the backoff: each time a page was taken too early, it is passed over for four times as
/// many sweeps. With twice as many, sort in two thirds of its memory has 20,000 faults on pages in
/// limbo; with this, 14,000.
const BACKOFF_STEP: u16 = 2;
/// Least time, in milliseconds, for which the service relies on what it knows of shared pages: each
/// copy and each relative's end changes that. Four threads that write to 64 MiB beside children of
/// some milliseconds hold 39 MiB of 40 with 3 ms, and 52 with 100.
const SHARED_MS_MIN: u32 = 3;
/// Number of leaves that add 1 ms to that time, so that looking at all leaves, 16 us each, takes a
/// sixth of the time at most.
const LEAVES_PER_MS: u32 = 10;
/// Longest time, in milliseconds, for which the service relies on what it knows of shared pages,
/// because most leaves may be of pages that are away.
const SHARED_MS_MAX: u32 = 100;
/// Divisor of what the process may hold. A stored page was taken too early if it is asked for
/// before this part was stored after it: the best of the parts tried on recorded programs and on
/// models.
const SOON_SHARE: usize = 3;
/// That part, in units of the time that stored pages remember.
const SOON: u16 = 64;
/// Mask of those times, which wrap around at 2048, so that 3 in 100 pages that are asked for late
/// are taken for early ones.
const TIME_MASK: u16 = (1 << 11) - 1;
/// The units of those times in which as much is stored as the process may hold.
pub(crate) const UNITS_PER_SHARE: usize = SOON_SHARE * SOON as usize;
/// The longest time that a stored page tells, in those units.
pub(crate) const UNITS_MAX: u16 = TIME_MASK;

/// The number of a page: its address divided by [`PAGE_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageNumber(pub(crate) usize);

impl PageNumber {
    /// Returns the page that holds `address`.
    pub(crate) const fn of(address: usize) -> Self {
        Self(address >> PAGE_SHIFT)
    }

    /// Returns its first address.
    pub(crate) const fn address(self) -> usize {
        self.0 << PAGE_SHIFT
    }

    /// Returns the page `count` further on.
    pub(crate) const fn plus(self, count: usize) -> Self {
        Self(self.0 + count)
    }

    /// Returns the run it belongs to.
    pub(crate) const fn run(self) -> RunNumber {
        RunNumber(self.0 / RUN_PAGES)
    }
}

/// The number of a run: its address divided by 128 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunNumber(pub(crate) usize);

impl RunNumber {
    /// Returns its first page.
    pub(crate) const fn first(self) -> PageNumber {
        PageNumber(self.0 * RUN_PAGES)
    }

    /// Returns its pages.
    pub(crate) fn pages(self) -> impl DoubleEndedIterator<Item = PageNumber> {
        (0..RUN_PAGES).map(move |index| self.first().plus(index))
    }

    /// Returns the first page of its leaf.
    pub(crate) const fn leaf_start(self) -> PageNumber {
        PageNumber(self.first().0 / LEAF_PAGES * LEAF_PAGES)
    }

    /// Returns the places of its pages in its leaf.
    const fn in_leaf(self) -> Range<usize> {
        let first = self.0 % RUNS_PER_LEAF * RUN_PAGES;
        first..first + RUN_PAGES
    }
}

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageState {
    /// Not known: never touched, dropped by the program, or not ours.
    None,
    /// In the program, as ordinary memory.
    Resident,
    /// Moved to limbo, not compressed yet.
    Limbo,
    /// Kept by zswap.
    Stored,
}

/// Where a page that was brought in came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nowhere: zeros.
    FirstTouch,
    /// Limbo.
    Limbo,
    /// The pool or the disk.
    Store,
    /// From any place, without a fault that asked for it.
    Readahead,
}

/// How a page was brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By itself, or with some neighbours.
    Alone,
    /// With others, by a long walk over pages that were away.
    Walk,
}

/// A page's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageWord(u16);

impl PageWord {
    const UNKNOWN: Self = Self(0);

    /// Returns where the page is.
    const fn state(self) -> PageState {
        match self.0 & 3 {
            0 => PageState::None,
            1 => PageState::Resident,
            2 => PageState::Limbo,
            _ => PageState::Stored,
        }
    }

    const fn with_state(self, state: PageState) -> Self {
        let bits = match state {
            PageState::None => 0,
            PageState::Resident => 1,
            PageState::Limbo => 2,
            PageState::Stored => 3,
        };
        Self(self.0 & !3 | bits)
    }

    const fn backoff(self) -> u16 {
        self.0 >> 2 & 7
    }

    const fn sweeps(self) -> u16 {
        self.0 >> 5
    }

    const fn with_wait(self, backoff: u16, sweeps: u16) -> Self {
        Self(self.0 & 3 | backoff << 2 | sweeps << 5)
    }

    /// Returns the word of the page, stored at that time.
    const fn stored(self, time: u16) -> Self {
        Self(self.backoff() << 2 | time << 5).with_state(PageState::Stored)
    }

    /// Returns whether a sweep may take the page. A page that is to be passed over comes one sweep
    /// nearer.
    fn sweep(&mut self) -> bool {
        if self.state() != PageState::Resident {
            return false;
        }
        if self.sweeps() > 0 {
            *self = self.with_wait(self.backoff(), self.sweeps() - 1);
            return false;
        }
        true
    }

    /// Returns how long before `now` the page was stored, if it is.
    const fn stored_for(self, now: u16) -> u16 {
        now.wrapping_sub(self.0 >> 5) & TIME_MASK
    }

    /// Returns whether the page is stored, and was stored a short time before `now`.
    const fn was_stored_lately(self, now: u16) -> bool {
        matches!(self.state(), PageState::Stored) && self.stored_for(now) < SOON
    }
}

/// What is kept about a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The time of its last fault-in.
    pub(crate) stamp: u32,
    /// The time at which it was last put into the reclaim queue.
    pub(crate) queued_at: u32,
    /// Whether it is in the reclaim queue.
    pub(crate) queued: bool,
    /// The limbo slot that holds pages of it.
    pub(crate) slot: Option<u16>,
    /// Sweeps that pass it over because it could not be moved.
    pub(crate) unfit_sweeps: u8,
    /// How often in a row it could not be moved; each time it is passed over for twice as long.
    pub(crate) unfit_times: u8,
    /// Binary logarithm of its sampling interval: it is sampled for idleness in one of 2^`hot`
    /// rounds.
    pub(crate) hot: u8,
}

impl Run {
    /// Notes that the page sampled of it was touched: it is in use, and sampled less often.
    pub(crate) fn note_sample_touched(&mut self) {
        self.hot = (self.hot + HOT_STEP).min(HOT_MAX);
    }
}

impl Run {
    fn mark_queued(&mut self, now: u32) -> bool {
        if self.queued {
            return false;
        }
        self.queued = true;
        self.queued_at = now;
        true
    }
}

const FRESH_RUN: Run = Run {
    stamp: 0,
    queued_at: 0,
    queued: false,
    slot: None,
    unfit_sweeps: 0,
    unfit_times: 0,
    hot: 0,
};

/// A bit for each page of a leaf.
pub(crate) type LeafBits = [u64; LEAF_PAGES / 64];

struct Leaf {
    pages: [PageWord; LEAF_PAGES],
    runs: [Run; RUNS_PER_LEAF],
    shared: Shared,
}

/// Pages of a leaf that relatives share.
#[derive(Clone, Copy, Default)]
struct Shared {
    bits: LeafBits,
    /// When the kernel reported that, in milliseconds.
    noted_ms: u32,
    /// The number of forks at that time; 0 when nothing is known.
    fork: u32,
}

const _: () = assert!(size_of::<Leaf>() <= 512 * 2 + 16 * 16 + 80, "0.07 % of what is described");

/// All pages that were ever seen.
pub(crate) struct PageTable {
    leaves: BTreeMap<usize, Box<Leaf>>,
    /// The time, as stored pages remember it; it wraps around.
    time: u16,
    /// Pages stored since the time last advanced, and the number that advances it.
    stored: usize,
    unit: usize,
    /// A number that advances by 1 at each fork, from 1 on.
    fork: u32,
}

impl PageTable {
    /// Creates an empty table, for a process with that share of a budget.
    pub(crate) fn new(share: PageCount) -> Self {
        let mut table = Self { leaves: BTreeMap::new(), time: 0, stored: 0, unit: 1, fork: 1 };
        table.set_share(share);
        table
    }

    /// Sets the process's share of the budget.
    pub(crate) fn set_share(&mut self, share: PageCount) {
        self.unit = share.0.div_ceil(UNITS_PER_SHARE).max(1);
    }

    /// Returns where a page is.
    pub(crate) fn state(&self, page: PageNumber) -> PageState {
        self.word(page).state()
    }

    /// Returns where a page is and, if it is stored, its refault distance: how much has been stored
    /// since it was, of which [`UNITS_PER_SHARE`] units are what the process may hold.
    pub(crate) fn state_and_distance(&self, page: PageNumber) -> (PageState, u16) {
        let word = self.word(page);
        (word.state(), word.stored_for(self.time))
    }

    fn word(&self, page: PageNumber) -> PageWord {
        let leaf = self.leaves.get(&(page.0 / LEAF_PAGES));
        leaf.map_or(PageWord::UNKNOWN, |leaf| leaf.pages[page.0 % LEAF_PAGES])
    }

    /// Records where a page is now.
    pub(crate) fn set_state(&mut self, page: PageNumber, state: PageState) {
        if state == PageState::None && !self.leaves.contains_key(&(page.0 / LEAF_PAGES)) {
            return;
        }
        let word = &mut self.leaf(page).pages[page.0 % LEAF_PAGES];
        *word = match state {
            // The next page at this address starts afresh.
            PageState::None => PageWord::UNKNOWN,
            _ => word.with_state(state),
        };
    }

    /// Records that the page, which was in limbo, has been stored.
    ///
    /// # Panics
    /// If it was not in limbo.
    pub(crate) fn note_stored(&mut self, page: PageNumber) {
        self.stored += 1;
        if self.stored >= self.unit {
            self.stored = 0;
            self.time = (self.time + 1) & TIME_MASK;
        }
        let time = self.time;
        let word = &mut self.leaf(page).pages[page.0 % LEAF_PAGES];
        assert_eq!(word.state(), PageState::Limbo, "{page:?} is stored out of limbo");
        *word = word.stored(time);
    }

    /// Transfers what is known of a page to another, of which nothing is known, and forgets the
    /// first.
    ///
    /// # Panics
    /// If the page is in limbo, which keeps pages by their place, or the other is known.
    pub(crate) fn move_page(&mut self, from: PageNumber, to: PageNumber) {
        let from = &mut self.leaf(from).pages[from.0 % LEAF_PAGES];
        let word = core::mem::replace(from, PageWord::UNKNOWN);
        assert_ne!(word.state(), PageState::Limbo, "a page in limbo cannot move to {to:?}");
        let leaf = self.leaf(to);
        let target = leaf.pages[to.0 % LEAF_PAGES].state();
        assert_eq!(target, PageState::None, "{to:?} is known before a page moves there");
        leaf.pages[to.0 % LEAF_PAGES] = word;
        leaf.shared = Shared::default();
    }

    /// Returns whether the page's run must be queued, now that the page has been brought in at the
    /// time `now`. Such a run is marked as queued.
    pub(crate) fn arrive(&mut self, page: PageNumber, from: Origin, way: Way, now: u32) -> bool {
        let time = self.time;
        let leaf = self.leaf(page);
        let word = &mut leaf.pages[page.0 % LEAF_PAGES];
        let (backoff, sweeps) = match from {
            Origin::FirstTouch => (0, 0),
            // Nothing is known of the page.
            Origin::Readahead => (word.backoff(), 0),
            // The page is there because a walk comes by.
            Origin::Store if way == Way::Walk => (word.backoff(), 0),
            // The page was cold indeed.
            Origin::Store if !word.was_stored_lately(time) => (word.backoff() / 2, 0),
            // The page was taken too early.
            Origin::Store | Origin::Limbo => {
                let backoff = (word.backoff() + BACKOFF_STEP).min(BACKOFF_MAX);
                (backoff, 1 << backoff)
            }
        };
        *word = word.with_state(PageState::Resident).with_wait(backoff, sweeps);
        let run = &mut leaf.runs[page.0 % LEAF_PAGES / RUN_PAGES];
        let is_new = run.mark_queued(now);
        // A loop comes by each time, and should not make younger a run that it finds in place.
        if is_new || way == Way::Alone {
            run.stamp = now;
        }
        is_new
    }

    /// Returns whether the page is stored, and was stored a short time ago.
    pub(crate) fn was_stored_lately(&self, page: PageNumber) -> bool {
        self.word(page).was_stored_lately(self.time)
    }

    /// Returns whether the run, which has resident pages, must be queued. Such a run is marked as
    /// queued.
    pub(crate) fn note_queued(&mut self, run: RunNumber, now: u32) -> bool {
        self.run_mut(run).mark_queued(now)
    }

    /// Has the page, which could not be moved, passed over for as long as possible.
    pub(crate) fn pass_over(&mut self, page: PageNumber) {
        let word = &mut self.leaf(page).pages[page.0 % LEAF_PAGES];
        *word = word.with_wait(word.backoff(), 1 << BACKOFF_MAX);
    }

    /// Returns whether a sweep may take the page. A page that is to be passed over comes one sweep
    /// nearer.
    pub(crate) fn sweep(&mut self, page: PageNumber) -> bool {
        // An unknown page stays unknown: its range may have gone, and needs no leaf.
        let leaf = self.leaves.get_mut(&(page.0 / LEAF_PAGES));
        leaf.is_some_and(|leaf| leaf.pages[page.0 % LEAF_PAGES].sweep())
    }

    /// Returns for each page of a run whether a sweep may take it. A page that is to be passed over
    /// comes one sweep nearer.
    pub(crate) fn sweep_run(&mut self, run: RunNumber) -> [bool; RUN_PAGES] {
        let mut wanted = [false; RUN_PAGES];
        if let Some(leaf) = self.leaves.get_mut(&(run.0 / RUNS_PER_LEAF)) {
            let pages = leaf.pages[run.in_leaf()].iter_mut();
            wanted.iter_mut().zip(pages).for_each(|(wanted, word)| *wanted = word.sweep());
        }
        wanted
    }

    /// Returns which pages of a run relatives share, a bit each, if that was noted a short time
    /// before `now_ms` and since the last fork.
    pub(crate) fn shared(&self, run: RunNumber, now_ms: u32) -> Option<u32> {
        let Shared { bits, noted_ms, fork } = self.leaves.get(&(run.0 / RUNS_PER_LEAF))?.shared;
        let first = run.in_leaf().start;
        let all_ms = self.leaves.len() as u32 / LEAVES_PER_MS;
        let holds_ms = all_ms.clamp(SHARED_MS_MIN, SHARED_MS_MAX);
        let is_known = fork == self.fork && now_ms.wrapping_sub(noted_ms) < holds_ms;
        is_known.then_some((bits[first / 64] >> (first % 64)) as u32)
    }

    /// Notes at `now_ms` which pages relatives share of the leaf that has `run`.
    pub(crate) fn note_shared(&mut self, run: RunNumber, bits: LeafBits, now_ms: u32) {
        let shared = Shared { bits, noted_ms: now_ms, fork: self.fork };
        self.leaf(run.first()).shared = shared;
    }

    /// Records a fork: a relative comes that shares everything.
    pub(crate) fn note_fork(&mut self) {
        self.fork = self.fork.wrapping_add(1).max(1);
    }

    /// Returns what is kept about a run, if any page of it was ever known.
    pub(crate) fn run(&self, run: RunNumber) -> Option<&Run> {
        let page = run.first();
        self.leaves
            .get(&(page.0 / LEAF_PAGES))
            .map(|leaf| &leaf.runs[page.0 % LEAF_PAGES / RUN_PAGES])
    }

    /// Returns the same as [`PageTable::run`], to change it, and makes it when there is none.
    pub(crate) fn run_mut(&mut self, run: RunNumber) -> &mut Run {
        let page = run.first();
        &mut self.leaf(page).runs[page.0 % LEAF_PAGES / RUN_PAGES]
    }

    /// Returns whether any page of the run is in `state`.
    pub(crate) fn run_has(&self, run: RunNumber, state: PageState) -> bool {
        let leaf = self.leaves.get(&(run.0 / RUNS_PER_LEAF));
        let pages = leaf.map_or(&[][..], |leaf| &leaf.pages[run.in_leaf()]);
        pages.iter().any(|word| word.state() == state)
    }

    /// Looks at the first leaf that has runs from `from` on. Returns its first such run that has
    /// pages in the program, or else its last run, and whether the run has such pages. One leaf
    /// only, as what is behind it may be long.
    pub(crate) fn look_for_resident(&self, from: RunNumber) -> Option<(RunNumber, bool)> {
        let first_leaf = from.0 / RUNS_PER_LEAF;
        let (number, leaf) = self.leaves.range(first_leaf..).next()?;
        let skipped = if *number == first_leaf { from.0 % RUNS_PER_LEAF } else { 0 };
        let mut runs = leaf.pages.chunks(RUN_PAGES).enumerate().skip(skipped);
        let is_resident = |word: &PageWord| word.state() == PageState::Resident;
        let found = runs.find(|(_, pages)| pages.iter().any(is_resident));
        let index = found.map_or(RUNS_PER_LEAF - 1, |(index, _)| index);
        Some((RunNumber(number * RUNS_PER_LEAF + index), found.is_some()))
    }

    /// Returns the first page of `range` whose state is not [`PageState::None`], with its state.
    pub(crate) fn next_known(&self, range: Range<PageNumber>) -> Option<(PageNumber, PageState)> {
        if range.is_empty() {
            return None;
        }
        let last_leaf = (range.end.0 - 1) / LEAF_PAGES;
        for (number, leaf) in self.leaves.range(range.start.0 / LEAF_PAGES..=last_leaf) {
            let base = number * LEAF_PAGES;
            let first = range.start.0.max(base) - base;
            let end = range.end.0.min(base + LEAF_PAGES) - base;
            for (index, word) in leaf.pages[first..end].iter().enumerate() {
                if word.state() != PageState::None {
                    return Some((PageNumber(base + first + index), word.state()));
                }
            }
        }
        None
    }

    /// Forgets all pages of `range`, after calling `visit` with the state of each known one. With
    /// the last page of a leaf go the leaf and what is kept about its runs.
    pub(crate) fn forget(&mut self, range: Range<PageNumber>, mut visit: impl FnMut(PageState)) {
        let (mut next, end) = (range.start.0 / LEAF_PAGES, range.end.0.div_ceil(LEAF_PAGES));
        while next < end
            && let Some((number, leaf)) = self.leaves.range_mut(next..end).next()
        {
            let (number, base) = (*number, number * LEAF_PAGES);
            let from = range.start.0.max(base) - base;
            let to = range.end.0.min(base + LEAF_PAGES) - base;
            for word in &mut leaf.pages[from..to] {
                if word.state() != PageState::None {
                    visit(word.state());
                }
                // The next page at this address starts afresh.
                *word = PageWord::UNKNOWN;
            }
            if leaf.pages.iter().all(|word| word.state() == PageState::None) {
                self.leaves.remove(&number);
            }
            next = number + 1;
        }
    }

    fn leaf(&mut self, page: PageNumber) -> &mut Leaf {
        self.leaves.entry(page.0 / LEAF_PAGES).or_insert_with(|| {
            Box::new(Leaf {
                pages: [PageWord::UNKNOWN; LEAF_PAGES],
                runs: [FRESH_RUN; RUNS_PER_LEAF],
                shared: Shared::default(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::vec::Vec;

    #[test]
    fn a_page_that_comes_back_is_passed_over_longer_each_time() {
        let mut table = PageTable::new(PageCount(1000));
        let page = PageNumber(1000);
        table.set_state(page, PageState::Resident);
        assert!(table.sweep(page));
        for expected in [4, 16, 64, 64] {
            table.arrive(page, Origin::Limbo, Way::Alone, 1);
            let waited = (0..).take_while(|_| !table.sweep(page)).count();
            assert_eq!(waited, expected);
        }
        assert!(
            !table.arrive(page, Origin::Store, Way::Alone, 2),
            "its run was queued at the first arrival"
        );
        table.arrive(page, Origin::Limbo, Way::Alone, 3);
        assert_eq!((0..).take_while(|_| !table.sweep(page)).count(), 32);
        table.set_state(page, PageState::None);
        table.arrive(page, Origin::FirstTouch, Way::Alone, 4);
        table.arrive(page, Origin::Limbo, Way::Alone, 5);
        assert_eq!((0..).take_while(|_| !table.sweep(page)).count(), 4);
    }

    #[test]
    fn what_relatives_share_is_known_for_a_short_time_and_until_the_next_fork() {
        let mut table = PageTable::new(PageCount(1000));
        let [run, next, last] = [28, 29, 31].map(RunNumber);
        assert_eq!(table.shared(run, 5), None);
        let mut bits = [0; LEAF_PAGES / 64];
        bits[6] = 0x1234_5678_9abc_def0;
        // Times wrap around.
        table.note_shared(last, bits, u32::MAX);
        let known = [run, next, last].map(|run| table.shared(run, 1));
        assert_eq!(known, [0x9abc_def0, 0x1234_5678, 0].map(Some));
        let is_known = |table: &PageTable, ms| table.shared(run, ms).is_some();
        let last_ms = SHARED_MS_MIN - 2;
        assert_eq!([last_ms, last_ms + 1].map(|ms| is_known(&table, ms)), [true, false]);
        // Looking at more leaves takes longer, so their state holds for longer.
        let leaves = (SHARED_MS_MIN + 1) * LEAVES_PER_MS;
        for leaf in 0..leaves as usize {
            table.set_state(PageNumber(leaf * LEAF_PAGES), PageState::Resident);
        }
        assert_eq!([last_ms + 1, last_ms + 2].map(|ms| is_known(&table, ms)), [true, false]);
        // But not for ever.
        for leaf in 0..(2 * SHARED_MS_MAX * LEAVES_PER_MS) as usize {
            table.set_state(PageNumber(leaf * LEAF_PAGES), PageState::Resident);
        }
        let most = [SHARED_MS_MAX - 2, SHARED_MS_MAX - 1];
        assert_eq!(most.map(|ms| is_known(&table, ms)), [true, false]);
        table.move_page(PageNumber(5), run.first());
        assert_eq!(table.shared(run, 3), None, "another page may be there");
        table.note_shared(run, bits, 3);
        table.note_fork();
        assert_eq!(table.shared(run, 3), None);
        table.note_shared(run, bits, 3);
        assert_eq!(table.shared(run, 3), Some(0x9abc_def0));
    }

    /// The risk: a page of another run is taken, or one that is to be passed over.
    #[test]
    fn a_sweep_of_a_run_is_one_of_each_of_its_pages() {
        let mut tables = [(); 2].map(|()| PageTable::new(PageCount(1000)));
        for table in &mut tables {
            for number in (990..1100).step_by(3) {
                table.set_state(PageNumber(number), PageState::Resident);
            }
            table.arrive(PageNumber(1002), Origin::Limbo, Way::Alone, 1);
            table.pass_over(PageNumber(1005));
            table.set_state(PageNumber(1008), PageState::Stored);
        }
        let [whole, single] = &mut tables;
        for number in [31, 31, 31, 31, 31, 32, 30, 99].map(RunNumber) {
            let mut each = number.pages().map(|page| single.sweep(page));
            assert_eq!(whole.sweep_run(number), [(); RUN_PAGES].map(|()| each.next().unwrap()));
        }
    }

    #[test]
    fn a_sweep_of_what_has_gone_takes_no_memory() {
        let mut table = PageTable::new(PageCount(1000));
        table.set_state(PageNumber(5), PageState::Resident);
        table.set_state(PageNumber(LEAF_PAGES), PageState::Stored);
        table.forget(PageNumber(5)..PageNumber(6), |_| {});
        assert!(!table.sweep(PageNumber(5)));
        assert!(table.leaves.keys().eq(&[1]), "a leaf goes with its last page");
        table.forget(PageNumber(0)..PageNumber(2 * LEAF_PAGES), |_| {});
        assert!(table.leaves.is_empty());
    }

    #[test]
    fn a_stored_page_was_taken_too_early_if_it_comes_back_soon() {
        let budget = PageCount(100 * SOON as usize);
        let others = |table: &mut PageTable, count: usize| {
            for page in (0..count).map(|index| PageNumber(5000 + index)) {
                table.set_state(page, PageState::Limbo);
                table.note_stored(page);
            }
        };
        for (stored_after, expected) in
            [(0, 4), (budget.0 / 4, 4), (budget.0 * 2 / 5, 0), (budget.0 * 6, 0)]
        {
            let mut table = PageTable::new(budget);
            // Times that wrap around.
            others(&mut table, 6_000);
            let page = PageNumber(1000);
            table.set_state(page, PageState::Limbo);
            table.note_stored(page);
            assert_eq!(table.state(page), PageState::Stored);
            others(&mut table, stored_after);
            // The page remembers that wherever it goes.
            let there = PageNumber(3000);
            table.move_page(page, there);
            assert_eq!(table.state(page), PageState::None);
            assert_eq!(table.was_stored_lately(there), expected > 0, "{stored_after}");
            table.arrive(there, Origin::Store, Way::Alone, 1);
            let waited = (0..).take_while(|_| !table.sweep(there)).count();
            assert_eq!(waited, expected, "{stored_after}");
            // A walk says nothing about that.
            table.set_state(there, PageState::Limbo);
            table.note_stored(there);
            table.arrive(there, Origin::Store, Way::Walk, 2);
            assert!(table.sweep(there));
        }
    }

    fn state() -> impl Strategy<Value = PageState> {
        prop_oneof![
            Just(PageState::None),
            Just(PageState::Resident),
            Just(PageState::Limbo),
            Just(PageState::Stored)
        ]
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_a_map(
            steps in proptest::collection::vec((0_usize..5000, state(), 0_u8..10), 1..400)
        ) {
            let mut table = PageTable::new(PageCount(1000));
            let mut oracle = HashMap::new();
            for (number, state, action) in steps {
                match action {
                    0 => {
                        let range = PageNumber(number)..PageNumber(number + 700);
                        let known = oracle.iter().filter(|(page, state)| {
                            (number..number + 700).contains(*page) && **state != PageState::None
                        });
                        let (expected, mut told) = (known.count(), 0);
                        table.forget(range, |_| told += 1);
                        prop_assert_eq!(told, expected);
                        oracle.retain(|known, _| !(number..number + 700).contains(known));
                    }
                    _ => {
                        table.set_state(PageNumber(number), state);
                        oracle.insert(number, state);
                    }
                }
                let from = PageNumber(number.saturating_sub(300));
                let expected = (from.0..6000)
                    .find(|page| oracle.get(page).is_some_and(|state| *state != PageState::None));
                let found = table.next_known(from..PageNumber(6000));
                prop_assert_eq!(found.map(|(page, _)| page.0), expected);
                let from = from.run();
                let resident = oracle.iter().filter(|(_, state)| **state == PageState::Resident);
                let runs = resident.map(|(page, _)| PageNumber(*page).run());
                let expected = runs.filter(|run| *run >= from).min();
                let looks = core::iter::successors(table.look_for_resident(from), |(run, is_one)| {
                    let next = RunNumber(run.0 + 1);
                    if *is_one { None } else { table.look_for_resident(next) }
                });
                let looks: Vec<_> = looks.collect();
                prop_assert_eq!(looks.last().filter(|look| look.1).map(|look| look.0), expected);
                prop_assert!(looks.len() <= 6000_usize.div_ceil(LEAF_PAGES));
            }
            for page in 0..6000 {
                let expected = oracle.get(&page).copied().unwrap_or(PageState::None);
                prop_assert_eq!(table.state(PageNumber(page)), expected);
            }
        }
    }
}
