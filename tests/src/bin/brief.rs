//! Writes to random pages with four threads, while the program forks children that end at once:
//! `brief [--bytes TOTAL] [--children COUNT]`. Checks every byte at the end.
#![allow(clippy::undocumented_unsafe_blocks, reason = "raw calls on memory of its own")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../program/mod.rs"]
mod program;

use std::io::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use program::args::Args;
use program::random::{Random, mix};
use program::{PAGE, raw};

/// Seed of the pages that the threads write to.
const SEED: u64 = 0x0062_7269_6566;
const THREADS: usize = 4;
/// Pause between two children.
const PAUSE: Duration = Duration::from_millis(300);
/// Microseconds that a child sleeps.
const CHILD_US: libc::useconds_t = 1000;

/// Fills a page: every eighth word is random, the others count. The page compresses to a fifth.
fn fill(page: &mut [u8], number: usize) {
    let seed = mix(number as u64);
    for (at, word) in page.as_chunks_mut().0.iter_mut().enumerate() {
        let at = at as u64;
        let value = if at.is_multiple_of(8) { mix(seed + at) } else { (seed & 0xffff) + (at >> 3) };
        *word = value.to_le_bytes();
    }
}

/// Fills random pages of this `part` until `ended`.
fn write(part: &mut [u8], first: usize, ended: &AtomicBool) {
    let pages = part.len() / PAGE;
    let mut random = Random::new(SEED, first as u64);
    // Relaxed: the flag orders nothing else.
    while !ended.load(Ordering::Relaxed) {
        let page = random.below(pages);
        fill(&mut part[page * PAGE..][..PAGE], first + page);
    }
}

fn fork_one() -> Result<()> {
    let child = unsafe { libc::fork() };
    if child == 0 {
        unsafe {
            libc::usleep(CHILD_US);
            libc::_exit(0);
        }
    }
    let mut status = 0;
    if child < 0 || unsafe { libc::waitpid(child, &raw mut status, 0) } != child || status != 0 {
        return Err(Error::other(format!("status {status}: {}", Error::last_os_error())));
    }
    Ok(())
}

fn main() -> Result<()> {
    let args = Args::parse(&[], &["bytes", "children"]);
    let (size, children) = (args.bytes("bytes", 64 << 20), args.value("children", 16));
    let bytes = unsafe { raw::bytes_mut(raw::map(size)?, size) };
    bytes.chunks_mut(PAGE).enumerate().for_each(|(number, page)| fill(page, number));
    let (pages, ended) = (size / PAGE / THREADS, AtomicBool::new(false));
    thread::scope(|scope| {
        for (index, part) in bytes.chunks_mut(pages * PAGE).enumerate() {
            let ended = &ended;
            scope.spawn(move || write(part, index * pages, ended));
        }
        let mut forked = Ok(());
        for _ in 0..children {
            thread::sleep(PAUSE);
            forked = forked.and_then(|()| fork_one());
        }
        ended.store(true, Ordering::Relaxed);
        forked
    })?;
    let mut expected = [0; PAGE];
    for (number, page) in bytes.chunks(PAGE).enumerate() {
        fill(&mut expected, number);
        assert!(page == expected, "page {number} is wrong");
    }
    println!("brief: OK {children} children");
    Ok(())
}
