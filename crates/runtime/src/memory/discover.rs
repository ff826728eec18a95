//! Discovery: finding memory of the program that is not managed yet, and taking it in.
//!
//! The kernel reports changes only inside registered ranges, so the service looks for new mappings
//! when memory has grown without our doing. Between reading the list of mappings and registering
//! one of them, anything may have happened to it. The order below makes every such race end in
//! knowing less, never in knowing wrong.

use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use coldpress_sys::Bytes;
use coldpress_sys::map::for_each_span;
use coldpress_sys::proc::{Mapping, MappingKind};
use coldpress_sys::uffd::Mode;

use super::regions::{Discovery, Regions};
use super::{Follow, Memory};
use crate::pages::{PageNumber, PageState, REGION_BYTES_MIN};

impl Memory {
    /// Registers mappings of the program that are not registered yet, and takes their resident
    /// pages in. Executable ones are left out unless limbo `takes_executable` pages.
    pub(crate) fn discover(&mut self, takes_executable: bool, follow: &mut impl Follow) {
        let mut found = self.unregistered(takes_executable);
        // Newer thread libraries separate stacks by guard pages within one mapping, together with
        // what lies beside them. When a thread ends, the kernel itself writes to its stack, and
        // that write does not wait for a page.
        found.retain(|gap| !self.files.pagemap.has_guard(gap.start, gap.end).unwrap_or(false));
        // A mapping may have gone or changed since it was read. What the kernel refuses stays as it
        // is.
        found.retain(|gap| {
            self.uffd.register(gap.start, Bytes(gap.end - gap.start), Mode::Faults).is_ok()
        });
        if found.is_empty() {
            return;
        }
        // Inserted before the late words of earlier tenants are read: a word that comes too late
        // then makes us know less, which is safe.
        for gap in &found {
            self.regions.insert(gap.clone());
            self.order.note_fresh(gap.clone());
        }
        self.settle(follow);
        // Part of a gap may have been unmapped before it was registered, which no event reports.
        // What has been mapped there since is not registered, so it is a mapping of its own, unless
        // it has moved there from elsewhere.
        for gap in self.not_in_one_mapping(&found) {
            let moved = self.known_in(&gap);
            moved.for_each_gap(gap, |part| self.regions.remove(part));
        }
        for gap in found {
            self.bar_beside(gap.clone(), follow);
            self.take_in(gap, follow);
        }
    }

    /// Registers a range that a thread has just mapped and that hardly another thread knows, if the
    /// kernel lets that be.
    pub(crate) fn take_hinted(&mut self, start: usize, length: Bytes, follow: &mut impl Follow) {
        if self.uffd.register(start, length, Mode::Faults).is_err() {
            return;
        }
        let range = start..start + length.0;
        // Nothing may be left of a former tenant.
        if self.known_in(&range).iter().next().is_some() {
            self.forget(range.clone(), follow);
        }
        self.regions.insert(range.clone());
        self.bar_beside(range.clone(), follow);
        // Another thread may know the address by now, and have touched it.
        self.take_in(range, follow);
    }

    /// Returns the ranges of mappings that may be managed and are in no region.
    fn unregistered(&mut self, takes_executable: bool) -> Vec<Range<usize>> {
        let mut own = self.own.clone();
        for_each_span(|start, end| own.push(start..end));
        own.extend(self.control.given.iter());
        // Later, another stack may lie there.
        let beside_stacks = mem::take(&mut self.beside_stacks);
        let mut discovery = Discovery::new(takes_executable);
        let mut found = Vec::new();
        let regions = &self.regions;
        let result = self.files.mappings.for_each(&mut self.maps_buffer, |mapping| {
            let all = mapping.start..mapping.end;
            let accepted = if discovery.accepts(mapping) {
                Some(all)
            } else {
                above_stack(&mapping, &beside_stacks)
            };
            for_each_outside(&own, accepted.unwrap_or(0..0), |range| {
                regions.for_each_gap(range, |gap| found.push(gap));
            });
        });
        if let Err(error) = result {
            self.ties.tell(format_args!("mappings cannot be read: {error}"));
            return Vec::new();
        }
        found
    }

    /// Returns those of `gaps` that no single mapping covers now.
    fn not_in_one_mapping(&mut self, gaps: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut open = gaps.to_vec();
        // After an error all of them count as not covered.
        let _ = self.files.mappings.for_each(&mut self.maps_buffer, |mapping| {
            open.retain(|gap| !(mapping.start <= gap.start && gap.end <= mapping.end));
        });
        open
    }

    /// Returns the pages of a range of which something is known.
    fn known_in(&self, range: &Range<usize>) -> Regions {
        let mut known = Regions::default();
        let (mut at, end) = (PageNumber::of(range.start), PageNumber::of(range.end));
        while let Some((page, _)) = self.pages.next_known(at..end) {
            at = page.plus(1);
            known.insert(page.address()..at.address());
        }
        known
    }

    /// Takes in the resident pages of a range, as far as the range is in regions.
    fn take_in(&mut self, gap: Range<usize>, follow: &mut impl Follow) {
        let (pages, regions) = (&mut self.pages, &self.regions);
        let result = self.files.pagemap.for_each_present(gap.start, gap.end, |start, end| {
            for number in PageNumber::of(start).0..PageNumber::of(end).0 {
                let page = PageNumber(number);
                let known = regions.holding(page.address()).is_some();
                if known && pages.state(page) == PageState::None {
                    follow.find(pages, page);
                }
            }
        });
        if let Err(error) = result {
            self.ties.tell(format_args!("resident pages cannot be read: {error}"));
        }
    }
}

/// Returns the part of a mapping that lies above the stack of a thread: one of `ranges`.
fn above_stack(mapping: &Mapping, ranges: &[Range<usize>]) -> Option<Range<usize>> {
    let is_it = |range: &&Range<usize>| mapping.start < range.start && range.end == mapping.end;
    let range = ranges.iter().find(is_it).filter(|range| range.len() >= REGION_BYTES_MIN.0)?;
    (mapping.kind == MappingKind::PrivateAnonymous).then(|| range.clone())
}

/// Calls `visit` for the parts of `range` outside all of `holes`.
pub(crate) fn for_each_outside(
    holes: &[Range<usize>],
    range: Range<usize>,
    mut visit: impl FnMut(Range<usize>),
) {
    let mut at = range.start;
    while at < range.end {
        let next = holes.iter().filter(|hole| hole.end > at && hole.start < range.end);
        let Some(hole) = next.min_by_key(|hole| hole.start) else { break };
        if hole.start > at {
            visit(at..hole.start);
        }
        at = hole.end;
    }
    if at < range.end {
        visit(at..range.end);
    }
}

#[cfg(test)]
mod tests {
    use super::{Mapping, MappingKind, REGION_BYTES_MIN, Range, above_stack, for_each_outside};
    use std::vec::Vec;

    #[test]
    fn what_lies_above_a_stack_is_taken_from_the_mapping_that_is_still_there() {
        let (start, end) = (1 << 20, 3 << 20);
        let mapping = |kind| Mapping { start, end, kind };
        let known = mapping(MappingKind::PrivateAnonymous);
        let (above, other) = (2 << 20..end, 5 << 20..6 << 20);
        let small = end - REGION_BYTES_MIN.0 + 1..end;
        let ranges = [other.clone(), above.clone()];
        assert_eq!(above_stack(&known, &ranges), Some(above.clone()));
        // Another mapping, one that is not longer than that, one of another kind.
        assert_eq!(above_stack(&Mapping { end: end + 1, ..known }, &ranges), None);
        assert_eq!(above_stack(&Mapping { start: above.start, ..known }, &ranges), None);
        assert_eq!(above_stack(&mapping(MappingKind::Executable), &ranges), None);
        assert_eq!(above_stack(&known, &[small, other]), None);
    }

    #[test]
    fn holes_are_left_out() {
        let outside = |holes: &[Range<usize>], range| {
            let mut parts = Vec::new();
            for_each_outside(holes, range, |part| parts.push((part.start, part.end)));
            parts
        };
        let (low, high, both) = (0..6, 8..12, 6..7);
        assert_eq!(outside(&[], 5..9), [(5, 9)]);
        assert_eq!(outside(&[20..30, both], 5..9), [(5, 6), (7, 9)]);
        assert_eq!(outside(&[low, high], 5..9), [(6, 8)]);
        assert_eq!(outside(&[3..4, 9..10], 5..9), [(5, 9)]);
        assert!(outside(&[0..100, 200..300], 5..9).is_empty());
    }
}
