//! For tests: any bytes as operations on a pool beside its oracle.
//!
//! A fuzzer finds bytes that lead to states which random bytes do not reach; the suite runs random
//! bytes. Both use this module, so that a fuzzer's finding is a test at once.

use coldpress_sys::page::BLOCK_BYTES;

use super::pair::{Blocks, Chains, Kind, Packed, Pair, Scattered, Switched, many, two_zones};
use super::*;
use crate::frames::FrameAllocator;

/// One operation. Objects are named by numbers that wrap around.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Stores objects whose sizes start at `size` and grow by `step`.
    Store {
        size: usize,
        step: usize,
        count: usize,
    },
    Free {
        first: usize,
        count: usize,
    },
    Write(usize),
    /// Uses an object that is gone.
    UseGone(usize),
    /// Takes frames until this number is free.
    Leave(usize),
    /// Shrinks to this number of blocks.
    Shrink(usize),
    /// Adds this number of blocks.
    Grow(usize),
    /// Compacts by this number of bytes.
    Compact(usize),
    /// Switches to a pool of this kind.
    Switch(PoolKind),
    /// Allocates this number of objects of the former pool anew.
    Renew(usize),
}

/// Returns the operations that the bytes encode, up to the last whole one.
pub(super) fn steps(bytes: &[u8]) -> impl Iterator<Item = Step> {
    let mut left = bytes;
    core::iter::from_fn(move || step(&mut left))
}

/// Takes the first operation off the bytes.
fn step(bytes: &mut &[u8]) -> Option<Step> {
    let verb = byte(bytes)?;
    Some(match verb % 18 {
        0..5 => Step::Store {
            size: number(bytes)? % 4096 + 1,
            // Half of these steps have objects of one size.
            step: (byte(bytes)? % 80).saturating_sub(40),
            count: byte(bytes)? % many(120) + 1,
        },
        5..9 => Step::Free { first: number(bytes)?, count: byte(bytes)? % many(150) + 1 },
        9 => Step::Write(number(bytes)?),
        10 => Step::UseGone(byte(bytes)?),
        11 => Step::Leave(match byte(bytes)? {
            few @ 100.. if !cfg!(miri) => (few - 100) * 2,
            _ => usize::MAX,
        }),
        12 => Step::Shrink(byte(bytes)? % 12),
        13 => Step::Grow(byte(bytes)? % 5 + 1),
        14 | 15 => Step::Compact(match number(bytes)? {
            budget if budget < 40_000 => budget,
            _ => usize::MAX,
        }),
        16 => Step::Switch(PoolKind::ALL[byte(bytes)? % PoolKind::ALL.len()]),
        _ => Step::Renew(number(bytes)? % many(1000)),
    })
}

fn byte(bytes: &mut &[u8]) -> Option<usize> {
    bytes.split_off_first().map(|byte| usize::from(*byte))
}

fn number(bytes: &mut &[u8]) -> Option<usize> {
    Some(byte(bytes)? << 8 | byte(bytes)?)
}

/// Takes the steps, and compares everything with the oracle after each.
pub(super) fn run<K: Kind>(steps: impl IntoIterator<Item = Step>) {
    let frames = two_zones();
    let mut pair = Pair::<K>::new(&frames);
    for step in steps {
        take(&frames, &mut pair, step);
        pair.check();
    }
    pair.finish();
}

fn take<K: Kind>(frames: &FrameAllocator, pair: &mut Pair<'_, K>, step: Step) {
    match step {
        Step::Store { size, step, count } => {
            for index in 0..count {
                if !pair.store(Bytes((size + index * step - 1) % 4096 + 1)) {
                    break;
                }
            }
        }
        Step::Free { first, count } => {
            for turn in 0..count.min(pair.held.len()) {
                pair.free(first.wrapping_add(turn * 13) % pair.held.len());
            }
        }
        Step::Write(which) if !pair.held.is_empty() => pair.write(which % pair.held.len()),
        Step::Write(_) => {}
        Step::UseGone(which) => pair.use_gone(which),
        Step::Leave(free) => pair.hog.leave(free),
        Step::Shrink(blocks) => {
            let shrunk = pair.pool.shrink_frames(Bytes(blocks * BLOCK_BYTES));
            assert_eq!(shrunk.online, frames.online());
        }
        Step::Grow(blocks) => drop(frames.grow(Bytes(blocks * BLOCK_BYTES))),
        Step::Compact(budget) => drop(pair.pool.compact(Bytes(budget))),
        Step::Switch(kind) => pair.switch(kind),
        Step::Renew(count) => pair.renew(count),
    }
}

/// Takes the steps that the bytes encode, on the pool that the first byte encodes. Panics when the
/// pool does anything that its oracle does not.
pub fn run_bytes(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let steps = steps(bytes);
    match kind % 9 {
        0 => run::<Chains<1>>(steps),
        1 => run::<Chains<4>>(steps),
        2 => run::<Chains<16>>(steps),
        3 => run::<Blocks>(steps),
        4 => run::<Scattered<1, 256, 2>>(steps),
        5 => run::<Scattered<2, 64, 1>>(steps),
        6 => run::<Scattered<4, 16, 1>>(steps),
        7 => run::<Packed>(steps),
        _ => run::<Switched>(steps),
    }
}
