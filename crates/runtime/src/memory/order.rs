//! The order in which to believe the kernel's words about changes that several threads make at
//! once.
//!
//! A *word* is a userfaultfd event about a range. The kernel sends the word about an unmapped or
//! moved range after it has let go of the address space. So another thread may have taken the range
//! already, and its word may come before the last word about the former tenant:
//!
//! ```text
//! thread 1   mremap S to D    S is free   "S to D" ............................. "S unmapped"
//! thread 2                                  mremap X to S   "X to S"
//! ```
//!
//! Obeyed in the order of arrival, the last of these words would make us forget pages of X. The
//! rules:
//!
//! 1. A move to a range that is still managed waits, and with it all words that come after it,
//!    until no change is under way. Then, among all of these, the word that freed the range is
//!    found and obeyed first.
//! 2. A thread that moves a range is in its call until the word has come that the source is
//!    unmapped. No other thread knows the new address before that, so other words about that
//!    address concern a former tenant. They wait too, because the word about the source may never
//!    come (MREMAP_DONTUNMAP). When no change is under way, it is among the words that were read,
//!    or the call has returned long since.
//! 3. The word that the source is unmapped does not concern what has moved to the source since.
//!
//! With one thread, each word comes in its place, and none of the rules changes anything. With
//! several threads, the words may fit two histories: then the one that assumes less is believed. A
//! late word about a range of which nothing is known, because it has grown and was never touched,
//! is believed too. `order/tests.rs` counts how often that is wrong, in histories that are made to
//! provoke it. After MREMAP_DONTUNMAP `preload/remap.rs` waits until no change is under way. If a
//! program calls the kernel itself, the next word about the source is taken for the word that does
//! not come.

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::Bytes;

use super::regions::Regions;

/// A move of pages from one range to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// The address where the pages were.
    pub(crate) from: usize,
    /// The address where the pages are now.
    pub(crate) to: usize,
    /// The bytes of the pages that moved.
    pub(crate) length: Bytes,
    /// The bytes by which the mapping has grown after those pages, as far as that is known.
    pub(crate) grown: Bytes,
}

impl Move {
    /// Returns the range that the pages left.
    pub(crate) fn source(self) -> Range<usize> {
        self.from..self.from + self.length.0
    }

    /// Returns the range that the pages came to.
    pub(crate) fn target(self) -> Range<usize> {
        self.to..self.to + self.length.0
    }

    /// Returns the target, and what has grown after it.
    pub(crate) fn mapping(self) -> Range<usize> {
        self.to..self.to + self.length.0 + self.grown.0
    }
}

/// A change that the kernel reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Moved(Move),
    Unmapped(Range<usize>),
    Dropped(Range<usize>),
}

impl Change {
    fn is_empty(&self) -> bool {
        match self {
            Self::Moved(one) => one.length == Bytes(0),
            Self::Unmapped(range) | Self::Dropped(range) => range.is_empty(),
        }
    }
}

impl Change {
    /// Returns the range that the change frees, if any.
    fn freed(&self) -> Option<Range<usize>> {
        match self {
            Self::Moved(one) => Some(one.source()),
            Self::Unmapped(range) => Some(range.clone()),
            Self::Dropped(_) => None,
        }
    }
}

/// The certainty that a word about the target of a move concerns the former tenant of that range;
/// the surest comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Before {
    /// The moving call has not returned yet, or its thread would have unmapped only a part of what
    /// it moved.
    Sure,
    /// The word concerns more than what has come.
    Likely,
    /// The word concerns all that has come.
    Unlikely,
}

/// The words that are still to be obeyed, and those to come, since no change was last under way.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The words to be obeyed, oldest first: none, or one that waits and those that came after it.
    words: VecDeque<Change>,
    /// Moves that were obeyed, and whose sources have not been reported as unmapped yet.
    calling: Vec<Move>,
    /// The ranges that pages were moved to.
    arrived: Regions,
    /// The ranges that were just found. They are managed, but a tenant that a word reports to come
    /// there had come before the range was found.
    fresh: Regions,
}

impl Order {
    /// Takes in a word that was read.
    pub(crate) fn hear(&mut self, word: Change) {
        assert!(!word.is_empty(), "{word:x?} is of no page");
        self.words.push_back(word);
    }

    /// Notes that `range` was just found, and is managed from now on.
    pub(crate) fn note_fresh(&mut self, range: Range<usize>) {
        self.fresh.insert(range);
    }

    /// Whether a word waits for other words.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.words.is_empty()
    }

    /// Whether words are still to be obeyed, or still to come.
    pub(crate) fn is_open(&self) -> bool {
        !self.words.is_empty() || !self.calling.is_empty()
    }

    /// Returns the next word that can be obeyed while the ranges in `managed` are, split into the
    /// parts for which it holds. When no change is under way (`is_quiet`), there is a next word
    /// until all have been obeyed.
    pub(crate) fn next(&mut self, managed: &Regions, is_quiet: bool) -> Option<Vec<Change>> {
        let mut index = 0;
        match self.words.front()? {
            Change::Moved(one) if !self.tenants(managed, *one).is_empty() => {
                is_quiet.then_some(())?;
                index = self.first_before(managed, 0, &mut Vec::new());
            }
            Change::Unmapped(range) if !self.ends_call(range) && self.is_of_caller(range) => {
                is_quiet.then_some(())?;
            }
            _ => {}
        }
        let word = self.words.remove(index)?;
        Some(match word {
            Change::Moved(one) => {
                self.arrived.remove(one.source());
                self.arrived.insert(one.target());
                self.fresh.remove(one.target());
                self.calling.push(one);
                vec![word]
            }
            Change::Unmapped(range) => self.unmapped(range),
            Change::Dropped(_) => vec![word],
        })
    }

    /// Begins afresh: no change is under way, and all words have been obeyed.
    pub(crate) fn end(&mut self) {
        debug_assert!(self.words.is_empty());
        // No word comes for the source of a move that leaves it mapped (MREMAP_DONTUNMAP).
        self.calling.clear();
        (self.arrived, self.fresh) = (Regions::default(), Regions::default());
    }

    /// Returns the ranges of former tenants where a move goes, as far as they are known.
    fn tenants(&self, managed: &Regions, one: Move) -> Vec<Range<usize>> {
        let mut tenants = Vec::new();
        managed.for_each_part(one.target(), |part| {
            self.fresh.for_each_gap(part, |gap| tenants.push(gap));
        });
        tenants
    }

    /// Whether a word about this unmapped range is the one that a call still waits for.
    fn ends_call(&self, range: &Range<usize>) -> bool {
        self.calling.iter().any(|one| one.source() == *range)
    }

    /// Whether a call that may not have returned has put something into a range.
    fn is_of_caller(&self, range: &Range<usize>) -> bool {
        self.calling.iter().any(|one| meet(&one.target(), range))
    }

    /// Returns the parts of a range for which the word holds that the range was unmapped.
    fn unmapped(&mut self, range: Range<usize>) -> Vec<Change> {
        let mut others = Regions::default();
        if let Some(told) = self.calling.iter().position(|one| one.source() == range) {
            self.calling.swap_remove(told);
            self.arrived.for_each_part(range.clone(), |part| others.insert(part));
        } else {
            // The words of calls that had not returned yet are among those that were read later.
            let words = &self.words;
            let is_in_call = |one: &Move| words.contains(&Change::Unmapped(one.source()));
            self.calling.retain(|one| is_in_call(one) || !meet(&one.target(), &range));
            self.calling.iter().for_each(|one| others.insert(one.target()));
        }
        let (mut words, arrived) = (Vec::new(), &mut self.arrived);
        others.for_each_gap(range, |part| {
            arrived.remove(part.clone());
            words.push(Change::Unmapped(part));
        });
        words
    }

    /// Returns the index of the word to obey first so that the word at `index` can be obeyed: its
    /// own, or that of the word that freed its target. `chain` holds the moves that wait for it.
    fn first_before(&self, managed: &Regions, index: usize, chain: &mut Vec<usize>) -> usize {
        let Change::Moved(one) = self.words[index] else { return index };
        chain.push(index);
        let tenants = self.tenants(managed, one);
        let all = 0..self.words.len();
        let is_end = |other: &usize| self.words[*other] == Change::Unmapped(one.source());
        let returned = (index + 1..all.end).find(is_end).unwrap_or(all.end);
        let candidates = all.filter(|other| {
            let word = &self.words[*other];
            let frees = word.freed().is_some_and(|range| tenants.iter().any(|it| meet(it, &range)));
            frees && !chain.contains(other) && !self.is_bound(word, chain)
        });
        let before = |other: &usize| (self.before(one, *other, returned), *other);
        let Some(found) = candidates.min_by_key(before) else { return index };
        // The tenant may have dropped pages there while the moving thread was still in its call.
        let range = self.words[found].freed().unwrap_or_default();
        let is_dropped =
            |other: &usize| matches!(&self.words[*other], Change::Dropped(it) if meet(it, &range));
        let dropped = (index + 1..found.min(returned)).find(is_dropped);
        dropped.unwrap_or_else(|| self.first_before(managed, found, chain))
    }

    /// Whether a move goes to a range that one of `chain` has not left yet.
    fn is_bound(&self, word: &Change, chain: &[usize]) -> bool {
        let Change::Moved(one) = word else { return false };
        let sources = chain.iter().filter_map(|index| self.words[*index].freed());
        sources.into_iter().any(|source| meet(&source, &one.target()))
    }

    /// Returns how surely the word at `index` concerns the former tenant of the target of `one`,
    /// whose call has returned before the word at index `returned`.
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
