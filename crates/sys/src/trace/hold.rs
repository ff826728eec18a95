//! Stopping a thread of a program that runs, so that the program does not notice.
//!
//! A thread that waits in a system call is taken out of it. The kernel itself makes most such
//! calls again, with the time that is left, if the thread goes on from where it was stopped for
//! the tracer. Six kinds of calls end with EINTR after any stop (signal(7)): these are made again
//! here, and a timeout of theirs begins anew.

use core::time::Duration;
use std::format;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::Instant;

use linux_raw_sys::general as linux;
use linux_raw_sys::ptrace;

use super::{
    CALL, Ended, MASK_BYTES, PTRACE_CONT, PTRACE_DETACH, PTRACE_GETSIGMASK, RAX, RIP, TELL_CALLS,
    Tracee, request, stop_of, wait_for_stop,
};
use crate::errno;
use crate::error::{SysError, SysResult};

const PTRACE_SEIZE: usize = ptrace::PTRACE_SEIZE as usize;
const PTRACE_RSEQ: usize = ptrace::PTRACE_GET_RSEQ_CONFIGURATION as usize;
const PTRACE_INTERRUPT: usize = ptrace::PTRACE_INTERRUPT as usize;
/// The time in which a thread must stop, while others of its process stand still already. One that
/// waits for its child of `vfork` does not.
const PATIENCE: Duration = Duration::from_millis(50);
const LOOK_INTERVAL: Duration = Duration::from_micros(20);
/// The signals that stop a whole process.
const STOPS: [u32; 4] = [linux::SIGSTOP, linux::SIGTSTP, linux::SIGTTIN, linux::SIGTTOU];
/// The calls that end with EINTR after a stop, though no handler has run (signal(7)).
const INTERRUPTED: [u32; 29] = [
    linux::__NR_read,
    linux::__NR_write,
    linux::__NR_readv,
    linux::__NR_writev,
    linux::__NR_preadv,
    linux::__NR_pwritev,
    linux::__NR_preadv2,
    linux::__NR_pwritev2,
    linux::__NR_splice,
    linux::__NR_tee,
    linux::__NR_vmsplice,
    linux::__NR_sendfile,
    linux::__NR_accept,
    linux::__NR_accept4,
    linux::__NR_connect,
    linux::__NR_sendto,
    linux::__NR_recvfrom,
    linux::__NR_sendmsg,
    linux::__NR_recvmsg,
    linux::__NR_recvmmsg,
    linux::__NR_sendmmsg,
    linux::__NR_semop,
    linux::__NR_semtimedop,
    linux::__NR_io_getevents,
    linux::__NR_rt_sigtimedwait,
    linux::__NR_epoll_wait,
    linux::__NR_epoll_pwait,
    linux::__NR_epoll_pwait2,
    linux::__NR_io_uring_enter,
];

impl Tracee {
    /// Stops `thread` of `process`. Fails with EPERM when it is traced already, or when the caller
    /// may not; with EBUSY when its process is stopped, or when it does not stop in time.
    pub fn hold(process: u32, thread: u32) -> SysResult<Self> {
        request(PTRACE_SEIZE, thread, 0, TELL_CALLS)?;
        request(PTRACE_INTERRUPT, thread, 0, 0)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let Some(stop) = stop_of(thread, linux::WNOHANG, Ended::Goes)? else {
                if Instant::now() >= until {
                    return Err(SysError { call: "ptrace", errno: errno::EBUSY });
                }
                sleep(LOOK_INTERVAL);
                continue;
            };
            if stop.is_event && !STOPS.contains(&(stop.signal as u32)) {
                break;
            }
            if stop.is_event {
                // The thread stays stopped, with its process.
                let _ = request(PTRACE_DETACH, thread, 0, 0);
                return Err(SysError { call: "ptrace", errno: errno::EBUSY });
            }
            request(PTRACE_CONT, thread, 0, stop.signal as usize)?;
        }
        let mut mask = 0_u64;
        request(PTRACE_GETSIGMASK, thread, MASK_BYTES, (&raw mut mask).expose_provenance())?;
        let mut tracee = Self::stopped(thread, mask)?;
        tracee.was_running = true;
        tracee.make_interrupted_call_again(process);
        Ok(tracee)
    }

    /// Whether the thread may make calls where it stands: not in the middle of a restartable
    /// sequence, which would not begin again when the thread comes back to it (rseq(2)).
    pub fn may_make_calls(&self) -> bool {
        let is_in_call = self.saved[CALL].cast_signed() >= 0;
        is_in_call || self.sequence() == Some(0)
    }

    /// Returns the address of the descriptor of the restartable sequence that the thread was last
    /// in, 0 for none.
    fn sequence(&self) -> Option<u64> {
        // struct ptrace_rseq_configuration (linux/ptrace.h) begins with the area's address. Linux
        // before 5.13 does not say where that is.
        let mut area = [0_u64; 3];
        let (size, place) = (size_of_val(&area), area.as_mut_ptr().expose_provenance());
        let known = request(PTRACE_RSEQ, self.thread, size, place);
        if known.is_err() || area[0] == 0 {
            return Some(0);
        }
        // struct rseq: two numbers of processors, then the descriptor's address (linux/rseq.h).
        let mut word = [0; size_of::<u64>()];
        let memory = File::open(format!("/proc/{}/mem", self.thread)).ok()?;
        memory.read_exact_at(&mut word, area[0] + size_of::<u64>() as u64).ok()?;
        Some(u64::from_le_bytes(word))
    }

    /// Returns the address at which the thread goes on.
    pub fn goes_on_at(&self) -> usize {
        self.saved[RIP] as usize
    }

    /// Has a call be made again that ended with EINTR because of the stop: no signal is there that
    /// could have ended it.
    fn make_interrupted_call_again(&mut self, process: u32) {
        const EINTR: i64 = -(errno::EINTR as i64);
        let number = self.saved[CALL];
        let is_one = INTERRUPTED.iter().any(|call| u64::from(*call) == number);
        if self.saved[RAX].cast_signed() == EINTR && is_one && !self.has_signal(process) {
            self.saved[RAX] = number;
            self.saved[RIP] -= super::SYSCALL.len() as u64;
        }
    }

    /// Whether a signal waits for the thread that it does not block.
    fn has_signal(&self, process: u32) -> bool {
        let path = format!("/proc/{process}/task/{}/status", self.thread);
        let status = fs::read_to_string(path).unwrap_or_default();
        let waits = ["SigPnd:", "ShdPnd:"].map(|name| signals_after(&status, name));
        (waits[0] | waits[1]) & !self.mask != 0
    }

    /// Brings the thread to a stop from which the kernel makes again what it had interrupted.
    pub(super) fn go_to_where_calls_begin_again(&mut self) -> SysResult<()> {
        request(PTRACE_INTERRUPT, self.thread, 0, 0)?;
        loop {
            request(PTRACE_CONT, self.thread, 0, 0)?;
            let stop = wait_for_stop(self.thread, self.ended())?;
            if stop.is_event {
                break;
            }
            if stop.signal != super::AT_CALL {
                self.late = stop.signal;
            }
        }
        if self.late != 0 {
            // A stop that was asked for hands on no signal.
            crate::signals::send(self.thread, self.late);
            self.late = 0;
        }
        Ok(())
    }
}

/// Returns the set of signals after `name` in a status (proc_pid_status(5)).
fn signals_after(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
}
