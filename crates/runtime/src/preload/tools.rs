//! Tools that watch a program from inside, and what they need from us.

use core::arch::asm;
use core::ffi::{CStr, c_char};

/// Whether valgrind runs this program. Valgrind translates the code that it knows, and our service
/// is not part of that. It ends a program at the first system call that it does not know. So such a
/// program is left alone.
///
/// Valgrind looks for these instructions (valgrind.h, `RUNNING_ON_VALGRIND`), and answers in a
/// register; a processor just runs them.
pub(super) fn is_under_valgrind() -> bool {
    /// `VG_USERREQ__RUNNING_ON_VALGRIND`.
    const RUNNING_ON_VALGRIND: usize = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let answer: usize;
    // SAFETY: rdi is turned by 128 bits in all, and rbx exchanged with itself: nothing changes but
    // flags. Valgrind reads the request, and writes rdx.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0_usize => answer,
            options(nostack),
        );
    }
    answer != 0
}

/// Answers AddressSanitizer's runtime, which asks the program for options before it reads its
/// variable ASAN_OPTIONS.
///
/// Where the runtime is a library of its own (gcc's default), it ends a program in which another
/// library comes first, because its functions must come before libc's. Our functions hand calls on
/// to the next library, which is the runtime, so there is no harm. A program that defines this
/// function answers for itself.
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const c_char {
    const OPTIONS: &CStr = c"verify_asan_link_order=0";
    OPTIONS.as_ptr()
}
