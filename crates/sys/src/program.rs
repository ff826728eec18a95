//! The program that a process beside it serves (`beside`): whether it still has this memory, and
//! what it does.
//!
//! The kernel tells when the program has ended, by a descriptor of the process. It does not tell of
//! an exec, after which the process goes on with other memory: but how large the memory of a
//! process is, anybody may read at any time, and ours then differs from the program's, or does not
//! change with it.

use core::cell::{Cell, UnsafeCell};
use core::ffi::CStr;

use linux_raw_sys::general as linux;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::cpu;
use crate::error::{SysError, SysResult};
use crate::page::{Bytes, PAGE_BYTES, PageCount};
use crate::proc::{self, ResidentGauge};
use crate::raw;

/// How often two sizes are compared that change meanwhile.
const TRIES: usize = 16;
/// A memory that does not change with ours at one of so many looks is another; one that does is
/// looked at again after so long.
const PROBES: usize = 3;
const PROBE_NS: u64 = 20_000_000;
/// Which of the numbers of statm tells what can be written to, from 0 (proc_pid_statm(5)).
const DATA_FIELD: usize = 5;
/// What is made writable and not, and holds nothing: as much as programs seldom map.
const AREA_BYTES: usize = 19 * PAGE_BYTES;
static AREA: Area = Area(UnsafeCell::new([0; AREA_BYTES]));
/// The last field of a statm or stat file that is read.
const STAT_MAX: usize = 512;
/// A limits file is 17 lines of 79 bytes.
const LIMITS_MAX: usize = 2048;

/// A part of our zero-initialised data.
#[repr(C, align(4096))]
struct Area(UnsafeCell<[u8; AREA_BYTES]>);

// SAFETY: nobody reads or writes what it holds.
unsafe impl Sync for Area {}

impl Area {
    /// Allows or forbids that it is written to; whether that is so now.
    fn allow(&self, writes: bool) -> bool {
        let flags = if writes { linux::PROT_READ | linux::PROT_WRITE } else { linux::PROT_READ };
        let arguments = [self.0.get().expose_provenance(), AREA_BYTES, flags as usize, 0, 0, 0];
        // SAFETY: whole pages that nothing else lies in, and that nobody writes to.
        unsafe { raw::syscall(linux::__NR_mprotect, arguments) == 0 }
    }
}

/// The process that has the memory which the calling one shares.
#[derive(Debug)]
pub struct Program {
    process: u32,
    pidfd: OwnedFd,
    statm: OwnedFd,
    stat: OwnedFd,
    limits: OwnedFd,
    /// When sizes that are alike are believed no longer.
    probe_at_ns: Cell<u64>,
}

impl Program {
    /// Follows `process`, which must share the caller's memory. `ESRCH` or `ENOENT` when it has
    /// ended, and the number of a filter that refuses to tell when it has.
    pub fn follow(process: u32) -> SysResult<Self> {
        let pid = Pid::from_raw(process.cast_signed())
            .ok_or(SysError { call: "pidfd_open", errno: 3 })?;
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

    /// Its number.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// What it may map now, if that is limited (RLIMIT_AS).
    pub fn address_limit(&self) -> Option<Bytes> {
        self.limit(b"Max address space")
    }

    /// What of it it may write to, if that is limited (RLIMIT_DATA).
    pub fn data_limit(&self) -> Option<Bytes> {
        self.limit(b"Max data size")
    }

    fn limit(&self, name: &[u8]) -> Option<Bytes> {
        let mut buffer = [0; LIMITS_MAX];
        let text = proc::read_at(&self.limits, &mut buffer, 0).ok()?;
        proc::number_after(text, name).map(|bytes| Bytes(bytes as usize))
    }

    /// What becomes readable when it has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Whether it has ended, with all its threads.
    pub fn has_ended(&self) -> bool {
        self.poll().is_ok_and(|count| count > 0)
    }

    fn poll(&self) -> rustix::io::Result<usize> {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default()))
    }

    /// Whether it has gone from this memory, of which `own` is a gauge: it has ended, or called
    /// exec.
    pub fn has_left(&self, own: &ResidentGauge) -> bool {
        // Its first thread may have ended, but not all.
        if proc::first_number(&self.statm) == Ok(PageCount(0)) {
            return self.has_ended();
        }
        let differs = (0..TRIES).all(|_| {
            let Ok(before) = own.size() else { return true };
            match proc::first_number(&self.statm) {
                Ok(theirs) if theirs == before => false,
                // It may map and unmap meanwhile: any size between two of ours is ours.
                Ok(theirs) => own
                    .size()
                    .is_ok_and(|after| theirs < before.min(after) || theirs > before.max(after)),
                Err(_) => true,
            }
        });
        // That of another image of the same program, with its service, is as large as ours.
        let now = cpu::monotonic_ns();
        let is_doubted = differs || now >= self.probe_at_ns.get();
        if is_doubted {
            self.probe_at_ns.set(now + PROBE_NS);
        }
        is_doubted && !(0..PROBES).all(|_| self.changes_with_ours())
    }

    /// Whether the program's memory is ours, by what changes here: a part of ours can be written to
    /// or not, and how much can is told of each memory. No address changes hands: what is mapped
    /// and unmapped here could meet what the program does at that address. Another memory does not
    /// change with ours; where that cannot be told, as it changes all the time, it passes for ours.
    fn changes_with_ours(&self) -> bool {
        let writable = || proc::number_at(&self.statm, DATA_FIELD);
        let Ok(before) = writable() else { return !self.has_ended() };
        let is_changed = AREA.allow(false);
        let during = writable();
        let is_back = AREA.allow(true);
        let after = writable();
        let stays = during == Ok(before) && after == Ok(before);
        // Where a change was refused nothing is told, and what a program that is still here has
        // away must not be lost.
        let is_another = is_changed && is_back && stays;
        !is_another
    }

    /// Nanoseconds that its threads have run for, ever.
    pub fn ran_ns(&self) -> u64 {
        cpu::process_ran_ns(self.process)
    }

    /// Its faults, ever, that needed no disk: minflt of its stat.
    pub fn minor_faults(&self) -> u64 {
        let mut buffer = [0; STAT_MAX];
        let Ok(text) = proc::read_at(&self.stat, &mut buffer, 0) else { return 0 };
        // Field 10; those behind the name, which may hold anything, begin with the third.
        let after_name = text.iter().rposition(|byte| *byte == b')').map_or(text, |at| &text[at..]);
        let field = after_name.split(|byte| *byte == b' ').nth(10 - 2);
        field.and_then(proc::decimal).unwrap_or(0)
    }

    /// Ends it, if this process may: SIGKILL.
    pub fn kill(&self) {
        kill(self.pidfd());
    }
}

/// Ends the process of `pidfd`, if the caller may: SIGKILL.
pub fn kill(pidfd: BorrowedFd<'_>) {
    let _ = rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL);
}

/// Whether the calling process is the only one left that has its memory. `None` where a filter
/// forbids to ask (Docker's default one does without CAP_SYS_ADMIN, Podman's does not). Source:
/// unshare(2), `check_unshare_flags` in kernel/fork.c: it changes nothing, and fails where the
/// memory is shared.
pub fn is_alone() -> Option<bool> {
    const EINVAL: isize = -22;
    let arguments = [linux::CLONE_VM as usize, 0, 0, 0, 0, 0];
    // SAFETY: the call takes flags by value, and nothing is to be parted.
    match unsafe { raw::syscall(linux::__NR_unshare, arguments) } {
        0 => Some(true),
        EINVAL => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a program that is believed to have gone while it is here, or to be here for ever.

    use std::process::Command;

    use super::*;

    #[test]
    fn who_has_this_memory_is_here_and_who_has_another_is_not() {
        let own = ResidentGauge::open().unwrap();
        let here = Program::follow(raw::process_id()).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: a flag of its own.
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
