//! Starting programs: what is ours goes into the environment of each (`environment`).
//!
//! `inner` makes libc's `execve` come here, in which libc's other ways to start a program end. A
//! program that calls the kernel itself is not seen. So a program with Go's runtime keeps the
//! environment that it was given, as does one whose libc cannot be changed.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_sys::{errno, raw};
use linux_raw_sys::general as linux;

use super::environment::Ours;
use super::imports::{libc_result, used};
use super::starters;

/// The kernel's answer to an environment that changes while it is read.
const EFAULT: isize = errno::answer(errno::EFAULT);
const EINVAL: isize = errno::answer(errno::EINVAL);
/// The kernel's answers for a file that is not there, or not for this user.
const ABSENT: [isize; 3] =
    [errno::answer(errno::ENOENT), errno::answer(errno::EACCES), errno::answer(errno::ENOTDIR)];
/// The number of rooms that are kept, one for each thread that starts programs at the same time.
/// Any more threads leave theirs behind.
const ROOMS: usize = 64;

/// The variables that were taken out of the program's environment.
struct Taken(UnsafeCell<Ours>);

// SAFETY: it is written before the program's first thread, and only read then.
unsafe impl Sync for Taken {}

static TAKEN: Taken = Taken(UnsafeCell::new(Ours::NONE));

fn taken() -> &'static Ours {
    // SAFETY: it is written before there is a second thread.
    unsafe { &*TAKEN.0.get() }
}

/// Takes what is ours out of the program's environment, and out of the copy that libc has made if a
/// library has changed it.
///
/// # Safety
/// The environment must be the one of the process, as the kernel laid it out, and there must be one
/// thread.
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

/// Memory for an environment. It belongs to the thread whose control block lies at `owner`, or to
/// the thread's child by vfork, for which the thread waits. So it has one user at a time, and need
/// not be given back: a child that execs could not do so.
struct Room {
    owner: AtomicUsize,
    start: AtomicUsize,
    words: AtomicUsize,
}

static ROOM: [Room; ROOMS] = [const {
    Room { owner: AtomicUsize::new(0), start: AtomicUsize::new(0), words: AtomicUsize::new(0) }
}; ROOMS];

/// Returns room for `words` words, for the calling thread.
fn room(words: usize) -> Option<&'static mut [usize]> {
    let owner = raw::thread_block();
    // Relaxed, here and below: only the owner of a room sees or changes what is in it.
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
    // SAFETY: a mapping of at least `words` words, which one thread uses at a time.
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
        // The advice keeps it from merging with a mapping of the program's that children may not
        // inherit.
        let arguments = [start as usize, length, linux::MADV_DONTDUMP as usize, 0, 0, 0];
        // SAFETY: the mapping just made; the advice changes no contents.
        unsafe { raw::syscall(linux::__NR_madvise, arguments) };
    }
    let first = ptr::with_exposed_provenance_mut(start as usize);
    // SAFETY: the mapping has this length, and no other code has the mapping.
    (start > 0).then(|| unsafe { core::slice::from_raw_parts_mut(first, words) })
}

/// Makes `call`, which starts a program, with an environment that contains what is ours, if the
/// library is to be found there. In another root it is not.
///
/// # Safety
/// The environment must be one for `execve`.
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
        // SAFETY: the descriptor that was just made, which no other thread knows.
        unsafe { raw::syscall(linux::__NR_close, [result as usize, 0, 0, 0, 0, 0]) };
    }
    // Where the kernel refuses to say, the library counts as there.
    !ABSENT.contains(&result)
}

/// Does what `execve(2)` does, also where libc calls it.
///
/// # Safety
/// The same as for libc's own function.
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

/// Does what `execveat(2)` does, also where libc calls it.
///
/// # Safety
/// The same as for libc's own function.
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

/// Takes the place of libc's `fexecve(3)`.
///
/// # Safety
/// The same as for libc's own function.
#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(
    file: c_int,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    if file < 0 || arguments.is_null() || environment.is_null() {
        return libc_result(EINVAL) as c_int;
    }
    // SAFETY: the program's own call, passed on unchanged.
    unsafe { execute_at(file, c"".as_ptr(), arguments, environment, linux::AT_EMPTY_PATH as c_int) }
}
