//! Timers on how long another process has run.
//!
//! The kernel lets any process have one (`posix_cpu_timer_create` of
//! kernel/time/posix-cpu-timers.c). It looks at them at its own ticks, and when a thread returns
//! from the kernel: one expires up to 4 ms late, and not within one long system call.

use core::mem::MaybeUninit;

use linux_raw_sys::general as linux;
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::cpu::process_clock;
use crate::error::SysResult;
use crate::raw::{checked, syscall};

/// The signal of the timer, which the process must have blocked.
const SIGNAL: u32 = linux::SIGALRM;

/// A timer whose descriptor becomes readable when a process has run for long enough. The kernel's
/// part of it lives as long as the calling process.
#[derive(Debug)]
pub struct RunTimer {
    timer: i32,
    signal: OwnedFd,
}

impl RunTimer {
    /// Makes a timer on the running time of all threads of `process`. The calling process must have
    /// all signals blocked, and have no other such timer.
    pub fn of(process: u32) -> SysResult<Self> {
        let set = 1_u64 << (SIGNAL - 1);
        let flags = linux::O_NONBLOCK | linux::O_CLOEXEC;
        let arguments = [usize::MAX, (&raw const set).expose_provenance(), 8, flags as usize, 0, 0];
        // SAFETY: the kernel reads the set of signals, a word.
        let signal = checked("signalfd4", unsafe { syscall(linux::__NR_signalfd4, arguments) })?;
        // SAFETY: the kernel just returned this descriptor, and nothing else uses it.
        let signal = unsafe { OwnedFd::from_raw_fd(signal as i32) };
        // struct sigevent: the value, the signal, how to notify (SIGEV_SIGNAL is 0).
        let event = [0_u64, u64::from(SIGNAL), 0, 0, 0, 0, 0, 0];
        let mut timer = 0_i32;
        let (event, place) =
            ((&raw const event).expose_provenance(), (&raw mut timer).expose_provenance());
        let arguments = [process_clock(process) as usize, event, place, 0, 0, 0];
        // SAFETY: the kernel reads a struct sigevent of 64 bytes and writes the timer's number.
        checked("timer_create", unsafe { syscall(linux::__NR_timer_create, arguments) })?;
        Ok(Self { timer, signal })
    }

    /// Sets the timer to expire when the process has run for `ran_ns` since its start, and forgets
    /// that it has expired before.
    pub fn set(&self, ran_ns: u64) -> SysResult<()> {
        // While it is not set, nothing comes behind what is read here.
        self.set_to(0)?;
        let mut info = [MaybeUninit::<u8>::uninit(); 128];
        // An error says that there is nothing more to read.
        while rustix::io::read(&self.signal, &mut info[..]).is_ok() {}
        self.set_to(ran_ns)
    }

    fn set_to(&self, ran_ns: u64) -> SysResult<()> {
        const ABSOLUTE: usize = 1;
        // struct itimerspec: no interval, then the time.
        let setting = [0, 0, ran_ns / 1_000_000_000, ran_ns % 1_000_000_000];
        let place = (&raw const setting).expose_provenance();
        let arguments = [self.timer as usize, ABSOLUTE, place, 0, 0, 0];
        // SAFETY: the kernel reads a struct itimerspec.
        checked("timer_settime", unsafe { syscall(linux::__NR_timer_settime, arguments) }).map(drop)
    }

    /// Returns the descriptor that becomes readable.
    pub fn signal(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a process that runs and is not noticed, or one that rests and is.

    use super::*;
    use crate::cpu::process_ran_ns;
    use crate::fork::fork_with;
    use crate::raw::{block_signals, process_id};

    fn is_readable(timer: &RunTimer) -> bool {
        let mut places = [rustix::event::PollFd::new(&timer.signal, rustix::event::PollFlags::IN)];
        let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut places, Some(&none)) == Ok(1)
    }

    /// Watches the calling process, whose only thread has blocked the signal; returns the number of
    /// the first step that was not as it should be.
    fn watch(_: &mut [crate::Page]) -> u8 {
        block_signals();
        let process = process_id();
        let Ok(timer) = RunTimer::of(process) else { return 1 };
        for round in 0..2 {
            let ran = process_ran_ns(process);
            if timer.set(ran + 20_000_000).is_err() {
                return 2;
            }
            if is_readable(&timer) {
                return 3 + round;
            }
            // A tick comes later than 4 ms where the machine is busy.
            while process_ran_ns(process) < ran + 60_000_000 {}
            if !is_readable(&timer) {
                return 5 + round;
            }
        }
        0
    }

    #[test]
    fn it_expires_each_time_the_process_has_run_for_as_long() {
        // In a process of its own, because any thread that has not blocked the signal would end it.
        let child = fork_with(watch, &mut []).unwrap();
        let (_, status) =
            rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())
                .unwrap()
                .unwrap();
        assert_eq!(status.exit_status(), Some(0));
    }
}
