//! What the program has for itself (`control::given`): ranges that it watches with a userfaultfd of
//! its own, and mutexes that the kernel looks at.

use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, Ordering};

use coldpress_sys::{Bytes, PAGE_BYTES, errno, raw};
use linux_raw_sys::general as linux;

use super::CONTROL;
use super::imports::{ENOSYS, libc_result, next};
use crate::control::pages_of;

/// Requests of linux/userfaultfd.h.
const UFFDIO_REGISTER: u32 = 0xc020_aa00;
const UFFDIO_UNREGISTER: u32 = 0x8010_aa01;
/// The kernel's errors for a range that is watched already, and for one that another userfaultfd
/// watches.
const EBUSY: isize = errno::answer(errno::EBUSY);
const EINVAL: isize = errno::answer(errno::EINVAL);
/// The number of tries. A range that was found just before it is given up is given up the next
/// time.
const TRIES: u32 = 3;

/// The attributes of mutexes that the kernel itself looks at, with their values (pthread.h).
const ATTRIBUTES: [(&CStr, c_int); 2] = [
    // PTHREAD_MUTEX_ROBUST.
    (c"pthread_mutexattr_getrobust", 1),
    // PTHREAD_PRIO_INHERIT.
    (c"pthread_mutexattr_getprotocol", 1),
];

type Init = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
type GetAttribute = unsafe extern "C" fn(*const c_void, *mut c_int) -> c_int;

/// libc's own functions. They are found before the program begins, because a lookup takes a lock of
/// the loader's, which a thread may have that waits for the caller.
static REAL_INIT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static REAL_DESTROY: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static GETTERS: [AtomicPtr<c_void>; ATTRIBUTES.len()] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; ATTRIBUTES.len()];

/// Makes the system call `ioctl(2)`. A range is given up before the kernel is asked to watch it for
/// the program.
pub(super) fn control(fd: usize, request: usize, argument: usize) -> isize {
    let call = || {
        // SAFETY: the program's own call, passed on unchanged.
        unsafe { raw::syscall(linux::__NR_ioctl, [fd, request, argument, 0, 0, 0]) }
    };
    let request = request as u32;
    if ![UFFDIO_REGISTER, UFFDIO_UNREGISTER].contains(&request) || !CONTROL.is_owner() {
        return call();
    }
    // `struct uffdio_range`, which is what `struct uffdio_register` begins with.
    let Some(range) = read_pair(argument).and_then(range_of) else { return call() };
    let unwatch = || {
        CONTROL.given.unwatch(&range);
        take_again(range.start);
    };
    if request == UFFDIO_UNREGISTER {
        let mut result = call();
        // The kernel refuses because parts that the program does not watch are watched by us.
        let mut is_new = false;
        if result == EINVAL {
            is_new = CONTROL.given.watch(range.clone()) == Some(true);
            CONTROL.give_up(&range);
            result = call();
        }
        if result == 0 || is_new {
            unwatch();
        }
        return result;
    }
    let Some(is_new) = CONTROL.given.watch(range.clone()) else { return call() };
    CONTROL.give_up(&range);
    let mut result = call();
    for _ in 1..TRIES {
        if result != EBUSY {
            break;
        }
        CONTROL.give_up(&range);
        result = call();
    }
    if result < 0 && is_new {
        unwatch();
    }
    result
}

/// Takes what lies at `address` again, for which the program has no use of its own any more.
fn take_again(address: usize) {
    if CONTROL.is_managing() {
        CONTROL.hint(address, Bytes(0));
    }
}

/// Reads two words of the program's memory, which may not be there.
fn read_pair(address: usize) -> Option<[usize; 2]> {
    let mut pair = [0_usize; 2];
    let length = size_of_val(&pair);
    let [to, from] = [[(&raw mut pair).expose_provenance(), length], [address, length]];
    let process = raw::process_id() as usize;
    let [to, from] = [&raw const to, &raw const from].map(|part| part.expose_provenance());
    // SAFETY: the kernel writes no more than the two words; what cannot be read is an error.
    let count = unsafe { raw::syscall(linux::__NR_process_vm_readv, [process, to, 1, from, 1, 0]) };
    (count == length as isize).then_some(pair)
}

/// Returns the range, if it is of whole pages and not empty.
fn range_of([start, length]: [usize; 2]) -> Option<Range<usize>> {
    let is_whole = [start, length].iter().all(|bytes| bytes.is_multiple_of(PAGE_BYTES));
    let end = start.checked_add(length)?;
    (is_whole && start != 0 && length != 0).then_some(start..end)
}

/// Finds libc's functions, while it is still safe to ask.
pub(super) fn resolve() {
    // Relaxed, all: set before the program's first thread.
    REAL_INIT.store(next(c"pthread_mutex_init"), Ordering::Relaxed);
    REAL_DESTROY.store(next(c"pthread_mutex_destroy"), Ordering::Relaxed);
    for (getter, (name, _)) in GETTERS.iter().zip(ATTRIBUTES) {
        getter.store(next(name), Ordering::Relaxed);
    }
}

/// Takes the place of libc's `ioctl(2)`.
///
/// # Safety
/// The same as for libc's own function.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: usize, argument: usize) -> c_int {
    libc_result(control(fd as usize, request, argument)) as c_int
}

/// Returns a function of libc's. Where our constructor found no run, it has not been looked up yet.
fn real(kept: &AtomicPtr<c_void>) -> *mut c_void {
    // Relaxed, here and below: every thread that looks finds the same function.
    if kept.load(Ordering::Relaxed).is_null() {
        resolve();
    }
    kept.load(Ordering::Relaxed)
}

/// Takes the place of libc's `pthread_mutex_init(3)`. The pages of a mutex that the kernel looks at
/// stay in place. At a robust mutex whose owner ends without unlocking it, the kernel looks when no
/// page is brought back any more. At a mutex that hands on priority, it looks without waiting for a
/// page.
///
/// # Safety
/// The same as for libc's own function.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_init(mutex: *mut c_void, attributes: *const c_void) -> c_int {
    let real = real(&REAL_INIT);
    if real.is_null() {
        return ENOSYS as c_int;
    }
    // SAFETY: libc's function of this name has this type.
    let real: Init = unsafe { core::mem::transmute(real) };
    // SAFETY: the program's own call, passed on unchanged.
    let result = unsafe { real(mutex, attributes) };
    if result == 0
        && !attributes.is_null()
        && CONTROL.is_owner()
        && is_looked_at(attributes)
        && CONTROL.given.add_mutex(mutex.addr())
    {
        CONTROL.give_up(&pages_of(mutex.addr()));
    }
    result
}

/// Takes the place of libc's `pthread_mutex_destroy(3)`.
///
/// # Safety
/// The same as for libc's own function.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_destroy(mutex: *mut c_void) -> c_int {
    let real = real(&REAL_DESTROY);
    if real.is_null() {
        return ENOSYS as c_int;
    }
    // SAFETY: libc's function of this name has this type.
    let real: Destroy = unsafe { core::mem::transmute(real) };
    // SAFETY: the program's own call, passed on unchanged.
    let result = unsafe { real(mutex) };
    if result == 0 && CONTROL.is_owner() && CONTROL.given.remove_mutex(mutex.addr()) {
        take_again(mutex.addr());
    }
    result
}

/// Whether the kernel looks at a mutex with these attributes.
fn is_looked_at(attributes: *const c_void) -> bool {
    GETTERS.iter().zip(ATTRIBUTES).any(|(getter, (_, wanted))| {
        // Relaxed: set before the program's first thread.
        let get = getter.load(Ordering::Relaxed);
        // SAFETY: libc's functions of these names have this type, and a null is `None`.
        let get = unsafe { core::mem::transmute::<*mut c_void, Option<GetAttribute>>(get) };
        let mut value = 0;
        // SAFETY: attributes that libc has just accepted.
        get.is_some_and(|get| unsafe { get(attributes, &raw mut value) } == 0) && value == wanted
    })
}
