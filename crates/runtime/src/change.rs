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
use coldpress_sys::{Bytes, PageCount, cpu};
use coldpress_zswap::Offset;

use crate::manager::{Fault, Manager};
use crate::order::{Move, Word};
use crate::pages::{PageNumber, PageState};
use crate::reclaim::Storing;

impl Manager {
    /// Acts on one event, and puts faults aside. `later` are the messages that were read along
    /// behind it.
    pub(crate) fn take_event(&mut self, event: Event, later: Range<usize>, now_ticks: u64) {
        match event {
            Event::Fault { address, thread, is_protected } => {
                let page = PageNumber::of(address);
                self.pending.push_back(Fault {
                    page,
                    thread,
                    read_at_ticks: now_ticks,
                    waited_ticks: 0,
                    is_coming: false,
                    is_protected,
                });
            }
            Event::Remove { start, end } => {
                if !self.control.is_bell(start) {
                    self.hear(Word::Dropped(start..end));
                } else if let Some(hint) = self.control.hint_at(start) {
                    self.hints.push(hint);
                }
            }
            Event::Unmap { start, end } => self.hear(Word::Unmapped(start..end)),
            Event::Remap { from, to, length } => {
                let end = Event::Unmap { start: from, end: from + length.0 };
                let mut later = self.messages[later].iter().map(Message::event);
                let has_returned = later.any(|event| event == Some(end));
                let grown = if has_returned { Bytes(0) } else { self.grown_at(to + length.0) };
                self.hear(Word::Moved(Move { from, to, length, grown }));
            }
        }
    }

    /// Waits until no change of the address space is under way, acting on each change. After this
    /// call every state must be looked at afresh.
    pub(crate) fn settle(&mut self) {
        let mut tries = 0_u32;
        loop {
            self.drain_messages();
            if !self.uffd.is_changing(self.limbo.probe_address()) {
                return self.end_changes();
            }
            self.control.close_gate();
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
        let turns = self.turns.serving.iter().chain(&self.turns.faults);
        let read = self.pending.iter().chain(&self.reading);
        let mut waiting = turns.chain(read).chain(&self.copies.waiting);
        if let Some(new) = waiting.find_map(|fault| self.grown_for(*fault)) {
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
        let Enlarged { from, old, by } = self.link.ask_what_enlarges(fault.thread)?;
        let start = fault.page.address();
        let (to, end) = (start.checked_sub(old.0)?, start.checked_add(by.0)?);
        // A mapping that grows in place has no report to wait for.
        let has_moved = to != from && self.files.mappings.have_as_one(to, end - 1).ok()?;
        // The thread may wait for something else by now. Where no page is known, nothing is lost.
        let pages = PageNumber::of(to)..PageNumber::of(end);
        (has_moved && self.pages.next_known(pages).is_none()).then_some(start..end)
    }

    fn hear(&mut self, word: Word) {
        self.order.hear(word);
        self.obey_words(false);
    }

    /// Obeys the words whose time has come.
    fn obey_words(&mut self, is_quiet: bool) {
        while let Some(words) = self.order.next(&self.regions, is_quiet) {
            for word in words {
                match word {
                    Word::Moved(one) => self.follow_move(one),
                    Word::Unmapped(range) => {
                        self.forget(range.clone());
                        self.regions.remove(range.clone());
                        self.control.uninherited.remove(&range);
                        self.bars.ranges.remove(range);
                    }
                    Word::Dropped(range) => self.forget(range),
                }
            }
        }
    }

    /// Obeys the words that still wait, because no change is under way.
    pub(crate) fn end_changes(&mut self) {
        self.obey_words(true);
        self.order.end();
    }

    /// Forgets the pages of the range, wherever they are: the program wants them no more.
    pub(crate) fn forget(&mut self, range: Range<usize>) {
        let pages = PageNumber::of(range.start)..PageNumber::of(range.end - 1).plus(1);
        let (mut any_stored, mut in_limbo) = (false, PageCount(0));
        self.pages.forget(pages.clone(), |state| match state {
            PageState::Stored => any_stored = true,
            PageState::Limbo => in_limbo += PageCount(1),
            PageState::Resident | PageState::None => {}
        });
        self.limbo_pages -= in_limbo;
        self.drop_kept(pages.clone());
        if any_stored {
            let count = PageCount(pages.end.0 - pages.start.0);
            let start = Offset(pages.start.0 as u64);
            self.zswap.invalidate_range(Self::area(), start, count);
        }
    }

    /// Moves along what is known of pages that have moved.
    fn follow_move(&mut self, one: Move) {
        let old = PageNumber::of(one.from)..PageNumber::of(one.source().end);
        // Each move has a time of its own, so that the queue's entries from an earlier move are
        // stale.
        self.clock = self.clock.wrapping_add(1);
        self.drop_served();
        self.drop_kept(old.clone());
        self.forget(one.target());
        let mut at = old.start;
        while let Some((page, _)) = self.pages.next_known(at..old.end) {
            let target = PageNumber::of(one.to).plus(page.0 - old.start.0);
            // Limbo keeps pages by their place in their run. That place changes, so the pages go on
            // to the pool.
            if self.pages.state(page) == PageState::Limbo {
                self.store_at_any_cost(page);
            }
            let state = self.pages.state(page);
            if state == PageState::Stored
                && self.zswap.rename(Self::key(page), Self::key(target)).is_err()
            {
                self.die(format_args!(
                    "no memory to follow moved pages: mremap of {} bytes",
                    one.length.0
                ));
            }
            self.pages.move_page(page, target);
            self.queue.enqueue(&mut self.pages, target.run(), self.clock);
            at = page.plus(1);
        }
        self.pages.forget(old, |_| {});
        self.regions.remove(one.source());
        self.regions.insert(one.mapping());
        self.follow_bar(one);
    }

    /// Stores a page of limbo whatever the knobs and the pool's limit say, because there is nowhere
    /// else for the page.
    fn store_at_any_cost(&mut self, page: PageNumber) {
        if let Err(error) = self.store_from_limbo(page, Storing::All) {
            self.die(format_args!("a moved page cannot be kept: {error}"));
        }
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
