//! Syscall User Dispatch: one thread's system calls are handed to a function of ours for a while
//! (prctl(2), `PR_SET_SYSCALL_USER_DISPATCH`, Linux 5.11).
//!
//! It is the way to be there first in a child of `fork`: libc makes the call deep inside its own,
//! and the child runs libc's code from there on. The function gets the call instead, makes it
//! itself, and does what must be done before anything else happens on either side.
//!
//! The kernel turns a call into SIGSYS as long as the selector says so, but for calls from one
//! range of code, which is the way back from the signal. Everything that shall go through
//! meanwhile has the selector changed first.

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

use linux_raw_sys::general as linux;

use crate::error::SysResult;
use crate::raw::{self, checked};

/// linux/prctl.h.
const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const PR_SYS_DISPATCH_OFF: usize = 0;
const PR_SYS_DISPATCH_ON: usize = 1;
/// What the selector says (linux/prctl.h, `SYSCALL_DISPATCH_FILTER_`).
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;
/// `si_code` of a dispatched call (asm-generic/siginfo.h, `SYS_USER_DISPATCH`).
const SYS_USER_DISPATCH: c_int = 2;
/// Code whose calls are never handed over, and where in it the second of two pieces begins.
const ALLOWED_BYTES: usize = 32;
const OWN_NUMBER_AT: usize = 16;
/// linux/signal.h, x86-64.
const SA_NODEFER: usize = 0x4000_0000;

/// A call that was handed over.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its number.
    pub number: u32,
    /// Its arguments.
    pub arguments: [usize; 6],
    /// The stack pointer of the thread that made it.
    pub stack: usize,
}

/// What becomes of a call, and of those that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The caller gets this result, and its next call is handed over too.
    GoOn(isize),
    /// The caller gets this result, and no more calls are handed over.
    Last(isize),
    /// The caller makes the call itself, and no more are handed over.
    Natively,
}

/// Takes calls over. It runs as a signal handler, all signals blocked, on the stack of the thread;
/// its own calls go to the kernel. After a `fork` it returns twice.
pub type Handler = fn(Call) -> Answer;

/// `struct sigaction` of the kernel: handler, flags, restorer, mask.
type Action = [usize; 4];

/// What belongs to the one thread whose calls are dispatched.
struct Dispatch {
    selector: AtomicU8,
    handler: AtomicUsize,
    /// Its number.
    thread: AtomicU32,
    /// The program's own action for SIGSYS.
    action: UnsafeCell<Action>,
}

// SAFETY: `begin` asks for one user at a time, who alone writes `action`, before the action of ours
// is there by which others read it.
unsafe impl Sync for Dispatch {}

static DISPATCH: Dispatch = Dispatch {
    selector: AtomicU8::new(ALLOW),
    handler: AtomicUsize::new(0),
    thread: AtomicU32::new(0),
    action: UnsafeCell::new([0; 4]),
};

/// Whether calls are handed over from now on.
fn select(selector: u8) {
    // Relaxed: the kernel reads it for this thread, which alone writes it, in handlers too.
    DISPATCH.selector.store(selector, Ordering::Relaxed);
}

/// From now on the calling thread's system calls go to `handler`. All its signals must be blocked;
/// SIGSYS is not any more. Fails with the kernel's number where there is no such thing; then
/// nothing has changed.
///
/// # Safety
/// No other thread may be between `begin` and [`end`], and this one comes to `end`, as does its
/// copy in a child of `fork`.
pub unsafe fn begin(handler: Handler) -> SysResult<()> {
    // Relaxed, here and below: until `end` this thread alone writes them, and others compare only.
    DISPATCH.thread.store(raw::thread_id(), Ordering::Relaxed);
    DISPATCH.handler.store(handler as usize, Ordering::Relaxed);
    let all_but_it = !(1 << (linux::SIGSYS - 1));
    let flags = (linux::SA_SIGINFO | linux::SA_RESTORER) as usize | SA_NODEFER;
    let allowed = go_back as *const () as usize;
    let ours: Action = [enter as *const () as usize, flags, allowed, all_but_it];
    // SAFETY: the caller's promise: nobody else uses it.
    let old = unsafe { &mut *DISPATCH.action.get() };
    set_action(None, Some(old))?;
    set_action(Some(&ours), None)?;
    let selector = DISPATCH.selector.as_ptr() as usize;
    let result = set_dispatch([PR_SYS_DISPATCH_ON, allowed, ALLOWED_BYTES, selector]);
    if result.is_err() {
        let _ = set_action(Some(old), None);
        return result;
    }
    raw::set_signal_mask(all_but_it as u64);
    select(BLOCK);
    Ok(())
}

/// The calling thread's system calls are its own again. All its signals are blocked.
///
/// # Safety
/// The calling thread has come from [`begin`], or is the copy of one that has.
pub unsafe fn end() {
    select(ALLOW);
    raw::block_signals();
    // In a child it is off already.
    let _ = set_dispatch([PR_SYS_DISPATCH_OFF, 0, 0, 0]);
    // SAFETY: the caller's promise: nobody else uses it.
    let old = unsafe { &*DISPATCH.action.get() };
    // It was an action before, so it cannot be refused.
    let _ = set_action(Some(old), None);
    // Relaxed: see `begin`.
    DISPATCH.thread.store(0, Ordering::Relaxed);
}

fn set_dispatch(arguments: [usize; 4]) -> SysResult<()> {
    let [a, b, c, d] = arguments;
    let arguments = [PR_SET_SYSCALL_USER_DISPATCH, a, b, c, d, 0];
    // SAFETY: the range is code of ours and the selector a static.
    let result = unsafe { raw::syscall(linux::__NR_prctl, arguments) };
    checked("prctl(PR_SET_SYSCALL_USER_DISPATCH)", result).map(|_| ())
}

fn set_action(new: Option<&Action>, old: Option<&mut Action>) -> SysResult<()> {
    let new = new.map_or(0, |new| new.as_ptr() as usize);
    let old = old.map_or(0, |old| old.as_mut_ptr() as usize);
    let arguments = [linux::SIGSYS as usize, new, old, 8, 0, 0];
    // SAFETY: both are actions as the kernel has them, or null; the size of its mask is 8.
    let result = unsafe { raw::syscall(linux::__NR_rt_sigaction, arguments) };
    checked("rt_sigaction", result).map(|_| ())
}

/// The kernel's way back from the handler, `rt_sigreturn`; and behind it, `OWN_NUMBER_AT` bytes
/// on, a function that returns the calling thread's number. Their calls are never handed over.
#[unsafe(naked)]
extern "C" fn go_back() {
    naked_asm!(
        "mov eax, 15",
        "syscall",
        ".balign 16",
        "mov eax, 186",
        "syscall",
        "ret",
        ".balign 16"
    )
}

/// The calling thread's number, whatever the selector says.
fn own_number() -> u32 {
    // SAFETY: `go_back` is aligned to 16 bytes, see its code: there is such a function.
    let own_number: extern "C" fn() -> u32 =
        unsafe { core::mem::transmute(go_back as *const () as usize + OWN_NUMBER_AT) };
    own_number()
}

/// Where the registers of a thread lie in its `ucontext` (x86-64): behind flags, link and stack, in
/// the order r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
const REGISTERS: usize = 5;
const R8: usize = REGISTERS;
const R9: usize = REGISTERS + 1;
const R10: usize = REGISTERS + 2;
const RDI: usize = REGISTERS + 8;
const RSI: usize = REGISTERS + 9;
const RDX: usize = REGISTERS + 12;
const RAX: usize = REGISTERS + 13;
const RSP: usize = REGISTERS + 15;
const RIP: usize = REGISTERS + 16;
/// Length of the instruction that makes a call.
const CALL_BYTES: usize = 2;

/// The signal handler, of all threads of the process.
extern "C" fn enter(signal: c_int, info: *const c_int, context: *mut usize) {
    // Relaxed: a thread's own number is there only if it wrote it.
    if own_number() != DISPATCH.thread.load(Ordering::Relaxed) {
        return pass_on(signal, info, context);
    }
    // What follows may make calls.
    // Relaxed: see `select`.
    let before = DISPATCH.selector.swap(ALLOW, Ordering::Relaxed);
    // SAFETY: the kernel passes a siginfo, whose third word is its code.
    if unsafe { *info.add(2) } != SYS_USER_DISPATCH {
        pass_on(signal, info, context);
        return select(before);
    }
    // SAFETY: the kernel passes a ucontext, in which the registers lie as above.
    let register = |index| unsafe { *context.add(index) };
    let arguments = [RDI, RSI, RDX, R10, R8, R9].map(register);
    let call = Call { number: register(RAX) as u32, arguments, stack: register(RSP) };
    // Relaxed: see `begin`.
    let handler = DISPATCH.handler.load(Ordering::Relaxed);
    // SAFETY: `begin` has put a `Handler` there, and calls are dispatched only after it.
    let handler: Handler = unsafe { core::mem::transmute(handler) };
    let answer = handler(call);
    // SAFETY: as above; the first is what the caller finds as the result, the second where it goes
    // on, by default behind the instruction that made the call.
    unsafe {
        match answer {
            Answer::GoOn(result) | Answer::Last(result) => *context.add(RAX) = result as usize,
            Answer::Natively => *context.add(RIP) -= CALL_BYTES,
        }
    }
    if matches!(answer, Answer::GoOn(_)) {
        select(BLOCK);
    }
}

/// A SIGSYS that is not ours, of seccomp or of somebody's hand, goes to the program's own action.
fn pass_on(signal: c_int, info: *const c_int, context: *mut usize) {
    // SAFETY: it was written before the action of ours was there, through which this is called.
    let action = unsafe { *DISPATCH.action.get() };
    match action[0] {
        // The default is to end, which it does when the handler has returned.
        0 => {
            let _ = set_action(Some(&action), None);
            let arguments =
                [raw::process_id() as usize, raw::thread_id() as usize, signal as usize, 0, 0, 0];
            // SAFETY: the call takes three numbers, and reads no memory of ours.
            unsafe { raw::syscall(linux::__NR_tgkill, arguments) };
        }
        // Ignored.
        1 => {}
        handler => {
            // SAFETY: the program has set this function to be called so.
            let handler: extern "C" fn(c_int, *const c_int, *mut usize) =
                unsafe { core::mem::transmute(handler) };
            handler(signal, info, context);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Risk: a call that is lost, made twice, or handed over when it should not be.

    use super::*;
    use std::sync::atomic::AtomicUsize;

    static SEEN: AtomicUsize = AtomicUsize::new(0);

    /// Answers the first `getppid` itself, and passes others on.
    fn handler(call: Call) -> Answer {
        if call.number == linux::__NR_getppid {
            SEEN.fetch_add(1, Ordering::Relaxed);
            return Answer::Last(-77);
        }
        // SAFETY: the test's own call.
        let result = unsafe { raw::syscall(call.number, call.arguments) };
        Answer::GoOn(result)
    }

    #[test]
    fn calls_go_to_the_handler_until_it_says_so() {
        let call = |number| {
            // SAFETY: both calls have no arguments.
            unsafe { raw::syscall(number, [0; 6]) }
        };
        let (thread, parent) = (call(linux::__NR_gettid), call(linux::__NR_getppid));
        let mask = raw::block_signals();
        // SAFETY: no other test dispatches, and `end` follows on this thread.
        unsafe { begin(handler) }.unwrap();
        let passed_on = call(linux::__NR_gettid);
        let answered = call(linux::__NR_getppid);
        let not_seen = call(linux::__NR_getppid);
        // SAFETY: `begin` was called above.
        unsafe { end() };
        raw::set_signal_mask(mask);
        assert_eq!((passed_on, answered, not_seen), (thread, -77, parent));
        assert_eq!(call(linux::__NR_getppid), parent);
        assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    }
}
