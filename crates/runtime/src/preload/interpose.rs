//! The few functions of the program's libc that must know of us.
//!
//! - Ways to copy the address space that run no fork handlers: `_Fork`, `clone` and `syscall`.
//! - `madvise`, for the kinds of advice that change contents without an event.
//!
//! `mapping` has `mmap`. `given` has the functions that ask for a range for the program itself.
//! `remap` has `mremap`, which Linux gives up halfway where one of several mappings is watched.
//! `alone` has the calls before which the service ends. `starters` has the functions before which a
//! thread that is kept on its processor is let go.
//!
//! Each function does what libc's does: by the same system call, or by libc's own function where
//! libc keeps more state beside the call (`_Fork`). libc's own calls do not come here, except those
//! in `inner`.

use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use linux_raw_sys::general as linux;

use super::imports::{self, ENOSYS, libc_result, next};
use super::{calls, fork, site};

static REAL_FORK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Finds libc's `_Fork` (glibc 2.34), while it is still safe to ask.
pub(super) fn resolve() {
    // Relaxed: set before the program's first thread.
    REAL_FORK.store(next(c"_Fork"), Ordering::Relaxed);
}

/// Takes the place of libc's `madvise(2)`.
///
/// # Safety
/// The same as for libc's own function.
#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int {
    libc_result(calls::advise(address.addr(), length, advice)) as c_int
}

/// Takes the place of libc's `prctl(2)`, whose last four arguments are there as the first asks.
///
/// # Safety
/// The same as for libc's own function.
#[unsafe(no_mangle)]
unsafe extern "C" fn prctl(operation: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let arguments = [operation as usize, a, b, c, d, 0];
    // SAFETY: the program's own call.
    libc_result(unsafe { calls::make(linux::__NR_prctl, arguments) }) as c_int
}

/// Takes the place of libc's `_Fork(3)`.
///
/// # Safety
/// The same as for libc's own function.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Fork() -> c_int {
    // Relaxed: set before the program's first thread, or else found again.
    if REAL_FORK.load(Ordering::Relaxed).is_null() {
        resolve();
    }
    // Relaxed: as above.
    let real = REAL_FORK.load(Ordering::Relaxed);
    if real.is_null() {
        return libc_result(-ENOSYS) as c_int;
    }
    // SAFETY: libc's function of this name has this type.
    let real: extern "C" fn() -> c_int = unsafe { core::mem::transmute(real) };
    if site::is_ours() {
        return real();
    }
    fork::hold();
    let process = real();
    if process == 0 {
        fork::child()
    } else {
        fork::let_go()
    }
    process
}

/// Takes the place of libc's `clone(2)`. The last three arguments are there only when the flags ask
/// for them.
///
/// # Safety
/// The same as for libc's own function.
#[unsafe(no_mangle)]
unsafe extern "C" fn clone(
    function: *mut c_void,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut c_void,
    tls: *mut c_void,
    child_tid: *mut c_void,
) -> c_int {
    let Some(real) = imports::clone() else { return libc_result(-ENOSYS) as c_int };
    fork::with_copy(flags as u64, || {
        // SAFETY: the program's own call, passed on unchanged.
        unsafe { real(function, stack, flags, argument, parent_tid, tls, child_tid) }
    })
}

/// Takes the place of libc's `syscall(2)`.
///
/// # Safety
/// The same as for libc's own function.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the program's own call.
    libc_result(unsafe { calls::make(number as u32, [a, b, c, d, e, f]) })
}
