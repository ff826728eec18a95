//! Holds, and the stage that they wait for: every page is in place, and stays there.
//!
//! To fork without a frozen service, a thread takes a *hold* and waits until the service is
//! *quiet*: every page is back, and none is taken out until the last hold is gone. No eviction
//! slips through. Proof: the forker raises `count`, then reads `stage`; the service sets `stage` to
//! managing, then reads `count`. All four accesses are sequentially consistent, so at least one
//! side sees the other. Between the last release and the end of the quiet period a new forker
//! proceeds at once, so the service takes nothing out before `end_quiet` has confirmed that no hold
//! is left.

use core::sync::atomic::{AtomicU32, Ordering};

use coldpress_sys::futex;

use super::{Control, LOOK_AGAIN_NS};

/// The stage that the service has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stage {
    /// No service exists, or the service only watches.
    Watching = 0,
    /// Pages may be away from the program.
    Managing = 1,
}

/// The words of the threads that hold, and of the service that takes pages out.
pub(crate) struct Holds {
    /// The number of threads that want every page in place.
    count: AtomicU32,
    /// 1 while every page is in place and stays there.
    quiet: AtomicU32,
    /// The stage that the service has reached.
    stage: AtomicU32,
}

impl Holds {
    pub(super) const fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            quiet: AtomicU32::new(0),
            stage: AtomicU32::new(Stage::Watching as u32),
        }
    }

    /// Forgets holds and stage. For the child of `fork`, which has one thread and no service.
    pub(super) fn reset(&self) {
        for word in [&self.count, &self.quiet, &self.stage] {
            // Relaxed: there is no other thread.
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether pages may be away from the program. For a thread that has just made a
    /// sequentially consistent store, which the service reads after it has set the stage.
    pub(super) fn is_managing_now(&self) -> bool {
        // SeqCst pairs with `set_stage`.
        self.stage.load(Ordering::SeqCst) == Stage::Managing as u32
    }

    /// Whether any thread wants every page in place.
    pub(crate) fn is_held(&self) -> bool {
        // SeqCst pairs with `hold`.
        self.count.load(Ordering::SeqCst) != 0
    }

    /// Whether a forker may find every page in place. Then nothing may be taken out, even when no
    /// hold is left.
    pub(crate) fn is_quiet(&self) -> bool {
        // Relaxed: only the service changes this word, and only the service asks.
        self.quiet.load(Ordering::Relaxed) != 0
    }

    /// Notes that every page is in place now, and wakes the forkers that wait for that.
    pub(crate) fn set_quiet(&self) {
        // SeqCst pairs with the load in `hold`.
        self.quiet.store(1, Ordering::SeqCst);
        futex::wake_all(&self.quiet);
    }

    /// Returns whether the quiet period has ended: false while a thread still holds.
    pub(crate) fn end_quiet(&self) -> bool {
        // SeqCst, both: pairs with the load in `hold`. A forker that read 1 before this store had
        // raised `count` before, so the check below sees it.
        self.quiet.store(0, Ordering::SeqCst);
        if self.is_held() {
            self.quiet.store(1, Ordering::SeqCst);
            return false;
        }
        true
    }
}

impl Control {
    /// Takes a hold: returns when every page of the program is in place, to stay there until
    /// [`Control::release`]. Returns at once in a process without a service of its own.
    pub(crate) fn hold(&self) {
        if !self.is_owner() {
            return;
        }
        // SeqCst, both: pairs with `is_held`, `set_quiet` and `end_quiet`; see the proof at the
        // head of this file.
        self.holds.count.fetch_add(1, Ordering::SeqCst);
        while self.holds.is_managing_now() && self.holds.quiet.load(Ordering::SeqCst) == 0 {
            self.bell.ring(0);
            futex::wait(&self.holds.quiet, 0, Some(LOOK_AGAIN_NS));
        }
    }

    /// Ends a hold.
    pub(crate) fn release(&self) {
        if !self.is_owner() {
            return;
        }
        // SeqCst pairs with `is_held`.
        self.holds.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether pages may be away from the program. Only for decisions where a stale answer costs no
    /// more than time.
    pub(crate) fn is_managing(&self) -> bool {
        // Relaxed: a stale answer is good enough.
        self.holds.stage.load(Ordering::Relaxed) == Stage::Managing as u32
    }

    /// Sets the stage that the service has reached.
    pub(crate) fn set_stage(&self, stage: Stage) {
        // SeqCst pairs with `is_managing_now`, which `hold` and `give_up` ask.
        self.holds.stage.store(stage as u32, Ordering::SeqCst);
        self.looks.answer(self.looks.asked());
        // No service has heard, or will hear, the threads that rang a former service or none.
        self.bell.finish_hints();
    }
}
