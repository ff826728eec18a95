//! `moves`: moves ranges of several mappings at once, and checks every byte.
//!
//!     moves [--bytes PRESSURE] [--rounds R]
//!
//! A range is a small mapping and a large one, which coldpress treats differently, and a read-only
//! one. Linux moves them by one call since 6.17; before, it refuses and must have moved none.
//! Between moves the program fills memory, so that pages of the ranges go away.
#![allow(clippy::undocumented_unsafe_blocks, reason = "one thread moves its own mappings")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../program/mod.rs"]
mod program;

use std::process::ExitCode;

use program::args::Args;
use program::random::mix;
use program::{PAGE, raw};

/// Pages of the three mappings.
const PIECES: [usize; 3] = [4, 512, 64];
const PAGES: usize = PIECES[0] + PIECES[1] + PIECES[2];
const MOVES: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

fn main() -> ExitCode {
    let args = Args::parse(&[], &["bytes", "rounds"]);
    let bytes = args.bytes("bytes", 64 << 20);
    let rounds = args.value("rounds", 6_usize);
    let pressure = raw::map(bytes).expect("cannot map");
    let (mut wrong, mut refused) = (0, 0);
    for round in 0..rounds {
        fill(pressure, bytes / PAGE, round);
        let start = range();
        fill(start, PAGES, round);
        let read_only = start + (PIECES[0] + PIECES[1]) * PAGE;
        unsafe { raw::protect(read_only, PIECES[2] * PAGE, libc::PROT_READ) }.expect("mprotect");
        fill(pressure, bytes / PAGE, round);
        let target = room();
        let moved = unsafe { raw::remap(start, PAGES * PAGE, PAGES * PAGE, MOVES, target) };
        refused += usize::from(moved.is_err());
        let at = moved.unwrap_or(start);
        wrong += (0..PAGES).filter(|page| !is_right(at, *page, round)).count();
        unsafe { raw::unmap(at, PAGES * PAGE) }.expect("munmap");
    }
    eprintln!("moves: {refused} of {rounds} refused");
    println!("moves: {wrong} pages are wrong");
    ExitCode::from(u8::from(wrong > 0))
}

/// Maps room for a range, with nothing in it.
fn room() -> usize {
    unsafe { raw::map_at(0, PAGES * PAGE, libc::PROT_NONE, 0) }.expect("cannot map")
}

/// Makes a range, its mappings one by one.
fn range() -> usize {
    let start = room();
    let mut at = start;
    for pages in PIECES {
        unsafe { raw::map_at(at, pages * PAGE, READ_WRITE, libc::MAP_FIXED) }.expect("cannot map");
        at += pages * PAGE;
    }
    start
}

fn word(start: usize, page: usize) -> *mut u64 {
    raw::pointer(start + page * PAGE).cast()
}

fn fill(start: usize, pages: usize, round: usize) {
    (0..pages)
        .for_each(|page| unsafe { word(start, page).write(mix((page ^ round << 32) as u64)) });
}

fn is_right(start: usize, page: usize, round: usize) -> bool {
    unsafe { word(start, page).read() == mix((page ^ round << 32) as u64) }
}
