//! System calls of the program that must know of us, whoever makes them: libc's functions, which
//! `interpose` and others stand in front of, `syscall(2)`, or code that the command has changed
//! (`site`).

use core::ffi::c_int;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

use coldpress_sys::{Bytes, errno, raw};
use linux_raw_sys::general as linux;

use super::remap::remap;
use super::{CONTROL, exec, fork, given, mapping, starters, starting};

/// linux/prctl.h.
const PR_SET_SECCOMP: usize = 22;
/// The advice MADV_GUARD_INSTALL of Linux 6.13, which drops pages without an event.
const MADV_GUARD_INSTALL: c_int = 102;

/// Makes a system call of the program's, with what the service needs, and returns the kernel's
/// answer.
///
/// # Safety
/// The same as for the call itself.
pub(super) unsafe fn make(number: u32, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let call = || {
        // SAFETY: the program's own call, passed on unchanged.
        unsafe { raw::syscall(number, arguments) }
    };
    match number {
        number if fork::is_plain(number, arguments) => fork::bare(number, arguments),
        linux::__NR_clone => fork::with_copy(a as u64, call),
        linux::__NR_clone3 if b >= size_of::<u64>() => {
            // SAFETY: clone3's argument begins with its flags; a null is left to the kernel to
            // refuse.
            let flags = if a == 0 { 0 } else { unsafe { *(a as *const u64) } };
            fork::with_copy(flags, call)
        }
        linux::__NR_execve => {
            starters::loosen();
            // SAFETY: the program's own call, with another environment.
            let execute = |list| unsafe { raw::syscall(number, [a, b, list, d, e, f]) };
            // SAFETY: the third argument of this call is an environment.
            unsafe { exec::put_back(c, execute) }
        }
        linux::__NR_execveat => {
            starters::loosen();
            // SAFETY: the program's own call, with another environment.
            let execute = |list| unsafe { raw::syscall(number, [a, b, c, list, e, f]) };
            // SAFETY: the fourth argument of this call is an environment.
            unsafe { exec::put_back(d, execute) }
        }
        linux::__NR_sched_getaffinity
        | linux::__NR_sched_setaffinity
        | linux::__NR_sched_setattr => {
            starters::loosen_all();
            call()
        }
        linux::__NR_madvise => advise(a, b, c as c_int),
        linux::__NR_seccomp => confine(call),
        linux::__NR_prctl if a == PR_SET_SECCOMP => confine(call),
        linux::__NR_mmap => {
            // SAFETY: the program's own call.
            unsafe { mapping::map_memory(arguments) }
        }
        linux::__NR_brk => mapping::move_break_to(a),
        linux::__NR_mremap => remap([a, b, c, d, e]),
        linux::__NR_ioctl => given::control(a, b, c),
        linux::__NR_futex if CONTROL.is_managing() => futex_on_away_pages(call, [a, e]),
        _ => call(),
    }
}

/// Confines the program, once the service has started: later the program's thread might be killed
/// for a call that this takes.
fn confine(call: impl Fn() -> isize) -> isize {
    // A child by `vfork` confines itself, not its parent, whose words these are.
    if !CONTROL.is_owner() {
        return call();
    }
    starting::start();
    mapping::note_confined(true);
    let result = call();
    if result < 0 {
        mapping::note_confined(false);
    }
    result
}

/// Makes a futex call whose words the kernel may touch in a way that cannot wait for us: EFAULT on
/// a page that is away (fixup_user_fault without FAULT_FLAG_ALLOW_RETRY). An ordinary wait that is
/// over at once brings the page in, or shows that the address is wrong. Adding zero to the word has
/// a write-protected page copied.
fn futex_on_away_pages(call: impl Fn() -> isize, words: [usize; 2]) -> isize {
    const EFAULT: isize = errno::answer(errno::EFAULT);
    // An eviction in between is unlikely once, let alone this often.
    const TRIES: usize = 64;
    let mut result = call();
    for _ in 0..TRIES {
        if result != EFAULT || !words.into_iter().all(|word| word == 0 || touch(word)) {
            break;
        }
        result = call();
    }
    result
}

/// Whether the futex word at `address` can be reached; its page is in place then.
fn touch(address: usize) -> bool {
    let time = [0_usize; 2];
    let operation = (linux::FUTEX_WAIT | linux::FUTEX_PRIVATE_FLAG) as usize;
    let arguments = [address, operation, 0, time.as_ptr() as usize, 0, 0];
    // SAFETY: a wait of no time, which changes nothing; a wrong address is answered by EFAULT.
    let answer = unsafe { raw::syscall(linux::__NR_futex, arguments) };
    let is_there = answer != errno::answer(errno::EFAULT);
    if is_there && address.is_multiple_of(size_of::<AtomicU32>()) {
        let word = core::ptr::with_exposed_provenance_mut::<u32>(address);
        // SAFETY: a word of the program's to which it has the kernel write.
        // Relaxed: nothing changes.
        unsafe { AtomicU32::from_ptr(word) }.fetch_add(0, Ordering::Relaxed);
    }
    is_there
}

/// Gives the program's advice to the kernel, with what the service needs. Advice that drops pages
/// passes the gate, and MADV_FREE and MADV_GUARD_INSTALL are followed by a drop that sends an
/// event. Advice about guard pages and children is noted.
pub(super) fn advise(address: usize, length: usize, advice: c_int) -> isize {
    let call = |advice: c_int| {
        let arguments = [address, length, advice as usize, 0, 0, 0];
        // SAFETY: the program's own call, as it made it or in a form that may do the same.
        unsafe { raw::syscall(linux::__NR_madvise, arguments) }
    };
    if advice == linux::MADV_WIPEONFORK as c_int {
        fork::note_wiped();
    }
    if advice == MADV_GUARD_INSTALL {
        CONTROL.note_guards();
    }
    if length > 0 && [linux::MADV_DONTFORK, linux::MADV_DOFORK].contains(&(advice as u32)) {
        let length = Bytes(length).pages_up().bytes();
        return pass_to_children(address..address.saturating_add(length.0), advice, call);
    }
    if !CONTROL.is_managing() {
        return call(advice);
    }
    match advice {
        advice if advice == linux::MADV_DONTNEED as c_int => {
            CONTROL.gate.pass();
            call(advice)
        }
        // Pages given up may go at once. If the kernel took them later, the service would not know.
        // Where the kernel refuses the advice, nothing is given up.
        advice if advice == linux::MADV_FREE as c_int => {
            CONTROL.gate.pass();
            match call(advice) {
                0 => call(linux::MADV_DONTNEED as c_int),
                refused => refused,
            }
        }
        // The advice is given once more at the end, as a page that came back meanwhile has taken
        // the guard's place.
        MADV_GUARD_INSTALL => {
            CONTROL.gate.pass();
            match call(advice) {
                0 => {
                    call(linux::MADV_DONTNEED as c_int);
                    call(advice)
                }
                refused => refused,
            }
        }
        advice => call(advice),
    }
}

/// Passes on whether children inherit a range. We never give children what they are not to have,
/// and keep from them what they are to have as before (`bar`).
fn pass_to_children(range: Range<usize>, advice: c_int, call: impl Fn(c_int) -> isize) -> isize {
    let start = range.start;
    if advice as u32 == linux::MADV_DONTFORK {
        // This comes before the call, as another thread may fork. Where there is no room for the
        // range, children get it.
        let is_new = CONTROL.uninherited.add(range.clone()) == Some(true);
        let result = call(advice);
        if result < 0 && is_new {
            CONTROL.uninherited.remove(&range);
        }
        return result;
    }
    let result = call(advice);
    if result == 0 {
        CONTROL.uninherited.remove(&range);
        if CONTROL.is_managing() {
            CONTROL.hint(start, Bytes(0));
        }
    }
    result
}
