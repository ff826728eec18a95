//! Threads of real-time priority, and threads that end with a mutex.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::program::outcome::{Outcome, Stop, wrong};
use super::program::pressure::Pressure;
use super::{HELD, Held, PAGE, failed, raw};

/// A priority of SCHED_FIFO, from 1 to 99. All threads have the same, so none runs before another.
const PRIORITY: i32 = 10;
/// Walks over memory that make an untouched page cold.
const WALKS: usize = 4;
/// Bytes of the memory in whose middle the mutex is: a smaller mapping may stay resident.
const ROOM: usize = 4 << 20;
/// Time limit for a lock. The kernel gives it at once when it knows that the owner is dead.
const LOCK_SECONDS: libc::time_t = 10;

/// Whether the threads that spin are to end.
static DONE: AtomicBool = AtomicBool::new(false);
/// The wrong pages that the reader has found, plus 1.
static FOUND: AtomicUsize = AtomicUsize::new(0);
/// The memory that the reader reads.
static START: AtomicUsize = AtomicUsize::new(0);

extern "C" fn spin(_: *mut c_void) -> *mut c_void {
    // Relaxed: nothing but the flag itself is handed over.
    while !DONE.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    ptr::null_mut()
}

extern "C" fn read(_: *mut c_void) -> *mut c_void {
    // Relaxed, here and below: the thread was made after the store, and is joined before the load.
    let held = Held { start: START.load(Ordering::Relaxed) };
    FOUND.store(held.wrong() + 1, Ordering::Relaxed);
    DONE.store(true, Ordering::Relaxed);
    ptr::null_mut()
}

/// Starts a thread of real-time priority.
fn start(body: extern "C" fn(*mut c_void) -> *mut c_void) -> Result<libc::pthread_t, Stop> {
    let parameter = libc::sched_param { sched_priority: PRIORITY };
    let mut thread = 0;
    let result = unsafe {
        let mut how = std::mem::zeroed();
        libc::pthread_attr_init(&raw mut how);
        libc::pthread_attr_setinheritsched(&raw mut how, libc::PTHREAD_EXPLICIT_SCHED);
        libc::pthread_attr_setschedpolicy(&raw mut how, libc::SCHED_FIFO);
        libc::pthread_attr_setschedparam(&raw mut how, &raw const parameter);
        libc::pthread_create(&raw mut thread, &raw const how, body, ptr::null_mut())
    };
    match result {
        0 => Ok(thread),
        libc::EPERM => Err(Stop::Skip("real-time priority is not allowed".to_owned())),
        error => wrong(format!("pthread_create: {error}")),
    }
}

/// Reads cold memory in one thread beside `busy` threads that spin.
pub fn real_time(busy: usize) -> Outcome {
    let held = Held::new().map_err(|error| Stop::Fail(error.to_string()))?;
    START.store(held.start, Ordering::Relaxed);
    let mut threads = vec![start(read)?];
    for _ in 0..busy {
        threads.push(start(spin)?);
    }
    for thread in threads {
        unsafe { libc::pthread_join(thread, ptr::null_mut()) };
    }
    match FOUND.load(Ordering::Relaxed) {
        1 => Ok(()),
        count => wrong(format!("{} pages are wrong", count.wrapping_sub(1))),
    }
}

/// The address of the mutex.
#[derive(Clone, Copy)]
struct Place(*mut libc::pthread_mutex_t);

// SAFETY: the mutex at the address is made for several threads, and outlives them.
unsafe impl Send for Place {}

/// Mutexes that are made and destroyed.
const MANY: usize = 1000;

/// Lets a thread end that holds a robust mutex in a page that has gone cold.
pub fn robust() -> Outcome {
    let held = Held::new().map_err(|error| Stop::Fail(error.to_string()))?;
    let room = raw::map(ROOM).map_err(|error| Stop::Fail(error.to_string()))?;
    let mutex = raw::pointer(room + ROOM / 2).cast::<libc::pthread_mutex_t>();
    unsafe {
        let mut how = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut how);
        libc::pthread_mutexattr_setrobust(&raw mut how, libc::PTHREAD_MUTEX_ROBUST);
        // More mutexes than coldpress can remember at a time: each is destroyed again.
        for number in 0..MANY {
            let other = raw::pointer(room + number * 64).cast::<libc::pthread_mutex_t>();
            libc::pthread_mutex_init(other, &raw const how);
            libc::pthread_mutex_destroy(other);
        }
        if libc::pthread_mutex_init(mutex, &raw const how) != 0 {
            return Err(failed("pthread_mutex_init"));
        }
    }
    static LOCKED: AtomicBool = AtomicBool::new(false);
    let place = Place(mutex);
    let owner = thread::spawn(move || {
        let Place(mutex) = { place };
        unsafe { libc::pthread_mutex_lock(mutex) };
        // Release: pairs with the load below; a thread that sees the flag sees the lock taken.
        LOCKED.store(true, Ordering::Release);
        // Relaxed: nothing but the flag itself is handed over.
        while !DONE.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
    });
    // Acquire: pairs with the store above.
    while !LOCKED.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
    let pressure = Pressure::new(HELD);
    (0..WALKS).for_each(|_| pressure.walk());
    let resident = unsafe { raw::resident_pages(room + ROOM / 2, PAGE) };
    eprintln!("pages of the mutex in memory: {resident:?}");
    DONE.store(true, Ordering::Relaxed);
    owner.join().map_err(|_| Stop::Fail("the owner failed".to_owned()))?;
    let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let result = unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until);
        until.tv_sec += LOCK_SECONDS;
        libc::pthread_mutex_timedlock(mutex, &raw const until)
    };
    if result != libc::EOWNERDEAD {
        return wrong(format!("the lock gave {result}, not EOWNERDEAD"));
    }
    held.check().map_err(|error| Stop::Fail(error.to_string()))
}
