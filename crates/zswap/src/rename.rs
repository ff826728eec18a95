//! Rename: a page is wanted under another name.
//!
//! The entry changes its name, and its shard if need be; the page's bytes stay where they are. A
//! page that takes part in transfers is renamed with the transfers in hand, see `shard`. Whether it
//! does is known only under the locks of the shards, which are taken after the transfers. So a
//! rename is attempted without them first.

use crate::base::Base;
use crate::disk::Transfers;
use crate::entry::PagePlace;
use crate::error::StoreError;
use crate::ids::{EntryId, PageId};
use crate::key::Key;
use crate::objects::Remains;
use crate::pool::Pool;
use crate::room::NoMemory;
use crate::shard::{Shards, Tables};
use crate::spot::Spot;

/// A page that is being renamed, in two shards or in one.
struct Renaming<'z> {
    shards: &'z Shards,
    from: Spot,
    to: Spot,
}

/// Outcome of an attempt to rename: whether there was a page, and what it replaced.
enum Attempt {
    Done(Result<(bool, Option<Remains>), NoMemory>),
    /// Nothing has changed; the caller must hold the transfers.
    NeedsTransfers,
}

impl<P: Pool> Base<P> {
    /// Makes `to` name the page that `from` names, and `from` none; returns whether there was such
    /// a page. Drops what was stored under `to`. On an error nothing has changed.
    pub(crate) fn rename(&self, from: Key, to: Key) -> Result<bool, StoreError> {
        let Self { objects, shards, disk, .. } = self;
        if from == to {
            return Ok(shards.contains(Spot::of(from)));
        }
        let renaming = Renaming { shards, from: Spot::of(from), to: Spot::of(to) };
        let mut transfers = None;
        let renamed = loop {
            match renaming.attempt(transfers.as_deref_mut()) {
                Attempt::Done(renamed) => break renamed,
                // Without a disk no page needs the transfers.
                Attempt::NeedsTransfers => {
                    transfers = disk.as_ref().map(|disk| disk.transfers.lock());
                }
            }
        };
        drop(transfers);
        let counted = &shards[renaming.from.shard].counted;
        let Ok((found, replaced)) = renamed else {
            counted.reject_kmemcache_fail.add(1);
            return Err(StoreError::NoMemory);
        };
        counted.renamed.add(u64::from(found));
        replaced.into_iter().for_each(|remains| objects.give_up(remains));
        Ok(found)
    }
}

impl Renaming<'_> {
    /// Renames the page, unless it needs the transfers and the caller does not hold them.
    fn attempt(&self, transfers: Option<&mut Transfers>) -> Attempt {
        let (from, to) = (self.from.shard, self.to.shard);
        if from == to {
            return self.inside(&mut self.shards[from].tables.lock(), transfers);
        }
        // In the order of the shards' numbers, as every caller takes two.
        let mut low = self.shards[from.min(to)].tables.lock();
        let mut high = self.shards[from.max(to)].tables.lock();
        let (source, target) =
            if from < to { (&mut *low, &mut *high) } else { (&mut *high, &mut *low) };
        self.across(source, target, transfers)
    }

    /// Renames a page within its shard.
    fn inside(&self, tables: &mut Tables, mut transfers: Option<&mut Transfers>) -> Attempt {
        let Self { from, to, .. } = *self;
        let (id, replaced) = (tables.index.get(from.key), tables.index.get(to.key));
        let is_transferred =
            |id: Option<EntryId>| id.is_some_and(|id| tables.entries[id].place.is_transferred());
        if transfers.is_none() && (is_transferred(id) || is_transferred(replaced)) {
            return Attempt::NeedsTransfers;
        }
        if let Some(id) = id {
            if tables.index.set(to.key, id).is_err() {
                return Attempt::Done(Err(NoMemory));
            }
            let removed = tables.index.remove(from.key);
            debug_assert_eq!(removed, Some(id), "the page had its former name until now");
            if let Some(transfers) = &mut transfers {
                // Perhaps no load ever asks for the page under its new name: the read must not keep
                // a buffer.
                transfers.incoming.forget(PageId::new(from.shard, id));
            }
        } else {
            tables.index.remove(to.key);
        }
        let drop = |replaced| self.shards.drop_entry(to.shard, tables, transfers, replaced);
        Attempt::Done(Ok((id.is_some(), replaced.map(drop))))
    }

    /// Renames a page into another shard.
    fn across(
        &self,
        source: &mut Tables,
        target: &mut Tables,
        mut transfers: Option<&mut Transfers>,
    ) -> Attempt {
        let Self { from, to, .. } = *self;
        let (id, replaced) = (source.index.get(from.key), target.index.get(to.key));
        let is_transferred = |tables: &Tables, id: Option<EntryId>| {
            id.is_some_and(|id| tables.entries[id].place.is_transferred())
        };
        let is_needed = is_transferred(source, id) || is_transferred(target, replaced);
        if transfers.is_none() && is_needed {
            return Attempt::NeedsTransfers;
        }
        if let Some(id) = id {
            let place = source.entries[id].place;
            let Ok(new) = target.entries.alloc(place) else {
                return Attempt::Done(Err(NoMemory));
            };
            if target.index.set(to.key, new).is_err() {
                target.entries.free(new);
                return Attempt::Done(Err(NoMemory));
            }
            let removed = source.index.remove(from.key);
            debug_assert_eq!(removed, Some(id), "the page had its former name until now");
            source.leave(id);
            source.entries.free(id);
            self.shards.occupy(target, new, place);
            if let Some(transfers) = &mut transfers {
                transfers.incoming.forget(PageId::new(from.shard, id));
                if let PagePlace::Leaving { member, .. } = place {
                    transfers.outgoing.rename(member, PageId::new(to.shard, new));
                }
            }
        } else {
            target.index.remove(to.key);
        }
        let drop = |replaced| self.shards.drop_entry(to.shard, target, transfers, replaced);
        Attempt::Done(Ok((id.is_some(), replaced.map(drop))))
    }
}
