//! Starting programs: what is ours is in the environment of each (`environment`).
//!
//! `inner` has libc's `execve` come here, in which libc's other ways to start a program end. Who
//! calls the kernel itself is not seen, so a program that has Go's runtime keeps what it was given,
//! as does one whose libc cannot be changed.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_sys::raw;
use linux_raw_sys::general as linux;

use super::environment::Ours;
use super::imports::used;
use super::interpose::libc_result;
use super::starters;

/// What the kernel answers to an environment that changes while it is read.
const EFAULT: isize = -14;
const EINVAL: isize = -22;
/// What it answers for what is not there, or not for this user (asm-generic/errno-base.h).
const ABSENT: [isize; 3] = [-2, -13, -20];
/// Rooms that are kept: threads that start programs at the same time, and more of them leave theirs
/// behind.
const ROOMS: usize = 64;

/// What was taken out of the program's environment.
struct Taken(UnsafeCell<Ours>);

// SAFETY: it is written before the program's first thread, and only read then.
unsafe impl Sync for Taken {}

static TAKEN: Taken = Taken(UnsafeCell::new(Ours::NONE));

fn taken() -> &'static Ours {
    // SAFETY: it is written before there is a second thread.
    unsafe { &*TAKEN.0.get() }
}

/// Takes what is ours out of the program's environment, and of the copy that libc has made if a
/// library has changed it.
///
/// # Safety
/// It must be that of the process, as the kernel laid it out, and there be one thread.
pub(super) unsafe fn take_out(environment: *const *const c_char) {
    let libcs = used(c"environ").cast::<*mut *const c_char>();
    // SAFETY: the caller's promise; the variable is libc's.
    unsafe {
        let ours = &mut *TAKEN.0.get();
        *ours = Ours::find(environment);
        ours.take_out(environment.cast_mut());
        if !libcs.is_null() && !(*libcs).is_null() && (*libcs).cast_const() != environment {
            ours.take_out(*libcs);
        }
    }
}

/// Memory for an environment: of the thread whose control block lies at `owner`, or of its child by
/// vfork, for which it waits. So it is used by one at a time, and needs not be given back: a child
/// that execs could not.
struct Room {
    owner: AtomicUsize,
    start: AtomicUsize,
    words: AtomicUsize,
}

static ROOM: [Room; ROOMS] = [const {
    Room { owner: AtomicUsize::new(0), start: AtomicUsize::new(0), words: AtomicUsize::new(0) }
}; ROOMS];

/// Room for so many words, for the calling thread.
fn room(words: usize) -> Option<&'static mut [usize]> {
    let owner = raw::thread_block();
    // Relaxed, here and below: a room is its owner's, who alone sees or changes what is in it.
    let relaxed = Ordering::Relaxed;
    let own = ROOM.iter().find(|room| room.owner.load(relaxed) == owner);
    let take = |room: &&Room| room.owner.compare_exchange(0, owner, relaxed, relaxed).is_ok();
    let Some(room) = own.or_else(|| ROOM.iter().find(take)) else { return map(words) };
    // Relaxed: as above.
    if room.words.load(relaxed) < words {
        let start = map(words)?.as_mut_ptr();
        let before = room.start.swap(start.expose_provenance(), relaxed);
        let length = room.words.swap(words, relaxed) * size_of::<usize>();
        if before != 0 {
            // SAFETY: the room's own mapping, which its owner has left.
            unsafe { raw::syscall(linux::__NR_munmap, [before, length, 0, 0, 0, 0]) };
        }
    }
    // Relaxed: as above.
    let start = ptr::with_exposed_provenance_mut(room.start.load(relaxed));
    // SAFETY: a mapping of at least so many words, which one thread uses at a time.
    Some(unsafe { core::slice::from_raw_parts_mut(start, words) })
}

fn map(words: usize) -> Option<&'static mut [usize]> {
    let length = words * size_of::<usize>();
    let protection = (linux::PROT_READ | linux::PROT_WRITE) as usize;
    let flags = (linux::MAP_PRIVATE | linux::MAP_ANONYMOUS) as usize;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let start =
        unsafe { raw::syscall(linux::__NR_mmap, [0, length, protection, flags, usize::MAX, 0]) };
    if start > 0 {
        // So that it is never one with a mapping of the program's, which children may not inherit.
        let arguments = [start as usize, length, linux::MADV_DONTDUMP as usize, 0, 0, 0];
        // SAFETY: the mapping just made; the advice changes no contents.
        unsafe { raw::syscall(linux::__NR_madvise, arguments) };
    }
    let first = ptr::with_exposed_provenance_mut(start as usize);
    // SAFETY: so long is the mapping, which nobody else has.
    (start > 0).then(|| unsafe { core::slice::from_raw_parts_mut(first, words) })
}

/// Makes `call`, which starts a program, with an environment that has what is ours: if that is to
/// be found there, which in another root it is not.
///
/// # Safety
/// The environment is one for `execve`.
pub(super) unsafe fn put_back(environment: usize, call: impl Fn(usize) -> isize) -> isize {
    let ours = taken();
    let list = ptr::with_exposed_provenance(environment);
    // SAFETY: the caller's promise.
    if !unsafe { ours.belongs_into(list) } || !ours.library().is_some_and(is_there) {
        return call(environment);
    }
    // SAFETY: the caller's promise.
    let Some(room) = room(unsafe { ours.words_for(list) }) else { return call(environment) };
    // SAFETY: the caller's promise.
    match unsafe { ours.put_into(list, room) } {
        Some(list) => call(list.expose_provenance()),
        None => EFAULT,
    }
}

/// Whether the library can be read here.
fn is_there(path: &core::ffi::CStr) -> bool {
    let flags = (linux::O_RDONLY | linux::O_CLOEXEC) as usize;
    let arguments = [path.as_ptr().expose_provenance(), flags, 0, 0, 0, 0];
    // SAFETY: a path that ends with a zero.
    let result = unsafe { raw::syscall(linux::__NR_open, arguments) };
    if result >= 0 {
        // SAFETY: the descriptor that was just made, which nobody else knows.
        unsafe { raw::syscall(linux::__NR_close, [result as usize, 0, 0, 0, 0, 0]) };
    }
    // Where it may not be asked, it is.
    !ABSENT.contains(&result)
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
    let call = |environment| {
        let arguments = [path.addr(), arguments.addr(), environment, 0, 0, 0];
        // SAFETY: the program's own call, with another environment.
        unsafe { raw::syscall(linux::__NR_execve, arguments) }
    };
    // SAFETY: the program's own environment, which the kernel would read.
    libc_result(unsafe { put_back(environment.expose_provenance(), call) }) as c_int
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
    let call = |environment| {
        let [path, list] = [path.addr(), arguments.addr()];
        let arguments = [folder as usize, path, list, environment, flags as usize, 0];
        // SAFETY: the program's own call, with another environment.
        unsafe { raw::syscall(linux::__NR_execveat, arguments) }
    };
    // SAFETY: the program's own environment, which the kernel would read.
    libc_result(unsafe { put_back(environment.expose_provenance(), call) }) as c_int
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
    if file < 0 || arguments.is_null() || environment.is_null() {
        return libc_result(EINVAL) as c_int;
    }
    // SAFETY: the program's own call, handed on.
    unsafe { execute_at(file, c"".as_ptr(), arguments, environment, linux::AT_EMPTY_PATH as c_int) }
}
