//! Freezing: the forker and the service bring each other to a stand.
//!
//! ```text
//! forker          ASKED              READY                        unfreeze
//! service                SEEN  reads        FROZEN (or REFUSED)             goes on
//! ```
//!
//! The forker rings for its wish, and a ring waits until it is read. So it stops ringing before the
//! service stops reading. Each turn is an exchange, so that a side that gives up (the
//! service ends) is not overtaken by the other.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use coldpress_sys::{futex, raw};

use super::{Control, LOOK_AGAIN_NS};

/// Nobody forks.
pub(super) const FORK_NONE: u32 = 0;
/// A thread wants the service frozen, and rings for it.
const FORK_ASKED: u32 = 1;
/// The service knows.
const FORK_SEEN: u32 = 2;
/// The forker rings no more, and touches nothing but its stack: so nothing is left to be read.
const FORK_READY: u32 = 3;
/// The service is frozen.
const FORK_FROZEN: u32 = 4;
/// It cannot be now.
const FORK_REFUSED: u32 = 5;

/// What a thread needs that makes a child.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// Its stack pointer.
    pub stack: usize,
    /// Addresses that it, or the kernel for it, touches before the child is served: they must be
    /// in place.
    pub touched: [usize; TOUCHED],
}

/// Such addresses: of the thread's control block and what follows it, of the restarting section's
/// area, and of the word for the child's number.
pub const TOUCHED: usize = 4;

/// What a child says whose pages nobody has any more.
const HEIR_GONE: &[u8] =
    b"coldpress: fatal: the process that keeps the cold pages of this child of fork has ended\n";

/// Files that a child can inherit: its parent's, and those of so many ancestors.
pub const FILES_MAX: usize = 4;
/// In place of a file's descriptor.
pub(super) const NO_FILE: i32 = -1;

impl Control {
    /// Freezes the service for a fork of the calling thread. False when it cannot be, or
    /// pages are not managed: then the fork needs a hold. One thread at a time.
    pub fn freeze(&self, needs: Needs) -> bool {
        if !self.is_owner() || !self.is_managing() {
            return false;
        }
        // Relaxed: ordered by the store below.
        self.fork_stack.store(needs.stack, Ordering::Relaxed);
        for (place, address) in self.fork_touched.iter().zip(needs.touched) {
            // Relaxed: as above.
            place.store(address, Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `fork_needs`.
        self.fork.store(FORK_ASKED, Ordering::Release);
        loop {
            // Acquire pairs with the Release in `grant`: what it left is seen.
            let state = self.fork.load(Ordering::Acquire);
            match state {
                FORK_FROZEN => return true,
                FORK_REFUSED => {
                    // Relaxed: it says nothing of anything else.
                    self.fork.store(FORK_NONE, Ordering::Relaxed);
                    return false;
                }
                FORK_SEEN => {
                    self.turn_fork(FORK_SEEN, FORK_READY);
                    continue;
                }
                // The service may have ended without a look.
                FORK_ASKED if !self.is_managing() && self.turn_fork(FORK_ASKED, FORK_NONE) => {
                    return false;
                }
                FORK_ASKED => {
                    self.ring(0);
                }
                _ => {}
            }
            futex::wait(&self.fork, state, Some(LOOK_AGAIN_NS));
        }
    }

    /// From one state to the next, unless the other side was first.
    fn turn_fork(&self, from: u32, to: u32) -> bool {
        // AcqRel pairs with itself on the other side, and with `freeze`: what a side wrote before
        // its turn is seen after it.
        let turned =
            self.fork.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if turned {
            futex::wake_all(&self.fork);
        }
        turned
    }

    /// Lets the frozen service go on.
    pub fn unfreeze(&self) {
        self.turn_fork(FORK_FROZEN, FORK_NONE);
    }

    /// Waits until the service of this process, a child, has taken over what it inherited.
    pub fn wait_for_heir(&self) {
        // Acquire pairs with the Release in `note_inherited`.
        while self.inheriting.load(Ordering::Acquire) != 0 {
            futex::wait(&self.inheriting, 1, Some(LOOK_AGAIN_NS));
            // Acquire pairs with the kernel's clearing store: what it noted before is seen below.
            let is_gone = self.alive.load(Ordering::Acquire) == 0;
            // Acquire pairs with the Release in `note_inherited`.
            if is_gone && self.inheriting.load(Ordering::Acquire) != 0 {
                raw::write_to_stderr(HEIR_GONE);
                raw::abort_process();
            }
        }
    }

    /// What the service left, in a child.
    pub fn legacy(&self) -> *mut c_void {
        // Relaxed: from before the fork.
        self.legacy.load(Ordering::Relaxed)
    }

    /// The descriptors of files that a child inherits.
    pub fn files(&self) -> impl Iterator<Item = i32> + Clone {
        // Relaxed: written before the service was found frozen, or by the only thread.
        let files = self.files.iter().map(|file| file.load(Ordering::Relaxed));
        files.take_while(|file| *file != NO_FILE)
    }

    /// Says what the descriptors are, at most [`FILES_MAX`].
    pub fn set_files(&self, files: impl IntoIterator<Item = i32>) {
        let files = files.into_iter().chain(core::iter::repeat(NO_FILE));
        for (place, file) in self.files.iter().zip(files) {
            // Relaxed: see `files`.
            place.store(file, Ordering::Relaxed);
        }
    }

    /// Whether a thread wants to fork, or does. For decisions that cost time only.
    pub fn is_forking(&self) -> bool {
        // Relaxed: a stale answer is as good.
        self.fork.load(Ordering::Relaxed) != FORK_NONE
    }

    /// Whether a thread wants to fork; it is told that this is known.
    pub fn see_fork(&self) -> bool {
        // Relaxed: `turn_fork` orders.
        self.fork.load(Ordering::Relaxed) == FORK_ASKED && self.turn_fork(FORK_ASKED, FORK_SEEN)
    }

    /// What the forker needs, once it has stopped ringing.
    pub fn fork_needs(&self) -> Option<Needs> {
        // Acquire pairs with the Release in `freeze`, by way of `turn_fork`.
        if self.fork.load(Ordering::Acquire) != FORK_READY {
            return None;
        }
        // Relaxed: ordered by the load above.
        let touched =
            core::array::from_fn(|index| self.fork_touched[index].load(Ordering::Relaxed));
        Some(Needs { stack: self.fork_stack.load(Ordering::Relaxed), touched })
    }

    /// The forker that asks, or is ready, must do without.
    pub fn refuse_fork(&self) {
        if !self.turn_fork(FORK_ASKED, FORK_REFUSED) {
            self.turn_fork(FORK_READY, FORK_REFUSED);
        }
    }

    /// Lets the forker go on, which is ready, leaves `legacy` to the heir, and sleeps until the
    /// fork is over, or the program has gone.
    pub fn grant(&self, legacy: *mut c_void, has_left: impl Fn() -> bool) {
        // Relaxed: ordered by the turn below.
        self.legacy.store(legacy, Ordering::Relaxed);
        self.turn_fork(FORK_READY, FORK_FROZEN);
        // Acquire pairs with the turn in `unfreeze`.
        while self.fork.load(Ordering::Acquire) == FORK_FROZEN {
            futex::wait(&self.fork, FORK_FROZEN, Some(LOOK_AGAIN_NS));
            if has_left() {
                self.turn_fork(FORK_FROZEN, FORK_NONE);
            }
        }
    }

    /// The program has gone in the middle of a fork: nobody forks.
    pub fn forget_fork(&self) {
        // Relaxed: there is no forker to be ordered with.
        self.fork.store(FORK_NONE, Ordering::Relaxed);
    }

    /// The heir has taken over: the child may go on.
    pub fn note_inherited(&self) {
        // Release pairs with the Acquire in `wait_for_heir`.
        self.inheriting.store(0, Ordering::Release);
        futex::wake_all(&self.inheriting);
    }
}
