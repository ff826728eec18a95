//! The runs of this machine, as a command finds and asks them: by the sockets of their keepers.
//!
//! The socket's path has the keeper's number in it and is listed in /proc, so the number of any
//! process of a run leads to its keeper. Any user can make a socket with such a path. So the kernel
//! is asked which process really listens there, and no such socket can have a command wait. The
//! keeper decides whether the caller may control the run. The list is that of a network name space:
//! runs in others, as in most containers, are found by the number of a process only.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coldpress_common::failure::{Failure, Result};
use coldpress_sys::net::{self, Peer};
use coldpress_sys::{AsFd, OwnedFd, SysError, errno};
use rustix::process::geteuid;
use serde_json::Value;

use crate::control::{self, PROCESSES, REQUEST_MAX};
use crate::directory::{self, SOCKET_NAME};
use crate::text::printable;
use crate::{proc, tree};

/// A keeper that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keeper {
    process: u32,
    /// The user of the keeper, as far as it is known.
    user: Option<u32>,
    /// All sockets with the keeper's number in their paths: one is its own.
    sockets: Vec<PathBuf>,
}

impl Keeper {
    /// Finds the keeper of the run that `process` belongs to: the process itself, the nearest one
    /// above it, one that has attached to it or to a process above it, or the child of a launcher.
    pub(crate) fn of(process: u32) -> Result<Self> {
        let Ok(sockets) = fs::read(format!("/proc/{process}/net/unix")) else {
            let cause = format!("there is no process {process}");
            return Err(Failure::ours(cause, "`pgrep -a coldpress` lists the runs"));
        };
        // What has attached to a program may be in another network name space.
        let keepers = listening(&[sockets, sockets_here()].concat());
        let above = tree::lineage(process).map(|keeper| (keeper, None));
        let attached = tree::lineage(process)
            .filter_map(|member| Some((directory::leader_in(member)?, Some(member))));
        let below = proc::children(process).map(|keeper| (keeper, None));
        let mut failure = None;
        for (number, member) in above.chain(attached).chain(below) {
            let Some(keeper) = keepers.iter().find(|it| it.process == number) else { continue };
            match keeper.leading(process, member) {
                Ok(keeper) => return Ok(keeper),
                Err(first) => drop(failure.get_or_insert(first)),
            }
        }
        Err(failure.unwrap_or_else(|| in_no_run(process)))
    }

    /// Lists the keepers that listen in this network name space, by their numbers.
    pub(crate) fn all() -> Vec<Self> {
        let with_user = |keeper: Self| Self { user: proc::user(keeper.process), ..keeper };
        listening(&sockets_here()).into_iter().map(with_user).collect()
    }

    /// Returns the number of the keeper.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Returns the user of the keeper, as far as it is known.
    pub(crate) fn user(&self) -> Option<u32> {
        self.user
    }

    /// Returns this keeper with its user. Fails if it cannot lead `process`, or does not have
    /// `member` in its run: a program can map a file of any name, so the keeper has to say so.
    fn leading(&self, process: u32, member: Option<u32>) -> Result<Self> {
        let (_, peer) = self.connect()?;
        if !may_lead(peer.user, proc::user(process)) {
            let cause = format!(
                "the socket of process {} is of user {}, who could not have started process \
                 {process}",
                self.process, peer.user
            );
            let way_out = "give the number of the `coldpress run` that is meant";
            return Err(Failure::ours(cause, way_out));
        }
        // The keeper would say so itself, but only once.
        if !may_ask(Some(peer.user)) {
            return Err(control::refused(geteuid().as_raw(), peer.user));
        }
        let keeper = Self { user: Some(peer.user), ..self.clone() };
        if let Some(member) = member {
            let run = keeper.ask(&[PROCESSES.to_owned()], control::PATIENCE)?;
            let mut tree = run["tree"].as_array().into_iter().flatten();
            tree.find(|it| it["process"] == member).ok_or_else(|| in_no_run(process))?;
        }
        Ok(keeper)
    }

    /// Asks the keeper to turn knobs of its run as `settings` say, or what they ask for. Returns
    /// the answer, for which this waits as long as its `patience` lasts.
    pub(crate) fn ask(&self, settings: &[String], patience: Duration) -> Result<Value> {
        let process = self.process;
        let request = control::request(settings);
        if request.len() > REQUEST_MAX {
            let cause = format!("{} bytes of settings, {REQUEST_MAX} are possible", request.len());
            return Err(Failure::ours(cause, "name each knob once"));
        }
        let (socket, _) = self.connect()?;
        let answer = control::exchange(&socket, &request, patience);
        answer.map_err(|error| self.cannot_talk(error))?.unwrap_or_else(|| {
            let cause =
                format!("the keeper, process {process}, gives no answer that is understood");
            Err(Failure::ours(cause, "try again; or it is of another version of coldpress"))
        })
    }

    /// Connects to the keeper, and to no other process.
    fn connect(&self) -> Result<(OwnedFd, Peer)> {
        let mut failure = None;
        for socket in &self.sockets {
            match self.connect_to(socket) {
                Ok(connection) => return Ok(connection),
                Err(first) => drop(failure.get_or_insert(first)),
            }
        }
        Err(failure.expect("a keeper is known by a socket"))
    }

    fn connect_to(&self, socket: &Path) -> Result<(OwnedFd, Peer)> {
        let process = self.process;
        let path = CString::new(socket.as_os_str().as_bytes()).expect("no path holds a zero");
        let connection = net::connect_now(&path).map_err(|error| self.cannot_talk(error))?;
        let peer = net::peer(connection.as_fd()).map_err(|error| self.cannot_talk(error))?;
        if peer.process != process || self.user.is_some_and(|user| user != peer.user) {
            let path = printable(&socket.to_string_lossy());
            let cause = format!("{path} is not of process {process}");
            return Err(Failure::ours(cause, "run this where that process sees the same numbers"));
        }
        Ok((connection, peer))
    }

    fn cannot_talk(&self, error: SysError) -> Failure {
        if error.errno == errno::EAGAIN {
            let cause = format!("the keeper, process {}, takes no connection", self.process);
            return Failure::ours(cause, "try again; a keeper that is stopped takes none");
        }
        let cause = format!("cannot talk to the keeper, process {}: {error}", self.process);
        Failure::ours(cause, "run this as the user who started it, or as root, in its container")
    }
}

fn in_no_run(process: u32) -> Failure {
    let name = proc::text(process, "comm").unwrap_or_default();
    let cause =
        format!("process {process} ({}) is in no coldpress run", printable(name.trim_end()));
    let way_out = "give the number of a `coldpress run`, which `pgrep -a coldpress` lists, or of a \
                   program under one";
    Failure::ours(cause, way_out)
}

/// Returns the list of the sockets in this network name space.
fn sockets_here() -> Vec<u8> {
    fs::read("/proc/self/net/unix").unwrap_or_default()
}

/// Lists the keepers whose sockets are in the text of a /proc/net/unix, where the path is the last
/// field (unix(7)). A socket is there once more for each connection.
fn listening(sockets: &[u8]) -> Vec<Keeper> {
    let socket_of_keeper = |line: &[u8]| {
        // The names of abstract sockets begin with "@".
        let start = line.windows(2).position(|pair| pair == b" /")? + 1;
        let socket = Path::new(OsStr::from_bytes(&line[start..]));
        let process = directory::leader_named(socket.parent()?.file_name()?)?;
        socket.ends_with(SOCKET_NAME).then(|| (process, socket.to_owned()))
    };
    let mut all: Vec<_> =
        sockets.split(|byte| *byte == b'\n').filter_map(socket_of_keeper).collect();
    all.sort();
    all.dedup();
    all.chunk_by(|one, other| one.0 == other.0)
        .map(|of_one| Keeper {
            process: of_one[0].0,
            user: None,
            sockets: of_one.iter().map(|(_, socket)| socket.clone()).collect(),
        })
        .collect()
}

/// Returns whether this user may ask a keeper of `user`.
pub(crate) fn may_ask(user: Option<u32>) -> bool {
    geteuid().is_root() || user == Some(geteuid().as_raw())
}

/// Returns whether a keeper of user `leads` may report on a process of `user`: root's may report on
/// all, and another user's on what that user started. Any other listener there is an impostor.
fn may_lead(leads: u32, user: Option<u32>) -> bool {
    leads == 0 || leads == geteuid().as_raw() || user == Some(leads)
}

#[cfg(test)]
mod tests {
    //! The risk: a stranger's socket is taken for that of a run, or a run is not found.

    use super::*;

    #[test]
    fn runs_are_found_by_the_numbers_in_their_paths() {
        let sockets = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            00000000: 00000002 00000000 00010000 0005 01 11 /run/user/1/x/socket\n\
            00000000: 00000002 00000000 00010000 0005 01 12 @/coldpress-7-x/socket\n\
            00000000: 00000002 00000000 00010000 0005 01 13 /tmp/coldpress-7-Abcdef/socket\n\
            00000000: 00000002 00000000 00010000 0005 01 14\n\
            00000000: 00000002 00000000 00010000 0005 01 15 /tmp/coldpress-8-Ab/socket\n\
            00000000: 00000002 00000000 00010000 0005 03 16 /tmp/coldpress-7-Abcdef/socket\n\
            00000000: 00000002 00000000 00010000 0005 03 17 /srv/coldpress-7-Abcdef/socket\n\
            00000000: 00000002 00000000 00010000 0005 01 18 /a b\xff/coldpress-5-Abcdef/socket\n";
        let keeper = |process, sockets: &[&[u8]]| Keeper {
            process,
            user: None,
            sockets: sockets.iter().map(|path| OsStr::from_bytes(path).into()).collect(),
        };
        let found = [
            keeper(5, &[b"/a b\xff/coldpress-5-Abcdef/socket"]),
            keeper(7, &[b"/srv/coldpress-7-Abcdef/socket", b"/tmp/coldpress-7-Abcdef/socket"]),
        ];
        assert_eq!(listening(sockets), found);
    }

    /// A socket in place of the keeper's whose queue is full would have a caller wait for ever.
    #[test]
    fn a_listener_that_takes_no_connection_holds_nobody_up() {
        let directory = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let paths = ["a", "b"].map(|name| directory.path().join(name));
        let listen = |path: &Path, backlog| {
            use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
            let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
            bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
            listen(&listener, backlog).unwrap();
            listener
        };
        let _listeners = [listen(&paths[0], 0), listen(&paths[1], 9)];
        let keeper = |sockets| Keeper { process: own, user: None, sockets };
        let silent = keeper(vec![paths[0].clone()]);
        let first = silent.connect();
        assert!(first.is_ok_and(|(_, peer)| peer.process == own));
        let _waiting: Vec<_> = (0..2).map(|_| silent.connect()).collect();
        let failure = silent.connect().unwrap_err();
        assert!(failure.cause.contains("takes no connection"), "{failure}");
        let both = keeper(paths.to_vec());
        assert!(both.connect().is_ok());
        // Whoever listens there is another process, or of another user.
        let other = Keeper { process: own + 1, ..both.clone() };
        assert!(other.connect().unwrap_err().cause.contains("takes no connection"));
        let other = Keeper { user: Some(geteuid().as_raw() + 1), ..both };
        assert!(other.connect().is_err());
    }

    #[test]
    fn a_keeper_tells_of_processes_of_its_user() {
        let own = geteuid().as_raw();
        assert!(may_lead(0, Some(4_711)) && may_lead(own, Some(4_711)) && may_lead(9, Some(9)));
        assert!(!may_lead(own + 1, Some(own)) && !may_lead(own + 1, None));
    }
}
