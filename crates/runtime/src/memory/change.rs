//! Changes of the address space, as the kernel reports them: ranges dropped, unmapped or moved.
//!
//! The kernel reports a dropped range before it drops it: a page that is put there in between is
//! zeros, and goes too. The kernel reports an unmapped or moved range after the change, and the
//! thread that made the change waits until the service has read the report. Until then the kernel
//! refuses to put pages anywhere, so the service loses track of none. The reports, called *words*,
//! of several threads are put in order first (`order.rs`).

use core::ops::Range;

use coldpress_sys::proc::Enlarged;
use coldpress_sys::uffd::{Event, Message};
use coldpress_sys::{Bytes, cpu};

use super::Memory;
use super::faults::Fault;
use super::order::{Change, Move};
use crate::pages::{PageNumber, PageTable};

/// What lies elsewhere about the pages of an address, and follows changes of the address space.
pub(crate) trait Follow {
    /// Forgets all pages of a range, in `pages` too.
    fn forget(&mut self, pages: &mut PageTable, range: Range<PageNumber>);
    /// Prepares for the move of a range: nothing that refers to its pages may wait.
    fn begin_move(&mut self, range: Range<PageNumber>);
    /// Moves along what is known of the pages of `one`, in `pages` too. Nothing is known of its
    /// target.
    fn follow_move(&mut self, pages: &mut PageTable, one: &Move);
    /// Takes in a resident page that was not known.
    fn find(&mut self, pages: &mut PageTable, page: PageNumber);
}

impl Memory {
    /// Acts on one event, and puts faults aside. `later` are the messages that were read along
    /// behind it.
    pub(crate) fn take_event(
        &mut self,
        event: Event,
        later: Range<usize>,
        now_ticks: u64,
        follow: &mut impl Follow,
    ) {
        match event {
            Event::Fault { address, thread, is_protected } => {
                let page = PageNumber::of(address);
                self.faults.pending.push_back(Fault {
                    page,
                    thread,
                    read_at_ticks: now_ticks,
                    waited_ticks: 0,
                    is_coming: false,
                    is_protected,
                });
            }
            Event::Remove { start, end } => {
                if !self.control.bell.has(start) {
                    self.hear(Change::Dropped(start..end), follow);
                } else if let Some(hint) = self.control.bell.hint_at(start) {
                    self.hints.push(hint);
                }
            }
            Event::Unmap { start, end } => self.hear(Change::Unmapped(start..end), follow),
            Event::Remap { from, to, length } => {
                let end = Event::Unmap { start: from, end: from + length.0 };
                let mut later = self.messages[later].iter().map(Message::event);
                let has_returned = later.any(|event| event == Some(end));
                let grown = if has_returned { Bytes(0) } else { self.grown_at(to + length.0) };
                self.hear(Change::Moved(Move { from, to, length, grown }), follow);
            }
        }
    }

    /// Waits until no change of the address space is under way, acting on each change. After this
    /// call every state must be looked at afresh.
    pub(crate) fn settle(&mut self, follow: &mut impl Follow) {
        let mut tries = 0_u32;
        loop {
            self.drain_messages(follow);
            if !self.uffd.is_changing(self.probe_address) {
                return self.end_changes(follow);
            }
            self.control.gate.close();
            // The changing thread's report has been read, so the thread must now run to finish its
            // change; it may wait for this processor.
            tries += 1;
            if tries < 16 {
                cpu::yield_now();
            } else {
                self.let_grow();
                cpu::sleep_ns(50_000);
            }
        }
    }

    /// Lets threads go on that enlarge a locked mapping which has to move for that. The kernel
    /// touches the new part before it reports the move, and puts nothing there for us until the
    /// report has been read (`mremap` in mm/mremap.c of Linux 6.18: `mm_populate` comes first). So
    /// the new part is left to the kernel until the service discovers it like any other memory.
    fn let_grow(&mut self) {
        let grown = self.faults.iter().find_map(|fault| self.grown_for(*fault));
        if let Some(new) = grown {
            // Unregistering wakes the threads that wait there. The kernel refuses it only without
            // memory for one more mapping.
            if self.uffd.unregister(new.start, Bytes(new.end - new.start)).is_ok() {
                self.regions.remove(new.clone());
                self.lift_bar(new);
            }
        }
    }

    /// Returns the part by which a moving mapping has been enlarged, if its thread waits in
    /// `fault`. The fault is then on the first page of that part, and the part is one mapping with
    /// what has moved. Returns `None` if this is not so, or if it cannot be found out because the
    /// launcher has gone or may not look.
    fn grown_for(&self, fault: Fault) -> Option<Range<usize>> {
        let Enlarged { from, old, by } = self.ties.link.ask_what_enlarges(fault.thread)?;
        let start = fault.page.address();
        let (to, end) = (start.checked_sub(old.0)?, start.checked_add(by.0)?);
        // A mapping that grows in place has no report to wait for.
        let has_moved = to != from && self.files.mappings.have_as_one(to, end - 1).ok()?;
        // The thread may wait for something else by now. Where no page is known, nothing is lost.
        let pages = PageNumber::of(to)..PageNumber::of(end);
        (has_moved && self.pages.next_known(pages).is_none()).then_some(start..end)
    }

    fn hear(&mut self, change: Change, follow: &mut impl Follow) {
        self.order.hear(change);
        self.obey_changes(false, follow);
    }

    /// Obeys the changes whose time has come.
    fn obey_changes(&mut self, is_quiet: bool, follow: &mut impl Follow) {
        while let Some(changes) = self.order.next(&self.regions, is_quiet) {
            for change in changes {
                match change {
                    Change::Moved(one) => self.follow_move(one, follow),
                    Change::Unmapped(range) => {
                        self.forget(range.clone(), follow);
                        self.regions.remove(range.clone());
                        self.control.uninherited.remove(&range);
                        self.bars.ranges.remove(range);
                    }
                    Change::Dropped(range) => self.forget(range, follow),
                }
            }
        }
    }

    /// Obeys the changes that still wait, because no change is under way.
    pub(crate) fn end_changes(&mut self, follow: &mut impl Follow) {
        self.obey_changes(true, follow);
        self.order.end();
    }

    /// Forgets the pages of the range, wherever they are: the program wants them no more.
    pub(crate) fn forget(&mut self, range: Range<usize>, follow: &mut impl Follow) {
        assert!(!range.is_empty(), "{range:x?} has no page to forget");
        let pages = PageNumber::of(range.start)..PageNumber::of(range.end - 1).plus(1);
        follow.forget(&mut self.pages, pages);
    }

    /// Moves along what is known of pages that have moved.
    fn follow_move(&mut self, one: Move, follow: &mut impl Follow) {
        follow.begin_move(PageNumber::of(one.from)..PageNumber::of(one.source().end));
        self.forget(one.target(), follow);
        follow.follow_move(&mut self.pages, &one);
        self.regions.remove(one.source());
        self.regions.insert(one.mapping());
        self.follow_bar(one);
    }

    /// Returns how much of the mapping that has just moved lies behind it, at `end`: enlarging a
    /// mapping may move it, and the kernel reports the former size. Returns 0 where that cannot be
    /// found out. The thread that made the change has not returned, so no other thread can have
    /// changed this.
    fn grown_at(&self, end: usize) -> Bytes {
        let mapping = self.files.mappings.end_at(end - 1);
        // The mapping next to it may be one with it.
        let mut grown = Bytes(0);
        self.regions.for_each_gap(end..mapping.unwrap_or(end), |gap| {
            if gap.start == end {
                grown = Bytes(gap.end - end);
            }
        });
        grown
    }
}
