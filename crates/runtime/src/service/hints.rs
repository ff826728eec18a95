//! Hints of the program's threads: ranges just mapped, and ranges that the program has for itself.

use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::Bytes;

use super::{Service, thaw};
use crate::pages::PageNumber;

/// Size from which the user is warned of a range that is given up.
const TOLD_BYTES: Bytes = Bytes::mib(4);

impl Service {
    /// Registers ranges that threads have just mapped and that no other thread knows yet; each
    /// thread waits meanwhile. Gives up ranges that the program has for itself.
    pub(super) fn take_hints(&mut self) {
        while let Some((index, start, length)) = self.pager.memory.hints.pop() {
            let is_waited_for = self.control.bell.is_waited_for(index, start, length);
            // Words of earlier tenants of these addresses come first.
            self.pager.settle();
            self.pager.take_room();
            if length == Bytes(0) {
                self.pager.bar_again();
                self.pager.discover();
            } else if !is_waited_for {
                // The thread has gone on, and may have unmapped a part of its range.
                self.pager.discover();
            } else if self.control.given.has(&(start..start + length.0)) {
                self.give_up(start..start + length.0);
            } else {
                let (memory, mut followers) = self.pager.parts();
                memory.take_hinted(start, length, &mut followers);
            }
            // Otherwise the thread that has taken the hint since rings too.
            if is_waited_for {
                self.control.bell.finish_hint(index);
            }
        }
    }

    /// Gives up a range, after bringing all of its pages back.
    fn give_up(&mut self, range: Range<usize>) {
        thaw::bring_back(&mut self.pager, PageNumber::of(range.start)..PageNumber::of(range.end));
        let (mut parts, mut length) = (Vec::new(), Bytes(0));
        self.pager.memory.regions.for_each_part(range, |part| parts.push(part));
        for part in parts {
            length.0 += part.end - part.start;
            // The kernel refuses this only without memory for one more mapping, or where the part
            // has just gone.
            let (memory, mut followers) = self.pager.parts();
            if memory.uffd.unregister(part.start, Bytes(part.end - part.start)).is_ok() {
                memory.regions.remove(part.clone());
                memory.forget(part.clone(), &mut followers);
                memory.lift_bar(part);
            }
        }
        if length >= TOLD_BYTES {
            let (mib, process) = (length.0 >> 20, self.ties.process());
            self.ties.warn(format_args!(
                "{mib} MiB of process {process} are no longer managed, as the program has a \
                 userfaultfd of its own for them"
            ));
        }
    }
}
