//! What the policy decides, done to the program; and serving the faults that were read.

use coldpress_sys::PageCount;

use super::Service;
use crate::pager::Pager;
use crate::pages::{PageTable, RunNumber};
use crate::policy::{self, Drained, Effects, Level, Policy, Relatives};
use crate::store::{Storing, TRIM_MAX};

impl Effects for Service {
    fn policy(&mut self) -> (&mut Policy, &mut PageTable) {
        (&mut self.pager.policy, &mut self.pager.memory.pages)
    }

    fn level(&self) -> Level {
        let budget = &self.pager.allowance.budget;
        Level { used: budget.used(), soft: budget.soft(), hard: budget.hard() }
    }

    fn now_ns(&self) -> u64 {
        self.pager.allowance.time.now_ns()
    }

    fn relatives(&self) -> Relatives {
        self.pager.relatives()
    }

    fn keeps_all(&self) -> bool {
        let control = self.control;
        control.holds.is_held() || control.holds.is_quiet() || self.pager.allowance.shall_thaw()
    }

    fn is_worth_taking(&self) -> bool {
        self.pager.allowance.budget.is_worth_taking()
    }

    fn limbo_has_room(&mut self) -> bool {
        self.pager.limbo_has_room()
    }

    fn is_behind(&self) -> bool {
        self.pager.store.zswap.is_behind()
    }

    fn look_around(&mut self) {
        self.look_around(false);
    }

    fn move_run(&mut self, run: RunNumber) -> PageCount {
        self.pager.move_run(run)
    }

    fn drain(&mut self) -> Drained {
        self.pager.drain_step(Storing::Allowed)
    }

    fn drop_copies(&mut self) -> bool {
        let Pager { store, allowance, .. } = &mut self.pager;
        let had_any = store.drop_copies_in_pool();
        if had_any {
            store.trim_frames(TRIM_MAX);
            store.charge_own_growth(allowance);
        }
        had_any
    }

    /// Waits until the disk has done something, or for a tick. Faults that come meanwhile are
    /// queued.
    fn wait_for_others(&mut self) {
        if self.pager.store.zswap.reap() {
            return;
        }
        if let Err(error) = self.waiter.wait() {
            self.ties.die(format_args!("the disk cannot be waited for: {error}"));
        }
        self.pager.read_messages();
        self.pager.store.zswap.reap();
    }
}

impl Service {
    /// Serves all faults that were read.
    pub(crate) fn serve_pending(&mut self) {
        self.pager.wait_for_turn(self.idle.saved());
        while let Some(fault) = self.pager.memory.faults.pending.pop_front() {
            self.pager.memory.faults.serving = Some(fault);
            // Before the wake-up: if this thread goes on working after it has woken the other, the
            // kernel moves the other to an idle processor. Every fault from there costs a wake-up
            // across processors.
            policy::reclaim_along(self);
            if fault.is_protected {
                self.serve_copy(fault);
                self.pager.memory.faults.serving = None;
                continue;
            }
            let window = self.pager.window_of(fault.page);
            policy::make_room(self, PageCount(window.count));
            if self.copies.shall_wait_to_grow(&self.pager, fault.page) {
                self.copies.let_wait(&mut self.pager, fault);
            } else {
                self.pager.serve_fault(fault, window);
            }
            self.pager.memory.faults.serving = None;
        }
    }

    /// Takes in what the disk has finished. Faults that may have waited for that are served again.
    pub(crate) fn take_from_disk(&mut self) {
        self.pager.store.zswap.reap();
        if self.pager.store.zswap.take_arrivals() {
            while let Some(fault) = self.pager.memory.faults.reading.pop() {
                self.pager.memory.faults.pending.push_front(fault);
            }
            // Room for the pages that readahead is reading from disk.
            let count = PageCount(self.pager.store.readahead.len());
            policy::make_room(self, count);
            self.pager.take_read_ahead();
        }
    }
}
