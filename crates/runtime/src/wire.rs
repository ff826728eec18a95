//! The packets that a service and the launcher exchange: each message is one packet.
//!
//! The service says hello ([`is_hello`]); the launcher answers [`Welcome`] with descriptors: the
//! orders and the seats of the ledger, then the desk, the spill file and /dev/userfaultfd as far as
//! the flags say. After that only the service speaks: notes for the user, [`RECORD`], [`CALL`] and
//! [`Affinity`], which the launcher answers, [`LEND`] and [`TAKE_BACK`] of a userfaultfd, and
//! [`LEAVE`]. The end of the connection is the end of the service.
//!
//! `coldpress ctl` comes to the same socket, with packets that begin otherwise and concern only the
//! launcher.

use coldpress_sys::Bytes;
use coldpress_sys::cpu::Allowed;

/// The environment variable that names the launcher's socket.
pub const SOCKET_VARIABLE: &str = "COLDPRESS_SOCKET";
/// The environment variable that gives the budget in bytes, for a process that has not joined yet,
/// and after the budget the [`View`] of the process.
pub const BUDGET_VARIABLE: &str = "COLDPRESS_BUDGET_BYTES";
/// The environment variable in which a user says what is shown as the machine's memory. For a
/// program inside a run only "off" means anything.
pub const VIEW_VARIABLE: &str = "COLDPRESS_SHOW_MEMORY";
/// The variable that is there, empty, when LD_PRELOAD was not set: with it, the library takes an
/// even number of variables out of the environment.
pub const PADDING_VARIABLE: &str = "COLDPRESS_PADDING";
/// The bytes of the service's stack. Making the manager with its pool takes some 60 KiB, zstd less
/// than 16. The command makes it behind a library that it puts into a program itself.
pub const SERVICE_STACK_BYTES: usize = 256 << 10;
/// The most bytes of the variables that such a library reads, with a zero behind each.
pub const PUT_IN_VARIABLES_MAX: usize = 256;
/// The bytes that such a library has for code of the command's.
pub const STUBS_BYTES: usize = 8192;
/// The most ranges beside stacks that such a library hears of.
pub const BESIDE_STACKS_MAX: usize = 64;
/// The longest socket path: `sun_path` of unix(7), its final zero included.
pub const SOCKET_PATH_MAX: usize = 108;
/// The longest packet.
pub const PACKET_MAX: usize = 512;

/// The first byte of a packet that lends the launcher the process's userfaultfd, which comes with
/// the packet.
pub const LEND: u8 = b'l';
/// The first byte of a packet that takes back what [`LEND`] lent.
pub const TAKE_BACK: u8 = b't';

/// The first byte of a packet that asks the launcher for a file to record frames in, and of the
/// answer, which comes with the file if there is one.
pub const RECORD: u8 = b'r';

/// The first byte of a packet that asks in which system call a thread of the program waits; the
/// thread's number follows (4 bytes). Also the first byte of the answer, followed by the contents
/// of the thread's `syscall` file (proc_pid_syscall(5)), if it may be read. The service may open no
/// file.
pub const CALL: u8 = b'c';

/// The first byte of [`Affinity`], and of the answer, followed by 1 if the call succeeded, else 0.
pub const AFFINITY: u8 = b'a';

/// The memory that a program is shown as the machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// The memory that there is.
    #[default]
    Truth,
    /// The memory that the user asked for.
    Fixed,
    /// As many budgets as suit the program that asks.
    ByAsker,
}

impl View {
    /// Returns what stands after the budget in its variable.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Truth => "",
            Self::Fixed => " fixed",
            Self::ByAsker => " by-asker",
        }
    }

    /// Reads the variable's value: the budget, and what is shown.
    pub fn after_budget(value: &str) -> Option<(Bytes, Self)> {
        let end = value.find(' ').unwrap_or(value.len());
        let (number, suffix) = value.split_at(end);
        let all = [Self::Truth, Self::Fixed, Self::ByAsker];
        let view = all.into_iter().find(|view| view.suffix() == suffix)?;
        Some((Bytes(number.parse().ok()?), view))
    }
}

/// "cpr" and the version of this protocol.
const MAGIC: u32 = u32::from_le_bytes(*b"cpr\x04");

/// The first byte of a packet by which a service says that it ends as it should: the program has
/// left its memory, or has all of it. A service that ends without this packet had pages that no
/// other process has.
pub const LEAVE: u8 = b'e';

/// The launcher's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The seat in the ledger, or `None` when all are taken.
    pub seat: Option<u32>,
    /// Whether a descriptor of the process's desk at the helper follows those of the ledger.
    pub has_desk: bool,
    /// Whether a descriptor of the spill file comes next.
    pub has_spill: bool,
    /// Whether a descriptor of /dev/userfaultfd comes last.
    pub has_device: bool,
    /// Whether the run is recorded: the process asks for a file when it begins to manage its
    /// memory.
    pub is_recorded: bool,
}

/// A request to the launcher to allow a thread of the program these processors, where the service
/// may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// The thread, as the program's name space numbers it.
    pub thread: u32,
    /// The processors that the thread may use.
    pub allowed: Allowed,
}

/// The loudness of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loudness {
    /// Shown only under `--verbose`.
    Verbose,
    /// Shown unless `--quiet` is given.
    Warning,
    /// Always shown: the program ends.
    Fatal,
    /// The reason why the sending process is not managed. Also the first packet of a process that
    /// has not joined.
    Unmanaged,
}

/// Encodes the first packet of a service. `process` is the number of the program's process in its
/// own name space, for those who trace the socket.
#[cfg(any(feature = "preload", test))]
pub(crate) fn hello(process: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..].copy_from_slice(&process.to_le_bytes());
    bytes
}

/// Returns whether `bytes` are the first packet of a service of this version. A descriptor of the
/// program's process comes with it (pidfd).
pub fn is_hello(bytes: &[u8]) -> bool {
    bytes.len() == 8 && word(bytes, 0) == Some(MAGIC)
}

impl Welcome {
    /// Encodes the packet.
    pub fn encode(self) -> [u8; 12] {
        let flags = u32::from(self.has_spill)
            | u32::from(self.has_device) << 1
            | u32::from(self.is_recorded) << 2
            | u32::from(self.has_desk) << 3;
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.seat.unwrap_or(u32::MAX).to_le_bytes());
        bytes[8..].copy_from_slice(&flags.to_le_bytes());
        bytes
    }

    /// Decodes a packet. Returns `None` when the launcher is of another version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != 12 || word(bytes, 0)? != MAGIC {
            return None;
        }
        let (seat, flags) = (word(bytes, 1)?, word(bytes, 2)?);
        Some(Self {
            seat: (seat != u32::MAX).then_some(seat),
            has_spill: flags & 1 != 0,
            has_device: flags & 2 != 0,
            is_recorded: flags & 4 != 0,
            has_desk: flags & 8 != 0,
        })
    }
}

impl Affinity {
    const LENGTH: usize = 1 + size_of::<u32>() + size_of::<Allowed>();

    /// Encodes the packet.
    pub fn encode(self) -> [u8; Self::LENGTH] {
        let mut bytes = [AFFINITY; Self::LENGTH];
        bytes[1..5].copy_from_slice(&self.thread.to_le_bytes());
        for (bytes, word) in bytes[5..].chunks_exact_mut(size_of::<u64>()).zip(self.allowed.0) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes a packet. Returns `None` when it is another one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_prefix(&[AFFINITY])?;
        let (thread, words) = bytes.split_first_chunk()?;
        let (words, rest) = words.as_chunks();
        let words: [[u8; size_of::<u64>()]; Allowed::WORDS] = words.try_into().ok()?;
        let allowed = Allowed(words.map(u64::from_le_bytes));
        rest.is_empty().then(|| Self { thread: u32::from_le_bytes(*thread), allowed })
    }
}

impl Loudness {
    /// Returns the first byte of a note of this loudness.
    pub const fn encode(self) -> u8 {
        match self {
            Self::Verbose => b'v',
            Self::Warning => b'w',
            Self::Fatal => b'f',
            Self::Unmanaged => b'n',
        }
    }

    /// Returns the loudness that the first byte of a note stands for.
    pub const fn decode(byte: u8) -> Option<Self> {
        match byte {
            b'v' => Some(Self::Verbose),
            b'w' => Some(Self::Warning),
            b'f' => Some(Self::Fatal),
            b'n' => Some(Self::Unmanaged),
            _ => None,
        }
    }
}

fn word(bytes: &[u8], index: usize) -> Option<u32> {
    bytes.get(index * 4..index * 4 + 4)?.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_survive_the_wire_and_strangers_do_not() {
        let hello = hello(4711);
        assert!(is_hello(&hello) && !is_hello(b"GET / HT") && !is_hello(b""));
        for seat in [None, Some(0), Some(511)] {
            for bits in 0..16 {
                let [has_desk, has_spill, has_device, is_recorded] =
                    [1, 2, 4, 8].map(|bit| bits & bit != 0);
                let welcome = Welcome { seat, has_desk, has_spill, has_device, is_recorded };
                assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
            }
        }
        assert_eq!(Welcome::decode(&hello), None);
        let gives = Affinity { thread: 7, allowed: Allowed::only(70) };
        assert_eq!(Affinity::decode(&gives.encode()), Some(gives));
        assert_eq!(Affinity::decode(&gives.encode()[1..]), None);
        assert_eq!(Affinity::decode(&[AFFINITY; 500]), None);
        for loudness in [Loudness::Verbose, Loudness::Warning, Loudness::Fatal, Loudness::Unmanaged]
        {
            assert_eq!(Loudness::decode(loudness.encode()), Some(loudness));
            assert!(!is_hello(&[loudness.encode(); 8]));
        }
    }
}
