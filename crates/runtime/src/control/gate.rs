//! The gate: while a change of the address space is under way, the kernel places no page anywhere.
//! A thread that makes change after change leaves a microsecond between them, in which no other
//! thread may get to run. So a thread whose change comes to our functions first waits at the gate
//! while the service looks for such a moment.

use core::sync::atomic::{AtomicU32, Ordering};

use coldpress_sys::futex;

const OPEN: u32 = 0;
const CLOSED: u32 = 1;
/// The longest wait before a change: the program then goes on, whatever the service is doing.
const PASSED_AFTER_NS: u64 = 2_000_000;

/// The word that says whether threads wait at the gate before they change the address space.
pub(crate) struct Gate(AtomicU32);

impl Gate {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(OPEN))
    }

    /// Opens the gate in the child of `fork`, which has one thread.
    pub(super) fn reset(&self) {
        // Relaxed: there is no other thread.
        self.0.store(OPEN, Ordering::Relaxed);
    }

    /// Waits while the gate is closed. For a thread of the program, before a change.
    pub(crate) fn pass(&self) {
        // Relaxed: the word guards no other memory, and one change more before it is seen does no
        // harm.
        if self.0.load(Ordering::Relaxed) == CLOSED {
            futex::wait(&self.0, CLOSED, Some(PASSED_AFTER_NS));
        }
    }

    /// Closes the gate, so that changes wait. For the service.
    pub(crate) fn close(&self) {
        // Relaxed: as above.
        self.0.store(CLOSED, Ordering::Relaxed);
    }

    /// Opens the gate: what needed quiet is done. For the service.
    pub(crate) fn open(&self) {
        // Relaxed, both: as above; only the service writes this word.
        if self.0.load(Ordering::Relaxed) == CLOSED {
            self.0.store(OPEN, Ordering::Relaxed);
            futex::wake_all(&self.0);
        }
    }
}
