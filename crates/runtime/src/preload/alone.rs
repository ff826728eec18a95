//! The calls before which the service ends, and those before which it must have begun.
//!
//! - `unshare` and `setns`: the kernel refuses some kinds to a process that shares its memory with
//!   another, and after one kind children are in another name space of process numbers.
//! - `mlockall`, after which nothing can be moved, and everything new would be filled at once.

use core::ffi::c_int;

use coldpress_sys::{cpu, errno, raw};
use linux_raw_sys::general as linux;

use super::imports::libc_result;
use super::{CONTROL, make_fresh, starting};

/// The kernel's answer to a process that shares its memory with another, and to some calls of a
/// process with several threads.
const EINVAL: isize = errno::answer(errno::EINVAL);
/// The kernel's other answer in that case, to some calls.
const EUSERS: isize = errno::answer(errno::EUSERS);
/// The number of times, and the interval, at which a call that must be alone is repeated: 20 ms in
/// all.
const ENDINGS: u32 = 40;
const ENDING_NS: u64 = 500_000;

/// Runs `call` while this process has no service, and allows a service again if `again` says so of
/// the result.
fn alone(call: impl Fn() -> isize, again: impl FnOnce(isize) -> bool) -> c_int {
    if !CONTROL.is_owner() {
        return libc_result(call()) as c_int;
    }
    CONTROL.life.begin_alone();
    if CONTROL.life.bar_start() {
        CONTROL.stop_service();
        make_fresh();
        CONTROL.room.give_back();
    }
    let mut result = call();
    // The service ends a moment after it has reported its end.
    for _ in 0..ENDINGS {
        if ![EINVAL, EUSERS].contains(&result) {
            break;
        }
        cpu::sleep_ns(ENDING_NS);
        result = call();
    }
    if again(result) {
        CONTROL.life.allow_start();
        starting::go_on();
    }
    CONTROL.life.end_alone();
    libc_result(result) as c_int
}

/// Takes the place of libc's `unshare(2)`.
#[unsafe(no_mangle)]
extern "C" fn unshare(flags: c_int) -> c_int {
    // SAFETY: the program's own call, which takes flags by value.
    let call = || unsafe { raw::syscall(linux::__NR_unshare, [flags as usize, 0, 0, 0, 0, 0]) };
    if flags as u32 & linux::CLONE_NEWPID != 0 {
        begin_before_children_are_elsewhere();
    }
    // The kernel refuses this where another process has the memory.
    if flags as u32 & linux::CLONE_VM == 0 {
        libc_result(call()) as c_int
    } else {
        alone(call, |_| true)
    }
}

/// Starts the service, because children of this process will be in another name space of process
/// numbers, the first of them as its init: a service must be there before.
fn begin_before_children_are_elsewhere() {
    if CONTROL.is_owner() {
        starting::start();
    }
}

/// Takes the place of libc's `setns(2)`. Name spaces of time are closed to a process that shares
/// its memory with another.
#[unsafe(no_mangle)]
extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    // linux/nsfs.h: `_IO(0xb7, 3)` answers with the CLONE_NEW flag of a name space's descriptor.
    const NS_GET_NSTYPE: usize = 0xb703;
    let call = || {
        // SAFETY: the program's own call, which takes a descriptor and flags by value.
        unsafe { raw::syscall(linux::__NR_setns, [fd as usize, kind as usize, 0, 0, 0, 0]) }
    };
    let kinds = if kind != 0 {
        kind as isize
    } else {
        // SAFETY: the request has no argument; other descriptors answer ENOTTY, a negative number.
        unsafe { raw::syscall(linux::__NR_ioctl, [fd as usize, NS_GET_NSTYPE, 0, 0, 0, 0]) }.max(0)
    };
    if kinds & linux::CLONE_NEWPID as isize != 0 {
        begin_before_children_are_elsewhere();
    }
    if kinds & linux::CLONE_NEWTIME as isize == 0 {
        libc_result(call()) as c_int
    } else {
        alone(call, |_| true)
    }
}

/// Takes the place of libc's `mlockall(2)`. Once it has succeeded, the program is unmanaged until
/// `munlockall`.
#[unsafe(no_mangle)]
extern "C" fn mlockall(flags: c_int) -> c_int {
    // SAFETY: the program's own call, which takes flags by value.
    let call = || unsafe { raw::syscall(linux::__NR_mlockall, [flags as usize, 0, 0, 0, 0, 0]) };
    alone(call, |result| result != 0)
}

/// Takes the place of libc's `munlockall(2)`.
#[unsafe(no_mangle)]
extern "C" fn munlockall() -> c_int {
    // SAFETY: the program's own call, without arguments.
    let call = || unsafe { raw::syscall(linux::__NR_munlockall, [0; 6]) };
    alone(call, |_| true)
}
