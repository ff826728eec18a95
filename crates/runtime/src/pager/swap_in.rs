//! Pages that are away: bringing one back from limbo, the pool or the disk (swap-in), and with it
//! the pages that its sequential stream, its *walk*, will want next.
//!
//! A fault costs a switch to the service and back (`sys/costs.rs`), and one COPY of many pages is
//! cheaper than many COPYs of one page. So walks are served a window at a time (readahead). The
//! pages are fetched into a buffer in the order of their addresses, and from there one COPY places
//! each stretch of neighbours.
//!
//! Invariants:
//! 1. Whatever happens to another page of the window, the page asked for is served as if it were
//!    alone, and the other page stays where it is.
//! 2. A page that is read back from disk without a fault on it stays in `readahead` until it has
//!    been taken. A page that nothing took would keep its buffer in zswap for ever.

use core::ops::Range;

use coldpress_sys::uffd::{Progress, Stop};
use coldpress_sys::{Page, PageCount};
use coldpress_zswap::LoadError;

use super::Pager;
use super::fault::Outcome;
use crate::pages::{Origin, PageNumber, PageState, Way};
use crate::policy::{AWAY_MAX, Window};
use crate::store::{Loading, READAHEAD_MAX};
use crate::tally::Counter;

/// Pages in limbo behind the one asked for that come back with it outside any walk. Pages used
/// together are taken together, and each costs a tenth of a fault. Of 0, 3, 7 and 15, this is the
/// best for sort and node in two thirds of their memory: a tenth to a fifth fewer faults than with
/// 0. Pages touched at random take as long as with 0.
const TOGETHER: usize = 3;

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

impl Pager {
    /// Returns the window to bring in for a fault on `page`.
    pub(crate) fn window_of(&self, page: PageNumber) -> Window {
        match self.memory.pages.state(page) {
            PageState::Limbo | PageState::Stored if !self.store.readahead.contains(&page) => {
                self.policy.window(&self.memory.pages, page)
            }
            _ => Window::ONE,
        }
    }

    /// Brings back `page`, which is away, and as much of its window as there is room for.
    pub(crate) fn place_away(&mut self, page: PageNumber, window: Window) -> Outcome {
        let room = self.allowance.room();
        let window = window.at_most(room.0.min(AWAY_MAX));
        let far = window.page(page, window.count - 1);
        let (window, far) = far.map_or((Window::ONE, page), |far| (window, far));
        let place = |index| if far < page { window.count - 1 - index } else { index };
        let asked = place(0);
        let was_expected = self.store.readahead.contains(&page);
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
            self.policy.advance(page, window);
        }
        outcome
    }

    /// Counts the pages in limbo behind `page`, itself in limbo, that come back with it.
    fn count_together(&self, page: PageNumber) -> usize {
        let in_limbo =
            |index: &usize| self.memory.pages.state(page.plus(*index)) == PageState::Limbo;
        (0..=TOGETHER).take_while(in_limbo).count().saturating_sub(1)
    }

    /// Fetches a page that no fault asked for, if it is away and intact.
    fn fetch_ahead(&mut self, batch: &mut Batch, place: usize) {
        let page = batch.page(place);
        if self.store.readahead.len() >= READAHEAD_MAX {
            let pages = &self.memory.pages;
            self.store.readahead.retain(|page| pages.state(*page) == PageState::Stored);
        }
        // Any page may turn out to be on disk.
        if self.store.readahead.len() >= READAHEAD_MAX || self.store.readahead.contains(&page) {
            return;
        }
        match self.fetch(page, place) {
            Fetched::Here(from_disk) => batch.put(place, from_disk),
            Fetched::Coming => self.store.readahead.push(page),
            // The loss of a page is reported when a thread touches it.
            Fetched::NotAway | Fetched::Lost(_) => {}
        }
    }

    /// Takes in pages that were read ahead and have come from the disk, while there is room.
    pub(crate) fn take_read_ahead(&mut self) {
        for _ in 0..self.store.readahead.len() {
            let page = self.store.readahead.remove(0);
            if self.memory.pages.state(page) != PageState::Stored {
                continue;
            }
            // A fault that has asked for the page meanwhile takes it.
            if self.memory.faults.pending.iter().any(|fault| fault.page == page) {
                self.store.readahead.push(page);
                continue;
            }
            match self.fetch(page, 0) {
                Fetched::Here(from_disk)
                    if self.allowance.budget.used() < self.allowance.budget.hard() =>
                {
                    let mut batch = Batch::of(page);
                    batch.put(0, from_disk);
                    self.place_stretch(&batch, 0..1);
                }
                Fetched::Coming => self.store.readahead.push(page),
                Fetched::Here(_) | Fetched::NotAway | Fetched::Lost(_) => {}
            }
        }
    }

    /// Copies the bytes of a page that is away into a place of the buffer.
    fn fetch(&mut self, page: PageNumber, place: usize) -> Fetched {
        match self.memory.pages.state(page) {
            PageState::Limbo => {
                let source = self.store.limbo_address(&self.memory.pages, page) as *const Page;
                // SAFETY: the page was moved there and nobody writes to limbo.
                self.store.buffer[place].0.copy_from_slice(unsafe { &*source });
                Fetched::Here(false)
            }
            PageState::Stored => self.load(page, place),
            PageState::None | PageState::Resident => Fetched::NotAway,
        }
    }

    fn load(&mut self, page: PageNumber, place: usize) -> Fetched {
        match self.store.load(page, place, &self.allowance) {
            Ok(Loading::Here) => Fetched::Here(false),
            Ok(Loading::FromDisk) => Fetched::Here(true),
            Ok(Loading::Coming) => Fetched::Coming,
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
        let is_placed = self.memory.pages.state(batch.page(asked)) == PageState::Resident;
        match progress.stop {
            _ if is_placed => return Outcome::Placed,
            Some(Stop::Changing) => return Outcome::Again,
            _ if is_alone => {}
            // Neighbouring regions are one region to us but may be two mappings of the kernel's,
            // and one COPY takes one mapping only. Or a page below the one asked for was in the
            // way.
            _ => progress = self.place_stretch(batch, asked..asked + 1),
        }
        progress.into()
    }

    /// Places neighbours from the buffer by one COPY.
    fn place_stretch(&mut self, batch: &Batch, stretch: Range<usize>) -> Progress {
        let target = batch.page(stretch.start).address();
        let source = self.store.buffer[stretch.start].0.as_ptr();
        let length = PageCount(stretch.len()).bytes();
        // SAFETY: the buffer is memory of ours that is never registered, and it has all places of
        // `stretch`.
        let progress = unsafe { self.memory.uffd.copy(target, source, length) };
        for place in stretch.take(progress.done.pages_down().0) {
            self.note_back(batch, place);
        }
        progress
    }

    /// Records that a page in limbo was touched, or brought back for another reason. If the page is
    /// a sample, its run is in use.
    fn note_out_of_limbo(&mut self, page: PageNumber) {
        let slot = self.memory.pages.run(page.run()).and_then(|run| run.slot);
        if slot.is_some_and(|slot| self.store.limbo.ring().take_sample(slot)) {
            self.memory.pages.run_mut(page.run()).note_sample_touched();
            self.allowance.count(Counter::IdleSamplesTouched, 1);
        }
    }

    /// Records that a page that was away has been placed.
    fn note_back(&mut self, batch: &Batch, place: usize) {
        let page = batch.page(place);
        let was = self.memory.pages.state(page);
        let from_disk = batch.from_disk & 1 << place != 0;
        if was == PageState::Limbo {
            self.store.leave_limbo(PageCount(1));
            self.note_out_of_limbo(page);
            // The page is in use, so the room of its copy is better used for others.
            if !batch.is_walk {
                self.store.drop_kept(page..page.plus(1));
            }
        } else if !self.store.keep_copy(page, place, batch.is_walk, from_disk) {
            self.store.note_served(page);
        }
        let from = match was {
            _ if batch.asked != Some(place) => Origin::Readahead,
            PageState::Limbo => Origin::Limbo,
            _ => Origin::Store,
        };
        self.note_arrival(page, from, batch.way);
        match from {
            Origin::Readahead => self.allowance.count(Counter::PagesReadAhead, 1),
            Origin::Limbo => self.allowance.count(Counter::LimboFaults, 1),
            Origin::Store | Origin::FirstTouch => {}
        }
    }
}
