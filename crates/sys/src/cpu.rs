//! Processors: finding a thread's processor, moving there, and a cheap clock.

use core::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::CpuSet;

use crate::error::{SysError, SysResult};

/// Moves the calling thread to processor `cpu` and keeps it there.
pub fn run_on(cpu: usize) -> SysResult<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).map_err(SysError::of("sched_setaffinity"))
}

/// The processors that a thread may run on, one bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed(pub [u64; Allowed::WORDS]);

impl Allowed {
    /// Words of 64 processors: as many as glibc's `cpu_set_t` has.
    pub const WORDS: usize = 16;

    /// All processors there can ever be.
    pub const ALL: Self = Self([u64::MAX; Self::WORDS]);

    /// Returns the processors of a thread that only its cpuset restricts, if the calling thread is
    /// such a thread.
    pub fn unrestricted() -> Option<Self> {
        let own = Self::of(0).ok()?;
        Self::ALL.give_to(0).ok()?;
        let most = Self::of(0).ok()?;
        if own == most {
            return Some(own);
        }
        // The thread had these processors before, so the kernel accepts them.
        let _ = own.give_to(0);
        None
    }

    /// Returns the processors that `thread` may use. Fails when it has ended, or where there are
    /// more processors than fit.
    pub fn of(thread: u32) -> SysResult<Self> {
        let mut allowed = Self([0; Self::WORDS]);
        let words = allowed.0.as_mut_ptr() as usize;
        let arguments = [thread as usize, size_of::<Self>(), words, 0, 0, 0];
        // SAFETY: the kernel writes no more than the length given.
        let result = unsafe {
            crate::raw::syscall(linux_raw_sys::general::__NR_sched_getaffinity, arguments)
        };
        crate::raw::checked("sched_getaffinity", result).map(|_| allowed)
    }

    /// Returns the set of this processor and no other.
    pub fn only(processor: usize) -> Self {
        let bit = |index| if index == processor / 64 { 1 << (processor % 64) } else { 0 };
        Self(core::array::from_fn(bit))
    }

    /// Returns the set without `processor`.
    #[must_use]
    pub fn without(self, processor: usize) -> Self {
        let gone = Self::only(processor);
        Self(core::array::from_fn(|index| self.0[index] & !gone.0[index]))
    }

    /// Allows `thread` the processors of the set that are also in its cpuset.
    pub fn give_to(&self, thread: u32) -> SysResult<()> {
        let words = self.0.as_ptr() as usize;
        let arguments = [thread as usize, size_of::<Self>(), words, 0, 0, 0];
        // SAFETY: the kernel reads no more bytes than the length given.
        let result = unsafe {
            crate::raw::syscall(linux_raw_sys::general::__NR_sched_setaffinity, arguments)
        };
        crate::raw::checked("sched_setaffinity", result).map(|_| ())
    }

    /// Returns whether `processor` is in the set.
    pub fn has(&self, processor: usize) -> bool {
        self.0.get(processor / 64).is_some_and(|word| word >> (processor % 64) & 1 == 1)
    }

    /// Returns the number of processors in the set.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns whether the set has exactly one processor.
    pub fn is_one(&self) -> bool {
        self.count() == 1
    }
}

/// Returns whether `thread` has a real-time policy: while it runs, no thread without one runs on
/// its processor.
pub fn is_real_time(thread: u32) -> bool {
    use linux_raw_sys::general as linux;
    let arguments = [thread as usize, 0, 0, 0, 0, 0];
    // SAFETY: sched_getscheduler takes a number, and reads no memory of ours.
    let policy = unsafe { crate::raw::syscall(linux::__NR_sched_getscheduler, arguments) };
    let real_time = [linux::SCHED_FIFO, linux::SCHED_RR, linux::SCHED_DEADLINE];
    // Another bit of the policy says whether children inherit it.
    let policy = policy & !(linux::SCHED_RESET_ON_FORK as isize);
    real_time.iter().any(|one| *one as isize == policy)
}

/// Returns the processor that the calling thread runs on.
pub fn current() -> usize {
    rustix::thread::sched_getcpu()
}

/// Returns one more than the highest processor that the calling thread may run on now. It may be
/// allowed others later.
pub fn count() -> SysResult<usize> {
    let allowed =
        rustix::thread::sched_getaffinity(None).map_err(SysError::of("sched_getaffinity"))?;
    let highest = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu));
    Ok(highest.map_or(0, |cpu| cpu + 1))
}

/// Returns the nice value of the calling thread.
pub fn nice() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0)
}

/// Sets the nice value of the calling thread; without privilege the value cannot become lower.
pub fn set_nice(value: i32) {
    let _ = rustix::process::setpriority_process(None, value);
}

/// A thread's restartable-sequence area, which the kernel keeps up to date with the thread's
/// processor.
///
/// glibc registers one for each thread at `__rseq_offset` from the thread pointer (glibc 2.35).
#[derive(Clone, Copy, Debug)]
pub struct RseqArea(*const AtomicU32);

// SAFETY: the area is only read, through an atomic, and lives as long as `of_current` promised.
unsafe impl Send for RseqArea {}

impl RseqArea {
    /// Returns the area of the calling thread, `offset` bytes from its thread pointer.
    ///
    /// # Safety
    /// `offset` must be glibc's `__rseq_offset`, and the result may be used only while the thread's
    /// memory exists; for the main thread that is the life of the process.
    pub unsafe fn of_current(offset: isize) -> Self {
        let thread_pointer: usize;
        // SAFETY: on x86-64 the word at fs:0 is the thread pointer itself (ELF TLS ABI).
        unsafe {
            core::arch::asm!(
                "mov {}, fs:0",
                out(reg) thread_pointer,
                options(nostack, readonly, preserves_flags)
            );
        }
        // struct rseq: u32 cpu_id_start, u32 cpu_id (linux/rseq.h).
        Self(thread_pointer.wrapping_add_signed(offset + 4) as *const AtomicU32)
    }

    /// Returns the address of the processor number in the area.
    pub fn address(self) -> usize {
        self.0 as usize
    }

    /// Returns the processor the thread is on, or was on when it last left one. `None` when the
    /// area is not registered.
    pub fn cpu(self) -> Option<usize> {
        // SAFETY: the constructor's contract keeps the area alive. Relaxed: the kernel is the only
        // writer, and a stale answer costs time only.
        let cpu = unsafe { (*self.0).load(Ordering::Relaxed) };
        (cpu < 1 << 16).then_some(cpu as usize)
    }
}

/// Returns the ticks of the processor's time-stamp counter: cheap, constant in rate, of unknown
/// unit.
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns the nanoseconds of the monotonic clock, by a system call (about 200 ns).
pub fn monotonic_ns() -> u64 {
    clock_ns(linux_raw_sys::general::CLOCK_MONOTONIC)
}

/// Returns the nanoseconds that all threads of `process` have run since its start; 0 when it has
/// ended. Takes a microsecond, and a fraction of one for each thread.
pub fn process_ran_ns(process: u32) -> u64 {
    clock_ns(process_clock(process))
}

/// Returns the kernel's number of the clock of how long all threads of `process` have run.
pub(crate) fn process_clock(process: u32) -> u32 {
    /// The scheduler's clock of a whole process (linux/posix-timers.h).
    const CPUCLOCK_SCHED: u32 = 2;
    (!process << 3) | CPUCLOCK_SCHED
}

/// Returns the nanoseconds that the calling thread has run since its start.
pub fn ran_ns() -> u64 {
    clock_ns(linux_raw_sys::general::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the nanoseconds of one of the system's clocks.
fn clock_ns(clock: u32) -> u64 {
    let mut time = [0_u64; 2];
    // SAFETY: the buffer is a struct timespec.
    unsafe {
        crate::raw::syscall(
            linux_raw_sys::general::__NR_clock_gettime,
            [clock as usize, time.as_mut_ptr() as usize, 0, 0, 0, 0],
        );
    }
    time[0] * 1_000_000_000 + time[1]
}

/// Sleeps for `duration_ns`.
pub fn sleep_ns(duration_ns: u64) {
    let time = [duration_ns / 1_000_000_000, duration_ns % 1_000_000_000];
    // SAFETY: the argument is a struct timespec, and no remainder is asked for.
    unsafe {
        crate::raw::syscall(
            linux_raw_sys::general::__NR_nanosleep,
            [time.as_ptr() as usize, 0, 0, 0, 0, 0],
        );
    }
}

/// Yields the processor to other threads.
pub fn yield_now() {
    rustix::thread::sched_yield();
}

#[cfg(test)]
mod tests {
    //! The risk: the program's own threads, or those it starts, run with the service's priority.

    use super::*;

    #[test]
    fn a_nice_value_is_of_one_thread() {
        let before = nice();
        // Every thread may raise its nice value; 19 is the maximum.
        let wanted = (before + 2).min(19);
        let found = std::thread::spawn(move || {
            set_nice(wanted);
            nice()
        });
        assert_eq!(found.join().expect("it does not panic"), wanted);
        assert_eq!(nice(), before);
    }
}
