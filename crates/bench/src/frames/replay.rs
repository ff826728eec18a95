//! Replays of several traces at once on one allocator of frames, and the whole huge pages that it
//! has left.
//!
//! The course is that of the mail on fragmentation. Programs run at once. Huge pages are asked for
//! while they run, when all have ended, and after a sweep that fills and frees all memory that can
//! be reclaimed.
//!
//! 1. Every frame handed out is in `chunks` once; at the end all are back ([`Replay::end`]).
//! 2. Asking for huge pages takes only free memory and gives all of it back.

use std::collections::HashMap;

use super::trace::{Event, Trace};
use super::{BLOCK_FRAMES, BLOCK_ORDER, FrameSource, Mobility};
use crate::random::Random;

/// Several traces put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    /// The events of all traces, each trace's in its own order; ids are places from 0 without
    /// holes.
    events: Vec<Event>,
    places: usize,
    /// The most frames allocated at a time, and the most core frames.
    peak: usize,
    core_peak: usize,
}

impl Mix {
    /// Interleaves the traces as `seed` says: all run from beginning to end, each at about its own
    /// share of the speed.
    pub(crate) fn new(traces: &[&Trace], seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut rest: Vec<&[Event]> = traces.iter().map(|trace| trace.events()).collect();
        let mut names: Vec<HashMap<u32, u32>> = vec![HashMap::new(); traces.len()];
        let mut left: usize = rest.iter().map(|events| events.len()).sum();
        let mut mix = Self { events: Vec::new(), places: 0, peak: 0, core_peak: 0 };
        let mut spare = Vec::new();
        while left > 0 {
            let mut ticket = random.below(left);
            let mut program = 0;
            while ticket >= rest[program].len() {
                ticket -= rest[program].len();
                program += 1;
            }
            let (event, others) = rest[program].split_first().expect("the ticket is one of these");
            (rest[program], left) = (others, left - 1);
            let event = match *event {
                Event::Alloc { id, order, mobility } => {
                    let place = spare.pop().unwrap_or(mix.places as u32);
                    mix.places = mix.places.max(place as usize + 1);
                    names[program].insert(id, place);
                    Event::Alloc { id: place, order, mobility }
                }
                Event::Free { id, order } => {
                    let place = names[program].remove(&id).expect("a trace frees what it has");
                    spare.push(place);
                    Event::Free { id: place, order }
                }
            };
            mix.events.push(event);
        }
        mix.find_peaks();
        mix
    }

    fn find_peaks(&mut self) {
        let (mut alive, mut core) = (0, 0);
        let mut is_core = vec![false; self.places];
        for event in &self.events {
            match *event {
                Event::Alloc { id, order, mobility } => {
                    is_core[id as usize] = mobility == Mobility::Core;
                    alive += 1_usize << order;
                    core += (1 << order) * usize::from(is_core[id as usize]);
                }
                Event::Free { id, order } => {
                    alive -= 1 << order;
                    core -= (1 << order) * usize::from(is_core[id as usize]);
                }
            }
            self.peak = self.peak.max(alive);
            self.core_peak = self.core_peak.max(core);
        }
    }

    /// Returns the events.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the number of blocks that hold everything with a sixteenth to spare, and the number
    /// of blocks for the core zone, an eighth more than its frames ever need.
    pub(crate) fn blocks(&self) -> (usize, usize) {
        let core = (self.core_peak * 9 / 8).div_ceil(BLOCK_FRAMES).max(1);
        ((self.peak * 17 / 16).div_ceil(BLOCK_FRAMES).max(core + 1), core)
    }
}

/// The memory found when huge pages were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The number of huge pages that were available.
    pub(crate) blocks: usize,
    /// The number of free frames before.
    pub(crate) free: usize,
}

impl Asked {
    /// Returns the share of free memory that was whole blocks, in percent.
    pub(crate) fn share(self) -> f64 {
        100.0 * (self.blocks * BLOCK_FRAMES) as f64 / self.free.max(1) as f64
    }
}

/// The memory found at the three times of asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Course {
    /// The memory halfway, while all programs run.
    pub(crate) during: Asked,
    /// The memory when all programs have ended.
    pub(crate) before: Asked,
    /// The memory after the sweep.
    pub(crate) after: Asked,
    /// The number of allocations that failed; with the sizes of [`Mix::blocks`] none fails.
    pub(crate) refused: usize,
}

/// A chunk in use.
#[derive(Clone, Copy)]
struct Chunk {
    frame: u32,
    order: u8,
    mobility: Mobility,
}

/// A replay on one allocator.
pub(crate) struct Replay<'a> {
    source: &'a dyn FrameSource,
    chunks: Vec<Option<Chunk>>,
    refused: usize,
    free_at_first: usize,
}

impl<'a> Replay<'a> {
    /// Makes a replay of `mix` on `source`, which must have no other user.
    pub(crate) fn new(mix: &Mix, source: &'a dyn FrameSource) -> Self {
        let free_at_first = source.free_frames();
        Self { source, chunks: vec![None; mix.places], refused: 0, free_at_first }
    }

    /// Runs the whole course; with `moving`, frames are moved out of the way before each asking.
    pub(crate) fn course(mut self, mix: &Mix, moving: bool) -> Course {
        let (first, second) = mix.events.split_at(mix.events.len() / 2);
        self.play(first);
        let during = self.ask(moving);
        self.play(second);
        let before = self.ask(moving);
        self.sweep();
        let after = self.ask(moving);
        let refused = self.refused;
        self.end();
        Course { during, before, after, refused }
    }

    /// Replays events. A chunk that is not available is left out, and so is its free.
    #[inline(never)]
    pub(crate) fn play(&mut self, events: &[Event]) {
        for event in events {
            match *event {
                Event::Alloc { id, order, mobility } => {
                    let chunk = self.source.alloc(mobility, order).map(|frame| {
                        if mobility == Mobility::EasyReclaim && order == 0 {
                            // SAFETY: `alloc` has just returned the frame; `ask` moves every chunk.
                            unsafe { self.source.set_owner(frame, id) };
                        }
                        Chunk { frame, order, mobility }
                    });
                    self.refused += usize::from(chunk.is_none());
                    self.chunks[id as usize] = chunk;
                }
                Event::Free { id, .. } => self.free(id as usize),
            }
        }
    }

    fn free(&mut self, place: usize) {
        if let Some(Chunk { frame, order, .. }) = self.chunks[place].take() {
            // SAFETY: the chunk came from this source with this order, and `take` has removed the
            // only note of it.
            unsafe { self.source.free(frame, order) };
        }
    }

    /// Takes every available huge page, and gives them back.
    fn ask(&mut self, moving: bool) -> Asked {
        let source = self.source;
        source.drain();
        if moving {
            let chunks = &mut self.chunks;
            let mut migrate = |from, to, owner: u32| match &mut chunks[owner as usize] {
                Some(chunk) if chunk.frame == from => {
                    chunk.frame = to;
                    true
                }
                _ => false,
            };
            // SAFETY: `play` sets no owner but the place of a chunk, and `self` is borrowed for as
            // long as this takes.
            unsafe { source.compact(&mut migrate) };
        }
        let free = source.free_frames();
        let blocks = fill(source, BLOCK_ORDER);
        let asked = Asked { blocks: blocks.len(), free };
        empty(source, &blocks, BLOCK_ORDER);
        asked
    }

    /// Fills all memory with reclaimable frames, then frees these and all other reclaimable frames.
    fn sweep(&mut self) {
        let filling = fill(self.source, 0);
        for place in 0..self.chunks.len() {
            if self.chunks[place].is_some_and(|chunk| chunk.mobility == Mobility::EasyReclaim) {
                self.free(place);
            }
        }
        empty(self.source, &filling, 0);
    }

    /// Frees all that is left. Panics when a frame was lost on the way.
    pub(crate) fn end(mut self) {
        (0..self.chunks.len()).for_each(|place| self.free(place));
        self.source.drain();
        self.source.check();
        assert_eq!(self.source.free_frames(), self.free_at_first, "every frame came back");
    }
}

/// Allocates every easily reclaimed chunk of `order` that is available.
fn fill(source: &dyn FrameSource, order: u8) -> Vec<u32> {
    std::iter::from_fn(|| source.alloc(Mobility::EasyReclaim, order)).collect()
}

/// Frees the chunks that [`fill`] has allocated.
fn empty(source: &dyn FrameSource, chunks: &[u32], order: u8) {
    for chunk in chunks {
        // SAFETY: `fill` allocated each chunk with this order, and no other code knows of the
        // chunks.
        unsafe { source.free(*chunk, order) };
    }
}

#[cfg(test)]
mod tests;
