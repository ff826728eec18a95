//! Copies: while relatives share much after a fork, a write to what they share waits for room.
//!
//! The kernel copies a shared page when somebody writes to it, without a word and by gigabytes a
//! second: parent and child that share all of the budget would hold twice as much before anybody
//! looks. So where there is not room for all of it, what is shared is write-protected
//! (UFFDIO_WRITEPROTECT) right behind the fork, or before it where there is much, in parent and
//! child, and each copy is a fault that waits for room as a page does that comes in. A fork for
//! which there is room costs what it did.
//!
//! To take a shared page frees nothing, so the room for a copy often has to come from a relative,
//! which has become the only one to have the page: copies wait as long as any comes, while other
//! faults are served, but for first touches, which grow likewise. Where none comes the budget
//! cannot be kept, and everything is copied as it would be without us.
//!
//! Protection is lifted from what turns out not to be shared, by runs, and from everything when
//! relatives share no more.

use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::uffd::Stop;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, cpu};

use crate::manager::{Fault, Manager};
use crate::pages::{PageNumber, PageState, RUN_PAGES};
use crate::tally::Counter;
use crate::walks::{Pace, Walks};

/// Walks of writes get wider windows, as what is copied for nothing is bounded by what was written.
const WRITES: Pace =
    Pace { faults: 2, step_max: 1, leap_faults: 2, leap_max: 1, growth: 4, widest: RUN_PAGES };
/// How long copies wait for a relative to make any room.
const WAIT_NS: u64 = 50_000_000;
/// How long at most while none comes yet, as relatives each store what they share: of a page that
/// three have, the memory is free when the third has stored it.
const WAIT_NS_MAX: u64 = 1_000_000_000;

/// With more in memory it is protected before a fork, as the time that it takes grows with that. Of
/// a program in 200 MiB the fork takes 4.0 to 4.7 ms in place of 6.4 to 6.5, and the family holds
/// no more; larger ones were not measured.
const BEHIND_MAX: PageCount = Bytes::mib(256).pages_down();

/// What is known of protected pages.
pub(crate) struct Copies {
    /// Whether there are any.
    is_on: bool,
    writes: Walks,
    /// Faults that wait for room, and for how long they have, together.
    pub(crate) waiting: Vec<Fault>,
    pub(crate) waited_ticks: u64,
    /// Until when, and the least that all processes have held meanwhile.
    until_ns: u64,
    least: PageCount,
    /// When the first began to wait, or room came last, and what others had stored at the last
    /// look.
    since_ns: u64,
    stored: u64,
    /// Pages that this process has copied, and its ancestors had when they forked.
    pub(crate) copied: u64,
}

impl Default for Copies {
    fn default() -> Self {
        Self {
            is_on: false,
            writes: Walks::new(WRITES),
            waiting: Vec::new(),
            waited_ticks: 0,
            until_ns: 0,
            least: PageCount(0),
            since_ns: 0,
            stored: 0,
            copied: 0,
        }
    }
}

impl Copies {
    /// In a child, where nothing is protected yet and nobody waits; whether its parent protects.
    pub(crate) fn begin_in_child(&mut self) -> bool {
        let copied = self.copied;
        core::mem::replace(self, Self { copied, ..Self::default() }).is_on
    }

    /// Whether threads wait for room.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Manager {
    /// Whether what is shared is to be protected, as not all of it could be copied now; then copies
    /// wait for room from now on. For a call before a fork, which writes to pages at `touched`
    /// while nobody serves, so that these are protected no more, and in a child that has taken
    /// over.
    pub(crate) fn shall_protect(&mut self, touched: &[usize]) -> bool {
        let room = self.budget.hard().saturating_sub(self.budget.used());
        let is_due = self.budget.resident() > room && self.budget.is_worth_taking();
        self.copies.is_on |= is_due;
        if self.copies.is_on {
            // They may be protected since an earlier fork.
            touched.iter().for_each(|address| self.protect(page_of(*address), false));
        }
        is_due
    }

    /// Whether that is done behind a fork: the forker need not wait for it, and the kernel has less
    /// to copy. What is written meanwhile is a part of the reserve as long as little is protected.
    pub(crate) fn protects_behind(&self) -> bool {
        self.budget.resident() <= BEHIND_MAX
    }

    /// Protects what is shared, but for pages at `touched`, which a forker or the kernel may be
    /// about to write to while nobody serves.
    pub(crate) fn protect_shared(&mut self, touched: &[usize]) {
        for region in self.regions.iter().collect::<Vec<_>>() {
            self.protect(region, true);
        }
        touched.iter().for_each(|address| self.protect(page_of(*address), false));
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

    /// Lifts it whatever they share, and has those that wait for room served.
    pub(crate) fn protect_nothing(&mut self) {
        self.copies.is_on = false;
        self.serve_waiting();
        for region in self.regions.iter().collect::<Vec<_>>() {
            self.protect(region, false);
        }
    }

    /// A page may be written to by us.
    pub(crate) fn allow_copy(&mut self, page: PageNumber) {
        self.protect(page_of(page.address()), false);
    }

    /// Lets a thread go on that writes to a protected page, if there is room for its copy and for
    /// those that its walk is likely to write next; else it waits.
    pub(crate) fn serve_copy(&mut self, fault: Fault) {
        let window = self.copies.writes.window(fault.page, |_| false);
        let ahead = if window.step == 1 { window.count } else { 1 };
        // Where it cannot be told, all are shared.
        let [shared] = self.files.pagemap.shared(fault.page.address()).unwrap_or([u64::MAX]);
        let is_shared = |page: usize| shared >> page & 1 == 1;
        // Of pages that are not shared none is copied.
        let alone = (0..RUN_PAGES).take_while(|page| !is_shared(*page)).count();
        let region = self.regions.holding(fault.page.address());
        let within = region.map_or(1, |region| PageNumber::of(region.end).0 - fault.page.0);
        let copied = |count| PageCount((0..count).filter(|page| is_shared(*page)).count());
        let mut count = ahead.max(alone).min(within);
        self.make_room(copied(count));
        if self.lacks_room_for(copied(count)) {
            count = 1;
        }
        let copied = copied(count);
        if self.lacks_room_for(copied) {
            return self.let_wait(fault);
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

    /// Whether a fault waits as copies do: what is touched first grows likewise.
    pub(crate) fn shall_wait_to_grow(&self, page: PageNumber) -> bool {
        self.pages.state(page) == PageState::None && self.lacks_room_for(PageCount(1))
    }

    fn lacks_room_for(&self, pages: PageCount) -> bool {
        let is_room = pages == PageCount(0) || self.budget.used() + pages <= self.budget.hard();
        // A fork makes room for nobody, and a forker may wait for a page of its stack.
        let is_fork = self.control.is_held() || self.control.is_forking();
        self.copies.is_on && !is_room && !is_fork
    }

    /// Has a fault wait for relatives to make room.
    pub(crate) fn let_wait(&mut self, fault: Fault) {
        if !self.copies.is_waiting() {
            let now = self.time.now_ns();
            (self.copies.since_ns, self.copies.until_ns) = (now, now + WAIT_NS);
            self.copies.least = self.budget.used_by_all();
            self.copies.stored = self.ledger.stored_by_others(self.seat);
        }
        self.copies.waiting.push(fault);
    }

    /// Has those that wait served again.
    fn serve_waiting(&mut self) {
        let ticks = cpu::ticks();
        for mut fault in self.copies.waiting.drain(..) {
            self.copies.waited_ticks += fault.wait_until(ticks);
            self.pending.push_back(fault);
        }
    }

    /// Has the writes that wait tried again when there is room for one, and gives up when nobody
    /// makes any. For a call whenever the gauges were read.
    pub(crate) fn look_at_copies(&mut self) {
        if !self.copies.is_waiting() {
            return;
        }
        let (now, held) = (self.time.now_ns(), self.budget.used_by_all());
        let stored = self.ledger.stored_by_others(self.seat);
        if held < self.copies.least {
            (self.copies.least, self.copies.since_ns) = (held, now);
            self.copies.until_ns = now + WAIT_NS;
        } else if stored > self.copies.stored && now < self.copies.since_ns + WAIT_NS_MAX {
            self.copies.until_ns = now + WAIT_NS;
        }
        self.copies.stored = stored;
        if !self.lacks_room_for(PageCount(1)) {
            self.serve_waiting();
        } else if now >= self.copies.until_ns {
            self.protect_nothing();
        }
    }
}

/// The page of an address.
fn page_of(address: usize) -> Range<usize> {
    let start = PageNumber::of(address).address();
    start..start + PAGE_BYTES
}
