//! `given`: has memory that the program, or the kernel, reads without waiting for a page.
//!
//! ```text
//! given inherit          waits for a mutex with priority inheritance, whose page has been cold
//! given mutexes COUNT    lets a thread end that holds COUNT and 8 more robust mutexes
//! given ranges COUNT     watches COUNT and 8 more ranges by a userfaultfd of its own
//! given unlocks          locks all of its memory for a while, some of which has a guard page
//! given grows            lets locked memory grow twice where it has to move
//! given grows hidden     the same in a process that others may not inspect (PR_SET_DUMPABLE)
//! ```
//!
//! Prints what it found, or `skip: ` and the reason; on standard error, the pages that were in
//! memory. Before, it walks other memory, for which there is no room beside what it holds.
#![allow(clippy::undocumented_unsafe_blocks, reason = "raw calls on memory of its own")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../program/mod.rs"]
mod program;

use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use program::outcome::{Outcome, Stop, exactly, failed, wrong};
use program::pressure::Pressure;
use program::{PAGE, raw};

/// Bytes of the memory that is walked, and the number of walks: then an untouched page is cold.
const WALKED: usize = 64 << 20;
const WALKS: usize = 2;
/// Items beyond the number that an argument gives.
const MORE: usize = 8;
/// Pages from one used page to the next: the use of one page does not keep the next one from going
/// cold.
const STRIDE: usize = 16;
/// Numbers of linux/userfaultfd.h.
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const REGISTER_MODE_WP: u64 = 2;

/// Pages that each hold their number in all words but the first ones, where a mutex may be.
#[derive(Clone, Copy)]
struct Ground {
    start: usize,
    pages: usize,
}

/// Bytes of a page where a mutex may be.
const MUTEX_ROOM: usize = 64;

impl Ground {
    fn new(pages: usize) -> Result<Self, Stop> {
        let start = raw::map(pages * PAGE).map_err(|_| failed("mmap"))?;
        Self::at_address(start, pages)
    }

    fn at_address(start: usize, pages: usize) -> Result<Self, Stop> {
        let ground = Self { start, pages };
        for page in 0..pages {
            ground.write(page);
        }
        Ok(ground)
    }

    fn write(self, page: usize) {
        let bytes = unsafe { raw::bytes_mut(self.at(page) + MUTEX_ROOM, PAGE - MUTEX_ROOM) };
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&page.to_le_bytes());
        }
    }

    fn at(self, page: usize) -> usize {
        self.start + page * PAGE
    }

    fn mutex(self, number: usize) -> Mutex {
        Mutex(raw::pointer(self.at(number * STRIDE)).cast())
    }

    /// Checks that the first `pages` hold what they must.
    fn check(self, pages: usize) -> Outcome {
        for page in 0..pages {
            let bytes = unsafe { raw::bytes(self.at(page) + MUTEX_ROOM, PAGE - MUTEX_ROOM) };
            if bytes.chunks_exact(8).any(|word| word != page.to_le_bytes()) {
                return wrong(format!("page {page} is wrong"));
            }
        }
        Ok(())
    }

    /// Returns how many of `pages` are in memory.
    fn in_place(self, pages: impl Iterator<Item = usize>) -> usize {
        let is_there =
            |page: &usize| matches!(unsafe { raw::resident_pages(self.at(*page), PAGE) }, Ok(1));
        pages.filter(is_there).count()
    }
}

/// A mutex of libc's, at any address.
#[derive(Clone, Copy)]
struct Mutex(*mut libc::pthread_mutex_t);

// SAFETY: the mutex at the address is made for several threads, and outlives them.
unsafe impl Send for Mutex {}

impl Mutex {
    fn make(self, set: impl Fn(*mut libc::pthread_mutexattr_t) -> i32) -> Outcome {
        unsafe {
            let mut how = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut how);
            exactly("an attribute", set(&raw mut how), 0)?;
            exactly("pthread_mutex_init", libc::pthread_mutex_init(self.0, &raw const how), 0)
        }
    }

    fn lock(self) -> i32 {
        unsafe { libc::pthread_mutex_lock(self.0) }
    }
}

fn walk() {
    let pressure = Pressure::new(WALKED);
    (0..WALKS).for_each(|_| pressure.walk());
}

/// Waits until `flag` is set.
fn wait_for(flag: &AtomicBool) {
    // Acquire: pairs with the stores below; a thread that sees the flag sees the lock taken.
    while !flag.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
}

static LOCKED: AtomicBool = AtomicBool::new(false);
static DONE: AtomicBool = AtomicBool::new(false);

/// Lets another thread wait at a mutex while the mutex's page would go, and then get it.
fn inherit() -> Outcome {
    let ground = Ground::new(4 * STRIDE)?;
    let mutex = ground.mutex(2);
    let hands_on =
        |how| unsafe { libc::pthread_mutexattr_setprotocol(how, libc::PTHREAD_PRIO_INHERIT) };
    mutex.make(hands_on)?;
    exactly("lock", mutex.lock(), 0)?;
    let waiter = thread::spawn(move || {
        let mutex = { mutex };
        // Release: pairs with the load in `wait_for`.
        LOCKED.store(true, Ordering::Release);
        let result = mutex.lock();
        let released = unsafe { libc::pthread_mutex_unlock(mutex.0) };
        (result, released)
    });
    wait_for(&LOCKED);
    walk();
    let page = 2 * STRIDE;
    let beside = ground.in_place((0..ground.pages).filter(|other| *other != page));
    eprintln!("in place {} of 1", ground.in_place([page].into_iter()));
    eprintln!("beside {beside} of {}", ground.pages - 1);
    exactly("unlock", unsafe { libc::pthread_mutex_unlock(mutex.0) }, 0)?;
    let got = waiter.join().map_err(|_| Stop::Fail("the waiter failed".to_owned()))?;
    println!("the waiter got {got:?}");
    ground.check(ground.pages)
}

/// Lets the owner of many robust mutexes end, and counts the mutexes that the kernel reports as
/// such.
fn mutexes(count: usize) -> Outcome {
    let all = count + MORE;
    let ground = Ground::new(all * STRIDE)?;
    let is_robust =
        |how| unsafe { libc::pthread_mutexattr_setrobust(how, libc::PTHREAD_MUTEX_ROBUST) };
    (0..all).try_for_each(|number| ground.mutex(number).make(is_robust))?;
    let owner = thread::spawn(move || {
        // The kernel walks from the last mutex to the first, and stops at one that is away.
        let is_locked = (0..all).rev().all(|number| ground.mutex(number).lock() == 0);
        // Release: pairs with the load in `wait_for`.
        LOCKED.store(true, Ordering::Release);
        wait_for(&DONE);
        is_locked
    });
    wait_for(&LOCKED);
    walk();
    let numbers = [0..count, count..all];
    let in_place = numbers.clone().map(|some| ground.in_place(some.map(|number| number * STRIDE)));
    eprintln!("in place {} and {}", in_place[0], in_place[1]);
    // Release: pairs with the load in `wait_for`.
    DONE.store(true, Ordering::Release);
    if owner.join().ok() != Some(true) {
        return wrong("the owner failed");
    }
    let is_told = |number: &usize| {
        let result = unsafe { libc::pthread_mutex_trylock(ground.mutex(*number).0) };
        result == libc::EOWNERDEAD
    };
    let [told, more] = numbers.map(|some| some.filter(is_told).count());
    println!("told of {told}");
    eprintln!("told of {more} of {MORE} more");
    ground.check(ground.pages)
}

/// Asks the kernel to watch one page after the other.
fn ranges(count: usize) -> Outcome {
    let ground = Ground::new((count + MORE) * STRIDE)?;
    walk();
    let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) } as i32;
    if descriptor < 0 {
        return Err(Stop::Skip(format!("userfaultfd: {}", Error::last_os_error())));
    }
    let faults = unsafe { File::from_raw_fd(descriptor) };
    let call = |number: u64, argument: &mut [u64]| unsafe {
        libc::ioctl(faults.as_raw_fd(), number, argument.as_mut_ptr())
    };
    exactly("UFFDIO_API", call(UFFDIO_API, &mut [UFFD_API, 0, 0]), 0)?;
    let watch = |number: usize| {
        let page = ground.at(number * STRIDE) as u64;
        let result = call(UFFDIO_REGISTER, &mut [page, PAGE as u64, REGISTER_MODE_WP, 0]);
        if result == 0 { None } else { Error::last_os_error().raw_os_error() }
    };
    let errors: Vec<_> = (0..count + MORE).map(watch).collect();
    let watched = errors.iter().filter(|error| error.is_none()).count();
    let busy = errors.iter().filter(|error| **error == Some(libc::EBUSY)).count();
    println!("watched {watched}, busy {busy}, of {}", errors.len());
    ground.check(ground.pages)
}

/// Locks and unlocks memory that is away: it comes back, stays, and goes again, unless it lies in
/// one mapping with a guard page.
fn unlocks() -> Outcome {
    const MADV_GUARD_INSTALL: i32 = 102;
    const GONE_WITHIN: Duration = Duration::from_secs(30);
    const PAGES: usize = 512;
    // Inaccessible memory between them keeps each of them a mapping of its own.
    let none = unsafe { raw::map_at(0, 5 * PAGES * PAGE, libc::PROT_NONE, 0) };
    let room = none.map_err(|_| failed("mmap"))?;
    let apart = |number: usize| {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let place = room + number * PAGES * PAGE;
        let mapped = unsafe { raw::map_at(place, PAGES * PAGE, both, libc::MAP_FIXED) };
        Ground::at_address(mapped.map_err(|_| failed("mmap"))?, PAGES)
    };
    let (ground, guarded) = (apart(1)?, apart(3)?);
    let pressure = Pressure::new(WALKED);
    let in_place = |ground: Ground| ground.in_place(0..PAGES - 1);
    if unsafe { raw::advise(guarded.at(PAGES - 1), PAGE, MADV_GUARD_INSTALL) }.is_err() {
        return Err(Stop::Skip("no guard pages before Linux 6.13".to_owned()));
    }
    (0..WALKS).for_each(|_| pressure.walk());
    let before = [in_place(ground), in_place(guarded)];
    if unsafe { libc::mlockall(libc::MCL_CURRENT) } != 0 {
        return Err(Stop::Skip(format!("mlockall: {}", Error::last_os_error())));
    }
    pressure.walk();
    let locked = [in_place(ground), in_place(guarded)];
    exactly("munlockall", unsafe { libc::munlockall() }, 0)?;
    let begun = Instant::now();
    while in_place(ground) * 2 > PAGES && begun.elapsed() < GONE_WITHIN {
        pressure.walk();
    }
    (0..WALKS).for_each(|_| pressure.walk());
    let after = [in_place(ground), in_place(guarded)];
    println!("in place {before:?}, locked {locked:?}, unlocked {after:?}");
    ground.check(PAGES)?;
    guarded.check(PAGES - 1)
}

/// Pages of the locked memory, and pages by which it grows: unprivileged users may lock 8 MiB at
/// most.
const LOCKED_PAGES: usize = 256;
const MORE_PAGES: usize = 128;
const ROUNDS: u32 = 6;

/// Grows memory that has to move, because something is in the way.
fn grow(ground: &mut Ground) -> std::io::Result<()> {
    let pages = ground.pages + MORE_PAGES;
    let (old, new) = (ground.pages * PAGE, pages * PAGE);
    // The kernel refuses this where something is already.
    let _ = unsafe {
        raw::map_at(ground.start + old, PAGE, libc::PROT_NONE, libc::MAP_FIXED_NOREPLACE)
    };
    let start = unsafe { raw::remap(ground.start, old, new, libc::MREMAP_MAYMOVE, 0) }?;
    *ground = Ground { start, pages };
    Ok(())
}

fn lock(at: usize) -> Outcome {
    match unsafe { libc::mlock(raw::pointer(at).cast(), LOCKED_PAGES * PAGE) } {
        0 => Ok(()),
        _ => Err(Stop::Skip(format!("mlock: {}", Error::last_os_error()))),
    }
}

/// Grows memory, and at once again. Returns whether the second growth was refused.
fn grows_again() -> Result<bool, Stop> {
    let mut ground = Ground::new(LOCKED_PAGES)?;
    lock(ground.start)?;
    grow(&mut ground).map_err(|error| Stop::Fail(format!("mremap: {error}")))?;
    let is_refused = match grow(&mut ground) {
        Ok(()) => false,
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => true,
        Err(error) => return wrong(format!("mremap again: {error}")),
    };
    ground.check(LOCKED_PAGES)?;
    unsafe { raw::unmap(ground.start, ground.pages * PAGE) }.map_err(|_| failed("munmap"))?;
    Ok(is_refused)
}

/// Grows a locked block of malloc's, and at once again.
fn block_grows_again() -> Outcome {
    let length = LOCKED_PAGES * PAGE;
    let mut block = unsafe { libc::malloc(length) }.cast::<u8>();
    lock(block.expose_provenance() & !(PAGE - 1))?;
    unsafe { ptr::write_bytes(block, b'k', length) };
    for pages in [LOCKED_PAGES + MORE_PAGES, LOCKED_PAGES + 2 * MORE_PAGES] {
        block = unsafe { libc::realloc(block.cast(), pages * PAGE) }.cast();
        if block.is_null() {
            return wrong("realloc gave nothing");
        }
    }
    if unsafe { std::slice::from_raw_parts(block, length) }.iter().any(|byte| *byte != b'k') {
        return wrong("realloc lost bytes");
    }
    unsafe { libc::free(block.cast()) };
    Ok(())
}

fn grows(is_hidden: bool) -> Outcome {
    walk();
    if is_hidden {
        exactly("prctl", unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }, 0)?;
    }
    let mut refused = 0;
    for _ in 0..ROUNDS {
        refused += u32::from(grows_again()?);
        block_grows_again()?;
    }
    println!("grown");
    eprintln!("refused again {refused} of {ROUNDS}");
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse().unwrap_or(1);
    let outcome = match words[..] {
        ["inherit"] => inherit(),
        ["mutexes", count] => mutexes(number(count)),
        ["ranges", count] => ranges(number(count)),
        ["unlocks"] => unlocks(),
        ["grows"] => grows(false),
        ["grows", "hidden"] => grows(true),
        _ => return ExitCode::from(2),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Skip(why)) => {
            println!("skip: {why}");
            ExitCode::SUCCESS
        }
        Err(Stop::Fail(what)) => {
            println!("FAIL: {what}");
            ExitCode::FAILURE
        }
    }
}
