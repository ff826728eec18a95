//! Swap-out: moving pages of a run from the program into limbo, and from there to the store.

use coldpress_sys::PageCount;
use coldpress_sys::uffd::Stop;
use coldpress_zswap::StoreError;

use super::Pager;
use crate::memory::Bar;
use crate::pages::{PageNumber, PageState, RUN_PAGES, RunNumber};
use crate::policy::Drained;
use crate::store::Storing;
use crate::tally::Counter;

impl Pager {
    /// Moves what may be moved of a run into a limbo slot.
    pub(crate) fn move_run(&mut self, number: RunNumber) -> PageCount {
        let wanted = self.memory.pages.sweep_run(number);
        self.move_wanted(number, wanted)
    }

    /// Moves what may be moved of the `wanted` pages of a run into a limbo slot.
    pub(crate) fn move_wanted(
        &mut self,
        number: RunNumber,
        mut wanted: [bool; RUN_PAGES],
    ) -> PageCount {
        let is_any = |wanted: &[bool]| wanted.contains(&true);
        if is_any(&wanted) && self.allowance.budget.shares_much() && !self.may_take_shared() {
            self.pass_over_shared(number, &mut wanted);
        }
        if !is_any(&wanted) {
            return PageCount(0);
        }
        let first = number.first();
        let now_ms = self.allowance.now_ms();
        let slot = self.store.limbo.take_slot(number, now_ms);
        self.memory.pages.run_mut(number).slot = Some(slot);
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
                        && self.store.limbo.turn(slot, number) =>
                {
                    length_max = length;
                }
                // The run may lie in two mappings, and one MOVE takes pages of one.
                Next::Halve if length > 1 => {
                    length_max = length / 2;
                    turns = 0..2;
                }
                // Pages that belong on the other side of limbo come when the slot is another.
                Next::Halve if moved > PageCount(0) && self.store.limbo.has_room() => break,
                Next::Halve => {
                    unfit = true;
                    self.memory.pages.pass_over(first.plus(at));
                    at += 1;
                }
                Next::LookAgain => {
                    self.settle();
                    if self.memory.pages.run(number).is_none_or(|run| run.slot != Some(slot)) {
                        break;
                    }
                    for (index, page) in number.pages().enumerate().skip(at) {
                        wanted[index] &= self.memory.pages.state(page) == PageState::Resident;
                    }
                }
                Next::GiveUp => break,
            }
        }
        if moved == PageCount(0) {
            self.store.return_slot(&mut self.memory.pages, slot, number, unfit);
        }
        self.allowance.count(Counter::PagesMoved, moved.0);
        moved
    }

    /// Leaves out those of the `wanted` pages of a run that relatives share. Each of these needs a
    /// copy before it can be taken, so they are the last to go. A refused MOVE takes 1 us for each;
    /// a look at a leaf takes 16 us, and covers 16 runs for a while.
    fn pass_over_shared(&mut self, number: RunNumber, wanted: &mut [bool; RUN_PAGES]) {
        let now_ms = self.allowance.now_ms();
        let known = self.memory.pages.shared(number, now_ms).or_else(|| {
            self.policy.count_leaf();
            let bits = self.memory.files.pagemap.shared(number.leaf_start().address()).ok()?;
            self.memory.pages.note_shared(number, bits, now_ms);
            self.memory.pages.shared(number, now_ms)
        });
        // Where this cannot be found out, a MOVE will show it.
        let shared = known.unwrap_or(0);
        for (index, wanted) in wanted.iter_mut().enumerate() {
            *wanted &= shared >> index & 1 == 0;
        }
    }

    /// Returns whether a page that was shared after a fork has now become this process's own.
    fn owns_now(&mut self, page: PageNumber) -> bool {
        let (memory, mut followers) = self.parts();
        memory.become_owner(page, &mut followers)
    }

    fn may_take_shared(&mut self) -> bool {
        let (relatives, now_ns) = (self.relatives(), self.allowance.time.now_ns());
        self.policy.may_take_shared(relatives, now_ns)
    }

    fn store_from_limbo(&mut self, page: PageNumber, which: Storing) -> Result<(), StoreError> {
        let Self { memory, store, allowance, .. } = self;
        store.store_from_limbo(&mut memory.pages, page, which, allowance)
    }

    /// Makes one MOVE of neighbouring pages into `slot`.
    fn move_some(&mut self, page: PageNumber, count: PageCount, slot: u16) -> Moved {
        let (memory, mut followers) = self.parts();
        match memory.bar(page, &mut followers) {
            Bar::Is => {}
            Bar::New => return Moved { moved: PageCount(0), next: Next::LookAgain },
            Bar::Refused => return Moved { moved: PageCount(0), next: Next::Halve },
        }
        let target = self.store.limbo.address(slot, page);
        // SAFETY: the pages are in a registered range, so the program gets them back by a fault;
        // the slot's places for them are empty.
        let progress =
            unsafe { self.memory.uffd.move_pages(target, page.address(), count.bytes()) };
        let told = progress.done.pages_down();
        let untold = match progress.stop {
            None => PageCount(0),
            // The MOVE stopped before it began: looking would only wait for the change.
            Some(Stop::Changing) if told == PageCount(0) => PageCount(0),
            Some(_) => self.memory.moved_beyond(page, target, told, count),
        };
        let moved = told + untold;
        for index in 0..moved.0 {
            self.memory.pages.set_state(page.plus(index), PageState::Limbo);
        }
        self.store.limbo_pages += moved;
        self.store.limbo.ring().note_moved(slot, moved);
        let stopped_at = page.plus(moved.0);
        let next = match progress.stop {
            None => Next::Go,
            Some(Stop::Changing) => Next::LookAgain,
            // What stopped the MOVE lies behind these pages.
            Some(_) if untold > PageCount(0) => Next::Go,
            // Shared since a fork, or pinned by the kernel for input and output.
            Some(Stop::Busy) if self.owns_now(stopped_at) => Next::Go,
            Some(Stop::Busy) => {
                self.memory.pages.pass_over(stopped_at);
                Next::Skip
            }
            Some(Stop::Unfit) => Next::Halve,
            // No page is there: the kernel has dropped it, or its range has gone.
            Some(Stop::Gone) => {
                self.memory.pages.set_state(stopped_at, PageState::None);
                self.allowance.count(Counter::PagesDropped, 1);
                Next::Skip
            }
            // A debugger that reads the memory of another process leaves zeros where nothing was.
            Some(Stop::Present) => {
                let (address, rest) = (target + moved.bytes().0, count.saturating_sub(moved));
                if let Err(error) = self.store.limbo.clear(&self.memory.uffd, address, rest.bytes())
                {
                    self.ties.die(format_args!("limbo cannot be emptied: {error}"));
                }
                Next::GiveUp
            }
            Some(Stop::Failed(_)) => Next::GiveUp,
        };
        Moved { moved, next }
    }

    /// Stores one page of limbo's oldest slot, or ends the slot. A page that is refused comes back,
    /// and is not looked at again before everything else was.
    pub(crate) fn drain_step(&mut self, which: Storing) -> Drained {
        let processor = self.placement.current();
        self.store.post_to_helper(&self.memory.pages, &self.allowance, processor);
        while let Some((slot, number, next)) = self.store.limbo.ring().oldest() {
            let ours = self.memory.pages.run(number).is_some_and(|run| run.slot == Some(slot));
            let Some(index) = next.filter(|_| ours) else {
                if ours {
                    self.memory.pages.run_mut(number).slot = None;
                }
                self.store.finish_slot(&self.memory.uffd, &mut self.allowance);
                return Drained::Slot;
            };
            let page = number.first().plus(index);
            if self.memory.pages.state(page) != PageState::Limbo {
                self.store.limbo.ring().advance_oldest();
                continue;
            }
            let drained = match self.store_from_limbo(page, which) {
                Ok(()) => Drained::Stored,
                // Tried once more, when there is room.
                Err(StoreError::PoolFull) if self.store.drop_copies_in_pool() => {
                    return Drained::Slot;
                }
                Err(error) => {
                    self.bring_in(page);
                    if self.memory.pages.state(page) == PageState::Resident {
                        self.memory.pages.pass_over(page);
                    }
                    Drained::Refused(error)
                }
            };
            if self.memory.pages.state(page) == PageState::Limbo {
                // The page's range is being unmapped: the report is to come, and until then the
                // slot stays.
                self.settle();
            } else {
                self.store.limbo.ring().advance_oldest();
            }
            return drained;
        }
        Drained::Nothing
    }
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
