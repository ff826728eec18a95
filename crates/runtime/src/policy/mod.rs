//! The policy: which pages leave, when, and which come in together.
//!
//! Nothing here makes a system call. What the policy decides is done by [`Effects`], which the
//! service implements for a program and a replay for recorded touches.

mod queue;
mod reclaim;
mod refusals;
mod ring;
#[cfg(test)]
mod tests;
mod walks;

use coldpress_sys::PageCount;
use coldpress_zswap::StoreError;

use queue::RunQueue;
pub(crate) use reclaim::{
    Effects, Level, Relatives, Step, make_room, may_reclaim, reclaim_along, reclaim_step,
};
pub(crate) use refusals::Drained;
pub(crate) use refusals::Refusals;
pub(crate) use ring::{Ring, Side, stride, target};
use walks::LOADS;
pub(crate) use walks::{AWAY_MAX, Window};
pub(crate) use walks::{Pace, Walks};

use crate::pages::{Origin, PageNumber, PageState, PageTable, Way};

/// Widest window of first touches.
pub(crate) const TOUCHES_MAX: usize = 64;
/// Pace of walks of first touches. Runs of 16 and 64 pages cost 0.72 and 0.57 of the kernel's own
/// fault per page, so placing a page needlessly is cheap, and the pages touched before bound how
/// many are placed so. Only forward walks get more than one page.
const TOUCHES: Pace =
    Pace { faults: 2, step_max: 1, leap_faults: 2, leap_max: 1, growth: 4, widest: TOUCHES_MAX };
/// Time until reclaim is tried again after nothing could be reclaimed.
pub(crate) const STUCK_NS: u64 = 20_000_000;
/// Time until another run is taken of what relatives are to take first, and the longest wait for
/// the relatives.
const SLOWLY_NS: u64 = 10_000_000;
const LEAD_NS_MAX: u64 = 1_000_000_000;

/// What decides which pages come and go.
pub(crate) struct Policy {
    /// The runs that have resident pages, in the order in which they are taken.
    pub(crate) queue: RunQueue,
    /// Walks (sequential streams) over pages that are away.
    pub(crate) loads: Walks,
    /// Walks of first touches.
    pub(crate) touches: Walks,
    /// Faults so far, and moves; the time by which recency is kept.
    pub(crate) clock: u32,
    /// Pages that came in since reclaim last went along with faults.
    arrivals: usize,
    /// Pages that zswap refused while reclaim worked for the budget, and the reason of its last
    /// refusal.
    refusals: Refusals,
    pub(crate) last_refusal: Option<StoreError>,
    pub(crate) stuck: Stuck,
}

/// State of reclaim while nothing can be reclaimed.
#[derive(Debug, Default)]
pub(crate) struct Stuck {
    /// When to try again; 0 when something can be reclaimed.
    until_ns: u64,
    /// Whether reclaim was stuck since what cannot be moved was last looked at.
    pub(crate) since_look: bool,
    /// Whether pages that relatives share are taken too.
    takes_shared: bool,
    /// Leaves of which the kernel was asked in this step what relatives share.
    leaves_looked_at: usize,
    /// Since when relatives are to take shared pages first, 0 when they are not; and when a run was
    /// last taken.
    leads_from_ns: u64,
    taken_at_ns: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            queue: RunQueue::default(),
            loads: Walks::new(LOADS),
            touches: Walks::new(TOUCHES),
            clock: 0,
            arrivals: 0,
            refusals: Refusals::default(),
            last_refusal: None,
            stuck: Stuck::default(),
        }
    }
}

impl Policy {
    /// Returns the window to bring in for a fault on `page`, which is away.
    pub(crate) fn window(&self, pages: &PageTable, page: PageNumber) -> Window {
        self.loads.window(page, |page| pages.state(page) == PageState::Resident)
    }

    /// Records that `window`, or as much of it as its `count` says, was brought in for `page`,
    /// which was away.
    pub(crate) fn advance(&mut self, page: PageNumber, window: Window) {
        self.loads.advance(page, window);
    }

    /// Returns how many pages from `page` on a first touch of it should get.
    pub(crate) fn touch_window(&self, pages: &PageTable, page: PageNumber) -> Window {
        self.touches.window(page, |page| pages.state(page) == PageState::Resident)
    }

    /// Records that a page has been brought in.
    pub(crate) fn arrive(
        &mut self,
        pages: &mut PageTable,
        page: PageNumber,
        from: Origin,
        way: Way,
    ) {
        self.arrivals += 1;
        self.queue.arrive(pages, page, from, way, self.clock);
    }

    /// Advances the clock: a fault was served, or pages move.
    pub(crate) fn tick(&mut self) {
        self.clock = self.clock.wrapping_add(1);
    }

    /// Begins anew in a child: nothing keeps it from taking pages.
    pub(crate) fn begin_in_child(&mut self) {
        self.stuck = Stuck::default();
    }

    /// Tries again what could not be reclaimed: something has changed.
    pub(crate) fn try_again(&mut self) {
        self.stuck.until_ns = 0;
    }

    /// Forgets the times that a clock set which was ahead.
    pub(crate) fn forget_times(&mut self) {
        self.stuck.until_ns = 0;
        (self.stuck.leads_from_ns, self.stuck.taken_at_ns) = (0, 0);
    }

    /// Takes no more what relatives share.
    pub(crate) fn spare_shared(&mut self) {
        self.stuck.takes_shared = false;
    }

    /// Counts a leaf of which the kernel was asked what relatives share.
    pub(crate) fn count_leaf(&mut self) {
        self.stuck.leaves_looked_at += 1;
    }

    /// Returns whether pages that relatives share are taken too.
    pub(crate) fn takes_shared(&self) -> bool {
        self.stuck.takes_shared
    }

    /// Returns whether it is too early to try again.
    fn is_stuck(&mut self, now_ns: u64) -> bool {
        let is_stuck = now_ns < self.stuck.until_ns;
        if !is_stuck {
            self.stuck.until_ns = 0;
        }
        is_stuck
    }

    fn get_stuck(&mut self, now_ns: u64) {
        self.stuck.until_ns = now_ns + STUCK_NS;
        self.stuck.since_look = true;
    }

    /// Returns whether relatives are to take first what is shared. Not while a fork, a stop, or a
    /// thread that has mapped something waits for this service.
    fn waits_for_relatives(&mut self, relatives: Relatives, now_ns: u64) -> bool {
        if relatives.is_waited_for {
            return false;
        }
        if !relatives.leads {
            self.stuck.leads_from_ns = 0;
            return false;
        }
        if self.stuck.leads_from_ns == 0 {
            self.stuck.leads_from_ns = now_ns;
        }
        now_ns < self.stuck.leads_from_ns + LEAD_NS_MAX
    }

    /// Returns whether the next run may be taken with the pages that relatives share.
    pub(crate) fn may_take_shared(&mut self, relatives: Relatives, now_ns: u64) -> bool {
        if !self.stuck.takes_shared {
            return false;
        }
        if self.waits_for_relatives(relatives, now_ns) && !self.may_take_another(now_ns) {
            return false;
        }
        self.stuck.taken_at_ns = now_ns;
        true
    }

    /// Returns whether it is time for another run.
    fn may_take_another(&self, now_ns: u64) -> bool {
        now_ns >= self.stuck.taken_at_ns + SLOWLY_NS
    }

    /// Records the outcome of draining for the budget's sake: when other pages would fare no better
    /// than those refused, reclaim rests.
    fn note_drained(&mut self, drained: Drained, now_ns: u64) {
        match drained {
            Drained::Stored => self.last_refusal = None,
            Drained::Refused(error) => self.last_refusal = Some(error),
            Drained::Slot | Drained::Nothing => {}
        }
        if self.refusals.are_enough(drained) {
            self.get_stuck(now_ns);
        }
    }

    /// Returns the pages that limbo may hold, of `target`. What relatives share waits there as a
    /// copy of a page that they still have, so only little of it fits.
    pub(crate) fn limbo_max(&self, target: PageCount, shares_much: bool) -> PageCount {
        let takes_shared = self.stuck.takes_shared && shares_much;
        if takes_shared { PageCount(crate::pages::RUN_PAGES) } else { target }
    }
}
