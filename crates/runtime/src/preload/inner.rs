//! libc's own calls of `mmap` and `brk`, above all for malloc, and of `execve`. They go to libc's
//! functions by address, so no function of ours comes first. Memory that grows this way is touched
//! faster than any look can notice: a program that takes 20 MB of malloc at once passed its budget
//! by a fifth. So the first bytes of those functions are made a jump to ours, before the program's
//! first thread. `mremap`, by which `realloc` grows, is another of them; `site` has the call of
//! `fork`.
//!
//! A function is changed only where it is known to be no more than the system call. Elsewhere such
//! memory is found after it has grown.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use coldpress_sys::page::PAGE_BYTES;
use coldpress_sys::proc::Memory;
use coldpress_sys::{errno, raw};
use linux_raw_sys::general as linux;

use super::CONTROL;
use super::code::{Object, call_in};
use super::exec::{execute, execute_at};
use super::imports::{imports, libc_result, used};
use super::mapping::{map, note_break};
use super::remap::mremap;
use super::{after, site};

/// The instruction `endbr64`, with which some builds of libc begin functions.
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// The instruction `jmp *(%rip)`; the address follows it.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
const JUMP_BYTES: usize = JUMP.len() + size_of::<usize>();
/// The most bytes of a function that does no more than a system call and its errno (glibc 2.36: 52,
/// 84 and 170).
const LONGEST: usize = 192;

/// The place where libc keeps the break.
static BREAK: AtomicPtr<AtomicUsize> = AtomicPtr::new(core::ptr::null_mut());

/// The kinds of libc's own calls that come to us.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// Whether all calls do that map memory.
    pub(super) of_memory: bool,
    /// Whether all calls do that start a program.
    pub(super) of_programs: bool,
    /// Whether the call does that makes a child.
    pub(super) of_forks: bool,
}

/// Makes libc's own calls come to us. If a library has started threads, which may be in those
/// calls, only the call of fork is changed.
pub(super) fn take_over() -> Told {
    // A kernel that lets no process write to code refuses, here or below.
    let (Ok(memory), Some(libc)) = (Memory::open(), libc()) else { return Told::default() };
    let of_forks = site::replace(&memory, &libc);
    let is_alone = used(c"__libc_single_threaded").cast::<bool>();
    // SAFETY: a byte of libc's (glibc 2.32), 1 while there is one thread and 0 afterwards.
    if is_alone.is_null() || !unsafe { is_alone.read_volatile() } {
        return Told { of_forks, ..Told::default() };
    }
    after::take_over(&memory, &libc);
    let kept = used(c"__curbrk");
    // Relaxed: set before the program's first thread.
    BREAK.store(kept.cast(), Ordering::Relaxed);
    let replaced = [
        replace(&memory, &libc, c"mmap", linux::__NR_mmap, map as *const () as usize),
        replace(&memory, &libc, c"mremap", linux::__NR_mremap, mremap as *const () as usize),
        !kept.is_null()
            && replace(&memory, &libc, c"brk", linux::__NR_brk, move_break as *const () as usize),
    ];
    let execute = execute as *const () as usize;
    let of_programs = replace(&memory, &libc, c"execve", linux::__NR_execve, execute);
    // Before glibc 2.34 this function calls `execve`.
    replace(&memory, &libc, c"execveat", linux::__NR_execveat, execute_at as *const () as usize);
    Told { of_memory: replaced == [true; 3], of_programs, of_forks }
}

/// Returns the object of libc, whose own calls are meant: a library that comes before it may have
/// functions of the same names.
fn libc() -> Option<Object> {
    let known = imports().register_atfork? as *const () as usize;
    // SAFETY: the loader's variable; libraries are loaded one after another, and this one's
    // constructor is running.
    unsafe { Object::of(used(c"_r_debug"), known) }
}

/// Returns whether libc's function of this name is a jump to `ours` now. It is made one if it is
/// system call `number`.
fn replace(memory: &Memory, libc: &Object, name: &CStr, number: u32, ours: usize) -> bool {
    let code = libc.code_of(name).filter(|code| code.len() <= LONGEST);
    let Some(code) = code.filter(|code| call_in(code, number).is_some()) else { return false };
    let skipped = if code.starts_with(&LANDING) { LANDING.len() } else { 0 };
    let start = code.as_ptr().addr() + skipped;
    let fits = skipped + JUMP_BYTES <= code.len() && start % PAGE_BYTES + JUMP_BYTES <= PAGE_BYTES;
    let mut jump = [0; JUMP_BYTES];
    jump[..JUMP.len()].copy_from_slice(&JUMP);
    jump[JUMP.len()..].copy_from_slice(&ours.to_ne_bytes());
    fits && memory.write(start, &jump).is_ok()
}

/// Does what libc's `brk` does, and registers what the break has grown by before any thread can
/// touch it.
extern "C" fn move_break(address: usize) -> c_int {
    const ENOMEM: isize = errno::answer(errno::ENOMEM);
    // SAFETY: the program's own call, passed on; a call with the address 0 changes nothing.
    let call =
        |address| unsafe { raw::syscall(linux::__NR_brk, [address, 0, 0, 0, 0, 0]) } as usize;
    let before = if CONTROL.is_managing() { call(0) } else { 0 };
    let reached = call(address);
    // Relaxed, here and below: set before the function could be called. The rest is as in libc,
    // where malloc's lock keeps threads apart.
    let kept = BREAK.load(Ordering::Relaxed);
    // SAFETY: libc's own variable, which no other function changes.
    let kept = unsafe { &*kept }.swap(reached, Ordering::Relaxed);
    if reached < address {
        return libc_result(ENOMEM) as c_int;
    }
    note_break(if before != 0 { before } else { kept }, reached);
    0
}
