//! Userfaultfds of processes whose service has ended, for memory that is still there.
//!
//! Other processes and threads may share the memory of such a process (a child of `clone` or
//! `vfork`, a thread that is about to end). They must not read zeros from a page that is away, but
//! would do so as soon as the last descriptor of the userfaultfd closed. So the launcher keeps the
//! userfaultfd until the kernel says that the memory has gone, and answers every fault with poison:
//! SIGBUS, or EFAULT for a system call. The bytes are lost, because the process that could bring
//! them back has ended.

use std::time::{Duration, Instant};

use coldpress_sys::uffd::{Event, Message, Userfaultfd};
use coldpress_sys::{Bytes, PAGE_BYTES};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_getfl};

use super::door::make_room;

/// The first and the longest interval at which the kernel is asked whether the memory has gone. The
/// interval doubles each time, because most memory goes within milliseconds.
const ASKED_FIRST: Duration = Duration::from_millis(20);
const ASKED_LAST: Duration = Duration::from_secs(5);
/// The most userfaultfds that are kept: twice as many as there are seats. One more pushes out the
/// oldest of the user that has most, whose own memory it is for.
const KEPT_MAX: usize = 2 * coldpress_runtime::ledger::SEATS;

/// A userfaultfd that is kept.
struct Kept {
    uffd: Userfaultfd,
    user: u32,
    asked_at: Instant,
    interval: Duration,
}

/// All userfaultfds that are kept.
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

    /// Returns the descriptors to poll: each userfaultfd.
    pub(crate) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.all.iter().map(|kept| PollFd::new(&kept.uffd, PollFlags::IN))
    }

    /// Returns when to ask again whether memory has gone, `wake_at` at the latest.
    pub(crate) fn wake_at(&self, wake_at: Instant) -> Instant {
        self.all.iter().map(|kept| kept.asked_at).fold(wake_at, Instant::min)
    }

    /// Answers the faults that [`Outliving::polled`] found `ready`, and drops the userfaultfds of
    /// memory that has gone.
    pub(crate) fn look(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        // A userfaultfd that its process has made blocking is ready for ever, but reports no
        // faults.
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

/// Returns whether the userfaultfd is still as it was. Answers the faults that are there to be
/// read.
fn poison(uffd: &Userfaultfd) -> bool {
    let mut messages = [const { Message::EMPTY }; 16];
    let count = uffd.read_now(&mut messages).unwrap_or(0);
    for message in &messages[..count] {
        // A thread that changes the address space goes on once its message has been read.
        let Some(Event::Fault { address, .. }) = message.event() else { continue };
        if uffd.poison(address, Bytes(PAGE_BYTES)).stop.is_some() {
            // The page has come, or a change is under way: the thread tries again.
            let _ = uffd.wake(address, Bytes(PAGE_BYTES));
        }
    }
    count > 0 || fcntl_getfl(uffd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}
