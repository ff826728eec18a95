//! The link to the launcher: joining a run, and notes for the user.

use core::ffi::CStr;
use core::fmt::{self, Write};

use coldpress_sys::cpu::{self, Allowed};
use coldpress_sys::errno::{EAGAIN, EPERM, EPROTO};
use coldpress_sys::net::{self, DESCRIPTORS_MAX};
use coldpress_sys::proc::{self, Enlarged};
use coldpress_sys::program::Program;
use coldpress_sys::shared::Shared;
use coldpress_sys::uffd::Userfaultfd;
use coldpress_sys::{AsFd, OwnedFd, SysError, SysResult};
use coldpress_zswap::desk::Desk;

use crate::helper;
use crate::ledger::{Ledger, SEATS, Terms};
use crate::wire::{
    AFFINITY, Affinity, CALL, LEAVE, LEND, Loudness, PACKET_MAX, RECORD, TAKE_BACK, Welcome, hello,
};

/// An open link to the launcher.
pub(crate) struct Link {
    socket: OwnedFd,
    verbose: bool,
    /// The number of the program's process.
    process: u32,
}

/// What a process gets when it joins.
pub(crate) struct Joined {
    /// The open link; as long as it is open, the seat is this process's.
    pub(crate) link: Link,
    /// The ledger of the run.
    pub(crate) ledger: Ledger,
    /// The seat of this process in the ledger.
    pub(crate) seat: usize,
    /// The terms of the run.
    pub(crate) terms: Terms,
    /// The desk at the launcher's helper, if it has one.
    pub(crate) desk: Option<Shared<Desk>>,
    /// The file for pages written back, if the run has one.
    pub(crate) spill: Option<OwnedFd>,
    /// A userfaultfd that is not used yet, or the reason why there is none.
    pub(crate) uffd: SysResult<Userfaultfd>,
    /// Whether the launcher has a file to record frames in.
    pub(crate) is_recorded: bool,
}

/// The time between two tries to say that this service ends.
const LEAVE_NS: u64 = 1_000_000;

const PROTOCOL_ERROR: SysError = SysError { call: "join(launcher)", errno: EPROTO };

impl Joined {
    /// Joins the run of the launcher that listens at `path`, for `program`. Fails when that
    /// launcher is gone or of another version, or when all seats are taken.
    pub(crate) fn join(path: &CStr, program: &Program) -> SysResult<Self> {
        let socket = net::connect(path)?;
        net::send(socket.as_fd(), &hello(program.process()), &[program.pidfd()])?;
        let mut bytes = [0; PACKET_MAX];
        let mut fds = [const { None }; DESCRIPTORS_MAX];
        let length = net::receive(socket.as_fd(), &mut bytes, &mut fds)?;
        let welcome = Welcome::decode(&bytes[..length]).ok_or(PROTOCOL_ERROR)?;
        let seat = welcome.seat.ok_or(PROTOCOL_ERROR)? as usize;
        let mut fds = fds.into_iter().flatten();
        let orders = fds.next().ok_or(PROTOCOL_ERROR)?;
        let seats = fds.next().ok_or(PROTOCOL_ERROR)?;
        let desk = if welcome.has_desk { fds.next() } else { None };
        let spill = if welcome.has_spill { fds.next() } else { None };
        // One call makes the userfaultfd; the device is closed here.
        let device = if welcome.has_device { fds.next() } else { None };
        let uffd = match device {
            Some(device) => Userfaultfd::from_device(device.as_fd()),
            None => Userfaultfd::from_syscall(false),
        };
        // SAFETY: the descriptors that the launcher sends first are the two parts of its ledger.
        let ledger = unsafe { Ledger::map(orders.as_fd(), seats.as_fd())? };
        let (ledger, terms) = ledger.filter(|_| seat < SEATS).ok_or(PROTOCOL_ERROR)?;
        let link = Link { socket, verbose: terms.verbose, process: program.process() };
        let is_recorded = welcome.is_recorded;
        let desk = desk.and_then(|desk| helper::map_desk(desk.as_fd()).ok());
        Ok(Self { link, ledger, seat, terms, desk, spill, uffd, is_recorded })
    }
}

/// Reports to the launcher that listens at `path`, and so to the user, why `program`, which has not
/// joined, is not managed.
pub(crate) fn tell_unmanaged(path: &CStr, program: &Program, why: fmt::Arguments<'_>) {
    let mut note = Note::new(Loudness::Unmanaged);
    let _ = note.write_fmt(why);
    // A launcher that cannot be reached finds out by itself that this process has not joined.
    let pidfd = [program.pidfd()];
    let _ = net::connect(path).and_then(|socket| net::send(socket.as_fd(), note.bytes(), &pidfd));
}

impl Link {
    /// Informs the user of what costs time or is good to know. Dropped unless the run is verbose.
    pub(crate) fn tell(&self, text: fmt::Arguments<'_>) {
        if self.verbose {
            self.send(Loudness::Verbose, text);
        }
    }

    /// Warns the user.
    pub(crate) fn warn(&self, text: fmt::Arguments<'_>) {
        self.send(Loudness::Warning, text);
    }

    /// Reports to the launcher, and so to the user, why this process is not managed.
    pub(crate) fn not_managed(&self, why: fmt::Arguments<'_>) {
        self.send(Loudness::Unmanaged, why);
    }

    /// Informs the user why the program ends now.
    pub(crate) fn fatal(&self, text: fmt::Arguments<'_>) {
        self.send(Loudness::Fatal, text);
    }

    /// Lends the launcher the userfaultfd, to be kept until this process is gone.
    pub(crate) fn lend(&self, uffd: &Userfaultfd) -> SysResult<()> {
        net::send(self.socket.as_fd(), &[LEND], &[uffd.as_fd()])
    }

    /// Has the launcher give up the descriptor that it was lent: this process goes on, but without
    /// that descriptor.
    pub(crate) fn take_back(&self) {
        self.insist(TAKE_BACK);
    }

    /// Says that this service ends, and that nothing is lost with it. Without this word the
    /// launcher would end the program.
    pub(crate) fn leave(&self) {
        self.insist(LEAVE);
    }

    /// Sends a packet of one byte, and waits while the launcher has too much to read. A launcher
    /// that has ended keeps nothing of this process.
    fn insist(&self, word: u8) {
        let again = |error: SysError| error.errno == EAGAIN;
        while net::send(self.socket.as_fd(), &[word], &[]).is_err_and(again) {
            cpu::sleep_ns(LEAVE_NS);
        }
    }

    /// Asks the launcher what a thread of the program enlarges, if the thread waits within
    /// `mremap`, and waits for the answer. Returns `None` also where the launcher cannot say.
    pub(crate) fn ask_what_enlarges(&self, thread: u32) -> Option<Enlarged> {
        let mut packet = [CALL; 1 + size_of::<u32>()];
        packet[1..].copy_from_slice(&thread.to_le_bytes());
        net::send(self.socket.as_fd(), &packet, &[]).ok()?;
        let (mut bytes, mut fds) = ([0; PACKET_MAX], [const { None }; DESCRIPTORS_MAX]);
        let length = net::receive(self.socket.as_fd(), &mut bytes, &mut fds).ok()?;
        proc::enlarges(bytes[..length].strip_prefix(&[CALL])?)
    }

    /// Allows a thread of the program these processors. The launcher does it where the kernel
    /// refuses it to this process, which lacks the program's capabilities or its user
    /// (sched_setaffinity(2)).
    pub(crate) fn give_processors(&self, allowed: &Allowed, thread: u32) -> SysResult<()> {
        match allowed.give_to(thread) {
            Err(error) if error.errno == EPERM => {
                let gives = Affinity { thread, allowed: *allowed };
                net::send(self.socket.as_fd(), &gives.encode(), &[])?;
                let (mut answer, mut fds) = ([0; 2], [const { None }; DESCRIPTORS_MAX]);
                let length = net::receive(self.socket.as_fd(), &mut answer, &mut fds)?;
                if answer[..length] == [AFFINITY, 1] { Ok(()) } else { Err(error) }
            }
            result => result,
        }
    }

    /// Asks the launcher for the file to record frames in, and waits for the answer. Returns `None`
    /// when the launcher cannot make one, which it has reported to the user.
    pub(crate) fn ask_for_record(&self) -> SysResult<Option<OwnedFd>> {
        net::send(self.socket.as_fd(), &[RECORD], &[])?;
        let mut fds = [const { None }; DESCRIPTORS_MAX];
        net::receive(self.socket.as_fd(), &mut [0], &mut fds)?;
        Ok(fds[0].take())
    }

    /// Returns the program's process, as messages name it to the user.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Returns the socket, for the panic handler.
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn send(&self, loudness: Loudness, text: fmt::Arguments<'_>) {
        let mut note = Note::new(loudness);
        let _ = note.write_fmt(text);
        // A launcher that has ended receives nothing; the program goes on.
        let _ = net::send(self.socket.as_fd(), note.bytes(), &[]);
    }
}

/// A note to send: text cut to what fits into a packet.
pub(crate) struct Note {
    bytes: [u8; PACKET_MAX],
    length: usize,
}

impl Note {
    /// Creates an empty note.
    pub(crate) fn new(loudness: Loudness) -> Self {
        let mut bytes = [0; PACKET_MAX];
        bytes[0] = loudness.encode();
        Self { bytes, length: 1 }
    }

    /// Returns the packet.
    pub(crate) fn bytes(&self) -> &[u8] {
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
