//! fork: everything is in place while it happens, and the child starts afresh.
//!
//! The child's copy of the program's memory is complete, and its registrations are gone with the
//! parent's userfaultfd, so it is an ordinary process that may come to be managed under its own
//! service thread. Handlers registered here run inside glibc's `fork`, whoever calls it (`daemon`
//! and `forkpty` too): ours was registered first, so its prepare runs last and its child part
//! first.

use core::ffi::{c_int, c_void};

use super::{CONTROL, start_in_child, starters};

unsafe extern "C" {
    /// What pthread_atfork(3) calls.
    fn __register_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        object: *mut c_void,
    ) -> c_int;
}

/// Registers the handlers.
pub(super) fn register() {
    // SAFETY: three functions that live as long as the program, as this object is never unloaded.
    // Without memory for them nothing is registered; then the program must stay unmanaged.
    let result = unsafe {
        __register_atfork(Some(prepare), Some(parent), Some(child), core::ptr::null_mut())
    };
    assert!(result == 0, "no memory for fork handlers");
}

pub(super) extern "C" fn prepare() {
    CONTROL.hold();
    starters::loosen();
}

pub(super) extern "C" fn parent() {
    CONTROL.release();
}

pub(super) extern "C" fn child() {
    start_in_child();
}
