//! What the broker's thread works with, and what all its parts ask of it.

use std::collections::HashSet;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use coldpress_runtime::ledger::Keeper;
use coldpress_sys::{OwnedFd, PageCount};

use super::account::{Account, InPlace};
use super::along::Along;
use super::door::Door;
use super::member::Member;
use super::outliving::Outliving;
use super::psi::Pressure;
use super::required::Required;
use super::shared::Shared;
use super::sizing::Sizing;
use super::stats::Totals;
use super::unmanaged::Found;
use super::unseated::Unseated;
use crate::control::Changeable;
use crate::helper::Helper;
use crate::record::Records;
use crate::say;
use crate::view::View;

/// The most users and processes that warnings name: more would fill a log.
const TOLD_OF_MAX: usize = 64;

/// Everything the broker's thread works with.
pub(crate) struct Serving {
    pub(super) door: Door,
    /// Whether processes of other users are managed.
    pub(super) takes_others: bool,
    /// The descriptors of the ledger's orders and of its seats.
    pub(super) ledger_fds: [OwnedFd; 2],
    pub(super) ledger: Arc<Keeper>,
    pub(super) helper: Option<Helper>,
    pub(super) device: Option<OwnedFd>,
    pub(super) disk: Option<PathBuf>,
    pub(super) records: Option<Records>,
    pub(super) members: Vec<Member>,
    pub(super) unseated: Unseated,
    pub(super) shared: Shared,
    pub(super) in_place: InPlace,
    pub(super) sizing: Sizing,
    /// The account at the time when the run held most.
    pub(super) at_peak: Account,
    pub(super) unmanaged: Found,
    /// Whether the user has heard that unmanaged processes pass the budget.
    pub(super) told_of_unmanaged: bool,
    /// The machine's memory: no process can hold more.
    pub(super) memory: PageCount,
    pub(super) totals: Totals,
    /// The settings that hold now, as the ledger has them.
    pub(super) now: Changeable,
    /// The need of other programs for a part of the budget, under `auto`.
    pub(super) pressure: Pressure,
    /// The view of the machine's memory that programs are shown.
    pub(super) view: Option<View>,
    pub(super) quiet: bool,
    pub(super) verbose: bool,
    /// Whether the program runs or has run.
    pub(super) has_started: bool,
    pub(super) is_trial: bool,
    pub(super) began: Instant,
    pub(super) outliving: Outliving,
    pub(super) along: Along,
    /// Services that ended recently.
    pub(super) services: Vec<u32>,
    /// Warnings printed: of users with enough seats, of processes not believed or not managed.
    pub(super) told_of: HashSet<(u32, &'static str)>,
    /// Whether the user has heard that nothing is managed.
    pub(super) has_told_of_none: bool,
    /// The demand that every process that holds much is managed, if the user makes it.
    pub(super) required: Option<Required>,
}

impl Serving {
    /// Returns the counts of all processes, including those that have ended.
    pub(super) fn totals_now(&self) -> Totals {
        let mut totals = self.totals.after(self.began.elapsed());
        for member in &self.members {
            totals.add(&self.ledger, member.seat);
        }
        totals
    }

    pub(super) fn free_seat(&self, seat: usize) {
        if let Some(helper) = &self.helper {
            helper.close_desk(seat);
        }
        self.ledger.assign(seat, 0, PageCount(0));
    }

    pub(super) fn warn(&self, warning: Option<impl Display>) {
        if let Some(warning) = warning
            && !self.quiet
        {
            say(format!("warning: {warning}"));
        }
    }

    /// Returns whether `what` may be said of `whom`, and was not yet: such warnings are limited.
    pub(super) fn is_news(&mut self, whom: u32, what: &'static str) -> bool {
        self.told_of.len() < TOLD_OF_MAX && self.told_of.insert((whom, what))
    }
}
