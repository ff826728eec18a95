//! libc's own calls of `mmap` and `brk`, for malloc above all, and of `execve`. They go to libc's
//! functions by their addresses, so no function of ours comes first, and memory that grows so is
//! touched faster than anybody can look: a program that takes 20 MB of malloc at once passed its
//! budget by a fifth. So the first bytes of those functions are made a jump to ours, before the
//! program's first thread. `mremap`, by which `realloc` grows, is another of them; `site` has the
//! call of `fork`.
//!
//! That is done only where a function is known to be no more than the system call; elsewhere such
//! memory is found when it has grown.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use coldpress_sys::page::PAGE_BYTES;
use coldpress_sys::proc::Memory;
use coldpress_sys::{Bytes, raw};
use linux_raw_sys::general as linux;

use super::CONTROL;
use super::code::{Object, call_in};
use super::exec::{execute, execute_at};
use super::imports::{imports, used};
use super::interpose::{libc_result, map, note_mapped};
use super::remap::mremap;
use super::{site, view};
use crate::regions::REGION_BYTES_MIN;

/// `endbr64`, which some builds of libc begin functions with.
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `jmp *(%rip)`; the address is behind it.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
const JUMP_BYTES: usize = JUMP.len() + size_of::<usize>();
/// A function that does more than a system call and its errno is longer (glibc 2.36: 52, 84 and
/// 170).
const LONGEST: usize = 192;

/// Where libc keeps the break.
static BREAK: AtomicPtr<AtomicUsize> = AtomicPtr::new(core::ptr::null_mut());

/// Which of libc's own calls come to us.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// All that map memory.
    pub(super) of_memory: bool,
    /// All that start a program.
    pub(super) of_programs: bool,
    /// The one that makes a child.
    pub(super) of_forks: bool,
}

/// Has libc's own calls come to us, but for fork unless a library has started threads, which may be
/// in them.
pub(super) fn take_over() -> Told {
    // A kernel that lets nobody write to code refuses, here or below.
    let (Ok(memory), Some(libc)) = (Memory::open(), libc()) else { return Told::default() };
    let of_forks = site::replace(&memory, &libc);
    let is_alone = used(c"__libc_single_threaded").cast::<bool>();
    // SAFETY: a byte of libc's (glibc 2.32), 1 while there is one thread and 0 then.
    if is_alone.is_null() || !unsafe { is_alone.read_volatile() } {
        return Told { of_forks, ..Told::default() };
    }
    view::take_over(&memory, &libc);
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
    // Before glibc 2.34 it calls `execve`.
    replace(&memory, &libc, c"execveat", linux::__NR_execveat, execute_at as *const () as usize);
    Told { of_memory: replaced == [true; 3], of_programs, of_forks }
}

/// The object of libc, whose own calls are meant: a library before it may have functions of the
/// same names.
fn libc() -> Option<Object> {
    let known = imports().register_atfork? as *const () as usize;
    // SAFETY: the loader's variable; libraries are loaded one after the other, and this one's
    // constructor runs.
    unsafe { Object::of(used(c"_r_debug"), known) }
}

/// Makes libc's function of this name a jump to `ours`, if it is system call `number`; whether it
/// is one now.
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

/// What libc's `brk` does. What the break has grown by is registered before anybody can touch it.
extern "C" fn move_break(address: usize) -> c_int {
    const ENOMEM: isize = -12;
    // SAFETY: the program's own call, handed on; one to the address 0 changes nothing.
    let call =
        |address| unsafe { raw::syscall(linux::__NR_brk, [address, 0, 0, 0, 0, 0]) } as usize;
    let before = if CONTROL.is_managing() { call(0) } else { 0 };
    let reached = call(address);
    // Relaxed, here and below: set before the function could be called, and as in libc, where
    // malloc's lock keeps threads apart.
    let kept = BREAK.load(Ordering::Relaxed);
    // SAFETY: libc's own variable, which nobody else changes.
    let kept = unsafe { &*kept }.swap(reached, Ordering::Relaxed);
    if reached < address {
        return libc_result(ENOMEM) as c_int;
    }
    let before = if before != 0 { before } else { kept };
    // The first call only asks.
    if before != 0 && reached > before {
        let start = before.next_multiple_of(PAGE_BYTES);
        let length = Bytes(reached.next_multiple_of(PAGE_BYTES) - start);
        if !CONTROL.is_managing() {
            note_mapped(length);
        } else if length >= REGION_BYTES_MIN {
            CONTROL.hint(start, length);
        }
    }
    0
}
