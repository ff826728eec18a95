//! `first_touch`: maps memory and touches every page as fast as it can, then checks all of it.
//!
//!     first_touch [--bytes TOTAL] [--threads T] [--mode one|filled|trimmed|many|heap] [--leave]
//!
//! `one` is one mapping. `filled` is one that the kernel is asked to fill at once. `trimmed` is one
//! whose latter half is given back at once. `many` are mappings of 1 MiB. `heap` are vectors of 64
//! KiB, which malloc takes from the break in the main thread and from arenas in others. Each page
//! holds its number. With `--leave` another thread does all of this, and the process's first thread
//! ends at once.
#![allow(clippy::undocumented_unsafe_blocks, reason = "each thread writes its own mappings only")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../program/mod.rs"]
mod program;

use std::process::ExitCode;

use program::args::Args;
use program::random::mix;
use program::{PAGE, raw};

/// Bytes of a mapping of `--mode many`.
const PIECE: usize = 1 << 20;
/// Bytes of a vector of `--mode heap`: below malloc's threshold for a mapping of its own.
const CHUNK: usize = 64 << 10;

/// The memory that a thread has touched: vectors live until the check.
enum Touched {
    /// Addresses of mappings, and the bytes of each mapping.
    Mapped(Vec<usize>, usize),
    Heap(Vec<Vec<u8>>),
}

fn main() -> ExitCode {
    let args = Args::parse(&["leave"], &["bytes", "threads", "mode"]);
    if !args.has("leave") {
        return touch_all(&args);
    }
    std::thread::spawn(move || {
        std::process::exit(i32::from(touch_all(&args) != ExitCode::SUCCESS))
    });
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("the thread has ended");
}

fn touch_all(args: &Args) -> ExitCode {
    let threads = args.value("threads", 1usize).max(1);
    let share = (args.bytes("bytes", 256 << 20) / threads).next_multiple_of(PIECE);
    let mode = args.text("mode").unwrap_or("one").to_owned();
    // The main thread takes the first share: only there malloc grows by the break.
    let digests = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|thread| {
                let mode = &mode;
                scope.spawn(move || work(thread, share, mode))
            })
            .collect();
        let mut digests = vec![work(0, share, &mode)];
        digests.extend(others.into_iter().map(|other| other.join().ok().flatten()));
        digests
    });
    let Some(digest) = digests.into_iter().try_fold(0, |all, one| one.map(|one| all ^ one)) else {
        eprintln!("first_touch: FAILED");
        return ExitCode::FAILURE;
    };
    println!("first_touch: OK digest={digest:016x}");
    ExitCode::SUCCESS
}

/// Does one thread's share: touches, then checks. `None` after a mismatch, which has been reported.
fn work(thread: usize, share: usize, mode: &str) -> Option<u64> {
    let first = (thread * (share / PAGE)) as u64;
    let touched = match mode {
        "one" => touch_mapped(first, share, share, 0),
        "filled" => touch_mapped(first, share, share, libc::MAP_POPULATE),
        "trimmed" => touch_trimmed(first, share),
        "many" => touch_mapped(first, share, PIECE, 0),
        "heap" => touch_heap(first, share),
        _ => {
            eprintln!("first_touch: unknown mode {mode:?}");
            std::process::exit(2);
        }
    };
    check(first, &touched)
}

fn touch_mapped(mut number: u64, share: usize, piece: usize, flags: i32) -> Touched {
    let mut addrs = Vec::new();
    for _ in 0..share / piece {
        let addr = map(piece, flags);
        number = touch(addr, piece, number);
        addrs.push(addr);
    }
    Touched::Mapped(addrs, piece)
}

fn touch_trimmed(number: u64, share: usize) -> Touched {
    let addr = map(2 * share, 0);
    unsafe { raw::unmap(addr + share, share) }.expect("cannot unmap");
    touch(addr, share, number);
    Touched::Mapped(vec![addr], share)
}

fn map(bytes: usize, flags: i32) -> usize {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    unsafe { raw::map_at(0, bytes, both, flags) }.expect("cannot map")
}

/// Writes `number` to the first page, and so on. Returns the number after the last.
fn touch(addr: usize, bytes: usize, mut number: u64) -> u64 {
    for at in (addr..addr + bytes).step_by(PAGE) {
        unsafe { raw::pointer(at).cast::<u64>().write_volatile(number) };
        number += 1;
    }
    number
}

fn touch_heap(mut number: u64, share: usize) -> Touched {
    let mut chunks = Vec::new();
    for _ in 0..share / CHUNK {
        let mut chunk: Vec<u8> = Vec::with_capacity(CHUNK);
        for _ in 0..CHUNK / PAGE {
            chunk.extend_from_slice(&number.to_le_bytes());
            chunk.resize(chunk.len() + PAGE - 8, 0);
            number += 1;
        }
        chunks.push(chunk);
    }
    Touched::Heap(chunks)
}

/// Checks that every page holds its number and is otherwise zero.
fn check(first: u64, touched: &Touched) -> Option<u64> {
    let pieces: Vec<&[u8]> = match touched {
        Touched::Mapped(addrs, piece) => {
            addrs.iter().map(|addr| unsafe { raw::bytes(*addr, *piece) }).collect()
        }
        Touched::Heap(chunks) => chunks.iter().map(Vec::as_slice).collect(),
    };
    let mut digest = 0;
    let pages = pieces.iter().flat_map(|piece| piece.chunks_exact(PAGE));
    for (wanted, page) in (first..).zip(pages) {
        let (head, rest) = page.split_at(8);
        let number = u64::from_le_bytes(head.try_into().expect("eight bytes"));
        if number != wanted || rest.iter().any(|byte| *byte != 0) {
            eprintln!("first_touch: page {wanted} at {:p} holds {number}", page.as_ptr());
            return None;
        }
        digest ^= mix(number);
    }
    Some(digest)
}
