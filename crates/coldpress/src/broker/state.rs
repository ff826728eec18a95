//! What the broker's thread works with, and what all its parts ask of it.

use std::sync::Arc;

use coldpress_runtime::ledger::Keeper;
use coldpress_sys::PageCount;

use super::account::{Account, InPlace};
use super::along::Along;
use super::door::Door;
use super::member::Member;
use super::outliving::Outliving;
use super::psi::Pressure;
use super::reports::Reports;
use super::required::Required;
use super::shared::Shared;
use super::sizing::Sizing;
use super::supplies::Supplies;
use super::totals::Totals;
use super::unmanaged::UnmanagedOfRun;
use super::unseated::Unseated;
use super::voice::Voice;
use crate::control::Changeable;
use crate::view::View;

/// Everything the broker's thread works with.
pub(crate) struct Serving {
    pub(super) door: Door,
    /// Whether processes of other users are managed.
    pub(super) takes_others: bool,
    pub(super) ledger: Arc<Keeper>,
    pub(super) supplies: Supplies,
    pub(super) members: Vec<Member>,
    pub(super) unseated: Unseated,
    pub(super) shared: Shared,
    pub(super) in_place: InPlace,
    pub(super) sizing: Sizing,
    /// The account at the time when the run held most.
    pub(super) at_peak: Account,
    pub(super) unmanaged: UnmanagedOfRun,
    /// The machine's memory: no process can hold more.
    pub(super) memory: PageCount,
    pub(super) totals: Totals,
    /// The settings that hold now, as the ledger has them.
    pub(super) now: Changeable,
    /// The need of other programs for a part of the budget, under `auto`.
    pub(super) pressure: Pressure,
    /// The view of the machine's memory that programs are shown.
    pub(super) view: Option<View>,
    pub(super) voice: Voice,
    /// Whether the program runs or has run.
    pub(super) has_started: bool,
    pub(super) is_trial: bool,
    pub(super) reports: Reports,
    pub(super) outliving: Outliving,
    pub(super) along: Along,
    /// Services that ended recently.
    pub(super) services: Vec<u32>,
    /// The demand that every process that holds much is managed, if the user makes it.
    pub(super) required: Option<Required>,
}

impl Serving {
    /// Returns the counts of all processes, including those that have ended.
    pub(super) fn totals_now(&self) -> Totals {
        let mut totals = self.totals.after(self.reports.timeline.age());
        for member in &self.members {
            totals.add(&self.ledger, member.seat);
        }
        totals
    }

    pub(super) fn free_seat(&self, seat: usize) {
        self.supplies.close_own(seat);
        self.ledger.assign(seat, 0, PageCount(0));
    }
}
