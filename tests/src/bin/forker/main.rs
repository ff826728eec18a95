//! `forker`: makes processes in every way a program can while most of its memory is cold.
//!
//!     forker [--bytes TOTAL] [--rounds N] [--seconds AT_LEAST] [--writers N]
//!
//! Each round and way: walk other memory (so that the data goes cold), write into a stdio stream
//! without flushing, make the child, let it check, change and check the data, then check that the
//! parent's data and the stream hold exactly what they must.
//!
//! 1. Half of the data is one mapping, half are `malloc` chunks on the heap behind the stream.
//! 2. In odd rounds other threads rewrite memory of their own the whole time.
#![allow(clippy::undocumented_unsafe_blocks, reason = "process creation is raw by nature")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

mod data;
mod log;
#[path = "../../program/mod.rs"]
mod program;
mod ways;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use data::Data;
use log::Log;
use program::args::Args;
use program::random::mix;
use program::{PAGE, raw};
use ways::Way;

/// Status of a child that found everything right.
const CHILD_OK: i32 = 42;

fn main() -> ExitCode {
    if let Some(status) = ways::as_helper() {
        return status;
    }
    let args = Args::parse(&[], &["bytes", "rounds", "seconds", "writers"]);
    let bytes = args.bytes("bytes", 128 << 20);
    let rounds = args.value("rounds", 3usize);
    let writers = args.value("writers", 1usize);
    let until = Instant::now() + Duration::from_secs(args.value("seconds", 0));
    // A third of the memory is for the walks; the rest is the data that must survive.
    let pressure = Pressure::new(bytes / 3);
    let mut log = Log::new();
    let mut data = Data::new(bytes - bytes / 3);
    let mut failed = 0;
    for round in (0..).take_while(|round| *round < rounds || Instant::now() < until) {
        let writers = if round % 2 == 1 { writers } else { 0 };
        let busy: Vec<_> = (0..writers).map(|_| Busy::start(bytes / 16 / writers)).collect();
        for way in Way::ALL {
            pressure.walk();
            let result = one(*way, round, &mut data, &mut log);
            match result {
                Ok(()) => println!("ok {way:?} round {round}"),
                Err(text) => {
                    println!("FAIL {way:?} round {round}: {text}");
                    failed += 1;
                }
            }
        }
        drop(busy);
    }
    if let Err(text) = data.verify() {
        println!("FAIL at the end: {text}");
        failed += 1;
    }
    if failed > 0 {
        println!("forker: {failed} failed");
        return ExitCode::FAILURE;
    }
    println!("forker: OK digest={:016x}", data.digest());
    ExitCode::SUCCESS
}

/// Makes one child in one way.
fn one(way: Way, round: usize, data: &mut Data, log: &mut Log) -> Result<(), String> {
    log.parent_line(round)?;
    if way.runs_program() {
        ways::run_helper(way, round)?;
        log.check(None)?;
    } else {
        let status = ways::with_child(way, &mut || child(way, round, data, log))?;
        if status != CHILD_OK {
            return Err(format!("child's status is {status}"));
        }
        log.check(Some(round))?;
    }
    data.verify().map_err(|text| format!("in the parent after: {text}"))?;
    // The parent goes on writing: pages that were shared with the child are copied now.
    data.rewrite(round);
    Ok(())
}

/// Does a child's work, and returns its exit status.
fn child(way: Way, round: usize, data: &mut Data, log: &mut Log) -> i32 {
    let mut work = || -> Result<(), String> {
        // The stream first: libc has reset its lock, a heap object, by now.
        log.child_line(round)?;
        data.verify().map_err(|text| format!("at its start: {text}"))?;
        data.scribble();
        data.verify_scribbled()?;
        if way.forks_again() {
            let status = ways::with_child(Way::Fork, &mut || match data.verify_scribbled() {
                Ok(()) => CHILD_OK,
                Err(text) => say(&text),
            })?;
            if status != CHILD_OK {
                return Err(format!("grandchild's status is {status}"));
            }
            data.verify_scribbled()?;
        }
        Ok(())
    };
    match work() {
        Ok(()) => CHILD_OK,
        Err(text) => say(&text),
    }
}

/// Reports what a child found wrong, past every buffer. Returns the exit status of such a child.
fn say(text: &str) -> i32 {
    let line = format!("forker: child {}: {text}\n", std::process::id());
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    1
}

/// Memory that is walked to push other memory out.
struct Pressure {
    addr: usize,
    bytes: usize,
}

impl Pressure {
    fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(PAGE);
        Self { addr: raw::map(bytes).expect("cannot map"), bytes }
    }

    /// Writes every page twice over.
    fn walk(&self) {
        for pass in 0..2 {
            for at in (self.addr..self.addr + self.bytes).step_by(PAGE) {
                let word = raw::pointer(at).cast::<u64>();
                unsafe { word.write_volatile(mix(at as u64 ^ pass)) };
            }
        }
    }
}

/// A thread that rewrites memory of its own until it is dropped. It never allocates: the child of a
/// raw fork must find malloc's locks free.
struct Busy {
    stop: &'static AtomicBool,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Busy {
    fn start(bytes: usize) -> Self {
        let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let pressure = Pressure::new(bytes);
        let thread = std::thread::spawn(move || {
            // Relaxed: nothing but the flag itself is handed over.
            while !stop.load(Ordering::Relaxed) {
                pressure.walk();
            }
            let _ = unsafe { raw::unmap(pressure.addr, pressure.bytes) };
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
