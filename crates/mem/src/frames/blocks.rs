//! Which frames of the span are taken, and which free ones still hold memory.
//!
//! Idea: two bits per frame, kept per block, and two summary bits per block, so that the lowest
//! block with room is found by scanning a few words. All of it is zero at first: zero means free
//! and untouched, so metadata of blocks nobody has reached costs no memory.
//!
//! Invariants:
//! 1. No frame is both `used` and `touched`; bits behind the last block are never set.
//! 2. `Summary::full` has a block's bit exactly when all its frames are used; `Summary::touched`
//!    exactly when it has a touched frame.
//! 3. `Counts::used + Counts::trimming` frames are marked used, `Counts::touched` are marked
//!    touched.
//! 4. Blocks from `Counts::reached` on are all zero.
//! 5. No open block lies in a summary word below `first_open`, none with touched frames in one
//!    below `first_touched`.

use core::ops::Range;

use coldpress_sys::page::FRAMES_PER_BLOCK;

const WORD_BITS: usize = u64::BITS as usize;
const BLOCK_WORDS: usize = FRAMES_PER_BLOCK / WORD_BITS;
/// Blocks one [`Summary`] speaks of.
pub(super) const BLOCKS_PER_SUMMARY: usize = WORD_BITS;

/// A set of the frames of a block.
type FrameSet = [u64; BLOCK_WORDS];

/// The frames of one block.
#[repr(C)]
pub(super) struct Block {
    /// Handed out, or just being given back to the system.
    used: FrameSet,
    /// Free, but holding memory.
    touched: FrameSet,
}

/// One bit for each of [`BLOCKS_PER_SUMMARY`] blocks.
#[repr(C)]
pub(super) struct Summary {
    full: u64,
    touched: u64,
}

/// What is known of all blocks together.
pub(super) struct Counts {
    /// Frames handed out.
    pub(super) used: usize,
    /// Free frames holding memory.
    pub(super) touched: usize,
    /// Frames marked used while their memory is given back.
    pub(super) trimming: usize,
    /// Blocks that ever had a frame handed out: one more than the highest such block.
    pub(super) reached: usize,
    first_open: usize,
    first_touched: usize,
}

impl Counts {
    pub(super) const NONE: Self =
        Self { used: 0, touched: 0, trimming: 0, reached: 0, first_open: 0, first_touched: 0 };
}

/// The tables and their counts, borrowed under the allocator's lock.
pub(super) struct Blocks<'a> {
    pub(super) summaries: &'a mut [Summary],
    pub(super) blocks: &'a mut [Block],
    pub(super) counts: &'a mut Counts,
}

impl Blocks<'_> {
    /// Takes a frame out of the lowest block with a touched free frame, else of the lowest with
    /// any.
    pub(super) fn take(&mut self) -> Option<usize> {
        if self.counts.touched > 0 {
            return self.take_touched();
        }
        let (word, bit) = first(self.summaries, self.counts.first_open, |summary| !summary.full)?;
        self.counts.first_open = word;
        let index = word * BLOCKS_PER_SUMMARY + bit;
        let block = self.blocks.get_mut(index)?;
        let frame = first(&block.used, 0, |used| !used).map(|(word, bit)| word * WORD_BITS + bit);
        let frame = frame.expect("a block that is not full has a free frame");
        block.used[frame / WORD_BITS] |= 1 << (frame % WORD_BITS);
        self.counts.used += 1;
        self.counts.reached = self.counts.reached.max(index + 1);
        self.summarize(index);
        Some(index * FRAMES_PER_BLOCK + frame)
    }

    fn take_touched(&mut self) -> Option<usize> {
        let (word, bit) =
            first(self.summaries, self.counts.first_touched, |summary| summary.touched)?;
        self.counts.first_touched = word;
        let index = word * BLOCKS_PER_SUMMARY + bit;
        let block = &mut self.blocks[index];
        let (word, bit) = first(&block.touched, 0, |touched| *touched)?;
        block.touched[word] &= !(1 << bit);
        block.used[word] |= 1 << bit;
        self.counts.touched -= 1;
        self.counts.used += 1;
        self.summarize(index);
        Some(index * FRAMES_PER_BLOCK + word * WORD_BITS + bit)
    }

    /// Takes back a frame that [`Blocks::take`] gave out; its memory stays.
    pub(super) fn put(&mut self, frame: usize) {
        let (index, word, mask) = place(frame);
        let block = &mut self.blocks[index];
        assert!(block.used[word] & mask != 0, "frame {frame} freed twice");
        block.used[word] &= !mask;
        block.touched[word] |= mask;
        self.counts.used -= 1;
        self.counts.touched += 1;
        let (word, bit) = (index / BLOCKS_PER_SUMMARY, index % BLOCKS_PER_SUMMARY);
        let summary = &mut self.summaries[word];
        summary.full &= !(1 << bit);
        summary.touched |= 1 << bit;
        self.counts.first_open = self.counts.first_open.min(word);
        self.counts.first_touched = self.counts.first_touched.min(word);
    }

    /// Claims the highest run of touched frames inside one block, as long as more than `keep`
    /// remain. Nobody gets them until [`Blocks::settle`].
    pub(super) fn claim_touched_run(&mut self, keep: usize) -> Option<Range<usize>> {
        let excess = self.counts.touched.checked_sub(keep).filter(|excess| *excess > 0)?;
        let reached = self.counts.reached.div_ceil(BLOCKS_PER_SUMMARY);
        let (word, bit) = last(&self.summaries[..reached], |summary| summary.touched)?;
        let index = word * BLOCKS_PER_SUMMARY + bit;
        let (word, bit) = last(&self.blocks[index].touched, |touched| *touched)?;
        let end = index * FRAMES_PER_BLOCK + word * WORD_BITS + bit + 1;
        let mut start = end;
        while start > index * FRAMES_PER_BLOCK && end - start < excess {
            let (_, word, mask) = place(start - 1);
            let block = &mut self.blocks[index];
            if block.touched[word] & mask == 0 {
                break;
            }
            block.touched[word] &= !mask;
            block.used[word] |= mask;
            start -= 1;
        }
        self.counts.touched -= end - start;
        self.counts.trimming += end - start;
        self.summarize(index);
        Some(start..end)
    }

    /// Makes a claimed run free again, untouched when its memory was given back.
    pub(super) fn settle(&mut self, run: Range<usize>, given_back: bool) {
        let index = run.start / FRAMES_PER_BLOCK;
        self.counts.trimming -= run.len();
        if !given_back {
            self.counts.touched += run.len();
        }
        for frame in run {
            let (_, word, mask) = place(frame);
            let block = &mut self.blocks[index];
            block.used[word] &= !mask;
            if !given_back {
                block.touched[word] |= mask;
            }
        }
        self.summarize(index);
    }

    /// Restores invariants 2 and 5 after a change of block `index`.
    fn summarize(&mut self, index: usize) {
        let (word, bit) = (index / BLOCKS_PER_SUMMARY, index % BLOCKS_PER_SUMMARY);
        let block = &self.blocks[index];
        let full = block.used.iter().all(|used| *used == u64::MAX);
        let touched = block.touched.iter().any(|touched| *touched != 0);
        let summary = &mut self.summaries[word];
        summary.full = summary.full & !(1 << bit) | u64::from(full) << bit;
        summary.touched = summary.touched & !(1 << bit) | u64::from(touched) << bit;
        if !full {
            self.counts.first_open = self.counts.first_open.min(word);
        }
        if touched {
            self.counts.first_touched = self.counts.first_touched.min(word);
        }
    }

    /// Walks every table. Panics when an invariant of this file is broken.
    pub(super) fn check(&self) {
        let (mut used, mut touched) = (0, 0);
        for (index, block) in self.blocks.iter().enumerate() {
            let block_used = population(&block.used);
            let block_touched = population(&block.touched);
            for (used, touched) in block.used.iter().zip(&block.touched) {
                assert!(used & touched == 0, "block {index}: a used frame is marked free");
            }
            let (word, bit) = (index / BLOCKS_PER_SUMMARY, index % BLOCKS_PER_SUMMARY);
            let (full, any) = (block_used == FRAMES_PER_BLOCK, block_touched > 0);
            assert_eq!(self.summaries[word].full >> bit & 1 == 1, full, "block {index}: full");
            assert_eq!(self.summaries[word].touched >> bit & 1 == 1, any, "block {index}: touched");
            assert!(full || self.counts.first_open <= word, "block {index}: below first_open");
            assert!(!any || self.counts.first_touched <= word, "block {index}: first_touched");
            assert!(
                index < self.counts.reached || block_used + block_touched == 0,
                "block {index}: not reached, but in use"
            );
            used += block_used;
            touched += block_touched;
        }
        assert_eq!(used, self.counts.used + self.counts.trimming, "frames used");
        assert_eq!(touched, self.counts.touched, "free frames holding memory");
    }
}

/// Block, word and bit mask of a frame.
fn place(frame: usize) -> (usize, usize, u64) {
    let inside = frame % FRAMES_PER_BLOCK;
    (frame / FRAMES_PER_BLOCK, inside / WORD_BITS, 1 << (inside % WORD_BITS))
}

fn population(set: &FrameSet) -> usize {
    set.iter().map(|word| word.count_ones() as usize).sum()
}

/// Index and lowest bit of the first element from `start` on for which `bits` has one.
fn first<T>(words: &[T], start: usize, bits: impl Fn(&T) -> u64) -> Option<(usize, usize)> {
    let rest = words.get(start..)?;
    let (offset, word) = rest.iter().map(bits).enumerate().find(|(_, word)| *word != 0)?;
    Some((start + offset, word.trailing_zeros() as usize))
}

/// Index and highest bit of the last element for which `bits` has one.
fn last<T>(words: &[T], bits: impl Fn(&T) -> u64) -> Option<(usize, usize)> {
    let (index, word) = words.iter().map(bits).enumerate().rfind(|(_, word)| *word != 0)?;
    Some((index, WORD_BITS - 1 - word.leading_zeros() as usize))
}
