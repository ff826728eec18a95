//! Helper: pages in limbo that a helper compresses before their time has come.
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
use core::sync::atomic::{AtomicU32, Ordering, fence};

use coldpress_sys::shared::{self, Shared};
use coldpress_sys::{AsFd, BorrowedFd, Bytes, OwnedFd, PageCount, SysResult, futex};
use coldpress_zswap::desk::{self, Desk, NotDone, Offer, Posted, Ticket};

use crate::knobs::Knob;
use crate::limbo;
use crate::manager::Manager;
use crate::pages::PageState;

/// The name of the launcher's thread, as the kernel shows it.
pub const HELPER_THREAD: &str = "helper";
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

/// The place where a helper sleeps. It lies in the ledger because one helper serves all processes.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Bell {
    /// 1 while the helper sleeps.
    asleep: AtomicU32,
}

impl Bell {
    /// Wakes the helper if it sleeps.
    pub fn ring(&self) {
        // Pairs with the fence in `sleep_unless`. The service posts, then looks whether the helper
        // sleeps; the helper says that it sleeps, then looks whether something is posted. At least
        // one of them sees the other.
        fence(Ordering::SeqCst);
        // Relaxed, both: the fence orders them. The helper is usually awake, and a load leaves the
        // line in place.
        if self.asleep.load(Ordering::Relaxed) == 1 && self.asleep.swap(0, Ordering::Relaxed) == 1 {
            futex::wake_all(&self.asleep);
        }
    }

    /// Wakes the helper, even if a process has begun to wake it and ended before that was done.
    pub fn ring_again(&self) {
        // Relaxed: the helper sees the change it is woken for by other means.
        self.asleep.store(0, Ordering::Relaxed);
        futex::wake_all(&self.asleep);
    }

    /// Sleeps until the bell rings, unless there is something to do. Only the helper calls this
    /// function.
    pub fn sleep_unless(&self, is_something_to_do: impl FnOnce() -> bool) {
        // Relaxed: the fence below orders it.
        self.asleep.store(1, Ordering::Relaxed);
        // Pairs with the fence in `ring`: see there.
        fence(Ordering::SeqCst);
        if !is_something_to_do() {
            futex::wait(&self.asleep, 1, None);
        }
        // Relaxed: a ring without a cause does no harm.
        self.asleep.store(0, Ordering::Relaxed);
    }
}

/// Makes a desk, and returns a descriptor to hand to its process and the helper's own view.
pub fn make_desk() -> SysResult<(OwnedFd, Shared<Desk>)> {
    let fd = shared::create(c"coldpress-desk", Bytes(size_of::<Desk>()))?;
    let desk = map_desk(fd.as_fd())?;
    Ok((fd, desk))
}

/// Maps the desk that the launcher has made.
pub(crate) fn map_desk(fd: BorrowedFd<'_>) -> SysResult<Shared<Desk>> {
    // SAFETY: a desk is made of atomics, and zeroed memory is an empty one.
    unsafe { Shared::map(fd) }
}

/// The pages posted for the helper.
pub(crate) struct Helper {
    /// `None` when there is no helper.
    desk: Option<Shared<Desk>>,
    posted: Posted,
    /// The ticket after the last one looked at.
    next: Ticket,
    /// Pages in a row that were not done in time.
    in_vain: u32,
    /// When posting resumes; 0 unless it has paused.
    rests_until_ns: u64,
}

impl Helper {
    /// Creates the state with nothing posted yet at `desk`, in a process with this `share` of a
    /// budget.
    pub(crate) fn new(desk: Option<Shared<Desk>>, share: PageCount) -> Self {
        let posted = Posted::new(limbo::target(share).0 / POSTED_SHARE);
        Self { desk, posted, next: Ticket(0), in_vain: 0, rests_until_ns: 0 }
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
        match self.posted.collect(self.desk.as_deref()?, ticket) {
            Ok(offer) => {
                self.in_vain = if offer.is_some() { 0 } else { self.in_vain };
                offer
            }
            Err(NotDone) => {
                self.in_vain += 1;
                None
            }
        }
    }
}

impl Manager {
    /// Posts pages that limbo will give up soon.
    pub(crate) fn post_to_helper(&mut self) {
        let ring = self.limbo.ring();
        let oldest = Ticket(ring.pages_done());
        let helper = &mut self.helper;
        let Some(desk) = helper.desk.as_deref() else { return };
        helper.posted.give_up_before(desk, oldest);
        let enough = POSTED_TOGETHER.min(helper.posted.limit());
        if helper.posted.room() < enough || self.tuning.knobs.get(Knob::Helper) == 0 {
            return;
        }
        if helper.rests_until_ns > 0 {
            if self.time.now_ns() < helper.rests_until_ns {
                return;
            }
            (helper.rests_until_ns, helper.in_vain) = (0, 0);
        }
        if helper.in_vain >= IN_VAIN_MAX {
            helper.rests_until_ns = self.time.now_ns() + REST_NS;
            return;
        }
        let mut any = false;
        // The oldest page is stored now, sooner than the helper could compress it.
        let mut next = helper.next.max(Ticket(oldest.0 + 1));
        while helper.posted.room() > 0
            && let Some((slot, page)) = self.limbo.ring().page_at(next.0)
        {
            let is_there = self.pages.run(page.run()).is_some_and(|run| run.slot == Some(slot))
                && self.pages.state(page) == PageState::Limbo;
            if is_there && !self.away.kept.is_in_pool(page) {
                helper.posted.post(desk, next, self.limbo.address(slot, page));
                any = true;
            }
            next.0 += 1;
        }
        helper.next = next;
        if any {
            desk.set_processor(self.placement.current());
            self.ledger.bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a helper that sleeps while there is something to do.

    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn who_rings_after_posting_is_heard() {
        const ROUNDS: u64 = 2_000;
        let (bell, posted, seen) = (Bell::default(), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while seen.load(Ordering::Relaxed) < ROUNDS {
                    bell.sleep_unless(|| {
                        posted.load(Ordering::Relaxed) != seen.load(Ordering::Relaxed)
                    });
                    seen.store(posted.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            });
            for round in 1..=ROUNDS {
                posted.store(round, Ordering::Relaxed);
                bell.ring();
                let begun = Instant::now();
                while seen.load(Ordering::Relaxed) < round {
                    if begun.elapsed() > Duration::from_secs(10) {
                        // Lets the sleeping thread end, so that the test can.
                        posted.store(ROUNDS, Ordering::Relaxed);
                        bell.ring_again();
                        panic!("nobody heard round {round}");
                    }
                    thread::yield_now();
                }
            }
        });
    }
}
