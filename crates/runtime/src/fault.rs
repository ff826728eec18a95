//! Faults: bringing in the page a thread waits for (swap-in).
//!
//! ```text
//! None      zeros, several pages at a time when touches are sequential
//! Limbo     copied from limbo: the second chance
//! Stored    decompressed from the pool, or read back from disk first; others are served meanwhile
//! Resident  zeros, but only if the kernel has dropped the page; if it is there, just a wake-up
//! ```

use coldpress_sys::page::PAGE_BYTES;
use coldpress_sys::uffd::{Progress, Stop};
use coldpress_sys::{Bytes, PageCount, cpu};
use coldpress_zswap::LoadError;

use crate::manager::{Fault, Manager, ZEROS};
use crate::pages::{Origin, PageNumber, PageState, RUN_PAGES, Way};
use crate::tally::{Counter, Group};
use crate::walks::{Pace, Window};

const ONE: Bytes = Bytes(PAGE_BYTES);
/// Pace of walks of first touches. Runs of 16 and 64 pages cost 0.72 and 0.57 of the kernel's own
/// fault per page, so placing a page needlessly is cheap, and the pages touched before bound how
/// many are placed so. Only forward walks get more than one page.
pub(crate) const TOUCHES: Pace =
    Pace { faults: 2, step_max: 1, leap_faults: 2, leap_max: 1, growth: 4, widest: ZEROS.0 };
/// How often, and how many nanoseconds apart, the kernel is asked again when it has no memory for a
/// page: 10 s in all.
const STARVED_MAX: u32 = 1_000;
const STARVED_NS: u64 = 10_000_000;

/// How an attempt to bring a page in ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The page is there, and the thread that waited has been woken.
    Placed,
    /// The address space was changing: look again.
    Again,
    /// The page is being read back from disk.
    Coming,
    /// The kernel had no memory for the page: try again.
    Starved,
    /// No thread can be served there: the range has gone, or the page was there already.
    Moot,
}

impl Manager {
    /// Serves all faults that were read.
    pub(crate) fn serve_pending(&mut self) {
        self.wait_for_turn();
        while let Some(fault) = self.pending.pop_front() {
            self.turns.serving = Some(fault);
            // Before the wake-up: if this thread goes on working after it has woken the other, the
            // kernel moves the other to an idle processor. Every fault from there costs a wake-up
            // across processors.
            self.reclaim_along();
            if fault.is_protected {
                self.serve_copy(fault);
                self.turns.serving = None;
                continue;
            }
            let window = self.window_of(fault.page);
            self.make_room(PageCount(window.count));
            if self.shall_wait_to_grow(fault.page) {
                self.let_wait(fault);
            } else {
                self.serve_fault(fault, window);
            }
            self.turns.serving = None;
        }
    }

    /// Returns whether threads wait for pages that they have asked for.
    pub(crate) fn somebody_waits(&self) -> bool {
        let waits = self.turns.is_waiting() || self.copies.is_waiting();
        waits || !self.pending.is_empty() || !self.reading.is_empty()
    }

    /// Takes in what the disk has finished. Faults that may have waited for that are served again.
    pub(crate) fn take_from_disk(&mut self) {
        self.zswap.reap();
        if self.zswap.take_arrivals() {
            while let Some(fault) = self.reading.pop() {
                self.pending.push_front(fault);
            }
            self.make_room_ahead();
            self.take_read_ahead();
        }
    }

    /// Serves one fault, or leaves it in `reading`.
    fn serve_fault(&mut self, fault: Fault, window: Window) {
        // Before the wake-up, at which the kernel may move the thread. Not during a fork: the
        // forking thread may be the one that waits here, and a child inherits its processors.
        if !self.control.is_held() && !self.control.is_forking() {
            let give = |allowed: &_, thread| self.link.give_processors(allowed, thread);
            self.placement.attend(fault.thread, self.time.now_ns(), &give);
            if let Some(thread) = self.placement.take_real_time() {
                self.tell_of_real_time(thread);
            }
        }
        let was = self.pages.state(fault.page);
        if !self.try_bring_in(fault.page, window) {
            self.reading.push(Fault { is_coming: true, ..fault });
            return;
        }
        self.clock = self.clock.wrapping_add(1);
        self.count(Counter::Faults, 1);
        let served = cpu::ticks().wrapping_sub(fault.read_at_ticks);
        let stall = served + fault.waited_ticks;
        self.turns.served_ticks += served;
        if was == PageState::Stored {
            self.count(Counter::MajorFaults, 1);
        }
        if was != PageState::None {
            let is_alone = was == PageState::Limbo && window.count == 1;
            self.refaults.in_limbo += u64::from(is_alone);
            self.refaults.faults += 1;
            self.refaults.ticks += served;
        }
        self.tally().note_latency(Group::FaultNs, self.time.span_ns(stall));
        self.placement.follow(fault.thread);
    }

    fn tell_of_real_time(&self, thread: u32) {
        self.link.warn(format_args!(
            "thread {thread} of process {} has a real-time policy and waits for cold pages, behind \
             busy threads of its priority; lock its memory (mlockall), or raise the budget",
            self.link.process()
        ));
    }

    /// Puts a page where the program can reach it, and wakes the threads that wait for it. Waits
    /// for the disk if it must.
    pub(crate) fn bring_in(&mut self, page: PageNumber) {
        while !self.try_bring_in(page, Window::ONE) {
            self.zswap.wait();
            // Arrivals for other faults are in the way of this page's read.
            for _ in 0..self.reading.len() {
                let fault = self.reading.remove(0);
                self.serve_fault(fault, Window::ONE);
            }
            self.take_read_ahead();
        }
    }

    /// Returns whether the page is now where the program can reach it, and the threads that wait
    /// for it have been woken; `false` while it is being read back. If the page is away, as much of
    /// the window as possible comes with it.
    fn try_bring_in(&mut self, page: PageNumber, window: Window) -> bool {
        let mut starved = 0_u32;
        loop {
            let outcome = match self.pages.state(page) {
                PageState::None => self.place_zeros(page),
                PageState::Resident => self.place_dropped(page),
                PageState::Limbo | PageState::Stored => self.place_away(page, window),
            };
            match outcome {
                Outcome::Placed => return true,
                Outcome::Coming => return false,
                Outcome::Again => self.settle(),
                Outcome::Starved => {
                    starved += 1;
                    if starved == STARVED_MAX {
                        self.die(format_args!(
                            "the kernel has no memory to bring a page back to {:#x}",
                            page.address()
                        ));
                    }
                    cpu::sleep_ns(STARVED_NS);
                    self.settle();
                }
                Outcome::Moot => {
                    let _ = self.uffd.wake(page.address(), ONE);
                    return true;
                }
            }
        }
    }

    pub(crate) fn outcome(&self, progress: Progress) -> Outcome {
        match progress.stop {
            _ if progress.done > Bytes(0) => Outcome::Placed,
            None => Outcome::Placed,
            Some(Stop::Changing) => Outcome::Again,
            Some(Stop::Failed(_)) => Outcome::Starved,
            Some(Stop::Present | Stop::Busy | Stop::Gone | Stop::Unfit) => Outcome::Moot,
        }
    }

    fn copy_zeros(&self, page: PageNumber, count: PageCount) -> Progress {
        // SAFETY: the zeros are a mapping of ours that is never registered and at least `ZEROS`
        // long.
        unsafe { self.uffd.copy(page.address(), self.zeros.base().as_ptr(), count.bytes()) }
    }

    /// Serves a fault on a page that should be there. Either the page is there, as this is the
    /// second of two faults on it, and COPY replaces nothing; or the program had given the page up
    /// and the kernel dropped it: then zeros are right.
    fn place_dropped(&mut self, page: PageNumber) -> Outcome {
        let outcome = self.outcome(self.copy_zeros(page, PageCount(1)));
        if outcome == Outcome::Placed {
            self.count(Counter::PagesDropped, 1);
        }
        outcome
    }

    /// Serves a first touch with zeros, for as many pages as the touches so far make likely.
    fn place_zeros(&mut self, page: PageNumber) -> Outcome {
        let is_there = |page| self.pages.state(page) == PageState::Resident;
        let window = self.touches.window(page, is_there);
        let wanted = if window.step == 1 { window.count } else { 1 };
        let room = self.budget.hard().saturating_sub(self.budget.used()).0;
        // The page is registered. Where a mapping has grown since, it is not known how far it is
        // registered.
        let region_end = self
            .regions
            .holding(page.address())
            .map_or_else(|| page.run().first().plus(RUN_PAGES), |range| PageNumber::of(range.end));
        let within = region_end.0.saturating_sub(page.0);
        let limit = wanted.min(room).min(within).max(1);
        let limit = if limit > 1 && self.may_have_guard(page, limit) { 1 } else { limit };
        let mut count = 1
            + (1..limit)
                .take_while(|ahead| self.pages.state(page.plus(*ahead)) == PageState::None)
                .count();
        let mut progress = self.copy_zeros(page, PageCount(count));
        // Neighbouring regions are one region to us but may be two mappings of the kernel's, and
        // one COPY takes one mapping only. Arenas grow by some pages at a time.
        while progress.stop == Some(Stop::Gone) && count > 1 {
            count /= 2;
            progress = self.copy_zeros(page, PageCount(count));
        }
        let placed = progress.done.pages_down();
        // A page that could be placed is registered. A mapping that has grown since it was found is
        // registered too, without a report. The child of a fork registers what is in regions.
        if placed > PageCount(0) {
            self.regions.insert(page.address()..page.plus(placed.0).address());
        }
        for index in 0..placed.0 {
            self.note_arrival(page.plus(index), Origin::FirstTouch, Way::Alone);
        }
        if placed > PageCount(0) {
            self.touches.advance(page, window.at_most(placed.0));
            // Not counted where the kernel asks to try again while mappings change.
            self.count(Counter::FirstTouchFaults, 1);
        }
        self.outcome(progress)
    }

    /// Returns whether there may be a guard page among the `count` pages from `page` on. A COPY
    /// would take its place (Linux 6.18).
    fn may_have_guard(&self, page: PageNumber, count: usize) -> bool {
        let (start, end) = (page.address(), page.plus(count).address());
        self.control.has_guards() && self.files.pagemap.has_guard(start, end).unwrap_or(true)
    }

    /// Poisons a page whose bytes are lost: a thread that touches it gets SIGBUS, never wrong
    /// bytes.
    pub(crate) fn poison(&mut self, page: PageNumber, error: LoadError) -> Outcome {
        let progress = self.uffd.poison(page.address(), ONE);
        let outcome = self.outcome(progress);
        if outcome == Outcome::Placed {
            self.zswap.invalidate(Self::key(page));
            self.pages.set_state(page, PageState::None);
            self.count(Counter::PagesPoisoned, 1);
            self.link.warn(format_args!(
                "the page at {:#x} is lost and poisoned (SIGBUS on touch): {error}",
                page.address()
            ));
        }
        outcome
    }

    pub(crate) fn note_arrival(&mut self, page: PageNumber, from: Origin, way: Way) {
        self.budget.add(PageCount(1));
        self.arrivals += 1;
        self.queue.arrive(&mut self.pages, page, from, way, self.clock);
    }
}
