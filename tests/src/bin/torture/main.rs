//! `torture`: threads map, unmap, move, advise, protect and rewrite memory at random while every
//! byte of every page is checked against what its last writer must have left there.
//!
//!     torture [--seconds S | --ops N] [--seed N] [--bytes TOTAL] [--threads T]
//!             [--self-test] [--no-free]
//!
//! The idea: one thread at a time owns a region, and regions travel between threads through one
//! queue. So the thread that unmaps is rarely the one that mapped, and addresses find new tenants
//! at once. What a page holds is derived from a 16-byte tag (`program::pattern`).
//!
//! 1. Threads take regions from the queue's back (lately used, by a skewed random choice) and from
//!    its front (longest unused): hot reuse and full sweeps together.
//! 2. About `--bytes` of written pages are alive at any time.
//! 3. With `--no-free`, one thread and `--ops`, runs with one seed end with one digest.
//! 4. The first mismatch ends the program with status 1 and a report; `--self-test` plants one.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "raw calls on ranges the region owns; `program::raw` states the contract once"
)]
#![allow(unreachable_pub, reason = "a program's modules; the shared ones serve several programs")]

mod breaks;
mod create;
mod ops;
#[path = "../../program/mod.rs"]
mod program;
mod region;
mod remaps;
mod report;
mod shared;
mod world;

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::program::args::Args;
use ops::Worker;
use world::{Limit, World};

fn main() -> ExitCode {
    let args =
        Args::parse(&["self-test", "no-free"], &["seconds", "ops", "seed", "bytes", "threads"]);
    let seed = args.value("seed", 1u64);
    let bytes = args.bytes("bytes", 500 << 20);
    let threads = args.value("threads", 4usize).max(1);
    let limit = if args.has("ops") {
        Limit::Visits(args.value("ops", 0))
    } else {
        Limit::Time(Duration::from_secs_f64(args.value("seconds", 10.0)))
    };
    println!("torture: seed={seed} bytes={bytes} threads={threads}");
    let mut world = World::new(seed, bytes, threads, limit, args.has("self-test"));
    world.lazy_free = !args.has("no-free");
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=threads)
            .map(|thread| {
                let world = &world;
                scope.spawn(move || Worker::new(world, thread).run())
            })
            .collect();
        // The break belongs to the main thread alone: malloc's main arena moves it too.
        breaks::run(&world);
        for worker in workers {
            world.shared.add_tally(worker.join().expect("a worker reports and exits by itself"));
        }
    });
    let digest = finish(&world);
    println!(
        "torture: OK ops={} bytes_checked={} live_peak={} retenanted={} remap_refused={} \
         digest={digest:016x}",
        world.operations.load(Ordering::Relaxed),
        world.bytes_checked.load(Ordering::Relaxed),
        world.live_peak.load(Ordering::Relaxed),
        world.retenanted.load(Ordering::Relaxed),
        world.remap_refused.load(Ordering::Relaxed),
    );
    ExitCode::SUCCESS
}

/// Does the last sweep: checks and frees every region, and folds what was read into a digest.
fn finish(world: &World) -> u64 {
    let mut worker = Worker::new(world, 0);
    let mut digest = world.shared.finish(world);
    while let Some(mut region) = world.take_oldest() {
        worker.verify(&mut region);
        digest ^= worker.digest(&region);
        worker.destroy(region);
    }
    if world.self_test {
        eprintln!("torture: self-test FAILED: the planted byte was not found");
        std::process::exit(1);
    }
    digest
}
