//! Counters, timers, futexes and the calls that wait: what these calls consume must be delivered.

use std::time::{Duration, Instant};

use crate::arena::{
    Fd, SLOT_PAGES, Slot, across, bytes_of, exactly, failed, fails, put, split, wrong,
};
use crate::program::PAGE;
use crate::{Case, Outcome, Stop, plain};

pub const CASES: &[Case] = &[
    Case { name: "eventfd-read", prepare: plain, run: eventfd_read },
    Case { name: "eventfd-write", prepare: counts, run: eventfd_write },
    Case { name: "timerfd", prepare: period, run: timerfd },
    Case { name: "futex-wait", prepare: words, run: futex_wait },
    Case { name: "futex-wake", prepare: words, run: futex_wake },
    Case { name: "futex-requeue", prepare: words, run: futex_requeue },
    Case { name: "futex-pi", prepare: words, run: futex_pi },
    Case { name: "ppoll", prepare: plain, run: ppoll },
    Case { name: "select", prepare: plain, run: select },
    Case { name: "epoll", prepare: plain, run: epoll },
    Case { name: "nanosleep", prepare: sleep_time, run: nanosleep },
];

/// Returns the pages whose ends carry a value of their own.
fn pages() -> impl Iterator<Item = usize> {
    (0..SLOT_PAGES - 1).step_by(2)
}

fn eventfd(count: u32) -> Result<Fd, Stop> {
    let flags = libc::EFD_NONBLOCK | libc::EFD_CLOEXEC;
    Fd::new("eventfd", unsafe { libc::eventfd(count, flags) })
}

fn eventfd_read(slot: &mut Slot) -> Outcome {
    for page in pages() {
        let fd = eventfd(page as u32 + 7)?;
        let at = split(page, 8);
        exactly("read", unsafe { libc::read(fd.0, slot.at(at), 8) }, 8)?;
        slot.expect(at, &bytes_of(&(page as u64 + 7)));
        let mut again = 0u64;
        let count = unsafe { libc::read(fd.0, (&raw mut again).cast(), 8) };
        fails("a second read", count, libc::EAGAIN)?;
    }
    Ok(())
}

fn counts(_: usize, image: &mut [u8]) {
    pages().for_each(|page| put(image, split(page, 8), &(page as u64 + 3)));
}

fn eventfd_write(slot: &mut Slot) -> Outcome {
    for page in pages() {
        let fd = eventfd(0)?;
        exactly("write", unsafe { libc::write(fd.0, slot.at(split(page, 8)), 8) }, 8)?;
        let mut count = 0u64;
        exactly("read", unsafe { libc::read(fd.0, (&raw mut count).cast(), 8) }, 8)?;
        if count != page as u64 + 3 {
            return wrong(format!("the count is {count}, not {}", page + 3));
        }
    }
    Ok(())
}

/// Offsets of the timer's period and of its state.
const PERIOD: usize = across(1, 32);
const STATE: usize = across(3, 32);
/// The period of the timer.
const TICK: Duration = Duration::from_millis(1);

fn period(_: usize, image: &mut [u8]) {
    let tick = TICK.subsec_nanos().into();
    put(image, PERIOD, &[0u64, tick, 0, tick]);
}

/// Reads the ticks of a timer in several calls: together they are the time that has passed.
fn timerfd(slot: &mut Slot) -> Outcome {
    let flags = libc::TFD_CLOEXEC;
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
    let fd = Fd::new("timerfd_create", fd)?;
    let before = Instant::now();
    let none = std::ptr::null_mut();
    exactly("settime", unsafe { libc::timerfd_settime(fd.0, 0, slot.at(PERIOD), none) }, 0)?;
    let after = Instant::now();
    let mut ticks = 0;
    let mut last = after;
    for page in (4..28).step_by(6) {
        std::thread::sleep(4 * TICK);
        last = Instant::now();
        let at = split(page, 8);
        exactly("read", unsafe { libc::read(fd.0, slot.at(at), 8) }, 8)?;
        let count: u64 = unsafe { slot.at::<u64>(at).read_unaligned() };
        slot.learn(at, 8);
        ticks += count;
    }
    let most = before.elapsed().as_micros() / TICK.as_micros() + 1;
    let least = (last - after).as_micros() / TICK.as_micros() - 1;
    if u128::from(ticks) < least || u128::from(ticks) > most {
        return wrong(format!("{ticks} ticks, not {least}..={most}"));
    }
    exactly("gettime", unsafe { libc::timerfd_gettime(fd.0, slot.at(STATE)) }, 0)?;
    slot.learn(STATE, 32);
    let state: [u64; 4] = unsafe { slot.at::<[u64; 4]>(STATE).read() };
    let tick: u64 = TICK.subsec_nanos().into();
    if state[..3] == [0, tick, 0] && state[3] <= tick { Ok(()) } else { wrong("another period") }
}

/// Returns the offset of a page's last word. Each such word carries its page's number; that of page
/// 30 is zero.
fn word(page: usize) -> usize {
    (page + 1) * PAGE - 4
}

/// Offset of a time of 3 ms.
const TIME: usize = across(8, 16);
/// The page whose word is a lock.
const LOCK: usize = 30;

fn words(_: usize, image: &mut [u8]) {
    (0..SLOT_PAGES).for_each(|page| put(image, word(page), &(page as u32 + 100)));
    put(image, word(LOCK), &0u32);
    put(image, TIME, &[0u64, 3_000_000]);
}

fn futex(at: usize, operation: i32, value: u32, fourth: usize, second: usize, last: u32) -> i64 {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    unsafe { libc::syscall(libc::SYS_futex, at, operation, value, fourth, second, last) }
}

fn futex_wait(slot: &mut Slot) -> Outcome {
    for page in 0..SLOT_PAGES - 4 {
        let at = slot.base + word(page);
        // The kernel reads the word: another value must send us back at once.
        fails("wait", futex(at, libc::FUTEX_WAIT, 1, 0, 0, 0), libc::EAGAIN)?;
    }
    let at = slot.base + word(29);
    let time = slot.base + TIME;
    fails("wait", futex(at, libc::FUTEX_WAIT, 129, time, 0, 0), libc::ETIMEDOUT)
}

/// Calls `wake` until it has reached the one thread that waits on `word(page)`.
fn with_waiter(slot: &Slot, page: usize, mut wake: impl FnMut() -> i64) -> Outcome {
    let at = slot.base + word(page);
    let waiter =
        std::thread::spawn(move || futex(at, libc::FUTEX_WAIT, page as u32 + 100, 0, 0, 0));
    let result = loop {
        match wake() {
            0 => std::thread::sleep(Duration::from_micros(200)),
            1 => break Ok(()),
            other => break exactly("wake", other, 1),
        }
    };
    match (result, waiter.join()) {
        (Ok(()), Ok(0)) => Ok(()),
        (Ok(()), Ok(other)) => wrong(format!("the waiter's call gave {other}")),
        (Ok(()), Err(_)) => wrong("the waiter ended badly"),
        (stop, _) => stop,
    }
}

fn futex_wake(slot: &mut Slot) -> Outcome {
    for page in [0, 7, 15, 16] {
        let at = slot.base + word(page);
        with_waiter(slot, page, || futex(at, libc::FUTEX_WAKE, 10, 0, 0, 0))?;
    }
    Ok(())
}

/// Moves the waiter to another page's word and wakes it there.
fn futex_requeue(slot: &mut Slot) -> Outcome {
    let (from, to) = (slot.base + word(5), slot.base + word(25));
    let mut moved = 0;
    with_waiter(slot, 5, || {
        if moved == 0 {
            moved = futex(from, libc::FUTEX_CMP_REQUEUE, 0, 1, to, 105);
            if moved < 0 {
                return moved;
            }
        }
        futex(to, libc::FUTEX_WAKE, 1, 0, 0, 0)
    })
}

/// Locks and unlocks a word into which the kernel itself writes the owner.
fn futex_pi(slot: &mut Slot) -> Outcome {
    let at = slot.base + word(LOCK);
    exactly("lock", futex(at, libc::FUTEX_LOCK_PI, 0, 0, 0, 0), 0)?;
    let owner: u32 = unsafe { slot.at::<u32>(word(LOCK)).read_volatile() };
    if i64::from(owner) != unsafe { libc::syscall(libc::SYS_gettid) } {
        return wrong(format!("the lock's owner is {owner}"));
    }
    exactly("unlock", futex(at, libc::FUTEX_UNLOCK_PI, 0, 0, 0, 0), 0)
}

/// Descriptors that each waiting call watches.
const POLLED: usize = 64;

fn ppoll(slot: &mut Slot) -> Outcome {
    let fd = eventfd(1)?;
    let (list, time, mask) = (across(2, POLLED * 8), across(10, 16), split(20, 8));
    // The program writes into memory that may have just gone: also a fault of the program's own.
    let entry = |events: i16, result: i16| {
        let mut bytes = fd.0.to_ne_bytes().to_vec();
        bytes.extend(events.to_ne_bytes());
        bytes.extend(result.to_ne_bytes());
        bytes
    };
    let mut input = entry(libc::POLLIN, 0).repeat(POLLED);
    input.extend(entry(0, 0));
    unsafe {
        slot.at::<u8>(list).copy_from_nonoverlapping(input.as_ptr(), input.len());
        slot.at::<[u64; 2]>(time).write([5, 0]);
        slot.at::<u64>(mask).write_unaligned(0);
    }
    let number = libc::SYS_ppoll;
    let list_at = slot.at::<u8>(list);
    let (time_at, mask_at) = (slot.at::<u8>(time), slot.at::<u8>(mask));
    let count = unsafe { libc::syscall(number, list_at, POLLED + 1, time_at, mask_at, 8) };
    exactly("ppoll", count, POLLED)?;
    let mut output = entry(libc::POLLIN, libc::POLLIN).repeat(POLLED);
    output.extend(entry(0, 0));
    slot.expect(list, &output);
    // The call writes the time that is left.
    slot.learn(time, 16);
    slot.expect(mask, &[0; 8]);
    Ok(())
}

fn select(slot: &mut Slot) -> Outcome {
    let (ready, idle) = (eventfd(1)?, eventfd(0)?);
    let size = size_of::<libc::fd_set>();
    let (read, write, time) = (across(4, size), across(17, size), across(29, 16));
    let set = |fds: &[i32]| {
        let mut bytes = vec![0u8; size];
        fds.iter().for_each(|fd| bytes[*fd as usize / 8] |= 1 << (fd % 8));
        bytes
    };
    let input = set(&[ready.0, idle.0]);
    for at in [read, write] {
        unsafe { slot.at::<u8>(at).copy_from_nonoverlapping(input.as_ptr(), size) };
        slot.expect(at, &input);
    }
    unsafe { slot.at::<[u64; 2]>(time).write([5, 0]) };
    let most = ready.0.max(idle.0) + 1;
    let none: *mut u8 = std::ptr::null_mut();
    let (read_at, write_at) = (slot.at::<u8>(read), slot.at::<u8>(write));
    let time_at = slot.at::<u8>(time);
    let number = libc::SYS_pselect6;
    let count = unsafe { libc::syscall(number, most, read_at, write_at, none, time_at, none) };
    // One descriptor is readable, both are writable.
    exactly("pselect6", count, 3)?;
    slot.expect(read, &set(&[ready.0]));
    slot.learn(time, 16);
    Ok(())
}

fn epoll(slot: &mut Slot) -> Outcome {
    let poll = Fd::new("epoll_create1", unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    let size = size_of::<libc::epoll_event>();
    let mut fds = Vec::new();
    for page in pages() {
        let fd = eventfd(1)?;
        let at = split(page, size);
        let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: page as u64 };
        unsafe { slot.at::<libc::epoll_event>(at).write_unaligned(event) };
        slot.learn(at, size);
        let add = libc::EPOLL_CTL_ADD;
        exactly("epoll_ctl", unsafe { libc::epoll_ctl(poll.0, add, fd.0, slot.at(at)) }, 0)?;
        fds.push(fd);
    }
    let list = split(12, fds.len() * size);
    let most = fds.len() as i32;
    let count = unsafe { libc::epoll_wait(poll.0, slot.at(list), most, 1000) };
    exactly("epoll_wait", count, fds.len())?;
    slot.learn(list, fds.len() * size);
    let mut seen: Vec<u64> = (0..fds.len())
        .map(|index| {
            let at = slot.at::<libc::epoll_event>(list + index * size);
            unsafe { at.read_unaligned() }.u64
        })
        .collect();
    seen.sort_unstable();
    if seen.iter().copied().eq(pages().map(|page| page as u64)) {
        Ok(())
    } else {
        wrong(format!("events of {seen:?}"))
    }
}

fn sleep_time(_: usize, image: &mut [u8]) {
    put(image, TIME, &[0u64, 3_000_000]);
}

fn nanosleep(slot: &mut Slot) -> Outcome {
    let start = Instant::now();
    let left: *mut u8 = slot.at(across(11, 16));
    let result = unsafe { libc::syscall(libc::SYS_nanosleep, slot.at::<u8>(TIME), left) };
    if result != 0 {
        return Err(failed("nanosleep"));
    }
    let slept = start.elapsed();
    if slept < Duration::from_millis(3) { wrong(format!("slept {slept:?}")) } else { Ok(()) }
}
