//! What the program's threads and the service say to each other in the memory that they share.
//!
//! The child of a `fork` has only the forking thread, and where a page is out of the program, its
//! copy of it is zero. There are two ways to fork:
//!
//! - *Frozen*: the service sleeps at a place where its state is whole. The child inherits
//!   that state, and a service of its own takes it over before anything else happens in it
//!   (`heir`). The forker asks, the service grants or refuses and sleeps until the forker
//!   lets it go.
//! - *Held*: everything is brought back first, so that the child needs nothing. That is for forks
//!   that cannot be caught in the middle, and where freezing was refused.
//!
//! For the second a forking thread takes a *hold* and waits until the service is *quiet*:
//! everything brought back, nothing taken out until the last hold is gone. The proof that no
//! eviction slips through: the forker raises `holds`, then reads `stage`; the service sets
//! `stage` to managing, then reads `holds`. All four are sequentially consistent, so at least one
//! of them sees the other. Between the last release and the end of the quiet a new forker goes on
//! at once, so nothing is taken out before `end_quiet` has said that there is none.
//!
//! The *bell* wakes the service, which sleeps on its userfaultfd and shares no descriptor
//! with the program: dropping a page of the bell (madvise) sends an event there, and returns once
//! it is read. Each page but the first belongs to a *hint*: a range that a thread has just mapped,
//! and waits to see registered before it goes on to touch it faster than anybody could look; or one
//! that the program has for itself (`given`), and which is to be given up before it goes on.

mod freeze;
mod gate;
mod given;
mod looks;
mod room;

use core::ffi::c_void;
use core::ops::Range;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use coldpress_sys::map::Span;
use coldpress_sys::{Bytes, PAGE_BYTES, SysResult, cpu, futex, raw};

use crate::stay::Stay;
pub use freeze::{FILES_MAX, Needs, TOUCHED};
use freeze::{FORK_NONE, NO_FILE};
pub use given::{Given, Ranges, pages_of};
pub use looks::Looks;
pub use room::Room;

/// How far the service has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stage {
    /// There is none, or it only watches.
    Watching = 0,
    /// Pages may be out of the program.
    Managing = 1,
}

/// A waiting forker looks again after this long, should a wake-up be lost.
const LOOK_AGAIN_NS: u64 = 10_000_000;

/// Threads that can wait with a hint at a time; more go on without.
const HINTS: usize = 16;
/// Pages of the bell: one to wake the service, one for each hint.
pub const BELL_PAGES: usize = 1 + HINTS;

/// A range just mapped.
struct Hint {
    state: AtomicU32,
    start: AtomicUsize,
    length: AtomicUsize,
}

/// None was started: the program is small.
const START_WAITS: u32 = 0;
/// One was, or could not be.
const START_BEGUN: u32 = 1;
/// None may be now.
const START_BARRED: u32 = 2;
/// A thread starts one.
const START_BUSY: u32 = 3;

/// Where a hint begins that nobody uses.
const NOWHERE: usize = usize::MAX;
/// Nobody uses the hint.
const HINT_FREE: u32 = 0;
/// A thread fills it in, or waits.
const HINT_TAKEN: u32 = 1;
/// The service is done with it.
const HINT_DONE: u32 = 2;

/// The words shared between the program's threads and the service.
pub struct Control {
    /// What became of the wish to freeze; of one forker at a time (`preload::fork`).
    fork: AtomicU32,
    /// The forker's needs.
    fork_stack: AtomicUsize,
    fork_touched: [AtomicUsize; TOUCHED],
    /// What the service leaves to its heir in a child.
    legacy: AtomicPtr<c_void>,
    /// Descriptors of the files that a child inherits: of the service while it is frozen,
    /// of the forker in the child.
    files: [AtomicI32; FILES_MAX],
    /// 1 while the service of a child has not taken over yet.
    inheriting: AtomicU32,
    /// Threads that want everything in place.
    holds: AtomicU32,
    /// 1 while everything is in place and stays there.
    quiet: AtomicU32,
    /// 1 when the service shall bring everything back and end.
    stop: AtomicU32,
    /// Whether changes of the address space wait.
    gate: AtomicU32,
    /// 1 once the program has guard pages, for good: children have them too.
    guards: AtomicU32,
    /// 1 once the program was told how much memory the machine has.
    asked: AtomicU32,
    stage: AtomicU32,
    /// The service's process; the kernel clears and wakes it when that ends.
    alive: AtomicU32,
    /// The program's process: a child by `vfork` sees these words, and is another.
    owner: AtomicU32,
    /// Whether a service may be started, and was.
    start: AtomicU32,
    /// The same number for all that come from one process by forks; 0 before there were any.
    family: AtomicU32,
    /// 1 while a thread stops and starts the service: one at a time may.
    alone: AtomicU32,
    /// Address of the bell's page, 0 before there is one.
    bell: AtomicUsize,
    /// The same, also while no userfaultfd knows it.
    bell_kept: AtomicUsize,
    hints: [Hint; HINTS],
    /// What the program has for itself.
    pub given: Given,
    /// What the program itself keeps from its children (MADV_DONTFORK).
    pub uninherited: Ranges,
    /// Where executable memory waits in limbo.
    pub room: Room,
    /// Who asks to be looked at before there is management.
    pub looks: Looks,
    /// The threads that are kept on their processor.
    pub stay: Stay,
}

impl Control {
    /// Words at rest.
    pub const fn new() -> Self {
        Self {
            fork: AtomicU32::new(FORK_NONE),
            fork_stack: AtomicUsize::new(0),
            fork_touched: [const { AtomicUsize::new(0) }; TOUCHED],
            legacy: AtomicPtr::new(core::ptr::null_mut()),
            files: [const { AtomicI32::new(NO_FILE) }; FILES_MAX],
            inheriting: AtomicU32::new(0),
            holds: AtomicU32::new(0),
            quiet: AtomicU32::new(0),
            stop: AtomicU32::new(0),
            gate: AtomicU32::new(0),
            guards: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            stage: AtomicU32::new(Stage::Watching as u32),
            alive: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            start: AtomicU32::new(START_WAITS),
            family: AtomicU32::new(0),
            alone: AtomicU32::new(0),
            bell: AtomicUsize::new(0),
            bell_kept: AtomicUsize::new(0),
            hints: [const {
                Hint {
                    state: AtomicU32::new(HINT_FREE),
                    start: AtomicUsize::new(NOWHERE),
                    length: AtomicUsize::new(0),
                }
            }; HINTS],
            given: Given::new(),
            uninherited: Ranges::new(),
            room: Room::new(),
            looks: Looks::new(),
            stay: Stay::new(),
        }
    }

    /// Back to rest. For the child of `fork`, which has one thread and no service. It keeps
    /// the bell if it `inherits` memory of ours.
    pub fn reset(&self, inherits: bool) {
        let words = [&self.holds, &self.quiet, &self.stop, &self.stage, &self.alive];
        for word in words.into_iter().chain([&self.alone, &self.gate]) {
            // Relaxed: there is no other thread.
            word.store(0, Ordering::Relaxed);
        }
        self.note_owner();
        // Relaxed, here and below: as above.
        self.start.store(START_WAITS, Ordering::Relaxed);
        self.fork.store(FORK_NONE, Ordering::Relaxed);
        self.inheriting.store(u32::from(inherits), Ordering::Relaxed);
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
        // What the parent has kept from it is not there.
        self.uninherited.remove(&(0..usize::MAX));
        self.looks.reset();
        self.stay.reset();
    }

    /// The program makes guard pages, of which the kernel does not tell.
    pub fn note_guards(&self) {
        // Release pairs with the Acquire in `has_guards`: who sees pages of that range dropped, as
        // comes after this, sees this.
        self.guards.store(1, Ordering::Release);
    }

    /// Whether the program has guard pages.
    pub fn has_guards(&self) -> bool {
        // Acquire pairs with the Release in `note_guards`.
        self.guards.load(Ordering::Acquire) != 0
    }

    /// The program was told how much memory the machine has.
    pub fn note_asked(&self) {
        // Relaxed, here and below: it stands for itself.
        self.asked.store(1, Ordering::Relaxed);
    }

    /// Whether the program was told how much memory the machine has.
    pub fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != 0
    }

    /// The word that tells whether the service lives: its process, or 0.
    pub fn alive(&self) -> &AtomicU32 {
        &self.alive
    }

    /// The calling process is the program.
    pub fn note_owner(&self) {
        // Relaxed: read back by the same process, or by one that it starts.
        self.owner.store(raw::process_id(), Ordering::Relaxed);
    }

    /// The program's process.
    pub fn program(&self) -> u32 {
        // Relaxed: written before the service was started.
        self.owner.load(Ordering::Relaxed)
    }

    /// A thread is about to fork.
    pub fn begin_family(&self) {
        // No other is likely to begin at the same nanosecond.
        let number = cpu::monotonic_ns() as u32 | 1;
        // Relaxed, both: it stands for itself, and is there by the fork that comes after.
        let _ = self.family.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The family of the program.
    pub fn family(&self) -> u32 {
        // Relaxed: it stands for itself.
        self.family.load(Ordering::Relaxed)
    }

    /// Whether the caller shall start a service now: there was none yet, and nothing bars it. True
    /// once; then its signals must stay blocked until [`Control::end_start`].
    pub fn begin_start(&self) -> bool {
        // Relaxed, both: who is told true starts it by a call to the kernel, which orders all else.
        self.start.load(Ordering::Relaxed) == START_WAITS
            && self.is_owner()
            && (self.start)
                .compare_exchange(START_WAITS, START_BUSY, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// No service may be started; whether there was one, which has been stopped.
    pub fn bar_start(&self) -> bool {
        loop {
            // Acquire pairs with the Release in `end_start`: the service is there to be stopped.
            let state = self.start.load(Ordering::Acquire);
            if state == START_BUSY {
                cpu::sleep_ns(LOOK_AGAIN_NS);
                continue;
            }
            // Acquire, as above. Relaxed on failure: looked at again.
            let barred = (self.start).compare_exchange(
                state,
                START_BARRED,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            if barred.is_ok() {
                return state == START_BEGUN;
            }
        }
    }

    /// The service was started, or could not be.
    pub fn end_start(&self) {
        // Release pairs with the Acquire in `bar_start`.
        self.start.store(START_BEGUN, Ordering::Release);
    }

    /// Whether a service may be started. For decisions that cost time only.
    pub fn may_start(&self) -> bool {
        // Relaxed: `begin_start` looks again.
        self.start.load(Ordering::Relaxed) == START_WAITS
    }

    /// Whether a service was started, or is being.
    pub fn has_begun(&self) -> bool {
        // Relaxed: for decisions that cost time or memory only.
        [START_BEGUN, START_BUSY].contains(&self.start.load(Ordering::Relaxed))
    }

    /// One may be started again, when it is worth it.
    pub fn allow_start(&self) {
        // Relaxed: see `begin_start`.
        self.start.store(START_WAITS, Ordering::Relaxed);
    }

    // For the program's threads.

    /// Whether the service, if there is one, belongs to the calling process.
    pub fn is_owner(&self) -> bool {
        // Relaxed: written by the same process, or not at all.
        self.owner.load(Ordering::Relaxed) == raw::process_id()
    }

    /// Returns when every page of the program is in place, to stay until [`Control::release`]. At
    /// once in a process without a service of its own.
    pub fn hold(&self) {
        if !self.is_owner() {
            return;
        }
        // SeqCst here and below: see the proof at the head of this file; pairs with
        // `set_stage`/`is_held`.
        self.holds.fetch_add(1, Ordering::SeqCst);
        while self.stage.load(Ordering::SeqCst) == Stage::Managing as u32
            && self.quiet.load(Ordering::SeqCst) == 0
        {
            self.ring(0);
            futex::wait(&self.quiet, 0, Some(LOOK_AGAIN_NS));
        }
    }

    /// Ends a hold.
    pub fn release(&self) {
        if !self.is_owner() {
            return;
        }
        // SeqCst pairs with `is_held`.
        self.holds.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits until no other thread stops and starts the service, and keeps them from it.
    pub fn begin_alone(&self) {
        // Acquire pairs with the Release in `end_alone`. Relaxed on failure: not ours.
        while self.alone.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            cpu::sleep_ns(LOOK_AGAIN_NS);
        }
    }

    /// Others may.
    pub fn end_alone(&self) {
        // Release pairs with the Acquire in `begin_alone`.
        self.alone.store(0, Ordering::Release);
    }

    /// Brings every page back and ends the service; returns when it has ended. Between
    /// [`Control::begin_alone`] and [`Control::end_alone`].
    pub fn stop_service(&self) {
        // SeqCst pairs with `is_stopped`.
        self.stop.store(1, Ordering::SeqCst);
        loop {
            // Acquire pairs with the kernel's clearing store: what the service did has happened.
            let process = self.alive.load(Ordering::Acquire);
            if process == 0 {
                break;
            }
            self.looks.wake();
            self.ring(0);
            futex::wait(&self.alive, process, Some(LOOK_AGAIN_NS));
        }
        // SeqCst pairs with `is_stopped` of the next service.
        self.stop.store(0, Ordering::SeqCst);
        // Release pairs with the Acquire in `ring`. The bell was registered with the userfaultfd
        // that has gone; the next service registers it again.
        self.bell.store(0, Ordering::Release);
    }

    /// Whether pages may be out of the program. For decisions that cost time only.
    pub fn is_managing(&self) -> bool {
        // Relaxed: a stale answer is as good.
        self.stage.load(Ordering::Relaxed) == Stage::Managing as u32
    }

    /// Tells of memory that the calling thread has just mapped; returns when it is registered, or
    /// will not be. Of no length: there may be other memory to be found, and no change of the
    /// address space is under way when it returns.
    pub fn hint(&self, start: usize, length: Bytes) {
        if self.is_owner() && !self.tell(start, length) && length == Bytes(0) {
            // Who asks to be looked for needs that.
            while self.is_managing() && !self.tell(start, length) {
                cpu::sleep_ns(LOOK_AGAIN_NS / 100);
            }
        }
    }

    /// The program has this range for itself from now on, as `given` has it already; returns when
    /// nothing of it is away or watched.
    pub fn give_up(&self, range: &Range<usize>) {
        // SeqCst pairs with `set_stage`: see `given`.
        while self.stage.load(Ordering::SeqCst) == Stage::Managing as u32
            && !self.tell(range.start, Bytes(range.end - range.start))
        {
            // All hints are taken.
            cpu::sleep_ns(LOOK_AGAIN_NS / 100);
        }
    }

    /// As [`Control::hint`]; false at once when all hints are taken.
    fn tell(&self, start: usize, length: Bytes) -> bool {
        let free = self.hints.iter().enumerate().find(|(_, hint)| {
            // Acquire pairs with the Release below that freed it. Relaxed on failure: not ours.
            hint.state
                .compare_exchange(HINT_FREE, HINT_TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        });
        let Some((index, hint)) = free else { return false };
        // Relaxed: the bell's event orders it before the service's read.
        hint.length.store(length.0, Ordering::Relaxed);
        // Release pairs with the Acquire in `is_waited_for`: behind this start is its length.
        hint.start.store(start, Ordering::Release);
        let is_heard = self.ring(1 + index);
        // Acquire pairs with the Release in `finish_hint`.
        while is_heard && self.is_managing() && hint.state.load(Ordering::Acquire) == HINT_TAKEN {
            futex::wait(&hint.state, HINT_TAKEN, Some(LOOK_AGAIN_NS));
        }
        // Nobody shall take what is left of it for what the next one tells.
        hint.start.store(NOWHERE, Ordering::Relaxed);
        // Release pairs with the Acquire of the next thread that takes it.
        hint.state.store(HINT_FREE, Ordering::Release);
        true
    }

    /// Whether there is a bell.
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

    /// Makes the bell, once per process. Its page is never given back: a late ringer must find
    /// nothing else.
    pub fn make_bell(&self) -> SysResult<()> {
        // Relaxed, here and below: the services of a process follow each other.
        if self.bell_kept.load(Ordering::Relaxed) == 0 {
            let span = Span::reserve(Bytes(BELL_PAGES * PAGE_BYTES), Bytes(PAGE_BYTES))?;
            self.bell_kept.store(span.address(), Ordering::Relaxed);
            core::mem::forget(span);
        }
        // Release pairs with the Acquire in `ring`.
        self.bell.store(self.bell_kept.load(Ordering::Relaxed), Ordering::Release);
        Ok(())
    }

    /// Where the bell is; 0 before there is one.
    pub fn bell_address(&self) -> usize {
        // Relaxed: only the service sets it.
        self.bell.load(Ordering::Relaxed)
    }

    /// The hint that a dropped page of the bell at `address` stands for: its number and range.
    /// `None` for other addresses, and for the page that only wakes.
    pub fn hint_at(&self, address: usize) -> Option<(usize, usize, Bytes)> {
        let index = address.checked_sub(self.bell_address())? / PAGE_BYTES;
        let hint = self.hints.get(index.checked_sub(1)?)?;
        // Relaxed: the event was sent after they were written.
        let (start, length) =
            (hint.start.load(Ordering::Relaxed), hint.length.load(Ordering::Relaxed));
        Some((index - 1, start, Bytes(length)))
    }

    /// Whether `address` is in the bell.
    pub fn is_bell(&self, address: usize) -> bool {
        address.wrapping_sub(self.bell_address()) < BELL_PAGES * PAGE_BYTES
    }

    /// Whether a thread still waits with hint `index`, of that range: it does until the service
    /// lets it go on. One does not that came while the service began.
    pub fn is_waited_for(&self, index: usize, start: usize, length: Bytes) -> bool {
        let hint = &self.hints[index];
        // Acquire pairs with the Release that freed it, behind which the last range is not there,
        // and with the one of `start`. Relaxed: that orders it. A thread that has taken the hint
        // since, for the same range, waits likewise.
        start != NOWHERE
            && hint.state.load(Ordering::Acquire) == HINT_TAKEN
            && hint.start.load(Ordering::Acquire) == start
            && hint.length.load(Ordering::Relaxed) == length.0
    }

    /// Lets the thread go on that waits with hint `index`.
    pub fn finish_hint(&self, index: usize) {
        let state = &self.hints[index].state;
        // Release pairs with the Acquire in `hint`. Only a hint that is waited for: a thread that
        // gave up has freed it.
        let _ = state.compare_exchange(HINT_TAKEN, HINT_DONE, Ordering::Release, Ordering::Relaxed);
        futex::wake_all(state);
    }

    /// Says how far the service has come.
    pub fn set_stage(&self, stage: Stage) {
        // SeqCst pairs with the load in `hold`.
        self.stage.store(stage as u32, Ordering::SeqCst);
        self.looks.answer(self.looks.asked());
        // Nobody has heard, or will hear, those that rang another service or none.
        (0..HINTS).for_each(|index| self.finish_hint(index));
    }

    /// Whether anybody wants everything in place.
    pub fn is_held(&self) -> bool {
        // SeqCst pairs with `hold`.
        self.holds.load(Ordering::SeqCst) != 0
    }

    /// Whether the service shall end.
    pub fn is_stopped(&self) -> bool {
        // SeqCst pairs with `stop_service`.
        self.stop.load(Ordering::SeqCst) != 0
    }

    /// Whether a forker may find everything in place: then nothing may be taken out, also when
    /// nobody holds any more.
    pub fn is_quiet(&self) -> bool {
        // Relaxed: only the service, which asks, changes it.
        self.quiet.load(Ordering::Relaxed) != 0
    }

    /// Everything is in place now.
    pub fn set_quiet(&self) {
        // SeqCst pairs with the load in `hold`.
        self.quiet.store(1, Ordering::SeqCst);
        futex::wake_all(&self.quiet);
    }

    /// Tries to end the quiet: false when somebody still holds.
    pub fn end_quiet(&self) -> bool {
        // A forker that read 1 before this store raised `holds` before, so the check below sees it.
        self.quiet.store(0, Ordering::SeqCst);
        if self.is_held() {
            self.quiet.store(1, Ordering::SeqCst);
            return false;
        }
        true
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a range is believed that a thread has told of which has gone on since, and has
    //! unmapped a part of it; or one that nobody has told of.

    use super::*;

    #[test]
    fn a_hint_holds_while_its_thread_waits() {
        let (control, start) = (Control::new(), 1 << 20);
        let hint = &control.hints[0];
        let holds = |start, mib| control.is_waited_for(0, start, Bytes::mib(mib));
        // Nobody hears it, so its thread goes on at once.
        assert!(control.tell(start, Bytes::mib(2)));
        assert!(!holds(start, 2));
        // Another takes it, as `tell` does: nothing of the last one is left for it.
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
