//! A process that has joined a run: its program, and the service that speaks for it.
//!
//! The service is a process of its own, which shares the program's memory. The kernel reports which
//! process speaks. The service names its program by a descriptor, and is believed if the two have
//! one memory and the program is of this run.

use std::fs;
use std::path::Path;
use std::time::Instant;

use coldpress_runtime::wire::{AFFINITY, Affinity, CALL, PACKET_MAX};
use coldpress_sys::net::{self, Peer};
use coldpress_sys::uffd::Userfaultfd;
use coldpress_sys::{AsFd, AsRawFd, OwnedFd};
use rustix::process::{Signal, pidfd_send_signal};

use super::claims::Claims;
use crate::proc::{self, Life};
use crate::tree;

/// A program, by a descriptor of its process.
#[derive(Debug)]
pub(crate) struct Served {
    pidfd: OwnedFd,
    process: u32,
}

impl Served {
    /// Finds the program that `service` claims to speak for, by `pidfd`. Returns `None` when the
    /// claim is false.
    pub(crate) fn find(pidfd: OwnedFd, service: u32) -> Option<Self> {
        // proc_pid_fdinfo(5): the number in our name space, and -1 or 0 where the process has none.
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
        let number = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
        let process = number.trim().parse().ok().filter(|process| *process > 0)?;
        // A service cannot have another user's program by sizes that happen to be equal.
        let [speaker, owner] = [service, process].map(proc::user);
        let may = speaker == Some(0) || speaker.is_some() && speaker == owner;
        let is_ours = may && tree::is_of_run(process) && proc::have_one_memory(service, process);
        is_ours.then_some(Self { pidfd, process })
    }

    /// Returns the process number of the program.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Returns whether the program has this thread.
    pub(crate) fn has_thread(&self, thread: u32) -> bool {
        let is_there = Path::new(&format!("/proc/{}/task/{thread}", self.process)).exists();
        // Otherwise the number may be another process's.
        is_there && !self.has_ended()
    }

    /// Returns whether the program has ended.
    pub(crate) fn has_ended(&self) -> bool {
        proc::is_over(&self.pidfd)
    }

    /// Returns whether this has killed the program, which it does unless the program is about to
    /// end.
    pub(crate) fn end(&self) -> bool {
        let is_ending = Life::of(self.process).is_none_or(|life| life.is_ending);
        !is_ending && !self.has_ended() && pidfd_send_signal(&self.pidfd, Signal::KILL).is_ok()
    }
}

/// A process that has joined.
pub(crate) struct Member {
    pub(crate) socket: OwnedFd,
    /// The service, and a descriptor of its process.
    pub(crate) peer: Peer,
    pub(crate) service: OwnedFd,
    pub(crate) seat: usize,
    pub(crate) program: Served,
    /// Whether the service has said that it ends, and that nothing is lost with it.
    pub(crate) leaves: bool,
    /// The program's userfaultfd. While it is open, a page that is away never reads as zeros, not
    /// even in the last system call of a process that is being killed.
    pub(crate) lent: Option<Userfaultfd>,
    /// Whether the member has asked for a file to record in; each member gets one.
    pub(crate) has_record: bool,
    /// The number of lines that the member may still have printed.
    pub(crate) notes_left: u32,
    pub(crate) claims: Claims,
    /// The name of the program when it joined, and the time when it did.
    pub(crate) name: String,
    pub(crate) since: Instant,
}

impl Member {
    /// Answers a member that asks in which call a thread of its program waits.
    pub(crate) fn tell_call(&self, thread: &[u8]) {
        let Member { socket, program, .. } = self;
        let call = thread.try_into().ok().and_then(|thread| {
            let (process, thread) = (program.process(), u32::from_le_bytes(thread));
            let call = std::fs::read(format!("/proc/{process}/task/{thread}/syscall")).ok();
            // Otherwise the number may be another process's.
            call.filter(|_| !program.has_ended())
        });
        let mut answer = vec![CALL];
        answer.extend(call.into_iter().flatten().take(PACKET_MAX - 1));
        // A member that has ended needs no answer.
        let _ = net::send(socket.as_fd(), &answer, &[]);
    }

    /// Allows a thread of the member's program the processors that it asks for.
    pub(crate) fn give_processors(&self, packet: &[u8]) {
        let Member { socket, program, .. } = self;
        let is_done = Affinity::decode(packet).is_some_and(|Affinity { thread, allowed }| {
            program.has_thread(thread) && allowed.give_to(thread).is_ok()
        });
        let _ = net::send(socket.as_fd(), &[AFFINITY, u8::from(is_done)], &[]);
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a stranger's program is taken for one of the run, and ended.

    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    fn pidfd(process: u32) -> OwnedFd {
        let pid = Pid::from_raw(process.cast_signed()).expect("it is not zero");
        pidfd_open(pid, PidfdFlags::empty()).expect("it lives")
    }

    #[test]
    fn only_a_program_below_us_with_the_same_memory_is_served() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep is everywhere");
        let child_id = child.id();
        assert!(Served::find(pidfd(child_id), std::process::id()).is_none());
        assert!(Served::find(pidfd(1), 1).is_none());
        let served = Served::find(pidfd(child_id), child_id).expect("it is below, and itself");
        assert!(served.process() == child_id && !served.has_ended());
        assert!(served.has_thread(child_id) && !served.has_thread(std::process::id()));
        assert!(served.end());
        child.wait().expect("it was started");
        assert!(served.has_ended() && !served.end());
        // Nor would it if its number were another process's by now.
        assert!(!served.has_thread(child_id));
    }
}
