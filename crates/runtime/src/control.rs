//! The words through which the program's threads and the service communicate, in the memory that
//! they share.
//!
//! The child of a `fork` has only the forking thread. Where a page is away from the program, the
//! child's copy of it reads as zeros. There are two ways to fork safely:
//!
//! - *Frozen*: the service sleeps at a point where its state is consistent (quiesced). The child
//!   inherits that state, and a service of its own takes it over before anything else runs in the
//!   child (`heir`). The forker asks (`fork`). The service either refuses, or grants the request
//!   and sleeps until the forker releases it.
//! - *Held*: every page is brought back first, so that the child needs nothing. This serves forks
//!   that cannot be caught in the middle, and forks for which the service refused to freeze
//!   (`holds`).
//!
//! The *bell* wakes the service, which sleeps on its userfaultfd and shares no descriptor with the
//! program. A thread rings by dropping a page of the bell (madvise): that sends an event to the
//! userfaultfd, and the call returns once the service has read the event. Each page but the first
//! belongs to a *hint*, a range for which a thread waits. Either the thread has just mapped the
//! range and waits until it is registered, because it would otherwise touch the range faster than
//! any look could notice; or the program has the range for itself (`given`), and the service must
//! give it up before the thread goes on.

mod fork;
mod gate;
mod given;
mod holds;
mod life;
mod looks;
mod room;

use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use coldpress_sys::map::Span;
use coldpress_sys::{Bytes, PAGE_BYTES, SysResult, cpu, futex, raw};

use crate::stay::Stay;
pub use fork::{FILES_MAX, Fork, Needs, TOUCHED};
pub use given::{Given, Ranges, pages_of};
pub use holds::{Holds, Stage};
pub use life::Life;
pub use looks::Looks;
pub use room::Room;

/// The time after which a waiting thread looks again, in case a wake-up is lost.
const LOOK_AGAIN_NS: u64 = 10_000_000;

/// The number of threads that can wait with a hint at a time; further threads go on without one.
const HINTS: usize = 16;
/// Pages of the bell: one to wake the service, one for each hint.
pub const BELL_PAGES: usize = 1 + HINTS;

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

/// The words shared between the program's threads and the service.
pub struct Control {
    /// Whether threads wait at the gate before they change the address space.
    gate: AtomicU32,
    /// 1 once the program has guard pages. Never cleared: children have the guard pages too.
    guards: AtomicU32,
    /// 1 once the program has asked how much memory the machine has.
    asked: AtomicU32,
    /// The id of the program's process. A child by `vfork` sees these words too, but is another
    /// process.
    owner: AtomicU32,
    /// The number shared by all processes that come from one process by forks; 0 before the first
    /// fork.
    family: AtomicU32,
    /// The address of the bell, 0 before there is one.
    bell: AtomicUsize,
    /// The same address, kept also while no userfaultfd watches the bell.
    bell_kept: AtomicUsize,
    hints: [Hint; HINTS],
    /// Whether the service may begin, lives, and must end.
    pub life: Life,
    /// What a forker and the service agree on, and what a child inherits.
    pub fork: Fork,
    /// Whether pages may be away, and the threads that want them in place.
    pub holds: Holds,
    /// The ranges and mutexes that the program has for itself.
    pub given: Given,
    /// The ranges that the program itself keeps from its children (MADV_DONTFORK).
    pub uninherited: Ranges,
    /// The place where executable memory waits in limbo.
    pub room: Room,
    /// Requests of threads for a look before management begins.
    pub looks: Looks,
    /// The threads that are kept on their processor.
    pub stay: Stay,
}

impl Control {
    /// Creates the words in their initial state.
    pub const fn new() -> Self {
        Self {
            gate: AtomicU32::new(0),
            guards: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            family: AtomicU32::new(0),
            bell: AtomicUsize::new(0),
            bell_kept: AtomicUsize::new(0),
            hints: [const {
                Hint {
                    state: AtomicU32::new(HINT_FREE),
                    start: AtomicUsize::new(NOWHERE),
                    length: AtomicUsize::new(0),
                }
            }; HINTS],
            life: Life::new(),
            fork: Fork::new(),
            holds: Holds::new(),
            given: Given::new(),
            uninherited: Ranges::new(),
            room: Room::new(),
            looks: Looks::new(),
            stay: Stay::new(),
        }
    }

    /// Resets every word to its initial state. For the child of `fork`, which has one thread and no
    /// service. The child keeps the bell if it `inherits` our memory.
    pub fn reset(&self, inherits: bool) {
        // Relaxed: there is no other thread.
        self.gate.store(0, Ordering::Relaxed);
        self.note_owner();
        // Relaxed, here and below: as above.
        if !inherits {
            self.bell.store(0, Ordering::Relaxed);
            self.bell_kept.store(0, Ordering::Relaxed);
            self.room.reset();
        }
        for hint in &self.hints {
            // Relaxed, both: there is no other thread.
            hint.start.store(NOWHERE, Ordering::Relaxed);
            hint.state.store(HINT_FREE, Ordering::Relaxed);
        }
        // The ranges that the parent has kept from this child are not mapped here.
        self.uninherited.remove(&(0..usize::MAX));
        self.life.reset();
        self.fork.reset(inherits);
        self.holds.reset();
        self.looks.reset();
        self.stay.reset();
    }

    /// Notes that the program makes guard pages; the kernel sends no event for them.
    pub fn note_guards(&self) {
        // Release pairs with the Acquire in `has_guards`: a service that sees pages of that range
        // dropped, which happens later, sees this store too.
        self.guards.store(1, Ordering::Release);
    }

    /// Whether the program has guard pages.
    pub fn has_guards(&self) -> bool {
        // Acquire pairs with the Release in `note_guards`.
        self.guards.load(Ordering::Acquire) != 0
    }

    /// Notes that the program has asked how much memory the machine has.
    pub fn note_asked(&self) {
        // Relaxed, here and below: no other memory depends on this word.
        self.asked.store(1, Ordering::Relaxed);
    }

    /// Whether the program has asked how much memory the machine has.
    pub fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != 0
    }

    /// Notes the calling process as the program's.
    pub fn note_owner(&self) {
        // Relaxed: read back by the same process, or by one that it starts.
        self.owner.store(raw::process_id(), Ordering::Relaxed);
    }

    /// Returns the id of the program's process.
    pub fn program(&self) -> u32 {
        // Relaxed: written before the service was started.
        self.owner.load(Ordering::Relaxed)
    }

    /// Gives the program's family a number, if it has none: a thread is about to fork.
    pub fn begin_family(&self) {
        // Another family is unlikely to begin in the same nanosecond.
        let number = cpu::monotonic_ns() as u32 | 1;
        // Relaxed, both: no other memory depends on the number, and the fork comes after it.
        let _ = self.family.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the number of the program's family, 0 before the first fork.
    pub fn family(&self) -> u32 {
        // Relaxed: no other memory depends on this word.
        self.family.load(Ordering::Relaxed)
    }

    // For the program's threads.

    /// Whether the service, if there is one, belongs to the calling process.
    pub fn is_owner(&self) -> bool {
        // Relaxed: written by the same process, or not at all.
        self.owner.load(Ordering::Relaxed) == raw::process_id()
    }

    /// Reports memory that the calling thread has just mapped, and returns when it is registered,
    /// or will not be. A `length` of 0 says that there may be other memory to find; no change of
    /// the address space is under way when the call returns.
    pub fn hint(&self, start: usize, length: Bytes) {
        if self.is_owner() && !self.tell(start, length) && length == Bytes(0) {
            // A caller that has other memory looked for relies on the answer, so it tries again.
            while self.is_managing() && !self.tell(start, length) {
                cpu::sleep_ns(LOOK_AGAIN_NS / 100);
            }
        }
    }

    /// Has the service give up a range that the program has for itself from now on, and which
    /// `given` holds already. Returns when no page of the range is away or watched.
    pub fn give_up(&self, range: &Range<usize>) {
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
        let free = self.hints.iter().enumerate().find(|(_, hint)| {
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
        let is_heard = self.ring(1 + index);
        // Acquire pairs with the Release in `finish_hint`.
        while is_heard && self.is_managing() && hint.state.load(Ordering::Acquire) == HINT_TAKEN {
            futex::wait(&hint.state, HINT_TAKEN, Some(LOOK_AGAIN_NS));
        }
        // The next thread's hint must not be mistaken for what is left of this one.
        hint.start.store(NOWHERE, Ordering::Relaxed);
        // Release pairs with the Acquire of the next thread that takes this hint.
        hint.state.store(HINT_FREE, Ordering::Release);
        true
    }

    /// Returns whether there is a bell. Rings it by dropping its page of this number, and returns
    /// once the service has read the event.
    fn ring(&self, page: usize) -> bool {
        use linux_raw_sys::general as linux;
        // Acquire pairs with the Release in `make_bell`.
        let bell = self.bell.load(Ordering::Acquire);
        if bell != 0 {
            let advice = linux::MADV_DONTNEED as usize;
            let page = bell + page * PAGE_BYTES;
            // SAFETY: the bell's pages hold nothing and are never unmapped.
            unsafe { raw::syscall(linux::__NR_madvise, [page, PAGE_BYTES, advice, 0, 0, 0]) };
        }
        bell != 0
    }

    // For the service.

    /// Makes the bell, once per process. Its pages are never given back: a thread that rings late
    /// must find nothing else at their address.
    pub fn make_bell(&self) -> SysResult<()> {
        // Relaxed, here and below: the services of a process run one after another.
        if self.bell_kept.load(Ordering::Relaxed) == 0 {
            let span = Span::reserve(Bytes(BELL_PAGES * PAGE_BYTES), Bytes(PAGE_BYTES))?;
            self.bell_kept.store(span.address(), Ordering::Relaxed);
            core::mem::forget(span);
        }
        // Release pairs with the Acquire in `ring`.
        self.bell.store(self.bell_kept.load(Ordering::Relaxed), Ordering::Release);
        Ok(())
    }

    /// Returns the address of the bell; 0 before there is one.
    pub fn bell_address(&self) -> usize {
        // Relaxed: only the service sets it.
        self.bell.load(Ordering::Relaxed)
    }

    /// Returns the hint that a dropped page of the bell at `address` stands for: its number and its
    /// range. Returns `None` for other addresses, and for the page that only wakes the service.
    pub fn hint_at(&self, address: usize) -> Option<(usize, usize, Bytes)> {
        let index = address.checked_sub(self.bell_address())? / PAGE_BYTES;
        let hint = self.hints.get(index.checked_sub(1)?)?;
        // Relaxed: the event was sent after both were written.
        let (start, length) =
            (hint.start.load(Ordering::Relaxed), hint.length.load(Ordering::Relaxed));
        Some((index - 1, start, Bytes(length)))
    }

    /// Whether `address` is in the bell.
    pub fn is_bell(&self, address: usize) -> bool {
        address.wrapping_sub(self.bell_address()) < BELL_PAGES * PAGE_BYTES
    }

    /// Whether a thread still waits with hint `index` for this range. It does until the service
    /// lets it go on; a thread whose hint came while the service began does not.
    pub fn is_waited_for(&self, index: usize, start: usize, length: Bytes) -> bool {
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
    pub fn finish_hint(&self, index: usize) {
        let state = &self.hints[index].state;
        // Release pairs with the Acquire in `tell`. Only a hint with which a thread waits changes:
        // a thread that gave up has freed its hint.
        let _ = state.compare_exchange(HINT_TAKEN, HINT_DONE, Ordering::Release, Ordering::Relaxed);
        futex::wake_all(state);
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
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
        let hint = &control.hints[0];
        let holds = |start, mib| control.is_waited_for(0, start, Bytes::mib(mib));
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
        control.finish_hint(0);
        assert!(!holds(start, 1));
    }
}
