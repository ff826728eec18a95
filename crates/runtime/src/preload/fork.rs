//! fork: the child has its own service before anything else runs in it.
//!
//! The handlers registered here run inside glibc's `fork`, whoever calls it (`daemon` and `forkpty`
//! too): ours were registered before the program's, so our prepare runs after theirs and our child
//! part before. But between the two glibc itself touches memory in the child, and so may other
//! preloaded libraries. So the first moment has to be caught: while pages may be away, the forking
//! thread's system calls are handed to us from prepare on (`sys::dispatch`), up to the one that
//! makes the child.
//!
//! ```text
//! prepare    calls are handed over from here on
//! clone      the service is frozen; the child's starts, and takes over (`heir`)
//! parent     calls are its own again, in the parent and in the child
//! ```
//!
//! Where that cannot be, everything is in place while the child is made, as it is for forks beside
//! glibc's; its child then starts afresh, like a new process. Registrations are gone in every child
//! with the parent's userfaultfd.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use coldpress_sys::cpu::RseqArea;
use coldpress_sys::dispatch::{self, Answer, Call};
use coldpress_sys::file::SpillFile;
use coldpress_sys::{AsFd, AsRawFd, PAGE_BYTES, futex, proc, raw};
use linux_raw_sys::general as linux;

use crate::control::{FILES_MAX, Needs};

use super::imports::imports;
use super::{CONTROL, start_heir, start_in_child, starters};

/// The thread that forks, and whose calls may be handed over; 0 for none.
static FORKER: AtomicU32 = AtomicU32::new(0);
/// Its signal mask, if they are.
static MASK: AtomicU64 = AtomicU64::new(0);
/// The result of a call that had no memory.
const ENOMEM: isize = -12;
/// How the child that reads this was made.
static MADE: AtomicU32 = AtomicU32::new(UNCAUGHT);
/// With everything in place.
const UNCAUGHT: u32 = 0;
/// The same, but its calls were handed over.
const CAUGHT: u32 = 1;
/// It has inherited, and its service has taken over.
const INHERITED: u32 = 2;
/// Memory of the program may be wiped in its children (MADV_WIPEONFORK), so they cannot inherit.
static IS_WIPED: AtomicBool = AtomicBool::new(false);

/// Registers the handlers.
pub(super) fn register() {
    let register = imports().register_atfork.expect("looked for before");
    // SAFETY: three functions that live as long as the program, as this object is never unloaded.
    // Without memory for them nothing is registered; then the program must stay unmanaged.
    let result =
        unsafe { register(Some(prepare), Some(parent), Some(child), core::ptr::null_mut()) };
    assert!(result == 0, "no memory for fork handlers");
}

/// Some memory shall be zero in children.
pub(super) fn note_wiped() {
    // Relaxed: a fork that this matters to comes after it in the program's own order.
    IS_WIPED.store(true, Ordering::Relaxed);
}

/// Before a call that copies the address space and cannot be caught: everything is in place.
pub(super) fn hold() {
    CONTROL.hold();
    starters::loosen();
}

/// After such a call, in the parent.
pub(super) fn let_go() {
    CONTROL.release();
}

pub(super) extern "C" fn prepare() {
    if !catch() {
        hold();
    }
}

pub(super) extern "C" fn parent() {
    // Relaxed: this thread's own number is there only if this thread wrote it.
    if FORKER.load(Ordering::Relaxed) == raw::thread_id() {
        // SAFETY: `catch` has begun it on this thread.
        unsafe { dispatch::end() };
        // Relaxed, here and below: written by this thread.
        if MADE.swap(UNCAUGHT, Ordering::Relaxed) != UNCAUGHT {
            let_go();
        }
        let mask = MASK.load(Ordering::Relaxed);
        end_turn();
        // Last: a handler of the program may fork.
        raw::set_signal_mask(mask);
    } else {
        let_go();
    }
}

pub(super) extern "C" fn child() {
    // Relaxed, here and below: there is one thread.
    let made = MADE.swap(UNCAUGHT, Ordering::Relaxed);
    if made != UNCAUGHT {
        // SAFETY: `catch` has begun it on the thread that this is a copy of.
        unsafe { dispatch::end() };
    }
    FORKER.store(0, Ordering::Relaxed);
    if made != INHERITED {
        start_in_child();
    }
    if made != UNCAUGHT {
        // Relaxed: as above.
        raw::set_signal_mask(MASK.load(Ordering::Relaxed));
    }
}

/// Makes a call of the program's own that copies the address space and lets the child go on where
/// its parent does: see [`is_plain`].
pub(super) fn bare(number: u32, arguments: [usize; 6]) -> isize {
    let here = 0_usize;
    let call = Call { number, arguments, stack: &raw const here as usize };
    if !CONTROL.is_owner() {
        // A child by `vfork`: the memory, and what is said of it here, is its parent's.
        // SAFETY: the program's own call, handed on.
        return unsafe { raw::syscall(call.number, call.arguments) };
    }
    let mask = raw::block_signals();
    take_turn();
    let result = fork(call);
    // Relaxed: there is one thread in the child, and in the parent this is its turn.
    let made = MADE.swap(UNCAUGHT, Ordering::Relaxed);
    end_turn();
    if result == 0 && made != INHERITED {
        start_in_child();
    }
    raw::set_signal_mask(mask);
    result
}

/// Whether a call copies the address space and does nothing else that we do not know: the child
/// goes on where its parent does, and the kernel writes to no word of the parent's.
pub(super) fn is_plain(number: u32, arguments: [usize; 6]) -> bool {
    let [flags, stack, ..] = arguments;
    let known = linux::CSIGNAL | linux::CLONE_CHILD_SETTID | linux::CLONE_CHILD_CLEARTID;
    match number {
        linux::__NR_fork => true,
        linux::__NR_clone => flags & !(known as usize) == 0 && stack == 0,
        _ => false,
    }
}

/// Has the calling thread's system calls handed over. False when there is no need, or no way.
fn catch() -> bool {
    if !CONTROL.is_owner() || !CONTROL.is_managing() {
        return false;
    }
    // A handler of the program that forks would wait for this thread's turn.
    let mask = raw::block_signals();
    take_turn();
    // Relaxed: it is this thread's turn.
    MASK.store(mask, Ordering::Relaxed);
    // SAFETY: `FORKER` lets one thread at a time come here, and glibc runs `parent` or `child`
    // after every `prepare`.
    let caught = unsafe { dispatch::begin(take_call) }.is_ok();
    if !caught {
        end_turn();
        raw::set_signal_mask(mask);
    }
    caught
}

/// Waits until no other thread forks.
fn take_turn() {
    let thread = raw::thread_id();
    // Acquire pairs with the Release in `end_turn`.
    while let Err(other) = FORKER.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed)
    {
        futex::wait(&FORKER, other, None);
    }
}

fn end_turn() {
    // Release pairs with the Acquire in `take_turn`.
    FORKER.store(0, Ordering::Release);
    futex::wake_all(&FORKER);
}

/// Takes over the calls that libc, and the program's own handlers, make between `prepare` and
/// `parent`.
fn take_call(call: Call) -> Answer {
    match call.number {
        number if is_plain(number, call.arguments) => Answer::Last(fork(call)),
        // Made on another stack, or in another way: it must be the caller's own. Whatever comes
        // after it finds everything in place.
        linux::__NR_clone | linux::__NR_clone3 | linux::__NR_vfork => {
            hold();
            // Relaxed: it is this thread's turn.
            MADE.store(CAUGHT, Ordering::Relaxed);
            Answer::Natively
        }
        _ => {
            // SAFETY: the thread's own call, handed on.
            Answer::GoOn(unsafe { raw::syscall(call.number, call.arguments) })
        }
    }
}

/// Makes the call that copies the address space, between what comes before and after it.
fn fork(call: Call) -> isize {
    // Before the freeze: it may wait for a thread that waits for the service.
    starters::loosen();
    // Relaxed: see `note_wiped`.
    let is_wiped = IS_WIPED.load(Ordering::Relaxed);
    let can_inherit = !is_wiped && proc::may_be_opened() && CONTROL.freeze(needs_of(call));
    let Some(files) = can_inherit.then(borrow_files).flatten() else { return fork_held(call) };
    // SAFETY: the caller's own call, handed on. The child goes on from here on its copy of this
    // stack.
    let result = unsafe { raw::syscall(call.number, call.arguments) };
    if result == 0 {
        CONTROL.set_files(files.iter().flatten().map(|file| file.as_fd().as_raw_fd()));
        start_heir();
        // Relaxed: there is one thread.
        MADE.store(INHERITED, Ordering::Relaxed);
        return 0;
    }
    CONTROL.unfreeze();
    // Where memory is promised in advance, our own may be too much to promise twice.
    if result == ENOMEM { fork_held(call) } else { result }
}

/// What must be in place for the forking thread and its copy.
fn needs_of(call: Call) -> Needs {
    let block = raw::thread_block();
    let area = super::rseq_area().map_or(block, RseqArea::address);
    let child_number = match call.number {
        linux::__NR_clone => call.arguments[3],
        _ => block,
    };
    Needs { stack: call.stack, touched: [block, block + PAGE_BYTES, area, child_number] }
}

/// Opens the service's files for a child, which is its heir. `None`, and it goes on, when
/// one cannot be had.
fn borrow_files() -> Option<[Option<SpillFile>; FILES_MAX]> {
    let mut files = [const { None }; FILES_MAX];
    for (file, descriptor) in files.iter_mut().zip(CONTROL.files()) {
        // Relaxed: the service's own number, as it waits for this one.
        let thread = CONTROL.alive().load(Ordering::Relaxed);
        *file = SpillFile::lent_by(thread, descriptor).ok();
        if file.is_none() {
            CONTROL.unfreeze();
            return None;
        }
    }
    Some(files)
}

/// As [`fork`], with everything in place.
fn fork_held(call: Call) -> isize {
    CONTROL.hold();
    starters::loosen();
    // SAFETY: libc's own call, handed on. The child goes on from here on its copy of this stack.
    let result = unsafe { raw::syscall(call.number, call.arguments) };
    if result == 0 {
        // Relaxed: there is one thread. `child` starts it afresh.
        MADE.store(CAUGHT, Ordering::Relaxed);
    } else {
        CONTROL.release();
    }
    result
}
