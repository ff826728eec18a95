//! Kept copies: pages that a walk brought back, and whose compressed copies are still there.
//!
//! If such a page is taken out again unchanged, it need not be compressed, nor sealed and written:
//! the next walk reads what the last one did. A copy on disk costs no memory but a fingerprint, and
//! leaves the pool to others. One in the pool costs its bytes while the page is in place; but a
//! walk comes back to a page only when it is out again, so it hardly misses that room. Pages that
//! are asked for one by one are not kept so: with random touches the room costs about what is saved
//! (uniform reads gained a fifth, 80/20 with writes lost as much).
//!
//! A program that changes what it walks over has nothing of such copies. So those in the pool are
//! kept while as many pages go unchanged as changed, and else only of every sixteenth page, to see
//! when that ends.
//!
//! Whether a page is unchanged is told by its fingerprint alone, made when it came: reading the
//! copy would cost more than it saves.
//!
//! Invariants:
//! 1. For each fingerprint, zswap has bytes of that fingerprint under the page's key. So a copy
//!    that outlives its page does no harm: whoever comes to the address is compared with it, and
//!    128 bits are equal by chance once in 2^128 comparisons. Each process has a seed of its own.
//! 2. A page has one copy at most.

use alloc::collections::BTreeMap;
use core::ops::Range;

use coldpress_backing::SlotCount;
use coldpress_codec::fingerprint;
use coldpress_sys::secret::fill_random;
use coldpress_sys::{Page, PageCount, cpu};
use coldpress_zswap::Zswap;

use crate::manager::Manager;
use crate::pages::PageNumber;
use crate::pools::Pools;
use crate::tally::Counter;

/// Copies on disk are kept while no more than this part of the slots is used, in per cent: the disk
/// should not be full of them.
const SLOTS_USED_MAX_PERCENT: usize = 75;
/// Copies in the pool are kept while it has no more than this part of its limit, in per cent: what
/// is written back, or refused, should not be for their sake.
const POOL_USED_MAX_PERCENT: usize = 95;
/// Copies dropped at a time when there are too many, as a fault may be waiting: some six slots.
const DROPPED_TOGETHER: usize = 256;

/// Of so many pages that come back, one is kept while kept copies are of no use.
const TRIED_ONE_IN: u32 = 16;
/// What `Use` says at most, either way: so many pages of the one kind make up for all before.
const USE_MAX: i32 = 32;

/// Whether copies in the pool are of use: pages that went unchanged lately, less those that had
/// changed.
#[derive(Debug, Default)]
struct Use {
    balance: i32,
    /// Pages that came back while copies were of no use.
    passed: u32,
}

impl Use {
    /// A page with a copy went.
    fn note(&mut self, is_same: bool) {
        let step = if is_same { 1 } else { -1 };
        self.balance = (self.balance + step).clamp(-USE_MAX, USE_MAX);
    }

    /// Whether the copy of a page that comes back is worth its room.
    fn is_worth_room(&mut self) -> bool {
        if self.balance >= 0 {
            return true;
        }
        self.passed = (self.passed + 1) % TRIED_ONE_IN;
        self.passed == 0
    }
}

/// The copies of one place.
#[derive(Debug, Default)]
struct Copies {
    fingerprints: BTreeMap<PageNumber, u128>,
    /// Whether there is no room for more.
    is_full: bool,
}

impl Copies {
    /// Drops some of them; whether there were any.
    fn drop_some(&mut self, zswap: &Zswap<Pools>) -> bool {
        let any = !self.fingerprints.is_empty();
        for _ in 0..DROPPED_TOGETHER {
            let Some((page, _)) = self.fingerprints.pop_first() else { break };
            zswap.invalidate(Manager::key(page));
        }
        any
    }
}

/// Pages whose copies are kept.
#[derive(Debug)]
pub(crate) struct Kept {
    on_disk: Copies,
    in_pool: Copies,
    /// Of those in the pool.
    uses: Use,
    slots_max: SlotCount,
    /// Of the fingerprints.
    seed: u64,
}

impl Kept {
    /// None yet, in a store of `slots_max`.
    pub(crate) fn new(slots_max: SlotCount) -> Self {
        let mut seed = [0; 8];
        // Where a sandbox forbids it, the clock is better than nothing.
        if fill_random(&mut seed).is_err() {
            seed = cpu::ticks().to_ne_bytes();
        }
        let seed = u64::from_ne_bytes(seed);
        let (on_disk, in_pool) = (Copies::default(), Copies::default());
        Self { on_disk, in_pool, uses: Use::default(), slots_max, seed }
    }

    fn both(&mut self) -> [&mut Copies; 2] {
        [&mut self.in_pool, &mut self.on_disk]
    }
}

impl Manager {
    /// Keeps the copy of a page that has come back, from disk or the pool, and whose bytes are in
    /// this place of the buffer. Whether it is kept: there is room for it, and it may be of use.
    pub(crate) fn keep_copy(&mut self, page: PageNumber, place: usize, from_disk: bool) -> bool {
        let kept = &mut self.away.kept;
        let seed = kept.seed;
        let copies = if from_disk { &mut kept.on_disk } else { &mut kept.in_pool };
        let is_kept = !copies.is_full && (from_disk || kept.uses.is_worth_room());
        if is_kept {
            let bytes = &self.away.buffer[place].0;
            copies.fingerprints.insert(page, fingerprint(bytes, seed));
        }
        is_kept
    }

    /// Whether a page of these bytes has a kept copy that is the same: then it is stored. Another
    /// copy is dropped.
    pub(crate) fn is_kept(&mut self, page: PageNumber, bytes: &Page) -> bool {
        let kept = &mut self.away.kept;
        let are_none = kept.both().iter().all(|copies| copies.fingerprints.is_empty());
        if are_none || !self.zswap.knobs().enabled {
            return false;
        }
        let seed = kept.seed;
        let in_pool = kept.in_pool.fingerprints.remove(&page);
        let found = in_pool.or_else(|| kept.on_disk.fingerprints.remove(&page));
        let Some(expected) = found else { return false };
        let is_same = expected == fingerprint(bytes, seed);
        if in_pool.is_some() {
            kept.uses.note(is_same);
        }
        if is_same {
            self.count(Counter::PagesUnchanged, 1);
        } else {
            self.zswap.invalidate(Self::key(page));
        }
        is_same
    }

    /// Drops the copies of `pages`.
    pub(crate) fn drop_kept(&mut self, pages: Range<PageNumber>) {
        for copies in self.away.kept.both() {
            while let Some((page, _)) = copies.fingerprints.range(pages.clone()).next() {
                let page = *page;
                copies.fingerprints.remove(&page);
                self.zswap.invalidate(Self::key(page));
            }
        }
    }

    /// Drops some copies where there is little room left, and keeps no more there until there is
    /// again.
    pub(crate) fn look_at_kept(&mut self, slots_used: SlotCount, pool: PageCount) {
        let kept = &mut self.away.kept;
        let slots_max = kept.slots_max.0 as usize * SLOTS_USED_MAX_PERCENT / 100;
        kept.on_disk.is_full = slots_used.0 as usize > slots_max;
        let knobs = self.zswap.knobs();
        let limit = if self.zswap.writeback_possible() { knobs.max_pool } else { knobs.hard_pool };
        kept.in_pool.is_full = pool.0 > limit.0 / 100 * POOL_USED_MAX_PERCENT;
        for copies in kept.both().into_iter().filter(|copies| copies.is_full) {
            copies.drop_some(&self.zswap);
        }
    }

    /// Drops some copies in the pool, for which a page was refused; whether there were any.
    pub(crate) fn drop_copies_in_pool(&mut self) -> bool {
        self.away.kept.in_pool.drop_some(&self.zswap)
    }
}

#[cfg(test)]
mod tests {
    //! The risk: room for copies that are of no use, or none for those that are.
    use super::*;

    /// Pages of `count` whose copies are kept, when all that are go as `is_same` says.
    fn kept_of(uses: &mut Use, count: usize, is_same: bool) -> usize {
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
        let mut uses = Use::default();
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
