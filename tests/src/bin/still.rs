//! `still`: holds memory of which most is away, and waits; or looks at such memory from outside.
//!
//!     still hold FILE [OUTPUT]    prints where its memory is, waits until FILE is there, checks
//!                                 all; with OUTPUT a child does the same, and prints there
//!     still vm PID START PAGES    looks by process_vm_readv(2)
//!     still mem PID START PAGES   looks in /proc/PID/mem, as debuggers do
//!     still core FILE START PAGES looks in a core file
//!
//! A run that looks prints how many pages hold wrong bytes, and how many cannot be read.
#![allow(clippy::undocumented_unsafe_blocks, reason = "raw calls on memory of its own")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../program/mod.rs"]
mod program;

use std::fs::File;
use std::io::{Error, Result};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::Duration;

use program::pattern::{Kind, PageImage, Tag};
use program::pressure::Pressure;
use program::random::mix;
use program::{PAGE, raw};

/// Seed of the pattern.
const SEED: u64 = 0x7374_696c_6c21;
/// Pages that the program holds; below, the bytes it walks to push them out.
const PAGES: usize = (48 << 20) / PAGE;
const PRESSURE: usize = 64 << 20;

/// Writes into `image` what a page must hold.
fn expected(page: usize, image: &mut PageImage) {
    let kind = Kind::by_lot(mix(page as u64));
    Tag { owner: 1, index: page as u32, version: 1, kind, patches: 0 }.expected(SEED, image);
}

/// Returns how many pages of the memory at `start` are away.
fn evicted(start: usize) -> Result<usize> {
    Ok(PAGES - unsafe { raw::resident_pages(start, PAGES * PAGE) }?)
}

fn hold(file: &Path) -> Result<()> {
    let start = raw::map(PAGES * PAGE)?;
    let mut image = PageImage::zero();
    for page in 0..PAGES {
        expected(page, &mut image);
        unsafe { raw::bytes_mut(start + page * PAGE, PAGE) }.copy_from_slice(image.bytes());
    }
    let pressure = Pressure::new(PRESSURE);
    pressure.walk();
    let process = std::process::id();
    println!("at {start} {PAGES} evicted={} process={process}", evicted(start)?);
    println!("ready");
    while !file.exists() {
        sleep(Duration::from_millis(10));
    }
    println!("evicted={}", evicted(start)?);
    pressure.walk();
    println!("evicted={}", evicted(start)?);
    let (mut wrong, mut zeros) = (0, 0);
    for page in 0..PAGES {
        expected(page, &mut image);
        let found = unsafe { raw::bytes(start + page * PAGE, PAGE) };
        if found != image.bytes() {
            wrong += 1;
            zeros += usize::from(found.iter().all(|byte| *byte == 0));
        }
    }
    println!("zeros={zeros}\nwrong={wrong}");
    Ok(())
}

/// Holds memory in this process and in a child of it, which prints elsewhere.
fn hold_both(file: &Path, output: &str) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut other = command.arg("hold").arg(file).stdout(File::create(output)?).spawn()?;
    hold(file)?;
    let status = other.wait()?;
    if status.success() { Ok(()) } else { Err(Error::other(format!("the other one: {status}"))) }
}

/// Compares what `read` gives for each page, and prints what it found.
fn look(pages: usize, read: impl Fn(usize, &mut [u8]) -> Result<()>) {
    let (mut wrong, mut failed, mut last) = (0, 0, None);
    let mut image = PageImage::zero();
    let mut bytes = [0; PAGE];
    for page in 0..pages {
        match read(page * PAGE, &mut bytes) {
            Err(error) => (failed, last) = (failed + 1, Some(error)),
            Ok(()) => {
                expected(page, &mut image);
                wrong += usize::from(&bytes != image.bytes());
            }
        }
    }
    println!("wrong={wrong} failed={failed} of {pages}");
    eprintln!("the last failure: {last:?}");
}

fn read_vm(process: i32, at: usize, bytes: &mut [u8]) -> Result<()> {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: raw::pointer(at).cast(), iov_len: bytes.len() };
    let (local, remote) = (&raw const local, &raw const remote);
    let count = unsafe { libc::process_vm_readv(process, local, 1, remote, 1, 0) };
    if raw::counted(count)? == bytes.len() { Ok(()) } else { Err(Error::other("a short count")) }
}

/// Returns the parts of a core file: their addresses, and their offsets in the file. Both are in
/// its program headers (elf(5), 64 bits).
fn parts_of(core: &File) -> Result<Vec<(Range<u64>, u64)>> {
    let word = |at: u64| {
        let mut bytes = [0; 8];
        core.read_exact_at(&mut bytes, at).map(|()| u64::from_le_bytes(bytes))
    };
    let (headers, count) = (word(0x20)?, word(0x38)? & 0xffff);
    let mut parts = Vec::new();
    for header in (0..count).map(|number| headers + number * 56) {
        let (offset, start, in_file) = (word(header + 8)?, word(header + 16)?, word(header + 32)?);
        if word(header)? & 0xffff_ffff == 1 {
            parts.push((start..start + in_file, offset));
        }
    }
    Ok(parts)
}

fn read_core(core: &File, parts: &[(Range<u64>, u64)], at: u64, bytes: &mut [u8]) -> Result<()> {
    let part = parts.iter().find(|(addresses, _)| addresses.contains(&at));
    let (addresses, offset) = part.ok_or_else(|| Error::other("the core has no such address"))?;
    core.read_exact_at(bytes, offset + (at - addresses.start))
}

fn number(word: &str) -> Result<usize> {
    word.parse().map_err(Error::other)
}

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["hold", file] => hold(Path::new(file))?,
        ["hold", file, output] => hold_both(Path::new(file), output)?,
        ["vm", process, start, pages] => {
            let (process, start) = (number(process)?, number(start)?);
            look(number(pages)?, |at, bytes| read_vm(process as i32, start + at, bytes));
        }
        ["mem", process, start, pages] => {
            let memory = File::open(format!("/proc/{process}/mem"))?;
            let start = number(start)?;
            look(number(pages)?, |at, bytes| memory.read_exact_at(bytes, (start + at) as u64));
        }
        ["core", file, start, pages] => {
            let (core, start) = (File::open(file)?, number(start)?);
            let parts = parts_of(&core)?;
            look(number(pages)?, |at, bytes| read_core(&core, &parts, (start + at) as u64, bytes));
        }
        _ => return Ok(ExitCode::from(2)),
    }
    Ok(ExitCode::SUCCESS)
}
