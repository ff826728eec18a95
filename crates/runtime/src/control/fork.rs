//! Freezing: the forker and the service bring each other to a standstill (quiesce).
//!
//! ```text
//! forker          ASKED              READY                        unfreeze
//! service                SEEN  reads        FROZEN (or REFUSED)             goes on
//! ```
//!
//! The forker rings to make its request, and a ring waits until the service reads it. So the forker
//! stops ringing before the service stops reading. Each step is an atomic exchange, so that the
//! other side cannot overtake a side that gives up because the service ends.

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use coldpress_sys::{futex, raw};

use super::{Control, LOOK_AGAIN_NS};

/// The state while no thread forks.
const FORK_NONE: u32 = 0;
/// The state while a thread wants the service frozen, and rings for that.
const FORK_ASKED: u32 = 1;
/// The state once the service knows of the request.
const FORK_SEEN: u32 = 2;
/// The state once the forker rings no more and touches only its stack and what it has named, so
/// that no event is left to be read.
const FORK_READY: u32 = 3;
/// The state while the service is frozen.
const FORK_FROZEN: u32 = 4;
/// The state when the service cannot freeze now.
const FORK_REFUSED: u32 = 5;

/// The memory that a thread needs when it makes a child.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// The thread's stack pointer.
    pub(crate) stack: usize,
    /// Addresses that the thread, or the kernel on its behalf, touches before the child is served.
    /// Their pages must be in place.
    pub(crate) touched: [usize; TOUCHED],
}

/// The number of such addresses: the thread's control block, the page after it, the area for
/// restartable sequences, and the word for the child's number.
pub(crate) const TOUCHED: usize = 4;

/// The last message of a child whose pages no process has any more.
const HEIR_GONE: &[u8] =
    b"coldpress: fatal: the process that keeps the cold pages of this child of fork has ended\n";

/// The most files that a child can inherit: its parent's, and those of earlier ancestors.
pub(crate) const FILES_MAX: usize = 4;
/// The value in place of a descriptor where there is no file.
const NO_FILE: i32 = -1;

/// The words of the forker and of the service, and of a child.
pub(crate) struct Fork {
    /// The state of a request to freeze; one forker at a time makes one (`preload::fork`).
    state: AtomicU32,
    /// The forker's needs: its stack pointer here, the addresses that it touches below.
    stack: AtomicUsize,
    touched: [AtomicUsize; TOUCHED],
    /// The state that the service leaves to its heir in a child.
    legacy: AtomicPtr<c_void>,
    /// Descriptors of the files that a child inherits: the service's while it is frozen, the
    /// forker's in the child.
    files: [AtomicI32; FILES_MAX],
    /// 1 until the service of a child has taken over.
    inheriting: AtomicU32,
}

impl Fork {
    pub(super) const fn new() -> Self {
        Self {
            state: AtomicU32::new(FORK_NONE),
            stack: AtomicUsize::new(0),
            touched: [const { AtomicUsize::new(0) }; TOUCHED],
            legacy: AtomicPtr::new(core::ptr::null_mut()),
            files: [const { AtomicI32::new(NO_FILE) }; FILES_MAX],
            inheriting: AtomicU32::new(0),
        }
    }

    /// Forgets the fork. For its child, which has one thread, and whose service takes over if the
    /// child `inherits` our memory.
    pub(super) fn reset(&self, inherits: bool) {
        // Relaxed, both: there is no other thread.
        self.state.store(FORK_NONE, Ordering::Relaxed);
        self.inheriting.store(u32::from(inherits), Ordering::Relaxed);
    }

    /// Returns whether the state went from `from` to `to`: false if the other side changed it
    /// first.
    fn turn(&self, from: u32, to: u32) -> bool {
        // AcqRel pairs with itself on the other side, and with `freeze`: what one side wrote before
        // its step is visible to the other side after it.
        let turned =
            self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if turned {
            futex::wake_all(&self.state);
        }
        turned
    }

    /// Lets the frozen service go on.
    pub(crate) fn unfreeze(&self) {
        self.turn(FORK_FROZEN, FORK_NONE);
    }

    /// Returns the state that the parent's service left for its heir. For a child.
    pub(crate) fn legacy(&self) -> *mut c_void {
        // Relaxed: written before the fork.
        self.legacy.load(Ordering::Relaxed)
    }

    /// Returns the descriptors of the files that a child inherits.
    pub(crate) fn files(&self) -> impl Iterator<Item = i32> + Clone {
        // Relaxed: written before the service was found frozen, or by the only thread.
        let files = self.files.iter().map(|file| file.load(Ordering::Relaxed));
        files.take_while(|file| *file != NO_FILE)
    }

    /// Sets the descriptors of the files that a child inherits, at most [`FILES_MAX`].
    pub(crate) fn set_files(&self, files: impl IntoIterator<Item = i32>) {
        let files = files.into_iter().chain(core::iter::repeat(NO_FILE));
        for (place, file) in self.files.iter().zip(files) {
            // Relaxed: see `files`.
            place.store(file, Ordering::Relaxed);
        }
    }

    /// Whether a thread wants to fork, or is forking. Only for decisions where a stale answer costs
    /// no more than time.
    pub(crate) fn is_under_way(&self) -> bool {
        // Relaxed: a stale answer is good enough.
        self.state.load(Ordering::Relaxed) != FORK_NONE
    }

    /// Whether a thread wants to fork; shows that thread that the service knows.
    pub(crate) fn see(&self) -> bool {
        // Relaxed: `turn` orders what follows.
        self.state.load(Ordering::Relaxed) == FORK_ASKED && self.turn(FORK_ASKED, FORK_SEEN)
    }

    /// Returns what the forker needs, once it has stopped ringing.
    pub(crate) fn needs(&self) -> Option<Needs> {
        // Acquire pairs with the Release in `freeze`, by way of `turn`.
        if self.state.load(Ordering::Acquire) != FORK_READY {
            return None;
        }
        // Relaxed: ordered by the load above.
        let touched = core::array::from_fn(|index| self.touched[index].load(Ordering::Relaxed));
        Some(Needs { stack: self.stack.load(Ordering::Relaxed), touched })
    }

    /// Refuses the forker that asks or is ready: its fork must do without a frozen service.
    pub(crate) fn refuse(&self) {
        if !self.turn(FORK_ASKED, FORK_REFUSED) {
            self.turn(FORK_READY, FORK_REFUSED);
        }
    }

    /// Lets the forker, which is ready, go on, leaves `legacy` to the heir, and sleeps until the
    /// fork is over, or the program has gone.
    pub(crate) fn grant(&self, legacy: *mut c_void, has_left: impl Fn() -> bool) {
        // Relaxed: ordered by the exchange below.
        self.legacy.store(legacy, Ordering::Relaxed);
        self.turn(FORK_READY, FORK_FROZEN);
        // Acquire pairs with the exchange in `unfreeze`.
        while self.state.load(Ordering::Acquire) == FORK_FROZEN {
            futex::wait(&self.state, FORK_FROZEN, Some(LOOK_AGAIN_NS));
            if has_left() {
                self.turn(FORK_FROZEN, FORK_NONE);
            }
        }
    }

    /// Notes that no thread forks any more: the program has gone in the middle of a fork.
    pub(crate) fn forget(&self) {
        // Relaxed: there is no forker to be ordered with.
        self.state.store(FORK_NONE, Ordering::Relaxed);
    }

    /// Notes that the heir has taken over, and lets the child go on.
    pub(crate) fn note_inherited(&self) {
        // Release pairs with the Acquire in `wait_for_heir`.
        self.inheriting.store(0, Ordering::Release);
        futex::wake_all(&self.inheriting);
    }
}

impl Control {
    /// Returns whether the service is frozen for a fork of the calling thread. False when the
    /// service cannot freeze, or when pages are not managed; the fork then needs a hold. Only one
    /// thread at a time may call this.
    pub(crate) fn freeze(&self, needs: Needs) -> bool {
        if !self.is_owner() || !self.is_managing() {
            return false;
        }
        let fork = &self.fork;
        // Relaxed: ordered by the store below.
        fork.stack.store(needs.stack, Ordering::Relaxed);
        for (place, address) in fork.touched.iter().zip(needs.touched) {
            // Relaxed: as above.
            place.store(address, Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `Fork::needs`.
        fork.state.store(FORK_ASKED, Ordering::Release);
        loop {
            // Acquire pairs with the Release in `grant`: what the service left there is visible.
            let state = fork.state.load(Ordering::Acquire);
            match state {
                FORK_FROZEN => return true,
                FORK_REFUSED => {
                    // Relaxed: no other memory depends on this word.
                    fork.state.store(FORK_NONE, Ordering::Relaxed);
                    return false;
                }
                FORK_SEEN => {
                    fork.turn(FORK_SEEN, FORK_READY);
                    continue;
                }
                // The service may have ended without seeing the request.
                FORK_ASKED if !self.is_managing() && fork.turn(FORK_ASKED, FORK_NONE) => {
                    return false;
                }
                FORK_ASKED => {
                    self.bell.ring(0);
                }
                _ => {}
            }
            futex::wait(&fork.state, state, Some(LOOK_AGAIN_NS));
        }
    }

    /// Waits until the service of this process, a child, has taken over what it inherited.
    pub(crate) fn wait_for_heir(&self) {
        let inheriting = &self.fork.inheriting;
        // Acquire pairs with the Release in `note_inherited`.
        while inheriting.load(Ordering::Acquire) != 0 {
            futex::wait(inheriting, 1, Some(LOOK_AGAIN_NS));
            // Acquire pairs with the kernel's clearing store: what the service noted before is
            // visible below.
            let is_gone = self.life.alive().load(Ordering::Acquire) == 0;
            // Acquire pairs with the Release in `note_inherited`.
            if is_gone && inheriting.load(Ordering::Acquire) != 0 {
                raw::write_to_stderr(HEIR_GONE);
                raw::abort_process();
            }
        }
    }
}
