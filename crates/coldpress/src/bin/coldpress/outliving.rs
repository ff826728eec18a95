//! Userfaultfds of processes whose service has ended, for memory that is still there.
//!
//! Who shares the memory of such a process (a child of `clone` or `vfork`, a thread that is about
//! to end) and touches a page that is away must not read zeros, which it would as soon as nobody
//! has the userfaultfd. So it is kept until the kernel says that the memory has gone, and every
//! fault is answered with poison: SIGBUS, or EFAULT for a system call. The bytes cannot be had, as
//! the process that could bring them back has ended.
//!
//! When the launcher ends before, a process of its own keeps them: `coldpress outlive`, which has
//! nothing else and ends with the last of them.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::net::{self, DESCRIPTORS_MAX};
use coldpress_sys::uffd::{Event, Message, Userfaultfd};
use coldpress_sys::{AsFd, Bytes, OwnedFd, PAGE_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl};

use crate::door::make_room;

/// Whether the memory has gone is asked so soon, and then ever more seldom: mostly it goes within
/// milliseconds.
const ASKED_FIRST: Duration = Duration::from_millis(20);
const ASKED_LAST: Duration = Duration::from_secs(5);
/// How many are kept: as many as there are seats twice. More push out the oldest of the user who
/// has most, whose own memory it is for.
const KEPT_MAX: usize = 2 * coldpress_runtime::ledger::SEATS;
/// How long the launcher waits at its end for what goes by itself.
const GRACE: Duration = Duration::from_millis(500);
/// The subcommand that keeps them when the launcher has ended.
pub(crate) const SUBCOMMAND: &str = "outlive";

/// One that is kept.
struct Kept {
    uffd: Userfaultfd,
    user: u32,
    asked_at: Instant,
    interval: Duration,
}

/// All that are kept.
#[derive(Default)]
pub(crate) struct Outliving {
    all: Vec<Kept>,
}

impl Outliving {
    /// Keeps `uffd`, of a process of `user` whose service has ended.
    pub(crate) fn keep(&mut self, uffd: Userfaultfd, user: u32) {
        make_room(&mut self.all, KEPT_MAX, |kept| kept.user);
        let (asked_at, interval) = (Instant::now() + ASKED_FIRST, ASKED_FIRST);
        self.all.push(Kept { uffd, user, asked_at, interval });
    }

    /// What is to be polled: each of them.
    pub(crate) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.all.iter().map(|kept| PollFd::new(&kept.uffd, PollFlags::IN))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// When it is to be asked again whether memory has gone, if before `wake_at`.
    pub(crate) fn wake_at(&self, wake_at: Instant) -> Instant {
        self.all.iter().map(|kept| kept.asked_at).fold(wake_at, Instant::min)
    }

    /// Answers the faults that [`Outliving::polled`] found `ready`, and gives up what is for memory
    /// that has gone.
    pub(crate) fn look(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        // One that its process has made blocking is told of for ever, and not of faults.
        self.all.retain(|kept| ready.next() != Some(&true) || poison(&kept.uffd));
        let now = Instant::now();
        self.all.retain_mut(|kept| {
            if now < kept.asked_at {
                return true;
            }
            kept.interval = (kept.interval * 2).min(ASKED_LAST);
            kept.asked_at = now + kept.interval;
            !kept.uffd.is_gone()
        });
    }

    /// The launcher ends: what does not go soon is handed to a process of its own.
    pub(crate) fn hand_over(mut self) {
        let until = Instant::now() + GRACE;
        while !self.all.is_empty() && Instant::now() < until {
            self.wait(ASKED_FIRST);
            self.all.retain(|kept| !kept.uffd.is_gone());
        }
        if self.all.is_empty() {
            return;
        }
        // Without, such memory reads as zeros; there is nobody left who could do anything for it.
        let Ok((ours, theirs)) = net::pair() else { return };
        let Ok(program) = env::current_exe() else { return };
        let started = Command::new(program)
            .arg(SUBCOMMAND)
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        if started.is_err() {
            return;
        }
        for kept in self.all {
            let packet = kept.user.to_le_bytes();
            while net::send(ours.as_fd(), &packet, &[kept.uffd.as_fd()])
                .is_err_and(|error| error.is(rustix::io::Errno::AGAIN))
            {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Serves for at most `patience`.
    fn wait(&mut self, patience: Duration) {
        let mut fds: Vec<_> = self.polled().collect();
        let timeout = Timespec::try_from(patience).expect("a patience is short");
        // An interrupted wait is as good as one that timed out.
        let _ = poll(&mut fds, Some(&timeout));
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        self.look(&ready);
    }
}

/// Answers what is there to be read; whether the userfaultfd is still as it was.
fn poison(uffd: &Userfaultfd) -> bool {
    let mut messages = [const { Message::EMPTY }; 16];
    let count = uffd.read_now(&mut messages).unwrap_or(0);
    for message in &messages[..count] {
        // Who makes a change of the address space goes on when that was read.
        let Some(Event::Fault { address, .. }) = message.event() else { continue };
        if uffd.poison(address, Bytes(PAGE_BYTES)).stop.is_some() {
            // The page has come, or a change is under way: the thread tries again.
            let _ = uffd.wake(address, Bytes(PAGE_BYTES));
        }
    }
    count > 0 || fcntl_getfl(uffd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// `coldpress outlive`: keeps what the launcher hands over by standard input.
pub(crate) fn outlive() -> ExitCode {
    let Ok(socket) = rustix::io::dup(std::io::stdin()) else { return ExitCode::FAILURE };
    let mut kept = Outliving::default();
    while let Some((uffd, user)) = receive(&socket) {
        kept.keep(uffd, user);
    }
    while kept.count() > 0 {
        let patience = kept.wake_at(Instant::now() + ASKED_LAST);
        kept.wait(patience.saturating_duration_since(Instant::now()));
    }
    ExitCode::SUCCESS
}

/// The next that is handed over; `None` when the launcher has ended, or does not speak to us.
fn receive(socket: &OwnedFd) -> Option<(Userfaultfd, u32)> {
    let (mut bytes, mut fds) = ([0; 4], [const { None }; DESCRIPTORS_MAX]);
    let length = net::receive(socket.as_fd(), &mut bytes, &mut fds).ok()?;
    let uffd = fds[0].take().and_then(Userfaultfd::from_lent)?;
    (length == bytes.len()).then_some((uffd, u32::from_le_bytes(bytes)))
}
