//! Waiting for a userfaultfd, with a clock that wakes the waiter again and again, and whatever else
//! shall wake it.
//!
//! An epoll(7) instance, since it keeps its place in the queues of both between waits: faults that
//! were waited for by poll(2) took 12.7 us where these took 11.9 (medians of 10 runs in turn, Linux
//! 6.18). The clock is
//! armed once a tick, not once a wait: programming a virtual machine's timer takes microseconds, as
//! it leaves the machine.

use core::cell::Cell;
use core::mem::MaybeUninit;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::error::{SysError, SysResult};
use crate::uffd::Userfaultfd;

const FAULTS: EventData = EventData::new_u64(0);
const TICK: EventData = EventData::new_u64(1);
const OTHER: EventData = EventData::new_u64(2);
const END: EventData = EventData::new_u64(3);
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Waits for a userfaultfd, and more.
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Whether the program was seen to have ended.
    has_ended: Cell<bool>,
}

impl Waiter {
    /// Ticks every `interval_ns` from now on.
    pub fn new(interval_ns: u64) -> SysResult<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(SysError::of("epoll_create1"))?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(SysError::of("timerfd_create"))?;
        let waiter = Self { epoll, timer, has_ended: Cell::new(false) };
        epoll::add(&waiter.epoll, &waiter.timer, TICK, EventFlags::IN)
            .map_err(SysError::of("epoll_ctl(timerfd)"))?;
        waiter.set_interval(interval_ns)?;
        Ok(waiter)
    }

    /// Waits for `uffd` too, which must stay open as long as this waits.
    pub fn watch(&self, uffd: &Userfaultfd) -> SysResult<()> {
        // Edge-triggered: the reader takes all there is, so the kernel need not look again.
        epoll::add(&self.epoll, uffd, FAULTS, EventFlags::IN | EventFlags::ET)
            .map_err(SysError::of("epoll_ctl(userfaultfd)"))
    }

    /// Lets `other` end a wait too, each time that it has become readable. It must stay open as
    /// long as this waits.
    pub fn also_wake_by(&self, other: BorrowedFd<'_>) -> SysResult<()> {
        epoll::add(&self.epoll, other, OTHER, EventFlags::IN | EventFlags::ET)
            .map_err(SysError::of("epoll_ctl"))
    }

    /// Lets the end of the program end a wait too; its pidfd must stay open as long as this waits.
    pub fn also_see_end(&self, pidfd: BorrowedFd<'_>) -> SysResult<()> {
        epoll::add(&self.epoll, pidfd, END, EventFlags::IN | EventFlags::ET)
            .map_err(SysError::of("epoll_ctl(pidfd)"))
    }

    /// Whether a wait has seen the end of the program.
    pub fn has_seen_end(&self) -> bool {
        self.has_ended.get()
    }

    /// Changes the interval of the ticks.
    pub fn set_interval(&self, interval_ns: u64) -> SysResult<()> {
        let interval = Timespec {
            tv_sec: (interval_ns / 1_000_000_000) as i64,
            tv_nsec: (interval_ns % 1_000_000_000) as i64,
        };
        let setting = Itimerspec { it_interval: interval, it_value: interval };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)
            .map(|_| ())
            .map_err(SysError::of("timerfd_settime"))
    }

    /// Waits until something came to be read since the last time, or a tick, or what else wakes.
    /// Says whether something came: then all of it must be read, it is told of once.
    pub fn wait(&self) -> SysResult<bool> {
        self.look(None)
    }

    /// As [`Waiter::wait`], without waiting.
    pub fn has_come(&self) -> SysResult<bool> {
        self.look(Some(&NO_TIME))
    }

    fn look(&self, timeout: Option<&Timespec>) -> SysResult<bool> {
        let mut places = [const { MaybeUninit::<Event>::uninit() }; 4];
        let events = match epoll::wait(&self.epoll, &mut places, timeout) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(false),
            Err(errno) => return Err(SysError::of("epoll_wait")(errno)),
        };
        let mut come = false;
        for event in events {
            // Copied out: the structure is packed.
            match { event.data }.u64() {
                0 => come = true,
                1 => self.clear_tick(),
                3 => self.has_ended.set(true),
                _ => {}
            }
        }
        Ok(come)
    }

    fn clear_tick(&self) {
        let mut ticks = [0_u8; 8];
        // EAGAIN: cleared before, which is as good.
        let _ = rustix::io::read(&self.timer, &mut ticks);
    }
}
