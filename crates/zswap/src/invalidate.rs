//! Invalidate: pages are no longer wanted.

use coldpress_sys::PageCount;

use crate::base::Base;
use crate::ids::SHARDS;
use crate::key::{Area, Key, Offset};
use crate::pool::Pool;
use crate::spot::Spot;

impl<P: Pool> Base<P> {
    /// Returns whether a page lay at `spot`, after dropping it.
    pub(crate) fn invalidate(&self, spot: Spot) -> bool {
        let mut locked = self.shards.lock_page(spot, self.disk.as_ref());
        let Some(id) = locked.id else { return false };
        let removed = locked.tables.index.remove(spot.key);
        debug_assert_eq!(removed, Some(id), "the page had its name until now");
        let transfers = locked.transfers.as_deref_mut();
        let remains = self.shards.drop_entry(spot.shard, &mut locked.tables, transfers, id);
        drop(locked);
        self.objects.give_up(remains);
        true
    }

    /// Drops the pages at `first..=last`, and returns how many there were.
    pub(crate) fn invalidate_between(&self, area: Area, first: Offset, last: Offset) -> PageCount {
        let mut count = PageCount(0);
        for shard in 0..SHARDS {
            let Some((first, last)) = Spot::range(shard, first, last) else { continue };
            let mut next = Some(first);
            while let Some(first) = next
                && let Some(offset) = self.first_in(shard, area, first, last)
            {
                let spot = Spot { shard, key: Key { area, offset } };
                count.0 += usize::from(self.invalidate(spot));
                next = offset.0.checked_add(1).map(Offset);
            }
        }
        count
    }

    /// Returns the first name in `first..=last` of a shard that has a page.
    fn first_in(&self, shard: usize, area: Area, first: Offset, last: Offset) -> Option<Offset> {
        self.shards[shard].tables.lock().index.first_in(area, first, last)
    }
}
