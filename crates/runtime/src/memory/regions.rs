//! Regions: the address ranges registered for faults, and the discovery of new ones.
//!
//! A set of disjoint ranges, merged where they touch. It may know less than the kernel (a mapping
//! that grew in place is registered further than we know), but never more for long: an event
//! reports what is unmapped.

use alloc::collections::BTreeMap;
use core::ops::Range;

use coldpress_sys::Bytes;
use coldpress_sys::proc::{Mapping, MappingKind};

use crate::pages::{GUARD_BYTES_MAX, REGION_BYTES_MIN};

/// Size and alignment of the range that glibc's malloc keeps for each arena of a thread, of which
/// it makes more and more accessible (`HEAP_MAX_SIZE` of malloc/arena.c, glibc 2.26 to 2.41).
/// Growth there is seen only when the range is managed beforehand.
const ARENA_BYTES: Bytes = Bytes::mib(64);

/// A set of address ranges.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// The end of each range, by its start.
    ranges: BTreeMap<usize, usize>,
}

impl Regions {
    /// Returns the range that holds `address`.
    pub(crate) fn holding(&self, address: usize) -> Option<Range<usize>> {
        let (start, end) = self.ranges.range(..=address).next_back()?;
        (address < *end).then_some(*start..*end)
    }

    /// Adds a range, which may overlap others.
    pub(crate) fn insert(&mut self, range: Range<usize>) {
        assert!(range.start <= range.end, "{range:x?} has no length");
        let (mut start, mut end) = (range.start, range.end);
        while let Some((other_start, other_end)) =
            self.ranges.range(..=end).next_back().map(|(start, end)| (*start, *end))
            && other_end >= start
        {
            self.ranges.remove(&other_start);
            start = start.min(other_start);
            end = end.max(other_end);
        }
        if start < end {
            self.ranges.insert(start, end);
        }
    }

    /// Takes a range away.
    pub(crate) fn remove(&mut self, range: Range<usize>) {
        assert!(range.start <= range.end, "{range:x?} has no length");
        while let Some((start, end)) =
            self.ranges.range(..range.end).next_back().map(|(start, end)| (*start, *end))
            && end > range.start
        {
            self.ranges.remove(&start);
            if start < range.start {
                self.ranges.insert(start, range.start);
            }
            if range.end < end {
                self.ranges.insert(range.end, end);
            }
        }
    }

    /// Calls `visit` for each part of `range` that is in no region.
    pub(crate) fn for_each_gap(&self, range: Range<usize>, mut visit: impl FnMut(Range<usize>)) {
        let mut at = range.start;
        while at < range.end {
            if let Some(held) = self.holding(at) {
                at = held.end;
                continue;
            }
            let next =
                self.ranges.range(at..range.end).next().map_or(range.end, |(start, _)| *start);
            visit(at..next);
            at = next;
        }
    }

    /// Calls `visit` for each part of `range` that is in a region.
    pub(crate) fn for_each_part(&self, range: Range<usize>, mut visit: impl FnMut(Range<usize>)) {
        let first = self.holding(range.start).map_or(range.start, |held| held.start);
        for (start, end) in self.ranges.range(first..range.end) {
            visit(range.start.max(*start)..range.end.min(*end));
        }
    }

    /// Returns the ranges in address order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }
}

/// A filter that picks, from the mappings in address order, those that may be managed.
#[derive(Debug)]
pub(crate) struct Discovery {
    takes_executable: bool,
    previous: Option<Mapping>,
}

impl Discovery {
    /// Creates a filter that has seen nothing yet. Memory that may be executed is managed too if it
    /// `takes_executable`.
    pub(crate) fn new(takes_executable: bool) -> Self {
        Self { takes_executable, previous: None }
    }

    /// Returns whether `mapping` may be managed, given the ones before it.
    ///
    /// That is private anonymous memory of at least [`REGION_BYTES_MIN`] that is not a stack
    /// ([`MappingKind`] says what is never such memory), and the memory that an arena will grow
    /// into.
    pub(crate) fn accepts(&mut self, mapping: Mapping) -> bool {
        let below = self.previous.replace(mapping).filter(|below| below.end == mapping.start);
        match mapping.kind {
            MappingKind::Executable if !self.takes_executable => false,
            MappingKind::PrivateAnonymous | MappingKind::Executable => {
                let guarded = below.is_some_and(|guard| {
                    guard.kind == MappingKind::Inaccessible
                        && guard.end - guard.start <= GUARD_BYTES_MAX.0
                });
                mapping.end - mapping.start >= REGION_BYTES_MIN.0 && !guarded
            }
            MappingKind::Inaccessible => below.is_some_and(|used| {
                used.kind == MappingKind::PrivateAnonymous
                    && used.start % ARENA_BYTES.0 == 0
                    && mapping.end == used.start + ARENA_BYTES.0
            }),
            MappingKind::OtherAnonymous | MappingKind::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coldpress_sys::PAGE_BYTES;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn stacks_small_and_foreign_mappings_are_left_alone() {
        let mapping = |start: usize, pages: usize, kind| Mapping {
            start,
            end: start + pages * PAGE_BYTES,
            kind,
        };
        use MappingKind::{Executable, Inaccessible, Other, PrivateAnonymous};
        let accepted_with = |takes_executable, list: &[Mapping]| {
            let mut discovery = Discovery::new(takes_executable);
            list.iter().map(|mapping| discovery.accepts(*mapping)).collect::<Vec<_>>()
        };
        let accepted = |list: &[Mapping]| accepted_with(false, list);
        assert_eq!(accepted(&[mapping(0, 512, Executable)]), [false]);
        assert_eq!(accepted_with(true, &[mapping(0, 512, Executable)]), [true]);
        let stack = [mapping(0, 1, Inaccessible), mapping(PAGE_BYTES, 2048, Executable)];
        assert_eq!(accepted_with(true, &stack), [false, false]);
        assert_eq!(accepted(&[mapping(0, 32, PrivateAnonymous)]), [true]);
        assert_eq!(accepted(&[mapping(0, 31, PrivateAnonymous)]), [false]);
        assert_eq!(accepted(&[mapping(0, 512, Other)]), [false]);
        let stack = [mapping(0, 1, Inaccessible), mapping(PAGE_BYTES, 2048, PrivateAnonymous)];
        assert_eq!(accepted(&stack), [false, false]);
        let reserve = [mapping(0, 8192, Inaccessible), mapping(8192 << 12, 64, PrivateAnonymous)];
        assert_eq!(accepted(&reserve), [false, true]);
        let apart = [mapping(0, 1, Inaccessible), mapping(1 << 20, 64, PrivateAnonymous)];
        assert_eq!(accepted(&apart), [false, true]);
    }

    #[test]
    fn arenas_are_managed_to_their_ends() {
        const PAGES: usize = ARENA_BYTES.0 / PAGE_BYTES;
        let accepted = |start: usize, used: usize, gap: usize, rest: usize| {
            let used_end = start + used * PAGE_BYTES;
            let above = used_end + gap * PAGE_BYTES;
            let mut discovery = Discovery::new(false);
            let arena = Mapping { start, end: used_end, kind: MappingKind::PrivateAnonymous };
            let (end, kind) = (above + rest * PAGE_BYTES, MappingKind::Inaccessible);
            discovery.accepts(arena);
            discovery.accepts(Mapping { start: above, end, kind })
        };
        let start = 7 * ARENA_BYTES.0;
        assert!(accepted(start, 33, 0, PAGES - 33));
        // Not aligned, not as long, longer, with something between.
        assert!(!accepted(start + PAGE_BYTES, 33, 0, PAGES - 33));
        assert!(!accepted(start, 33, 0, PAGES - 34));
        assert!(!accepted(start, 33, 0, PAGES));
        assert!(!accepted(start, 33, 1, PAGES - 34));
    }

    proptest! {
        #[test]
        fn the_set_agrees_with_single_bits(
            steps in proptest::collection::vec((any::<bool>(), 0_usize..200, 1_usize..60), 1..60)
        ) {
            let mut regions = Regions::default();
            let mut bits = [false; 300];
            for (add, start, length) in steps {
                let range = start..start + length;
                bits[range.clone()].fill(add);
                if add { regions.insert(range) } else { regions.remove(range) }
                for (at, bit) in bits.iter().enumerate() {
                    prop_assert_eq!(regions.holding(at).is_some(), *bit, "at {}", at);
                }
                let mut gaps = [false; 300];
                regions.for_each_gap(0..300, |gap| gaps[gap].fill(true));
                prop_assert!(gaps.iter().zip(&bits).all(|(gap, bit)| gap != bit));
                let ranges: Vec<_> = regions.iter().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }
}
