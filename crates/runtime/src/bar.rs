//! Bars: what has pages away is not inherited, but by a child that is served.
//!
//! In the child of a fork that nobody catches, as by the bare instruction, a page that is away
//! would read as zeros. So a mapping is barred (MADV_DONTFORK) before its first page is taken: such
//! a child has it not, and ends by SIGSEGV where it touches it. It goes on rightly if it execs, or
//! ends, with what lies in other mappings. While a fork is made that is caught (`heir`), and while
//! everything is in place (a hold), nothing is barred.
//!
//! Whole mappings are barred, not parts: `mremap` of two that were one fails, and a process has
//! vm.max_map_count of them.
//!
//! Invariants:
//! 1. A page of `Limbo` or `Stored` lies in what is barred, but while a fork is made.
//! 2. What the program keeps from its children itself (`Control::uninherited`) is never given to
//!    them.

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

impl Manager {
    /// Bars the mapping of a page that is to be taken.
    pub(crate) fn bar(&mut self, page: PageNumber) -> Bar {
        let address = page.address();
        if self.barred.holding(address).is_some() {
            return Bar::Is;
        }
        // Registered is all of the mapping, of which regions may know less. Before Linux 6.11 the
        // kernel cannot be asked.
        let mapping = self.files.mappings.at(address).ok();
        let Some(range) = mapping.or_else(|| self.regions.holding(address)) else {
            return Bar::Refused;
        };
        if map::inherit(range.clone(), false).is_err() {
            self.give_to_children(range);
            return Bar::Refused;
        }
        self.confirm(&[range]);
        Bar::New
    }

    /// Bars again what was barred: a fork is over, or the program has lifted a bar.
    pub(crate) fn bar_again(&mut self) {
        // Words of what was unmapped meanwhile come first.
        self.settle();
        let ranges: Vec<_> = self.barred.iter().collect();
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
            self.barred.insert(range.clone());
        }
        self.settle();
        for range in ranges {
            let mut others = Vec::new();
            self.barred.for_each_gap(range.clone(), |gap| others.push(gap));
            for other in others {
                self.give_to_children(other);
            }
        }
    }

    /// Lets the next child inherit everything; [`Manager::bar_again`] follows.
    pub(crate) fn unbar(&mut self) {
        // Of words of several threads that could not be told apart, less may be known than is so.
        let known = self.regions.iter().chain(self.barred.iter());
        for range in known.collect::<Vec<_>>() {
            self.give_to_children(range);
        }
    }

    /// Everything is in place.
    pub(crate) fn lift_all_bars(&mut self) {
        self.unbar();
        self.barred = Regions::default();
    }

    /// A range is no longer managed.
    pub(crate) fn lift_bar(&mut self, range: Range<usize>) {
        self.barred.remove(range.clone());
        self.give_to_children(range);
    }

    /// A bar moves with its mapping.
    pub(crate) fn follow_bar(&mut self, one: Move) {
        let is_barred = self.barred.holding(one.from).is_some();
        self.barred.remove(one.target());
        if is_barred {
            // It may still be mapped (MREMAP_DONTUNMAP), and is not managed.
            self.lift_bar(one.source());
            self.barred.insert(one.mapping());
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
