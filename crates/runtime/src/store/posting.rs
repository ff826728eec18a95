//! Posting: pages in limbo that a helper compresses before their time has come.
//!
//! The launcher has a thread that reads pages out of this process's limbo and compresses them on
//! another processor (its `helper.rs`). The service posts what limbo gives up next at the desk that
//! both share. When a page's time has come, its compressed bytes are there already, or this thread
//! makes them itself: it never waits.
//!
//! The helper lives in another process because for each MOVE the kernel interrupts every processor
//! that runs a thread of this process (TLB shootdown). The helper also reads what it compresses by
//! itself: copying pages for such a process costs 7 % of the touches a second (measured on a
//! prototype).
//!
//! Why an offer always belongs to the page that is being stored: a place in limbo's order is used
//! once, so that place is the ticket. A posted page lies in limbo and is not written to until it is
//! compressed or has left limbo. After that the service no longer asks for its ticket.

use core::mem;

use coldpress_sys::shared::Shared;
use coldpress_sys::{Bytes, PageCount};
use coldpress_zswap::desk::{self, Desk, Offer, Posted, Ticket};

use super::Store;
use crate::allowance::Allowance;
use crate::knobs::Knob;
use crate::pages::{PageState, PageTable};
use crate::policy::target;

/// Least room, in pages, at which the service posts: each post moves a cache line to the other
/// processor and back, and may have to wake the helper.
const POSTED_TOGETHER: usize = 8;
/// Divisor of limbo's pages: one in this many may be posted. At 3 KiB each that is a tenth of
/// limbo.
const POSTED_SHARE: usize = 8;
/// Pages in a row that were not done in time, after which nothing is posted for `REST_NS`: there is
/// no helper, or the processors have other work.
const IN_VAIN_MAX: u32 = 4 * desk::JOBS as u32;
const REST_NS: u64 = 100_000_000;

/// The pages posted at the desk.
pub(crate) struct Posting {
    /// `None` when there is no desk.
    desk: Option<Shared<Desk>>,
    posted: Posted,
    /// The ticket after the last one looked at.
    next: Ticket,
    /// When posting resumes; 0 unless it has paused.
    rests_until_ns: u64,
}

impl Posting {
    /// Creates the state with nothing posted yet at `desk`, in a process with this `share` of a
    /// budget.
    pub(crate) fn new(desk: Option<Shared<Desk>>, share: PageCount) -> Self {
        let posted = Posted::new(target(share).0 / POSTED_SHARE);
        Self { desk, posted, next: Ticket(0), rests_until_ns: 0 }
    }

    /// Continues at a desk of its own, in the heir of a process whose desk is not mapped here.
    pub(crate) fn inherit(&mut self, desk: Option<Shared<Desk>>, share: PageCount) {
        mem::forget(self.desk.take());
        *self = Self { next: self.next, ..Self::new(desk, share) };
    }

    /// Stops posting pages before `ticket`. Pages in limbo at a fork are shared with the child, and
    /// the kernel copies a shared page when another process reads it.
    pub(crate) fn leave_out(&mut self, ticket: Ticket) {
        self.next = self.next.max(ticket);
        if let Some(desk) = &self.desk {
            self.posted.give_up_before(desk, ticket);
        }
    }

    /// Returns the memory that the desk takes of the budget.
    pub(crate) fn memory(&self) -> Bytes {
        if self.posted.is_used() { desk::memory(self.posted.limit()) } else { Bytes(0) }
    }

    /// Returns what the helper has made of the page of `ticket`.
    pub(crate) fn collect(&mut self, ticket: Ticket) -> Option<Offer<'_>> {
        self.posted.collect(self.desk.as_deref()?, ticket)
    }
}

impl Store {
    /// Posts pages that limbo will give up soon. `processor` is the one that the service is on.
    pub(crate) fn post_to_helper(
        &mut self,
        pages: &PageTable,
        allowance: &Allowance,
        processor: Option<usize>,
    ) {
        let ring = self.limbo.ring();
        let oldest = Ticket(ring.pages_done());
        let posting = &mut self.posting;
        let Some(desk) = posting.desk.as_deref() else { return };
        posting.posted.give_up_before(desk, oldest);
        let enough = POSTED_TOGETHER.min(posting.posted.limit());
        if posting.posted.room() < enough || allowance.tuning.knobs.get(Knob::Helper) == 0 {
            return;
        }
        if posting.rests_until_ns > 0 {
            if allowance.time.now_ns() < posting.rests_until_ns {
                return;
            }
            posting.rests_until_ns = 0;
            posting.posted.forget_in_vain();
        }
        if posting.posted.in_vain() >= IN_VAIN_MAX {
            posting.rests_until_ns = allowance.time.now_ns() + REST_NS;
            return;
        }
        let mut any = false;
        // The oldest page is stored now, sooner than the helper could compress it.
        let mut next = posting.next.max(Ticket(oldest.0 + 1));
        while posting.posted.room() > 0
            && let Some((slot, page)) = self.limbo.ring().page_at(next.0)
        {
            let is_there = pages.run(page.run()).is_some_and(|run| run.slot == Some(slot))
                && pages.state(page) == PageState::Limbo;
            if is_there && !self.kept.is_in_pool(page) {
                posting.posted.post(desk, next, self.limbo.address(slot, page));
                any = true;
            }
            next.0 += 1;
        }
        posting.next = next;
        if any {
            desk.set_processor(processor);
            allowance.ledger.ring_helper();
        }
    }
}
