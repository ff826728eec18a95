//! `coldpress-bench slab`: the slab beside the system's malloc, in one run. `bench/peers` has the
//! other allocators.

use std::alloc::System;

use crate::allocators::{Contestant, Nothing, Scale, contest, object_works};
use crate::ours;
use crate::report::Report;
use clap::Args;
use coldpress_common::failure::Result;

use super::common::{Common, Rounds};
use super::launch::failed;
use crate::progress::note;

/// The name of coldpress's slab in tables.
const OURS: &str = "slab";

/// The options of `coldpress-bench slab`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SlabArgs {
    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl SlabArgs {
    /// Returns the number of rounds.
    fn turns(&self) -> u32 {
        self.rounds.or(15, &self.common)
    }
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(args: &SlabArgs) -> Result<Report> {
    note(format!("slab: {} rounds", args.turns()));
    let heap = ours::heap().map_err(|error| failed(format!("no heap: {error}")))?;
    let contestants = [
        Contestant { name: OURS, allocator: heap, is_peer: true },
        Contestant { name: "malloc", allocator: &System, is_peer: true },
        Contestant { name: "nothing", allocator: &Nothing, is_peer: false },
    ];
    let scale = if args.common.quick { Scale::SMALL } else { Scale::FULL };
    let outcome = contest(&object_works(scale), &contestants, args.turns(), OURS);
    let about = format!(
        "An object is allocated, a word is written to it, and it is freed; each call through a\n\
         table of functions. `nothing` is that call and the loop alone. Medians of {} rounds in \
         turn.",
        args.turns()
    );
    let (tables, goals) = (outcome.tables, outcome.goals);
    Ok(Report { name: "slab", about, tables, goals, numbers: outcome.numbers })
}
