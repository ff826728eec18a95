//! Kept copies: pages that were brought back, and whose compressed copies are still there (clean
//! copies, as in a swap cache).
//!
//! If such a page is taken out again unchanged, it need not be compressed, nor sealed and written.
//! A copy on disk costs no memory but a fingerprint, and leaves the pool to others. A copy in the
//! pool costs its bytes while the page is in place. A walk comes back to a page only when the page
//! is out again, so the walk hardly misses that room. Pages that are asked for one by one stay in
//! place, and their copies would crowd out others: with none of these kept, bench swap makes 1.0 to
//! 1.2 times the touches.
//!
//! A program that changes its pages gains nothing from copies. So copies in the pool are kept while
//! as many pages go unchanged as changed. Otherwise only every sixteenth page keeps its copy, to
//! see when that ends.
//!
//! Only the fingerprint, made when the page came, says whether a page is unchanged: reading the
//! copy would cost more than it saves.
//!
//! Invariants:
//! 1. For each fingerprint, zswap has bytes of that fingerprint under the page's key. So a copy
//!    that outlives its page does no harm: the next page at the address is compared with it, and
//!    128 bits are equal by chance once in 2^128 comparisons. Each program has a seed of its own,
//!    which its heirs inherit.
//! 2. A page has one copy at most.

use alloc::collections::BTreeMap;
use core::ops::Range;

use coldpress_backing::SlotCount;
use coldpress_codec::{fingerprint, same_filled};
use coldpress_sys::secret::fill_random;
use coldpress_sys::{Page, PageCount, cpu};
use coldpress_zswap::Zswap;

use super::pools::Pools;
use super::{Store, key};
use crate::allowance::Allowance;
use crate::pages::PageNumber;
use crate::tally::Counter;

/// Part of the slots in use, in per cent, up to which copies on disk are kept: the disk should not
/// be full of them.
const SLOTS_USED_MAX_PERCENT: usize = 75;
/// Part of the pool's limit in use, in per cent, up to which copies in the pool are kept: nothing
/// should be written back, or refused, for their sake.
const POOL_USED_MAX_PERCENT: usize = 95;
/// Copies dropped at a time when there are too many: some six slots, as a fault may be waiting.
const DROPPED_TOGETHER: usize = 256;

/// Number of returning pages of which one keeps its copy while kept copies are of no use.
const TRIED_ONE_IN: u32 = 16;
/// Largest balance of `Balance`, either way: this many pages of one kind make up for all before.
const USE_MAX: i32 = 32;
/// Copies of one kind that stay while they are of no use: to be tried, and too few to matter.
const TRIED_MAX: usize = 1024;

/// A balance that says whether copies are of use: pages that went unchanged lately, less pages that
/// had changed.
#[derive(Debug)]
struct Balance {
    /// What a changed page counts: nothing where copies are always of use.
    change: i32,
    balance: i32,
    /// Pages that came back while copies were of no use.
    passed: u32,
}

impl Balance {
    const fn new(change: i32) -> Self {
        Self { change, balance: 0, passed: 0 }
    }

    /// Records that a page with a copy went, unchanged if `is_same`.
    fn note(&mut self, is_same: bool) {
        let step = if is_same { 1 } else { -self.change };
        self.balance = (self.balance + step).clamp(-USE_MAX, USE_MAX);
    }

    fn is_none(&self) -> bool {
        self.balance < 0
    }

    /// Returns whether the copy of a page that comes back is worth its room.
    fn is_worth_room(&mut self) -> bool {
        if !self.is_none() {
            return true;
        }
        self.passed = (self.passed + 1) % TRIED_ONE_IN;
        self.passed == 0
    }
}

/// The copies of one kind.
#[derive(Debug)]
struct Copies {
    fingerprints: BTreeMap<PageNumber, u128>,
    uses: Balance,
    /// Whether there is no room for more.
    is_full: bool,
}

impl Copies {
    /// Creates an empty set, in which a changed page counts as `change` unchanged ones.
    const fn new(change: i32) -> Self {
        Self { fingerprints: BTreeMap::new(), uses: Balance::new(change), is_full: false }
    }

    /// Returns whether some copies should go.
    fn are_too_many(&self) -> bool {
        self.is_full || self.uses.is_none() && self.fingerprints.len() > TRIED_MAX
    }

    /// Returns whether there were any copies, after dropping some of them.
    fn drop_some(&mut self, zswap: &Zswap<Pools>) -> bool {
        let any = !self.fingerprints.is_empty();
        for _ in 0..DROPPED_TOGETHER {
            let Some((page, _)) = self.fingerprints.pop_first() else { break };
            zswap.invalidate(key(page));
        }
        any
    }
}

/// Pages whose copies are kept.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Copies in the pool, of pages that walks brought.
    of_walks: Copies,
    on_disk: Copies,
    slots_max: SlotCount,
    /// The seed of the fingerprints.
    seed: u64,
}

impl Kept {
    /// Creates an empty set, in a store of `slots_max` slots.
    pub(crate) fn new(slots_max: SlotCount) -> Self {
        let mut seed = [0; 8];
        // Where a sandbox forbids random bytes, the clock is better than nothing.
        if fill_random(&mut seed).is_err() {
            seed = cpu::ticks().to_ne_bytes();
        }
        let seed = u64::from_ne_bytes(seed);
        let [of_walks, on_disk] = [1, 0].map(Copies::new);
        Self { of_walks, on_disk, slots_max, seed }
    }

    /// Returns whether the page has a copy in the pool. Such copies are kept only while they are of
    /// use, so the page is probably the same.
    pub(crate) fn is_in_pool(&self, page: PageNumber) -> bool {
        self.of_walks.fingerprints.contains_key(&page)
    }

    /// Returns whether the page has a copy.
    pub(crate) fn has(&self, page: PageNumber) -> bool {
        self.is_in_pool(page) || self.on_disk.fingerprints.contains_key(&page)
    }

    /// Returns the number of copies.
    pub(crate) fn count(&self) -> PageCount {
        PageCount(self.of_walks.fingerprints.len() + self.on_disk.fingerprints.len())
    }

    fn all(&mut self) -> [&mut Copies; 2] {
        [&mut self.of_walks, &mut self.on_disk]
    }
}

impl Store {
    /// Returns whether the copy is kept of a page that has come back, from disk or the pool, and
    /// whose bytes are in this `place` of the buffer. A copy is kept if there is room for it and it
    /// may be of use.
    pub(crate) fn keep_copy(
        &mut self,
        page: PageNumber,
        place: usize,
        is_walk: bool,
        from_disk: bool,
    ) -> bool {
        let kept = &mut self.kept;
        let copies = match (from_disk, is_walk) {
            (true, _) => &mut kept.on_disk,
            (false, true) => &mut kept.of_walks,
            (false, false) => return false,
        };
        let bytes = &self.buffer[place].0;
        // Storing such a page again costs less than recognizing it.
        if same_filled(bytes).is_some() {
            return false;
        }
        let is_kept = !copies.is_full && copies.uses.is_worth_room();
        if is_kept {
            let former = copies.fingerprints.insert(page, fingerprint(bytes, kept.seed));
            debug_assert_eq!(former, None, "{page:?} has one copy");
        }
        is_kept
    }

    /// Returns whether a page of these bytes has a kept copy that is the same, and so is stored. A
    /// copy that differs is dropped.
    pub(crate) fn is_kept(
        &mut self,
        page: PageNumber,
        bytes: &Page,
        allowance: &Allowance,
    ) -> bool {
        let kept = &mut self.kept;
        if !self.zswap.knobs().enabled {
            return false;
        }
        let seed = kept.seed;
        let found = kept.all().into_iter().find_map(|copies| {
            let expected = copies.fingerprints.remove(&page)?;
            let is_same = expected == fingerprint(bytes, seed);
            copies.uses.note(is_same);
            Some(is_same)
        });
        let Some(is_same) = found else { return false };
        if is_same {
            allowance.count(Counter::PagesUnchanged, 1);
        } else {
            self.zswap.invalidate(key(page));
        }
        is_same
    }

    /// Drops the copies of `pages`.
    pub(crate) fn drop_kept(&mut self, pages: Range<PageNumber>) {
        for copies in self.kept.all() {
            while let Some((page, _)) = copies.fingerprints.range(pages.clone()).next() {
                let page = *page;
                copies.fingerprints.remove(&page);
                self.zswap.invalidate(key(page));
            }
        }
    }

    /// Drops some copies where there are too many, and keeps no more where there is no room.
    pub(crate) fn look_at_kept(&mut self, slots_used: SlotCount, pool: PageCount) {
        let kept = &mut self.kept;
        let slots_max = kept.slots_max.0 as usize * SLOTS_USED_MAX_PERCENT / 100;
        kept.on_disk.is_full = slots_used.0 as usize > slots_max;
        let knobs = self.zswap.knobs();
        let limit = if self.zswap.writeback_possible() { knobs.max_pool } else { knobs.hard_pool };
        // While zswap is off, it stores no page, and copies serve nothing.
        kept.of_walks.is_full = !knobs.enabled || pool.0 > limit.0 / 100 * POOL_USED_MAX_PERCENT;
        for copies in kept.all().into_iter().filter(|copies| copies.are_too_many()) {
            copies.drop_some(&self.zswap);
        }
    }

    /// Returns whether there were any copies in the pool, after dropping some of them to make room.
    pub(crate) fn drop_copies_in_pool(&mut self) -> bool {
        self.kept.of_walks.drop_some(&self.zswap)
    }
}

#[cfg(test)]
mod tests {
    //! The risk: room for copies that are of no use, or no room for copies that are.
    use super::*;

    /// Counts the copies kept of `count` pages, when all pages with a copy go as `is_same` says.
    fn kept_of(uses: &mut Balance, count: usize, is_same: bool) -> usize {
        let kept = (0..count).filter(|_| {
            let is_kept = uses.is_worth_room();
            if is_kept {
                uses.note(is_same);
            }
            is_kept
        });
        kept.count()
    }

    #[test]
    fn copies_are_kept_while_they_are_of_use_and_tried_again_when_not() {
        let mut uses = Balance::new(1);
        assert_eq!(kept_of(&mut uses, 1000, true), 1000);
        let kept = kept_of(&mut uses, 1000, false);
        assert!(kept < USE_MAX as usize + 2 + 1000 / TRIED_ONE_IN as usize, "{kept}");
        let turn = USE_MAX as usize * TRIED_ONE_IN as usize;
        let kept = kept_of(&mut uses, turn, true);
        let tried = USE_MAX as usize;
        assert!((tried..tried + TRIED_ONE_IN as usize).contains(&kept), "{kept}");
        assert_eq!(kept_of(&mut uses, 1000, true), 1000);
    }
}
