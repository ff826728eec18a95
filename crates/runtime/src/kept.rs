//! Kept copies: pages that a walk brought back from disk, and whose slots still hold them.
//!
//! Such a copy costs no memory but a fingerprint. If the page is taken out again unchanged, it need
//! not be compressed, sealed and written again, and the pool is left to others: the next walk reads
//! it as the last one did. Pages that are asked for one by one are not kept so, as they belong in
//! the pool. Whether a page is unchanged is told by its fingerprint alone, made when it came:
//! reading the copy would cost more than it saves.
//!
//! Invariants:
//! 1. For each fingerprint, zswap has bytes of that fingerprint under the page's key. So a copy
//!    that outlives its page does no harm: whoever comes to the address is compared with it, and
//!    128 bits are equal by chance once in 2^128 comparisons. (A program may make two pages of one
//!    fingerprint on purpose: it would deceive itself alone.)

use alloc::collections::BTreeMap;
use core::ops::Range;

use coldpress_backing::SlotCount;
use coldpress_codec::fingerprint;
use coldpress_sys::Page;

use crate::manager::Manager;
use crate::pages::PageNumber;
use crate::tally::Counter;

/// Copies are kept while no more than this part of the slots is used, in per cent: the disk should
/// not be full of them.
const SLOTS_USED_MAX_PERCENT: usize = 75;
/// Copies dropped at a time when there are too many, as a fault may be waiting: some six slots.
const DROPPED_TOGETHER: usize = 256;

/// Fingerprints of pages whose copies are kept.
#[derive(Debug)]
pub(crate) struct Kept {
    fingerprints: BTreeMap<PageNumber, u128>,
    slots_max: SlotCount,
    /// Whether the disk has no room for more.
    is_full: bool,
}

impl Kept {
    /// None yet, in a store of `slots_max`.
    pub(crate) fn new(slots_max: SlotCount) -> Self {
        Self { fingerprints: BTreeMap::new(), slots_max, is_full: false }
    }
}

impl Manager {
    /// Keeps the copy of a page that has come back from disk with these bytes. Whether there is
    /// room for it.
    pub(crate) fn keep_copy(&mut self, page: PageNumber, fingerprint: u128) -> bool {
        let keeps = !self.away.kept.is_full;
        if keeps {
            self.away.kept.fingerprints.insert(page, fingerprint);
        }
        keeps
    }

    /// Whether a page of these bytes has a kept copy that is the same: then it is stored. Another
    /// copy is dropped.
    pub(crate) fn is_kept(&mut self, page: PageNumber, bytes: &Page) -> bool {
        let kept = &mut self.away.kept.fingerprints;
        if kept.is_empty() || !self.zswap.knobs().enabled {
            return false;
        }
        let Some(expected) = kept.remove(&page) else { return false };
        let is_same = expected == fingerprint(bytes);
        if is_same {
            self.count(Counter::PagesUnchanged, 1);
        } else {
            self.zswap.invalidate(Self::key(page));
        }
        is_same
    }

    /// Drops the copies of `pages`.
    pub(crate) fn drop_kept(&mut self, pages: Range<PageNumber>) {
        while let Some((page, _)) = self.away.kept.fingerprints.range(pages.clone()).next() {
            let page = *page;
            self.away.kept.fingerprints.remove(&page);
            self.zswap.invalidate(Self::key(page));
        }
    }

    /// Drops some copies when many slots are used, and keeps no more until some are free again.
    pub(crate) fn look_at_kept(&mut self, slots_used: SlotCount) {
        let most = self.away.kept.slots_max.0 as usize * SLOTS_USED_MAX_PERCENT / 100;
        self.away.kept.is_full = slots_used.0 as usize > most;
        if self.away.kept.is_full {
            for _ in 0..DROPPED_TOGETHER {
                let first = self.away.kept.fingerprints.first_key_value();
                let Some(page) = first.map(|(page, _)| *page) else { return };
                self.drop_kept(page..page.plus(1));
            }
        }
    }
}
