//! Discovery: finding memory of the program that is not managed yet, and taking it in.
//!
//! The kernel reports changes only inside registered ranges, so the service looks for new mappings
//! when memory has grown without our doing. Between reading the list of mappings and registering
//! one of them, anything may have happened to it. The order below makes every such race end in
//! knowing less, never in knowing wrong.

use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::Bytes;
use coldpress_sys::map::for_each_span;
use coldpress_sys::uffd::Mode;

use crate::manager::Manager;
use crate::pages::{PageNumber, PageState};
use crate::regions::{Discovery, Regions};

/// Size from which the user is warned of a range that is given up.
const TOLD_BYTES: Bytes = Bytes::mib(4);

impl Manager {
    /// Registers mappings of the program that are not registered yet, and takes their resident
    /// pages in.
    pub(crate) fn discover(&mut self) {
        self.take_room();
        let mut found = self.unregistered();
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
        self.settle();
        // Part of a gap may have been unmapped before it was registered, which no event reports.
        // What has been mapped there since is not registered, so it is a mapping of its own, unless
        // it has moved there from elsewhere.
        for gap in self.not_in_one_mapping(&found) {
            let moved = self.known_in(&gap);
            moved.for_each_gap(gap, |part| self.regions.remove(part));
        }
        for gap in found {
            self.bar_beside(gap.clone());
            self.take_in(gap);
        }
    }

    /// Takes over the room for executable memory, if there is any now.
    fn take_room(&mut self) {
        if self.limbo.has_room() {
            return;
        }
        let Some(span) = self.control.room.span() else { return };
        if let Err(error) = self.limbo.take_room(span, &self.uffd) {
            self.link.tell(format_args!("executable memory is not managed: {error}"));
        }
    }

    /// Registers ranges that threads have just mapped and that no other thread knows yet; each
    /// thread waits meanwhile. Gives up ranges that the program has for itself.
    pub(crate) fn take_hints(&mut self) {
        while let Some((index, start, length)) = self.hints.pop() {
            let is_waited_for = self.control.is_waited_for(index, start, length);
            // Words of earlier tenants of these addresses come first.
            self.settle();
            self.take_room();
            if length == Bytes(0) {
                self.bar_again();
                self.discover();
            } else if !is_waited_for {
                // The thread has gone on, and may have unmapped a part of its range.
                self.discover();
            } else if self.control.given.has(&(start..start + length.0)) {
                self.give_up(start..start + length.0);
            } else if self.uffd.register(start, length, Mode::Faults).is_ok() {
                let range = start..start + length.0;
                // Nothing may be left of a former tenant.
                if self.known_in(&range).iter().next().is_some() {
                    self.forget(range.clone());
                }
                self.regions.insert(range.clone());
                self.bar_beside(range.clone());
                // Another thread may know the address by now, and have touched it.
                self.take_in(range);
            }
            // Otherwise the thread that has taken the hint since rings too.
            if is_waited_for {
                self.control.finish_hint(index);
            }
        }
    }

    /// Gives up a range, after bringing all of its pages back.
    fn give_up(&mut self, range: Range<usize>) {
        self.bring_back(PageNumber::of(range.start)..PageNumber::of(range.end));
        let (mut parts, mut length) = (Vec::new(), Bytes(0));
        self.regions.for_each_part(range, |part| parts.push(part));
        for part in parts {
            length.0 += part.end - part.start;
            // The kernel refuses this only without memory for one more mapping, or where the part
            // has just gone.
            if self.uffd.unregister(part.start, Bytes(part.end - part.start)).is_ok() {
                self.forget(part.clone());
                self.regions.remove(part.clone());
                self.lift_bar(part);
            }
        }
        if length >= TOLD_BYTES {
            let (mib, process) = (length.0 >> 20, self.link.process());
            self.link.warn(format_args!(
                "{mib} MiB of process {process} are no longer managed, as the program has a \
                 userfaultfd of its own for them"
            ));
        }
    }

    /// Returns the ranges of mappings that may be managed and are in no region.
    fn unregistered(&mut self) -> Vec<Range<usize>> {
        let mut own = self.own.clone();
        for_each_span(|start, end| own.push(start..end));
        own.extend(self.control.given.iter());
        let mut discovery = Discovery::new(self.limbo.has_room());
        let mut found = Vec::new();
        let regions = &self.regions;
        let result = self.files.mappings.for_each(&mut self.maps_buffer, |mapping| {
            if discovery.accepts(mapping) {
                for_each_outside(&own, mapping.start..mapping.end, |range| {
                    regions.for_each_gap(range, |gap| found.push(gap));
                });
            }
        });
        if let Err(error) = result {
            self.link.tell(format_args!("mappings cannot be read: {error}"));
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
    fn take_in(&mut self, gap: Range<usize>) {
        let (pages, queue, regions) = (&mut self.pages, &mut self.queue, &self.regions);
        let now = self.clock;
        let result = self.files.pagemap.for_each_present(gap.start, gap.end, |start, end| {
            for number in PageNumber::of(start).0..PageNumber::of(end).0 {
                let page = PageNumber(number);
                let known = regions.holding(page.address()).is_some();
                if known && pages.state(page) == PageState::None {
                    pages.set_state(page, PageState::Resident);
                    queue.enqueue(pages, page.run(), now);
                }
            }
        });
        if let Err(error) = result {
            self.link.tell(format_args!("resident pages cannot be read: {error}"));
        }
    }
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
    use super::{Range, for_each_outside};
    use std::vec::Vec;

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
