//! Pages that are away: bringing one back from limbo, the pool or the disk (swap-in), and with it
//! the pages that its sequential stream, its *walk*, will want next.
//!
//! A fault costs 7 us beside what its page costs, and one COPY of many pages is cheaper than many
//! COPYs of one page. So walks are served a window at a time (readahead). The pages are fetched
//! into a buffer in the order of their addresses, and from there one COPY places each stretch of
//! neighbours.
//!
//! Invariants:
//! 1. Whatever happens to another page of the window, the page asked for is served as if it were
//!    alone, and the other page stays where it is.
//! 2. A page that is read back from disk without a fault on it stays in `readahead` until it has
//!    been taken. A page that nothing took would keep its buffer in zswap for ever.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use coldpress_backing::SlotCount;
use coldpress_sys::uffd::{Progress, Stop};
use coldpress_sys::{Page, PageBuffer, PageCount, cpu};
use coldpress_zswap::{LoadError, Loaded, Source};

use crate::fault::Outcome;
use crate::kept::Kept;
use crate::manager::Manager;
use crate::pages::{Origin, PageNumber, PageState, Way};
use crate::tally::{Counter, Group};
use crate::walks::{AWAY_MAX, LOADS, Walks, Window};

/// Pages in limbo behind the one asked for that come back with it outside any walk. Pages used
/// together are taken together, and each costs a tenth of a fault. Of 0, 3, 7 and 15, this is the
/// best for sort and node in two thirds of their memory: a tenth to a fifth fewer faults than with
/// 0. Pages touched at random take as long as with 0.
const TOGETHER: usize = 3;
/// Reads from disk that readahead may have under way: half of zswap's buffers, so that other faults
/// find one.
const READAHEAD_MAX: usize = 4;
/// Entries of returned pages that may wait to be dropped: several times what comes back between two
/// reclaims.
const SERVED_MAX: usize = 64;

/// The state for bringing pages back.
pub(crate) struct Away {
    /// Walks (sequential streams) over pages that are away.
    walks: Walks,
    /// Pages being read from disk that no fault has asked for.
    readahead: Vec<PageNumber>,
    /// Pages on their way back.
    pub(crate) buffer: Box<[PageBuffer]>,
    /// Pages that have come back and whose compressed copies are kept.
    pub(crate) kept: Kept,
}

impl Away {
    /// Creates the state with nothing on its way. The disk, if there is one, has `slots_max` slots.
    pub(crate) fn new(slots_max: SlotCount) -> Self {
        Self {
            walks: Walks::new(LOADS),
            readahead: Vec::with_capacity(READAHEAD_MAX),
            buffer: alloc::vec![PageBuffer::ZERO; AWAY_MAX].into_boxed_slice(),
            kept: Kept::new(slots_max),
        }
    }

    /// Adds pages that have been read from disk and that no fault asks for any more.
    pub(crate) fn expect(&mut self, pages: impl Iterator<Item = PageNumber>) {
        self.readahead.extend(pages);
    }
}

/// The outcome of fetching a page.
enum Fetched {
    /// The page is in the buffer, and whether it came from disk.
    Here(bool),
    /// The page is being read back from disk.
    Coming,
    NotAway,
    Lost(LoadError),
}

/// The pages of a window in the buffer, lowest address first.
struct Batch {
    lowest: PageNumber,
    /// The distance from one page to the next.
    step: usize,
    /// One bit for each place whose page is in the buffer, and for each whose page came from disk.
    here: u32,
    from_disk: u32,
    /// Whether the pages belong to a walk, and which way their runs come.
    is_walk: bool,
    way: Way,
    /// The place of the page asked for.
    asked: Option<usize>,
}

const _: () = assert!(AWAY_MAX <= u32::BITS as usize);

impl Batch {
    /// Creates a batch of one page that no fault asked for.
    fn of(page: PageNumber) -> Self {
        Self {
            lowest: page,
            step: 1,
            here: 0,
            from_disk: 0,
            is_walk: true,
            way: Way::Alone,
            asked: None,
        }
    }

    fn put(&mut self, place: usize, from_disk: bool) {
        self.here |= 1 << place;
        self.from_disk |= u32::from(from_disk) << place;
    }

    fn page(&self, place: usize) -> PageNumber {
        self.lowest.plus(place * self.step)
    }

    fn has(&self, place: usize) -> bool {
        place < AWAY_MAX && self.here & 1 << place != 0
    }

    /// Returns the places from `start` on that one COPY can take.
    fn stretch(&self, start: usize) -> Range<usize> {
        let longest = if self.step == 1 { AWAY_MAX } else { 1 };
        start..start + (start..).take(longest).take_while(|place| self.has(*place)).count()
    }
}

impl Manager {
    /// Returns the window to bring in for a fault on `page`.
    pub(crate) fn window_of(&self, page: PageNumber) -> Window {
        let is_there = |page| self.pages.state(page) == PageState::Resident;
        match self.pages.state(page) {
            PageState::Limbo | PageState::Stored if !self.away.readahead.contains(&page) => {
                self.away.walks.window(page, is_there)
            }
            _ => Window::ONE,
        }
    }

    /// Brings back `page`, which is away, and as much of its window as there is room for.
    pub(crate) fn place_away(&mut self, page: PageNumber, window: Window) -> Outcome {
        let room = self.budget.hard().saturating_sub(self.budget.used());
        let window = window.at_most(room.0.min(AWAY_MAX));
        let far = window.page(page, window.count - 1);
        let (window, far) = far.map_or((Window::ONE, page), |far| (window, far));
        let place = |index| if far < page { window.count - 1 - index } else { index };
        let asked = place(0);
        let was_expected = self.away.readahead.contains(&page);
        let mut batch = Batch {
            lowest: page.min(far),
            step: window.step.unsigned_abs(),
            here: 0,
            from_disk: 0,
            is_walk: window.count > 1 || was_expected,
            way: window.way(),
            asked: Some(asked),
        };
        match self.fetch(page, asked) {
            Fetched::Here(from_disk) => batch.put(asked, from_disk),
            Fetched::Coming => {}
            Fetched::NotAway => return Outcome::Again,
            Fetched::Lost(error) => return self.poison(page, error),
        }
        for place in (1..window.count).map(place) {
            self.fetch_ahead(&mut batch, place);
        }
        if window.count == 1 {
            for place in 1..1 + self.count_together(page).min(room.0.saturating_sub(1)) {
                self.fetch_ahead(&mut batch, place);
            }
        }
        let (asked_stretch, is_here) = (self.place_others(&batch), batch.has(asked));
        if !is_here {
            return Outcome::Coming;
        }
        // Last, because it lets the thread go on.
        let outcome = self.place_asked(&batch, asked_stretch);
        if outcome == Outcome::Placed && !was_expected {
            self.away.walks.advance(page, window);
        }
        outcome
    }

    /// Counts the pages in limbo behind `page`, itself in limbo, that come back with it.
    fn count_together(&self, page: PageNumber) -> usize {
        let in_limbo = |index: &usize| self.pages.state(page.plus(*index)) == PageState::Limbo;
        (0..=TOGETHER).take_while(in_limbo).count().saturating_sub(1)
    }

    /// Fetches a page that no fault asked for, if it is away and intact.
    fn fetch_ahead(&mut self, batch: &mut Batch, place: usize) {
        let page = batch.page(place);
        if self.away.readahead.len() >= READAHEAD_MAX {
            let pages = &self.pages;
            self.away.readahead.retain(|page| pages.state(*page) == PageState::Stored);
        }
        // Any page may turn out to be on disk.
        if self.away.readahead.len() >= READAHEAD_MAX || self.away.readahead.contains(&page) {
            return;
        }
        match self.fetch(page, place) {
            Fetched::Here(from_disk) => batch.put(place, from_disk),
            Fetched::Coming => self.away.readahead.push(page),
            // The loss of a page is reported when a thread touches it.
            Fetched::NotAway | Fetched::Lost(_) => {}
        }
    }

    /// Makes room for the pages that readahead is reading from disk.
    pub(crate) fn make_room_ahead(&mut self) {
        self.make_room(PageCount(self.away.readahead.len()));
    }

    /// Takes in pages that were read ahead and have come from the disk, while there is room.
    pub(crate) fn take_read_ahead(&mut self) {
        for _ in 0..self.away.readahead.len() {
            let page = self.away.readahead.remove(0);
            if self.pages.state(page) != PageState::Stored {
                continue;
            }
            // A fault that has asked for the page meanwhile takes it.
            if self.pending.iter().any(|fault| fault.page == page) {
                self.away.readahead.push(page);
                continue;
            }
            match self.fetch(page, 0) {
                Fetched::Here(from_disk) if self.budget.used() < self.budget.hard() => {
                    let mut batch = Batch::of(page);
                    batch.put(0, from_disk);
                    self.place_stretch(&batch, 0..1);
                }
                Fetched::Coming => self.away.readahead.push(page),
                Fetched::Here(_) | Fetched::NotAway | Fetched::Lost(_) => {}
            }
        }
    }

    /// Copies the bytes of a page that is away into a place of the buffer.
    fn fetch(&mut self, page: PageNumber, place: usize) -> Fetched {
        match self.pages.state(page) {
            PageState::Limbo => {
                let source = self.limbo_address(page) as *const Page;
                // SAFETY: the page was moved there and nobody writes to limbo.
                self.away.buffer[place].0.copy_from_slice(unsafe { &*source });
                Fetched::Here(false)
            }
            PageState::Stored => self.load(page, place),
            PageState::None | PageState::Resident => Fetched::NotAway,
        }
    }

    fn load(&mut self, page: PageNumber, place: usize) -> Fetched {
        let begun = cpu::ticks();
        match self.zswap.load(Self::key(page), &mut self.away.buffer[place].0) {
            Ok(Loaded::From(source)) => {
                let took = self.time.span_ns(cpu::ticks().wrapping_sub(begun));
                self.tally().note_latency(Group::LoadNs, took);
                Fetched::Here(source == Source::Backing)
            }
            Ok(Loaded::Coming) => Fetched::Coming,
            Ok(Loaded::Missing) => {
                self.die(format_args!("a stored page is not in the store: {:#x}", page.address()))
            }
            Err(error) => Fetched::Lost(error),
        }
    }

    /// Places everything in the buffer but the stretch of the page asked for, and returns that
    /// stretch.
    fn place_others(&mut self, batch: &Batch) -> Range<usize> {
        let mut asked_stretch = 0..0;
        let mut at = 0;
        while at < AWAY_MAX {
            let stretch = batch.stretch(at);
            at = stretch.end.max(at + 1);
            if batch.asked.is_some_and(|asked| stretch.contains(&asked)) {
                asked_stretch = stretch;
            } else if !stretch.is_empty() {
                self.place_stretch(batch, stretch);
            }
        }
        asked_stretch
    }

    /// Places the page asked for, with its neighbours if possible.
    fn place_asked(&mut self, batch: &Batch, stretch: Range<usize>) -> Outcome {
        let Some(asked) = batch.asked else { return Outcome::Moot };
        let is_alone = stretch.len() == 1;
        let mut progress = self.place_stretch(batch, stretch);
        let is_placed = self.pages.state(batch.page(asked)) == PageState::Resident;
        match progress.stop {
            _ if is_placed => return Outcome::Placed,
            Some(Stop::Changing) => return Outcome::Again,
            _ if is_alone => {}
            // Neighbouring regions are one region to us but may be two mappings of the kernel's,
            // and one COPY takes one mapping only. Or a page below the one asked for was in the
            // way.
            _ => progress = self.place_stretch(batch, asked..asked + 1),
        }
        self.outcome(progress)
    }

    /// Places neighbours from the buffer by one COPY.
    fn place_stretch(&mut self, batch: &Batch, stretch: Range<usize>) -> Progress {
        let target = batch.page(stretch.start).address();
        let source = self.away.buffer[stretch.start].0.as_ptr();
        let length = PageCount(stretch.len()).bytes();
        // SAFETY: the buffer is memory of ours that is never registered, and it has all places of
        // `stretch`.
        let progress = unsafe { self.uffd.copy(target, source, length) };
        for place in stretch.take(progress.done.pages_down().0) {
            self.note_back(batch, place);
        }
        progress
    }

    /// Records that a page that was away has been placed.
    fn note_back(&mut self, batch: &Batch, place: usize) {
        let page = batch.page(place);
        let was = self.pages.state(page);
        let from_disk = batch.from_disk & 1 << place != 0;
        if was == PageState::Limbo {
            self.limbo_pages -= PageCount(1);
            self.note_out_of_limbo(page);
            // The page is in use, so the room of its copy is better used for others.
            if !batch.is_walk {
                self.drop_kept(page..page.plus(1));
            }
        } else if !self.keep_copy(page, place, batch.is_walk, from_disk) {
            if self.served.len() == SERVED_MAX {
                self.drop_served();
            }
            self.served.push(page);
        }
        let from = match was {
            _ if batch.asked != Some(place) => Origin::Readahead,
            PageState::Limbo => Origin::Limbo,
            _ => Origin::Store,
        };
        self.note_arrival(page, from, batch.way);
        match from {
            Origin::Readahead => self.count(Counter::PagesReadAhead, 1),
            Origin::Limbo => self.count(Counter::LimboFaults, 1),
            Origin::Store | Origin::FirstTouch => {}
        }
    }
}
