//! Bars: a mapping with pages away is inherited only by a child that is served.
//!
//! In the child of a fork that nothing catches, such as one by the bare instruction, a page that is
//! away would read as zeros. So a mapping is barred (MADV_DONTFORK) before its first page is taken:
//! such a child does not have the mapping, and ends by SIGSEGV where it touches it. A child that
//! execs, or ends, with what lies in other mappings goes on correctly. Nothing is barred while a
//! fork is made that is caught (`heir`), or while every page is in place (a hold).
//!
//! Whole regions are barred, to the ends of their mappings, and so is memory that is found beside
//! them. Otherwise mappings that differ in this would no longer merge where they touch, or where a
//! program gives them the same access, and an `mremap` over two that were one before would fail.
//!
//! Invariants:
//! 1. A page in state `Limbo` or `Stored` lies in a barred mapping, except while a fork is made.
//! 2. Children never get what the program itself keeps from them (`Control::uninherited`).
//! 3. While bars are lifted, children get what moves at its new place: it may have moved before the
//!    bars were lifted.

use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::map;

use super::discover::for_each_outside;
use super::order::Move;
use super::regions::Regions;
use super::{Follow, Memory};
use crate::pages::PageNumber;

/// The answer to whether pages of a mapping may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    /// The mapping is barred: no child inherits it.
    Is,
    /// The mapping is barred from now on; every state must be looked at afresh.
    New,
    /// The kernel refuses to bar the mapping.
    Refused,
}

/// The ranges that are barred.
#[derive(Debug, Default)]
pub(crate) struct Bars {
    /// The ranges that no child inherits.
    pub(crate) ranges: Regions,
    /// Whether all bars are lifted, so that children inherit all ranges.
    are_lifted: bool,
}

impl Memory {
    /// Bars the mapping of a page that is to be taken.
    pub(crate) fn bar(&mut self, page: PageNumber, follow: &mut impl Follow) -> Bar {
        let address = page.address();
        self.bars.are_lifted = false;
        if self.bars.ranges.holding(address).is_some() {
            return Bar::Is;
        }
        let Some(range) = self.regions.holding(address).or_else(|| self.mapping_at(address)) else {
            return Bar::Refused;
        };
        let range = self.to_mapping_ends(range);
        if map::inherit(range.clone(), false).is_err() {
            self.give_unbarred(range);
            return Bar::Refused;
        }
        self.confirm(&[range], follow);
        Bar::New
    }

    /// Bars a range that was just registered, if it touches what is barred.
    pub(crate) fn bar_beside(&mut self, range: Range<usize>, follow: &mut impl Follow) {
        let touches = |address| self.bars.ranges.holding(address).is_some();
        if (touches(range.start - 1) || touches(range.end))
            && map::inherit(range.clone(), false).is_ok()
        {
            self.confirm(&[range], follow);
        }
    }

    /// Returns the mapping that contains an address. Linux before 6.11 cannot answer: a fork asks
    /// for many mappings.
    fn mapping_at(&self, address: usize) -> Option<Range<usize>> {
        self.files.mappings.ask_for(address).ok()
    }

    /// Extends a range to the ends of the mappings that contain its first and its last byte: a
    /// mapping that has grown in place is known by its former length.
    fn to_mapping_ends(&self, range: Range<usize>) -> Range<usize> {
        let first = self.mapping_at(range.start).unwrap_or(range.clone());
        let last = self.mapping_at(range.end - 1).unwrap_or(range.clone());
        first.start.min(range.start)..last.end.max(range.end)
    }

    /// Bars again what was barred: a fork is over, or the program has lifted a bar.
    pub(crate) fn bar_again(&mut self, follow: &mut impl Follow) {
        // The words about what was unmapped meanwhile come first.
        self.settle(follow);
        self.bars.are_lifted = false;
        let ranges: Vec<_> =
            self.bars.ranges.iter().map(|range| self.to_mapping_ends(range)).collect();
        for range in &ranges {
            // Nothing is inherited of a part that is not mapped.
            let _ = map::inherit(range.clone(), false);
        }
        self.confirm(&ranges, follow);
    }

    /// Notes that ranges were just barred. What was unmapped before that, and whose words come now,
    /// may belong to another mapping: it is not barred.
    fn confirm(&mut self, ranges: &[Range<usize>], follow: &mut impl Follow) {
        for range in ranges {
            self.bars.ranges.insert(range.clone());
        }
        self.settle(follow);
        for range in ranges {
            self.give_unbarred(range.clone());
        }
    }

    /// Gives children the parts of a range that are not barred.
    fn give_unbarred(&self, range: Range<usize>) {
        self.bars.ranges.for_each_gap(range, |gap| self.give_to_children(gap));
    }

    /// Lets children inherit everything; [`Memory::bar_again`] may follow.
    pub(crate) fn lift_bars(&mut self, follow: &mut impl Follow) {
        self.bars.are_lifted = true;
        // Less may be known than there is, after words of several threads that fit two histories.
        let mut known = Regions::default();
        for range in self.regions.iter().chain(self.bars.ranges.iter()) {
            known.insert(self.to_mapping_ends(range));
        }
        for range in known.iter() {
            self.give_to_children(range);
        }
        // What has moved before is given to children where it is now.
        self.settle(follow);
    }

    /// Lifts all bars and forgets them: every page is in place.
    pub(crate) fn lift_all_bars(&mut self, follow: &mut impl Follow) {
        self.lift_bars(follow);
        self.bars.ranges = Regions::default();
    }

    /// Lifts the bar of a range that is no longer managed.
    pub(crate) fn lift_bar(&mut self, range: Range<usize>) {
        self.bars.ranges.remove(range.clone());
        self.give_to_children(range);
    }

    /// Moves a bar along with its mapping, and also what the program keeps from its children.
    pub(crate) fn follow_bar(&mut self, one: Move) {
        let is_barred = self.bars.ranges.holding(one.from).is_some();
        let own: Vec<_> = self.control.uninherited.iter().collect();
        self.bars.ranges.remove(one.target());
        self.control.uninherited.remove(&one.mapping());
        for range in own {
            let (start, end) = (range.start.max(one.from), range.end.min(one.source().end));
            if start < end {
                self.control.uninherited.remove(&(start..end));
                let offset = one.to.wrapping_sub(one.from);
                // What has grown is treated like what was there.
                let is_last = end == one.source().end;
                let end = if is_last { one.mapping().end } else { end.wrapping_add(offset) };
                self.control.uninherited.add(start.wrapping_add(offset)..end);
            }
        }
        if self.bars.are_lifted {
            self.give_to_children(one.mapping());
        }
        if is_barred {
            // The source may still be mapped (MREMAP_DONTUNMAP), and is not managed.
            self.lift_bar(one.source());
            self.bars.ranges.insert(one.mapping());
        }
    }

    /// Gives children a range, except for what the program itself keeps from them.
    fn give_to_children(&self, range: Range<usize>) {
        let own: Vec<_> = self.control.uninherited.iter().collect();
        for_each_outside(&own, range, |part| {
            // Nothing is inherited of a part that is not mapped.
            let _ = map::inherit(part, true);
        });
    }
}
