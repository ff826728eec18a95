//! The life of the service: which thread starts it, whether it lives, and when it must end.
//!
//! One word says whether a service may be started. The thread that takes it from `START_WAITS` to
//! `START_BUSY` starts one, so no two threads do. A thread whose call needs a process without a
//! service bars the start, ends the service, makes the call, and may allow a start again. It does
//! all of that *alone*: no other thread does so at the same time.

use core::sync::atomic::{AtomicU32, Ordering};

use coldpress_sys::{cpu, futex};

use super::{Control, LOOK_AGAIN_NS};

/// The start state while no service was started: the program is small.
const START_WAITS: u32 = 0;
/// The start state once a service was started, or could not be.
const START_BEGUN: u32 = 1;
/// The start state while no service may be started.
const START_BARRED: u32 = 2;
/// The start state while a thread starts a service.
const START_BUSY: u32 = 3;

/// The words of the threads that start and stop the service, and of the service.
pub(crate) struct Life {
    /// Whether a service may be started, and whether one was.
    start: AtomicU32,
    /// 1 when the service must bring every page back and end.
    stop: AtomicU32,
    /// The id of the service's process. When that process ends, the kernel clears this word and
    /// wakes the threads that wait on it.
    alive: AtomicU32,
    /// 1 while a thread stops and starts the service; only one thread at a time may.
    alone: AtomicU32,
}

impl Life {
    pub(super) const fn new() -> Self {
        Self {
            start: AtomicU32::new(START_WAITS),
            stop: AtomicU32::new(0),
            alive: AtomicU32::new(0),
            alone: AtomicU32::new(0),
        }
    }

    /// Forgets the service. For the child of `fork`, which has one thread and no service.
    pub(super) fn reset(&self) {
        for word in [&self.stop, &self.alive, &self.alone] {
            // Relaxed, here and below: there is no other thread.
            word.store(0, Ordering::Relaxed);
        }
        self.start.store(START_WAITS, Ordering::Relaxed);
    }

    /// Returns the word that says whether the service lives: the id of its process, or 0.
    pub(crate) fn alive(&self) -> &AtomicU32 {
        &self.alive
    }

    /// Returns whether a service was started before (or could not be), and bars any start from now
    /// on.
    pub(crate) fn bar_start(&self) -> bool {
        loop {
            // Acquire pairs with the Release in `end_start`: a service that was started is there to
            // be stopped.
            let state = self.start.load(Ordering::Acquire);
            if state == START_BUSY {
                cpu::sleep_ns(LOOK_AGAIN_NS);
                continue;
            }
            // Acquire: as above. Relaxed on failure: the loop looks again.
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

    /// Notes that a service was started, or could not be.
    pub(crate) fn end_start(&self) {
        // Release pairs with the Acquire in `bar_start`.
        self.start.store(START_BEGUN, Ordering::Release);
    }

    /// Whether a service may be started. Only for decisions where a stale answer costs no more than
    /// time.
    pub(crate) fn may_start(&self) -> bool {
        // Relaxed: `begin_start` looks again.
        self.start.load(Ordering::Relaxed) == START_WAITS
    }

    /// Whether a service was started, or is being started.
    pub(crate) fn has_begun(&self) -> bool {
        // Relaxed: only for decisions where a stale answer costs time or memory.
        [START_BEGUN, START_BUSY].contains(&self.start.load(Ordering::Relaxed))
    }

    /// Allows a service to be started again, once memory makes it worthwhile.
    pub(crate) fn allow_start(&self) {
        // Relaxed: see `begin_start`.
        self.start.store(START_WAITS, Ordering::Relaxed);
    }

    /// Waits until no other thread stops and starts the service, and keeps other threads from doing
    /// so.
    pub(crate) fn begin_alone(&self) {
        // Acquire pairs with the Release in `end_alone`. Relaxed on failure: another thread has the
        // word.
        while self.alone.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            cpu::sleep_ns(LOOK_AGAIN_NS);
        }
    }

    /// Lets other threads stop and start the service again.
    pub(crate) fn end_alone(&self) {
        // Release pairs with the Acquire in `begin_alone`.
        self.alone.store(0, Ordering::Release);
    }

    /// Whether the service must end.
    pub(crate) fn is_stopped(&self) -> bool {
        // SeqCst pairs with `stop_service`.
        self.stop.load(Ordering::SeqCst) != 0
    }
}

impl Control {
    /// Whether the caller must start a service now: none was started yet, and nothing bars it. True
    /// for one caller only, which must keep its signals blocked until [`Life::end_start`].
    pub(crate) fn begin_start(&self) -> bool {
        // Relaxed, both: a caller that gets true starts the service by a system call, which orders
        // all else.
        self.life.start.load(Ordering::Relaxed) == START_WAITS
            && self.is_owner()
            && (self.life.start)
                .compare_exchange(START_WAITS, START_BUSY, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Brings every page back, ends the service, and returns when it has ended. To be called
    /// between [`Life::begin_alone`] and [`Life::end_alone`].
    pub(crate) fn stop_service(&self) {
        // SeqCst pairs with `is_stopped`.
        self.life.stop.store(1, Ordering::SeqCst);
        loop {
            // Acquire pairs with the kernel's clearing store: everything that the service did is
            // visible.
            let process = self.life.alive.load(Ordering::Acquire);
            if process == 0 {
                break;
            }
            self.looks.wake();
            self.bell.ring(0);
            futex::wait(&self.life.alive, process, Some(LOOK_AGAIN_NS));
        }
        // SeqCst pairs with `is_stopped` of the next service.
        self.life.stop.store(0, Ordering::SeqCst);
        self.bell.take_away();
    }
}
