//! The tables: a descriptor for each frame and a [`Block`] for each 512 frames.
//!
//! ```text
//! blocks: 72 bytes each, up to a page boundary | descriptors of block 0: one page | of block 1 ...
//! ```
//! The life of a block, and the functions that change its state:
//!
//! ```text
//! Offline -> Adding -> Fresh -> Live <-> Isolated -> Busy -> Offline     grow, take, shrink
//!                        ^        +----> Busy --+                        trim
//!                        +----------------------+
//! ```
//!
//! Invariants:
//! 1. The descriptors of a block hold memory only while it is Live, Isolated or Busy.
//! 2. `held` has a bit exactly for the frames whose memory may be resident: all that are not free,
//!    and the free ones that were handed out since their memory was last given back.
//! 3. `free` counts the free frames of a block that is Live or Isolated.
//!
//! All atomics but the state are Relaxed. A block and its free frames change only under the lock of
//! the block's zone, or by the thread that made the block Adding or Busy; the descriptor of a
//! handed-out frame changes only by its owner. A thread that reads without that right gets an
//! answer that may be old, and acts on it only under the lock.

use core::mem::size_of;
use core::ops::Range;
use core::slice;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use coldpress_sys::map::Span;
use coldpress_sys::page::FRAMES_PER_BLOCK;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, SysResult};

use super::{Descriptor, Mobility};

const WORD_BITS: usize = u64::BITS as usize;

/// The state of a block; from Fresh on it belongs to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    /// Without memory and inaccessible.
    Offline,
    /// Being committed by `grow`.
    Adding,
    /// Being given back, by `trim` or `shrink_to`; none of its frames is out.
    Busy,
    /// All frames free and without memory, descriptors undefined.
    Fresh(Mobility),
    /// Free frames are in the lists of the zone.
    Live(Mobility),
    /// Free frames are in no list, so that no request gets them.
    Isolated(Mobility),
}

impl BlockState {
    const fn encode(self) -> u8 {
        match self {
            Self::Offline => 0,
            Self::Adding => 1,
            Self::Busy => 2,
            Self::Fresh(zone) => 4 | zone as u8,
            Self::Live(zone) => 6 | zone as u8,
            Self::Isolated(zone) => 8 | zone as u8,
        }
    }

    /// Returns whether a block in this state may come into state `next`: the arrows of the head of
    /// this file, those back after a failure, and that of a block which is online from the start.
    fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Offline, Self::Adding | Self::Fresh(_))
            | (Self::Adding, Self::Fresh(_) | Self::Offline)
            | (Self::Busy, Self::Fresh(_) | Self::Live(_) | Self::Offline)
            | (Self::Live(_) | Self::Isolated(_), Self::Busy) => true,
            (Self::Fresh(zone), Self::Live(other))
            | (Self::Live(zone), Self::Isolated(other))
            | (Self::Isolated(zone), Self::Live(other)) => zone == other,
            _ => false,
        }
    }

    const fn decode(byte: u8) -> Self {
        let zone =
            if byte & 1 == Mobility::Core as u8 { Mobility::Core } else { Mobility::EasyReclaim };
        match byte {
            0 => Self::Offline,
            1 => Self::Adding,
            2 => Self::Busy,
            4 | 5 => Self::Fresh(zone),
            6 | 7 => Self::Live(zone),
            _ => Self::Isolated(zone),
        }
    }
}

/// The record of one block. All zeros mean Offline.
#[repr(C)]
pub(super) struct Block {
    held: [AtomicU64; FRAMES_PER_BLOCK / WORD_BITS],
    free: AtomicU16,
    state: AtomicU8,
}

const _: () =
    assert!(size_of::<Block>() == 72 && size_of::<AtomicU64>() * FRAMES_PER_BLOCK == PAGE_BYTES);

impl Block {
    pub(super) fn state(&self) -> BlockState {
        // Acquire pairs with the Release in `set_state`.
        BlockState::decode(self.state.load(Ordering::Acquire))
    }

    pub(super) fn set_state(&self, state: BlockState) {
        let now = self.state();
        assert!(now.may_become(state), "a block that is {now:?} does not become {state:?}");
        // Release pairs with the Acquire in `state`: a thread that adds a block that went offline
        // sees the block as it was left.
        self.state.store(state.encode(), Ordering::Release);
    }

    /// Returns the free frames of a block that is Live or Isolated.
    pub(super) fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed).into()
    }

    pub(super) fn set_free(&self, free: usize) {
        assert!(free <= FRAMES_PER_BLOCK, "a frame of a block is free twice");
        self.free.store(free as u16, Ordering::Relaxed);
    }
}

/// Both tables, in a span of their own.
pub(super) struct Tables {
    span: Span,
    blocks: usize,
    /// Offset of the descriptors.
    descriptors: Bytes,
}

impl Tables {
    /// Reserves tables for `blocks` blocks, all Offline.
    pub(super) fn reserve(blocks: usize) -> SysResult<Self> {
        let descriptors = Bytes(blocks * size_of::<Block>()).pages_up().bytes();
        let length = Bytes(descriptors.0 + blocks * PAGE_BYTES);
        let span = Span::reserve(length, Bytes(PAGE_BYTES))?;
        span.forbid_huge_pages();
        Ok(Self { span, blocks, descriptors })
    }

    /// Returns the address of the tables.
    #[cfg(test)]
    pub(super) fn address(&self) -> usize {
        self.span.address()
    }

    /// Returns the blocks, lowest first.
    pub(super) fn blocks(&self) -> &[Block] {
        // SAFETY: the span starts with `self.blocks` blocks, aligned to a page; the kernel filled
        // it with zeros, which a block allows, and every field of a block is atomic.
        unsafe { slice::from_raw_parts(self.span.base().as_ptr().cast(), self.blocks) }
    }

    /// Returns the block of a frame.
    #[inline]
    pub(super) fn block_of(&self, frame: u32) -> &Block {
        let index = frame as usize / FRAMES_PER_BLOCK;
        assert!(index < self.blocks, "frame {frame} is in the span");
        // SAFETY: as in `blocks`: `index` is one of those blocks.
        unsafe { self.span.base().cast::<Block>().add(index).as_ref() }
    }

    #[inline]
    fn word(&self, frame: u32) -> &AtomicU64 {
        assert!((frame as usize) < self.blocks * FRAMES_PER_BLOCK, "frame {frame} is in the span");
        // SAFETY: behind the blocks, from a page boundary on, the span has a word for each frame;
        // the word is zero or what was stored there, and atomic.
        unsafe {
            let start = self.span.base().add(self.descriptors.0).cast::<AtomicU64>();
            start.add(frame as usize).as_ref()
        }
    }

    /// Returns a frame's descriptor.
    #[inline]
    pub(super) fn get(&self, frame: u32) -> Descriptor {
        Descriptor::decode(self.word(frame).load(Ordering::Relaxed))
    }

    /// Changes a frame's descriptor.
    #[inline]
    pub(super) fn set(&self, frame: u32, descriptor: Descriptor) {
        self.word(frame).store(descriptor.encode(), Ordering::Relaxed);
    }

    /// Returns the memory of a block's descriptors to the system; they read as Offline afterwards.
    pub(super) fn drop_descriptors(&self, block: usize) -> SysResult<()> {
        assert_eq!(self.blocks()[block].state(), BlockState::Busy, "descriptors are in use");
        let offset = Bytes(self.descriptors.0 + block * PAGE_BYTES);
        // SAFETY: only `get` and `set` reach the words, as atomics, for which zero is as good as
        // any value; the caller made the block Busy, so no other code relies on them.
        unsafe { self.span.discard(offset, Bytes(PAGE_BYTES)) }
    }

    /// Returns the memory of the blocks; the descriptors of each block in use take one more page.
    pub(super) fn blocks_held(&self) -> PageCount {
        self.descriptors.pages_down()
    }

    /// Returns how many frames of a range inside one block may hold memory.
    pub(super) fn held(&self, frames: Range<u32>) -> usize {
        self.held_words(frames)
            .map(|(word, mask)| (word.load(Ordering::Relaxed) & mask).count_ones() as usize)
            .sum()
    }

    /// Marks a range as holding memory. Returns how many of its frames held none before.
    pub(super) fn hold(&self, frames: Range<u32>) -> usize {
        self.held_words(frames)
            .map(|(word, mask)| {
                let before = word.load(Ordering::Relaxed);
                word.store(before | mask, Ordering::Relaxed);
                (mask & !before).count_ones() as usize
            })
            .sum()
    }

    /// Marks a range as holding no memory. Returns how many of its frames held some before.
    pub(super) fn unhold(&self, frames: Range<u32>) -> usize {
        self.held_words(frames)
            .map(|(word, mask)| {
                let before = word.load(Ordering::Relaxed);
                word.store(before & !mask, Ordering::Relaxed);
                (mask & before).count_ones() as usize
            })
            .sum()
    }

    /// Returns the words of `held` that a range inside one block touches, each with the bits of the
    /// range.
    fn held_words(&self, frames: Range<u32>) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let block = self.block_of(frames.start);
        let start = frames.start as usize % FRAMES_PER_BLOCK;
        let end = start + frames.len();
        debug_assert!(start < end && end <= FRAMES_PER_BLOCK, "{frames:?} is not in one block");
        (start / WORD_BITS..end.div_ceil(WORD_BITS)).map(move |index| {
            let first = index * WORD_BITS;
            let low = start.saturating_sub(first);
            let high = (end - first).min(WORD_BITS);
            (&block.held[index], u64::MAX << low & u64::MAX >> (WORD_BITS - high))
        })
    }
}
