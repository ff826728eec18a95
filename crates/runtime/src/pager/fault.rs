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

use super::Pager;
use crate::allowance::Allowance;
use crate::memory::Fault;
use crate::pages::{Origin, PageNumber, PageState, Way};
use crate::policy::Window;
use crate::store::key;
use crate::tally::{Counter, Group};
use crate::ties::Ties;

const ONE: Bytes = Bytes(PAGE_BYTES);
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

impl From<Progress> for Outcome {
    fn from(progress: Progress) -> Self {
        match progress.stop {
            _ if progress.done > Bytes(0) => Self::Placed,
            None => Self::Placed,
            Some(Stop::Changing) => Self::Again,
            Some(Stop::Failed(_)) => Self::Starved,
            Some(Stop::Present | Stop::Busy | Stop::Gone | Stop::Unfit) => Self::Moot,
        }
    }
}

impl Pager {
    /// Serves one fault, or leaves it in `reading`.
    pub(crate) fn serve_fault(&mut self, fault: Fault, window: Window) {
        // Before the wake-up, at which the kernel may move the thread. Not during a fork: the
        // forking thread may be the one that waits here, and a child inherits its processors.
        if !self.control.holds.is_held() && !self.control.fork.is_under_way() {
            let give = |allowed: &_, thread| self.ties.link.give_processors(allowed, thread);
            self.placement.attend(fault.thread, self.allowance.time.now_ns(), &give);
            if let Some(thread) = self.placement.take_real_time() {
                warn_of_real_time(&self.ties, thread);
            }
        }
        let (was, distance) = self.memory.pages.state_and_distance(fault.page);
        if !self.try_bring_in(fault.page, window) {
            self.memory.faults.reading.push(Fault { is_coming: true, ..fault });
            return;
        }
        self.policy.tick();
        self.allowance.count(Counter::Faults, 1);
        let served = self.note_served(&fault);
        let stall = served + fault.waited_ticks;
        note_wait(&self.allowance, &fault, (was, distance), served);
        if was != PageState::None {
            let is_alone = was == PageState::Limbo && window.count == 1;
            self.allowance.refaults.in_limbo += u64::from(is_alone);
            self.allowance.refaults.faults += 1;
            self.allowance.refaults.ticks += served;
        }
        self.allowance.tally().note_latency(Group::FaultNs, self.allowance.time.span_ns(stall));
        self.placement.follow(fault.thread);
    }

    /// Puts a page where the program can reach it, and wakes the threads that wait for it. Waits
    /// for the disk if it must.
    pub(crate) fn bring_in(&mut self, page: PageNumber) {
        while !self.try_bring_in(page, Window::ONE) {
            self.store.zswap.wait();
            // Arrivals for other faults are in the way of this page's read.
            for _ in 0..self.memory.faults.reading.len() {
                let fault = self.memory.faults.reading.remove(0);
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
            let outcome = match self.memory.pages.state(page) {
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
                        self.ties.die(format_args!(
                            "the kernel has no memory to bring a page back to {:#x}",
                            page.address()
                        ));
                    }
                    cpu::sleep_ns(STARVED_NS);
                    self.settle();
                }
                Outcome::Moot => {
                    let _ = self.memory.uffd.wake(page.address(), ONE);
                    return true;
                }
            }
        }
    }

    /// Serves a fault on a page that should be there. Either the page is there, as this is the
    /// second of two faults on it, and COPY replaces nothing; or the program had given the page up
    /// and the kernel dropped it: then zeros are right.
    fn place_dropped(&mut self, page: PageNumber) -> Outcome {
        let outcome = Outcome::from(self.memory.copy_zeros(page, PageCount(1)));
        if outcome == Outcome::Placed {
            self.allowance.count(Counter::PagesDropped, 1);
        }
        outcome
    }

    /// Serves a first touch with zeros, for as many pages as the touches so far make likely.
    fn place_zeros(&mut self, page: PageNumber) -> Outcome {
        let window = self.policy.touch_window(&self.memory.pages, page);
        let wanted = if window.step == 1 { window.count } else { 1 };
        let room = self.allowance.room().0;
        let within = self.memory.registered_end(page).0.saturating_sub(page.0);
        let limit = wanted.min(room).min(within).max(1);
        let limit = if limit > 1 && self.memory.may_have_guard(page, limit) { 1 } else { limit };
        let mut count = 1
            + (1..limit)
                .take_while(|ahead| self.memory.pages.state(page.plus(*ahead)) == PageState::None)
                .count();
        let mut progress = self.memory.copy_zeros(page, PageCount(count));
        // Neighbouring regions are one region to us but may be two mappings of the kernel's, and
        // one COPY takes one mapping only. Arenas grow by some pages at a time.
        while progress.stop == Some(Stop::Gone) && count > 1 {
            count /= 2;
            progress = self.memory.copy_zeros(page, PageCount(count));
        }
        let placed = progress.done.pages_down();
        // A page that could be placed is registered. A mapping that has grown since it was found is
        // registered too, without a report. The child of a fork registers what is in regions.
        if placed > PageCount(0) {
            self.memory.regions.insert(page.address()..page.plus(placed.0).address());
        }
        for index in 0..placed.0 {
            self.note_arrival(page.plus(index), Origin::FirstTouch, Way::Alone);
        }
        if placed > PageCount(0) {
            self.policy.touches.advance(page, window.at_most(placed.0));
            // Not counted where the kernel asks to try again while mappings change.
            self.allowance.count(Counter::FirstTouchFaults, 1);
        }
        Outcome::from(progress)
    }

    /// Poisons a page whose bytes are lost: a thread that touches it gets SIGBUS, never wrong
    /// bytes.
    pub(crate) fn poison(&mut self, page: PageNumber, error: LoadError) -> Outcome {
        let progress = self.memory.uffd.poison(page.address(), ONE);
        let outcome = Outcome::from(progress);
        if outcome == Outcome::Placed {
            self.store.zswap.invalidate(key(page));
            self.memory.pages.set_state(page, PageState::None);
            self.allowance.count(Counter::PagesPoisoned, 1);
            self.ties.warn(format_args!(
                "the page at {:#x} is lost and poisoned (SIGBUS on touch): {error}",
                page.address()
            ));
        }
        outcome
    }

    pub(crate) fn note_arrival(&mut self, page: PageNumber, from: Origin, way: Way) {
        self.allowance.budget.add(PageCount(1));
        self.policy.arrive(&mut self.memory.pages, page, from, way);
    }
}

/// Counts the wait for a page that was away, `served` ticks of it without waits for a turn or
/// for room: by where the page was, and by its refault distance.
fn note_wait(allowance: &Allowance, fault: &Fault, (was, distance): (PageState, u16), served: u64) {
    let counter = match was {
        PageState::None | PageState::Resident => return,
        PageState::Limbo => Counter::LimboStallNs,
        PageState::Stored if fault.is_coming => Counter::DiskStallNs,
        PageState::Stored => Counter::PoolStallNs,
    };
    let tally = allowance.tally();
    tally.add(counter, allowance.time.span_ns(served));
    if was == PageState::Stored {
        tally.add(Counter::MajorFaults, 1);
        tally.note_refault(distance, allowance.time.span_ns(served + fault.waited_ticks));
    }
}

fn warn_of_real_time(ties: &Ties, thread: u32) {
    ties.warn(format_args!(
        "thread {thread} of process {} has a real-time policy and waits for cold pages, behind \
         busy threads of its priority; lock its memory (mlockall), or raise the budget",
        ties.process()
    ));
}
