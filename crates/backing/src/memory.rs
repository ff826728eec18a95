//! A backing in memory: the specification that every other backing is held to, and a store for
//! tests.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::{
    Backing, BackingError, EndedRequest, Queue, Request, SlotCount, SlotId, Way, check_range,
};

/// Slots in a map. They save no memory, so nothing but tests should use them.
#[derive(Debug)]
pub struct MemoryBacking {
    slots_max: SlotCount,
    slots: BTreeMap<SlotId, Vec<u8>>,
    done: Queue,
}

impl MemoryBacking {
    /// Makes an empty store of `slots_max` slots.
    pub fn new(slots_max: SlotCount) -> Self {
        Self { slots_max, slots: BTreeMap::new(), done: Queue::new() }
    }

    fn transfer(&mut self, request: &mut Request) -> Result<(), BackingError> {
        check_range(self.slots_max, request)?;
        let bytes = &mut request.buffer[..request.length.0];
        match request.way {
            Way::Write => {
                self.slots.insert(request.slot, bytes.to_vec());
            }
            Way::Read => {
                let stored = self.slots.get(&request.slot).ok_or(BackingError::OutOfRange)?;
                let wanted = request.offset.0..request.offset.0 + bytes.len();
                bytes.copy_from_slice(stored.get(wanted).ok_or(BackingError::OutOfRange)?);
            }
        }
        Ok(())
    }
}

impl Backing for MemoryBacking {
    fn slots_max(&self) -> SlotCount {
        self.slots_max
    }

    fn begin(&mut self, mut request: Request) {
        let result = self.transfer(&mut request);
        self.done.push(request, result);
    }

    fn ended(&mut self) -> Option<EndedRequest> {
        self.done.pop()
    }

    fn wait(&mut self) {}

    fn discard(&mut self, slot: SlotId) {
        self.slots.remove(&slot);
    }
}
