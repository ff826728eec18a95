//! Single frames: allocated and freed by number, beside pages from malloc.

use std::alloc::System;

use crate::allocators::{Contestant, Group, Nothing, Scale, contest, frame_works};
use crate::ours;
use crate::report::Goal;
use coldpress_common::failure::Result;
use coldpress_sys::Bytes;

use super::FrameCounts;
use super::options::FramesArgs;
use crate::commands::launch::failed;

/// The goal for an allocation of a frame and its free together, in nanoseconds.
const PAIR_NS_GOAL: f64 = 15.0;
/// The size of the span; the works need 4 MiB of it.
const SPAN: Bytes = Bytes::mib(64);

/// Measures single frames.
pub(super) fn measure(args: &FramesArgs) -> Result<FrameCounts> {
    let frames =
        ours::order_0_frames(SPAN).map_err(|error| failed(format!("no frames: {error}")))?;
    let contestants = [
        Contestant { name: "frames", allocator: &frames, is_peer: true },
        Contestant { name: "malloc", allocator: &System, is_peer: true },
        Contestant { name: "nothing", allocator: &Nothing, is_peer: false },
    ];
    let scale = if args.common.quick { Scale::SMALL } else { Scale::FULL };
    let works = frame_works(scale);
    let outcome = contest(&works, &contestants, args.turns(), "frames");
    let rows = works.iter().zip(&outcome.samples);
    let pairs = rows.filter(|(work, _)| work.group() == Group::Pairs);
    let goals = pairs.filter_map(|(_, row)| {
        let pair = row.first()?;
        Some(Goal {
            text: format!("a frame's allocation and free < {PAIR_NS_GOAL} ns"),
            found: format!(
                "{:.2} ns (p10 {:.2}, p90 {:.2})",
                pair.median(),
                pair.percentile(10.0),
                pair.percentile(90.0)
            ),
            met: pair.median() < PAIR_NS_GOAL,
        })
    });
    let about = format!(
        "frames of order 0 by number, never touched, beside 4 KiB aligned to 4 KiB from malloc;\n\
         `nothing` is the call and the loop alone. Medians of {} rounds in turn.",
        args.turns()
    );
    Ok(FrameCounts {
        about,
        tables: outcome.tables,
        goals: goals.collect(),
        numbers: outcome.numbers,
    })
}
