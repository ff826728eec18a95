//! The bell, by which threads wake the service, and the hints, with which they wait for it.
//!
//! The service sleeps on its userfaultfd, and shares no descriptor with the program. A thread rings
//! by dropping a page of the *bell* (madvise): that sends an event to the userfaultfd, and the call
//! returns once the service has read the event. Each page but the first belongs to a *hint*, a
//! range for which a thread waits. Either the thread has just mapped the range and waits until it
//! is registered, because it would otherwise touch the range faster than any look could notice; or
//! the program has the range for itself (`given`), and the service must give it up before the
//! thread goes on.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use coldpress_sys::map::Span;
use coldpress_sys::{Bytes, PAGE_BYTES, SysResult, cpu, futex, raw};

use super::{Control, LOOK_AGAIN_NS};

/// The number of threads that can wait with a hint at a time; further threads go on without one.
const HINTS: usize = 16;
/// Pages of the bell: one to wake the service, one for each hint.
pub(crate) const BELL_PAGES: usize = 1 + HINTS;

/// A range for which a thread of the program waits: just mapped, or to be given up.
struct Hint {
    state: AtomicU32,
    start: AtomicUsize,
    length: AtomicUsize,
}

/// The start address of a hint that no thread uses.
const NOWHERE: usize = usize::MAX;
/// The state of a hint that no thread uses.
const HINT_FREE: u32 = 0;
/// The state of a hint that a thread fills in, or waits with.
const HINT_TAKEN: u32 = 1;
/// The state of a hint that the service has finished.
const HINT_DONE: u32 = 2;

/// The place of the bell, and the hints of the threads that ring it.
pub(crate) struct Bell {
    /// The address of the bell, 0 before there is one.
    address: AtomicUsize,
    /// The same address, kept also while no userfaultfd watches the bell.
    kept: AtomicUsize,
    hints: [Hint; HINTS],
}

impl Bell {
    pub(super) const fn new() -> Self {
        Self {
            address: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            hints: [const {
                Hint {
                    state: AtomicU32::new(HINT_FREE),
                    start: AtomicUsize::new(NOWHERE),
                    length: AtomicUsize::new(0),
                }
            }; HINTS],
        }
    }

    /// Frees every hint. For the child of `fork`, which has one thread, and keeps the bell if it
    /// `inherits` our memory.
    pub(super) fn reset(&self, inherits: bool) {
        if !inherits {
            // Relaxed, here and below: there is no other thread.
            self.address.store(0, Ordering::Relaxed);
            self.kept.store(0, Ordering::Relaxed);
        }
        for hint in &self.hints {
            // Relaxed, both: as above.
            hint.start.store(NOWHERE, Ordering::Relaxed);
            hint.state.store(HINT_FREE, Ordering::Relaxed);
        }
    }

    /// Returns whether there is a bell. Rings it by dropping its page of this number, and returns
    /// once the service has read the event.
    pub(super) fn ring(&self, page: usize) -> bool {
        use linux_raw_sys::general as linux;
        // Acquire pairs with the Release in `make`.
        let bell = self.address.load(Ordering::Acquire);
        if bell != 0 {
            let advice = linux::MADV_DONTNEED as usize;
            let page = bell + page * PAGE_BYTES;
            // SAFETY: the bell's pages hold nothing and are never unmapped.
            unsafe { raw::syscall(linux::__NR_madvise, [page, PAGE_BYTES, advice, 0, 0, 0]) };
        }
        bell != 0
    }

    /// Takes the bell away until the next service makes it: the userfaultfd with which it was
    /// registered is gone.
    pub(super) fn take_away(&self) {
        // Release pairs with the Acquire in `ring`.
        self.address.store(0, Ordering::Release);
    }

    /// Makes the bell, once per process. Its pages are never given back: a thread that rings late
    /// must find nothing else at their address.
    pub(crate) fn make(&self) -> SysResult<()> {
        // Relaxed, here and below: the services of a process run one after another.
        if self.kept.load(Ordering::Relaxed) == 0 {
            let span = Span::reserve(Bytes(BELL_PAGES * PAGE_BYTES), Bytes(PAGE_BYTES))?;
            self.kept.store(span.address(), Ordering::Relaxed);
            core::mem::forget(span);
        }
        // Release pairs with the Acquire in `ring`.
        self.address.store(self.kept.load(Ordering::Relaxed), Ordering::Release);
        Ok(())
    }

    /// Returns the address of the bell; 0 before there is one.
    pub(crate) fn address(&self) -> usize {
        // Relaxed: only the service sets it.
        self.address.load(Ordering::Relaxed)
    }

    /// Returns the hint that a dropped page of the bell at `address` stands for: its number and its
    /// range. Returns `None` for other addresses, and for the page that only wakes the service.
    pub(crate) fn hint_at(&self, address: usize) -> Option<(usize, usize, Bytes)> {
        let index = address.checked_sub(self.address())? / PAGE_BYTES;
        let hint = self.hints.get(index.checked_sub(1)?)?;
        // Relaxed: the event was sent after both were written.
        let (start, length) =
            (hint.start.load(Ordering::Relaxed), hint.length.load(Ordering::Relaxed));
        Some((index - 1, start, Bytes(length)))
    }

    /// Whether `address` is in the bell.
    pub(crate) fn has(&self, address: usize) -> bool {
        address.wrapping_sub(self.address()) < BELL_PAGES * PAGE_BYTES
    }

    /// Whether a thread still waits with hint `index` for this range. It does until the service
    /// lets it go on; a thread whose hint came while the service began does not.
    pub(crate) fn is_waited_for(&self, index: usize, start: usize, length: Bytes) -> bool {
        let hint = &self.hints[index];
        // Acquire of the state pairs with the Release that freed the hint, after which the last
        // range is gone. Acquire of the start pairs with the Release of `start`. Relaxed for the
        // length: that Acquire orders it. A thread that has since taken the hint for the same range
        // waits likewise.
        start != NOWHERE
            && hint.state.load(Ordering::Acquire) == HINT_TAKEN
            && hint.start.load(Ordering::Acquire) == start
            && hint.length.load(Ordering::Relaxed) == length.0
    }

    /// Lets the thread that waits with hint `index` go on.
    pub(crate) fn finish_hint(&self, index: usize) {
        let state = &self.hints[index].state;
        // Release pairs with the Acquire in `tell`. Only a hint with which a thread waits changes:
        // a thread that gave up has freed its hint.
        let _ = state.compare_exchange(HINT_TAKEN, HINT_DONE, Ordering::Release, Ordering::Relaxed);
        futex::wake_all(state);
    }

    /// Lets every thread go on that waits with a hint.
    pub(super) fn finish_hints(&self) {
        (0..HINTS).for_each(|index| self.finish_hint(index));
    }
}

impl Control {
    /// Reports memory that the calling thread has just mapped, and returns when it is registered,
    /// or will not be. A `length` of 0 says that there may be other memory to find; no change of
    /// the address space is under way when the call returns.
    pub(crate) fn hint(&self, start: usize, length: Bytes) {
        if self.is_owner() && !self.tell(start, length) && length == Bytes(0) {
            // A caller that has other memory looked for relies on the answer, so it tries again.
            while self.is_managing() && !self.tell(start, length) {
                cpu::sleep_ns(LOOK_AGAIN_NS / 100);
            }
        }
    }

    /// Has the service give up a range that the program has for itself from now on, and which
    /// `given` holds already. Returns when no page of the range is away or watched.
    pub(crate) fn give_up(&self, range: &Range<usize>) {
        // The service sees the range, or this thread sees the stage: see `given`.
        while self.holds.is_managing_now()
            && !self.tell(range.start, Bytes(range.end - range.start))
        {
            // Every hint is taken.
            cpu::sleep_ns(LOOK_AGAIN_NS / 100);
        }
    }

    /// Returns whether a hint was free: posts the range and waits as [`Control::hint`] does, or
    /// returns false at once when all hints are taken.
    fn tell(&self, start: usize, length: Bytes) -> bool {
        let free = self.bell.hints.iter().enumerate().find(|(_, hint)| {
            // Acquire pairs with the Release below that freed the hint. Relaxed on failure: another
            // thread has it.
            hint.state
                .compare_exchange(HINT_FREE, HINT_TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        });
        let Some((index, hint)) = free else { return false };
        // Relaxed: the bell's event orders this store before the service's read.
        hint.length.store(length.0, Ordering::Relaxed);
        // Release pairs with the Acquire in `is_waited_for`: a service that sees this start sees
        // its length.
        hint.start.store(start, Ordering::Release);
        let is_heard = self.bell.ring(1 + index);
        // Acquire pairs with the Release in `finish_hint`.
        while is_heard && self.is_managing() && hint.state.load(Ordering::Acquire) == HINT_TAKEN {
            futex::wait(&hint.state, HINT_TAKEN, Some(LOOK_AGAIN_NS));
        }
        // The next thread's hint must not be mistaken for what is left of this one. Relaxed: the
        // Release below orders it.
        hint.start.store(NOWHERE, Ordering::Relaxed);
        // Release pairs with the Acquire of the next thread that takes this hint.
        hint.state.store(HINT_FREE, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    //! The risk: the service believes a range whose thread has since gone on and unmapped a part of
    //! it, or a range that no thread has reported.

    use super::*;

    #[test]
    fn a_hint_holds_while_its_thread_waits() {
        let (control, start) = (Control::new(), 1 << 20);
        let hint = &control.bell.hints[0];
        let holds = |start, mib| control.bell.is_waited_for(0, start, Bytes::mib(mib));
        // No service hears the hint, so its thread goes on at once.
        assert!(control.tell(start, Bytes::mib(2)));
        assert!(!holds(start, 2));
        // Another thread takes the hint, as `tell` does: nothing of the last range is left for it.
        hint.state.store(HINT_TAKEN, Ordering::Relaxed);
        assert!(!holds(start, 2) && !holds(NOWHERE, 2));
        hint.length.store(1 << 20, Ordering::Relaxed);
        assert!(!holds(start, 2) && !holds(start, 1));
        hint.start.store(start, Ordering::Relaxed);
        assert!(holds(start, 1) && !holds(start, 2));
        control.bell.finish_hint(0);
        assert!(!holds(start, 1));
    }
}
