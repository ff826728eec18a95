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
//! 1. A move to a range that is managed still waits for the word that frees it. So do moves from
//!    there that are told meanwhile: they may be about what has moved there.
//! 2. What is on its way is forgotten by no word about where it was.
//! 3. Each move is followed by one word that its source is unmapped, but with MREMAP_DONTUNMAP
//!    (`preload/remap.rs` waits for the end of changes then). It is not about what has moved to
//!    the source since. Should it have been the word of that tenant's end, the other one is still
//!    to come, and until it has the kernel refuses to place or move pages (EAGAIN).
//! 4. What is dropped at the target of a move that waits is dropped at its source.
//!
//! With one thread each word comes in its place, and none of the rules changes anything. What they
//! cannot tell: a late word of a range of which nothing is known, as it has grown and was never
//! touched, when something has moved there.

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
}

/// A move that waits.
#[derive(Debug)]
struct Waiting {
    one: Move,
    /// The word has come that its source is unmapped.
    is_left: bool,
}

/// What words are still to come, since no change was last under way.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Moves to ranges that the word has not come from which frees them, oldest first.
    waiting: Vec<Waiting>,
    /// What was moved to.
    arrived: Regions,
    /// Sources of moves that are still to be told as unmapped.
    left: Vec<Range<usize>>,
    /// What was just found: managed, but who was told to come there came before it was found.
    fresh: Regions,
}

impl Order {
    /// A move was told.
    pub(crate) fn note_move(&mut self, one: Move) {
        self.waiting.push(Waiting { one, is_left: false });
    }

    /// `range` was just found, and is managed from now on.
    pub(crate) fn note_fresh(&mut self, range: Range<usize>) {
        self.fresh.insert(range);
    }

    /// The next move that can be followed, where so much is managed. When no change is under way,
    /// each can.
    pub(crate) fn next_move(&mut self, managed: &Regions, is_quiet: bool) -> Option<Move> {
        let is_free = |it: &Waiting| {
            let mut is_free = true;
            managed.for_each_part(it.one.target(), |part| {
                self.fresh.for_each_gap(part, |_| is_free = false);
            });
            is_free
        };
        let mut all = 0..self.waiting.len();
        let index =
            all.clone().find(|index| self.is_next(*index) && is_free(&self.waiting[*index]));
        let index = index.or_else(|| {
            let first = all.next().filter(|_| is_quiet)?;
            let free = (first..self.waiting.len()).find(|index| is_free(&self.waiting[*index]));
            Some(free.unwrap_or(first))
        })?;
        let Waiting { one, is_left } = self.waiting.remove(index);
        self.arrived.remove(one.source());
        self.arrived.insert(one.target());
        self.fresh.remove(one.target());
        if !is_left {
            self.left.push(one.source());
        }
        Some(one)
    }

    /// Whether the waiting move of this index is about what is known at its source, and not about
    /// what waits to go there.
    fn is_next(&self, index: usize) -> bool {
        let source = self.waiting[index].one.source();
        let mut earlier = self.waiting[..index].iter().map(|it| it.one.target());
        !earlier.any(|target| target.start < source.end && source.start < target.end)
    }

    /// Whether a move waits for a word.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// `range` was told to be unmapped. Calls `obey` for the parts of it of which that holds.
    pub(crate) fn note_unmapped(&mut self, range: Range<usize>, obey: impl FnMut(Range<usize>)) {
        let mut waiting = self.waiting.iter_mut();
        if let Some(it) = waiting.find(|it| !it.is_left && it.one.source() == range) {
            // What is there goes with the move.
            it.is_left = true;
            return;
        }
        let told = self.left.iter().position(|source| *source == range);
        let mut others = Regions::default();
        for index in (0..self.waiting.len()).filter(|index| self.is_next(*index)) {
            others.insert(self.waiting[index].one.source());
        }
        if told.is_some() {
            self.arrived.for_each_part(range.clone(), |part| others.insert(part));
        }
        others.for_each_gap(range, obey);
        if let Some(told) = told {
            self.left.swap_remove(told);
            if !self.is_open() {
                self.arrived = Regions::default();
            }
        }
    }

    /// `range` is about to be dropped. Calls `obey` for what is there, where it is known.
    pub(crate) fn note_dropped(&self, range: Range<usize>, obey: impl FnMut(Range<usize>)) {
        let mut there = vec![range];
        for Waiting { one, .. } in self.waiting.iter().rev() {
            let (target, mut known) = (one.target(), Vec::new());
            for part in there {
                let (start, end) = (part.start.max(target.start), part.end.min(target.end));
                if start >= end {
                    known.push(part);
                    continue;
                }
                let source = |address: usize| address - one.to + one.from;
                known.push(source(start)..source(end));
                let beside = [part.start..start, end..part.end];
                known.extend(beside.into_iter().filter(|range| !range.is_empty()));
            }
            there = known;
        }
        there.into_iter().for_each(obey);
    }

    /// No change is under way, and all words have been obeyed.
    pub(crate) fn end(&mut self) {
        debug_assert!(self.waiting.is_empty());
        // Of a move that leaves its source mapped (MREMAP_DONTUNMAP) no word comes.
        self.left.clear();
        (self.arrived, self.fresh) = (Regions::default(), Regions::default());
    }

    /// Whether words are still to come.
    pub(crate) fn is_open(&self) -> bool {
        !self.left.is_empty() || !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    //! Risk: what is known of a page goes with the word of a tenant that had left its address
    //! before.

    use alloc::collections::BTreeMap;

    use super::*;

    /// A word, as the kernel would say it.
    #[derive(Clone, Copy)]
    enum Word {
        Moved(usize, usize),
        Unmapped(usize),
        Dropped(usize),
    }
    use Word::{Dropped, Moved, Unmapped};

    /// Each address stands for a range of this many bytes.
    const LENGTH: Bytes = Bytes(0x1000);

    fn range(name: usize) -> Range<usize> {
        name * LENGTH.0..(name + 1) * LENGTH.0
    }

    /// What a manager knows: who lives where.
    struct Known {
        tenants: BTreeMap<usize, char>,
        managed: Regions,
        order: Order,
    }

    impl Known {
        fn of(tenants: &[(usize, char)]) -> Self {
            let mut managed = Regions::default();
            tenants.iter().for_each(|(name, _)| managed.insert(range(*name)));
            Self { tenants: tenants.iter().copied().collect(), managed, order: Order::default() }
        }

        fn forget(&mut self, gone: Range<usize>) {
            self.tenants.remove(&(gone.start / LENGTH.0));
            self.managed.remove(gone);
        }

        fn follow(&mut self, is_quiet: bool) {
            while let Some(one) = self.order.next_move(&self.managed, is_quiet) {
                self.forget(one.target());
                if let Some(tenant) = self.tenants.remove(&(one.from / LENGTH.0)) {
                    self.tenants.insert(one.to / LENGTH.0, tenant);
                }
                self.managed.remove(one.source());
                self.managed.insert(one.target());
            }
        }

        fn hear(&mut self, word: Word) {
            match word {
                Moved(from, to) => {
                    let (from, to) = (range(from).start, range(to).start);
                    self.order.note_move(Move { from, to, length: LENGTH });
                }
                Unmapped(name) => {
                    let mut gone = Vec::new();
                    self.order.note_unmapped(range(name), |part| gone.push(part));
                    gone.into_iter().for_each(|part| self.forget(part));
                }
                Dropped(name) => {
                    let mut gone = Vec::new();
                    self.order.note_dropped(range(name), |part| gone.push(part));
                    for part in gone {
                        self.tenants.remove(&(part.start / LENGTH.0));
                    }
                }
            }
            self.follow(false);
        }

        /// Who lives where in the end.
        fn end(mut self) -> Vec<(usize, char)> {
            self.follow(true);
            self.order.end();
            assert!(!self.order.is_open());
            self.tenants.into_iter().collect()
        }
    }

    const S: usize = 1;
    const D: usize = 2;
    const X: usize = 3;
    const Q: usize = 4;

    fn after(words: &[Word]) -> Vec<(usize, char)> {
        let mut known = Known::of(&[(S, 's'), (X, 'x')]);
        words.iter().for_each(|word| known.hear(*word));
        known.end()
    }

    #[test]
    fn words_in_order_are_obeyed_at_once() {
        let mut known = Known::of(&[(S, 's'), (X, 'x')]);
        known.hear(Moved(S, D));
        known.hear(Unmapped(S));
        assert_eq!(known.tenants.get(&D), Some(&'s'));
        assert!(!known.order.is_open());
        known.hear(Unmapped(D));
        assert_eq!(known.tenants.len(), 1);
        known.hear(Unmapped(X));
        assert!(known.tenants.is_empty() && !known.order.is_open());
        // There and back, and gone.
        let words = [Moved(S, D), Unmapped(S), Moved(D, S), Unmapped(D)];
        assert_eq!(after(&words), [(S, 's'), (X, 'x')]);
        let all: Vec<_> = words.into_iter().chain([Unmapped(S)]).collect();
        assert_eq!(after(&all), [(X, 'x')]);
    }

    #[test]
    fn a_late_word_of_a_tenant_that_moved_away_leaves_the_next_one_alone() {
        let words = [Moved(S, D), Moved(X, S), Unmapped(S), Unmapped(X)];
        assert_eq!(after(&words), [(S, 'x'), (D, 's')]);
        // It has gone too: whichever of the two words comes first.
        let words = [Moved(S, D), Moved(X, S), Unmapped(X), Unmapped(S), Unmapped(S)];
        assert_eq!(after(&words), [(D, 's')]);
    }

    #[test]
    fn a_move_waits_for_the_word_of_the_tenant_before() {
        // Thread 1 unmaps S, thread 2 moves X there.
        for words in [
            [Moved(X, S), Unmapped(S), Unmapped(X)],
            [Moved(X, S), Unmapped(X), Unmapped(S)],
            [Unmapped(S), Moved(X, S), Unmapped(X)],
        ] {
            assert_eq!(after(&words), [(S, 'x')]);
        }
        // Thread 1 moves S to Q, thread 2 moves X there.
        for words in [
            [Moved(X, S), Moved(S, Q), Unmapped(S), Unmapped(X)],
            [Moved(X, S), Unmapped(X), Moved(S, Q), Unmapped(S)],
            [Moved(X, S), Moved(S, Q), Unmapped(X), Unmapped(S)],
            [Moved(S, Q), Moved(X, S), Unmapped(X), Unmapped(S)],
        ] {
            assert_eq!(after(&words), [(S, 'x'), (Q, 's')]);
        }
    }

    /// Thread 1 unmaps S, and is told late; thread 2 moves X there and on to Q.
    #[test]
    fn a_move_from_where_another_waits_to_go_waits_too() {
        for words in [
            [Moved(X, S), Unmapped(X), Moved(S, Q), Unmapped(S), Unmapped(S)],
            [Moved(X, S), Unmapped(X), Unmapped(S), Moved(S, Q), Unmapped(S)],
        ] {
            assert_eq!(after(&words), [(Q, 'x')]);
        }
    }

    #[test]
    fn what_was_just_found_is_who_was_told_to_come_there() {
        let mut known = Known::of(&[(X, 'x')]);
        known.managed.insert(range(S));
        known.order.note_fresh(range(S));
        for word in [Moved(X, S), Unmapped(X), Moved(S, Q), Unmapped(S)] {
            known.hear(word);
        }
        assert_eq!(known.end(), [(Q, 'x')]);
    }

    #[test]
    fn what_waits_to_leave_is_not_forgotten_with_what_lay_around_it() {
        let mut known = Known::of(&[(S, 's'), (X, 'x')]);
        known.hear(Moved(X, S));
        known.hear(Unmapped(X));
        let mut gone = Vec::new();
        known.order.note_unmapped(range(D).start..range(Q).end, |part| gone.push(part));
        assert_eq!(gone, [range(D), range(Q)]);
        known.hear(Unmapped(S));
        assert_eq!(known.end(), [(S, 'x')]);
    }

    #[test]
    fn what_is_dropped_where_a_move_waits_to_go_is_dropped() {
        let words = [Moved(X, S), Unmapped(X), Dropped(S), Unmapped(S)];
        assert_eq!(after(&words), []);
        let words = [Moved(X, S), Unmapped(X), Dropped(D), Unmapped(S)];
        assert_eq!(after(&words), [(S, 'x')]);
        // What was there before is on its way, and another's.
        let words = [Moved(X, S), Unmapped(X), Dropped(S), Moved(S, Q), Unmapped(S)];
        assert_eq!(after(&words), [(Q, 's')]);
        let mut order = Order::default();
        order.note_move(Move { from: 0x9000, to: 0x4000, length: Bytes(0x2000) });
        let mut gone = Vec::new();
        order.note_dropped(0x5000..0x7000, |part| gone.push(part));
        assert_eq!(gone, [0xa000..0xb000, 0x6000..0x7000]);
    }

    #[test]
    fn a_source_that_stays_mapped_is_forgotten_with_the_next_word_of_it() {
        let words = [Moved(S, D), Unmapped(S), Moved(X, S), Unmapped(X), Unmapped(S)];
        assert_eq!(after(&words), [(D, 's')]);
    }

    #[test]
    fn a_move_whose_word_never_comes_is_followed_when_no_change_is_under_way() {
        assert_eq!(after(&[Moved(X, S)]), [(S, 'x')]);
    }
}
