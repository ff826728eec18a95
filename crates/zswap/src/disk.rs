//! The disk's side of a store: the backing, which of its slots are taken, and what is under way to
//! it and from it.
//!
//! One lock guards all of it, whose waiters sleep: a backing may wait for the disk in any call.
//! What lies in the pool is stored, loaded and dropped without it.

use alloc::boxed::Box;

use crate::pool::Pool;
use coldpress_backing::{Backing, Ended, SlotId, Slots};
use coldpress_sys::sync::SleepLock;

use crate::Zswap;
use crate::incoming::Incoming;
use crate::outgoing::{BATCHES, Outgoing};
use crate::room::NoMemory;
use crate::seal::{Sealer, Sealers};

/// What a store with a backing has.
pub(crate) struct Disk {
    pub(crate) sealers: Sealers,
    pub(crate) transfers: SleepLock<Transfers>,
}

/// What moves between pool and backing.
pub(crate) struct Transfers {
    pub(crate) backing: Box<dyn Backing>,
    /// Each stamped with the number of the batch that lies in it.
    pub(crate) slots: Slots,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
}

impl Disk {
    /// Nothing is under way; all buffers are there.
    pub(crate) fn new(backing: Box<dyn Backing>, sealer: Sealer) -> Result<Self, NoMemory> {
        let slots = Slots::new(backing.slots_max());
        let (outgoing, incoming) = (Outgoing::new()?, Incoming::new()?);
        let transfers = SleepLock::new(Transfers { backing, slots, outgoing, incoming });
        Ok(Self { sealers: Sealers::new(sealer), transfers })
    }
}

impl<P: Pool> Zswap<P> {
    /// Takes in what the backing store has finished; whether there was anything.
    pub(crate) fn take_in(&self, transfers: &mut Transfers) -> bool {
        let mut any = false;
        while let Some(Ended { request, result }) = transfers.backing.ended() {
            any = true;
            match (request.token as usize).checked_sub(BATCHES) {
                Some(number) => transfers.incoming.end(number, request.buffer, result),
                None => self.end_write(transfers, request, result),
            }
        }
        any
    }

    /// Gives a slot back that nobody uses any more. There is room again, so writing back is tried
    /// again.
    pub(crate) fn discard(&self, transfers: &mut Transfers, slot: SlotId) {
        transfers.backing.discard(slot);
        self.counted().slots_discarded.add(1);
        self.limits.lock().skip = 0;
    }
}
