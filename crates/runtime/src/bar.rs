//! Bars: what has pages away is not inherited, but by a child that is served.
//!
//! In the child of a fork that nobody catches, as by the bare instruction, a page that is away
//! would read as zeros. So a mapping is barred (MADV_DONTFORK) before its first page is taken: such
//! a child has it not, and ends by SIGSEGV where it touches it. It goes on rightly if it execs, or
//! ends, with what lies in other mappings. While a fork is made that is caught (`heir`), and while
//! everything is in place (a hold), nothing is barred.
//!
//! Whole regions are barred, to the ends of their mappings, and what is found beside them is too:
//! mappings that differ in this are not one any more when they come to touch, or a program changes
//! their access to the same, and `mremap` of two that were one fails.
//!
//! Invariants:
//! 1. A page of `Limbo` or `Stored` lies in what is barred, but while a fork is made.
//! 2. What the program keeps from its children itself (`Control::uninherited`) is never given to
//!    them.
//! 3. While bars are lifted, what moves is given to children where it comes to: it may have moved
//!    before they were.

use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::map;

use crate::discover::for_each_outside;
use crate::manager::Manager;
use crate::order::Move;
use crate::pages::PageNumber;
use crate::regions::Regions;

/// Whether pages of a mapping may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    /// No child inherits it.
    Is,
    /// None does from now on; every state must be looked at afresh.
    New,
    /// The kernel refuses that.
    Refused,
}

/// What is barred.
#[derive(Debug, Default)]
pub(crate) struct Bars {
    /// What no child inherits.
    pub(crate) ranges: Regions,
    /// That does not hold: all is inherited.
    are_lifted: bool,
}

impl Manager {
    /// Bars the mapping of a page that is to be taken.
    pub(crate) fn bar(&mut self, page: PageNumber) -> Bar {
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
        self.confirm(&[range]);
        Bar::New
    }

    /// Bars a range that was just registered, if it touches what is barred.
    pub(crate) fn bar_beside(&mut self, range: Range<usize>) {
        let touches = |address| self.bars.ranges.holding(address).is_some();
        if (touches(range.start - 1) || touches(range.end))
            && map::inherit(range.clone(), false).is_ok()
        {
            self.confirm(&[range]);
        }
    }

    /// The mapping that has an address. Not told before Linux 6.11: a fork asks for many.
    fn mapping_at(&self, address: usize) -> Option<Range<usize>> {
        self.files.mappings.ask_for(address).ok()
    }

    /// A range, to where the mappings end that have its ends: a mapping that has grown in place is
    /// known by its former length.
    fn to_mapping_ends(&self, range: Range<usize>) -> Range<usize> {
        let first = self.mapping_at(range.start).unwrap_or(range.clone());
        let last = self.mapping_at(range.end - 1).unwrap_or(range.clone());
        first.start.min(range.start)..last.end.max(range.end)
    }

    /// Bars again what was barred: a fork is over, or the program has lifted a bar.
    pub(crate) fn bar_again(&mut self) {
        // Words of what was unmapped meanwhile come first.
        self.settle();
        self.bars.are_lifted = false;
        let ranges: Vec<_> =
            self.bars.ranges.iter().map(|range| self.to_mapping_ends(range)).collect();
        for range in &ranges {
            // Of what is not mapped nothing is inherited.
            let _ = map::inherit(range.clone(), false);
        }
        self.confirm(&ranges);
    }

    /// Ranges were just barred. What has been unmapped before, of which the words come now, may be
    /// somebody else's: there nothing is.
    fn confirm(&mut self, ranges: &[Range<usize>]) {
        for range in ranges {
            self.bars.ranges.insert(range.clone());
        }
        self.settle();
        for range in ranges {
            self.give_unbarred(range.clone());
        }
    }

    /// Children have what of a range is not barred.
    fn give_unbarred(&self, range: Range<usize>) {
        self.bars.ranges.for_each_gap(range, |gap| self.give_to_children(gap));
    }

    /// Lets children inherit everything; [`Manager::bar_again`] may follow.
    pub(crate) fn lift_bars(&mut self) {
        self.bars.are_lifted = true;
        // Of words of several threads that could not be told apart, less may be known than is so.
        let mut known = Regions::default();
        for range in self.regions.iter().chain(self.bars.ranges.iter()) {
            known.insert(self.to_mapping_ends(range));
        }
        for range in known.iter() {
            self.give_to_children(range);
        }
        // What has moved before is given where it is now.
        self.settle();
    }

    /// Everything is in place.
    pub(crate) fn lift_all_bars(&mut self) {
        self.lift_bars();
        self.bars.ranges = Regions::default();
    }

    /// A range is no longer managed.
    pub(crate) fn lift_bar(&mut self, range: Range<usize>) {
        self.bars.ranges.remove(range.clone());
        self.give_to_children(range);
    }

    /// A bar moves with its mapping, and so does what the program keeps from its children.
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
                // What has grown is as what was there.
                let is_last = end == one.source().end;
                let end = if is_last { one.mapping().end } else { end.wrapping_add(offset) };
                self.control.uninherited.add(start.wrapping_add(offset)..end);
            }
        }
        if self.bars.are_lifted {
            self.give_to_children(one.mapping());
        }
        if is_barred {
            // It may still be mapped (MREMAP_DONTUNMAP), and is not managed.
            self.lift_bar(one.source());
            self.bars.ranges.insert(one.mapping());
        }
    }

    /// Children have a range, but for what the program itself keeps from them.
    fn give_to_children(&self, range: Range<usize>) {
        let own: Vec<_> = self.control.uninherited.iter().collect();
        for_each_outside(&own, range, |part| {
            // Of what is not mapped there is nothing to inherit.
            let _ = map::inherit(part, true);
        });
    }
}
