//! fork: the child has its own service before anything else runs in it.
//!
//! libc's `fork`, `daemon` and `forkpty` end in one system call. In the child, libc goes on from
//! there at once, in memory that may be away, and only then runs the handlers of pthread_atfork(3).
//! So that call is made a jump to us (`site`), before `main`. `interpose` handles programs that
//! call `syscall(2)`:
//!
//! ```text
//! before     the service is frozen
//! the call   the child's service starts, and takes over (`heir`)
//! after      the service goes on
//! ```
//!
//! Where that is impossible, every page is in place while the child is made, as for forks that go
//! around libc's fork. Such a child starts afresh, like a new process. In every child the
//! registrations are gone with the parent's userfaultfd.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use coldpress_sys::cpu::RseqArea;
use coldpress_sys::file::SpillFile;
use coldpress_sys::{AsFd, AsRawFd, PAGE_BYTES, errno, futex, proc, raw};
use linux_raw_sys::general as linux;

use crate::control::{FILES_MAX, Needs};

use super::imports::imports;
use super::{CONTROL, start_heir, start_in_child, starters};

/// The thread that forks; 0 for none.
static FORKER: AtomicU32 = AtomicU32::new(0);
/// The result of a call for which there was no memory.
const ENOMEM: isize = errno::answer(errno::ENOMEM);
/// Whether memory of the program may be wiped in its children (MADV_WIPEONFORK), so that they
/// cannot inherit our state.
static IS_WIPED: AtomicBool = AtomicBool::new(false);

/// A system call that makes a child, by the thread whose stack ends at `stack`.
#[derive(Clone, Copy)]
struct Call {
    number: u32,
    arguments: [usize; 6],
    stack: usize,
}

/// The outcome of a call that makes a child.
#[derive(Clone, Copy)]
struct Made {
    result: isize,
    /// Whether this is the child, and its service has taken over.
    is_heir: bool,
}

/// Has libc run our handlers before and after each fork, where libc's own call cannot be made ours.
pub(super) fn register() {
    let register = imports().register_atfork.expect("looked for before");
    // SAFETY: three functions that live as long as the program, as this object is never unloaded.
    // Without memory for them libc registers nothing; then the program must stay unmanaged.
    let result = unsafe { register(Some(hold), Some(let_go), Some(child), core::ptr::null_mut()) };
    assert!(result == 0, "no memory for fork handlers");
}

/// Notes that some memory must be zero in children.
pub(super) fn note_wiped() {
    // Relaxed: a fork for which this matters comes after it in the program's own order.
    IS_WIPED.store(true, Ordering::Relaxed);
}

/// Takes a hold before a call that copies the address space and cannot be caught: every page is in
/// place.
pub(super) extern "C" fn hold() {
    CONTROL.begin_family();
    CONTROL.hold();
    starters::loosen();
}

/// Ends the hold after such a call, in the parent.
pub(super) extern "C" fn let_go() {
    CONTROL.release();
}

pub(super) extern "C" fn child() {
    // Relaxed: there is one thread. Another thread of the parent may have been forking at that
    // time.
    FORKER.store(0, Ordering::Relaxed);
    start_in_child();
}

/// Runs `call`, with every page held in place if its flags copy the address space. A child made
/// this way is not managed.
pub(super) fn with_copy<R>(flags: u64, call: impl FnOnce() -> R) -> R {
    let copies = flags & u64::from(linux::CLONE_VM) == 0;
    if copies {
        hold();
    } else {
        starters::loosen();
    }
    let result = call();
    if copies {
        // In a child that returns from here no thread owns a hold, so nothing is released.
        let_go();
    }
    result
}

/// Makes a call of the program's own that copies the address space and lets the child go on where
/// its parent does: see [`is_plain`].
pub(super) fn bare(number: u32, arguments: [usize; 6]) -> isize {
    let here = 0_usize;
    let call = Call { number, arguments, stack: &raw const here as usize };
    // A handler of the program's that forks would wait for this thread's turn. But a filter may
    // answer any call with SIGSYS, and ends a thread that has it blocked, as libc has every signal
    // here.
    let mask = raw::block_signals();
    raw::set_signal_mask(!(1 << (linux::SIGSYS - 1)));
    let Made { result, is_heir } = if CONTROL.is_owner() {
        take_turn();
        let made = fork(call);
        end_turn();
        made
    } else {
        // This is a child by `vfork` or by `clone` itself: what the words here say of memory is its
        // parent's.
        // SAFETY: the program's own call, passed on unchanged.
        Made { result: unsafe { raw::syscall(call.number, call.arguments) }, is_heir: false }
    };
    if result == 0 && !is_heir {
        child();
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

/// Makes the call that copies the address space, with what comes before and after it.
fn fork(call: Call) -> Made {
    CONTROL.begin_family();
    // This comes before the freeze, because it may wait for a thread that waits for the service.
    starters::loosen();
    // Relaxed: see `note_wiped`.
    let is_wiped = IS_WIPED.load(Ordering::Relaxed);
    let is_seen = CONTROL.is_managing() && !is_wiped && proc::may_be_opened();
    let can_inherit = is_seen && CONTROL.freeze(needs_of(call));
    let Some(files) = can_inherit.then(borrow_files).flatten() else { return fork_held(call) };
    // SAFETY: the caller's own call, passed on. The child goes on from here on its copy of this
    // stack.
    let result = unsafe { raw::syscall(call.number, call.arguments) };
    if result == 0 {
        CONTROL.fork.set_files(files.iter().flatten().map(|file| file.as_fd().as_raw_fd()));
        start_heir();
        return Made { result, is_heir: true };
    }
    CONTROL.fork.unfreeze();
    // Where the kernel commits all memory in advance, it may refuse to commit ours twice.
    if result == ENOMEM { fork_held(call) } else { Made { result, is_heir: false } }
}

/// Returns what must be in place for the forking thread and its copy.
fn needs_of(call: Call) -> Needs {
    let block = raw::thread_pointer();
    let area = super::rseq_area().map_or(block, RseqArea::address);
    let child_number = match call.number {
        linux::__NR_clone => call.arguments[3],
        _ => block,
    };
    Needs { stack: call.stack, touched: [block, block + PAGE_BYTES, area, child_number] }
}

/// Opens the service's files for a child, whose service is the heir. Returns `None`, and lets the
/// service go on, when one of them cannot be opened.
fn borrow_files() -> Option<[Option<SpillFile>; FILES_MAX]> {
    let mut files = [const { None }; FILES_MAX];
    for (file, descriptor) in files.iter_mut().zip(CONTROL.fork.files()) {
        // Relaxed: the number of the service itself, which waits for this thread.
        let thread = CONTROL.life.alive().load(Ordering::Relaxed);
        *file = SpillFile::lent_by(thread, descriptor).ok();
        if file.is_none() {
            CONTROL.fork.unfreeze();
            return None;
        }
    }
    Some(files)
}

/// Forks as [`fork`] does, with every page in place. The child starts afresh.
fn fork_held(call: Call) -> Made {
    CONTROL.hold();
    starters::loosen();
    // SAFETY: the caller's own call, passed on. The child goes on from here on its copy of this
    // stack.
    let result = unsafe { raw::syscall(call.number, call.arguments) };
    if result != 0 {
        CONTROL.release();
    }
    Made { result, is_heir: false }
}
