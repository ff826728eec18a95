//! `mmap` as the program calls it: fresh memory is known before the program touches it, and is not
//! filled before that. While the program is not managed yet, what it maps is counted for two
//! decisions: whether it is worth a service (`starting`), and whether the thread waits for a look.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use coldpress_sys::{Bytes, PAGE_BYTES, raw};
use linux_raw_sys::general as linux;

use super::imports::libc_result;
use super::{CONTROL, starting, want_room};
use crate::pages::REGION_BYTES_MIN;

/// The divisor of the budget that gives what may be filled before the program is managed. The
/// kernel fills larger mappings before any page of them could be taken out, whatever the budget, so
/// a thread that maps more waits for a look.
const UNSEEN_SHARE: usize = 8;
/// That part of the budget, in bytes.
static UNSEEN_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The bytes that were mapped since the service was last asked for a look, before management
/// begins.
static UNSEEN: AtomicUsize = AtomicUsize::new(0);

/// Whether the program has a seccomp filter of its own, which may kill a thread for a call that
/// nothing but this library makes.
static IS_CONFINED: AtomicBool = AtomicBool::new(false);

/// Notes whether the program is about to confine itself.
pub(super) fn note_confined(is_so: bool) {
    // Relaxed: the thread that confines itself maps memory after that.
    IS_CONFINED.store(is_so, Ordering::Relaxed);
}

/// Notes the budget of the run.
pub(super) fn note_budget(budget: Bytes) {
    // Relaxed: set before the program's first thread.
    UNSEEN_MAX.store(budget.0 / UNSEEN_SHARE, Ordering::Relaxed);
}

/// Maps memory as `mmap(2)` does. Fresh memory is registered before the program can touch it.
/// Otherwise it would be found only after it has grown, which a fast program does by megabytes in a
/// millisecond. Memory that is large, or managed, is not filled at once (MAP_POPULATE, of which
/// mmap(2) promises nothing).
///
/// No other function in the process has this name, so a call of `map` is a call of this one.
///
/// # Safety
/// The same as for libc's own function.
pub(super) unsafe extern "C" fn map(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: isize,
) -> *mut c_void {
    let arguments =
        [address.addr(), length, protection as usize, flags as usize, fd as usize, offset as usize];
    // SAFETY: the caller's promise.
    let result = unsafe { map_memory(arguments) };
    core::ptr::with_exposed_provenance_mut(libc_result(result) as usize)
}

/// Maps memory as [`map`] does, and returns the kernel's answer.
///
/// # Safety
/// The same as for libc's own function.
pub(super) unsafe fn map_memory(arguments: [usize; 6]) -> isize {
    // Relaxed: see `note_confined`.
    if IS_CONFINED.load(Ordering::Relaxed) {
        // The memory is found once it has grown.
        // SAFETY: the program's own call, passed on unchanged.
        return unsafe { raw::syscall(linux::__NR_mmap, arguments) };
    }
    let [address, length, protection, flags, fd, offset] = arguments;
    let (protection, flags) = (protection as c_int, flags as c_int);
    let is_executable = protection as u32 & linux::PROT_EXEC != 0;
    let has_room = || !is_executable || CONTROL.room.span().is_some();
    let may_be_managed = is_manageable(length, protection, flags);
    let is_manageable = may_be_managed && has_room();
    let is_known = is_manageable && CONTROL.is_managing();
    // Relaxed: set before the program's first thread.
    let is_large = is_manageable && length > UNSEEN_MAX.load(Ordering::Relaxed);
    let fills = if is_known || is_large { flags & !(linux::MAP_POPULATE as c_int) } else { flags };
    let arguments = [address, length, protection as usize, fills as usize, fd, offset];
    // SAFETY: the program's own call, passed on without what it need not do.
    let result = unsafe { raw::syscall(linux::__NR_mmap, arguments) };
    let length = Bytes(length).pages_up().bytes();
    if result > 0 {
        // Nothing is left of what was there before.
        let range = result as usize..result as usize + length.0;
        CONTROL.given.forget(&range);
        CONTROL.uninherited.remove(&range);
    }
    if result > 0 && may_be_managed && is_executable {
        want_room();
    }
    if result > 0 && may_be_managed && has_room() {
        if !is_known {
            note_mapped(length);
        }
        if CONTROL.is_managing() {
            CONTROL.hint(result as usize, length);
        }
    } else if result > 0 && is_reserve(flags) {
        starting::note_mapped(length);
    }
    result
}

/// Takes the place of libc's `mmap(2)`.
///
/// # Safety
/// The same as for libc's own function.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: isize,
) -> *mut c_void {
    // SAFETY: the program's own call, passed on unchanged.
    unsafe { map(address, length, protection, flags, fd, offset) }
}

/// Takes the place of libc's `mmap64(3)`, which is the same where `off_t` has 64 bits.
///
/// # Safety
/// The same as for libc's own function.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: isize,
) -> *mut c_void {
    // SAFETY: the program's own call, passed on unchanged.
    unsafe { map(address, length, protection, flags, fd, offset) }
}

/// Makes the system call `brk`, as a program makes it that has no libc of ours to know, and
/// registers what the break has grown by.
pub(super) fn move_break_to(address: usize) -> isize {
    // SAFETY: the program's own call, passed on; a call with the address 0 changes nothing.
    let call = |address| unsafe { raw::syscall(linux::__NR_brk, [address, 0, 0, 0, 0, 0]) };
    let before = if address == 0 { 0 } else { call(0) };
    let reached = call(address);
    note_break(before as usize, reached as usize);
    reached
}

/// Registers what the break has grown by, from `before`, which is 0 if that is not known.
pub(super) fn note_break(before: usize, reached: usize) {
    // libc's first call only asks where the break is. Relaxed: see `note_confined`.
    if before != 0 && reached > before && !IS_CONFINED.load(Ordering::Relaxed) {
        let start = before.next_multiple_of(PAGE_BYTES);
        let length = Bytes(reached.next_multiple_of(PAGE_BYTES) - start);
        if !CONTROL.is_managing() {
            note_mapped(length);
        } else if length >= REGION_BYTES_MIN {
            CONTROL.hint(start, length);
        }
    }
}

/// Counts memory that the calling thread has mapped in a program that is not managed yet. A thread
/// that maps a part of the budget waits for a look before it can fill it.
pub(super) fn note_mapped(length: Bytes) {
    starting::note_mapped(length);
    // Relaxed, here and below: a sum that only decides when to look.
    let unseen = UNSEEN.fetch_add(length.0, Ordering::Relaxed).saturating_add(length.0);
    if unseen > UNSEEN_MAX.load(Ordering::Relaxed) {
        UNSEEN.store(0, Ordering::Relaxed);
        CONTROL.ask_for_look();
    }
}

/// Whether a new mapping may become writable memory, as a heap's reserve does.
fn is_reserve(flags: c_int) -> bool {
    let kind = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS;
    flags as u32 & (kind | linux::MAP_STACK) == kind
}

/// Whether a new mapping is private anonymous memory, writable and perhaps executable, large
/// enough, and nothing special.
fn is_manageable(length: usize, protection: c_int, flags: c_int) -> bool {
    let protection = protection as u32;
    let flags = flags as u32;
    let kind = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS;
    let special = linux::MAP_STACK | linux::MAP_GROWSDOWN | linux::MAP_HUGETLB | linux::MAP_LOCKED;
    length >= REGION_BYTES_MIN.0
        && protection & !linux::PROT_EXEC == linux::PROT_READ | linux::PROT_WRITE
        && flags & kind == kind
        && flags & special == 0
}
