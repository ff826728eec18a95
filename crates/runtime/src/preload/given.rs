//! What the program has for itself (`control::given`): ranges that it watches by a userfaultfd of
//! its own, and mutexes that the kernel looks at.

use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, Ordering};

use coldpress_sys::{PAGE_BYTES, raw};
use linux_raw_sys::general as linux;

use super::CONTROL;
use super::imports::next;
use super::interpose::{ENOSYS, libc_result};

/// Requests of linux/userfaultfd.h.
const UFFDIO_REGISTER: u32 = 0xc020_aa00;
const UFFDIO_UNREGISTER: u32 = 0x8010_aa01;
/// What is watched already.
const EBUSY: isize = -16;
/// A range that was found just before it is given up is given up the next time.
const TRIES: u32 = 3;

/// What the kernel looks at itself: attributes of mutexes, and their values (pthread.h).
const ATTRIBUTES: [(&CStr, c_int); 2] = [
    // PTHREAD_MUTEX_ROBUST.
    (c"pthread_mutexattr_getrobust", 1),
    // PTHREAD_PRIO_INHERIT.
    (c"pthread_mutexattr_getprotocol", 1),
];
/// `sizeof(pthread_mutex_t)`, x86-64.
const MUTEX_BYTES: usize = 40;

type Init = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
type GetAttribute = unsafe extern "C" fn(*const c_void, *mut c_int) -> c_int;

/// libc's.
static REAL_INIT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// `ioctl(2)`, as the system call: a range is given up before the kernel is asked to watch it for
/// the program.
pub(super) fn control(fd: usize, request: usize, argument: usize) -> isize {
    let call = || {
        // SAFETY: the program's own call, handed on.
        unsafe { raw::syscall(linux::__NR_ioctl, [fd, request, argument, 0, 0, 0]) }
    };
    let request = request as u32;
    if ![UFFDIO_REGISTER, UFFDIO_UNREGISTER].contains(&request) || !CONTROL.is_owner() {
        return call();
    }
    // `struct uffdio_range`, which is what `struct uffdio_register` begins with.
    let Some(range) = read_pair(argument).and_then(range_of) else { return call() };
    if request == UFFDIO_UNREGISTER {
        let result = call();
        if result == 0 {
            CONTROL.take_again(&range);
        }
        return result;
    }
    CONTROL.give_up(range.clone());
    let mut result = call();
    for _ in 1..TRIES {
        if result != EBUSY {
            break;
        }
        CONTROL.give_up(range.clone());
        result = call();
    }
    if result < 0 {
        CONTROL.take_again(&range);
    }
    result
}

/// Two words of the program's, which may not be there.
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

/// Whole pages, and some.
fn range_of([start, length]: [usize; 2]) -> Option<Range<usize>> {
    let is_whole = [start, length].iter().all(|bytes| bytes.is_multiple_of(PAGE_BYTES));
    let end = start.checked_add(length)?;
    (is_whole && start != 0 && length != 0).then_some(start..end)
}

/// Finds libc's function, while it is still safe to ask.
pub(super) fn resolve() {
    // Relaxed: set before the program's first thread.
    REAL_INIT.store(next(c"pthread_mutex_init"), Ordering::Relaxed);
}

/// `ioctl(2)`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: usize, argument: usize) -> c_int {
    libc_result(control(fd as usize, request, argument)) as c_int
}

/// `pthread_mutex_init(3)`. The pages of a mutex that the kernel looks at stay in place: of a
/// robust one, whose owner ends without unlocking it, it does so when nothing is brought back any
/// more, and of one that hands on priority without waiting for a page.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_init(mutex: *mut c_void, attributes: *const c_void) -> c_int {
    // Relaxed: set before the program's first thread, or else found again.
    if REAL_INIT.load(Ordering::Relaxed).is_null() {
        resolve();
    }
    // Relaxed: as above.
    let real = REAL_INIT.load(Ordering::Relaxed);
    if real.is_null() {
        return ENOSYS as c_int;
    }
    // SAFETY: libc's function of this name has this type.
    let real: Init = unsafe { core::mem::transmute(real) };
    // SAFETY: the program's own call, handed on.
    let result = unsafe { real(mutex, attributes) };
    if result == 0 && !attributes.is_null() && CONTROL.is_owner() && is_looked_at(attributes) {
        let (start, end) = (mutex.addr(), mutex.addr() + MUTEX_BYTES);
        CONTROL.give_up(start & !(PAGE_BYTES - 1)..end.next_multiple_of(PAGE_BYTES));
    }
    result
}

/// Whether the kernel looks at a mutex with these attributes.
fn is_looked_at(attributes: *const c_void) -> bool {
    ATTRIBUTES.into_iter().any(|(name, wanted)| {
        let get = next(name);
        // SAFETY: libc's functions of these names have this type, and a null is `None`.
        let get = unsafe { core::mem::transmute::<*mut c_void, Option<GetAttribute>>(get) };
        let mut value = 0;
        // SAFETY: attributes that libc has just taken.
        get.is_some_and(|get| unsafe { get(attributes, &raw mut value) } == 0) && value == wanted
    })
}
