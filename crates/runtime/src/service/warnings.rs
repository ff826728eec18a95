//! Warnings: what the user is told of a budget that cannot be kept, and of a program that waits for
//! pages most of the time.

use core::fmt;

use coldpress_sys::Bytes;
use coldpress_zswap::StoreError;

use super::Service;
use crate::ledger::Told;

/// Locked memory that may always be there: up to this much, the user is not asked to lock less.
const LOCKED_IGNORED: Bytes = Bytes::mib(1);

impl Service {
    /// Warns the user, once in a run, when the budget cannot be kept, and says why.
    pub(super) fn look_at_immovable(&mut self) {
        let used = self.pager.allowance.budget.held_by_all().bytes();
        let total = self.pager.allowance.budget.total().bytes();
        if !core::mem::take(&mut self.pager.policy.stuck.since_look) || used <= total {
            return;
        }
        let is_shared = self.pager.allowance.ledger.shared().bytes().0 > total.0 / 2;
        let what = if is_shared { Told::OverByShared } else { Told::OverBudget };
        if !self.pager.allowance.ledger.is_first_to_tell(what) || is_shared {
            return;
        }
        let data = self
            .pager
            .memory
            .files
            .data_of_files(&mut self.pager.memory.maps_buffer)
            .unwrap_or_default();
        let locked = self.pager.memory.files.locked().unwrap_or_default();
        let mib = |bytes: Bytes| bytes.0.div_ceil(1 << 20);
        self.ties.warn(format_args!(
            "the budget of {} MiB cannot be kept: {} MiB are in use and nothing more can be moved \
             (in process {}, {} MiB are data of its program and libraries, and {} MiB are \
             locked{}); raise --memory, or run fewer processes at once{}",
            mib(total),
            mib(used),
            self.ties.process(),
            mib(data),
            mib(locked),
            Refusal(self.pager.policy.last_refusal),
            WayOut(self.pager.policy.last_refusal, locked)
        ));
    }

    /// Warns, once in a run, of a program that waits most of the time, and notes for the launcher
    /// whether the program has asked for the machine's memory. Called several times a second.
    pub(super) fn look_at_waits(&mut self) {
        if self.control.has_asked() {
            self.pager.allowance.ledger.seat(self.pager.allowance.seat).set_asked();
        }
        let now = self.pager.allowance.time.now_ns();
        if !self.pager.allowance.waits.is_over(now) {
            return;
        }
        let stalled = self.pager.allowance.stalled_ns();
        let Some(percent) =
            self.pager.allowance.waits.end(now, stalled, self.ties.program.ran_ns())
        else {
            return;
        };
        if self.pager.allowance.ledger.is_first_to_tell(Told::Waits) {
            let mib = |bytes: usize| bytes.div_ceil(1 << 20);
            let total = self.pager.allowance.budget.total().bytes().0;
            self.ties.warn(format_args!(
                "process {} has waited for pages for {percent} % of the last minute: it uses more \
                 memory than the budget of {} MiB has; in {} MiB all that it holds would stay in \
                 place",
                self.ties.process(),
                mib(total),
                mib(total.max(self.pager.allowance.budget.held_by_all().bytes().0)
                    + self.idle.saved().0),
            ));
        }
    }

    /// Tells the user that `processes` take turns.
    pub(super) fn warn_of_turns(&self, processes: u32) {
        self.ties.warn(format_args!(
            "{processes} processes touch more memory than the budget of {} MiB has, and take \
             turns; raise --memory, or start fewer at a time",
            self.pager.allowance.budget.total().bytes().0 >> 20
        ));
    }
}

/// Why zswap refused pages, as an aside, if it did.
struct Refusal(Option<StoreError>);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |error| write!(f, "; {error}"))
    }
}

/// What else the user can do about refused pages and about locked memory, named after other ways
/// out.
struct WayOut(Option<StoreError>, Bytes);

impl fmt::Display for WayOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1 > LOCKED_IGNORED {
            f.write_str(", or lock less")?;
        }
        f.write_str(match self.0 {
            Some(StoreError::Disabled) => ", or turn the knob enabled on",
            Some(StoreError::PoolFull) => {
                ", or give it a --disk (or a larger --disk-size), or turn the knob writeback on"
            }
            Some(StoreError::Incompressible) => ", or turn the knob keep_incompressible on",
            Some(StoreError::AboveMean) => ", or raise the knob max_mean_zsize",
            Some(StoreError::NoMemory) | None => "",
        })
    }
}
