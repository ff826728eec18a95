//! The gate: while a change of the address space is under way no page can be put anywhere. A thread
//! that makes change after change leaves a microsecond between them, which nobody else may run to
//! see. So one whose change comes to us first waits before it while the service looks for
//! such a moment.

use core::sync::atomic::Ordering;

use coldpress_sys::futex;

use super::Control;

const OPEN: u32 = 0;
const CLOSED: u32 = 1;
/// The longest wait before a change: whatever the service does meanwhile, the program goes
/// on.
const PASSED_AFTER_NS: u64 = 2_000_000;

impl Control {
    /// For a thread of the program, before a change: waits while the gate is closed.
    pub fn pass_gate(&self) {
        // Relaxed: it says nothing of other memory, and one change more or less before it is seen
        // is no matter.
        if self.gate.load(Ordering::Relaxed) == CLOSED {
            futex::wait(&self.gate, CLOSED, Some(PASSED_AFTER_NS));
        }
    }

    /// For the service: changes wait.
    pub fn close_gate(&self) {
        // Relaxed: as above.
        self.gate.store(CLOSED, Ordering::Relaxed);
    }

    /// For the service: what needed quiet is done.
    pub fn open_gate(&self) {
        // Relaxed, both: as above; nobody else writes it.
        if self.gate.load(Ordering::Relaxed) == CLOSED {
            self.gate.store(OPEN, Ordering::Relaxed);
            futex::wake_all(&self.gate);
        }
    }
}
