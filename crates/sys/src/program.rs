//! The program that the calling process serves from beside it (`beside`): whether it still has this
//! memory, and what it does.
//!
//! The kernel reports the end of the program by a descriptor of the process. It does not report an
//! exec, after which the process goes on with other memory. But any process may read at any time
//! how large the memory of a process is; after an exec our size differs from the program's, or the
//! program's does not change with ours.

use core::cell::{Cell, UnsafeCell};
use core::ffi::CStr;

use linux_raw_sys::general as linux;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::cpu;
use crate::errno;
use crate::error::{SysError, SysResult};
use crate::page::{Bytes, PAGE_BYTES, PageCount};
use crate::proc::{self, ResidentGauge};
use crate::raw;

/// Maximum comparisons of two sizes that change meanwhile.
const TRIES: usize = 16;
/// Probes for a changed memory. A memory that fails to change with ours at any one of them is
/// another memory; one that passes them is probed again after `PROBE_NS`.
const PROBES: usize = 3;
const PROBE_NS: u64 = 20_000_000;
/// Index of the field of statm that counts writable memory, from 0 (proc_pid_statm(5)).
const DATA_FIELD: usize = 5;
/// Size of the area that is made read-only and writable again, and holds nothing: a size that
/// programs rarely map.
const AREA_BYTES: usize = 19 * PAGE_BYTES;
static AREA: Area = Area(UnsafeCell::new([0; AREA_BYTES]));
/// Bytes to read of a statm or stat file, enough for the last field that is used.
const STAT_MAX: usize = 512;
/// Bytes to read of a limits file, which is 17 lines of 79 bytes.
const LIMITS_MAX: usize = 2048;

/// A part of our zero-initialised data.
#[repr(C, align(4096))]
struct Area(UnsafeCell<[u8; AREA_BYTES]>);

// SAFETY: no code reads or writes the bytes of the area.
unsafe impl Sync for Area {}

impl Area {
    /// Returns whether the area now allows writes, or forbids them, as `writes` demands.
    fn allow(&self, writes: bool) -> bool {
        let flags = if writes { linux::PROT_READ | linux::PROT_WRITE } else { linux::PROT_READ };
        let arguments = [self.0.get().expose_provenance(), AREA_BYTES, flags as usize, 0, 0, 0];
        // SAFETY: whole pages that hold nothing else, and that no code writes to.
        unsafe { raw::syscall(linux::__NR_mprotect, arguments) == 0 }
    }
}

/// The process whose memory the calling process shares.
#[derive(Debug)]
pub struct Program {
    process: u32,
    pidfd: OwnedFd,
    statm: OwnedFd,
    stat: OwnedFd,
    limits: OwnedFd,
    /// The time from which equal sizes no longer prove that the memory is shared.
    probe_at_ns: Cell<u64>,
}

impl Program {
    /// Follows `process`, which must share the caller's memory. Fails with `ESRCH` or `ENOENT` when
    /// it has ended, and with the error number of a filter that hides its end.
    pub fn follow(process: u32) -> SysResult<Self> {
        let pid = Pid::from_raw(process.cast_signed())
            .ok_or(SysError { call: "pidfd_open", errno: errno::ESRCH })?;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map_err(SysError::of("pidfd_open"))?;
        let open = |name: &CStr| proc::open_of(process, name);
        let (statm, stat, limits) = (open(c"/statm")?, open(c"/stat")?, open(c"/limits")?);
        let program = Self { process, pidfd, statm, stat, limits, probe_at_ns: Cell::new(0) };
        match program.poll() {
            Ok(_) | Err(Errno::INTR) => Ok(program),
            Err(errno) => Err(SysError::of("ppoll")(errno)),
        }
    }

    /// Returns the process's number.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Returns how much the program may map now, if that is limited (RLIMIT_AS).
    pub fn address_limit(&self) -> Option<Bytes> {
        self.limit(b"Max address space")
    }

    /// Returns how much writable memory the program may map, if that is limited (RLIMIT_DATA).
    pub fn data_limit(&self) -> Option<Bytes> {
        self.limit(b"Max data size")
    }

    fn limit(&self, name: &[u8]) -> Option<Bytes> {
        let mut buffer = [0; LIMITS_MAX];
        let text = proc::read_at(&self.limits, &mut buffer, 0).ok()?;
        proc::number_after(text, name).map(|bytes| Bytes(bytes as usize))
    }

    /// Returns the descriptor that becomes readable when the program has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns whether the program has ended, with all its threads.
    pub fn has_ended(&self) -> bool {
        self.poll().is_ok_and(|count| count > 0)
    }

    fn poll(&self) -> rustix::io::Result<usize> {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default()))
    }

    /// Returns whether the program has left this memory, of which `own` is a gauge: it has ended,
    /// or called exec.
    pub fn has_left(&self, own: &ResidentGauge) -> bool {
        // The first thread may have ended while others go on.
        if proc::first_number(&self.statm) == Ok(PageCount(0)) {
            return self.has_ended();
        }
        let differs = (0..TRIES).all(|_| {
            let Ok(before) = own.size() else { return true };
            match proc::first_number(&self.statm) {
                Ok(theirs) if theirs == before => false,
                // The program may map and unmap meanwhile: any size between two of ours is ours.
                Ok(theirs) => own
                    .size()
                    .is_ok_and(|after| theirs < before.min(after) || theirs > before.max(after)),
                Err(_) => true,
            }
        });
        // After an exec of the same program, its memory with its service is as large as ours.
        let now = cpu::monotonic_ns();
        let is_doubted = differs || now >= self.probe_at_ns.get();
        if is_doubted {
            self.probe_at_ns.set(now + PROBE_NS);
        }
        is_doubted && !(0..PROBES).all(|_| self.changes_with_ours())
    }

    /// Returns whether the program's memory is ours, by a change made here: an area of ours is made
    /// read-only and writable again, and the kernel reports the writable size of each memory. No
    /// address changes hands, because a mapping made and unmapped here could collide with what the
    /// program does at that address. Another memory does not change with ours. Where the answer is
    /// unclear, because the size changes all the time, the memory passes for ours.
    fn changes_with_ours(&self) -> bool {
        let writable = || proc::number_at(&self.statm, DATA_FIELD);
        let Ok(before) = writable() else { return !self.has_ended() };
        let is_changed = AREA.allow(false);
        let during = writable();
        let is_back = AREA.allow(true);
        let after = writable();
        let stays = during == Ok(before) && after == Ok(before);
        // A refused change proves nothing, and the pages that a live program has away must not be
        // lost.
        let is_another = is_changed && is_back && stays;
        !is_another
    }

    /// Returns the nanoseconds that the program's threads have run since its start.
    pub fn ran_ns(&self) -> u64 {
        cpu::process_ran_ns(self.process)
    }

    /// Returns the number of the program's faults that needed no disk: minflt of its stat.
    pub fn minor_faults(&self) -> u64 {
        let mut buffer = [0; STAT_MAX];
        let Ok(text) = proc::read_at(&self.stat, &mut buffer, 0) else { return 0 };
        // minflt is field 10; the fields behind the name, which may hold anything, begin with the
        // third.
        let after_name = text.iter().rposition(|byte| *byte == b')').map_or(text, |at| &text[at..]);
        let field = after_name.split(|byte| *byte == b' ').nth(10 - 2);
        field.and_then(proc::decimal).unwrap_or(0)
    }

    /// Ends the program by SIGKILL, if this process may.
    pub fn kill(&self) {
        kill(self.pidfd());
    }
}

/// Ends the process of `pidfd` by SIGKILL, if the caller may.
pub fn kill(pidfd: BorrowedFd<'_>) {
    let _ = rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL);
}

/// Returns whether the calling process is the last one that has its memory. `None` where a filter
/// forbids the question (Docker's default one does without CAP_SYS_ADMIN, Podman's does not).
/// Source: unshare(2), `check_unshare_flags` in kernel/fork.c: the call changes nothing, and fails
/// where the memory is shared.
pub fn is_alone() -> Option<bool> {
    const EINVAL: isize = -(errno::EINVAL as isize);
    let arguments = [linux::CLONE_VM as usize, 0, 0, 0, 0, 0];
    // SAFETY: the call takes flags by value, and there is nothing to unshare.
    match unsafe { raw::syscall(linux::__NR_unshare, arguments) } {
        0 => Some(true),
        EINVAL => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a live program passes for gone, or a program that has gone passes for live for
    //! ever.

    use std::process::Command;

    use super::*;

    #[test]
    fn who_has_this_memory_is_here_and_who_has_another_is_not() {
        let own = ResidentGauge::open().unwrap();
        let here = Program::follow(raw::process_id()).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: the flag orders nothing else.
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let length = crate::Bytes::mib(1);
                    let align = crate::Bytes(4096);
                    drop(crate::map::Span::reserve_inaccessible(length, align).unwrap());
                }
            });
            let left = (0..2000).filter(|_| here.has_left(&own)).count();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(left, 0);
        });
        assert!(here.ran_ns() > 0 && here.minor_faults() > 0);
        assert!(raw::is_thread_of(raw::process_id(), raw::thread_id()));
        assert!(!raw::is_thread_of(raw::process_id(), 1));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let other = Program::follow(child.id()).unwrap();
        assert!(other.has_left(&own) && !other.has_ended());
        assert!(here.changes_with_ours() && !other.changes_with_ours());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(other.has_ended());
        assert!(Program::follow(child.id()).is_err());
    }
}
