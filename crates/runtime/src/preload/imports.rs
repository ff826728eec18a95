//! The functions that the library takes from libc, as shim.c names them.
//!
//! Any of them may be missing, because only glibc has all. Then the library leaves the program
//! alone ([`are_complete`]), and its functions still do what libc's do.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};

/// The error number of a call that does not exist.
pub(super) const ENOSYS: isize = coldpress_sys::errno::ENOSYS as isize;

/// The type of `clone(2)` as libc has it for itself.
type Clone = unsafe extern "C" fn(
    function: *mut c_void,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut c_void,
    tls: *mut c_void,
    child_tid: *mut c_void,
) -> c_int;

/// The type of the function that pthread_atfork(3) calls.
type RegisterAtFork = unsafe extern "C" fn(
    prepare: Option<extern "C" fn()>,
    parent: Option<extern "C" fn()>,
    child: Option<extern "C" fn()>,
    object: *mut c_void,
) -> c_int;

type Lookup = unsafe extern "C" fn(handle: *mut c_void, name: *const c_char) -> *mut c_void;

/// The functions in `coldpress_imports` of shim.c.
#[repr(C)]
pub(super) struct Imports {
    clone: Option<Clone>,
    errno_location: Option<unsafe extern "C" fn() -> *mut c_int>,
    pub(super) register_atfork: Option<RegisterAtFork>,
    dlsym: Option<Lookup>,
}

unsafe extern "C" {
    static coldpress_imports: Imports;
}

/// Returns all imports.
pub(super) fn imports() -> &'static Imports {
    // SAFETY: a constant of shim.c, four words that the loader has filled in, each with a function
    // of its type or null.
    unsafe { &coldpress_imports }
}

/// Whether all imports are there, as they are with glibc.
pub(super) fn are_complete() -> bool {
    let Imports { clone, errno_location, register_atfork, dlsym } = imports();
    clone.is_some() && errno_location.is_some() && register_atfork.is_some() && dlsym.is_some()
}

/// Sets `errno` of the calling thread, which is one of the program's.
fn set_errno(number: c_int) {
    if let Some(location) = imports().errno_location {
        // SAFETY: libc gives each thread its own.
        unsafe { *location() = number };
    }
}

/// Returns a result as libc gives it: -1 and errno on failure.
pub(super) fn libc_result(result: isize) -> c_long {
    if (-4095..0).contains(&result) {
        set_errno(-result as c_int);
        return -1;
    }
    result as c_long
}

/// Returns the function of this name in the objects loaded after this one.
pub(super) fn next(name: &CStr) -> *mut c_void {
    const RTLD_NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);
    look_up(RTLD_NEXT, name)
}

/// Returns the variable of this name that libc uses, of which the program may have a copy.
pub(super) fn used(name: &CStr) -> *mut c_void {
    const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
    look_up(RTLD_DEFAULT, name)
}

fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a lookup by name.
    imports().dlsym.map_or(core::ptr::null_mut(), |dlsym| unsafe { dlsym(handle, name.as_ptr()) })
}

/// Returns libc's `clone`, by a name that no function of ours has, or else the one after ours.
pub(super) fn clone() -> Option<Clone> {
    imports().clone.or_else(|| {
        let found = next(c"clone");
        // SAFETY: libc's function of this name has this type, and a null is `None`.
        unsafe { core::mem::transmute::<*mut c_void, Option<Clone>>(found) }
    })
}
