//! Thawing: every page is brought back and stays, for debuggers and core dumps.
//!
//! The kernel waits for no page when it writes a core, or when a debugger reads by /proc/PID/mem or
//! ptrace(2): these get an error. So all pages must be there before. Nothing is taken out
//! meanwhile, whatever the budget says. A part of the pages comes back at a time, and faults are
//! served in between.

use core::ops::Range;

use coldpress_sys::PageCount;

use super::Service;
use crate::allowance::Allowance;
use crate::pager::Pager;
use crate::pages::{PageNumber, PageState};

/// Pages looked at in one step: a few milliseconds when all of them are away.
const PAGES_AT_A_TIME: usize = 256;

/// Every page there may be.
const ALL: Range<PageNumber> = PageNumber(0)..PageNumber(usize::MAX / 2);

/// Most pages with a copy in the pool while everything is brought back.
const COPIES_MAX: usize = 256;

/// How far thawing has come.
#[derive(Debug, Default)]
pub(super) struct Thaw {
    /// Where this pass goes on, and whether it has found any page.
    next: PageNumber,
    has_found: bool,
    is_done: bool,
}

impl Thaw {
    /// Ends thawing: pages may be taken out again.
    pub(super) fn end(&mut self, allowance: &Allowance) {
        allowance.ledger.seat(allowance.seat).set_thawed(false);
        *self = Self::default();
    }
}

impl Service {
    /// Returns whether there may be more pages, after bringing some back if the user wants that.
    pub(super) fn thaw_step(&mut self) -> bool {
        if !self.pager.allowance.shall_thaw() || self.thaw.is_done {
            return false;
        }
        let rest = self.thaw.next..ALL.end;
        let (next, count) = bring_back_some(&mut self.pager, rest, PAGES_AT_A_TIME);
        self.thaw.has_found |= count > PageCount(0);
        if let Some(next) = next {
            self.thaw.next = next;
            return true;
        }
        // Pages may move behind the cursor (mremap), so only a pass that finds none is the last.
        let is_done = !self.thaw.has_found;
        self.thaw = Thaw { is_done, ..Thaw::default() };
        if is_done {
            self.read_gauges();
            let allowance = &self.pager.allowance;
            allowance.ledger.seat(allowance.seat).set_thawed(true);
        }
        !is_done
    }
}

/// Brings every page back into the program, whatever the budget says.
pub(super) fn bring_all_back(pager: &mut Pager) -> PageCount {
    bring_back(pager, ALL)
}

/// Brings back every page of a range, and returns how many were away.
pub(super) fn bring_back(pager: &mut Pager, range: Range<PageNumber>) -> PageCount {
    let mut total = PageCount(0);
    loop {
        // Pages may move behind the cursor (mremap), so only a pass that finds none is the last.
        let (_, count) = bring_back_some(pager, range.clone(), usize::MAX);
        total += count;
        if count == PageCount(0) {
            return total;
        }
    }
}

/// Brings back what is away of the first `most` known pages of a range. Returns where to go on, if
/// those were not all, and how many pages came.
fn bring_back_some(
    pager: &mut Pager,
    range: Range<PageNumber>,
    most: usize,
) -> (Option<PageNumber>, PageCount) {
    let (mut at, end, mut count) = (range.start, range.end, PageCount(0));
    for index in 0..most {
        if index.is_multiple_of(COPIES_MAX) {
            // Every page takes its room in the program now.
            while pager.store.drop_copies_in_pool() {}
        }
        let Some((page, state)) = pager.memory.pages.next_known(at..end) else {
            return (None, count);
        };
        if matches!(state, PageState::Limbo | PageState::Stored) {
            pager.bring_in(page);
            // An event reports a page that has gone from the program; the page must not be met
            // again.
            if pager.memory.pages.state(page) == state {
                pager.settle();
            }
            count += PageCount(usize::from(pager.memory.pages.state(page) != state));
        }
        at = page.plus(1);
    }
    (Some(at), count)
}
