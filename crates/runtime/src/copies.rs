//! Copies: while relatives share much after a fork, a write to what they share waits for room.
//!
//! The kernel copies a shared page when somebody writes to it, without a word and by gigabytes a
//! second: parent and child that share all of the budget would hold twice as much before anybody
//! looks. So where there is not room for all of it, what is shared is write-protected at the fork
//! (UFFDIO_WRITEPROTECT), in parent and child, and each copy is a fault that waits for room as a
//! page does that comes in. A fork for which there is room costs what it did.
//!
//! To take a shared page frees nothing, so the room for a copy often has to come from a relative,
//! which has become the only one to have the page: it is waited for, for a moment. Where none comes
//! the budget cannot be kept, and everything is copied as it would be without us.
//!
//! Protection is lifted from what turns out not to be shared, by runs, and from everything when
//! relatives share no more.

use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::uffd::Stop;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, cpu};

use crate::manager::{Fault, Manager};
use crate::pages::{PageNumber, RUN_PAGES};
use crate::tally::Counter;
use crate::walks::{Pace, Walks};

/// Walks of writes get wider windows, as what is copied for nothing is bounded by what was written.
const WRITES: Pace =
    Pace { faults: 2, step_max: 1, leap_faults: 2, leap_max: 1, growth: 4, widest: RUN_PAGES };
/// How long a copy waits for a relative to make any room, and how often it looks.
const WAIT_NS: u64 = 50_000_000;
const LOOK_NS: u64 = 200_000;

/// What is known of protected pages.
pub(crate) struct Copies {
    /// Whether there are any.
    is_on: bool,
    writes: Walks,
    /// Pages that this process has copied.
    pub(crate) copied: u64,
}

impl Default for Copies {
    fn default() -> Self {
        Self { is_on: false, writes: Walks::new(WRITES), copied: 0 }
    }
}

impl Copies {
    /// Whether pages are protected.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }
}

impl Manager {
    /// Protects what is shared if not all of it could be copied now: before a fork, of which pages
    /// at `touched` are written to while nobody serves, and in a child that has taken over.
    pub(crate) fn protect_shared(&mut self, touched: &[usize]) {
        let room = self.budget.hard().saturating_sub(self.budget.used());
        if self.budget.resident() <= room || !self.budget.is_worth_taking() {
            return;
        }
        self.copies.is_on = true;
        for region in self.regions.iter().collect::<Vec<_>>() {
            self.protect(region, true);
        }
        for address in touched {
            self.protect(page_of(*address), false);
        }
    }

    /// Protects a range, or lifts that, and wakes who waits there. Of what has gone meanwhile there
    /// is nothing to protect.
    fn protect(&mut self, range: Range<usize>, is_protected: bool) {
        let length = Bytes(range.end - range.start);
        loop {
            match self.uffd.protect(range.start, length, is_protected) {
                Ok(()) => return,
                Err(Stop::Changing) => self.settle(),
                Err(_) => {
                    // Who waits there tries again, or finds that it has gone.
                    let _ = self.uffd.wake(range.start, length);
                    return;
                }
            }
        }
    }

    /// Lifts the protection of everything, if relatives share no more.
    pub(crate) fn lift_protection(&mut self) {
        if self.copies.is_on && !self.budget.shares_much() {
            self.protect_nothing();
        }
    }

    fn protect_nothing(&mut self) {
        self.copies.is_on = false;
        for region in self.regions.iter().collect::<Vec<_>>() {
            self.protect(region, false);
        }
    }

    /// A page may be written to by us.
    pub(crate) fn allow_copy(&mut self, page: PageNumber) {
        self.protect(page_of(page.address()), false);
    }

    /// Lets a thread go on that writes to a protected page, when there is room for its copy, and
    /// those that its walk is likely to write next.
    pub(crate) fn serve_copy(&mut self, fault: Fault) {
        let window = self.copies.writes.window(fault.page, |_| false);
        let ahead = if window.step == 1 { window.count } else { 1 };
        // Where it cannot be told, all are shared.
        let shared = self.files.pagemap.shared(fault.page.address()).unwrap_or(u64::MAX);
        let is_shared = |page: usize| shared >> page & 1 == 1;
        // Of pages that are not shared none is copied.
        let alone = (0..RUN_PAGES).take_while(|page| !is_shared(*page)).count();
        let region = self.regions.holding(fault.page.address());
        let within = region.map_or(1, |region| PageNumber::of(region.end).0 - fault.page.0);
        let count = ahead.max(alone).min(within);
        let copied = PageCount((0..count).filter(|page| is_shared(*page)).count());
        self.make_room(copied);
        if !self.relatives_make_room(copied) {
            self.protect_nothing();
        }
        let start = fault.page.address();
        self.protect(start..start + count * PAGE_BYTES, false);
        self.budget.add(copied);
        self.copies.copied += copied.0 as u64;
        self.ledger.note_copied(copied);
        self.copies.writes.advance(fault.page, window.at_most(ahead));
        self.count(Counter::CopyFaults, 1);
        let served = cpu::ticks().wrapping_sub(fault.read_at_ticks);
        self.turns.served_ticks += served;
        self.placement.follow(fault.thread);
    }

    /// Waits until relatives have made room for `copied` pages; false when they make none any more.
    fn relatives_make_room(&mut self, copied: PageCount) -> bool {
        let mut least = self.budget.used_by_all();
        let mut until = self.time.now_ns() + WAIT_NS;
        while copied > PageCount(0) && self.budget.used() + copied > self.budget.hard() {
            // A fork that needs everything in place makes room for nobody.
            if self.time.now_ns() >= until || self.control.is_held() {
                return false;
            }
            cpu::sleep_ns(LOOK_NS);
            self.read_gauges();
            if self.budget.used_by_all() < least {
                least = self.budget.used_by_all();
                until = self.time.now_ns() + WAIT_NS;
            }
        }
        true
    }
}

/// The page of an address.
fn page_of(address: usize) -> Range<usize> {
    let start = PageNumber::of(address).address();
    start..start + PAGE_BYTES
}
