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

use crate::base::Base;
use crate::disk::Disk;
use crate::error::{NewError, Warnings};
use crate::pool::Pool;
use crate::seal::Sealer;
use crate::writeback::Writeback;

impl<P: Pool> Writeback<'_, P> {
    /// Waits until no transfer is under way, and lends all slots that are taken. Returns the first
    /// slot that is not lent.
    pub(crate) fn lend(&self) -> SlotId {
        self.finish_writes();
        let transfers = &mut *self.disk.transfers.lock();
        while transfers.incoming.is_under_way() {
            transfers.backing.wait();
            self.take_in(transfers);
        }
        let none_under_way = transfers.outgoing.under_way().next().is_none();
        assert!(none_under_way, "another thread writes back during a fork");
        transfers.slots.lend()
    }
}

impl Disk {
    /// Takes lent slots back, if no other process can read them any more.
    pub(crate) fn take_back_lent(&self) {
        let transfers = &mut *self.transfers.lock();
        if transfers.slots.is_lent() && !transfers.backing.is_lent() {
            let backing = &mut transfers.backing;
            transfers.slots.take_back(|slot| backing.discard(slot));
            assert!(!transfers.slots.is_lent(), "all slots are the store's own again");
        }
    }

    /// Lets go of the parent's backing, which is neither used nor closed from here on.
    fn forget_backing(&mut self) {
        let transfers = self.transfers.get_mut();
        assert!(!transfers.incoming.is_under_way(), "the parent's reads are not the child's");
        transfers.outgoing.renumber();
        let nowhere = Box::new(MemoryBacking::new(SlotCount(0)));
        mem::forget(mem::replace(&mut transfers.backing, nowhere));
    }

    /// Reads lent slots from `backing`, and writes new ones there if there is a `sealer`.
    fn inherit(
        &mut self,
        backing: Box<dyn Backing>,
        sealer: Option<Sealer>,
    ) -> Result<(), NewError> {
        let transfers = self.transfers.get_mut();
        let first = transfers.slots.inherit(backing.slots_max());
        transfers.backing = backing;
        self.sealers.inherit(first, sealer)?;
        Ok(())
    }
}

impl<P: Pool> Base<P> {
    /// Makes the child's copy of the parts the child's own, with nothing counted. On an error the
    /// child has no disk.
    pub(crate) fn become_own(
        &mut self,
        backing: Option<Box<dyn Backing>>,
        sealer: Option<Sealer>,
    ) -> Result<(), NewError> {
        self.shards.forget_counts();
        self.warnings = SpinLock::new(Warnings::default());
        let mut lent = self.disk.take();
        if let Some(disk) = &mut lent {
            disk.forget_backing();
        }
        self.disk = match (lent, backing, sealer) {
            (Some(mut disk), Some(backing), sealer) => {
                disk.inherit(backing, sealer)?;
                Some(disk)
            }
            (None, Some(backing), Some(sealer)) => Some(Disk::new(backing, sealer)?),
            (_, None, _) | (None, Some(_), None) => None,
        };
        Ok(())
    }
}
