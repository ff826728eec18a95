//! System calls of libc's own after which we look at the kernel's answer: the calls by which a
//! program opens a file, and `sysinfo(2)`, on which libc's `sysconf` relies.
//!
//! As for fork (`site`), the call in libc is made a jump to us. So all of libc comes here, `fopen`
//! too, and also a program that has bound libc's functions past us (RTLD_DEEPBIND). The call itself
//! is made here as libc would make it, so a thread that is cancelled in it unwinds as from libc.
//!
//! From glibc 2.41 on, one function of libc's own makes the calls in which a thread may be
//! cancelled. There the call of that function comes to us, and goes on to the function.

use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_sys::PAGE_BYTES;
use coldpress_sys::proc::Memory;
use linux_raw_sys::general as linux;

use super::code::{Object, call_behind, calls_in};
use super::imports::next;
use super::view::{self, opened, told_of_machine};

/// The opcodes of `jmp` and `call`; an offset of four bytes follows, from the instruction's end.
const JUMP: u8 = 0xe9;
const CALL: u8 = 0xe8;
const JUMP_BYTES: usize = 5;
/// The most bytes that the functions take (glibc 2.36: 296, 280 and 33).
const LONGEST: usize = 1024;

/// A call in libc that comes to us: the place where libc goes on after it, and our code that libc
/// enters first.
struct Site {
    behind: &'static AtomicUsize,
    enter: unsafe extern "C" fn(),
}

/// Makes libc's function come to us wherever it makes system call `number`, if it does so in as
/// many places as there are `sites`.
fn replace(memory: &Memory, libc: &Object, name: &CStr, number: u32, sites: &[Site]) {
    let code = libc.code_of(name).filter(|code| code.len() <= LONGEST);
    let Some(code) = code else { return };
    let start = code.as_ptr().addr();
    let places = || calls_in(code, number).map(|it| start + it.start..start + it.end);
    if places().count() == sites.len() && places().zip(sites).all(|(at, to)| to.jump(&at).is_some())
    {
        places().zip(sites).for_each(|(at, to)| to.enter_from(memory, &at));
    }
}

impl Site {
    /// Returns the jump that takes the place of a call.
    fn jump(&self, place: &Range<usize>) -> Option<[u8; JUMP_BYTES]> {
        to_us(JUMP, self.enter, place.start)
    }

    /// Writes the jump over the call at `place`. Where that fails, libc's own call stays.
    fn enter_from(&self, memory: &Memory, place: &Range<usize>) {
        // Relaxed: there is one thread.
        self.behind.store(place.end, Ordering::Relaxed);
        let _ = self.jump(place).map(|jump| memory.write(place.start, &jump));
    }
}

/// Returns the instruction by which code at `place` comes to our function, if it can be written
/// there.
fn to_us(how: u8, enter: unsafe extern "C" fn(), place: usize) -> Option<[u8; JUMP_BYTES]> {
    let by = (enter as *const () as usize).wrapping_sub(place + JUMP_BYTES).cast_signed();
    let fits = place % PAGE_BYTES + JUMP_BYTES <= PAGE_BYTES;
    let [a, b, c, d] = i32::try_from(by).ok().filter(|_| fits)?.to_le_bytes();
    Some([how, a, b, c, d])
}

macro_rules! sites {
    ($($enter:ident $behind:ident $number:ident $handler:ident,)*) => {
        $(
            static $behind: AtomicUsize = AtomicUsize::new(0);

            /// The code that libc enters in place of its call. It keeps all registers that we use
            /// but rax, rcx and r11, and what lies below the stack's end (the red zone). The first
            /// word beyond that is the place it came from, for code that walks the stack.
            #[unsafe(naked)]
            unsafe extern "C" fn $enter() {
                naked_asm!(
                    ".cfi_startproc simple",
                    ".cfi_def_cfa rsp, 0",
                    ".cfi_undefined rip",
                    "lea rsp, [rsp - 128]",
                    "push qword ptr [rip + {behind}]",
                    ".cfi_def_cfa rsp, 136",
                    ".cfi_offset rip, -136",
                    "mov eax, {number}",
                    "syscall",
                    "test rax, rax",
                    "js 2f",
                    "push rbp",
                    "mov rbp, rsp",
                    ".cfi_remember_state",
                    ".cfi_def_cfa rbp, 144",
                    ".cfi_offset rbp, -144",
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push r8",
                    "push r9",
                    "push r10",
                    "lea rsp, [rsp - 512]",
                    "and rsp, -16",
                    "fxsave64 [rsp]",
                    "mov rcx, rax",
                    "call {handler}",
                    "fxrstor64 [rsp]",
                    "mov rdi, [rbp - 8]",
                    "mov rsi, [rbp - 16]",
                    "mov rdx, [rbp - 24]",
                    "mov r8, [rbp - 32]",
                    "mov r9, [rbp - 40]",
                    "mov r10, [rbp - 48]",
                    "mov rsp, rbp",
                    "pop rbp",
                    ".cfi_restore_state",
                    "2:",
                    "lea rsp, [rsp + 136]",
                    ".cfi_def_cfa rsp, 0",
                    ".cfi_undefined rip",
                    "jmp [rip + {behind}]",
                    ".cfi_endproc",
                    behind = sym $behind,
                    number = const linux::$number,
                    handler = sym $handler,
                )
            }
        )*
    };
}

// Each function makes its call in two places, one of them for programs with one thread.
sites! {
    open_once OPEN_ONCE __NR_openat opened,
    open_again OPEN_AGAIN __NR_openat opened,
    open_at_once OPEN_AT_ONCE __NR_openat opened,
    open_at_again OPEN_AT_AGAIN __NR_openat opened,
    ask ASK __NR_sysinfo told_of_machine,
}

/// The function of libc that makes system calls in which a thread may be cancelled. It takes six
/// arguments, and the number on the stack.
static CANCELLABLE: AtomicUsize = AtomicUsize::new(0);

/// The code that `open` and `openat` call in place of that function.
#[unsafe(naked)]
unsafe extern "C" fn open_cancellably() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "lea rsp, [rsp - 8]",
        ".cfi_adjust_cfa_offset 8",
        "push qword ptr [rsp + 40]",
        ".cfi_adjust_cfa_offset 8",
        "call [rip + {cancellable}]",
        "lea rsp, [rsp + 16]",
        ".cfi_adjust_cfa_offset -16",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "mov rcx, rax",
        "test rax, rax",
        "jns {opened}",
        "ret",
        ".cfi_endproc",
        cancellable = sym CANCELLABLE,
        opened = sym opened,
    )
}

/// Makes both of these functions call us where they call libc's cancellable function for system
/// call `number`.
fn replace_cancellable(memory: &Memory, libc: &Object, names: [&CStr; 2], number: u32) {
    let call_in = |name| {
        let call = call_behind(libc.code_of(name)?, number)?;
        Some((call, to_us(CALL, open_cancellably, call.place)?))
    };
    let [Some((one, ours)), Some((other, other_ours))] = names.map(call_in) else { return };
    // If the two differ, one of them is not a call of that function.
    if one.function == other.function {
        // Relaxed: there is one thread.
        CANCELLABLE.store(one.function, Ordering::Relaxed);
        // Where one cannot be written, libc's own call stays.
        let _ = memory.write(one.place, &ours);
        let _ = memory.write(other.place, &other_ours);
    }
}

/// Makes `open` and `openat` come to us, and everything in libc that uses them.
fn tell_of_files(memory: &Memory, libc: &Object) {
    let open = [
        Site { behind: &OPEN_ONCE, enter: open_once },
        Site { behind: &OPEN_AGAIN, enter: open_again },
    ];
    let open_at = [
        Site { behind: &OPEN_AT_ONCE, enter: open_at_once },
        Site { behind: &OPEN_AT_AGAIN, enter: open_at_again },
    ];
    replace(memory, libc, c"open64", linux::__NR_openat, &open);
    replace(memory, libc, c"openat64", linux::__NR_openat, &open_at);
    replace_cancellable(memory, libc, [c"open64", c"openat64"], linux::__NR_openat);
}

/// Makes `sysinfo` come to us, on which `sysconf` relies.
fn tell_of_machine(memory: &Memory, libc: &Object) {
    let ask = [Site { behind: &ASK, enter: ask }];
    replace(memory, libc, c"sysinfo", linux::__NR_sysinfo, &ask);
}

/// Makes libc's calls that report memory come to us; those that open files only if anything is
/// shown.
pub(super) fn take_over(memory: &Memory, libc: &Object) {
    let is_shown = view::is_shown();
    if is_shown && view::is_our_own() {
        return;
    }
    if is_shown {
        let_qsort_ask();
        tell_of_files(memory, libc);
    }
    tell_of_machine(memory, libc);
}

/// Makes libc's `qsort` learn the true memory of the machine. `qsort` takes memory for a copy of
/// what it sorts if that is no more than a quarter of the machine's, and keeps the order of equal
/// elements only then (glibc before 2.37). It asks once, when it sorts one element that is long
/// enough.
fn let_qsort_ask() {
    type Compare = extern "C" fn(*const c_void, *const c_void) -> c_int;
    type Sort = unsafe extern "C" fn(*mut c_void, usize, usize, Compare);
    extern "C" fn equal(_: *const c_void, _: *const c_void) -> c_int {
        0
    }
    // SAFETY: libc's function of this name has this type, and a null is `None`.
    let sort = unsafe { core::mem::transmute::<*mut c_void, Option<Sort>>(next(c"qsort")) };
    let mut element = [0_u8; 2048];
    if let Some(sort) = sort {
        // SAFETY: one element of that length.
        unsafe { sort(element.as_mut_ptr().cast(), 1, element.len(), equal) };
    }
}
