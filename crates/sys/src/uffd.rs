//! userfaultfd: who is told of faults and of changes to the address space, and who answers them.
//!
//! Bindings of our own because no crate offers MOVE, POISON and the change probe
//! (linux/userfaultfd.h, Linux 6.8). While an event is unread, every COPY and MOVE answers EAGAIN:
//! the holder must read on.

use core::ffi::CStr;
use core::mem::MaybeUninit;

use linux_raw_sys::general as linux;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode};

use crate::error::{SysError, SysResult};
use crate::page::{Bytes, PAGE_BYTES};
use crate::proc::write_path;
use crate::raw;

/// `_IO(0xAA, 0)`: a new userfaultfd from an open /dev/userfaultfd.
const USERFAULTFD_IOC_NEW: Opcode = 0xAA00;
/// `_IOWR(0xAA, 5, struct uffdio_move)`.
const UFFDIO_MOVE: Opcode = ioctl::opcode::read_write::<linux::uffdio_move>(0xAA, 5);
/// `_IOWR(0xAA, 8, struct uffdio_poison)`.
const UFFDIO_POISON: Opcode = ioctl::opcode::read_write::<linux::uffdio_poison>(0xAA, 8);
/// `_IOWR(0xAA, 7, struct uffdio_continue)`.
const UFFDIO_CONTINUE: Opcode = ioctl::opcode::read_write::<linux::uffdio_continue>(0xAA, 7);
/// Where [`Userfaultfd::is_gone`] asks: any page above `vm.mmap_min_addr` will do.
const ASKED_AT: usize = 1 << 30;
/// What /proc shows of a userfaultfd.
const PROC_NAME: &[u8] = b"anon_inode:[userfaultfd]";
/// The features `run` cannot do without: told of moved, removed and unmapped ranges, told the
/// faulting thread, and able to move pages without a copy (Linux 6.8).
pub const FEATURES_NEEDED: u64 = (linux::UFFD_FEATURE_EVENT_REMAP
    | linux::UFFD_FEATURE_EVENT_REMOVE
    | linux::UFFD_FEATURE_EVENT_UNMAP
    | linux::UFFD_FEATURE_THREAD_ID
    | linux::UFFD_FEATURE_MOVE) as u64;
/// The feature bit of MOVE alone, for messages that name it.
pub const FEATURE_MOVE: u64 = linux::UFFD_FEATURE_MOVE as u64;

/// A userfaultfd of the process that made it, non-blocking.
#[derive(Debug)]
pub struct Userfaultfd {
    fd: OwnedFd,
}

/// What the kernel tells through a userfaultfd. Addresses are those of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Thread `thread` waits for the page that holds `address`, or to write to it.
    Fault {
        /// The address touched, rounded down to its page.
        address: usize,
        /// The waiting thread.
        thread: u32,
        /// The page is there, and protected from being written to.
        is_protected: bool,
    },
    /// Pages moved from `from` to `to` (mremap). The thread that did it waits until this is read.
    Remap {
        /// The old start.
        from: usize,
        /// The new start.
        to: usize,
        /// How much moved.
        length: Bytes,
    },
    /// The contents of a range will be dropped as soon as this is read (madvise).
    Remove {
        /// First address.
        start: usize,
        /// One past the last.
        end: usize,
    },
    /// A range has been unmapped already.
    Unmap {
        /// First address.
        start: usize,
        /// One past the last.
        end: usize,
    },
}

/// How far COPY, MOVE or POISON came, and why it stopped before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done from the start, whole pages.
    pub done: Bytes,
    /// Why it stopped, if it did.
    pub stop: Option<Stop>,
}

/// Why COPY, MOVE or POISON stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// EAGAIN: the address space is changing; read events, look again, then retry.
    Changing,
    /// EEXIST: a page is there already.
    Present,
    /// EBUSY: the page is shared with another process or pinned.
    Busy,
    /// ENOENT or ESRCH: no registered range is there any more, or, for MOVE, no page.
    Gone,
    /// EINVAL: the range cannot take part (locked, read-only, not anonymous).
    Unfit,
    /// Any other number.
    Failed(i32),
}

impl Stop {
    fn of(errno: i32) -> Self {
        match Errno::from_raw_os_error(errno) {
            Errno::AGAIN => Self::Changing,
            Errno::EXIST => Self::Present,
            Errno::BUSY => Self::Busy,
            Errno::NOENT | Errno::SRCH => Self::Gone,
            Errno::INVAL => Self::Unfit,
            _ => Self::Failed(errno),
        }
    }
}

/// What faults of a registered range are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Touches of missing pages, and writes to those that were write-protected.
    Faults,
    /// Only writes to pages that were write-protected: for ranges that merely take part in moves.
    WriteProtect,
}

impl Userfaultfd {
    /// Makes one from an open /dev/userfaultfd: no privilege is needed beyond having it open.
    pub fn from_device(device: BorrowedFd<'_>) -> SysResult<Self> {
        let flags = (linux::O_CLOEXEC | linux::O_NONBLOCK) as usize;
        let arguments = [device.as_raw_fd() as usize, USERFAULTFD_IOC_NEW as usize, flags, 0, 0, 0];
        // SAFETY: the request takes flags by value and returns a descriptor.
        let result = unsafe { raw::syscall(linux::__NR_ioctl, arguments) };
        let fd = raw::checked("ioctl(USERFAULTFD_IOC_NEW)", result)?;
        // SAFETY: the kernel just gave us this descriptor, nobody else knows it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    /// Makes one by the system call, which needs CAP_SYS_PTRACE or vm.unprivileged_userfaultfd=1;
    /// with `user_mode_only` it needs nothing, but does not see the kernel's own accesses.
    pub fn from_syscall(user_mode_only: bool) -> SysResult<Self> {
        let extra = if user_mode_only { linux::UFFD_USER_MODE_ONLY } else { 0 };
        let flags = (linux::O_CLOEXEC | linux::O_NONBLOCK | extra) as usize;
        // SAFETY: the call takes flags by value and returns a descriptor.
        let result = unsafe { raw::syscall(linux::__NR_userfaultfd, [flags, 0, 0, 0, 0, 0]) };
        let fd = raw::checked("userfaultfd", result)?;
        // SAFETY: the kernel just gave us this descriptor, nobody else knows it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    /// Takes a descriptor that another process has handed over. `None` unless it is a userfaultfd
    /// that is ready for use.
    pub fn from_lent(fd: OwnedFd) -> Option<Self> {
        let mut path = [0; 64];
        write_path(&mut path, b"/proc/self/fd/", fd.as_raw_fd().unsigned_abs(), b"\0");
        let path = CStr::from_bytes_until_nul(&path).ok()?;
        let mut name = [0; PROC_NAME.len() + 1];
        let length = rustix::fs::readlinkat_raw(rustix::fs::CWD, path, &mut name[..]).ok()?;
        let uffd = Self { fd };
        // Waking who waits nowhere is refused before the handshake, and does nothing after it.
        (&name[..length] == PROC_NAME && uffd.wake(ASKED_AT, Bytes(PAGE_BYTES)).is_ok())
            .then_some(uffd)
    }

    /// Whether the memory it is for has gone: all processes that had it have ended.
    ///
    /// UFFDIO_CONTINUE is for pages of files: in anonymous memory, which is all that we register,
    /// it is refused wherever it points, but the kernel looks for the memory first (`ESRCH`;
    /// `userfaultfd_continue` of fs/userfaultfd.c).
    pub fn is_gone(&self) -> bool {
        let mut arguments = linux::uffdio_continue {
            range: range(ASKED_AT, Bytes(PAGE_BYTES)),
            mode: 0,
            mapped: 0,
        };
        self.ioctl::<UFFDIO_CONTINUE, _>("ioctl(UFFDIO_CONTINUE)", &mut arguments)
            .is_err_and(|error| error.is(Errno::SRCH))
    }

    /// Agrees on `features` (0 to only ask) and returns all that the kernel has. `EINVAL` when it
    /// lacks one, `EPERM` when one needs a privilege.
    pub fn handshake(&self, features: u64) -> SysResult<u64> {
        let mut api = linux::uffdio_api { api: u64::from(linux::UFFD_API), features, ioctls: 0 };
        self.ioctl::<{ linux_raw_sys::ioctl::UFFDIO_API as Opcode }, _>(
            "ioctl(UFFDIO_API)",
            &mut api,
        )?;
        Ok(api.features)
    }

    /// Asks to be told of faults in `start..start + length`, which must lie in private anonymous
    /// ranges.
    pub fn register(&self, start: usize, length: Bytes, mode: Mode) -> SysResult<()> {
        let mode = match mode {
            Mode::Faults => linux::UFFDIO_REGISTER_MODE_MISSING | linux::UFFDIO_REGISTER_MODE_WP,
            Mode::WriteProtect => linux::UFFDIO_REGISTER_MODE_WP,
        };
        let mut register = linux::uffdio_register {
            range: range(start, length),
            mode: u64::from(mode),
            ioctls: 0,
        };
        self.ioctl::<{ linux_raw_sys::ioctl::UFFDIO_REGISTER as Opcode }, _>(
            "ioctl(UFFDIO_REGISTER)",
            &mut register,
        )
    }

    /// Ends the registration of a range.
    pub fn unregister(&self, start: usize, length: Bytes) -> SysResult<()> {
        self.ioctl::<{ linux_raw_sys::ioctl::UFFDIO_UNREGISTER as Opcode }, _>(
            "ioctl(UFFDIO_UNREGISTER)",
            &mut range(start, length),
        )
    }

    /// Lets the threads that wait in a range try again.
    pub fn wake(&self, start: usize, length: Bytes) -> SysResult<()> {
        self.ioctl::<{ linux_raw_sys::ioctl::UFFDIO_WAKE as Opcode }, _>(
            "ioctl(UFFDIO_WAKE)",
            &mut range(start, length),
        )
    }

    /// Fills missing pages at `target` with copies of `source` and wakes who waits there.
    ///
    /// # Safety
    /// `source..source + length` must be readable without a fault that this descriptor would have
    /// to serve.
    pub unsafe fn copy(&self, target: usize, source: *const u8, length: Bytes) -> Progress {
        let mut copy = linux::uffdio_copy {
            dst: target as u64,
            src: source as u64,
            len: length.0 as u64,
            mode: 0,
            copy: 0,
        };
        let result = self.ioctl::<{ linux_raw_sys::ioctl::UFFDIO_COPY as Opcode }, _>(
            "ioctl(UFFDIO_COPY)",
            &mut copy,
        );
        progress(result, copy.copy, length)
    }

    /// Moves pages from `source` to missing pages at `target` without a copy; a hole ends it with
    /// [`Stop::Gone`].
    ///
    /// The target must be registered here. It is atomic against the changes this descriptor tells
    /// of: when one is under way nothing moves and the answer is [`Stop::Changing`].
    ///
    /// # Safety
    /// The bytes at `source` disappear: whoever owns them must be able to ask for them back by a
    /// fault, or have given them up.
    pub unsafe fn move_pages(&self, target: usize, source: usize, length: Bytes) -> Progress {
        let mut arguments = linux::uffdio_move {
            dst: target as u64,
            src: source as u64,
            len: length.0 as u64,
            mode: 0,
            move_: 0,
        };
        let result = self.ioctl::<UFFDIO_MOVE, _>("ioctl(UFFDIO_MOVE)", &mut arguments);
        progress(result, arguments.move_, length)
    }

    /// Makes touches of a missing range end in SIGBUS: its bytes are lost.
    pub fn poison(&self, start: usize, length: Bytes) -> Progress {
        let mut poison = linux::uffdio_poison { range: range(start, length), mode: 0, updated: 0 };
        let result = self.ioctl::<UFFDIO_POISON, _>("ioctl(UFFDIO_POISON)", &mut poison);
        progress(result, poison.updated, length)
    }

    /// Whether a change of the address space waits to be read, or has been read and is not
    /// finished.
    ///
    /// `inside` is any page-aligned address of a registered range. Lifting a write protection that
    /// is not there changes nothing, but the kernel answers EAGAIN first while a change is
    /// pending.
    pub fn is_changing(&self, inside: usize) -> bool {
        self.protect(inside, Bytes(PAGE_BYTES), false) == Err(Stop::Changing)
    }

    /// Protects the pages that are there in a range from being written to, or lifts that, and wakes
    /// who waits there.
    pub fn protect(&self, start: usize, length: Bytes, is_protected: bool) -> Result<(), Stop> {
        // UFFDIO_WRITEPROTECT_MODE_WP of linux/userfaultfd.h is 1.
        let mode = u64::from(is_protected);
        let mut protect = linux::uffdio_writeprotect { range: range(start, length), mode };
        let result = self.ioctl::<{ linux_raw_sys::ioctl::UFFDIO_WRITEPROTECT as Opcode }, _>(
            "ioctl(UFFDIO_WRITEPROTECT)",
            &mut protect,
        );
        result.map_err(|error| Stop::of(error.errno))
    }

    /// Reads what is there, at most `buffer.len()` events, without waiting. Faults come before
    /// events; the reader must still act on events first.
    pub fn read(&self, buffer: &mut [Message]) -> SysResult<usize> {
        // SAFETY: a slice of `MaybeUninit` messages is that many bytes, and any bytes may be
        // written to it.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(
                buffer.as_mut_ptr().cast::<MaybeUninit<u8>>(),
                size_of_val(buffer),
            )
        };
        match rustix::io::read(&self.fd, bytes) {
            Ok((filled, _)) => Ok(filled.len() / size_of::<Message>()),
            Err(Errno::AGAIN) => Ok(0),
            Err(errno) => Err(SysError::of("read(userfaultfd)")(errno)),
        }
    }

    /// As [`Userfaultfd::read`], of one that another process may make blocking at any moment. On
    /// Linux before 6.10, which cannot be asked not to wait for one read only, it may wait if that
    /// is done.
    pub fn read_now(&self, buffer: &mut [Message]) -> SysResult<usize> {
        match self.read_without_waiting(buffer) {
            Err(error) if error.is(Errno::AGAIN) => Ok(0),
            Err(error) if error.is(Errno::OPNOTSUPP) => self.read(buffer),
            result => result,
        }
    }

    /// Reads by preadv2(2) with `RWF_NOWAIT`.
    fn read_without_waiting(&self, buffer: &mut [Message]) -> SysResult<usize> {
        let part = linux::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: size_of_val(buffer) as linux::__kernel_size_t,
        };
        let (fd, parts) = (self.fd.as_raw_fd() as usize, &raw const part as usize);
        // An offset of -1 reads where the descriptor is, as read does.
        let arguments = [fd, parts, 1, usize::MAX, usize::MAX, linux::RWF_NOWAIT as usize];
        // SAFETY: the kernel writes messages to the places of `buffer`, at most that many bytes.
        let result = unsafe { raw::syscall(linux::__NR_preadv2, arguments) };
        let filled = raw::checked("preadv2(userfaultfd)", result)?;
        Ok(filled / size_of::<Message>())
    }

    fn ioctl<const REQUEST: Opcode, T>(&self, call: &'static str, value: &mut T) -> SysResult<()> {
        // SAFETY: each request above is paired with the structure linux/userfaultfd.h gives it.
        unsafe { ioctl::ioctl(self.fd.as_fd(), ioctl::Updater::<REQUEST, T>::new(value)) }
            .map_err(SysError::of(call))
    }
}

impl AsFd for Userfaultfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One message as the kernel writes it.
#[repr(transparent)]
pub struct Message(MaybeUninit<linux::uffd_msg>);

const _: () = assert!(size_of::<Message>() == 32);

impl Message {
    /// A place for a message.
    pub const EMPTY: Self = Self(MaybeUninit::zeroed());

    /// The message read into this place; `None` for a kind we did not ask for.
    pub fn event(&self) -> Option<Event> {
        // SAFETY: the place was zeroed at first, and only ever overwritten by the kernel with a
        // whole message.
        let message = unsafe { self.0.assume_init_ref() };
        let argument = message.arg;
        // SAFETY: the event number says which member of the union the kernel filled.
        let event = unsafe {
            match u32::from(message.event) {
                linux::UFFD_EVENT_PAGEFAULT => Event::Fault {
                    address: argument.pagefault.address as usize & !(PAGE_BYTES - 1),
                    thread: argument.pagefault.feat.ptid,
                    is_protected: argument.pagefault.flags
                        & u64::from(linux::UFFD_PAGEFAULT_FLAG_WP)
                        != 0,
                },
                linux::UFFD_EVENT_REMAP => Event::Remap {
                    from: argument.remap.from as usize,
                    to: argument.remap.to as usize,
                    length: Bytes(argument.remap.len as usize),
                },
                linux::UFFD_EVENT_REMOVE => Event::Remove {
                    start: argument.remove.start as usize,
                    end: argument.remove.end as usize,
                },
                linux::UFFD_EVENT_UNMAP => Event::Unmap {
                    start: argument.remove.start as usize,
                    end: argument.remove.end as usize,
                },
                _ => return None,
            }
        };
        Some(event)
    }
}

fn range(start: usize, length: Bytes) -> linux::uffdio_range {
    linux::uffdio_range { start: start as u64, len: length.0 as u64 }
}

/// Reads the result field: bytes when positive, a negated error number when negative. On EAGAIN the
/// call itself fails while the field may hold the bytes done before it.
fn progress(result: SysResult<()>, field: i64, length: Bytes) -> Progress {
    let done = Bytes(field.clamp(0, length.0 as i64) as usize);
    match result {
        Ok(()) => Progress { done: length, stop: None },
        Err(error) => Progress { done, stop: Some(Stop::of(error.errno)) },
    }
}

/// Adds zero to the 32-bit word at `address` in the kernel, as a write by the program would: a page
/// shared after `fork` becomes the process's own. Never faults the caller; says whether the word
/// was reachable.
pub fn unshare_page(address: usize) -> bool {
    // FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0) is 1 << 28: add 0 to the second word.
    const ADD_ZERO: usize = 1 << 28;
    let private = 0_u32;
    let word = &raw const private as usize;
    let operation = (linux::FUTEX_WAKE_OP | linux::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: waking at most 0 waiters of our own word and of `address`; an atomic addition of zero
    // changes no byte, and an unreachable address is answered by EFAULT.
    let result =
        unsafe { raw::syscall(linux::__NR_futex, [word, operation, 0, 0, address, ADD_ZERO]) };
    result >= 0
}

#[cfg(test)]
mod tests {
    //! The risk: a launcher that uses what it was handed as something else, or waits for it.

    use super::*;

    /// `None` where this user may have none.
    fn own() -> Option<Userfaultfd> {
        Userfaultfd::from_syscall(false).or_else(|_| Userfaultfd::from_syscall(true)).ok()
    }

    #[test]
    fn only_a_userfaultfd_that_is_ready_is_taken() {
        let file = crate::file::SpillFile::unnamed_in(c"/var/tmp").unwrap().into_fd();
        assert!(Userfaultfd::from_lent(file).is_none());
        let Some(fresh) = own() else { return std::println!("skipped: no userfaultfd here") };
        assert!(Userfaultfd::from_lent(fresh.fd).is_none());
        let ready = own().unwrap();
        ready.handshake(0).unwrap();
        let ready = Userfaultfd::from_lent(ready.fd).expect("it is ready");
        assert!(!ready.is_gone());
        assert_eq!(ready.read_now(&mut [Message::EMPTY; 2]), Ok(0));
        // Nor does it wait when somebody else says so.
        rustix::fs::fcntl_setfl(&ready.fd, rustix::fs::OFlags::empty()).unwrap();
        let refused = ready.read_without_waiting(&mut [Message::EMPTY; 2]).unwrap_err();
        assert!(refused.is(Errno::AGAIN) || refused.is(Errno::OPNOTSUPP), "{refused}");
    }
}
