//! Forks that no library can catch, by the bare instruction, in a program with pages away. The
//! output is the same with and without coldpress. The way a child that reads ends goes to standard
//! error.

use std::ffi::{c_int, c_void};
use std::process::ExitCode;

const PAGE: usize = 4096;
const BYTES: usize = 48 << 20;
/// Bytes of the memory that the program keeps from its children.
const OWN_BYTES: usize = 1 << 20;
const GROWING_BYTES: usize = 4 << 20;
/// Room behind each mapping, for growth in place.
const ROOM_BYTES: usize = 64 << 20;

fn main() -> ExitCode {
    let data = Data::new(BYTES, 1);
    let mut own = Data::new(OWN_BYTES, 2);
    let mut grown = Data::new(GROWING_BYTES, 3);
    // Pages of all three go while this one is written.
    let last = Data::new(BYTES, 4);
    let mut checks = vec![
        ("a child that reads", reads(&data)),
        ("a child that execs", end_of(unseen_fork(exec_true)) == 0),
        ("a child that ends", end_of(unseen_fork(|| 7)) == 7),
        ("a child that is seen", end_of(seen_fork(|| data.wrong())) == 0),
        ("kept from children", own.advise(libc::MADV_DONTFORK)),
        ("one that has it not", end_of(seen_fork(|| data.wrong() + own.is_mapped())) == 0),
        ("kept where it has moved", own.resize(OWN_BYTES, libc::MREMAP_MAYMOVE, true)),
        ("one that has it not there", end_of(seen_fork(|| own.is_mapped())) == 0),
        ("given to children", own.advise(libc::MADV_DOFORK)),
        ("one that has it", end_of(seen_fork(|| data.wrong() + own.wrong())) == 0),
    ];
    // In place, then to an address with room, which is one mapping for the kernel.
    for (flags, moves) in [(0, false), (libc::MREMAP_MAYMOVE, true)] {
        let bytes = grown.bytes + GROWING_BYTES;
        checks.push(("a mapping that grows", grown.resize(bytes, flags, moves)));
        checks.push(("a child that has all", end_of(seen_fork(|| grown.wrong())) == 0));
    }
    checks.extend([
        ("a child that reads after all", reads(&data)),
        ("the parent", data.wrong() + own.wrong() + grown.wrong() + last.wrong() == 0),
    ]);
    for (name, is_right) in &checks {
        println!("{} {name}", if *is_right { "ok" } else { "FAIL" });
    }
    if checks.iter().all(|(_, is_right)| *is_right) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns whether a child finds no wrong byte. A child that lacks pages ends by a signal.
fn reads(data: &Data) -> bool {
    let end = end_of(unseen_fork(|| data.wrong()));
    // Written by one call, because the launcher writes lines too.
    let line = format!("a child that reads ended with {end}\n");
    eprint!("{line}");
    [0, -libc::SIGSEGV, -libc::SIGBUS].contains(&end)
}

/// Pages, each full of words that follow from its place.
struct Data {
    start: *mut u64,
    bytes: usize,
    seed: u64,
}

impl Data {
    fn new(bytes: usize, seed: u64) -> Self {
        let data = Self { start: map(bytes, ROOM_BYTES), bytes, seed };
        data.write(0);
        data
    }

    /// Writes the words behind the first `bytes`.
    fn write(&self, bytes: usize) {
        for index in bytes / 8..self.bytes / 8 {
            // SAFETY: the mapping has this many words, and one user.
            unsafe { self.start.add(index).write_volatile(self.word(index)) };
        }
    }

    /// Resizes the mapping to `bytes`, in place or at a free address. Returns whether that was
    /// done.
    fn resize(&mut self, bytes: usize, flags: c_int, moves: bool) -> bool {
        let before = self.bytes;
        let target = if moves { map(bytes, 0) } else { std::ptr::null_mut() };
        let flags = if moves { flags | libc::MREMAP_FIXED } else { flags };
        // SAFETY: the target, if there is one, is a mapping that nothing uses.
        let start = unsafe {
            libc::mremap(self.start.cast(), before, bytes, flags, target.cast::<c_void>())
        };
        if start == libc::MAP_FAILED {
            return false;
        }
        (self.start, self.bytes) = (start.cast(), bytes);
        self.write(before);
        true
    }

    /// Returns the word at `index`: compressible, and different in each page.
    fn word(&self, index: usize) -> u64 {
        let page = (index * 8 / PAGE) as u64;
        (page + self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (index % 4 * 8)
    }

    /// Returns 1 if any word is wrong.
    fn wrong(&self) -> c_int {
        // SAFETY: a word of the mapping; where the mapping is missing, the process ends, as it
        // should.
        let read = |index| unsafe { self.start.add(index).read_volatile() };
        c_int::from((0..self.bytes / 8).any(|index| read(index) != self.word(index)))
    }

    fn advise(&self, advice: c_int) -> bool {
        // SAFETY: neither kind of advice changes anything in this process.
        unsafe { libc::madvise(self.start.cast::<c_void>(), self.bytes, advice) == 0 }
    }

    /// Returns 1 if the memory is mapped in this process.
    fn is_mapped(&self) -> c_int {
        let mut seen = 0_u8;
        // SAFETY: one byte is written for one page.
        c_int::from(unsafe { libc::mincore(self.start.cast(), PAGE, &raw mut seen) } == 0)
    }
}

/// Maps fresh memory, with `room` bytes free behind it.
fn map(bytes: usize, room: usize) -> *mut u64 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at an address that the kernel chooses; its end is given back.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), bytes + room, access, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        libc::munmap(start.add(bytes), room);
        start.cast()
    }
}

/// Forks by the bare instruction: it calls no function that a library could have replaced.
fn unseen_fork(work: impl FnOnce() -> c_int) -> libc::pid_t {
    let result: i64;
    // SAFETY: does what fork does: the child runs on with a copy of everything.
    unsafe {
        std::arch::asm!(
            "syscall", inlateout("rax") 57_i64 => result, lateout("rcx") _, lateout("r11") _
        );
    }
    with_child(result as libc::pid_t, work)
}

fn seen_fork(work: impl FnOnce() -> c_int) -> libc::pid_t {
    // SAFETY: the program has one thread.
    with_child(unsafe { libc::fork() }, work)
}

fn with_child(process: libc::pid_t, work: impl FnOnce() -> c_int) -> libc::pid_t {
    if process == 0 {
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(work()) }
    }
    process
}

fn exec_true() -> c_int {
    let arguments = [c"true".as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null()];
    // SAFETY: lists that end with a null.
    unsafe { libc::execve(c"/bin/true".as_ptr(), arguments.as_ptr(), environment.as_ptr()) }
}

/// Returns a child's exit status, or the signal that ended it as a negative number.
fn end_of(process: libc::pid_t) -> c_int {
    let mut status = 0;
    // SAFETY: waits for a child of ours.
    let found = unsafe { libc::waitpid(process, &raw mut status, 0) };
    assert_eq!(found, process);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}
