//! userfaultfd: receiving and answering page faults and changes of the address space.
//!
//! The bindings are our own because no crate offers MOVE, POISON and the change probe
//! (linux/userfaultfd.h, Linux 6.8). While an event is unread, every COPY and MOVE fails with
//! EAGAIN: the holder must read on.

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
/// The address that [`Userfaultfd::is_gone`] asks for: any page above `vm.mmap_min_addr` will do.
const ASKED_AT: usize = 1 << 30;
/// The name that /proc gives a userfaultfd.
const PROC_NAME: &[u8] = b"anon_inode:[userfaultfd]";
/// The features that `run` needs: events for moved, removed and unmapped ranges, the id of the
/// faulting thread, and moving pages without a copy (Linux 6.8).
pub const FEATURES_NEEDED: u64 = (linux::UFFD_FEATURE_EVENT_REMAP
    | linux::UFFD_FEATURE_EVENT_REMOVE
    | linux::UFFD_FEATURE_EVENT_UNMAP
    | linux::UFFD_FEATURE_THREAD_ID
    | linux::UFFD_FEATURE_MOVE) as u64;
/// The feature bit of MOVE alone, for messages that name it.
pub const FEATURE_MOVE: u64 = linux::UFFD_FEATURE_MOVE as u64;

/// A non-blocking userfaultfd of the process that made it.
#[derive(Debug)]
pub struct Userfaultfd {
    fd: OwnedFd,
}

/// A message from the kernel through a userfaultfd. Addresses are those of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Thread `thread` waits for the page that holds `address`, or to write to it.
    Fault {
        /// The address touched, rounded down to its page.
        address: usize,
        /// The waiting thread.
        thread: u32,
        /// Whether the page is present and write-protected.
        is_protected: bool,
    },
    /// Pages moved from `from` to `to` (mremap). The thread that moved them waits until this is
    /// read.
    Remap {
        /// The old start.
        from: usize,
        /// The new start.
        to: usize,
        /// The length of the moved range.
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

/// The progress of COPY, MOVE or POISON, and the reason for a stop before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done from the start, whole pages.
    pub done: Bytes,
    /// The reason for the stop, if there was one.
    pub stop: Option<Stop>,
}

/// The reason why COPY, MOVE or POISON stopped.
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

/// The faults that a registered range reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Touches of missing pages, and writes to write-protected pages.
    Faults,
    /// Only writes to write-protected pages: for ranges that merely take part in moves.
    WriteProtect,
}

impl Userfaultfd {
    /// Makes a userfaultfd from an open /dev/userfaultfd: this needs no privilege beyond having it
    /// open.
    pub fn from_device(device: BorrowedFd<'_>) -> SysResult<Self> {
        let flags = (linux::O_CLOEXEC | linux::O_NONBLOCK) as usize;
        let arguments = [device.as_raw_fd() as usize, USERFAULTFD_IOC_NEW as usize, flags, 0, 0, 0];
        // SAFETY: the request takes flags by value and returns a descriptor.
        let result = unsafe { raw::syscall(linux::__NR_ioctl, arguments) };
        let fd = raw::checked("ioctl(USERFAULTFD_IOC_NEW)", result)?;
        // SAFETY: the kernel just returned this descriptor, and nothing else uses it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    /// Makes a userfaultfd by the system call, which needs CAP_SYS_PTRACE or
    /// vm.unprivileged_userfaultfd=1. With `user_mode_only` the call needs nothing, but the
    /// userfaultfd does not see the kernel's own accesses.
    pub fn from_syscall(user_mode_only: bool) -> SysResult<Self> {
        let extra = if user_mode_only { linux::UFFD_USER_MODE_ONLY } else { 0 };
        let flags = (linux::O_CLOEXEC | linux::O_NONBLOCK | extra) as usize;
        // SAFETY: the call takes flags by value and returns a descriptor.
        let result = unsafe { raw::syscall(linux::__NR_userfaultfd, [flags, 0, 0, 0, 0, 0]) };
        let fd = raw::checked("userfaultfd", result)?;
        // SAFETY: the kernel just returned this descriptor, and nothing else uses it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    /// Takes a descriptor that another process has handed over. Returns `None` unless it is a
    /// userfaultfd that is ready for use.
    pub fn from_lent(fd: OwnedFd) -> Option<Self> {
        let mut path = [0; 64];
        write_path(&mut path, b"/proc/self/fd/", fd.as_raw_fd().unsigned_abs(), b"\0");
        let path = CStr::from_bytes_until_nul(&path).ok()?;
        let mut name = [0; PROC_NAME.len() + 1];
        let length = rustix::fs::readlinkat_raw(rustix::fs::CWD, path, &mut name[..]).ok()?;
        let uffd = Self { fd };
        // A wake with no waiter is refused before the handshake, and does nothing after it.
        (&name[..length] == PROC_NAME && uffd.wake(ASKED_AT, Bytes(PAGE_BYTES)).is_ok())
            .then_some(uffd)
    }

    /// Returns whether the memory that this userfaultfd watches is gone: all processes that had it
    /// have ended.
    ///
    /// UFFDIO_CONTINUE is for pages of files. In anonymous memory, the only kind that we register,
    /// the kernel refuses it wherever it points, but looks for the memory first (`ESRCH`;
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

    /// Agrees on `features` (0 only asks) and returns all features of the kernel. Fails with
    /// `EINVAL` when the kernel lacks one, with `EPERM` when one needs a privilege.
    pub fn handshake(&self, features: u64) -> SysResult<u64> {
        let mut api = linux::uffdio_api { api: u64::from(linux::UFFD_API), features, ioctls: 0 };
        self.ioctl::<{ linux_raw_sys::ioctl::UFFDIO_API as Opcode }, _>(
            "ioctl(UFFDIO_API)",
            &mut api,
        )?;
        Ok(api.features)
    }

    /// Registers `start..start + length` for faults; the range must lie in private anonymous
    /// mappings.
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

    /// Fills missing pages at `target` with copies of `source` and wakes the threads that wait
    /// there.
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

    /// Moves pages from `source` to missing pages at `target` without a copy; a hole ends the move
    /// with [`Stop::Gone`].
    ///
    /// The target must be registered here. The move is atomic against the changes that this
    /// descriptor reports: while one is under way, nothing moves and the answer is
    /// [`Stop::Changing`].
    ///
    /// # Safety
    /// The bytes at `source` disappear: their owner must be able to ask for them back by a fault,
    /// or must have given them up.
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

    /// Makes touches of a missing range end in SIGBUS, because its bytes are lost.
    pub fn poison(&self, start: usize, length: Bytes) -> Progress {
        let mut poison = linux::uffdio_poison { range: range(start, length), mode: 0, updated: 0 };
        let result = self.ioctl::<UFFDIO_POISON, _>("ioctl(UFFDIO_POISON)", &mut poison);
        progress(result, poison.updated, length)
    }

    /// Returns whether a change of the address space waits to be read, or was read and is not
    /// finished.
    ///
    /// `inside` is any page-aligned address of a registered range. Lifting a write protection that
    /// is not there changes nothing, but the kernel first answers EAGAIN while a change is pending.
    pub fn is_changing(&self, inside: usize) -> bool {
        self.protect(inside, Bytes(PAGE_BYTES), false) == Err(Stop::Changing)
    }

    /// Write-protects the pages that are present in a range, or lifts the protection and wakes the
    /// threads that wait there.
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

    /// Reads the messages that are there, at most `buffer.len()`, without waiting. Faults come
    /// before events; the reader must still act on events first.
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

    /// Reads as [`Userfaultfd::read`] does, from a descriptor that another process may make
    /// blocking at any moment. Linux before 6.10 cannot skip the wait for one read only, so there
    /// this may wait if the other process does that.
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
    /// An empty place for a message.
    pub const EMPTY: Self = Self(MaybeUninit::zeroed());

    /// Returns the message that was read into this place; `None` for a kind we did not ask for.
    pub fn event(&self) -> Option<Event> {
        // SAFETY: the place was zeroed at first, and only the kernel overwrites it, with a whole
        // message.
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
/// call itself fails while the field may hold the bytes done before.
fn progress(result: SysResult<()>, field: i64, length: Bytes) -> Progress {
    let done = Bytes(field.clamp(0, length.0 as i64) as usize);
    match result {
        Ok(()) => Progress { done: length, stop: None },
        Err(error) => Progress { done, stop: Some(Stop::of(error.errno)) },
    }
}

/// Returns whether the word at `address` was reachable, after the kernel added zero to that 32-bit
/// word, as a write by the program would: a page shared after `fork` becomes the process's own.
/// Never faults the caller.
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
    //! The risk: a launcher uses a descriptor it was handed as something else, or waits for it.

    use super::*;

    /// Makes a userfaultfd; `None` where this user may have none.
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
        // Reading does not wait either when another process makes the descriptor blocking.
        rustix::fs::fcntl_setfl(&ready.fd, rustix::fs::OFlags::empty()).unwrap();
        let refused = ready.read_without_waiting(&mut [Message::EMPTY; 2]).unwrap_err();
        assert!(refused.is(Errno::AGAIN) || refused.is(Errno::OPNOTSUPP), "{refused}");
    }
}
