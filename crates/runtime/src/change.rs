//! Changes of the address space, as the kernel tells them: what was dropped, unmapped or moved.
//!
//! The kernel tells of a dropped range before it drops it: a page that is put there in between is
//! zeros, and goes too. It tells of an unmapped or moved range after that, and who did it waits
//! until we have read: until then it refuses to put pages anywhere, so none is lost track of. Words
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
    /// Acts on one event; faults are put aside. `later` are the messages read along behind it.
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

    /// Waits until no change of the address space is under way, acting on each. After it, every
    /// state must be looked at afresh.
    pub(crate) fn settle(&mut self) {
        let mut tries = 0_u32;
        loop {
            self.drain_messages();
            if !self.uffd.is_changing(self.limbo.probe_address()) {
                return self.end_changes();
            }
            self.control.close_gate();
            // The changing thread has been told and must now run to finish; it may wait for this
            // processor.
            tries += 1;
            if tries < 16 {
                cpu::yield_now();
            } else {
                self.let_grow();
                cpu::sleep_ns(50_000);
            }
        }
    }

    /// Lets threads go on that enlarge locked memory which has to move for that. The kernel touches
    /// what is new before it tells of the move, and puts nothing there for us until it has been
    /// heard (`mremap` in mm/mremap.c of Linux 6.18: `mm_populate` comes first). So what is new is
    /// left to the kernel, until it is discovered like any other memory.
    fn let_grow(&mut self) {
        let turns = self.turns.serving.iter().chain(&self.turns.faults);
        let read = self.pending.iter().chain(&self.reading);
        let mut waiting = turns.chain(read).chain(&self.copies.waiting);
        if let Some(new) = waiting.find_map(|fault| self.grown_for(*fault)) {
            // It wakes who waits there. Refused only without memory for one more mapping.
            if self.uffd.unregister(new.start, Bytes(new.end - new.start)).is_ok() {
                self.regions.remove(new.clone());
                self.lift_bar(new);
            }
        }
    }

    /// What a mapping has been enlarged by that moves, and whose thread waits in `fault`: then that
    /// is the first page of it, and one mapping with what has moved. `None` if it is not so, or
    /// cannot be told: where the launcher has gone or may not look.
    fn grown_for(&self, fault: Fault) -> Option<Range<usize>> {
        let Enlarged { from, old, by } = self.link.ask_what_enlarges(fault.thread)?;
        let start = fault.page.address();
        let (to, end) = (start.checked_sub(old.0)?, start.checked_add(by.0)?);
        // Where it grows in place no word is waited for.
        let has_moved = to != from && self.files.mappings.have_as_one(to, end - 1).ok()?;
        // The thread may wait for something else by now. Of what is not known nothing is lost.
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

    /// Obeys what still waits, as no change is under way.
    pub(crate) fn end_changes(&mut self) {
        self.obey_words(true);
        self.order.end();
    }

    /// Nothing of the range is wanted any more, wherever it is.
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

    /// Pages moved: what is known of them moves along.
    fn follow_move(&mut self, one: Move) {
        let old = PageNumber::of(one.from)..PageNumber::of(one.source().end);
        // Each move has a time of its own, so that what the queue has of one before is stale.
        self.clock = self.clock.wrapping_add(1);
        self.drop_served();
        self.drop_kept(old.clone());
        self.forget(one.target());
        let mut at = old.start;
        while let Some((page, _)) = self.pages.next_known(at..old.end) {
            let target = PageNumber::of(one.to).plus(page.0 - old.start.0);
            // Limbo keeps pages by their place in their run, which changes, so they go on to the
            // pool.
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

    /// Stores a page of limbo whatever the knobs and the pool's limit say: there is nowhere else
    /// for it.
    fn store_at_any_cost(&mut self, page: PageNumber) {
        if let Err(error) = self.store_from_limbo(page, Storing::All) {
            self.die(format_args!("a moved page cannot be kept: {error}"));
        }
    }

    /// How much of the mapping of what has just moved lies behind it, at `end`: who enlarges a
    /// mapping may move it, and the kernel tells of its former size. Nothing where it cannot be
    /// told. The caller has not returned, so nobody else can have changed that.
    fn grown_at(&self, end: usize) -> Bytes {
        let mapping = self.files.mappings.end_at(end - 1);
        // What is next to it may be one mapping with it.
        let mut grown = Bytes(0);
        self.regions.for_each_gap(end..mapping.unwrap_or(end), |gap| {
            if gap.start == end {
                grown = Bytes(gap.end - end);
            }
        });
        grown
    }
}
