//! The door of a run: the processes that connect to the launcher's socket, and which of them are
//! heard.
//!
//! Any process that may open the socket can connect, and each connection costs the launcher
//! something. So the socket is closed to other users (mode 0600) unless programs of theirs are
//! managed. Where the socket is open, the launcher answers strangers with a refusal, and closes the
//! connection. Usually the kernel's word on the peer (`SO_PEERCRED`) is enough for that, because
//! the door remembers strangers that it refused recently. The door takes many connections at a
//! time, so that no connection waits for long behind those of others.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use coldpress_common::failure::{Failure, Result};
use coldpress_runtime::wire::SOCKET_PATH_MAX;
use coldpress_sys::net::{self, Peer};
use coldpress_sys::{AsFd, OwnedFd};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::control;
use crate::tree;

/// The pause after a connection could not be taken, usually for want of descriptors.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(100);
/// The number of connections taken at a time; members are heard in between.
const TAKEN_TOGETHER: usize = 64;
/// The time in which a new process must say hello: it does so at once.
const HELLO_PATIENCE: Duration = Duration::from_millis(500);
/// The most connections that have said nothing yet. One more pushes out the oldest of the user that
/// has most.
const NEWCOMERS_MAX: usize = 64;
/// The time for which a refused stranger gets no other answer and is not looked for in the tree:
/// the kernel does not reuse a process number so soon.
const REFUSED_FOR: Duration = Duration::from_millis(100);
/// The number of refused strangers to remember.
const REFUSED_MAX: usize = 32;

/// A connection that has not yet said what it wants.
pub(crate) struct Newcomer {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Peer,
    /// Whether the peer is a process of the run, whose memory may be managed.
    pub(crate) is_ours: bool,
    /// The time when the connection is closed if it has said nothing.
    until: Instant,
}

/// The socket, and the connections that wait at it.
pub(crate) struct Door {
    listener: OwnedFd,
    /// Whether processes of other users may join.
    takes_others: bool,
    newcomers: Vec<Newcomer>,
    /// The peers refused recently, and when.
    refused: Vec<(Peer, Instant)>,
    /// The time from which connections are taken again, after one could not be.
    accept_at: Instant,
}

impl Door {
    /// Listens at `path`, for processes of our own user, or for others too.
    pub(crate) fn open(path: &Path, takes_others: bool) -> Result<Self> {
        if path.as_os_str().len() >= SOCKET_PATH_MAX {
            let cause = format!("the path of the socket is too long: {}", path.display());
            return Err(Failure::ours(cause, "set XDG_RUNTIME_DIR to a shorter directory"));
        }
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path holds no zero");
        let listener = net::listen(&name).map_err(|error| {
            Failure::ours(format!("cannot listen: {error}"), "run `coldpress doctor`")
        })?;
        let mode = if takes_others { 0o666 } else { 0o600 };
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| {
            let cause = format!("cannot set who may use {}: {error}", path.display());
            Failure::ours(cause, "name a directory of your own in XDG_RUNTIME_DIR")
        })?;
        let (newcomers, refused, accept_at) = (Vec::new(), Vec::new(), Instant::now());
        Ok(Self { listener, takes_others, newcomers, refused, accept_at })
    }

    /// Returns when the door needs the next look, `wake_at` at the latest.
    pub(crate) fn wake_at(&self, wake_at: Instant) -> Instant {
        let is_closed = self.accept_at > Instant::now();
        if is_closed { wake_at.min(self.accept_at) } else { wake_at }
    }

    /// Returns the descriptors to poll: the socket, and each newcomer.
    pub(crate) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        // The kernel would report connections that cannot be taken now again and again.
        let listens = Instant::now() >= self.accept_at;
        let flags = if listens { PollFlags::IN } else { PollFlags::empty() };
        let newcomers = self.newcomers.iter();
        let newcomers = newcomers.map(|newcomer| PollFd::new(&newcomer.socket, PollFlags::IN));
        std::iter::once(PollFd::new(&self.listener, flags)).chain(newcomers)
    }

    /// Takes what came, as [`Door::polled`] found it `ready`. Returns the newcomers that have said
    /// something.
    pub(crate) fn look(&mut self, ready: &[bool]) -> Vec<Newcomer> {
        let mut spoken = ready[1..].iter();
        let has_spoken = |_: &mut Newcomer| spoken.next() == Some(&true);
        let found = self.newcomers.extract_if(.., has_spoken).collect();
        let now = Instant::now();
        self.newcomers.retain(|newcomer| now < newcomer.until);
        if ready[0] {
            self.refused.retain(|(_, at)| now.duration_since(*at) < REFUSED_FOR);
            let taken = (0..TAKEN_TOGETHER).take_while(|_| self.accept());
            taken.count();
        }
        found
    }

    /// Returns whether there may be another connection, after this took one.
    fn accept(&mut self) -> bool {
        let socket = match net::accept(self.listener.as_fd()) {
            Ok(socket) => socket,
            Err(error) => {
                if !error.is(Errno::AGAIN) {
                    self.accept_at = Instant::now() + ACCEPT_INTERVAL;
                }
                return false;
            }
        };
        let Ok(peer) = net::peer(socket.as_fd()) else { return true };
        if self.refused.iter().any(|(known, _)| *known == peer) {
            return true;
        }
        let is_ours = self.may_join(peer);
        if is_ours || control::may(peer) {
            let until = Instant::now() + HELLO_PATIENCE;
            make_room(&mut self.newcomers, NEWCOMERS_MAX, |newcomer| newcomer.peer.user);
            self.newcomers.push(Newcomer { socket, peer, is_ours, until });
        } else {
            control::answer(&socket, &control::refusal(&control::not_permitted(peer)));
            make_room(&mut self.refused, REFUSED_MAX, |(peer, _)| peer.user);
            self.refused.push((peer, Instant::now()));
        }
        true
    }

    /// Returns whether `peer` is a process of the run, of a user whose processes are managed.
    fn may_join(&self, peer: Peer) -> bool {
        let is_own = peer.user == rustix::process::geteuid().as_raw();
        // The service of a program that was attached to descends from another; what it serves
        // is looked at when it says so.
        let is_ours =
            || !tree::adopted().is_empty() || tree::is_below(peer.process, std::process::id());
        (is_own || self.takes_others) && is_ours()
    }
}

/// Makes room for one more in `all`, which holds at most `most`: the oldest of the user that has
/// most gives way.
pub(crate) fn make_room<T>(all: &mut Vec<T>, most: usize, user: impl Fn(&T) -> u32) {
    let count = |of: u32| all.iter().filter(|one| user(one) == of).count();
    if all.len() >= most
        && let Some(of) = all.iter().map(&user).max_by_key(|of| count(*of))
        && let Some(oldest) = all.iter().position(|one| user(one) == of)
    {
        all.remove(oldest);
    }
}

#[cfg(test)]
mod tests {
    //! The risk: one user's connections push out those of others.

    use super::*;

    #[test]
    fn who_has_most_gives_way() {
        let mut all = Vec::new();
        for (name, user) in ["a", "b", "c", "d", "e", "f"].into_iter().zip([1, 7, 7, 2, 7, 7]) {
            make_room(&mut all, 4, |(_, user)| *user);
            all.push((name, user));
        }
        assert_eq!(all, [("a", 1), ("d", 2), ("e", 7), ("f", 7)]);
    }

    #[test]
    fn connections_are_taken_many_at_a_time_and_those_that_spoke_are_found() {
        let directory = tempfile::tempdir().unwrap();
        for (takes_others, mode) in [(false, 0o600), (true, 0o666)] {
            let path = directory.path().join(mode.to_string());
            let mut door = Door::open(&path, takes_others).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
            let name = CString::new(path.as_os_str().as_bytes()).unwrap();
            let sockets: Vec<_> = (0..5).map(|_| net::connect(&name).unwrap()).collect();
            assert!(door.look(&[true]).is_empty());
            assert_eq!(door.polled().count(), 6);
            let found = door.look(&[false, false, true, false, false, true]);
            assert_eq!((found.len(), door.newcomers.len()), (2, 3));
            assert!(found.iter().all(|newcomer| newcomer.peer.process == std::process::id()));
            drop(sockets);
        }
    }
}
