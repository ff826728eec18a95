//! A store over `fork`. The child's memory is a copy of the parent's. The child still reads from
//! the parent's file what was on disk, while its own file, key and counts are new.
//!
//! The slots that were taken before the fork are lent to the child, and to the child's children.
//! The parent drops pages in them, but neither reuses these slots nor gives them back to the disk
//! until no other process can read them. They stay sealed with the parent's key, of which the child
//! has a copy to open them with.

use alloc::boxed::Box;
use core::mem;

use coldpress_backing::{Backing, MemoryBacking, SlotCount, SlotId};
use coldpress_sys::sync::SpinLock;

use crate::disk::Disk;
use crate::error::NewError;
use crate::pool::Pool;
use crate::seal::Sealer;
use crate::{Warnings, Zswap};

impl<P: Pool> Zswap<P> {
    /// Prepares for a `fork`: waits until no transfer to or from the disk is under way, and lends
    /// all slots that are taken. Returns the first slot that is not lent; 0 when nothing is on
    /// disk. No other thread may use the store from here on to the fork.
    pub fn lend(&self) -> SlotId {
        let Some(disk) = &self.disk else { return SlotId(0) };
        self.finish_writes();
        let transfers = &mut *disk.transfers.lock();
        while transfers.incoming.is_under_way() {
            transfers.backing.wait();
            self.take_in(transfers);
        }
        let none_under_way = transfers.outgoing.under_way().next().is_none();
        assert!(none_under_way, "another thread writes back during a fork");
        transfers.slots.lend()
    }

    /// Takes lent slots back, if no other process can read them any more.
    pub fn take_back_lent(&self) {
        let Some(disk) = &self.disk else { return };
        let transfers = &mut *disk.transfers.lock();
        if transfers.slots.is_lent() && !transfers.backing.is_lent() {
            let backing = &mut transfers.backing;
            transfers.slots.take_back(|slot| backing.discard(slot));
            assert!(!transfers.slots.is_lent(), "all slots are the store's own again");
        }
    }

    /// Makes the child's copy of a store that has lent its slots a store of its own, with nothing
    /// counted. `backing`, if there is one, reads the lent slots from where they are. `sealer`
    /// seals new slots; without it none are written. The former backing store is the parent's, and
    /// is neither used nor closed. On an error the child has no backing.
    pub fn become_own(
        &mut self,
        backing: Option<Box<dyn Backing>>,
        sealer: Option<Sealer>,
    ) -> Result<(), NewError> {
        self.shards.forget_counts();
        self.recompression.get_mut().forget_counts();
        self.warnings = SpinLock::new(Warnings::default());
        let old = self.disk.take();
        let lent = old.map(|mut disk| {
            let transfers = disk.transfers.get_mut();
            assert!(!transfers.incoming.is_under_way(), "the parent's reads are not the child's");
            transfers.outgoing.renumber();
            let nowhere = Box::new(MemoryBacking::new(SlotCount(0)));
            mem::forget(mem::replace(&mut transfers.backing, nowhere));
            disk
        });
        self.disk = match (lent, backing, sealer) {
            (Some(mut disk), Some(backing), sealer) => {
                let transfers = disk.transfers.get_mut();
                let first = transfers.slots.inherit(backing.slots_max());
                transfers.backing = backing;
                disk.sealers.inherit(first, sealer)?;
                Some(disk)
            }
            (None, Some(backing), Some(sealer)) => Some(Disk::new(backing, sealer)?),
            (_, None, _) | (None, Some(_), None) => None,
        };
        Ok(())
    }
}
