//! io_uring: asynchronous transfers between files and memory.
//!
//! A [`Ring`] owns the buffer of each transfer under way, so that no other code can touch what the
//! kernel reads or fills; the buffer comes back with the result. The ring belongs to the thread
//! that made it: the kernel refuses the calls of other threads (`IORING_SETUP_SINGLE_ISSUER`), and
//! puts results into the ring only inside our calls (`IORING_SETUP_DEFER_TASKRUN`), so that no
//! other call of this thread is interrupted.
//!
//! Invariants:
//! 1. A transfer is in `under_way` from its submission until its result was taken, and its index
//!    there is the entry's user data.
//! 2. The submission queue is empty between calls: an entry that the kernel did not take is taken
//!    out again.

use alloc::boxed::Box;
use core::ffi::c_void;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::io_uring::{
    IoringEnterFlags, IoringOp, IoringRegisterOp, IoringRestrictionOp, IoringSetupFlags,
    IoringSqFlags, IoringSqeFlags, addr_or_splice_off_in_union, io_uring_cqe, io_uring_enter,
    io_uring_params, io_uring_ptr, io_uring_register, io_uring_restriction, io_uring_setup,
    io_uring_sqe, io_uring_user_data, len_union, off_or_addr2_union,
    register_or_sqe_op_or_sqe_flags_union,
};

use crate::errno;
use crate::error::{SysError, SysResult};
use crate::file::SpillFile;
use crate::map::Span;
use crate::page::{Bytes, PAGE_BYTES};

/// Maximum transfers under way at a time.
pub const TRANSFERS_MAX: usize = 16;
/// Entries of the submission queue: a transfer and the hint that follows it, each.
const ENTRIES: u32 = 2 * TRANSFERS_MAX as u32;
/// User data of an entry whose result is ignored.
const NOBODY: u64 = u64::MAX;
/// Bytes of a completion.
const COMPLETION_BYTES: usize = 16;
const _: () = assert!(size_of::<io_uring_cqe>() == COMPLETION_BYTES);
/// Size of each of the two parts of a ring: one page, because the kernel wants a part outside the
/// ring's own file in one piece. The completions, twice as many as entries, follow some words.
const PART_BYTES: Bytes = Bytes(PAGE_BYTES);
const _: () = assert!(ENTRIES as usize * size_of::<io_uring_sqe>() <= PART_BYTES.0);
const _: () = assert!(2 * ENTRIES as usize * COMPLETION_BYTES <= PART_BYTES.0 / 2);

/// The only operations that a ring performs. Entries of a ring bypass seccomp filters, so a ring
/// refuses all other operations to any code that can write to its entries.
const OPERATIONS: [IoringOp; 3] = [IoringOp::Read, IoringOp::Write, IoringOp::Fadvise];

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the buffer to the file; then the kernel is asked to begin writing the bytes to the
    /// disk, as by [`SpillFile::start_write_out`].
    Write,
    /// From the file to the buffer.
    Read,
}

/// Bytes on their way between a buffer and a file.
#[derive(Debug)]
pub struct Transfer {
    /// The direction.
    pub way: Way,
    /// The position in the file.
    pub position: Bytes,
    /// The number of bytes to transfer, from the start of the buffer on.
    pub length: Bytes,
    /// The buffer, which belongs to the ring until the transfer has ended.
    pub buffer: Box<[u8]>,
    /// The caller's own number for the transfer.
    pub token: u32,
}

/// An io_uring instance.
#[derive(Debug)]
pub struct Ring {
    under_way: [Option<Transfer>; TRANSFERS_MAX],
    count: usize,
    params: io_uring_params,
    /// Counts ended transfers. epoll does not see them in the ring's own descriptor, because the
    /// kernel puts them there only on request.
    event: OwnedFd,
    fd: OwnedFd,
    queues: Span,
    entries: Span,
}

// SAFETY: both parts belong to the ring alone. The kernel refuses another thread's calls, and the
// methods handle that like any other refusal.
unsafe impl Send for Ring {}

impl Ring {
    /// Makes a ring for this thread. Fails with `EPERM` or `ENOSYS` where io_uring is forbidden, as
    /// in many containers, and with `EINVAL` before Linux 6.6.
    pub fn new() -> SysResult<Self> {
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN
            | IoringSetupFlags::TASKRUN_FLAG
            | IoringSetupFlags::NO_SQARRAY
            | IoringSetupFlags::SUBMIT_ALL
            | IoringSetupFlags::NO_MMAP
            | IoringSetupFlags::R_DISABLED;
        // The queues lie in our own spans: otherwise the kernel would choose the address of the
        // ring's file.
        let part = || Span::reserve(PART_BYTES, Bytes(PAGE_BYTES));
        let (queues, entries) = (part()?, part()?);
        params.cq_off.user_addr = queues.base().cast::<c_void>().as_ptr().into();
        params.sq_off.user_addr = entries.base().cast::<c_void>().as_ptr().into();
        // SAFETY: the parameters are initialized, and the kernel fills them in; the memory they
        // name stays until the ring is dropped.
        let fd = unsafe { io_uring_setup(ENTRIES, &mut params) }
            .map_err(SysError::of("io_uring_setup"))?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(SysError::of("eventfd2"))?;
        let number = event.as_raw_fd();
        // SAFETY: the argument is one descriptor, read during the call.
        unsafe {
            let argument = (&raw const number).cast::<c_void>();
            io_uring_register(&fd, IoringRegisterOp::RegisterEventfd, argument, 1)
        }
        .map_err(SysError::of("io_uring_register"))?;
        confine(fd.as_fd())?;
        let used = params.cq_off.cqes as usize + params.cq_entries as usize * COMPLETION_BYTES;
        if used > PART_BYTES.0 || params.sq_entries != ENTRIES {
            return Err(SysError { call: "io_uring_setup(sizes)", errno: errno::EINVAL });
        }
        Ok(Self {
            under_way: [const { None }; TRANSFERS_MAX],
            count: 0,
            params,
            event,
            fd,
            queues,
            entries,
        })
    }

    /// Returns the number of transfers that are under way, or ended and not yet taken.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Starts a transfer with `file`. Returns the transfer when the kernel refuses it, or when
    /// [`TRANSFERS_MAX`] are under way. The length must not exceed the buffer's.
    pub fn begin(&mut self, file: &SpillFile, transfer: Transfer) -> Result<(), Transfer> {
        assert!(transfer.length.0 <= transfer.buffer.len(), "a transfer longer than its buffer");
        let Some(place) = self.under_way.iter().position(Option::is_none) else {
            return Err(transfer);
        };
        let file = file.as_fd();
        let first = io_uring_sqe {
            opcode: match transfer.way {
                Way::Write => IoringOp::Write,
                Way::Read => IoringOp::Read,
            },
            flags: match transfer.way {
                Way::Write => IoringSqeFlags::IO_LINK,
                Way::Read => IoringSqeFlags::empty(),
            },
            addr_or_splice_off_in: addr_or_splice_off_in_union {
                addr: io_uring_ptr::new(transfer.buffer.as_ptr().cast_mut().cast()),
            },
            user_data: io_uring_user_data::from_u64(place as u64),
            ..entry(file, &transfer)
        };
        let write_out = (transfer.way == Way::Write).then(|| io_uring_sqe {
            opcode: IoringOp::Fadvise,
            flags: IoringSqeFlags::CQE_SKIP_SUCCESS,
            op_flags: rustix::io_uring::op_flags_union {
                fadvise_advice: rustix::fs::Advice::DontNeed,
            },
            user_data: io_uring_user_data::from_u64(NOBODY),
            ..entry(file, &transfer)
        });
        // From here on the kernel may use the buffer, which does not move because it is boxed.
        self.under_way[place] = Some(transfer);
        if self.submit(first, write_out).is_err() {
            return self.under_way[place].take().map_or(Ok(()), Err);
        }
        self.count += 1;
        Ok(())
    }

    /// Returns the next transfer that has ended, with the bytes done or the error. The kernel may
    /// have done fewer bytes than requested.
    pub fn ended(&mut self) -> Option<(Transfer, SysResult<Bytes>)> {
        while self.count > 0 {
            let (place, result) = self.take_completion()?;
            let ended = usize::try_from(place).ok();
            let transfer = ended.and_then(|place| self.under_way.get_mut(place)?.take());
            if let Some(transfer) = transfer {
                self.count -= 1;
                let call = match transfer.way {
                    Way::Write => "io_uring write",
                    Way::Read => "io_uring read",
                };
                let done = usize::try_from(result).map(Bytes);
                return Some((transfer, done.map_err(|_| SysError { call, errno: -result })));
            }
        }
        None
    }

    /// Waits until a transfer has ended. Returns at once when an ended transfer was not yet taken,
    /// or none is under way.
    pub fn wait(&self) -> SysResult<()> {
        if self.count == 0 || self.is_ready() {
            return Ok(());
        }
        self.enter(0, 1).map(|_| ())
    }

    /// Puts one or two entries into the queue and hands them to the kernel. After an error the
    /// kernel has neither.
    fn submit(&mut self, first: io_uring_sqe, second: Option<io_uring_sqe>) -> SysResult<()> {
        let tail = self.queue_word(self.params.sq_off.tail);
        // Relaxed: only this thread writes the tail.
        let start = tail.load(Ordering::Relaxed);
        let mut end = start;
        for entry in [Some(first), second].into_iter().flatten() {
            let index = end & (self.params.sq_entries - 1);
            // SAFETY: the index is below the number of entries, a power of two; the kernel reads
            // entries only inside `enter`.
            unsafe { self.entries.base().cast::<io_uring_sqe>().add(index as usize).write(entry) };
            end = end.wrapping_add(1);
        }
        // Release pairs with the kernel's acquire of the tail, inside `enter`.
        tail.store(end, Ordering::Release);
        let submitted = self.enter(end.wrapping_sub(start), 0);
        // The kernel took nothing, or all but the hint that follows a write.
        let count = submitted.unwrap_or(0);
        // Release pairs with the kernel's acquire, as above.
        tail.store(start.wrapping_add(count), Ordering::Release);
        submitted?;
        if count == 0 {
            Err(SysError { call: "io_uring_enter", errno: errno::EAGAIN })
        } else {
            Ok(())
        }
    }

    fn enter(&self, submitted: u32, wanted: u32) -> SysResult<u32> {
        let flags = match submitted {
            0 => IoringEnterFlags::GETEVENTS,
            _ => IoringEnterFlags::empty(),
        };
        loop {
            // SAFETY: the buffers in `under_way`, which the entries name, stay until each transfer
            // has ended.
            match unsafe { io_uring_enter(&self.fd, submitted, wanted, flags) } {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(SysError::of("io_uring_enter")(errno)),
            }
        }
    }

    /// Returns whether the ring holds a result.
    fn is_ready(&self) -> bool {
        // Relaxed: only this thread writes the head.
        let head = self.queue_word(self.params.cq_off.head).load(Ordering::Relaxed);
        // Acquire pairs with the kernel's release of the tail, after it wrote the completions.
        head != self.queue_word(self.params.cq_off.tail).load(Ordering::Acquire)
    }

    /// Takes the next completion: its user data, and bytes or a negative error number.
    fn take_completion(&mut self) -> Option<(u64, i32)> {
        if !self.is_ready() {
            // Relaxed: a hint; a flag seen late is seen the next time.
            let flags = self.queue_word(self.params.sq_off.flags).load(Ordering::Relaxed);
            if !IoringSqFlags::from_bits_retain(flags).contains(IoringSqFlags::TASKRUN) {
                return None;
            }
            self.enter(0, 0).ok()?;
            if !self.is_ready() {
                return None;
            }
        }
        let head = self.queue_word(self.params.cq_off.head);
        // Relaxed: only this thread writes the head.
        let at = head.load(Ordering::Relaxed);
        let index = (at & (self.params.cq_entries - 1)) as usize;
        let offset = self.params.cq_off.cqes as usize + index * COMPLETION_BYTES;
        // SAFETY: the offset lies in the span, which was checked when the ring was made; the kernel
        // wrote the completion before the tail that `is_ready` read.
        let (data, result) = unsafe {
            let place = self.queues.base().add(offset).cast::<io_uring_cqe>();
            ((*place.as_ptr()).user_data.u64_(), (*place.as_ptr()).res)
        };
        // Release pairs with the kernel's acquire of the head before it reuses this entry.
        head.store(at.wrapping_add(1), Ordering::Release);
        Some((data, result))
    }

    /// Returns a word shared with the kernel, at an offset that the kernel gave.
    fn queue_word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel's offsets lie in the span and belong to aligned 32-bit words.
        unsafe { self.queues.base().add(offset as usize).cast::<AtomicU32>().as_ref() }
    }
}

/// Makes an entry with the fields that all entries of a transfer share.
fn entry(file: BorrowedFd<'_>, transfer: &Transfer) -> io_uring_sqe {
    io_uring_sqe {
        fd: file.as_raw_fd(),
        off_or_addr2: off_or_addr2_union { off: transfer.position.0 as u64 },
        // A buffer on the heap is shorter than 4 GiB here; a longer transfer ends early, as any
        // may.
        len: len_union { len: transfer.length.0 as u32 },
        ..io_uring_sqe::default()
    }
}

impl AsFd for Ring {
    /// Returns the descriptor that is readable once a transfer has ended; each end is an edge of
    /// its own to epoll.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Ring {
    /// Waits for the end of all transfers.
    fn drop(&mut self) {
        while self.count > 0 {
            if self.ended().is_none() && self.wait().is_err() {
                // The kernel may use the buffers until this thread ends, so they are leaked.
                self.under_way.iter_mut().for_each(|transfer| mem::forget(transfer.take()));
                return;
            }
        }
    }
}

/// Restricts the ring to [`OPERATIONS`] for ever, and enables it as the calling thread's
/// (io_uring_register(2), IORING_REGISTER_RESTRICTIONS, Linux 5.10).
fn confine(ring: BorrowedFd<'_>) -> SysResult<()> {
    let allow = |opcode, what| {
        let mut restriction = io_uring_restriction::default();
        restriction.opcode = opcode;
        restriction.register_or_sqe_op_or_sqe_flags = what;
        restriction
    };
    let operation = |sqe_op| register_or_sqe_op_or_sqe_flags_union { sqe_op };
    let flags = (IoringSqeFlags::IO_LINK | IoringSqeFlags::CQE_SKIP_SUCCESS).bits();
    let sqe_flags = IoringSqeFlags::from_bits_retain(flags);
    let [read, write, fadvise] =
        OPERATIONS.map(|one| allow(IoringRestrictionOp::SqeOp, operation(one)));
    let flags = register_or_sqe_op_or_sqe_flags_union { sqe_flags };
    let allowed = [read, write, fadvise, allow(IoringRestrictionOp::SqeFlagsAllowed, flags)];
    let failed = SysError::of("io_uring_register(restrictions)");
    // SAFETY: the first call reads as many entries as `allowed` has, the second none.
    unsafe {
        let (entries, count) = (allowed.as_ptr().cast::<c_void>(), allowed.len() as u32);
        io_uring_register(ring, IoringRegisterOp::RegisterRestrictions, entries, count)
            .map_err(&failed)?;
        io_uring_register(ring, IoringRegisterOp::RegisterEnableRings, ptr::null(), 0)
            .map_err(&failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! The risk: a buffer comes back with other bytes, or the kernel uses it after the transfer's
    //! end.

    use rustix::event::epoll;

    use super::*;
    use crate::map;

    /// Makes a ring, unless this machine forbids rings.
    fn ring() -> Option<Ring> {
        match Ring::new() {
            Ok(ring) => Some(ring),
            Err(error) => {
                println!("skipped: {error}");
                None
            }
        }
    }

    fn transfer(way: Way, number: usize, byte: u8) -> Transfer {
        let buffer = alloc::vec![byte; 8192].into_boxed_slice();
        let position = Bytes(number * 8192);
        Transfer { way, position, length: Bytes(8192), buffer, token: number as u32 }
    }

    /// A service keeps its mappings apart, so a ring must work there too.
    #[test]
    fn a_ring_is_made_apart_too() {
        let here = ring().is_some();
        map::keep_apart(7);
        assert_eq!(ring().is_some(), here);
    }

    #[test]
    fn all_transfers_end_with_their_own_bytes() {
        let Some(mut ring) = ring() else { return };
        let file = SpillFile::unnamed_in(c"/var/tmp").unwrap();
        for (way, byte) in [(Way::Write, 1), (Way::Read, 0)] {
            for number in 0..TRANSFERS_MAX {
                ring.begin(&file, transfer(way, number, byte * (number as u8 + 1))).unwrap();
            }
            let beyond = ring.begin(&file, transfer(way, TRANSFERS_MAX, 9)).unwrap_err();
            assert_eq!((beyond.token, beyond.buffer[0]), (TRANSFERS_MAX as u32, 9));
            let mut seen = [false; TRANSFERS_MAX];
            while ring.count() > 0 {
                ring.wait().unwrap();
                while let Some((transfer, done)) = ring.ended() {
                    assert_eq!(done, Ok(Bytes(8192)));
                    let byte = transfer.token as u8 + 1;
                    assert!(transfer.buffer.iter().all(|found| *found == byte));
                    assert!(!mem::replace(&mut seen[transfer.token as usize], true));
                }
            }
            assert_eq!(seen, [true; TRANSFERS_MAX]);
        }
    }

    #[test]
    fn ends_of_files_and_errors_are_told() {
        let Some(mut ring) = ring() else { return };
        let file = SpillFile::unnamed_in(c"/var/tmp").unwrap();
        file.write_all_at(&[5; 8192 + 100], Bytes(0)).unwrap();
        ring.begin(&file, transfer(Way::Read, 1, 0)).unwrap();
        ring.wait().unwrap();
        let (part, done) = ring.ended().unwrap();
        assert_eq!((done, part.buffer[99], part.buffer[100]), (Ok(Bytes(100)), 5, 0));
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/full", flags, rustix::fs::Mode::empty()).unwrap();
        ring.begin(&SpillFile::from_fd(fd), transfer(Way::Write, 0, 3)).unwrap();
        ring.wait().unwrap();
        let (_, done) = ring.ended().unwrap();
        assert_eq!(done.unwrap_err().to_string(), "io_uring write: EBADF");
        assert!(ring.ended().is_none());
    }

    #[test]
    fn who_sleeps_is_woken() {
        let Some(mut ring) = ring() else { return };
        let file = SpillFile::unnamed_in(c"/var/tmp").unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &ring, epoll::EventData::new_u64(0), edge).unwrap();
        for number in 0..100 {
            ring.begin(&file, transfer(Way::Write, number, 7)).unwrap();
            // The hint that follows a write may also wake, when it ends.
            while ring.ended().is_none() {
                let mut events = [const { mem::MaybeUninit::uninit() }; 1];
                let long = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
                match epoll::wait(&epoll, &mut events, Some(&long)) {
                    Ok((woken, _)) => assert_eq!(woken.len(), 1, "{number} ended in silence"),
                    // The kernel has this thread create a worker thread for it.
                    Err(errno) => assert_eq!(errno, Errno::INTR),
                }
            }
        }
    }

    #[test]
    fn a_ring_that_is_dropped_waits_for_its_transfers() {
        let Some(mut ring) = ring() else { return };
        let file = SpillFile::unnamed_in(c"/var/tmp").unwrap();
        for number in 0..TRANSFERS_MAX {
            ring.begin(&file, transfer(Way::Write, number, 7)).unwrap();
        }
        drop(ring);
        let mut back = [0; 8192];
        file.read_exact_at(&mut back, Bytes((TRANSFERS_MAX - 1) * 8192)).unwrap();
        assert_eq!(back, [7; 8192]);
    }
}
