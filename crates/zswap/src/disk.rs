//! The disk's side of a store: the backing, which of its slots are taken, and the transfers under
//! way in both directions.
//!
//! One lock guards all of it. Its waiters sleep, because a backing may wait for the disk in any
//! call. Pages in the pool are stored, loaded and dropped without this lock.

use alloc::boxed::Box;

use coldpress_backing::{Backing, SlotId, Slots};
use coldpress_sys::Bytes;
use coldpress_sys::sync::SleepLock;

use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::room::NoMemory;
use crate::seal::{Sealer, Sealers};
use crate::stats::Stats;

/// The part of a store that exists only with a backing.
pub(crate) struct Disk {
    pub(crate) sealers: Sealers,
    pub(crate) transfers: SleepLock<Transfers>,
}

/// The state of all transfers between pool and backing.
pub(crate) struct Transfers {
    pub(crate) backing: Box<dyn Backing>,
    /// Each slot is stamped with the number of the batch that lies in it.
    pub(crate) slots: Slots,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    /// Attempts at writeback still to be skipped, because the last one failed.
    pub(crate) skip: u32,
}

impl Disk {
    /// Returns a disk with nothing under way and all buffers allocated.
    pub(crate) fn new(backing: Box<dyn Backing>, sealer: Sealer) -> Result<Self, NoMemory> {
        let slots = Slots::new(backing.slots_max());
        let (outgoing, incoming) = (Outgoing::new()?, Incoming::new()?);
        let transfers = Transfers { backing, slots, outgoing, incoming, skip: 0 };
        Ok(Self { sealers: Sealers::new(sealer), transfers: SleepLock::new(transfers) })
    }

    /// Returns the memory of buffers, slots and keys.
    pub(crate) fn memory(&self) -> Bytes {
        let transfers = self.transfers.lock();
        let under_way = transfers.outgoing.memory() + transfers.incoming.memory();
        under_way + transfers.slots.memory() + self.sealers.memory()
    }

    /// Adds what is held now to the figures.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        let transfers = self.transfers.lock();
        stats.outstanding_flushes = transfers.outgoing.under_way().count() as u32;
        stats.slots_used = transfers.slots.used().0;
    }
}

impl Transfers {
    /// Returns whether `slot` was given back, after taking a page out of it: that page was its
    /// last. The backing has room again, so writeback is tried again.
    pub(crate) fn leave_slot(&mut self, slot: SlotId) -> bool {
        let is_last = self.slots.leave(slot);
        if is_last {
            assert_eq!(self.slots.users(slot), 0, "pages lie in a slot that is given back");
            self.backing.discard(slot);
            self.skip = 0;
        }
        is_last
    }
}
