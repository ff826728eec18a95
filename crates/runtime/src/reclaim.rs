//! Reclaim: taking cold pages out of the program, in small steps.
//!
//! A step either moves one run into limbo or compresses one page out of it, so a fault never waits
//! for a burst unless the hard limit (the min watermark) is reached. The queue says which run is
//! next.

use coldpress_sys::uffd::{Stop, unshare_page};
use coldpress_sys::{Bytes, Page, PageCount, cpu};
use coldpress_zswap::StoreError;
use coldpress_zswap::desk::Ticket;

use crate::bar::Bar;
use crate::budget::PAGES_TOGETHER;
use crate::manager::{FRAMES_KEPT, Manager};
use crate::pages::{PageNumber, PageState, RUN_PAGES, RunNumber};
use crate::queue::Evicted;
use crate::refusals::Drained;
use crate::tally::{Counter, Group};

/// Largest number of free frames whose memory is given back at a time. Single frames take 3 to 6 us
/// each, so faults wait a millisecond or so. While no fault waits, more are given back.
pub(crate) const TRIM_MAX: PageCount = Bytes::mib(1).pages_down();
pub(crate) const TRIM_MAX_IDLE: PageCount = Bytes::mib(8).pages_down();
/// Time until reclaim is tried again after nothing could be reclaimed.
pub(crate) const STUCK_NS: u64 = 20_000_000;

/// Leaves to look at in one step for what relatives share: 0.1 ms, while a fault waits.
const LEAVES_MAX: usize = 8;

/// Time until another run is taken of what relatives are to take first, and the longest wait for
/// the relatives.
const SLOWLY_NS: u64 = 10_000_000;
const LEAD_NS_MAX: u64 = 1_000_000_000;

/// Which pages are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storing {
    /// All that the knobs allow.
    Allowed,
    /// Of them, those that are compressible.
    Compressible,
    /// All, whatever the knobs and the pool's limit say.
    All,
}

impl Manager {
    /// Reclaims until `need` more pages fit under the hard limit, or nothing can be reclaimed.
    pub(crate) fn make_room(&mut self, need: PageCount) {
        loop {
            // Memory that is not managed may grow meanwhile, so use is read as often as ever.
            self.look_around(false);
            if self.budget.used() + need <= self.budget.hard() {
                return;
            }
            match self.reclaim_step() {
                Step::Done => {}
                Step::Nothing => return,
                Step::Disk | Step::Relatives => self.wait_for_others(),
            }
        }
    }

    /// Waits until the disk has done something, or for a tick. Faults that come meanwhile are
    /// queued.
    fn wait_for_others(&mut self) {
        if self.zswap.reap() {
            return;
        }
        if let Err(error) = self.waiter.wait() {
            self.die(format_args!("the disk cannot be waited for: {error}"));
        }
        self.read_messages();
        self.zswap.reap();
    }

    /// Reclaims about as much as has come in, a few pages at a time, when use is above soft (the
    /// low watermark).
    pub(crate) fn reclaim_along(&mut self) {
        let (used, soft) = (self.budget.used(), self.budget.soft());
        if used <= soft {
            self.arrivals = 0;
            return;
        }
        // In the upper half of the band the pool is growing: what goes in takes room too.
        let twice = used - soft > self.budget.hard().saturating_sub(used);
        let steps = if twice { 2 * self.arrivals } else { self.arrivals };
        if steps < PAGES_TOGETHER {
            return;
        }
        self.arrivals = 0;
        for _ in 0..steps {
            if self.reclaim_step() != Step::Done {
                return;
            }
        }
    }

    /// Does one step of reclaim.
    pub(crate) fn reclaim_step(&mut self) -> Step {
        if !self.may_reclaim() {
            return Step::Nothing;
        }
        // Relatives are to take first what is shared. The line stands still meanwhile: a process
        // that takes in another order than they do takes what they keep, and nothing becomes free.
        let rests =
            self.stuck.takes_shared && self.waits_for_relatives() && !self.may_take_another();
        let evicted =
            if self.limbo_has_room() && !rests { self.evict_run() } else { Evicted::Nothing };
        if evicted == Evicted::Run {
            return Step::Done;
        }
        if self.zswap.is_behind() {
            return Step::Disk;
        }
        let drained = self.drain_step(Storing::Allowed);
        self.note_drained(drained);
        if drained != Drained::Nothing || evicted == Evicted::NothingYet {
            return Step::Done;
        }
        // Copies of resident pages are all that can still go.
        if self.budget.used() > self.budget.hard() && self.drop_copies_in_pool() {
            self.trim_frames(TRIM_MAX);
            self.charge_own_growth();
            return Step::Done;
        }
        let takes_shared = self.budget.shares_much() && self.budget.is_worth_unsharing();
        if takes_shared && !self.stuck.takes_shared {
            self.stuck.takes_shared = true;
            self.queue.put_in_order(&self.pages, self.clock);
            return Step::Done;
        }
        if self.stuck.takes_shared && self.waits_for_relatives() {
            return Step::Relatives;
        }
        self.get_stuck();
        Step::Nothing
    }

    /// Returns whether relatives are to take first what is shared. Not while a fork, a stop, or a
    /// thread that has mapped something waits for this service.
    fn waits_for_relatives(&mut self) -> bool {
        if self.control.is_forking() || self.control.is_stopped() || !self.hints.is_empty() {
            return false;
        }
        if !self.budget.leads() {
            self.stuck.leads_from_ns = 0;
            return false;
        }
        let now = self.time.now_ns();
        if self.stuck.leads_from_ns == 0 {
            self.stuck.leads_from_ns = now;
        }
        now < self.stuck.leads_from_ns + LEAD_NS_MAX
    }

    /// Returns whether the next run may be taken with the pages that relatives share.
    fn may_take_shared(&mut self) -> bool {
        if !self.stuck.takes_shared {
            return false;
        }
        if self.waits_for_relatives() && !self.may_take_another() {
            return false;
        }
        self.stuck.taken_at_ns = self.time.now_ns();
        true
    }

    /// Returns whether it is time for another run.
    fn may_take_another(&self) -> bool {
        self.time.now_ns() >= self.stuck.taken_at_ns + SLOWLY_NS
    }

    /// Returns whether pages may be taken out, and it is not too early to try again.
    pub(crate) fn may_reclaim(&mut self) -> bool {
        if self.control.is_held() || self.control.is_quiet() || self.shall_thaw() {
            return false;
        }
        if !self.budget.is_worth_taking() {
            self.stuck.since_look = true;
            return false;
        }
        if self.stuck.until_ns > 0 {
            if self.time.now_ns() < self.stuck.until_ns {
                return false;
            }
            self.stuck.until_ns = 0;
        }
        true
    }

    /// Returns whether another run fits into limbo. What relatives share waits there as a copy of a
    /// page that they still have, so only little of it fits.
    pub(crate) fn limbo_has_room(&mut self) -> bool {
        let takes_shared = self.stuck.takes_shared && self.budget.shares_much();
        let target = if takes_shared { PageCount(RUN_PAGES) } else { self.limbo_target };
        self.limbo_pages < target && !self.limbo.ring().is_full()
    }

    fn get_stuck(&mut self) {
        self.stuck.until_ns = self.time.now_ns() + STUCK_NS;
        self.stuck.since_look = true;
    }

    /// Moves the pages of the next cold run into limbo, if there is one among the next few.
    fn evict_run(&mut self) -> Evicted {
        self.stuck.leaves_looked_at = 0;
        for _ in 0..self.queue.step() {
            if self.stuck.leaves_looked_at >= LEAVES_MAX {
                break;
            }
            let next = self.queue.next_if_cold(&mut self.pages, self.clock);
            let Some(number) = next else { continue };
            let moved = self.move_run(number);
            if self.pages.run_has(number, PageState::Resident) {
                self.queue.enqueue(&mut self.pages, number, self.clock);
            }
            if moved > PageCount(0) {
                return self.queue.note_moved();
            }
        }
        self.queue.note_nothing_moved()
    }

    /// Moves what may be moved of a run into a limbo slot.
    pub(crate) fn move_run(&mut self, number: RunNumber) -> PageCount {
        let wanted = self.pages.sweep_run(number);
        self.move_wanted(number, wanted)
    }

    /// Moves what may be moved of the `wanted` pages of a run into a limbo slot.
    pub(crate) fn move_wanted(
        &mut self,
        number: RunNumber,
        mut wanted: [bool; RUN_PAGES],
    ) -> PageCount {
        let is_any = |wanted: &[bool]| wanted.contains(&true);
        if is_any(&wanted) && self.budget.shares_much() && !self.may_take_shared() {
            self.pass_over_shared(number, &mut wanted);
        }
        if !is_any(&wanted) {
            return PageCount(0);
        }
        let first = number.first();
        let now_ms = self.now_ms();
        let slot = self.limbo.take_slot(number, now_ms);
        self.pages.run_mut(number).slot = Some(slot);
        let mut moved = PageCount(0);
        let (mut at, mut length_max, mut unfit) = (0, RUN_PAGES, false);
        // To the other side of limbo, and back.
        let mut turns = 0..2;
        while at < RUN_PAGES {
            if !wanted[at] {
                at += 1;
                continue;
            }
            let length = wanted[at..].iter().take_while(|page| **page).count().min(length_max);
            let done = self.move_some(first.plus(at), PageCount(length), slot);
            moved += done.moved;
            at += done.moved.0;
            length_max = RUN_PAGES;
            match done.next {
                Next::Go => {}
                Next::Skip => at += 1,
                Next::Halve
                    if moved == PageCount(0)
                        && turns.next().is_some()
                        && self.limbo.turn(slot, number) =>
                {
                    length_max = length;
                }
                // The run may lie in two mappings, and one MOVE takes pages of one.
                Next::Halve if length > 1 => {
                    length_max = length / 2;
                    turns = 0..2;
                }
                // Pages that belong on the other side of limbo come when the slot is another.
                Next::Halve if moved > PageCount(0) && self.limbo.has_room() => break,
                Next::Halve => {
                    unfit = true;
                    self.pages.pass_over(first.plus(at));
                    at += 1;
                }
                Next::LookAgain => {
                    self.settle();
                    if self.pages.run(number).is_none_or(|run| run.slot != Some(slot)) {
                        break;
                    }
                    for (index, page) in number.pages().enumerate().skip(at) {
                        wanted[index] &= self.pages.state(page) == PageState::Resident;
                    }
                }
                Next::GiveUp => break,
            }
        }
        if moved == PageCount(0) {
            self.return_slot(slot, number, unfit);
        }
        self.count(Counter::PagesMoved, moved.0);
        moved
    }

    /// Gives back a slot into which nothing of a run was moved, because the run is `unfit` or for
    /// another reason.
    fn return_slot(&mut self, slot: u16, number: RunNumber, unfit: bool) {
        if unfit {
            let run = self.pages.run_mut(number);
            run.unfit_times = (run.unfit_times + 1).min(7);
            run.unfit_sweeps = 1 << run.unfit_times;
        }
        self.limbo.ring().return_slot();
        if self.pages.run(number).is_some_and(|run| run.slot == Some(slot)) {
            self.pages.run_mut(number).slot = None;
        }
    }

    /// Leaves out those of the `wanted` pages of a run that relatives share. Each of these needs a
    /// copy before it can be taken, so they are the last to go. A refused MOVE takes 1 us for each;
    /// a look at a leaf takes 16 us, and covers 16 runs for a while.
    fn pass_over_shared(&mut self, number: RunNumber, wanted: &mut [bool; RUN_PAGES]) {
        let now_ms = self.now_ms();
        let known = self.pages.shared(number, now_ms).or_else(|| {
            self.stuck.leaves_looked_at += 1;
            let bits = self.files.pagemap.shared(number.leaf_start().address()).ok()?;
            self.pages.note_shared(number, bits, now_ms);
            self.pages.shared(number, now_ms)
        });
        // Where this cannot be found out, a MOVE will show it.
        let shared = known.unwrap_or(0);
        for (index, wanted) in wanted.iter_mut().enumerate() {
            *wanted &= shared >> index & 1 == 0;
        }
    }

    /// Makes one MOVE of neighbouring pages into `slot`.
    fn move_some(&mut self, page: PageNumber, count: PageCount, slot: u16) -> Moved {
        match self.bar(page) {
            Bar::Is => {}
            Bar::New => return Moved { moved: PageCount(0), next: Next::LookAgain },
            Bar::Refused => return Moved { moved: PageCount(0), next: Next::Halve },
        }
        let target = self.limbo.address(slot, page);
        // SAFETY: the pages are in a registered range, so the program gets them back by a fault;
        // the slot's places for them are empty.
        let progress = unsafe { self.uffd.move_pages(target, page.address(), count.bytes()) };
        let told = progress.done.pages_down();
        let untold = match progress.stop {
            None => PageCount(0),
            // The MOVE stopped before it began: looking would only wait for the change.
            Some(Stop::Changing) if told == PageCount(0) => PageCount(0),
            Some(_) => self.moved_beyond(page, target, told, count),
        };
        let moved = told + untold;
        for index in 0..moved.0 {
            self.pages.set_state(page.plus(index), PageState::Limbo);
        }
        self.limbo_pages += moved;
        self.limbo.ring().note_moved(slot, moved);
        let stopped_at = page.plus(moved.0);
        let next = match progress.stop {
            None => Next::Go,
            Some(Stop::Changing) => Next::LookAgain,
            // What stopped the MOVE lies behind these pages.
            Some(_) if untold > PageCount(0) => Next::Go,
            // Shared since a fork, or pinned by the kernel for input and output.
            Some(Stop::Busy) if self.become_owner(stopped_at) => Next::Go,
            Some(Stop::Busy) => {
                self.pages.pass_over(stopped_at);
                Next::Skip
            }
            Some(Stop::Unfit) => Next::Halve,
            // No page is there: the kernel has dropped it, or its range has gone.
            Some(Stop::Gone) => {
                self.pages.set_state(stopped_at, PageState::None);
                self.count(Counter::PagesDropped, 1);
                Next::Skip
            }
            // A debugger that reads the memory of another process leaves zeros where nothing was.
            Some(Stop::Present) => {
                let (address, rest) = (target + moved.bytes().0, count.saturating_sub(moved));
                if let Err(error) = self.limbo.clear(&self.uffd, address, rest.bytes()) {
                    self.die(format_args!("limbo cannot be emptied: {error}"));
                }
                Next::GiveUp
            }
            Some(Stop::Failed(_)) => Next::GiveUp,
        };
        Moved { moved, next }
    }

    /// Returns the pages that a MOVE of `count` pages from `page` to `target` has moved beyond the
    /// `told` ones.
    ///
    /// Linux 6.18 can move pages and answer EEXIST. One of the pages changed while the kernel
    /// looked at it (an accessed bit is enough); `move_pages` of mm/userfaultfd.c tries again with
    /// success, keeps the EAGAIN of the first time, and tries once more. A page that has moved is
    /// at the target and no longer here; a page that is at both places was not moved.
    fn moved_beyond(
        &self,
        page: PageNumber,
        target: usize,
        told: PageCount,
        count: PageCount,
    ) -> PageCount {
        let rest = |start: usize| (start + told.bytes().0, start + count.bytes().0);
        let ((from, from_end), (to, to_end)) = (rest(page.address()), rest(target));
        let found = self
            .files
            .pagemap
            .leading_pages(to, to_end)
            .and_then(|there| Ok(there.min(self.files.pagemap.leading_holes(from, from_end)?)));
        match found {
            Ok(pages) => pages,
            Err(error) => self.die(format_args!("moved pages cannot be counted: {error}")),
        }
    }

    /// Returns whether a page that is shared after `fork` has now become this process's own.
    /// `false` means that it was before, or that this did not help last time: then the page is
    /// pinned.
    fn become_owner(&mut self, page: PageNumber) -> bool {
        self.allow_copy(page);
        let again = self.last_owned.replace(page) == Some(page);
        !again && unshare_page(page.address())
    }

    /// Stores one page of limbo's oldest slot, or ends the slot. A page that is refused comes back,
    /// and is not looked at again before everything else was.
    pub(crate) fn drain_step(&mut self, which: Storing) -> Drained {
        self.post_to_helper();
        while let Some((slot, number, next)) = self.limbo.ring().oldest() {
            let ours = self.pages.run(number).is_some_and(|run| run.slot == Some(slot));
            let Some(index) = next.filter(|_| ours) else {
                if ours {
                    self.pages.run_mut(number).slot = None;
                }
                self.end_sample(slot);
                self.finish_slot();
                return Drained::Slot;
            };
            let page = number.first().plus(index);
            if self.pages.state(page) != PageState::Limbo {
                self.limbo.ring().advance_oldest();
                continue;
            }
            let drained = match self.store_from_limbo(page, which) {
                Ok(()) => Drained::Stored,
                // Tried once more, when there is room.
                Err(StoreError::PoolFull) if self.drop_copies_in_pool() => return Drained::Slot,
                Err(error) => {
                    self.bring_in(page);
                    if self.pages.state(page) == PageState::Resident {
                        self.pages.pass_over(page);
                    }
                    Drained::Refused(error)
                }
            };
            if self.pages.state(page) == PageState::Limbo {
                // The page's range is being unmapped: the report is to come, and until then the
                // slot stays.
                self.settle();
            } else {
                self.limbo.ring().advance_oldest();
            }
            return drained;
        }
        Drained::Nothing
    }

    /// Records the outcome of draining for the budget's sake: when other pages would fare no better
    /// than those refused, reclaim rests.
    fn note_drained(&mut self, drained: Drained) {
        match drained {
            Drained::Stored => self.last_refusal = None,
            Drained::Refused(error) => self.last_refusal = Some(error),
            Drained::Slot | Drained::Nothing => {}
        }
        if self.refusals.are_enough(drained) {
            self.get_stuck();
        }
    }

    fn finish_slot(&mut self) {
        match self.limbo.finish_oldest(&self.uffd) {
            Ok(freed) => self.budget.subtract(freed),
            Err(error) => self.die(format_args!("limbo cannot be emptied: {error}")),
        }
        self.trim_frames(TRIM_MAX);
        self.charge_own_growth();
    }

    /// Gives back the memory of at most `most` free frames, when more than a few have some.
    pub(crate) fn trim_frames(&self, most: PageCount) {
        let idle = self.frames.frames_idle();
        if idle > FRAMES_KEPT + FRAMES_KEPT {
            self.frames.trim(FRAMES_KEPT.max(idle.saturating_sub(most)));
        }
    }

    /// Returns the address in limbo of a page that is there.
    pub(crate) fn limbo_address(&self, page: PageNumber) -> usize {
        let Some(slot) = self.pages.run(page.run()).and_then(|run| run.slot) else {
            self.die(format_args!("a page in limbo has no slot: {:#x}", page.address()))
        };
        self.limbo.address(slot, page)
    }

    /// Stores a page that is in limbo. On an error the page stays there.
    pub(crate) fn store_from_limbo(
        &mut self,
        page: PageNumber,
        which: Storing,
    ) -> Result<(), StoreError> {
        self.drop_served();
        let bytes = self.limbo_address(page) as *const Page;
        // SAFETY: the page was moved there and nobody writes to limbo.
        let bytes = unsafe { &*bytes };
        if !self.is_kept(page, bytes) {
            let begun = cpu::ticks();
            let key = Self::key(page);
            let result = match which {
                Storing::All => self.zswap.store_anyhow(key, bytes),
                Storing::Allowed | Storing::Compressible => {
                    // The page is the next in limbo's order.
                    let offer = self.helper.collect(Ticket(self.limbo.ring().pages_done()));
                    let keeps_all = which == Storing::Allowed;
                    self.zswap.store_offered(key, bytes, keeps_all, offer.as_ref())
                }
            };
            let took = self.time.span_ns(cpu::ticks().wrapping_sub(begun));
            self.tally().note_latency(Group::StoreNs, took);
            while let Some(warning) = self.zswap.take_warning() {
                self.link.warn(format_args!("{warning}"));
            }
            result?;
        }
        self.pages.note_stored(page);
        self.limbo_pages -= PageCount(1);
        self.charge_own_growth();
        Ok(())
    }
}

/// What a step of reclaim did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something was done.
    Done,
    /// Nothing can be reclaimed now.
    Nothing,
    /// Nothing, because the pool is full until the disk has taken what is on its way.
    Disk,
    /// Nothing, until relatives have taken what they share.
    Relatives,
}

/// How a MOVE ended.
struct Moved {
    moved: PageCount,
    next: Next,
}

enum Next {
    /// Go on behind what was moved.
    Go,
    /// Pass over one page.
    Skip,
    /// Wait for the change to end, then look at the states again.
    LookAgain,
    /// Try fewer pages: not all of them can take part.
    Halve,
    /// Leave the rest of the run.
    GiveUp,
}
