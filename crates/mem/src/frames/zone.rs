//! A zone: blocks whose free frames are kept as chunks of 2^order, split and merged as buddies
//! (Knowlton 1965; Linux mm/page_alloc.c).
//!
//! Idea: chunks with a frame that still holds memory have free lists of their own, and requests
//! take them first. When a chunk is split, the half with memory is used first. So the memory held
//! stays near the memory used. Fresh blocks are in no list; requests reach them, the lowest first,
//! when the lists are empty.
//!
//! Invariants:
//! 1. The free frames of a Live block are covered by listed chunks, each once; no two listed chunks
//!    are buddies.
//! 2. A chunk is in the list `HELD` of its order exactly when one of its frames holds memory.
//! 3. `free` counts the frames of all listed chunks, `idle` those that hold memory.
//! 4. `aside` counts the free frames of Isolated and Busy blocks and of chunks being trimmed.

use core::ops::Range;

use coldpress_sys::page::FRAMES_PER_BLOCK;
use coldpress_sys::sync::SpinGuard;

use super::blocks::{BlockState, Tables};
use super::{Descriptor, FrameId, Mobility, ORDER_MAX, ORDERS};

/// Indexes of the lists of chunks with and without memory.
pub(super) const HELD: usize = 0;
pub(super) const EMPTY: usize = 1;

/// A chunk of 2^`order` frames from `head` on, which is a multiple of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) head: u32,
    pub(super) order: u8,
}

impl Chunk {
    /// Returns the chunk of one frame.
    pub(super) const fn frame(head: u32) -> Self {
        Self { head, order: 0 }
    }

    /// Returns the chunk of all frames of a block.
    pub(super) const fn block(block: usize) -> Self {
        Self { head: (block * FRAMES_PER_BLOCK) as u32, order: ORDER_MAX }
    }

    pub(super) const fn len(self) -> usize {
        1 << self.order
    }

    pub(super) fn frames(self) -> Range<u32> {
        self.head..self.head + (1 << self.order)
    }

    /// Returns whether a chunk can lie there.
    fn is_aligned(self) -> bool {
        self.order <= ORDER_MAX && self.head.is_multiple_of(1 << self.order)
    }

    /// Returns the chunk that this one can merge with.
    const fn buddy(self) -> Self {
        Self { head: self.head ^ 1 << self.order, order: self.order }
    }

    /// Returns the chunk that this one makes with its buddy.
    const fn parent(self) -> Self {
        Self { head: self.head & !(1 << self.order), order: self.order + 1 }
    }

    fn halves(self) -> (Self, Self) {
        let low = Self { head: self.head, order: self.order - 1 };
        (low, low.buddy())
    }
}

/// A free list: the chunks of one order.
#[derive(Clone, Copy)]
pub(super) struct List {
    pub(super) first: Option<FrameId>,
    pub(super) chunks: usize,
}

/// The state of a zone besides the tables. Figures are in frames, except for the counts of blocks.
pub(super) struct Zone {
    pub(super) lists: [[List; ORDERS]; 2],
    /// Fresh blocks, and a block below which none is Fresh.
    pub(super) fresh: usize,
    pub(super) fresh_from: usize,
    /// Blocks whose descriptors hold memory.
    pub(super) live: usize,
    pub(super) online: usize,
    pub(super) free: usize,
    pub(super) idle: usize,
    pub(super) aside: usize,
    /// Frames that may hold memory, free or not.
    pub(super) held: usize,
    pub(super) blocks_returned: u64,
    pub(super) migrations: u64,
}

impl Zone {
    pub(super) const EMPTY: Self = Self {
        lists: [[List { first: None, chunks: 0 }; ORDERS]; 2],
        fresh: 0,
        fresh_from: 0,
        live: 0,
        online: 0,
        free: 0,
        idle: 0,
        aside: 0,
        held: 0,
        blocks_returned: 0,
        migrations: 0,
    };

    /// Returns the frames that can be handed out.
    pub(super) fn free(&self) -> usize {
        self.free + self.fresh * FRAMES_PER_BLOCK
    }

    /// Returns the frames handed out or in per-CPU lists.
    pub(super) fn used(&self) -> usize {
        self.online - self.free() - self.aside
    }
}

/// A zone under its lock.
pub(super) struct Locked<'a> {
    pub(super) zone: SpinGuard<'a, Zone>,
    pub(super) name: Mobility,
    pub(super) tables: &'a Tables,
}

impl Locked<'_> {
    /// Takes a chunk, one with memory if there is any; its frames are Cached and held.
    pub(super) fn take(&mut self, order: u8) -> Option<Chunk> {
        let chunk = self.carve(order)?;
        self.mark_taken(chunk);
        Some(chunk)
    }

    /// Takes the chunk that a single frame would come from, as [`Locked::take`] does, or a part of
    /// it up to this order.
    pub(super) fn take_up_to(&mut self, order: u8) -> Option<Chunk> {
        let chunk = self.pick(0)?;
        let chunk = self.narrow(chunk, order);
        self.mark_taken(chunk);
        Some(chunk)
    }

    /// Takes the first 2^`order` frames, as [`Locked::take`] does, of a chunk of order `whole` or
    /// of the nearest order there is. Returns the order of that chunk too.
    pub(super) fn take_first(&mut self, order: u8, whole: u8) -> Option<(Chunk, u8)> {
        let whole = (order..=whole).rev().find_map(|whole| self.carve(whole))?;
        let first = Chunk { head: whole.head, order };
        self.split(whole, first);
        Some((first, whole.order))
    }

    /// Returns whether it could take this chunk, as [`Locked::take`] does: only if the chunk is
    /// free.
    pub(super) fn take_at(&mut self, chunk: Chunk) -> bool {
        let whole = (chunk.order..=ORDER_MAX).find_map(|order| {
            let head = chunk.head >> order << order;
            match self.tables.get(head) {
                Descriptor::Free { order: found, .. } if found == order => {
                    Some(Chunk { head, order })
                }
                _ => None,
            }
        });
        let Some(whole) = whole else { return false };
        self.unlink(whole);
        self.split(whole, chunk);
        true
    }

    /// Takes a part out of a chunk that is in no list, and lists the rest.
    fn split(&mut self, mut whole: Chunk, part: Chunk) {
        let is_inside = whole.order >= part.order && whole.frames().contains(&part.head);
        debug_assert!(is_inside, "{part:?} is no part of {whole:?}");
        while whole.order > part.order {
            let (low, high) = whole.halves();
            let (kept, rest) = if part.head < high.head { (low, high) } else { (high, low) };
            self.link(rest);
            whole = kept;
        }
        self.mark_taken(part);
    }

    /// Counts the frames of a chunk that is in no list as taken.
    fn mark_taken(&mut self, chunk: Chunk) {
        let is_free = |frame| self.tables.get(frame) == Descriptor::FreeTail;
        debug_assert!(chunk.frames().all(is_free), "{chunk:?} is listed or taken");
        chunk.frames().for_each(|frame| self.tables.set(frame, Descriptor::Cached));
        self.zone.held += self.tables.hold(chunk.frames());
        let block = self.tables.block_of(chunk.head);
        block.set_free(block.free() - chunk.len());
    }

    /// Makes a chunk of this order that is in no list, of the best chunk there is.
    fn carve(&mut self, order: u8) -> Option<Chunk> {
        let chunk = self.pick(order)?;
        Some(self.narrow(chunk, order))
    }

    /// Reduces a chunk that is in no list to a part of at most this order, and lists the rest.
    fn narrow(&mut self, mut chunk: Chunk, order: u8) -> Chunk {
        while chunk.order > order {
            let (low, high) = chunk.halves();
            let prefer_high =
                self.tables.held(low.frames()) == 0 && self.tables.held(high.frames()) > 0;
            let (kept, rest) = if prefer_high { (high, low) } else { (low, high) };
            self.link(rest);
            chunk = kept;
        }
        chunk
    }

    /// Takes the best chunk of at least `order` out of its list.
    fn pick(&mut self, order: u8) -> Option<Chunk> {
        for list in [HELD, EMPTY] {
            for order in order..=ORDER_MAX {
                if let Some(first) = self.zone.lists[list][usize::from(order)].first {
                    let chunk = Chunk { head: first.0, order };
                    self.unlink(chunk);
                    return Some(chunk);
                }
            }
        }
        self.reach()
    }

    /// Makes the lowest Fresh block Live. Its chunk is in no list.
    fn reach(&mut self) -> Option<Chunk> {
        if self.zone.fresh == 0 {
            return None;
        }
        let fresh = BlockState::Fresh(self.name);
        let from = self.zone.fresh_from;
        let found = self.tables.blocks()[from..].iter().position(|block| block.state() == fresh);
        let block = from + found.expect("a zone finds the fresh blocks it counts");
        self.zone.fresh_from = block + 1;
        self.make_live(block);
        Some(Chunk::block(block))
    }

    /// Makes a Fresh block Live. Its chunk is in no list.
    pub(super) fn make_live(&mut self, block: usize) {
        assert!(self.zone.fresh > 0, "a zone counts its fresh blocks");
        self.zone.fresh -= 1;
        self.zone.live += 1;
        self.tables.blocks()[block].set_state(BlockState::Live(self.name));
        self.tables.blocks()[block].set_free(FRAMES_PER_BLOCK);
        let frames = Chunk::block(block).frames();
        frames.for_each(|frame| self.tables.set(frame, Descriptor::FreeTail));
    }

    /// Makes a block Fresh: its frames must be free and hold no memory, and neither must its
    /// descriptors.
    pub(super) fn make_fresh(&mut self, block: usize) {
        self.tables.blocks()[block].set_state(BlockState::Fresh(self.name));
        self.zone.fresh += 1;
        self.zone.fresh_from = self.zone.fresh_from.min(block);
    }

    /// Frees a chunk. Its memory stays as it is marked.
    pub(super) fn put(&mut self, chunk: Chunk) {
        chunk.frames().for_each(|frame| self.tables.set(frame, Descriptor::FreeTail));
        debug_assert!(chunk.is_aligned(), "{chunk:?} has no buddy");
        let block = self.tables.block_of(chunk.head);
        block.set_free(block.free() + chunk.len());
        if block.state() == BlockState::Live(self.name) {
            self.insert(chunk);
        } else {
            self.zone.aside += chunk.len();
        }
    }

    /// Frees single frames, buddies together. The order of `frames` changes.
    pub(super) fn put_all(&mut self, frames: &mut [u32]) {
        frames.sort_unstable();
        debug_assert!(frames.is_sorted_by(|one, next| one < next), "a frame is freed twice");
        let mut left = &*frames;
        while let Some(&head) = left.first() {
            let neighbours = left.iter().zip(head..).take_while(|(frame, next)| *frame == next);
            let order = neighbours.count().ilog2().min(head.trailing_zeros()) as u8;
            let chunk = Chunk { head, order: order.min(ORDER_MAX) };
            self.put(chunk);
            left = &left[chunk.len()..];
        }
    }

    /// Lists a chunk of free tails, merged with its buddies.
    pub(super) fn insert(&mut self, mut chunk: Chunk) {
        while chunk.order < ORDER_MAX {
            let buddy = chunk.buddy();
            match self.tables.get(buddy.head) {
                Descriptor::Free { order, .. } if order == chunk.order => self.unlink(buddy),
                _ => break,
            }
            chunk = chunk.parent();
        }
        self.link(chunk);
    }

    fn link(&mut self, chunk: Chunk) {
        debug_assert!(chunk.is_aligned(), "{chunk:?} has no buddy");
        debug_assert_eq!(self.tables.get(chunk.head), Descriptor::FreeTail, "{chunk:?} is listed");
        let head = Some(FrameId(chunk.head));
        let list = self.count(chunk, |total, part| *total += part);
        list.chunks += 1;
        let next = core::mem::replace(&mut list.first, head);
        self.set_links(next, |prev, _| *prev = head);
        self.tables.set(chunk.head, Descriptor::Free { order: chunk.order, prev: None, next });
    }

    /// Takes a listed chunk out of its list; its head becomes a tail.
    pub(super) fn unlink(&mut self, chunk: Chunk) {
        let Descriptor::Free { order, prev, next } = self.tables.get(chunk.head) else {
            panic!("frame {} heads no free chunk", chunk.head);
        };
        debug_assert_eq!(order, chunk.order, "{chunk:?} is of another order");
        debug_assert!(self.zone.free >= chunk.len(), "more frames are taken than are free");
        let list = self.count(chunk, |total, part| *total -= part);
        list.chunks -= 1;
        if prev.is_none() {
            list.first = next;
        }
        self.set_links(prev, |_, link| *link = next);
        self.set_links(next, |link, _| *link = prev);
        self.tables.set(chunk.head, Descriptor::FreeTail);
    }

    /// Counts a chunk in or out of `free` and `idle`, and returns its list.
    fn count(&mut self, chunk: Chunk, change: impl Fn(&mut usize, usize)) -> &mut List {
        let held = self.tables.held(chunk.frames());
        change(&mut self.zone.free, chunk.len());
        change(&mut self.zone.idle, held);
        let list = if held > 0 { HELD } else { EMPTY };
        &mut self.zone.lists[list][usize::from(chunk.order)]
    }

    /// Changes `prev` and `next` of a listed chunk, if there is one.
    fn set_links(
        &self,
        head: Option<FrameId>,
        change: impl FnOnce(&mut Option<FrameId>, &mut Option<FrameId>),
    ) {
        let Some(head) = head else { return };
        let Descriptor::Free { order, mut prev, mut next } = self.tables.get(head.0) else {
            panic!("a list leads to frame {}, which heads no free chunk", head.0);
        };
        change(&mut prev, &mut next);
        self.tables.set(head.0, Descriptor::Free { order, prev, next });
    }
}
