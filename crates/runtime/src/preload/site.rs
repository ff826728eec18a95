//! libc's own fork: the system call in `_Fork` (before glibc 2.34, in `fork`), made a jump to us.
//!
//! `mov $nr, %eax; syscall` takes seven bytes, and a jump to our code takes five. Our code is as
//! near as two mappings of libraries are: within 2 GiB. The two bytes of the system call itself
//! stay as they are, so a thread that is about to make it goes on as before. A thread that a
//! library has started, and that is in the first five bytes at this moment, could see a part of the
//! jump; no thread forks so early.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_sys::PAGE_BYTES;
use coldpress_sys::proc::Memory;
use linux_raw_sys::general as linux;

use super::code::{Object, call_in};
use super::{calls, starters};

/// The opcode of `jmp`; an offset of four bytes follows, from the instruction's end.
const JUMP: u8 = 0xe9;
const JUMP_BYTES: usize = 5;
/// The most bytes that the function takes: it has 458 in glibc 2.31, 116 in 2.36, 192 in 2.41.
const LONGEST: usize = 1024;

/// The address at which libc goes on after its call, if the call is a jump to us, or is about to
/// be.
static BEHIND: AtomicUsize = AtomicUsize::new(0);

/// The number of threads in [`came`] and [`loose`], or in what these have called. Only while there
/// is none may the library be taken out of the program.
pub(super) static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Forgets the other threads of a parent, in its child. The child's one thread has forked in
/// [`came`], if any thread is there.
pub(super) fn forget_others() {
    // Relaxed: there is one thread.
    INSIDE.store(INSIDE.load(Ordering::Relaxed).min(1), Ordering::Relaxed);
}

/// Whether libc's call that makes a child is a jump to us.
pub(super) fn is_ours() -> bool {
    // Relaxed: set before `main`, while nothing is away.
    BEHIND.load(Ordering::Relaxed) != 0
}

/// Returns whether libc's call that makes a child is a jump to us now: makes it one where possible.
pub(super) fn replace(memory: &Memory, libc: &Object) -> bool {
    let code = libc.code_of(c"_Fork").or_else(|| libc.code_of(c"fork"));
    let Some(code) = code.filter(|code| code.len() <= LONGEST) else { return false };
    let Some(place) = call_in(code, linux::__NR_clone) else { return false };
    let (start, end) = (code.as_ptr().addr() + place.start, code.as_ptr().addr() + place.end);
    let by = (enter as *const () as usize).wrapping_sub(start + JUMP_BYTES).cast_signed();
    let fits = start % PAGE_BYTES + JUMP_BYTES <= PAGE_BYTES;
    let Some(by) = i32::try_from(by).ok().filter(|_| fits) else { return false };
    // Relaxed, both: read by threads that come to the jump, which is written by a system call.
    BEHIND.store(end, Ordering::Relaxed);
    let [a, b, c, d] = by.to_le_bytes();
    let is_written = memory.write(start, &[JUMP, a, b, c, d]).is_ok();
    if !is_written {
        BEHIND.store(0, Ordering::Relaxed);
    }
    is_written
}

/// The code that libc enters in place of its call: it goes on as [`came`] does.
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        ".cfi_startproc simple",
        ".cfi_def_cfa rsp, 0",
        "lea rsp, [rsp - 128]",
        "push qword ptr [rip + {behind}]",
        ".cfi_def_cfa rsp, 136",
        ".cfi_offset rip, -136",
        "mov eax, 56", // clone
        "jmp {came}",
        ".cfi_endproc",
        behind = sym BEHIND,
        came = sym came,
    )
}

/// The code that goes on in place of a system call, whose number is in `eax`. As the kernel does,
/// it keeps all registers that we use but rax, rcx and r11, and what lies below the stack's end
/// (the red zone). The word at the stack's end, beyond the red zone, is the address at which the
/// program goes on, also for code that walks the stack.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn came() {
    naked_asm!(
        ".cfi_startproc simple",
        ".cfi_def_cfa rsp, 136",
        ".cfi_offset rip, -136",
        "push rbp",
        "mov rbp, rsp",
        ".cfi_def_cfa rbp, 144",
        ".cfi_offset rbp, -144",
        "lock inc qword ptr [rip + {inside}]",
        // The arguments, the first of them last, so that they make an array.
        "push r9",
        "push r8",
        "push r10",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov rsi, rsp",
        "lea rsp, [rsp - 512]",
        "and rsp, -16",
        "fxsave64 [rsp]",
        "mov edi, eax",
        "call {made}",
        "fxrstor64 [rsp]",
        "mov rdi, [rbp - 48]",
        "mov rsi, [rbp - 40]",
        "mov rdx, [rbp - 32]",
        "mov r10, [rbp - 24]",
        "mov r8, [rbp - 16]",
        "mov r9, [rbp - 8]",
        "lock dec qword ptr [rip + {inside}]",
        "mov r11, [rbp + 8]",
        "mov rsp, rbp",
        "pop rbp",
        "lea rsp, [rsp + 136]",
        "jmp r11",
        ".cfi_endproc",
        made = sym make,
        inside = sym INSIDE,
    )
}

/// The code that a thread enters before it starts another, or a program, by a system call of its
/// own: the thread is let go. It keeps all registers but r11, and goes on as [`came`] does.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn loose() {
    naked_asm!(
        ".cfi_startproc simple",
        ".cfi_def_cfa rsp, 136",
        ".cfi_offset rip, -136",
        "push rbp",
        "mov rbp, rsp",
        ".cfi_def_cfa rbp, 144",
        ".cfi_offset rbp, -144",
        "lock inc qword ptr [rip + {inside}]",
        "push rax",
        "push rcx",
        "push r9",
        "push r8",
        "push r10",
        "push rdx",
        "push rsi",
        "push rdi",
        "lea rsp, [rsp - 512]",
        "and rsp, -16",
        "fxsave64 [rsp]",
        "call {loosen}",
        "fxrstor64 [rsp]",
        "mov rdi, [rbp - 64]",
        "mov rsi, [rbp - 56]",
        "mov rdx, [rbp - 48]",
        "mov r10, [rbp - 40]",
        "mov r8, [rbp - 32]",
        "mov r9, [rbp - 24]",
        "mov rcx, [rbp - 16]",
        "mov rax, [rbp - 8]",
        "lock dec qword ptr [rip + {inside}]",
        "mov r11, [rbp + 8]",
        "mov rsp, rbp",
        "pop rbp",
        "lea rsp, [rsp + 136]",
        "jmp r11",
        ".cfi_endproc",
        loosen = sym loosen,
        inside = sym INSIDE,
    )
}

unsafe extern "C" fn loosen() {
    starters::loosen();
}

/// Makes a call of the program's, with these arguments.
unsafe extern "C" fn make(number: u32, arguments: &[usize; 6]) -> isize {
    // SAFETY: the program's own call.
    unsafe { calls::make(number, *arguments) }
}
