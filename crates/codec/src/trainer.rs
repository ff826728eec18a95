//! Training: finds pieces of a program's pages that its other pages have, too.
//!
//! The idea is zstd's "fast cover" (zdict.h; Liao, Petri, Moffat and Wirth 2016: "Effective
//! construction of relative Lempel-Ziv dictionaries"), kept to what a thread that serves faults can
//! spare. A piece of each of a few pages is kept as a sample. For each eight bytes of a sample, by
//! their hash, the trainer counts the samples that they occur in. Then the samples are split into
//! as many parts as a dictionary has segments, and each part gives the segment whose bytes are in
//! most samples. Bytes that a segment covers count no more for the segments after it.
//!
//! Work is done in small steps: [`Trainer::offer`] and [`Trainer::step`] take some ten
//! microseconds each. Memory is taken once, by [`Trainer::new`].
//!
//! Measured on pages of four programs: with all pages as samples, segments are as good as ZDICT's
//! within 1 %; with the samples taken here, pages are 0.3 to 1.4 % larger. With segments from
//! random places they are up to 2 % larger still.
//!
//! Invariants:
//! 1. `counts[h].samples` is the number of samples with eight bytes of hash `h`, or 0 when a chosen
//!    segment has them.
//! 2. Between steps `in_window` is zero everywhere.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use coldpress_sys::{Bytes, Page};

use crate::dictionary::{DICTIONARY_BYTES, Dictionary};
use crate::error::CodecError;
use crate::room::table;

/// Pages of which a piece is kept.
const SAMPLES: usize = 128;
/// Bytes of a sample.
const SAMPLE_BYTES: usize = 1024;
/// Bytes of a segment: long enough for matches to go on.
const SEGMENT_BYTES: usize = 256;
/// Segments of a dictionary.
const SEGMENTS: usize = DICTIONARY_BYTES.0 / SEGMENT_BYTES;
/// Bytes that are hashed together. Shorter words are in every page and say less.
const WORD_BYTES: usize = size_of::<u64>();
/// Words of a segment, and of a sample.
const SEGMENT_WORDS: usize = SEGMENT_BYTES - WORD_BYTES + 1;
const SAMPLE_WORDS: usize = SAMPLE_BYTES - WORD_BYTES + 1;
/// log2 of the hashes: words of 8 samples share one. That is as good as no sharing, because common
/// words are in more samples; 16 times as many hashes would save 0.5 % more.
const HASH_BITS: u32 = 14;

// The number of samples, and the count of a word in a segment, fit their bytes.
const _: () = assert!(SAMPLES < 1 << u8::BITS && SEGMENT_WORDS < 1 << u8::BITS);

/// The number of samples that have a word.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    samples: u8,
    /// The last sample that has it, counted from 1.
    last: u8,
}

/// A piece of a sample.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// The number of samples that have its words, summed over its different words.
    score: u32,
    /// Its position in `samples`.
    at: usize,
}

/// A maker of a [`Dictionary`] from the pages it is offered.
pub struct Trainer {
    samples: Box<[u8]>,
    /// Samples taken so far.
    offered: usize,
    counts: Box<[Count]>,
    /// How often each word is in the segment being looked at.
    in_window: Box<[u8]>,
    /// Parts of the samples that have been searched.
    parts_done: usize,
    chosen: Vec<Segment>,
    /// Room for the dictionary.
    content: Vec<u8>,
}

impl fmt::Debug for Trainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, segments) = (self.offered, self.chosen.len());
        f.debug_struct("Trainer")
            .field("samples", &samples)
            .field("segments", &segments)
            .finish_non_exhaustive()
    }
}

impl Trainer {
    /// Makes a trainer with all the memory it will need, the dictionary's included: about 195 KiB.
    ///
    /// # Errors
    /// [`CodecError::NoMemory`] when that memory cannot be allocated.
    pub fn new() -> Result<Self, CodecError> {
        let mut chosen = Vec::new();
        let mut content = Vec::new();
        let refused = |_| CodecError::NoMemory(DICTIONARY_BYTES);
        chosen.try_reserve_exact(SEGMENTS).map_err(refused)?;
        content.try_reserve_exact(DICTIONARY_BYTES.0).map_err(refused)?;
        Ok(Self {
            samples: table(SAMPLES * SAMPLE_BYTES, 0)?,
            offered: 0,
            counts: table(1 << HASH_BITS, Count::default())?,
            in_window: table(1 << HASH_BITS, 0)?,
            parts_done: 0,
            chosen,
            content,
        })
    }

    /// Returns the size of the memory held until the trainer is finished, without this structure.
    pub fn work_bytes(&self) -> Bytes {
        let tables = size_of_val(&*self.counts) + size_of_val(&*self.in_window);
        let lists = self.chosen.capacity() * size_of::<Segment>() + self.content.capacity();
        Bytes(self.samples.len() + tables + lists)
    }

    /// Returns whether another page would be looked at.
    pub fn wants_page(&self) -> bool {
        self.offered < SAMPLES && self.parts_done == 0
    }

    /// Takes a sample of `page`, if one is wanted. Neighbouring pages are alike: pages from all
    /// over the program make the better dictionary.
    pub fn offer(&mut self, page: &Page) {
        if !self.wants_page() {
            return;
        }
        // Each of a page's parts in turn, shifted by one after every fourth page.
        let pieces = page.as_chunks::<SAMPLE_BYTES>().0;
        let piece = &pieces[(self.offered + self.offered / pieces.len()) % pieces.len()];
        let at = self.offered * SAMPLE_BYTES;
        self.samples[at..at + SAMPLE_BYTES].copy_from_slice(piece);
        self.offered += 1;
        for at in at..at + SAMPLE_WORDS {
            let count = &mut self.counts[hash(&self.samples, at)];
            // Sample numbers fit a byte.
            if count.last != self.offered as u8 {
                *count = Count { samples: count.samples + 1, last: self.offered as u8 };
            }
        }
    }

    /// Returns whether there is more to do, after choosing one more segment. No more pages are
    /// taken from then on.
    pub fn step(&mut self) -> bool {
        if self.parts_done < SEGMENTS {
            let part = |number: usize| number * self.offered / SEGMENTS;
            // With few samples, several parts share one.
            let (first, end) = (part(self.parts_done), part(self.parts_done + 1));
            let end = end.max(first + 1).min(self.offered);
            let mut best = Segment { score: 0, at: 0 };
            for sample in first..end {
                best = self.best_of(sample, best);
            }
            if best.score > 0 {
                for at in best.at..best.at + SEGMENT_WORDS {
                    self.counts[hash(&self.samples, at)].samples = 0;
                }
                self.chosen.push(best);
            }
            self.parts_done += 1;
        }
        self.parts_done < SEGMENTS
    }

    /// Returns the dictionary of the segments chosen so far. `None` when there are none, because no
    /// two pages had anything in common.
    pub fn finish(mut self) -> Option<Dictionary> {
        self.chosen.sort_unstable_by_key(|segment| (segment.score, segment.at));
        for Segment { at, .. } in self.chosen {
            self.content.extend_from_slice(&self.samples[at..at + SEGMENT_BYTES]);
        }
        (!self.content.is_empty()).then(|| Dictionary::new(self.content))
    }

    /// Returns the best segment of a sample if it is better than `best`, otherwise `best`.
    fn best_of(&mut self, sample: usize, mut best: Segment) -> Segment {
        let start = sample * SAMPLE_BYTES;
        let end = start + SAMPLE_WORDS;
        let mut score = 0;
        for at in start..end {
            score += self.enter(at);
            let Some(first) = (at + 1).checked_sub(SEGMENT_WORDS).filter(|at| *at >= start) else {
                continue;
            };
            if score > best.score {
                best = Segment { score, at: first };
            }
            score -= self.leave(first);
        }
        // The window still has the words of the last segment, except for the first.
        for at in end - SEGMENT_WORDS + 1..end {
            self.leave(at);
        }
        best
    }

    /// Counts the word at `at` in the window, and returns what that adds to the score.
    fn enter(&mut self, at: usize) -> u32 {
        let hash = hash(&self.samples, at);
        self.in_window[hash] += 1;
        if self.in_window[hash] == 1 { self.others(hash) } else { 0 }
    }

    /// Takes the word at `at` out of the window, and returns what that takes from the score.
    fn leave(&mut self, at: usize) -> u32 {
        let hash = hash(&self.samples, at);
        self.in_window[hash] -= 1;
        if self.in_window[hash] == 0 { self.others(hash) } else { 0 }
    }

    /// Returns the number of samples beyond one that have the word.
    fn others(&self, hash: usize) -> u32 {
        u32::from(self.counts[hash].samples.saturating_sub(1))
    }
}

/// Returns the hash of the word at `at` (Fibonacci hashing, Knuth volume 3 section 6.4).
fn hash(samples: &[u8], at: usize) -> usize {
    let word = samples[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - HASH_BITS)) as usize
}

#[cfg(test)]
mod tests {
    //! The risk: a segment that is not common after all, which would show only in memory that is
    //! not saved.

    use std::collections::HashSet;
    use std::mem::replace;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Does what [`Trainer`] does, in few lines and slowly.
    fn naive(pages: &[Page]) -> Option<Vec<u8>> {
        let samples: Vec<&[u8]> = pages
            .iter()
            .enumerate()
            .map(|(number, page)| &page[(number + number / 4) % 4 * 1024..][..1024])
            .collect();
        let words = |piece: &[u8]| (0..=piece.len() - 8).map(|at| hash(piece, at)).collect();
        let samples: Vec<(&[u8], Vec<usize>)> =
            samples.into_iter().map(|sample| (sample, words(sample))).collect();
        let mut holding = vec![0; 1 << HASH_BITS];
        for (_, words) in &samples {
            words.iter().collect::<HashSet<_>>().into_iter().for_each(|word| holding[*word] += 1);
        }
        let (mut chosen, mut seen, mut look) = (Vec::new(), vec![0; 1 << HASH_BITS], 0);
        for number in 0..64 {
            let first = number * samples.len() / 64;
            let end = ((number + 1) * samples.len() / 64).max(first + 1).min(samples.len());
            let mut best = (0, &[][..], &[][..]);
            for (sample, words) in &samples[first..end] {
                for (segment, words) in sample.windows(256).zip(words.windows(249)) {
                    look += 1;
                    let new = words.iter().filter(|word| replace(&mut seen[**word], look) != look);
                    let score = new.map(|word| 1_usize.max(holding[*word]) - 1).sum();
                    if score > best.0 {
                        best = (score, segment, words);
                    }
                }
            }
            let (score, segment, words) = best;
            if score > 0 {
                words.iter().for_each(|word| holding[*word] = 0);
                chosen.push((score, segment));
            }
        }
        chosen.sort_by_key(|(score, _)| *score);
        let content: Vec<u8> = chosen.iter().flat_map(|(_, segment)| *segment).copied().collect();
        (!content.is_empty()).then_some(content)
    }

    fn trained(pages: &[Page]) -> Option<Vec<u8>> {
        let mut trainer = Trainer::new().expect("there is memory");
        for page in pages {
            assert!(trainer.wants_page());
            trainer.offer(page);
        }
        let mut steps = 1;
        while trainer.step() {
            steps += 1;
            assert!(trainer.in_window.iter().all(|count| *count == 0), "after step {steps}");
        }
        assert_eq!(steps, SEGMENTS);
        trainer.finish().map(|dictionary| dictionary.content().to_vec())
    }

    /// Makes pages of few kinds of records, so that much is common and much is not.
    fn any_pages() -> impl Strategy<Value = Vec<Page>> {
        let records = vec(vec(any::<u8>(), 8..200), 1..12);
        let picks = vec(vec((any::<prop::sample::Index>(), any::<u8>()), 1..60), 0..7);
        (records, picks).prop_map(|(records, pages)| {
            let page = |picks: Vec<(prop::sample::Index, u8)>| {
                let pieces = picks
                    .iter()
                    .flat_map(|(index, byte)| index.get(&records).iter().copied().chain([*byte]));
                let bytes: Vec<u8> = pieces.cycle().take(4096).collect();
                bytes.try_into().expect("cycled to a page")
            };
            pages.into_iter().map(page).collect()
        })
    }

    /// Makes a page like no other: Knuth's linear congruential numbers.
    fn noise(seed: u64) -> Page {
        let next = |word: u64| {
            word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
        };
        let mut word = next(seed);
        std::array::from_fn(|_| {
            word = next(word);
            (word >> 56) as u8
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn segments_are_those_of_the_naive_trainer(pages in any_pages()) {
            // Equal scores may end up in any order.
            let sorted = |content: Vec<u8>| {
                let mut segments: Vec<_> = content.chunks(256).map(<[u8]>::to_vec).collect();
                segments.sort();
                segments
            };
            prop_assert_eq!(trained(&pages).map(sorted), naive(&pages).map(sorted));
        }
    }

    /// Gives more samples than parts, so that a part has several to choose from.
    #[test]
    fn the_best_of_several_samples_is_chosen() {
        let (first, second) = (noise(1), noise(2));
        let page = |number: usize| {
            let mut page = noise(number as u64 + 3);
            let from = if number.is_multiple_of(3) { &second } else { &first };
            page[number * 30..][..number + 8].copy_from_slice(&from[number..][..number + 8]);
            page
        };
        let pages: Vec<Page> = (0..101).map(page).collect();
        assert_eq!(trained(&pages), naive(&pages));
    }

    #[test]
    fn a_page_has_nothing_in_common_with_itself() {
        assert_eq!(trained(&[]), None);
        assert_eq!(trained(&[noise(1)]), None);
    }

    #[test]
    fn what_is_common_is_chosen_and_comes_last() {
        let common = noise(1);
        let page = |number: u64| {
            let mut page = noise(number + 2);
            page.chunks_mut(1024).for_each(|part| part[300..556].copy_from_slice(&common[..256]));
            page
        };
        let pages: Vec<Page> = (0..SAMPLES as u64).map(page).collect();
        let content = trained(&pages).expect("something is common");
        assert!(content.ends_with(&common[..256]));
    }

    #[test]
    fn samples_and_memory_have_a_limit() {
        let mut trainer = Trainer::new().expect("there is memory");
        let most = trainer.work_bytes();
        assert!(most <= Bytes::kib(196), "{most:?}");
        for number in 0..SAMPLES + 5 {
            assert_eq!(trainer.wants_page(), number < SAMPLES);
            trainer.offer(&[number as u8; 4096]);
        }
        while trainer.step() {}
        assert_eq!(trainer.work_bytes(), most);
        assert!(!trainer.wants_page());
    }
}
