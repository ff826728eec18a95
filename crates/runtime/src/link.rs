//! The link to the launcher: joining a run, and notes for the user.

use core::ffi::CStr;
use core::fmt::{self, Write};

use coldpress_sys::net::{self, DESCRIPTORS_MAX};
use coldpress_sys::shared::Shared;
use coldpress_sys::uffd::Userfaultfd;
use coldpress_sys::{AsFd, OwnedFd, SysError, SysResult, raw};
use coldpress_zswap::desk::Desk;

use crate::ahead;
use crate::ledger::{Ledger, SEATS, Terms};
use crate::wire::{Hello, LEND, Loudness, PACKET_MAX, RECORD, Welcome};

/// An open link.
pub struct Link {
    socket: OwnedFd,
    verbose: bool,
}

/// What joining gives.
pub struct Joined {
    /// The open link; while it is open, the seat is ours.
    pub link: Link,
    /// The ledger of the run.
    pub ledger: Shared<Ledger>,
    /// Our seat in it.
    pub seat: usize,
    /// The terms of the run.
    pub terms: Terms,
    /// The desk at the launcher's helper, if it has one.
    pub desk: Option<Shared<Desk>>,
    /// The file for pages written back, if the run has one.
    pub spill: Option<OwnedFd>,
    /// An open /dev/userfaultfd, if the launcher has one.
    pub device: Option<OwnedFd>,
    /// Whether the launcher has a file to record frames in.
    pub is_recorded: bool,
}

const PROTOCOL_ERROR: SysError = SysError { call: "join(launcher)", errno: 71 };

impl Joined {
    /// Joins the run of the launcher that listens at `path`. Fails when there is none any more,
    /// when all seats are taken, or when it is of another version.
    pub fn join(path: &CStr) -> SysResult<Self> {
        let socket = net::connect(path)?;
        net::send(socket.as_fd(), &Hello { thread: raw::thread_id() }.encode(), &[])?;
        let mut bytes = [0; PACKET_MAX];
        let mut fds = [const { None }; DESCRIPTORS_MAX];
        let length = net::receive(socket.as_fd(), &mut bytes, &mut fds)?;
        let welcome = Welcome::decode(&bytes[..length]).ok_or(PROTOCOL_ERROR)?;
        let seat = welcome.seat.ok_or(PROTOCOL_ERROR)? as usize;
        let mut fds = fds.into_iter().flatten();
        let ledger = fds.next().ok_or(PROTOCOL_ERROR)?;
        let desk = if welcome.has_desk { fds.next() } else { None };
        let spill = if welcome.has_spill { fds.next() } else { None };
        let device = if welcome.has_device { fds.next() } else { None };
        // SAFETY: the launcher sends its ledger first, which is zeroed shared memory of atomics;
        // the version is checked below before anything else is read.
        let ledger: Shared<Ledger> = unsafe { Shared::map(ledger.as_fd())? };
        let terms = ledger.terms().filter(|_| seat < SEATS).ok_or(PROTOCOL_ERROR)?;
        let link = Link { socket, verbose: terms.verbose };
        let is_recorded = welcome.is_recorded;
        let desk = desk.and_then(|desk| ahead::map_desk(desk.as_fd()).ok());
        Ok(Self { link, ledger, seat, terms, desk, spill, device, is_recorded })
    }
}

impl Link {
    /// Tells the user what costs time or would be good to know; dropped unless verbose.
    pub fn tell(&self, text: fmt::Arguments<'_>) {
        if self.verbose {
            self.send(Loudness::Verbose, text);
        }
    }

    /// Warns the user.
    pub fn warn(&self, text: fmt::Arguments<'_>) {
        self.send(Loudness::Warning, text);
    }

    /// Tells the user why the program ends now.
    pub fn fatal(&self, text: fmt::Arguments<'_>) {
        self.send(Loudness::Fatal, text);
    }

    /// Lends the launcher the userfaultfd, to be kept until this process is gone.
    pub fn lend(&self, uffd: &Userfaultfd) -> SysResult<()> {
        net::send(self.socket.as_fd(), &[LEND], &[uffd.as_fd()])
    }

    /// Has the launcher give up what was lent: this process goes on, but not with that descriptor.
    pub fn take_back(&self) {
        // A launcher that has ended has nothing of ours.
        let _ = net::send(self.socket.as_fd(), &[LEND], &[]);
    }

    /// Asks for the file to record frames in; waits for the answer. `None` when the launcher cannot
    /// make one, which it has told the user.
    pub fn ask_for_record(&self) -> SysResult<Option<OwnedFd>> {
        net::send(self.socket.as_fd(), &[RECORD], &[])?;
        let mut fds = [const { None }; DESCRIPTORS_MAX];
        net::receive(self.socket.as_fd(), &mut [0], &mut fds)?;
        Ok(fds[0].take())
    }

    /// The socket's number, for the panic handler.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn send(&self, loudness: Loudness, text: fmt::Arguments<'_>) {
        let mut note = Note::new(loudness);
        let _ = note.write_fmt(text);
        // A launcher that has ended cannot be told anything; the program goes on.
        let _ = net::send(self.socket.as_fd(), note.bytes(), &[]);
    }
}

/// A note on its way: text cut to what fits into a packet.
pub struct Note {
    bytes: [u8; PACKET_MAX],
    length: usize,
}

impl Note {
    /// An empty note.
    pub fn new(loudness: Loudness) -> Self {
        let mut bytes = [0; PACKET_MAX];
        bytes[0] = loudness.encode();
        Self { bytes, length: 1 }
    }

    /// The packet.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for Note {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let count = text.len().min(PACKET_MAX - self.length);
        self.bytes[self.length..self.length + count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        Ok(())
    }
}
