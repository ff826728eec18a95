//! The system calls that a stopped thread is made to make.

use core::ops::Range;

use linux_raw_sys::general as linux;

use super::Tracee;
use crate::error::{SysError, SysResult};

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
