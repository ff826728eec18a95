//! The pager: brings pages in (swap-in) and takes them out (swap-out), between the program's memory
//! and the store, as the policy says and the allowance lets it.
//!
//! Only the service has the pager, so nothing here is locked.

mod fault;
mod followers;
mod placement;
mod swap_in;
mod swap_out;

use alloc::rc::Rc;
use core::ops::Range;

use coldpress_sys::{Bytes, cpu};

pub(crate) use placement::Placement;

use crate::allowance::Allowance;
use crate::control::Control;
use crate::memory::{Fault, Memory};
use crate::pages::PageNumber;
use crate::policy::{Policy, Relatives};
use crate::store::Store;
use crate::tally::Counter;
use crate::ties::Ties;
use followers::Followers;

/// Pages whose invariants are checked at a time, where assertions are on.
const CHECKED_TOGETHER: usize = 2048;

/// The four parts of the runtime, between which pages move.
pub(crate) struct Pager {
    pub(crate) memory: Memory,
    pub(crate) store: Store,
    pub(crate) allowance: Allowance,
    pub(crate) policy: Policy,
    pub(crate) placement: Placement,
    pub(crate) control: &'static Control,
    pub(crate) ties: Rc<Ties>,
}

impl Pager {
    /// Returns the memory, and what follows the changes of its addresses.
    pub(crate) fn parts(&mut self) -> (&mut Memory, Followers<'_>) {
        let Self { memory, store, allowance, policy, .. } = self;
        (memory, Followers { store, allowance, policy })
    }

    /// Returns whether there were any messages of the kernel, after reading all of them.
    pub(crate) fn read_messages(&mut self) -> bool {
        let (memory, mut followers) = self.parts();
        memory.read_messages(&mut followers)
    }

    /// Waits until no change of the address space is under way, acting on each change. After this
    /// call every state must be looked at afresh.
    pub(crate) fn settle(&mut self) {
        let (memory, mut followers) = self.parts();
        memory.settle(&mut followers);
    }

    /// Registers memory of the program that is not registered yet.
    pub(crate) fn discover(&mut self) {
        self.take_room();
        let takes_executable = self.store.limbo.has_room();
        let (memory, mut followers) = self.parts();
        memory.discover(takes_executable, &mut followers);
    }

    /// Takes over the room for executable memory, if there is any now.
    pub(crate) fn take_room(&mut self) {
        if self.store.limbo.has_room() {
            return;
        }
        let Some(span) = self.control.room.span() else { return };
        if let Err(error) = self.store.limbo.take_room(span, &self.memory.uffd) {
            self.ties.tell(format_args!("executable memory is not managed: {error}"));
        }
    }

    /// Bars again what was barred: a fork is over, or the program has lifted a bar.
    pub(crate) fn bar_again(&mut self) {
        let (memory, mut followers) = self.parts();
        memory.bar_again(&mut followers);
    }

    /// Lifts all bars and forgets them: every page is in place.
    pub(crate) fn lift_all_bars(&mut self) {
        let (memory, mut followers) = self.parts();
        memory.lift_all_bars(&mut followers);
    }

    /// Write-protects a range or lifts its protection.
    pub(crate) fn protect(&mut self, range: Range<usize>, is_protected: bool) {
        let (memory, mut followers) = self.parts();
        memory.protect(range, is_protected, &mut followers);
    }

    /// Returns how this process stands to its relatives.
    pub(crate) fn relatives(&self) -> Relatives {
        let budget = &self.allowance.budget;
        Relatives {
            shares_much: budget.shares_much(),
            is_worth_unsharing: budget.is_worth_unsharing(),
            leads: budget.leads(),
            is_waited_for: self.control.fork.is_under_way()
                || self.control.life.is_stopped()
                || !self.memory.hints.is_empty(),
        }
    }

    /// Returns whether another run fits into limbo.
    pub(crate) fn limbo_has_room(&mut self) -> bool {
        let shares_much = self.allowance.budget.shares_much();
        let most = self.policy.limbo_max(self.store.limbo_target, shares_much);
        self.store.limbo_pages < most && !self.store.limbo.ring().is_full()
    }

    /// Puts the waiting faults in the way of being served when it is this process's turn; otherwise
    /// the faults that were read wait too. `away` is what this process has away.
    pub(crate) fn wait_for_turn(&mut self, away: Bytes) {
        let faults = &mut self.memory.faults;
        if faults.pending.is_empty() && faults.for_turn.is_empty() {
            return;
        }
        let is_exempt = self.allowance.shall_thaw()
            || self.control.holds.is_held()
            || self.control.fork.is_under_way();
        if !self.allowance.plays(is_exempt, away.pages_down()) {
            // A page that comes from disk has a buffer that others may wait for, and a copy brings
            // nothing in.
            let wait = &mut faults.for_turn;
            faults.pending.retain(|fault| {
                let goes_on = fault.is_coming || fault.is_protected;
                if !goes_on {
                    wait.push(*fault);
                }
                goes_on
            });
            return;
        }
        self.allowance.count(Counter::TurnWaits, faults.for_turn.len());
        let ticks = cpu::ticks();
        for mut fault in faults.for_turn.drain(..) {
            self.allowance.waited.for_turn_ticks += fault.wait_until(ticks);
            faults.pending.push_back(fault);
        }
    }

    /// Notes that a fault has been served, and returns how long that took, in ticks.
    pub(crate) fn note_served(&mut self, fault: &Fault) -> u64 {
        let served = cpu::ticks().wrapping_sub(fault.read_at_ticks);
        self.allowance.waited.served_ticks += served;
        served
    }

    /// Checks the invariants of the next pages from `from` on, and returns where to go on.
    ///
    /// # Panics
    /// If one does not hold.
    pub(crate) fn check_some(&self, from: PageNumber) -> PageNumber {
        let mut at = from;
        for _ in 0..CHECKED_TOGETHER {
            let next = self.memory.pages.next_known(at..PageNumber(usize::MAX / 2));
            let Some((page, state)) = next else { return PageNumber(0) };
            self.memory.check(page, state);
            self.store.check(page, state);
            at = page.plus(1);
        }
        at
    }
}
