//! Files and pipes: the call's data, vectors, paths and results lie in the slot.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;

use crate::arena::{A, B, Fd, N, Slot, across, exactly, failed, incoming, put, same, split, wrong};
use crate::program::PAGE;
use crate::{Case, Outcome, Stop, plain};

pub const CASES: &[Case] = &[
    Case { name: "read", prepare: plain, run: read },
    Case { name: "write", prepare: plain, run: write },
    Case { name: "readv", prepare: vectors, run: readv },
    Case { name: "writev", prepare: vectors, run: writev },
    Case { name: "pread", prepare: plain, run: pread },
    Case { name: "pwrite", prepare: plain, run: pwrite },
    Case { name: "preadv", prepare: vectors, run: preadv },
    Case { name: "pwritev", prepare: vectors, run: pwritev },
    Case { name: "pipe-read", prepare: plain, run: pipe_read },
    Case { name: "pipe-write", prepare: plain, run: pipe_write },
    Case { name: "direct-read", prepare: plain, run: direct_read },
    Case { name: "direct-write", prepare: plain, run: direct_write },
    Case { name: "getcwd", prepare: plain, run: getcwd },
    Case { name: "uname", prepare: plain, run: uname },
    Case { name: "stat", prepare: path, run: stat },
    Case { name: "open", prepare: path, run: open },
    Case { name: "readlink", prepare: path, run: readlink },
    Case { name: "getdents", prepare: plain, run: getdents },
];

/// Offsets of the vector of `vectors`, and of `path`.
const VECTOR: usize = across(20, 64);
const PATH: usize = split(18, 2000);
/// The segments of the vector: over page ends, within a page, and one over many pages.
const SEGMENTS: [(usize, usize); 4] =
    [(split(0, 600), 600), (3 * PAGE + 7, 100), (split(4, 5 * PAGE), 5 * PAGE), (A, 20)];

/// Makes a file in memory that holds `bytes`, positioned at its start.
pub fn file(bytes: &[u8]) -> Result<Fd, Stop> {
    let fd = unsafe { libc::memfd_create(c"syscalls".as_ptr(), libc::MFD_CLOEXEC) };
    let fd = Fd::new("memfd_create", fd)?;
    let count = unsafe { libc::pwrite(fd.0, bytes.as_ptr().cast(), bytes.len(), 0) };
    exactly("filling a file", count, bytes.len())?;
    Ok(fd)
}

/// Returns what the file holds from `offset` on.
pub fn contents(fd: &Fd, offset: usize, length: usize) -> Result<Vec<u8>, Stop> {
    let mut bytes = vec![0; length];
    let to = bytes.as_mut_ptr().cast();
    let count = unsafe { libc::pread(fd.0, to, length, offset as libc::off_t) };
    exactly("reading a file back", count, length)?;
    Ok(bytes)
}

/// Makes a pipe with room for `bytes`.
pub fn pipe(bytes: usize) -> Result<(Fd, Fd), Stop> {
    let mut ends = [0; 2];
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(failed("pipe2"));
    }
    let (read, write) = (Fd(ends[0]), Fd(ends[1]));
    if unsafe { libc::fcntl(write.0, libc::F_SETPIPE_SZ, bytes as i32) } < 0 {
        return Err(failed("F_SETPIPE_SZ"));
    }
    Ok((read, write))
}

fn read(slot: &mut Slot) -> Outcome {
    let bytes = incoming(N, 1);
    let fd = file(&bytes)?;
    exactly("read", unsafe { libc::read(fd.0, slot.at(A), N) }, N)?;
    slot.expect(A, &bytes);
    Ok(())
}

fn write(slot: &mut Slot) -> Outcome {
    let fd = file(&[])?;
    exactly("write", unsafe { libc::write(fd.0, slot.at(A), N) }, N)?;
    same("the file", &contents(&fd, 0, N)?, slot.wanted(A, N))
}

fn vectors(base: usize, image: &mut [u8]) {
    for (index, (offset, length)) in SEGMENTS.iter().enumerate() {
        put(image, VECTOR + index * 16, &[base + offset, *length]);
    }
}

fn segments_length() -> usize {
    SEGMENTS.iter().map(|(_, length)| length).sum()
}

/// Expects the vector's segments to be filled from `bytes`.
fn scatter(slot: &mut Slot, bytes: &[u8]) {
    let mut start = 0;
    for (offset, length) in SEGMENTS {
        slot.expect(offset, &bytes[start..start + length]);
        start += length;
    }
}

/// Returns the contents of the vector's segments, in order.
fn gathered(slot: &Slot) -> Vec<u8> {
    SEGMENTS.iter().flat_map(|(offset, length)| slot.wanted(*offset, *length).to_vec()).collect()
}

fn readv(slot: &mut Slot) -> Outcome {
    let bytes = incoming(segments_length(), 2);
    let fd = file(&bytes)?;
    exactly("readv", unsafe { libc::readv(fd.0, slot.at(VECTOR), 4) }, bytes.len())?;
    scatter(slot, &bytes);
    Ok(())
}

fn writev(slot: &mut Slot) -> Outcome {
    let fd = file(&[])?;
    let length = segments_length();
    exactly("writev", unsafe { libc::writev(fd.0, slot.at(VECTOR), 4) }, length)?;
    same("the file", &contents(&fd, 0, length)?, &gathered(slot))
}

fn pread(slot: &mut Slot) -> Outcome {
    let bytes = incoming(N + 999, 3);
    let fd = file(&bytes)?;
    exactly("pread", unsafe { libc::pread(fd.0, slot.at(B), N, 999) }, N)?;
    slot.expect(B, &bytes[999..]);
    Ok(())
}

fn pwrite(slot: &mut Slot) -> Outcome {
    let fd = file(&[])?;
    exactly("pwrite", unsafe { libc::pwrite(fd.0, slot.at(B), N, 999) }, N)?;
    same("the file", &contents(&fd, 999, N)?, slot.wanted(B, N))
}

fn preadv(slot: &mut Slot) -> Outcome {
    let bytes = incoming(segments_length() + 5, 4);
    let fd = file(&bytes)?;
    let count = unsafe { libc::preadv(fd.0, slot.at(VECTOR), 4, 5) };
    exactly("preadv", count, segments_length())?;
    scatter(slot, &bytes[5..]);
    Ok(())
}

fn pwritev(slot: &mut Slot) -> Outcome {
    let fd = file(&[])?;
    let length = segments_length();
    exactly("pwritev", unsafe { libc::pwritev(fd.0, slot.at(VECTOR), 4, 5) }, length)?;
    same("the file", &contents(&fd, 5, length)?, &gathered(slot))
}

fn pipe_read(slot: &mut Slot) -> Outcome {
    let (read, write) = pipe(2 * N)?;
    let bytes = incoming(N, 5);
    let count = unsafe { libc::write(write.0, bytes.as_ptr().cast(), N) };
    exactly("filling a pipe", count, N)?;
    exactly("read", unsafe { libc::read(read.0, slot.at(A), N) }, N)?;
    slot.expect(A, &bytes);
    Ok(())
}

fn pipe_write(slot: &mut Slot) -> Outcome {
    let (read, write) = pipe(2 * N)?;
    exactly("write", unsafe { libc::write(write.0, slot.at(A), N) }, N)?;
    let mut bytes = vec![0u8; N];
    let count = unsafe { libc::read(read.0, bytes.as_mut_ptr().cast(), N) };
    exactly("emptying a pipe", count, N)?;
    same("the pipe", &bytes, slot.wanted(A, N))
}

/// Makes an unnamed file that takes `O_DIRECT`; not every file system does.
pub fn direct_file() -> Result<Fd, Stop> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_DIRECT;
    let fd = unsafe { libc::open(c"/var/tmp".as_ptr(), flags | libc::O_TMPFILE, 0o600) };
    if fd < 0 { Err(Stop::Skip("/var/tmp takes no O_DIRECT".to_owned())) } else { Ok(Fd(fd)) }
}

fn direct_read(slot: &mut Slot) -> Outcome {
    let fd = direct_file()?;
    let length = 16 * PAGE;
    // The file is written from other memory, as aligned as O_DIRECT wants it.
    let bytes = incoming(2 * length, 6);
    let start = bytes.as_ptr().align_offset(PAGE);
    let from = bytes[start..].as_ptr().cast();
    exactly("filling", unsafe { libc::pwrite(fd.0, from, length, 0) }, length)?;
    exactly("pread", unsafe { libc::pread(fd.0, slot.at(0), length, 0) }, length)?;
    slot.expect(0, &bytes[start..start + length]);
    Ok(())
}

fn direct_write(slot: &mut Slot) -> Outcome {
    let fd = direct_file()?;
    let length = 16 * PAGE;
    exactly("pwrite", unsafe { libc::pwrite(fd.0, slot.at(0), length, 0) }, length)?;
    // Reads back into the other half: both ends of the transfer were cold.
    let to = slot.at(length);
    exactly("pread", unsafe { libc::pread(fd.0, to, length, 0) }, length)?;
    let bytes = slot.wanted(0, length).to_vec();
    slot.expect(length, &bytes);
    Ok(())
}

fn getcwd(slot: &mut Slot) -> Outcome {
    let directory = std::env::current_dir().map_err(|error| Stop::Fail(error.to_string()))?;
    let mut bytes = directory.as_os_str().as_bytes().to_vec();
    bytes.push(0);
    let at = split(7, bytes.len());
    // The bare call: libc's function may add calls of its own.
    let count = unsafe { libc::syscall(libc::SYS_getcwd, slot.at::<u8>(at), bytes.len()) };
    exactly("getcwd", count, bytes.len())?;
    slot.expect(at, &bytes);
    Ok(())
}

fn uname(slot: &mut Slot) -> Outcome {
    let size = size_of::<libc::utsname>();
    let at = split(9, size);
    let mut hot: libc::utsname = unsafe { std::mem::zeroed() };
    exactly("uname", unsafe { libc::uname(&raw mut hot) }, 0)?;
    exactly("uname", unsafe { libc::uname(slot.at(at)) }, 0)?;
    slot.learn(at, size);
    let cold: libc::utsname = unsafe { slot.at::<libc::utsname>(at).read_unaligned() };
    let fields = [(&hot.release, &cold.release), (&hot.machine, &cold.machine)];
    if fields.iter().all(|(hot, cold)| hot == cold) { Ok(()) } else { wrong("another system") }
}

/// Writes a long form of the path /proc/self/exe into `image`, across a page's end.
fn path(_: usize, image: &mut [u8]) {
    let text = format!("/proc{}/self/exe\0", "/.".repeat(990));
    image[PATH..PATH + text.len()].copy_from_slice(text.as_bytes());
}

fn stat(slot: &mut Slot) -> Outcome {
    let size = size_of::<libc::stat>();
    let at = across(2, size);
    let mut hot: libc::stat = unsafe { std::mem::zeroed() };
    let name: &CStr = c"/proc/self/exe";
    exactly("stat", unsafe { libc::stat(name.as_ptr(), &raw mut hot) }, 0)?;
    exactly("stat", unsafe { libc::stat(slot.at(PATH), slot.at(at)) }, 0)?;
    slot.learn(at, size);
    let cold: libc::stat = unsafe { slot.at::<libc::stat>(at).read() };
    let key = |stat: &libc::stat| (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mode);
    if key(&hot) == key(&cold) { Ok(()) } else { wrong("another file") }
}

fn open(slot: &mut Slot) -> Outcome {
    let fd = Fd::new("open", unsafe { libc::open(slot.at(PATH), libc::O_RDONLY) })?;
    same("the file", &contents(&fd, 0, 4)?, b"\x7fELF")
}

fn readlink(slot: &mut Slot) -> Outcome {
    let exe = std::env::current_exe().map_err(|error| Stop::Fail(error.to_string()))?;
    let bytes = exe.as_os_str().as_bytes();
    let at = split(3, bytes.len());
    let count = unsafe { libc::readlink(slot.at(PATH), slot.at(at), 4000) };
    exactly("readlink", count, bytes.len())?;
    slot.expect(at, bytes);
    Ok(())
}

/// Lists one directory into the slot and into other memory.
fn getdents(slot: &mut Slot) -> Outcome {
    let fd = Fd::new("open", unsafe { libc::open(c"/dev".as_ptr(), libc::O_RDONLY) })?;
    let mut hot = vec![0u8; N];
    let list = |to: *mut u8| unsafe { libc::syscall(libc::SYS_getdents64, fd.0, to, N) };
    let wanted = usize::try_from(list(hot.as_mut_ptr())).map_err(|_| failed("getdents"))?;
    unsafe { libc::lseek(fd.0, 0, libc::SEEK_SET) };
    exactly("getdents", list(slot.at(A)), wanted)?;
    let got = unsafe { crate::program::raw::bytes(slot.base + A, wanted) };
    // The kernel does not write the padding behind a name: names are compared, not bytes.
    if names(got) != names(&hot[..wanted]) {
        return wrong("another list of names");
    }
    slot.learn(A, wanted);
    Ok(())
}

/// Returns the names in the records of getdents64(2).
fn names(mut records: &[u8]) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    while records.len() > 19 {
        let length = usize::from(u16::from_le_bytes([records[16], records[17]]));
        let (record, rest) = records.split_at(length.clamp(20, records.len()));
        names.push(record[19..].split(|byte| *byte == 0).next().unwrap_or_default().to_vec());
        records = rest;
    }
    names
}
