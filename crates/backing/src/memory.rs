//! A backing in memory: the specification that every other backing is held to, and a store for
//! tests.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use coldpress_sys::Bytes;

use crate::{Backing, BackingError, SlotCount, SlotId, check_range};

/// Slots in a map. It saves no memory, so nothing but tests should swap to it.
#[derive(Debug, Default)]
pub struct MemoryBacking {
    slots_max: SlotCount,
    slots: BTreeMap<SlotId, Vec<u8>>,
}

impl MemoryBacking {
    /// An empty store of `slots_max` slots.
    pub fn new(slots_max: SlotCount) -> Self {
        Self { slots_max, slots: BTreeMap::new() }
    }
}

impl Backing for MemoryBacking {
    fn slots_max(&self) -> SlotCount {
        self.slots_max
    }

    fn write(&mut self, slot: SlotId, bytes: &[u8]) -> Result<(), BackingError> {
        check_range(self.slots_max, slot, Bytes(0), bytes.len())?;
        self.slots.insert(slot, bytes.to_vec());
        Ok(())
    }

    fn read(&mut self, slot: SlotId, offset: Bytes, out: &mut [u8]) -> Result<(), BackingError> {
        check_range(self.slots_max, slot, offset, out.len())?;
        let bytes = self.slots.get(&slot).ok_or(BackingError::OutOfRange)?;
        let wanted = bytes.get(offset.0..offset.0 + out.len()).ok_or(BackingError::OutOfRange)?;
        out.copy_from_slice(wanted);
        Ok(())
    }

    fn discard(&mut self, slot: SlotId) {
        self.slots.remove(&slot);
    }
}
