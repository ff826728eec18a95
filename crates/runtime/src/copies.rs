//! Copies: while relatives share much memory after a fork, a write to a shared page waits for room.
//!
//! When a thread writes to a shared page, the kernel copies the page (copy-on-write) without an
//! event, and by gigabytes a second. A parent and a child that share all of the budget would hold
//! twice as much before any service looks. So where there is not room for all of these copies, the
//! shared pages are write-protected (UFFDIO_WRITEPROTECT) right after the fork, or before it where
//! there are many, in parent and child. Then each copy is a page fault, and waits for room like a
//! page that comes in. A fork for which there is room costs no more than before.
//!
//! Taking a shared page out frees nothing, so the room for a copy often has to come from the
//! relative that has become the page's only owner. Copies wait as long as any room comes. Meanwhile
//! other faults are served, except first touches, which let a process grow in the same way. Where
//! no room comes, the budget cannot be kept, and everything is copied as it would be without us.
//!
//! Protection is lifted by runs from pages that turn out not to be shared, and from everything when
//! relatives share no more.

use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::uffd::Stop;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, cpu};

use crate::manager::{Fault, Manager};
use crate::pages::{PageNumber, PageState, RUN_PAGES};
use crate::tally::Counter;
use crate::walks::{Pace, Walks};

/// The pace of walks of writes, whose windows are wider: what is copied for nothing is bounded by
/// what was written.
const WRITES: Pace =
    Pace { faults: 2, step_max: 1, leap_faults: 2, leap_max: 1, growth: 4, widest: RUN_PAGES };
/// The time that copies wait for a relative to make any room.
const WAIT_NS: u64 = 50_000_000;
/// The longest wait while no room comes yet but relatives store what they share: the memory of a
/// page that three processes have is free only when the third has stored it.
const WAIT_NS_MAX: u64 = 1_000_000_000;

/// The most memory with which protection comes after a fork. With more it comes before, as the time
/// that protecting takes grows with memory. In a program of 200 MiB the fork takes 4.0 to 4.7 ms
/// this way, instead of 6.4 to 6.5, and the family holds no more; larger programs were not
/// measured.
const BEHIND_MAX: PageCount = Bytes::mib(256).pages_down();

/// The state of protected pages, and of the writes that wait.
pub(crate) struct Copies {
    /// Whether any pages are protected.
    is_on: bool,
    writes: Walks,
    /// The faults that wait for room, and how long such faults have waited, together.
    pub(crate) waiting: Vec<Fault>,
    pub(crate) waited_ticks: u64,
    /// The time until which they wait, and the least that all processes have held meanwhile.
    until_ns: u64,
    least: PageCount,
    /// The time when the first fault began to wait, or when room came last, and what other
    /// processes had stored at the last look.
    since_ns: u64,
    stored: u64,
    /// The pages that this process has copied, and that its ancestors had copied when they forked.
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
    /// Returns whether the parent protects pages, and begins afresh: in a child nothing is
    /// protected yet and no thread waits.
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
    /// Returns whether shared pages are to be protected, as not all of them could be copied now;
    /// from then on copies wait for room. To be called before a fork, and in a child that has taken
    /// over. A fork writes to the pages at `touched` while no service serves, so these are
    /// protected no more.
    pub(crate) fn shall_protect(&mut self, touched: &[usize]) -> bool {
        let room = self.budget.hard().saturating_sub(self.budget.used());
        let is_due = self.budget.resident() > room && self.budget.is_worth_taking();
        self.copies.is_on |= is_due;
        if self.copies.is_on {
            // These pages may be protected since an earlier fork.
            touched.iter().for_each(|address| self.protect(page_of(*address), false));
        }
        is_due
    }

    /// Whether pages are protected after a fork: then the forker need not wait for that, and the
    /// kernel has less to copy. What is written meanwhile is a part of the reserve as long as
    /// little is protected.
    pub(crate) fn protects_behind(&self) -> bool {
        self.budget.resident() <= BEHIND_MAX
    }

    /// Protects shared pages, but not those at `touched`, to which a forker or the kernel may be
    /// about to write while no service serves.
    pub(crate) fn protect_shared(&mut self, touched: &[usize]) {
        for region in self.regions.iter().collect::<Vec<_>>() {
            self.protect(region, true);
        }
        touched.iter().for_each(|address| self.protect(page_of(*address), false));
    }

    /// Protects a range or lifts its protection, and wakes the threads that wait there. A part that
    /// is gone meanwhile needs no protection.
    fn protect(&mut self, range: Range<usize>, is_protected: bool) {
        let length = Bytes(range.end - range.start);
        loop {
            match self.uffd.protect(range.start, length, is_protected) {
                Ok(()) => return,
                Err(Stop::Changing) => self.settle(),
                Err(_) => {
                    // A thread that waits there tries again, or finds that the range is gone.
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

    /// Lifts the protection of everything, whatever relatives share, and has the faults that wait
    /// for room served.
    pub(crate) fn protect_nothing(&mut self) {
        self.copies.is_on = false;
        self.serve_waiting();
        for region in self.regions.iter().collect::<Vec<_>>() {
            self.protect(region, false);
        }
    }

    /// Lifts the protection of a page to which the service is about to write.
    pub(crate) fn allow_copy(&mut self, page: PageNumber) {
        self.protect(page_of(page.address()), false);
    }

    /// Lets the thread go on that writes to a protected page, if there is room for its copy and for
    /// the pages that its walk is likely to write next. Otherwise the thread waits.
    pub(crate) fn serve_copy(&mut self, fault: Fault) {
        let window = self.copies.writes.window(fault.page, |_| false);
        let ahead = if window.step == 1 { window.count } else { 1 };
        // Where the pagemap does not say, all pages count as shared.
        let [shared] = self.files.pagemap.shared(fault.page.address()).unwrap_or([u64::MAX]);
        let is_shared = |page: usize| shared >> page & 1 == 1;
        // No page that is not shared is copied.
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

    /// Whether a fault on this page waits as copies do: a first touch lets the process grow in the
    /// same way.
    pub(crate) fn shall_wait_to_grow(&self, page: PageNumber) -> bool {
        self.pages.state(page) == PageState::None && self.lacks_room_for(PageCount(1))
    }

    fn lacks_room_for(&self, pages: PageCount) -> bool {
        let is_room = pages == PageCount(0) || self.budget.used() + pages <= self.budget.hard();
        // No room comes while a fork is made, and a forker may wait for a page of its stack.
        let is_fork = self.control.is_held() || self.control.is_forking();
        self.copies.is_on && !is_room && !is_fork
    }

    /// Makes a fault wait until relatives make room.
    pub(crate) fn let_wait(&mut self, fault: Fault) {
        if !self.copies.is_waiting() {
            let now = self.time.now_ns();
            (self.copies.since_ns, self.copies.until_ns) = (now, now + WAIT_NS);
            self.copies.least = self.budget.used_by_all();
            self.copies.stored = self.ledger.stored_by_others(self.seat);
        }
        self.copies.waiting.push(fault);
    }

    /// Has the faults that wait served again.
    fn serve_waiting(&mut self) {
        let ticks = cpu::ticks();
        for mut fault in self.copies.waiting.drain(..) {
            self.copies.waited_ticks += fault.wait_until(ticks);
            self.pending.push_back(fault);
        }
    }

    /// Has the writes that wait tried again when there is room for one, and gives up when no
    /// process makes any. To be called whenever the gauges were read.
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

/// Returns the page that contains an address, as a range.
fn page_of(address: usize) -> Range<usize> {
    let start = PageNumber::of(address).address();
    start..start + PAGE_BYTES
}
