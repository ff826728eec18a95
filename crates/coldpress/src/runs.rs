//! The runs of this machine, as a command finds and asks them: by the sockets of their keepers.
//!
//! The socket's path has the keeper's number in it and is listed in /proc, so the number of any
//! process of a run leads to its keeper. The kernel says which process really listens there. The
//! keeper decides whether the caller may control the run. The list is that of a network name space:
//! runs in others, as in most containers, are found by the number of a process only.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coldpress_cli::failure::{Failure, Result};
use coldpress_sys::net;
use coldpress_sys::{AsFd, SysError};
use serde_json::Value;

use crate::control::{self, REQUEST_MAX};
use crate::directory::{SOCKET_NAME, is_directory_name};
use crate::text::printable;
use crate::{proc, tree};

/// A keeper that listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Keeper {
    process: u32,
    socket: PathBuf,
}

impl Keeper {
    /// Finds the keeper of the run that `process` belongs to: the process itself, the nearest one
    /// above it, or the child of a launcher.
    pub(crate) fn of(process: u32) -> Result<Self> {
        let Ok(sockets) = fs::read_to_string(format!("/proc/{process}/net/unix")) else {
            let cause = format!("there is no process {process}");
            return Err(Failure::ours(cause, "`pgrep -a coldpress` lists the runs"));
        };
        let listening = listening(&sockets);
        let mut candidates = tree::lineage(process).chain(proc::children(process));
        let found = candidates
            .find_map(|candidate| listening.iter().find(|it| it.process == candidate).cloned());
        found.ok_or_else(|| {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            Failure::ours(
                format!("process {process} ({}) is in no coldpress run", name.trim_end()),
                "give the number of a `coldpress run`, which `pgrep -a coldpress` lists, or of a \
                 program under one",
            )
        })
    }

    /// Lists the keepers that listen in this network name space, by their numbers.
    pub(crate) fn all() -> Vec<Self> {
        let sockets = fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
        listening(&sockets)
    }

    /// Returns the number of the keeper.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Asks the keeper to turn knobs of the run of `asked_about` as `settings` say, or what they
    /// ask for. Returns the answer, for which this waits as long as its `patience` lasts.
    pub(crate) fn ask(
        &self,
        asked_about: u32,
        settings: &[String],
        patience: Duration,
    ) -> Result<Value> {
        let process = self.process;
        let failed = |error: SysError| {
            let cause = format!("cannot talk to the keeper, process {process}: {error}");
            Failure::ours(
                cause,
                "run this as the user who started it, or as root, in its container",
            )
        };
        let request = control::request(settings);
        if request.len() > REQUEST_MAX {
            let cause = format!("{} bytes of settings, {REQUEST_MAX} are possible", request.len());
            return Err(Failure::ours(cause, "name each knob once"));
        }
        let path = CString::new(self.socket.as_os_str().as_encoded_bytes())
            .expect("a line of text holds no zero");
        let socket = net::connect(&path).map_err(failed)?;
        // Any user could have made a directory of that name.
        let peer = net::peer(socket.as_fd()).map_err(failed)?;
        let path = printable(&self.socket.to_string_lossy());
        if peer.process != process {
            let cause = format!("{path} is not of process {process}");
            return Err(Failure::ours(cause, "run this where that process sees the same numbers"));
        }
        if !may_lead(peer.user, proc::user(asked_about)) {
            let cause = format!(
                "{path} is of user {}, who could not have started process {asked_about}",
                peer.user
            );
            return Err(Failure::ours(
                cause,
                "give the number of the `coldpress run` that is meant",
            ));
        }
        control::exchange(&socket, &request, patience).map_err(failed)?.unwrap_or_else(|| {
            let cause =
                format!("the keeper, process {process}, gives no answer that is understood");
            Err(Failure::ours(cause, "try again; or it is of another version of coldpress"))
        })
    }
}

/// Lists the keepers whose sockets are in the text of a /proc/net/unix, where the path is the last
/// field (unix(7)). A socket is there once more for each connection.
fn listening(sockets: &str) -> Vec<Keeper> {
    let keeper = |line: &str| {
        // The names of abstract sockets begin with "@".
        let socket = Path::new(line.get(line.find(" /")? + 1..)?);
        let directory = socket.parent()?.file_name()?;
        let is_ours = socket.ends_with(SOCKET_NAME) && is_directory_name(directory);
        let process = directory.to_str()?.split('-').nth(1)?.parse().ok()?;
        is_ours.then(|| Keeper { process, socket: socket.to_owned() })
    };
    let mut all: Vec<_> = sockets.lines().filter_map(keeper).collect();
    all.sort();
    all.dedup();
    all
}

/// Returns whether a keeper of user `leads` may report on a process of `user`: root's may report on
/// all, and another user's on what that user started. Any other listener there is an impostor.
fn may_lead(leads: u32, user: Option<u32>) -> bool {
    leads == 0 || leads == rustix::process::geteuid().as_raw() || user == Some(leads)
}

#[cfg(test)]
mod tests {
    //! The risk: a stranger's socket is taken for that of a run, or a run is not found.

    use super::*;

    #[test]
    fn runs_are_found_by_the_numbers_in_their_paths() {
        let sockets = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            00000000: 00000002 00000000 00010000 0005 01 11 /run/user/1/x/socket\n\
            00000000: 00000002 00000000 00010000 0005 01 12 @/coldpress-7-x/socket\n\
            00000000: 00000002 00000000 00010000 0005 01 13 /tmp/coldpress-7-Abcdef/socket\n\
            00000000: 00000002 00000000 00010000 0005 01 14\n\
            00000000: 00000002 00000000 00010000 0005 01 15 /tmp/coldpress-8-Ab/socket\n\
            00000000: 00000002 00000000 00010000 0005 03 16 /tmp/coldpress-7-Abcdef/socket\n\
            00000000: 00000002 00000000 00010000 0005 01 17 /a b/coldpress-5-Abcdef/socket\n";
        let keeper = |process, socket: &str| Keeper { process, socket: socket.into() };
        let found = [
            keeper(5, "/a b/coldpress-5-Abcdef/socket"),
            keeper(7, "/tmp/coldpress-7-Abcdef/socket"),
        ];
        assert_eq!(listening(sockets), found);
    }

    #[test]
    fn a_keeper_tells_of_processes_of_its_user() {
        let own = rustix::process::geteuid().as_raw();
        assert!(may_lead(0, Some(4_711)) && may_lead(own, Some(4_711)) && may_lead(9, Some(9)));
        assert!(!may_lead(own + 1, Some(own)) && !may_lead(own + 1, None));
    }
}
