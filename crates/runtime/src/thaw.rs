//! Thawing: every page is brought back and stays, for debuggers and core dumps.
//!
//! Whoever stops a process stops its service thread too, so that nobody could bring a page back to
//! a debugger; and the kernel waits for no page when it writes a core. So all of them must be there
//! before. Nothing is taken out meanwhile, whatever the budget says. A part comes back at a time,
//! and faults are served in between.

use coldpress_sys::PageCount;

use crate::knobs::Knob;
use crate::manager::Manager;
use crate::pages::PageNumber;

/// Pages looked at in a turn: a few milliseconds when all of them are away.
const PAGES_AT_A_TIME: usize = 256;

/// How far it has come.
#[derive(Default)]
pub(crate) struct Thaw {
    /// Where this pass goes on, and whether it has found any page.
    next: PageNumber,
    has_found: bool,
    is_done: bool,
}

impl Manager {
    /// Whether the user wants every page in the program.
    pub(crate) fn shall_thaw(&self) -> bool {
        self.tuning.knobs.get(Knob::Thawed) != 0
    }

    /// Pages may be taken out again.
    pub(crate) fn end_thaw(&mut self) {
        self.ledger.seats[self.seat].set_thawed(false);
        self.tuning.thaw = Thaw::default();
    }

    /// Brings some pages back if the user wants that; whether there may be more.
    pub(crate) fn thaw_step(&mut self) -> bool {
        if !self.shall_thaw() || self.tuning.thaw.is_done {
            return false;
        }
        let (next, count) = self.bring_back_some(self.tuning.thaw.next, PAGES_AT_A_TIME);
        self.tuning.thaw.has_found |= count > PageCount(0);
        if let Some(next) = next {
            self.tuning.thaw.next = next;
            return true;
        }
        // Pages may move behind (mremap), so only a pass that finds none is the last.
        let is_done = !self.tuning.thaw.has_found;
        self.tuning.thaw = Thaw { is_done, ..Thaw::default() };
        if is_done {
            self.read_gauges();
            self.ledger.seats[self.seat].set_thawed(true);
        }
        !is_done
    }
}
