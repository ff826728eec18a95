//! The functions of libc that start a thread or a program, at once or at some time later, and those
//! that report or change which processors are allowed. A new thread or program inherits the
//! processors of the calling thread, so a thread that we keep on one processor (`stay`) is let go
//! first.
//!
//! A starter is entered by a jump from here, with its arguments and its caller's frame as they
//! came: some have variable arguments, and `vfork` returns twice.

use core::arch::naked_asm;
use core::ffi::{CStr, c_long, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, Ordering};

use coldpress_sys::raw;

use super::CONTROL;
use super::imports::{ENOSYS, libc_result, next};

/// Lets the calling thread go, which is about to start something. No thread is kept in a process
/// that is not managed, or in one without a service, such as a child by `vfork`.
pub(super) fn loosen() {
    if CONTROL.is_managing() && CONTROL.is_owner() {
        CONTROL.stay.loosen(raw::thread_id());
    }
}

/// Lets all threads go: the program may ask for the processors of any of them, or set them.
pub(super) fn loosen_all() {
    if CONTROL.is_managing() && CONTROL.is_owner() {
        CONTROL.stay.loosen_all();
    }
}

/// A function of libc, and what is to be done before it.
struct Wrapped {
    name: &'static CStr,
    before: fn(),
    real: AtomicPtr<c_void>,
}

/// Does what comes before function `index`, and returns libc's function.
extern "C" fn enter(index: usize) -> *const c_void {
    let wrapped = &WRAPPED[index];
    (wrapped.before)();
    // Relaxed: every thread that looks finds the same function.
    let mut real = wrapped.real.load(Ordering::Relaxed);
    if real.is_null() {
        real = next(wrapped.name);
        if real.is_null() {
            return missing as *const c_void;
        }
        // Relaxed: as above.
        wrapped.real.store(real, Ordering::Relaxed);
    }
    real
}

/// Takes the place of a function that this libc does not have.
extern "C" fn missing() -> c_long {
    libc_result(-ENOSYS)
}

/// The functions that a signal handler may call, or a child of a process with many threads, where
/// it is too late to look them up: `vfork` and all of `exec`. A lookup takes a microsecond in every
/// process, so the others are looked up when they are called.
const ANYWHERE: Range<usize> = 6..15;

/// Finds the functions in [`ANYWHERE`], while it is still safe to ask.
pub(super) fn resolve() {
    for wrapped in &WRAPPED[ANYWHERE] {
        // Relaxed: every thread that looks finds the same function.
        wrapped.real.store(next(wrapped.name), Ordering::Relaxed);
    }
}

macro_rules! wrapped {
    ($($index:literal $name:ident $before:ident,)*) => {
        static WRAPPED: [Wrapped; [$($index),*].len()] = [$({
            // The name as a C string.
            const NAME: &CStr = match CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes()
            ) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero inside"),
            };
            Wrapped {
                name: NAME,
                before: $before,
                real: AtomicPtr::new(core::ptr::null_mut()),
            }
        }),*];

        $(
            /// Enters libc's function of this name, after what comes before it.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                naked_asm!(
                    // All registers that may hold arguments; rax counts the floating-point ones
                    // among variable arguments. Seven pushes align the stack for the call.
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "push rax",
                    "mov edi, {index}",
                    "call {enter}",
                    "mov r11, rax",
                    "pop rax",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "jmp r11",
                    index = const $index,
                    enter = sym enter,
                )
            }
        )*
    };
}

wrapped! {
    0 pthread_create loosen,
    1 thrd_create loosen,
    2 posix_spawn loosen,
    3 posix_spawnp loosen,
    4 system loosen,
    5 popen loosen,
    // From here to `execle`: `ANYWHERE`.
    6 vfork loosen,
    7 execve loosen,
    8 execv loosen,
    9 execvp loosen,
    10 execvpe loosen,
    11 execveat loosen,
    12 execl loosen,
    13 execlp loosen,
    14 execle loosen,
    15 timer_create loosen,
    16 mq_notify loosen,
    17 aio_read loosen,
    18 aio_read64 loosen,
    19 aio_write loosen,
    20 aio_write64 loosen,
    21 lio_listio loosen,
    22 lio_listio64 loosen,
    23 sched_getaffinity loosen_all,
    24 sched_setaffinity loosen_all,
    25 pthread_getaffinity_np loosen_all,
    26 pthread_setaffinity_np loosen_all,
    27 pthread_getattr_np loosen_all,
}
