//! Starting programs: what is ours is in the environment of each (`environment`).
//!
//! `inner` has libc's `execve` come here, in which libc's other ways to start a program end. Who
//! calls the kernel itself is not seen, so a program that has Go's runtime keeps what it was given,
//! as does one whose libc cannot be changed.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};

use coldpress_sys::raw;
use linux_raw_sys::general as linux;

use super::environment::Ours;
use super::interpose::libc_result;
use super::starters;

/// What was taken out of the program's environment.
struct Taken(UnsafeCell<Ours>);

// SAFETY: it is written before the program's first thread, and only read then.
unsafe impl Sync for Taken {}

static TAKEN: Taken = Taken(UnsafeCell::new(Ours::NONE));

fn taken() -> &'static Ours {
    // SAFETY: it is written before there is a second thread.
    unsafe { &*TAKEN.0.get() }
}

/// Takes what is ours out of the program's environment.
///
/// # Safety
/// It must be that of the process, as the kernel laid it out, and there be one thread.
pub(super) unsafe fn take_out(environment: *const *const c_char) {
    // SAFETY: the caller's promise.
    unsafe { *TAKEN.0.get() = Ours::take_out(environment) };
}

/// Makes `call`, which starts a program, with an environment that has what is ours.
///
/// # Safety
/// The environment is one for `execve`.
pub(super) unsafe fn put_back(environment: usize, call: impl Fn(usize) -> isize) -> isize {
    let environment = core::ptr::with_exposed_provenance(environment);
    // SAFETY: the caller's promise.
    unsafe { taken().put_back(environment, |list| call(list.expose_provenance())) }
}

/// `execve(2)`, also where libc calls it.
///
/// # Safety
/// As libc's.
pub(super) unsafe extern "C" fn execute(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    starters::loosen();
    let call = |environment: *const *const c_char| {
        let arguments = [path.addr(), arguments.addr(), environment.addr(), 0, 0, 0];
        // SAFETY: the program's own call, with another environment.
        unsafe { raw::syscall(linux::__NR_execve, arguments) }
    };
    // SAFETY: the program's own environment, which the kernel would read.
    libc_result(unsafe { taken().put_back(environment, call) }) as c_int
}

/// `execveat(2)`, likewise.
///
/// # Safety
/// As libc's.
pub(super) unsafe extern "C" fn execute_at(
    folder: c_int,
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    flags: c_int,
) -> c_int {
    starters::loosen();
    let call = |environment: *const *const c_char| {
        let [path, list] = [path.addr(), arguments.addr()];
        let arguments = [folder as usize, path, list, environment.addr(), flags as usize, 0];
        // SAFETY: the program's own call, with another environment.
        unsafe { raw::syscall(linux::__NR_execveat, arguments) }
    };
    // SAFETY: the program's own environment, which the kernel would read.
    libc_result(unsafe { taken().put_back(environment, call) }) as c_int
}

/// `fexecve(3)`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(
    file: c_int,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the program's own call, handed on.
    unsafe { execute_at(file, c"".as_ptr(), arguments, environment, linux::AT_EMPTY_PATH as c_int) }
}
