//! Changes of the address space, as the kernel tells them: what was dropped, unmapped or moved.
//!
//! The kernel tells of a dropped range before it drops it, and of an unmapped or moved one after.
//! Either way the thread that did it waits until we have read, so a page that we put there in
//! between is not lost track of: its COPY is refused until the change is over. Words of several
//! threads are put in order first (`order.rs`).

use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::PageCount;
use coldpress_sys::uffd::Event;
use coldpress_zswap::{Offset, Zswap};

use crate::manager::{Fault, Manager};
use crate::order::Move;
use crate::pages::{PageNumber, PageState};

impl Manager {
    /// Acts on one event; faults are put aside.
    pub(crate) fn take_event(&mut self, event: Event, now_ticks: u64) {
        match event {
            Event::Fault { address, thread } => {
                let page = PageNumber::of(address);
                self.pending.push_back(Fault {
                    page,
                    thread,
                    read_at_ticks: now_ticks,
                    waited_ticks: 0,
                    is_coming: false,
                });
            }
            Event::Remove { start, end } => {
                if !self.control.is_bell(start) {
                    let mut gone = Vec::new();
                    self.order.note_dropped(start..end, |part| gone.push(part));
                    gone.into_iter().for_each(|part| self.forget(part));
                } else if let Some(hint) = self.control.hint_at(start) {
                    self.hints.push(hint);
                }
            }
            Event::Unmap { start, end } => {
                let mut gone = Vec::new();
                self.order.note_unmapped(start..end, |part| gone.push(part));
                for part in gone {
                    self.forget(part.clone());
                    self.regions.remove(part);
                }
                self.follow_moves(false);
            }
            Event::Remap { from, to, length } => {
                self.order.note_move(Move { from, to, length });
                self.follow_moves(false);
            }
        }
    }

    /// Follows the moves whose time has come.
    fn follow_moves(&mut self, is_quiet: bool) {
        while let Some(one) = self.order.next_move(&self.regions, is_quiet) {
            self.follow_move(one);
        }
    }

    /// Follows what still waits, as no change is under way.
    pub(crate) fn end_changes(&mut self) {
        self.follow_moves(true);
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
        self.regions.insert(one.target());
    }

    /// Stores a page of limbo whatever the knobs and the pool's limit say: there is nowhere else
    /// for it.
    fn store_at_any_cost(&mut self, page: PageNumber) {
        if let Err(error) = self.store_from_limbo(page, Zswap::store_anyhow) {
            self.die(format_args!("a moved page cannot be kept: {error}"));
        }
    }
}
