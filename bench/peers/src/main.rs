//! Compares coldpress's slab and frame allocator with other allocators, in one run.
//!
//! `make bench` builds this command with `--features all`. A note names each allocator that is left
//! out because it is not built in or not installed.

mod tcmalloc;

use std::alloc::System;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use coldpress_bench::allocators::{
    Contestant, Nothing, Scale, Work, contest, frame_works, object_works,
};
use coldpress_bench::machine::Machine;
use coldpress_bench::ours;
use coldpress_bench::report::{Report, document, keep, text};
use coldpress_sys::Bytes;

use tcmalloc::TcMalloc;

/// The name of coldpress's allocators in tables.
const OURS: &str = "coldpress";
/// The memory for the works with frames, which need 4 MiB of it.
const FRAMES: Bytes = Bytes::mib(64);

/// coldpress's allocators beside others: the same work, in turn, within one run.
#[derive(Debug, Parser)]
#[command(name = "coldpress-peers", version)]
struct Args {
    /// Rounds; every allocator has a turn in each
    #[arg(long, value_name = "N", default_value_t = 15,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// Little work, to see that everything runs; its times say nothing
    #[arg(long)]
    small: bool,

    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,

    /// Directory for the figures; each processor gets a folder, each date and commit two files
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coldpress-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let machine = Machine::look();
    let scale = if args.small { Scale::SMALL } else { Scale::FULL };
    let heap = ours::heap().map_err(|error| format!("no heap: {error}"))?;
    let frames = ours::order_0_frames(FRAMES).map_err(|error| format!("no frames: {error}"))?;
    let tcmalloc = TcMalloc::load();
    if let Err(error) = &tcmalloc {
        eprintln!("coldpress-peers: without tcmalloc: {error}");
    }
    let mut peers = linked();
    let entry = |allocator| Contestant { name: "tcmalloc", allocator, is_peer: true };
    peers.extend(tcmalloc.as_ref().ok().map(|allocator| entry(allocator)));
    peers.push(Contestant { name: "nothing", allocator: &Nothing, is_peer: false });
    let with = |own| {
        let own = Contestant { name: OURS, allocator: own, is_peer: true };
        std::iter::once(own).chain(peers.iter().copied()).collect::<Vec<_>>()
    };
    let reports = [
        report("slab-peers", SLAB, &object_works(scale), &with(heap), args.rounds),
        report("frames-peers", PAGES, &frame_works(scale), &with(&frames), args.rounds),
    ];
    print!("{}", if args.json { document(&machine, &reports) } else { text(&machine, &reports) });
    let Some(out) = &args.out else { return Ok(()) };
    let kept = keep(out, "-peers", &machine, &reports).map_err(|error| error.to_string())?;
    kept.iter().for_each(|path| eprintln!("coldpress-peers: wrote {}", path.display()));
    Ok(())
}

const SLAB: &str = "\
An object is allocated, a word is written to it, and it is freed. Every allocator is called\n\
through its table of functions; `nothing` is that call and the loop alone.";
const PAGES: &str = "\
Order-0 frames by number, beside 4 KiB aligned to 4 KiB from the others; nobody touches them. The\n\
registry has no crate `llfree` to compare with.";

fn report(
    name: &'static str,
    about: &str,
    works: &[Work],
    contestants: &[Contestant<'_>],
    rounds: u32,
) -> Report {
    eprintln!("coldpress-peers: {name}, {rounds} rounds");
    let outcome = contest(works, contestants, rounds, OURS);
    Report {
        name,
        about: format!("{about}\nMedians of {rounds} rounds; all took turns in each."),
        tables: outcome.tables,
        goals: outcome.goals,
        numbers: outcome.numbers,
    }
}

/// Returns the peers that are linked into this command.
fn linked() -> Vec<Contestant<'static>> {
    vec![
        Contestant { name: "glibc", allocator: &System, is_peer: true },
        #[cfg(feature = "jemalloc")]
        Contestant { name: "jemalloc", allocator: &tikv_jemallocator::Jemalloc, is_peer: true },
        #[cfg(feature = "mimalloc")]
        Contestant { name: "mimalloc", allocator: &mimalloc::MiMalloc, is_peer: true },
        #[cfg(feature = "snmalloc")]
        Contestant { name: "snmalloc", allocator: &snmalloc_rs::SnMalloc, is_peer: true },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn a_small_run_measures_all_there_is() {
        Args::command().debug_assert();
        let args = Args::parse_from(["coldpress-peers", "--small", "--rounds", "1", "--json"]);
        run(&args).unwrap();
    }
}
