//! The order of limbo's slots: a ring, without the memory that it stands for.

use alloc::vec;
use alloc::vec::Vec;

use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use crate::pages::{PageNumber, RUN_BYTES, RUN_PAGES, RunNumber};

/// The divisor of what a process may hold that gives the size of limbo, at least [`LIMBO_MIN`]
/// where there is room and at most [`LIMBO_MAX`].
const LIMBO_SHARE: usize = 16;
const LIMBO_MIN: PageCount = Bytes::mib(2).pages_down();
const LIMBO_MAX: PageCount = Bytes::mib(128).pages_down();
/// The number of chunks wanted in a ring, as far as the bounds below allow it. Small chunks hold
/// little memory that has been dealt with; large ones are cheaper to drop. With 16 slots a fault
/// costs 4 % less than with 4 (`coldpress-bench fault`, 128 MiB).
const CHUNKS_WANTED: usize = 8;
/// Fewest and most slots that are dropped together, unless that makes too many chunks.
const CHUNK_SLOTS_MIN: usize = 4;
const CHUNK_SLOTS_MAX: usize = 16;
/// The most chunks: each is a mapping and a guard, of the 65,530 mappings that a process may have.
const CHUNKS_MAX: usize = 256;
/// The most slots, which have 16-bit numbers.
const SLOTS_MAX: usize = 1 << 15;

/// Returns the pages that limbo may hold in a process that may hold `budget`. A process with a
/// small budget must not put all of it into limbo before its first page is compressed.
pub(crate) fn target(budget: PageCount) -> PageCount {
    let least = LIMBO_MIN.min(PageCount(budget.0 / 8));
    PageCount(budget.0 / LIMBO_SHARE).max(least).min(LIMBO_MAX)
}

/// Returns the bytes from the start of one chunk to the start of the next.
pub(crate) fn stride(chunk_slots: usize) -> usize {
    chunk_slots * RUN_BYTES.0 + PAGE_BYTES
}

/// Slots in the order in which they are filled and drained.
#[derive(Debug)]
pub(crate) struct Ring {
    slots: Vec<Slot>,
    /// Pages that went into each chunk since its memory was last dropped, on each side.
    chunk_pages: Vec<Freed>,
    /// The number of slots in a chunk.
    chunk_slots: usize,
    /// The number of slots ever taken and ever drained; their difference is the length of the
    /// queue.
    taken: usize,
    drained: usize,
    /// Slots that hold a sample of which nothing is known yet.
    samples: usize,
}

/// The side on which a slot's pages lie; each slot has room for them on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Among memory that may be read and written.
    Plain = 0,
    /// Among memory that may be executed too.
    Executable = 1,
}

/// Pages that a chunk held, by the side on which they lay.
pub(crate) type Freed = [PageCount; 2];

#[derive(Clone, Copy, Debug)]
struct Slot {
    run: RunNumber,
    side: Side,
    /// The time when the slot was taken, in milliseconds that wrap around.
    taken_at_ms: u32,
    /// The index in the run below which all pages have been dealt with.
    next: u8,
    /// Whether the slot's page is a sample of which nothing is known yet.
    is_sample: bool,
}

const EMPTY_SLOT: Slot = Slot {
    run: RunNumber(0),
    side: Side::Plain,
    taken_at_ms: 0,
    next: RUN_PAGES as u8,
    is_sample: false,
};

impl Ring {
    /// Creates a ring with slots for at least `pages`. Runs often come with holes, so the ring has
    /// twice the slots that full runs would need.
    pub(crate) fn new(pages: PageCount) -> Self {
        let (chunks, chunk_slots) = Self::shape(pages);
        Self {
            slots: vec![EMPTY_SLOT; chunks * chunk_slots],
            chunk_pages: vec![[PageCount(0); 2]; chunks],
            chunk_slots,
            taken: 0,
            drained: 0,
            samples: 0,
        }
    }

    /// Returns the number of chunks in a ring for at least `pages`, and the number of slots in
    /// each.
    fn shape(pages: PageCount) -> (usize, usize) {
        let slots = (2 * pages.0 / RUN_PAGES).clamp(2 * CHUNK_SLOTS_MIN, SLOTS_MAX);
        let wanted = (slots / CHUNKS_WANTED).clamp(CHUNK_SLOTS_MIN, CHUNK_SLOTS_MAX);
        let chunk_slots = slots.div_ceil(CHUNKS_MAX).max(wanted);
        (slots.div_ceil(chunk_slots), chunk_slots)
    }

    /// Returns the memory of one side of a limbo for at least `pages`: chunks, each followed by a
    /// guard page.
    pub(crate) fn side_bytes(pages: PageCount) -> Bytes {
        let (chunks, chunk_slots) = Self::shape(pages);
        Bytes(chunks * stride(chunk_slots))
    }

    /// Returns the number of chunks.
    pub(crate) fn chunks(&self) -> usize {
        self.chunk_pages.len()
    }

    /// Returns the number of slots in a chunk.
    pub(crate) fn chunk_slots(&self) -> usize {
        self.chunk_slots
    }

    /// Whether [`Ring::take_slot`] must wait for [`Ring::finish_oldest`].
    pub(crate) fn is_full(&self) -> bool {
        // The chunk of the oldest slot is dropped only after its last slot, so one whole chunk
        // stays between the ends of the queue.
        self.taken - self.drained + self.chunk_slots > self.slots.len()
    }

    /// Whether no slot waits to be drained.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.drained
    }

    /// Takes the next slot for pages of `run`, which will lie on the plain side, at the time
    /// `now_ms`.
    pub(crate) fn take_slot(&mut self, run: RunNumber, now_ms: u32) -> u16 {
        assert!(!self.is_full(), "the caller asks first");
        let index = self.taken % self.slots.len();
        self.slots[index] = Slot { run, taken_at_ms: now_ms, next: 0, ..EMPTY_SLOT };
        self.taken += 1;
        index as u16
    }

    /// Gives back the slot that was taken last: nothing was moved into it.
    pub(crate) fn return_slot(&mut self) {
        assert!(!self.is_empty(), "a slot was taken");
        self.taken -= 1;
        let index = self.taken % self.slots.len();
        self.slots[index] = EMPTY_SLOT;
    }

    /// Returns the side on which the pages of `slot` lie.
    pub(crate) fn side(&self, slot: u16) -> Side {
        self.slots[slot as usize].side
    }

    /// Turns `slot`, which has no pages yet, to the other side.
    pub(crate) fn turn(&mut self, slot: u16) {
        let side = &mut self.slots[slot as usize].side;
        *side = if *side == Side::Plain { Side::Executable } else { Side::Plain };
    }

    /// Counts pages moved into a slot.
    pub(crate) fn note_moved(&mut self, slot: u16, count: PageCount) {
        assert!(count.0 <= RUN_PAGES, "{count:?} of a run");
        let side = self.side(slot) as usize;
        self.chunk_pages[slot as usize / self.chunk_slots][side] += count;
    }

    /// Returns the slot that was taken first, with its run, and the index of the next page to look
    /// at, if there is one.
    pub(crate) fn oldest(&self) -> Option<(u16, RunNumber, Option<usize>)> {
        if self.is_empty() {
            return None;
        }
        let index = self.drained % self.slots.len();
        let slot = self.slots[index];
        let next = (slot.next as usize) < RUN_PAGES;
        Some((index as u16, slot.run, next.then_some(slot.next as usize)))
    }

    /// Returns the number of pages that have been dealt with, including those that never were in
    /// their slot. It is also the number, in limbo's order, of the next page.
    pub(crate) fn pages_done(&self) -> u64 {
        let next =
            if self.is_empty() { 0 } else { self.slots[self.drained % self.slots.len()].next };
        (self.drained * RUN_PAGES) as u64 + u64::from(next)
    }

    /// Returns the number of the first page of the slot that is taken next.
    pub(crate) fn pages_taken(&self) -> u64 {
        (self.taken * RUN_PAGES) as u64
    }

    /// Returns the page with this number in limbo's order, and its slot, if the slot is not drained
    /// yet.
    pub(crate) fn page_at(&self, number: u64) -> Option<(u16, PageNumber)> {
        let (turn, place) = (number as usize / RUN_PAGES, number as usize % RUN_PAGES);
        if !(self.drained..self.taken).contains(&turn) {
            return None;
        }
        let index = turn % self.slots.len();
        Some((index as u16, self.slots[index].run.first().plus(place)))
    }

    /// Returns the age of the oldest slot in milliseconds, if there is one.
    pub(crate) fn oldest_age_ms(&self, now_ms: u32) -> Option<u32> {
        let slot = self.slots[self.drained % self.slots.len()];
        (!self.is_empty()).then(|| now_ms.wrapping_sub(slot.taken_at_ms))
    }

    /// Marks the one page in `slot` as a sample of its run.
    pub(crate) fn mark_sample(&mut self, slot: u16) {
        assert!(!self.slots[slot as usize].is_sample, "a slot holds one sample");
        self.slots[slot as usize].is_sample = true;
        self.samples += 1;
    }

    /// Returns the number of samples of which nothing is known yet.
    pub(crate) fn samples(&self) -> usize {
        self.samples
    }

    /// Returns whether `slot` holds a sample of which nothing was known yet, and notes that it is
    /// known now.
    pub(crate) fn take_sample(&mut self, slot: u16) -> bool {
        let was_one = core::mem::take(&mut self.slots[slot as usize].is_sample);
        self.samples -= usize::from(was_one);
        was_one
    }

    /// Notes that the page at the oldest slot's index has been dealt with.
    pub(crate) fn advance_oldest(&mut self) {
        let index = self.drained % self.slots.len();
        assert!(usize::from(self.slots[index].next) < RUN_PAGES, "a page of the slot is left");
        self.slots[index].next += 1;
    }

    /// Gives the oldest slot up. If it was the last of its chunk, returns the chunk, whose memory
    /// can be dropped now, and the number of pages that this frees.
    pub(crate) fn finish_oldest(&mut self) -> Option<(usize, Freed)> {
        assert!(!self.is_empty(), "there is a slot to give up");
        let index = self.drained % self.slots.len();
        self.take_sample(index as u16);
        self.slots[index] = EMPTY_SLOT;
        self.drained += 1;
        let chunk = index / self.chunk_slots;
        let is_last = (index + 1).is_multiple_of(self.chunk_slots);
        is_last.then(|| (chunk, core::mem::take(&mut self.chunk_pages[chunk])))
    }
}

#[cfg(test)]
mod tests {
    //! The risk: slots that are drained out of order, or memory that is counted as freed while
    //! pages lie in it.

    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    #[test]
    fn limbo_is_a_sixteenth_or_two_mebibytes() {
        let found = [1000, 8192, 1 << 20, 1 << 30].map(|budget| target(PageCount(budget)).0);
        assert_eq!(found, [125, 512, 1 << 16 >> 1, 1 << 15]);
    }

    proptest! {
        #[test]
        fn it_is_a_queue_that_frees_what_its_chunks_took(
            pages in 0_usize..20_000,
            steps in prop::collection::vec(
                (any::<bool>(), any::<bool>(), 0_usize..=RUN_PAGES), 1..2000
            ),
        ) {
            let mut ring = Ring::new(PageCount(pages));
            let (mut queue, mut in_chunks, mut run) = (VecDeque::new(), [0; 2], 0);
            for (takes, turns, count) in steps {
                if takes && !ring.is_full() {
                    let slot = ring.take_slot(RunNumber(run), run as u32);
                    if turns {
                        ring.turn(slot);
                    }
                    prop_assert_eq!(ring.side(slot) == Side::Executable, turns);
                    if count == 0 {
                        ring.return_slot();
                    } else {
                        ring.note_moved(slot, PageCount(count));
                        queue.push_back((slot, RunNumber(run)));
                        in_chunks[usize::from(turns)] += count;
                    }
                    run += 1;
                } else if let Some((slot, number)) = queue.pop_front() {
                    let first = ring.pages_done();
                    for index in 0..RUN_PAGES {
                        prop_assert_eq!(ring.oldest(), Some((slot, number, Some(index))));
                        prop_assert_eq!(ring.pages_done(), first + index as u64);
                        let at = Some((slot, number.first().plus(index)));
                        prop_assert_eq!(ring.page_at(ring.pages_done()), at);
                        ring.advance_oldest();
                    }
                    // A number is used once, and the slots that wait come after it.
                    for (turn, (slot, number)) in queue.iter().enumerate() {
                        let next = first + ((turn + 1) * RUN_PAGES) as u64;
                        prop_assert_eq!(ring.page_at(next), Some((*slot, number.first())));
                    }
                    let end = first + ((queue.len() + 1) * RUN_PAGES) as u64;
                    prop_assert_eq!((ring.pages_taken(), ring.page_at(end)), (end, None));
                    prop_assert_eq!(ring.oldest(), Some((slot, number, None)));
                    prop_assert_eq!(ring.oldest_age_ms(run as u32), Some((run - number.0) as u32));
                    let freed = ring.finish_oldest();
                    prop_assert_eq!(ring.pages_done(), first + RUN_PAGES as u64);
                    prop_assert_eq!(ring.page_at(first), None);
                    if let Some((chunk, freed)) = freed {
                        prop_assert!(chunk == slot as usize / ring.chunk_slots());
                        for (held, freed) in in_chunks.iter_mut().zip(freed) {
                            prop_assert!(freed.0 <= *held);
                            *held -= freed.0;
                        }
                    }
                } else {
                    prop_assert!(ring.is_empty() && ring.oldest().is_none());
                    prop_assert_eq!(ring.oldest_age_ms(0), None);
                }
                // Beside the queue, at most a chunk that is being filled and one that is being
                // drained hold pages.
                let most = (queue.len() + 2 * ring.chunk_slots()) * RUN_PAGES;
                let held: usize = in_chunks.iter().sum();
                prop_assert!(held <= most, "{held} of {most}");
            }
        }
    }
}
