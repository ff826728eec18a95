//! `dropper`: one thread drops memory of its own without end, while another touches random cold
//! pages and checks them.
//!
//!     dropper [--bytes TOTAL] [--touches N] [--seconds S]
//!
//! Prints `dropper: OK`, or `dropper: FAILED` when a page is wrong, or when N touches take longer
//! than S seconds.
#![allow(clippy::undocumented_unsafe_blocks, reason = "each thread has its own mapping")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../program/mod.rs"]
mod program;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use program::args::Args;
use program::random::mix;
use program::{PAGE, raw};

/// Bytes dropped at a time; below, the mapping they are of: large enough to be managed.
const DROPPED: usize = 64 << 10;
const MAPPED: usize = 1 << 20;

fn main() -> ExitCode {
    let args = Args::parse(&[], &["bytes", "touches", "seconds"]);
    let bytes = args.bytes("bytes", 48 << 20);
    let limit = Duration::from_secs(args.value("seconds", 30));
    let data = raw::map(bytes).expect("cannot map");
    let word = |page: usize| raw::pointer(data + page * PAGE).cast::<u64>();
    for page in 0..bytes / PAGE {
        unsafe { word(page).write_volatile(mix(page as u64)) };
    }
    let is_over = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| drop_until(&is_over));
        let begun = Instant::now();
        let touched = (0..args.value("touches", 5_000_u64)).all(|number| {
            let page = mix(number) as usize % (bytes / PAGE);
            let is_right = unsafe { word(page).read_volatile() } == mix(page as u64);
            is_right && begun.elapsed() < limit
        });
        // Relaxed: the join of the threads orders everything.
        is_over.store(true, Ordering::Relaxed);
        touched
    });
    println!("dropper: {}", if found { "OK" } else { "FAILED" });
    if found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn drop_until(is_over: &AtomicBool) {
    let own = raw::map(MAPPED).expect("cannot map");
    unsafe { raw::pointer(own).write_bytes(1, MAPPED) };
    // Relaxed: as above.
    while !is_over.load(Ordering::Relaxed) {
        unsafe { libc::madvise(raw::pointer(own).cast(), DROPPED, libc::MADV_DONTNEED) };
    }
}
