//! Userfaultfds of processes whose service has ended, for memory that is still there.
//!
//! Who shares the memory of such a process (a child of `clone` or `vfork`, a thread that is about
//! to end) and touches a page that is away must not read zeros, which it would as soon as nobody
//! has the userfaultfd. So it is kept until the kernel says that the memory has gone, and every
//! fault is answered with poison: SIGBUS, or EFAULT for a system call. The bytes cannot be had, as
//! the process that could bring them back has ended.

use std::time::{Duration, Instant};

use coldpress_sys::uffd::{Event, Message, Userfaultfd};
use coldpress_sys::{Bytes, PAGE_BYTES};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_getfl};

use crate::door::make_room;

/// Whether the memory has gone is asked so soon, and then ever more seldom: mostly it goes within
/// milliseconds.
const ASKED_FIRST: Duration = Duration::from_millis(20);
const ASKED_LAST: Duration = Duration::from_secs(5);
/// How many are kept: as many as there are seats twice. More push out the oldest of the user who
/// has most, whose own memory it is for.
const KEPT_MAX: usize = 2 * coldpress_runtime::ledger::SEATS;

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
