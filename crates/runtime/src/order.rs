//! Words of changes that threads make at the same time, and in what order they are believed.
//!
//! The kernel tells of an unmapped or moved range when it has let go of the address space. So
//! another thread may have taken the range, and told of that, before the word of its last tenant
//! comes:
//!
//! ```text
//! thread 1   mremap S to D    S is free   "S to D" ............................. "S unmapped"
//! thread 2                                  mremap X to S   "X to S"
//! ```
//!
//! Obeyed as they come, the last of these words would forget pages of X. The rules:
//!
//! 1. A move to a range that is managed still waits, and with it all words that come after it,
//!    until no change is under way. Then, of all of these, what freed the range is found and obeyed
//!    first.
//! 2. Who moves a range is in its call until the word has come that the source is unmapped. Nobody
//!    else knows the new address before, so other words about it are about a former tenant. They
//!    wait too, as that word may never come (MREMAP_DONTUNMAP): when no change is under way, it is
//!    among those that were read, or the call has returned long since.
//! 3. That word is not about what has moved to the source since.
//!
//! With one thread each word comes in its place, and none of the rules changes anything. With
//! several, the words can be those of two histories: then the one that needs less is believed. A
//! late word of a range of which nothing is known, as it has grown and was never touched, is
//! believed too. `order/tests.rs` counts how often that is wrong, of histories that are made to be.
//! After MREMAP_DONTUNMAP `preload/remap.rs` waits until no change is under way; of a program that
//! calls the kernel itself, the next word of the source is taken for the one that does not come.

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::Bytes;

use crate::regions::Regions;

/// Pages that went from one range to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// Where they were.
    pub(crate) from: usize,
    /// Where they are.
    pub(crate) to: usize,
    /// How many bytes of them there are.
    pub(crate) length: Bytes,
    /// How many more there are of the mapping behind them, as far as that is known.
    pub(crate) grown: Bytes,
}

impl Move {
    /// The range that they left.
    pub(crate) fn source(self) -> Range<usize> {
        self.from..self.from + self.length.0
    }

    /// The range that they came to.
    pub(crate) fn target(self) -> Range<usize> {
        self.to..self.to + self.length.0
    }

    /// The target, and what has grown behind it.
    pub(crate) fn mapping(self) -> Range<usize> {
        self.to..self.to + self.length.0 + self.grown.0
    }
}

/// What the kernel tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Moved(Move),
    Unmapped(Range<usize>),
    Dropped(Range<usize>),
}

impl Word {
    /// The range that is left.
    fn freed(&self) -> Option<Range<usize>> {
        match self {
            Self::Moved(one) => Some(one.source()),
            Self::Unmapped(range) => Some(range.clone()),
            Self::Dropped(_) => None,
        }
    }
}

/// Whether a word about the range to which somebody moves is about who was there before: the surest
/// first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Before {
    /// Who comes has not returned yet, or would have unmapped a part.
    Sure,
    /// It is about more than has come.
    Likely,
    /// It is about all that has come.
    Unlikely,
}

/// What words are still to be obeyed, and to come, since no change was last under way.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Those to be obeyed, oldest first: none, or one that waits and what came after it.
    words: VecDeque<Word>,
    /// Moves that were obeyed, and whose sources are still to be told as unmapped.
    calling: Vec<Move>,
    /// What was moved to.
    arrived: Regions,
    /// What was just found: managed, but who was told to come there came before it was found.
    fresh: Regions,
}

impl Order {
    /// A word was read.
    pub(crate) fn hear(&mut self, word: Word) {
        self.words.push_back(word);
    }

    /// `range` was just found, and is managed from now on.
    pub(crate) fn note_fresh(&mut self, range: Range<usize>) {
        self.fresh.insert(range);
    }

    /// Whether a word waits for others.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.words.is_empty()
    }

    /// Whether words are still to come.
    pub(crate) fn is_open(&self) -> bool {
        !self.words.is_empty() || !self.calling.is_empty()
    }

    /// The next word that can be obeyed, where so much is managed, and as much of it as holds. When
    /// no change is under way (`is_quiet`), there is one until all have been obeyed.
    pub(crate) fn next(&mut self, managed: &Regions, is_quiet: bool) -> Option<Vec<Word>> {
        let mut index = 0;
        match self.words.front()? {
            Word::Moved(one) if !self.tenants(managed, *one).is_empty() => {
                is_quiet.then_some(())?;
                index = self.first_before(managed, 0, &mut Vec::new());
            }
            Word::Unmapped(range) if !self.ends_call(range) && self.is_of_caller(range) => {
                is_quiet.then_some(())?;
            }
            _ => {}
        }
        let word = self.words.remove(index)?;
        Some(match word {
            Word::Moved(one) => {
                self.arrived.remove(one.source());
                self.arrived.insert(one.target());
                self.fresh.remove(one.target());
                self.calling.push(one);
                vec![word]
            }
            Word::Unmapped(range) => self.unmapped(range),
            Word::Dropped(_) => vec![word],
        })
    }

    /// No change is under way, and all words have been obeyed.
    pub(crate) fn end(&mut self) {
        debug_assert!(self.words.is_empty());
        // Of a move that leaves its source mapped (MREMAP_DONTUNMAP) no word comes.
        self.calling.clear();
        (self.arrived, self.fresh) = (Regions::default(), Regions::default());
    }

    /// Who is where a move goes, as far as is known.
    fn tenants(&self, managed: &Regions, one: Move) -> Vec<Range<usize>> {
        let mut tenants = Vec::new();
        managed.for_each_part(one.target(), |part| {
            self.fresh.for_each_gap(part, |gap| tenants.push(gap));
        });
        tenants
    }

    /// Whether the word that a range is unmapped is the one that a call still waits for.
    fn ends_call(&self, range: &Range<usize>) -> bool {
        self.calling.iter().any(|one| one.source() == *range)
    }

    /// Whether a call that may not have returned has put something into a range.
    fn is_of_caller(&self, range: &Range<usize>) -> bool {
        self.calling.iter().any(|one| meet(&one.target(), range))
    }

    /// The parts of a range that was told to be unmapped of which that holds.
    fn unmapped(&mut self, range: Range<usize>) -> Vec<Word> {
        let mut others = Regions::default();
        if let Some(told) = self.calling.iter().position(|one| one.source() == range) {
            self.calling.swap_remove(told);
            self.arrived.for_each_part(range.clone(), |part| others.insert(part));
        } else {
            // The words of calls that had not returned are among those that were read later.
            let words = &self.words;
            let is_in_call = |one: &Move| words.contains(&Word::Unmapped(one.source()));
            self.calling.retain(|one| is_in_call(one) || !meet(&one.target(), &range));
            self.calling.iter().for_each(|one| others.insert(one.target()));
        }
        let (mut words, arrived) = (Vec::new(), &mut self.arrived);
        others.for_each_gap(range, |part| {
            arrived.remove(part.clone());
            words.push(Word::Unmapped(part));
        });
        words
    }

    /// The index of the word to obey first so that the word of this index can be: its own, or that
    /// of who freed where it goes. `chain` has the moves that wait for it.
    fn first_before(&self, managed: &Regions, index: usize, chain: &mut Vec<usize>) -> usize {
        let Word::Moved(one) = self.words[index] else { return index };
        chain.push(index);
        let tenants = self.tenants(managed, one);
        let all = 0..self.words.len();
        let is_end = |other: &usize| self.words[*other] == Word::Unmapped(one.source());
        let returned = (index + 1..all.end).find(is_end).unwrap_or(all.end);
        let candidates = all.filter(|other| {
            let word = &self.words[*other];
            let frees = word.freed().is_some_and(|range| tenants.iter().any(|it| meet(it, &range)));
            frees && !chain.contains(other) && !self.is_bound(word, chain)
        });
        let before = |other: &usize| (self.before(one, *other, returned), *other);
        let Some(found) = candidates.min_by_key(before) else { return index };
        // What its tenant had dropped there, while who comes was still in its call.
        let range = self.words[found].freed().unwrap_or_default();
        let is_dropped =
            |other: &usize| matches!(&self.words[*other], Word::Dropped(it) if meet(it, &range));
        let dropped = (index + 1..found.min(returned)).find(is_dropped);
        dropped.unwrap_or_else(|| self.first_before(managed, found, chain))
    }

    /// Whether a move goes to where one of `chain` is still.
    fn is_bound(&self, word: &Word, chain: &[usize]) -> bool {
        let Word::Moved(one) = word else { return false };
        let sources = chain.iter().filter_map(|index| self.words[*index].freed());
        sources.into_iter().any(|source| meet(&source, &one.target()))
    }

    /// What the word of this index is to `one`, who has `returned` before the word of that index.
    fn before(&self, one: Move, index: usize, returned: usize) -> Before {
        let range = self.words[index].freed().unwrap_or_default();
        let (target, mapping) = (one.target(), one.mapping());
        if index < returned || range.start > target.start || range.end < target.end {
            Before::Sure
        } else if range.start < mapping.start || range.end > mapping.end {
            Before::Likely
        } else {
            Before::Unlikely
        }
    }
}

/// Whether two ranges have an address in common.
fn meet(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}
