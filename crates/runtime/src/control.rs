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
//! A thread that wants the service at once rings (`bell`). Each other module has the words of one
//! more thing that the two sides tell each other. What takes words of several, such as a hold,
//! which rings, is a method of [`Control`] beside the words that it is about.

mod bell;
mod fork;
mod gate;
mod given;
mod holds;
mod life;
mod looks;
mod room;

use core::sync::atomic::{AtomicU32, Ordering};

use coldpress_sys::{cpu, raw};

use crate::stay::Stay;
pub(crate) use bell::{BELL_PAGES, Bell};
#[cfg(feature = "preload")]
pub(crate) use fork::Needs;
pub(crate) use fork::{FILES_MAX, Fork};
pub(crate) use gate::Gate;
#[cfg(feature = "preload")]
pub(crate) use given::pages_of;
pub(crate) use given::{Given, Ranges};
pub(crate) use holds::{Holds, Stage};
pub(crate) use life::Life;
pub(crate) use looks::Looks;
pub(crate) use room::Room;

/// The time after which a waiting thread looks again, in case a wake-up is lost.
const LOOK_AGAIN_NS: u64 = 10_000_000;

/// The words shared between the program's threads and the service.
pub(crate) struct Control {
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
    /// Whether the service may begin, lives, and must end.
    pub(crate) life: Life,
    /// What a forker and the service agree on, and what a child inherits.
    pub(crate) fork: Fork,
    /// Whether pages may be away, and the threads that want them in place.
    pub(crate) holds: Holds,
    /// Where changes of the address space wait while the service needs none.
    pub(crate) gate: Gate,
    /// How threads wake the service, and the ranges for which they wait.
    pub(crate) bell: Bell,
    /// The ranges and mutexes that the program has for itself.
    pub(crate) given: Given,
    /// The ranges that the program itself keeps from its children (MADV_DONTFORK).
    pub(crate) uninherited: Ranges,
    /// The place where executable memory waits in limbo.
    pub(crate) room: Room,
    /// Requests of threads for a look before management begins.
    pub(crate) looks: Looks,
    /// The threads that are kept on their processor.
    pub(crate) stay: Stay,
}

impl Control {
    /// Creates the words in their initial state.
    pub(crate) const fn new() -> Self {
        Self {
            guards: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            family: AtomicU32::new(0),
            life: Life::new(),
            fork: Fork::new(),
            holds: Holds::new(),
            gate: Gate::new(),
            bell: Bell::new(),
            given: Given::new(),
            uninherited: Ranges::new(),
            room: Room::new(),
            looks: Looks::new(),
            stay: Stay::new(),
        }
    }

    /// Resets every word to its initial state. For the child of `fork`, which has one thread and no
    /// service. The child keeps the bell if it `inherits` our memory.
    pub(crate) fn reset(&self, inherits: bool) {
        self.note_owner();
        if !inherits {
            self.room.reset();
        }
        // The ranges that the parent has kept from this child are not mapped here.
        self.uninherited.remove(&(0..usize::MAX));
        self.life.reset();
        self.fork.reset(inherits);
        self.holds.reset();
        self.gate.reset();
        self.bell.reset(inherits);
        self.looks.reset();
        self.stay.reset();
    }

    /// Notes that the program makes guard pages; the kernel sends no event for them.
    pub(crate) fn note_guards(&self) {
        // Release pairs with the Acquire in `has_guards`: a service that sees pages of that range
        // dropped, which happens later, sees this store too.
        self.guards.store(1, Ordering::Release);
    }

    /// Whether the program has guard pages.
    pub(crate) fn has_guards(&self) -> bool {
        // Acquire pairs with the Release in `note_guards`.
        self.guards.load(Ordering::Acquire) != 0
    }

    /// Notes that the program has asked how much memory the machine has.
    pub(crate) fn note_asked(&self) {
        // Relaxed, here and below: no other memory depends on this word.
        self.asked.store(1, Ordering::Relaxed);
    }

    /// Whether the program has asked how much memory the machine has.
    pub(crate) fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != 0
    }

    /// Notes the calling process as the program's.
    pub(crate) fn note_owner(&self) {
        self.note_program(raw::process_id());
    }

    /// Notes the process of this id as the program's.
    pub(crate) fn note_program(&self, process: u32) {
        // Relaxed: read back by the same process, or by one that it starts.
        self.owner.store(process, Ordering::Relaxed);
    }

    /// Returns the id of the program's process.
    pub(crate) fn program(&self) -> u32 {
        // Relaxed: written before the service was started.
        self.owner.load(Ordering::Relaxed)
    }

    /// Gives the program's family a number, if it has none: a thread is about to fork.
    pub(crate) fn begin_family(&self) {
        // Another family is unlikely to begin in the same nanosecond.
        let number = cpu::monotonic_ns() as u32 | 1;
        // Relaxed, both: no other memory depends on the number, and the fork comes after it.
        let _ = self.family.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the number of the program's family, 0 before the first fork.
    pub(crate) fn family(&self) -> u32 {
        // Relaxed: no other memory depends on this word.
        self.family.load(Ordering::Relaxed)
    }

    /// Whether the service, if there is one, belongs to the calling process.
    pub(crate) fn is_owner(&self) -> bool {
        // Relaxed: written by the same process, or not at all.
        self.owner.load(Ordering::Relaxed) == raw::process_id()
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}
