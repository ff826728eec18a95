//! The used slots of a zspage, and the frames they need: words of bits, and no pointers.
//!
//! Invariant: a frame is held exactly when a used slot lies in it, or partly.

#![forbid(unsafe_code)]

use core::iter;

use super::size_class::SizeClass;

/// The value in place of a frame number when no frame is held.
pub(super) const NO_FRAME: u32 = u32::MAX;

/// The slots and frames of one zspage.
pub(super) struct Slots<'a> {
    pub(super) class: SizeClass,
    /// The frame numbers, [`NO_FRAME`] where none is held.
    pub(super) frames: &'a [u32],
    /// A bit for each slot, set when it is used; bits beyond the last slot are clear.
    pub(super) used: &'a [u32],
}

impl Slots<'_> {
    /// Returns the words of bits for the slots of a class.
    pub(super) const fn words(class: SizeClass) -> usize {
        (class.objects as usize).div_ceil(u32::BITS as usize)
    }

    /// Returns the free slot before `end` that needs the fewest more frames, the first of several,
    /// and the number of those frames, up to two.
    pub(super) fn best_free(&self, end: u16) -> Option<(u16, usize)> {
        let mut best = None;
        let mut from = 0;
        while let Some(slot) = self.next_free(from).filter(|slot| *slot < end) {
            let missing = self.missing(slot);
            if missing == 0 {
                return Some((slot, 0));
            }
            if best.is_none_or(|(_, least)| missing < least) {
                best = Some((slot, missing));
            }
            // No slot that starts in a missing frame can do without that frame.
            let (first, _) = self.class.frames_of(slot);
            let is_held = self.frames[first] != NO_FRAME;
            from = if is_held { slot.into() } else { *self.class.slots_in(first).end() } + 1;
        }
        best
    }

    /// Returns how many free slots need no more frames.
    pub(super) fn holes(&self) -> usize {
        let free =
            iter::successors(self.next_free(0), |slot| self.next_free(usize::from(*slot) + 1));
        free.filter(|slot| self.missing(*slot) == 0).count()
    }

    /// Returns the first free slot from `from` on.
    fn next_free(&self, from: usize) -> Option<u16> {
        let slot = find(self.used, from, u32::MAX)? as u16;
        (slot < self.class.objects).then_some(slot)
    }

    /// Returns how many frames a slot lacks.
    fn missing(&self, slot: u16) -> usize {
        let (first, last) = self.class.frames_of(slot);
        self.frames[first..=last].iter().filter(|frame| **frame == NO_FRAME).count()
    }

    /// Returns the last used slot before `end`.
    pub(super) fn last_used(&self, end: u16) -> Option<u16> {
        (0..self.used.len()).rev().find_map(|word| {
            let first = word as u32 * u32::BITS;
            let before = u32::from(end).saturating_sub(first);
            let mask = !u32::MAX.checked_shl(before).unwrap_or(0);
            Some((first + (self.used[word] & mask).checked_ilog2()?) as u16)
        })
    }

    /// Returns whether a slot is used.
    pub(super) fn is_used(&self, slot: usize) -> bool {
        let (word, bit) = place(slot as u16);
        self.used.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Returns whether a used slot lies in a frame, or partly.
    pub(super) fn needs(&self, frame: usize) -> bool {
        let slots = self.class.slots_in(frame);
        find(self.used, *slots.start(), 0).is_some_and(|slot| slot <= *slots.end())
    }

    /// Returns the number of frames held. Panics when the invariant is broken, or when the number
    /// of used slots is not `in_use`.
    pub(super) fn check(&self, in_use: u16) -> u32 {
        let used: u32 = self.used.iter().map(|word| word.count_ones()).sum();
        assert_eq!(used, in_use.into(), "slots in use");
        assert!(self.last_used(u16::MAX).is_none_or(|slot| slot < self.class.objects));
        let is_held = |index: usize| self.frames[index] != NO_FRAME;
        let frames = 0..self.frames.len();
        frames.clone().for_each(|index| assert_eq!(is_held(index), self.needs(index)));
        frames.filter(|index| is_held(*index)).count() as u32
    }
}

/// Returns the word of a slot's bit, and the bit.
pub(super) fn place(slot: u16) -> (usize, u32) {
    (usize::from(slot) / u32::BITS as usize, 1 << (u32::from(slot) % u32::BITS))
}

/// Returns the first bit from `from` on that is set in `words`, each of them exclusive-or `flip`.
fn find(words: &[u32], from: usize, flip: u32) -> Option<usize> {
    let bits = u32::BITS as usize;
    let mut mask = u32::MAX << (from % bits);
    for (index, word) in words.iter().enumerate().skip(from / bits) {
        let found = (word ^ flip) & mask;
        if found != 0 {
            return Some(index * bits + found.trailing_zeros() as usize);
        }
        mask = u32::MAX;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::size_class::{CHAIN_MAX, SizeClasses};
    use super::*;

    proptest! {
        /// Compares with an array of booleans, with frames missing anywhere.
        #[test]
        fn agrees_with_a_plain_array(
            chain_max in 1..=CHAIN_MAX,
            number in any::<usize>(),
            used in prop::collection::vec(any::<bool>(), 256),
            held in prop::collection::vec(any::<bool>(), CHAIN_MAX),
            density in 0..4,
            end in 0..300_u16,
        ) {
            let classes = SizeClasses::new(chain_max);
            let class = classes.class(number % classes.count());
            let objects = usize::from(class.objects);
            let used: Vec<_> = (0..objects)
                .map(|slot| match density {
                    0 => false,
                    1 => true,
                    2 => used[slot],
                    _ => used[slot] || slot < objects / 2,
                })
                .collect();
            let mut words = vec![0; Slots::words(class)];
            for slot in (0..objects).filter(|slot| used[*slot]) {
                let (word, bit) = place(slot as u16);
                words[word] |= bit;
            }
            let held = &held[..class.chain.into()];
            let frames: Vec<_> = held.iter().map(|held| if *held { 7 } else { NO_FRAME }).collect();
            let slots = Slots { class, frames: &frames, used: &words };

            let missing = |slot: usize| {
                let (first, last) = class.frames_of(slot as u16);
                held[first..=last].iter().filter(|held| !**held).count()
            };
            let free: Vec<_> = (0..objects).filter(|slot| !used[*slot]).collect();
            let before = free.iter().filter(|slot| **slot < end.into());
            let best = before.map(|slot| (missing(*slot), *slot)).min();
            let found = slots.best_free(end).map(|(slot, missing)| (missing, usize::from(slot)));
            prop_assert_eq!(found, best);
            let holes = free.iter().filter(|slot| missing(**slot) == 0).count();
            prop_assert_eq!(slots.holes(), holes);
            let last = (0..objects.min(end.into())).rev().find(|slot| used[*slot]);
            prop_assert_eq!(slots.last_used(end).map(usize::from), last);
            for frame in 0..held.len() {
                let needed = (0..objects).any(|slot| used[slot] && {
                    let (first, last) = class.frames_of(slot as u16);
                    (first..=last).contains(&frame)
                });
                prop_assert_eq!(slots.needs(frame), needed);
            }
        }
    }
}
