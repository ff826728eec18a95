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

use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, cpu};

use super::Service;
use crate::memory::{Fault, page_of};
use crate::pager::Pager;
use crate::pages::{PageNumber, PageState, RUN_PAGES};
use crate::policy::{self, Pace, Walks};
use crate::tally::Counter;

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
pub(super) struct Copies {
    /// Whether any pages are protected.
    is_on: bool,
    writes: Walks,
    /// The time until which faults wait for room, and the least that all processes have held
    /// meanwhile.
    until_ns: u64,
    least: PageCount,
    /// The time when the first fault began to wait, or when room came last, and what other
    /// processes had stored at the last look.
    since_ns: u64,
    stored: u64,
    /// The pages that this process has copied, and that its ancestors had copied when they forked.
    copied: u64,
}

impl Default for Copies {
    fn default() -> Self {
        Self {
            is_on: false,
            writes: Walks::new(WRITES),
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
    pub(super) fn begin_in_child(&mut self) -> bool {
        let copied = self.copied;
        core::mem::replace(self, Self { copied, ..Self::default() }).is_on
    }

    /// Returns the pages that this process and its ancestors have copied.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    /// Returns whether shared pages are to be protected, as not all of them could be copied now;
    /// from then on copies wait for room. To be called before a fork, and in a child that has taken
    /// over. A fork writes to the pages at `touched` while no service serves, so these are
    /// protected no more.
    pub(super) fn shall_protect(&mut self, pager: &mut Pager, touched: &[usize]) -> bool {
        let budget = &pager.allowance.budget;
        let is_due = budget.resident() > pager.allowance.room() && budget.is_worth_taking();
        self.is_on |= is_due;
        if self.is_on {
            // These pages may be protected since an earlier fork.
            touched.iter().for_each(|address| pager.protect(page_of(*address), false));
        }
        is_due
    }

    /// Lifts the protection of everything, if relatives share no more.
    pub(super) fn lift_protection(&mut self, pager: &mut Pager) {
        if self.is_on && !pager.allowance.budget.shares_much() {
            self.protect_nothing(pager);
        }
    }

    /// Lifts the protection of everything, whatever relatives share, and has the faults that wait
    /// for room served.
    pub(super) fn protect_nothing(&mut self, pager: &mut Pager) {
        self.is_on = false;
        serve_waiting(pager);
        for region in pager.memory.regions.iter().collect::<Vec<_>>() {
            pager.protect(region, false);
        }
    }

    /// Returns whether a fault on this page waits as copies do: a first touch lets the process grow
    /// in the same way.
    pub(super) fn shall_wait_to_grow(&self, pager: &Pager, page: PageNumber) -> bool {
        pager.memory.pages.state(page) == PageState::None && self.lacks_room(pager, PageCount(1))
    }

    fn lacks_room(&self, pager: &Pager, pages: PageCount) -> bool {
        let budget = &pager.allowance.budget;
        let is_room = pages == PageCount(0) || budget.used() + pages <= budget.hard();
        // No room comes while a fork is made, and a forker may wait for a page of its stack.
        let is_fork = pager.control.holds.is_held() || pager.control.fork.is_under_way();
        self.is_on && !is_room && !is_fork
    }

    /// Makes a fault wait until relatives make room.
    pub(super) fn let_wait(&mut self, pager: &mut Pager, fault: Fault) {
        if pager.memory.faults.for_room.is_empty() {
            let now = pager.allowance.time.now_ns();
            (self.since_ns, self.until_ns) = (now, now + WAIT_NS);
            self.least = pager.allowance.budget.used_by_all();
            self.stored = pager.allowance.ledger.stored_by_others(pager.allowance.seat);
        }
        pager.memory.faults.for_room.push(fault);
    }

    /// Has the writes that wait tried again when there is room for one, and gives up when no
    /// process makes any. To be called whenever the gauges were read.
    pub(super) fn look(&mut self, pager: &mut Pager) {
        if pager.memory.faults.for_room.is_empty() {
            return;
        }
        let allowance = &pager.allowance;
        let (now, held) = (allowance.time.now_ns(), allowance.budget.used_by_all());
        let stored = allowance.ledger.stored_by_others(allowance.seat);
        if held < self.least {
            (self.least, self.since_ns) = (held, now);
            self.until_ns = now + WAIT_NS;
        } else if stored > self.stored && now < self.since_ns + WAIT_NS_MAX {
            self.until_ns = now + WAIT_NS;
        }
        self.stored = stored;
        if !self.lacks_room(pager, PageCount(1)) {
            serve_waiting(pager);
        } else if now >= self.until_ns {
            self.protect_nothing(pager);
        }
    }
}

/// Returns whether pages are protected after a fork: then the forker need not wait for that, and
/// the kernel has less to copy. What is written meanwhile is a part of the reserve as long as
/// little is protected.
pub(super) fn protects_behind(pager: &Pager) -> bool {
    pager.allowance.budget.resident() <= BEHIND_MAX
}

/// Protects shared pages, but not those at `touched`, to which a forker or the kernel may be about
/// to write while no service serves.
pub(super) fn protect_shared(pager: &mut Pager, touched: &[usize]) {
    for region in pager.memory.regions.iter().collect::<Vec<_>>() {
        pager.protect(region, true);
    }
    touched.iter().for_each(|address| pager.protect(page_of(*address), false));
}

/// Has the faults that wait for room served again.
fn serve_waiting(pager: &mut Pager) {
    let ticks = cpu::ticks();
    let faults = &mut pager.memory.faults;
    for mut fault in faults.for_room.drain(..) {
        pager.allowance.waited.for_room_ticks += fault.wait_until(ticks);
        faults.pending.push_back(fault);
    }
}

impl Service {
    /// Lets the thread go on that writes to a protected page, if there is room for its copy and for
    /// the pages that its walk is likely to write next. Otherwise the thread waits.
    pub(crate) fn serve_copy(&mut self, fault: Fault) {
        let window = self.copies.writes.window(fault.page, |_| false);
        let ahead = if window.step == 1 { window.count } else { 1 };
        // Where the pagemap does not say, all pages count as shared.
        let [shared] =
            self.pager.memory.files.pagemap.shared(fault.page.address()).unwrap_or([u64::MAX]);
        let is_shared = |page: usize| shared >> page & 1 == 1;
        // No page that is not shared is copied.
        let alone = (0..RUN_PAGES).take_while(|page| !is_shared(*page)).count();
        let region = self.pager.memory.regions.holding(fault.page.address());
        let within = region.map_or(1, |region| PageNumber::of(region.end).0 - fault.page.0);
        let copied = |count| PageCount((0..count).filter(|page| is_shared(*page)).count());
        let mut count = ahead.max(alone).min(within);
        policy::make_room(self, copied(count));
        if self.copies.lacks_room(&self.pager, copied(count)) {
            count = 1;
        }
        let copied = copied(count);
        if self.copies.lacks_room(&self.pager, copied) {
            return self.copies.let_wait(&mut self.pager, fault);
        }
        let start = fault.page.address();
        self.pager.protect(start..start + count * PAGE_BYTES, false);
        self.pager.allowance.budget.add(copied);
        self.copies.copied += copied.0 as u64;
        self.pager.allowance.ledger.note_copied(copied);
        self.copies.writes.advance(fault.page, window.at_most(ahead));
        self.pager.allowance.count(Counter::CopyFaults, 1);
        self.pager.note_served(&fault);
        self.pager.placement.follow(fault.thread);
    }
}
