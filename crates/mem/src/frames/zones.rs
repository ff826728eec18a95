//! Both zones, each behind its lock, and what goes between a zone and the rest of the allocator:
//! frames for the list of a processor, blocks that come online, and figures.
//!
//! Invariant: no two zones are locked together but by [`Zones::lock_both`].

use coldpress_sys::page::FRAMES_PER_BLOCK;
use coldpress_sys::sync::{SpinGuard, SpinLock};
use coldpress_sys::{Bytes, PageCount};

use super::blocks::BlockState;
use super::spans::Spans;
use super::zone::{Chunk, Locked, Zone};
use super::{BATCH, Mobility};
use crate::percpu::CpuLists;

/// The zones of an allocator, by [`Mobility`].
pub(super) struct Zones([SpinLock<Zone>; 2]);

impl Zones {
    /// Makes zones without blocks.
    pub(super) const fn new() -> Self {
        Self([const { SpinLock::new(Zone::EMPTY) }; 2])
    }

    /// Locks both zones, for `init` alone.
    pub(super) fn lock_both(&self) -> [SpinGuard<'_, Zone>; 2] {
        Mobility::ALL.map(|name| self.0[name as usize].lock())
    }

    /// Locks a zone.
    pub(super) fn lock<'a>(&'a self, spans: &'a Spans, name: Mobility) -> Locked<'a> {
        Locked { zone: self.0[name as usize].lock(), name, tables: &spans.tables }
    }

    /// Locks the zone of a frame that is not free: such a frame's block stays in its zone.
    pub(super) fn lock_of<'a>(&'a self, spans: &'a Spans, frame: u32) -> Locked<'a> {
        let (BlockState::Live(name) | BlockState::Isolated(name)) =
            spans.tables.block_of(frame).state()
        else {
            panic!("frame {frame} is not of a block in use");
        };
        self.lock(spans, name)
    }

    /// Returns the sum of a figure over the zones.
    pub(super) fn sum(&self, figure: impl Fn(&Zone) -> usize) -> PageCount {
        PageCount(self.0.iter().map(|zone| figure(&zone.lock())).sum())
    }

    /// Returns the memory that is online.
    pub(super) fn online(&self) -> Bytes {
        self.sum(|zone| zone.online).bytes()
    }

    /// Takes a frame from a zone, and fills this processor's list of the zone on the way.
    pub(super) fn refill(&self, lists: &CpuLists, spans: &Spans, name: Mobility) -> Option<u32> {
        let mut zone = self.lock(spans, name);
        // Without a list, exactly one frame is taken.
        let mut wanted = if lists.is_ready() { BATCH } else { 1 };
        let mut first = None;
        while wanted > 0
            && let Some(chunk) = zone.take_up_to(wanted.ilog2() as u8)
        {
            wanted -= chunk.len();
            for frame in chunk.frames() {
                if first.is_none() {
                    first = Some(frame);
                } else if !lists.push(name as usize, frame) {
                    zone.put(Chunk::frame(frame));
                    wanted = 0;
                }
            }
        }
        first
    }

    /// Frees a frame, and with it others from this processor's list of its zone.
    pub(super) fn spill(&self, lists: &CpuLists, spans: &Spans, frame: u32) {
        let mut zone = self.lock_of(spans, frame);
        let mut frames = [frame; BATCH];
        let mut count = 1;
        while count < BATCH
            && let Some(frame) = lists.pop(zone.name as usize)
        {
            frames[count] = frame;
            count += 1;
        }
        zone.put_all(&mut frames[..count]);
    }

    /// Puts the blocks that are Adding into a zone.
    pub(super) fn add(&self, spans: &Spans, name: Mobility) {
        let mut zone = self.lock(spans, name);
        for (index, block) in spans.tables.blocks().iter().enumerate() {
            if block.state() == BlockState::Adding {
                zone.make_fresh(index);
                zone.zone.online += FRAMES_PER_BLOCK;
            }
        }
    }
}
