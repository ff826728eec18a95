//! The system calls that a stopped thread is made to make.

use core::ops::Range;

use linux_raw_sys::general as linux;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use super::Tracee;
use crate::error::{SysError, SysResult};
use crate::{errno, net};

/// No file, for memory that comes from none.
const NO_FILE: usize = usize::MAX;

impl Tracee {
    /// Reserves `length` bytes of memory that can be written, at `hint` if that is free. Returns
    /// their address.
    pub fn reserve(&mut self, hint: usize, length: usize) -> SysResult<usize> {
        let access = linux::PROT_READ | linux::PROT_WRITE;
        let flags = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS | linux::MAP_NORESERVE;
        let arguments = [hint, length, access as usize, flags as usize, NO_FILE, 0];
        self.call("mmap", linux::__NR_mmap, arguments)
    }

    /// Gives memory up that [`Tracee::reserve`] has made.
    pub fn give_up(&mut self, address: usize, length: usize) -> SysResult<()> {
        self.call("munmap", linux::__NR_munmap, [address, length, 0, 0, 0, 0]).map(|_| ())
    }

    /// Returns whether orphans below the program become its children: it has asked for them
    /// (`PR_SET_CHILD_SUBREAPER`). The answer passes through the word at `place`.
    pub fn is_reaper(&mut self, place: usize) -> SysResult<bool> {
        /// linux/prctl.h.
        const PR_GET_CHILD_SUBREAPER: usize = 37;
        let arguments = [PR_GET_CHILD_SUBREAPER, place, 0, 0, 0, 0];
        self.call("prctl", linux::__NR_prctl, arguments)?;
        let mut word = [0; size_of::<u32>()];
        self.read(place, &mut word)?;
        Ok(u32::from_le_bytes(word) != 0)
    }

    /// Opens a file for reading, whose path, with a zero at its end, lies at `path`.
    pub fn open(&mut self, path: usize) -> SysResult<usize> {
        let flags = linux::O_RDONLY | linux::O_CLOEXEC;
        self.call("open", linux::__NR_open, [path, flags as usize, 0, 0, 0, 0])
    }

    /// Gives the program copies of two descriptors of this process, whose numbers there it returns.
    /// They come by a pair of sockets that the thread makes; `place` leads to a page of the program
    /// that holds nothing.
    pub fn give(&mut self, place: usize, files: [BorrowedFd<'_>; 2]) -> SysResult<[usize; 2]> {
        let kind = (SocketType::SEQPACKET.as_raw() | SocketFlags::CLOEXEC.bits()) as usize;
        let family = usize::from(AddressFamily::UNIX.as_raw());
        self.call("socketpair", linux::__NR_socketpair, [family, kind, 0, place, 0, 0])?;
        let [ours, theirs] = self.numbers_at(place)?;
        let given = self.send_by(ours, files).and_then(|()| self.receive_by(theirs, place));
        for socket in [ours, theirs] {
            self.close(socket)?;
        }
        given
    }

    /// Sends descriptors by the program's socket of this number.
    fn send_by(&self, socket: usize, files: [BorrowedFd<'_>; 2]) -> SysResult<()> {
        let pid = Pid::from_raw(self.thread.cast_signed());
        let pid = pid.ok_or(SysError { call: "pidfd_open", errno: errno::ESRCH })?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map_err(SysError::of("pidfd_open"))?;
        let socket =
            rustix::process::pidfd_getfd(&process, socket as i32, PidfdGetfdFlags::empty())
                .map_err(SysError::of("pidfd_getfd"))?;
        net::send(socket.as_fd(), b"2", &files)
    }

    /// Has the thread receive two descriptors by its socket of this number.
    fn receive_by(&mut self, socket: usize, place: usize) -> SysResult<[usize; 2]> {
        // A struct msghdr of seven words, a struct iovec for one byte, and room for the message
        // with the descriptors: its length, level and kind, and their numbers.
        const HEADER: usize = 7;
        const VECTOR: usize = 2;
        const CONTROL: usize = 3;
        const WORD: usize = size_of::<usize>();
        let vector = place + HEADER * WORD;
        let control = vector + VECTOR * WORD;
        let byte = control + CONTROL * WORD;
        let words = [0, 0, vector, 1, control, CONTROL * WORD, 0, byte, 1, 0, 0, 0, 0];
        self.write(place, words.map(usize::to_ne_bytes).as_flattened())?;
        let flags = RecvFlags::CMSG_CLOEXEC.bits() as usize;
        self.call("recvmsg", linux::__NR_recvmsg, [socket, place, flags, 0, 0, 0])?;
        let mut length = [0; WORD];
        self.read(control, &mut length)?;
        if usize::from_ne_bytes(length) != CONTROL * WORD {
            return Err(SysError { call: "recvmsg", errno: errno::EPROTO });
        }
        self.numbers_at(control + 2 * WORD)
    }

    /// Reads two numbers of descriptors.
    fn numbers_at(&self, place: usize) -> SysResult<[usize; 2]> {
        let mut bytes = [0; 2 * size_of::<u32>()];
        self.read(place, &mut bytes)?;
        let [a, b, c, d, e, f, g, h] = bytes;
        Ok([[a, b, c, d], [e, f, g, h]].map(|number| u32::from_ne_bytes(number) as usize))
    }

    /// Closes a file that [`Tracee::open`] has opened.
    pub fn close(&mut self, file: usize) -> SysResult<()> {
        self.call("close", linux::__NR_close, [file, 0, 0, 0, 0, 0]).map(|_| ())
    }

    /// Maps a part of a file over reserved memory at `addresses`, as code or to be read only.
    pub fn map_file(
        &mut self,
        addresses: Range<usize>,
        file: usize,
        offset: usize,
        is_code: bool,
    ) -> SysResult<()> {
        let access = linux::PROT_READ | if is_code { linux::PROT_EXEC } else { 0 };
        let flags = (linux::MAP_PRIVATE | linux::MAP_FIXED) as usize;
        let arguments = [addresses.start, addresses.len(), access as usize, flags, file, offset];
        self.call("mmap", linux::__NR_mmap, arguments).map(|_| ())
    }

    /// Makes a process that shares the program's memory, by the instruction `syscall` at `at`,
    /// where that process goes on; waits for its end; and reaps it. Its status goes to the word at
    /// `status`. The process must not use its stack, which is the thread's. It fails with the
    /// error whose number the process ended with.
    pub fn run_beside(&mut self, at: usize, status: usize) -> SysResult<()> {
        let flags = linux::CLONE_VM | linux::CLONE_VFORK | linux::CLONE_UNTRACED;
        let arguments = [flags as usize, 0, 0, 0, 0, 0];
        let process = self.call_at(at, "clone", linux::__NR_clone, arguments)?;
        let arguments = [process, status, linux::__WALL as usize, 0, 0, 0];
        self.call("wait4", linux::__NR_wait4, arguments)?;
        let mut word = [0; size_of::<u32>()];
        self.read(status, &mut word)?;
        match u32::from_le_bytes(word) {
            0 => Ok(()),
            status => Err(SysError { call: "clone", errno: (status >> 8 & 0xff) as i32 }),
        }
    }

    fn call(&mut self, call: &'static str, number: u32, arguments: [usize; 6]) -> SysResult<usize> {
        self.call_at(self.syscall_at, call, number, arguments)
    }
}
