//! What follows a change of the address space outside of the memory: stored pages, copies and the
//! order of reclaim.

use core::ops::Range;

use coldpress_sys::PageCount;
use coldpress_zswap::Offset;

use crate::allowance::Allowance;
use crate::memory::{Follow, Move};
use crate::pages::{PageNumber, PageState, PageTable};
use crate::policy::Policy;
use crate::store::{PROGRAM_AREA, Store, Storing, key};

/// The parts of the pager that follow.
pub(crate) struct Followers<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) allowance: &'a mut Allowance,
    pub(crate) policy: &'a mut Policy,
}

impl Follow for Followers<'_> {
    fn forget(&mut self, pages: &mut PageTable, range: Range<PageNumber>) {
        let (mut any_stored, mut in_limbo) = (false, PageCount(0));
        pages.forget(range.clone(), |state| match state {
            PageState::Stored => any_stored = true,
            PageState::Limbo => in_limbo += PageCount(1),
            PageState::Resident | PageState::None => {}
        });
        self.store.leave_limbo(in_limbo);
        self.store.drop_kept(range.clone());
        if any_stored {
            let count = PageCount(range.end.0 - range.start.0);
            let start = Offset(range.start.0 as u64);
            self.store.zswap.invalidate_range(PROGRAM_AREA, start, count);
        }
    }

    fn begin_move(&mut self, range: Range<PageNumber>) {
        // Each move has a time of its own, so that the queue's entries from an earlier move are
        // stale.
        self.policy.tick();
        self.store.drop_served();
        self.store.drop_kept(range);
    }

    fn follow_move(&mut self, pages: &mut PageTable, one: &Move) {
        let old = PageNumber::of(one.from)..PageNumber::of(one.source().end);
        let mut at = old.start;
        while let Some((page, _)) = pages.next_known(at..old.end) {
            let target = PageNumber::of(one.to).plus(page.0 - old.start.0);
            // Limbo keeps pages by their place in their run. That place changes, so the pages go on
            // to the pool, whatever the knobs and the pool's limit say: there is nowhere else.
            if pages.state(page) == PageState::Limbo
                && let Err(error) =
                    self.store.store_from_limbo(pages, page, Storing::All, self.allowance)
            {
                self.store.ties.die(format_args!("a moved page cannot be kept: {error}"));
            }
            let state = pages.state(page);
            if state == PageState::Stored
                && self.store.zswap.rename(key(page), key(target)).is_err()
            {
                self.store.ties.die(format_args!(
                    "no memory to follow moved pages: mremap of {} bytes",
                    one.length.0
                ));
            }
            pages.move_page(page, target);
            self.policy.queue.enqueue(pages, target.run(), self.policy.clock);
            at = page.plus(1);
        }
        pages.forget(old, |_| {});
    }

    fn find(&mut self, pages: &mut PageTable, page: PageNumber) {
        pages.set_state(page, PageState::Resident);
        self.policy.queue.enqueue(pages, page.run(), self.policy.clock);
    }
}
