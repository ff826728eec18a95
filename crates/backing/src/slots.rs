//! The slots that are taken, and by how many users each. The lowest free number is taken first, so
//! that a store stays short.
//!
//! A slot is taken with a number of users (the compressed pages in it). Each user leaves once, and
//! the slot is free again when the last one has left. A slot also keeps a word of its owner's, its
//! *stamp*. Slots cost ten bytes each, in chunks that come as slots are first needed.
//!
//! A `fork` copies the table, and both copies name the same slots of one store. Slots below a
//! *floor* are then not given out: in the child never again, because they are the parent's to give,
//! and in the parent until no child can read them any more.
//!
//! Invariants:
//! 1. A slot is free exactly when its count of users is zero and it is not below the floor.
//! 2. `chunk.free` is the number of free slots in the chunk; `used` is the number of slots with
//!    users, and `used_above` the number of those that are not below the floor.
//! 3. No chunk below `first_free` has a free slot.
//! 4. `own <= floor`: slots below `own` are an ancestor's.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU16;
use core::ops::Range;

use coldpress_sys::Bytes;

use crate::{SlotCount, SlotId};

/// Slots counted in one chunk: 10 KiB for 64 MiB of store.
const CHUNK_SLOTS: usize = 1024;

/// Counts and stamps of consecutive slots.
#[derive(Debug)]
struct Chunk {
    users: Box<[u16]>,
    stamps: Box<[u64]>,
    free: usize,
}

/// The allocator of slot numbers of one store.
#[derive(Debug)]
pub struct Slots {
    slots_max: SlotCount,
    chunks: Vec<Chunk>,
    first_free: usize,
    used: SlotCount,
    used_above: u32,
    own: SlotId,
    floor: SlotId,
}

impl Slots {
    /// Makes a table of `slots_max` slots, all free.
    pub fn new(slots_max: SlotCount) -> Self {
        Self {
            slots_max,
            chunks: Vec::new(),
            first_free: 0,
            used: SlotCount(0),
            used_above: 0,
            own: SlotId(0),
            floor: SlotId(0),
        }
    }

    /// Prepares for a `fork`: raises the floor above every taken slot, so that a child can rely on
    /// those slots. Returns the floor; 0 when no slot is taken.
    pub fn lend(&mut self) -> SlotId {
        let taken = |chunk: &Chunk| chunk.users.iter().rposition(|users| *users > 0);
        let last = self
            .chunks
            .iter()
            .enumerate()
            .rev()
            .find_map(|(number, chunk)| taken(chunk).map(|index| number * CHUNK_SLOTS + index));
        let floor = last.map_or(0, |last| last as u32 + 1);
        self.set_floor(SlotId(floor.max(self.floor.0)));
        self.floor
    }

    /// Returns whether slots are lent.
    pub fn is_lent(&self) -> bool {
        self.floor > self.own
    }

    /// Takes back the lent slots, which no child relies on any more. Calls `visit` for each slot
    /// that may have been given up meanwhile; these are free again.
    pub fn take_back(&mut self, mut visit: impl FnMut(SlotId)) {
        for slot in self.own.0..self.floor.0 {
            if self.users(SlotId(slot)) == 0 {
                visit(SlotId(slot));
            }
        }
        self.set_floor(self.own);
    }

    /// Turns the table, in the child and after [`Slots::lend`], into that of a store which has the
    /// ancestors' slots below the floor, and others of its own from there on, up to `slots_max`.
    /// Returns the first slot of its own.
    pub fn inherit(&mut self, slots_max: SlotCount) -> SlotId {
        self.own = self.floor;
        self.slots_max = SlotCount(slots_max.0.max(self.floor.0));
        self.set_floor(self.own);
        self.own
    }

    fn set_floor(&mut self, floor: SlotId) {
        self.floor = floor;
        self.used_above = 0;
        for number in 0..self.chunks.len() {
            let within = self.within(number);
            let chunk = &mut self.chunks[number];
            let count = within.len();
            chunk.free = chunk.users[within].iter().filter(|users| **users == 0).count();
            self.used_above += (count - chunk.free) as u32;
        }
        self.first_free = 0;
    }

    /// Returns the places of a chunk whose slots may be given out.
    fn within(&self, number: usize) -> Range<usize> {
        let place = |slot: u32| (slot as usize).saturating_sub(number * CHUNK_SLOTS);
        place(self.floor.0).min(CHUNK_SLOTS)..place(self.slots_max.0).min(CHUNK_SLOTS)
    }

    /// Returns the number of taken slots.
    pub fn used(&self) -> SlotCount {
        self.used
    }

    /// Returns whether all slots are taken.
    pub fn is_full(&self) -> bool {
        self.used_above == self.slots_max.0 - self.floor.0
    }

    /// Returns the memory of counts and stamps.
    pub fn memory(&self) -> Bytes {
        let of = |chunk: &Chunk| size_of_val(&*chunk.users) + size_of_val(&*chunk.stamps);
        let tables: usize = self.chunks.iter().map(of).sum();
        Bytes(tables + self.chunks.capacity() * size_of::<Chunk>())
    }

    /// Takes the lowest free slot for `users` users, and stamps it. `None` when all are taken, or
    /// there is no memory to count one more chunk.
    pub fn take(&mut self, users: NonZeroU16, stamp: u64) -> Option<SlotId> {
        if self.is_full() {
            return None;
        }
        let below =
            self.chunks[self.first_free..].iter().take_while(|chunk| chunk.free == 0).count();
        self.first_free += below;
        if self.first_free == self.chunks.len() {
            self.add_chunk()?;
        }
        let within = self.within(self.first_free);
        let chunk = &mut self.chunks[self.first_free];
        let index = within.start + chunk.users[within].iter().position(|&users| users == 0)?;
        chunk.users[index] = users.get();
        chunk.stamps[index] = stamp;
        chunk.free -= 1;
        self.used.0 += 1;
        self.used_above += 1;
        // The chunks together cover at most `slots_max` slots, which is a u32.
        Some(SlotId((self.first_free * CHUNK_SLOTS + index) as u32))
    }

    /// Returns whether `slot` is free, after one of its users has left.
    pub fn leave(&mut self, slot: SlotId) -> bool {
        self.leave_many(slot, NonZeroU16::MIN)
    }

    /// Returns whether `slot` is free, after `users` of its users have left. Taking away more users
    /// than the slot has is a bug of the caller, and stops the program.
    pub fn leave_many(&mut self, slot: SlotId, users: NonZeroU16) -> bool {
        let number = slot.0 as usize / CHUNK_SLOTS;
        let chunk = &mut self.chunks[number];
        let count = &mut chunk.users[slot.0 as usize % CHUNK_SLOTS];
        assert!(*count >= users.get(), "more users left a slot than took it");
        *count -= users.get();
        if *count > 0 {
            return false;
        }
        self.used.0 -= 1;
        let is_free = slot >= self.floor;
        if is_free {
            chunk.free += 1;
            self.used_above -= 1;
            self.first_free = self.first_free.min(number);
        }
        is_free
    }

    /// Returns the number of users of `slot`; zero for a free one.
    pub fn users(&self, slot: SlotId) -> u16 {
        let chunk = self.chunks.get(slot.0 as usize / CHUNK_SLOTS);
        let users = chunk.and_then(|chunk| chunk.users.get(slot.0 as usize % CHUNK_SLOTS));
        users.copied().unwrap_or(0)
    }

    /// Returns the stamp that `slot` was taken with; zero for a slot that never was.
    pub fn stamp(&self, slot: SlotId) -> u64 {
        let chunk = self.chunks.get(slot.0 as usize / CHUNK_SLOTS);
        let stamp = chunk.and_then(|chunk| chunk.stamps.get(slot.0 as usize % CHUNK_SLOTS));
        stamp.copied().unwrap_or(0)
    }

    /// Adds the tables of the next slots. `None` without memory.
    fn add_chunk(&mut self) -> Option<()> {
        let (users, stamps) = (zeros(CHUNK_SLOTS)?, zeros(CHUNK_SLOTS)?);
        self.chunks.try_reserve(1).ok()?;
        let free = self.within(self.chunks.len()).len();
        self.chunks.push(Chunk { users, stamps, free });
        Some(())
    }
}

/// Allocates a table of `count` zeros. `None` without memory.
fn zeros<T: Clone + Default>(count: usize) -> Option<Box<[T]>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).ok()?;
    values.resize(count, T::default());
    Some(values.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Compares with a map from slot to users, over more than one chunk.
        #[test]
        fn slots_do_as_a_map_does(
            slots_max in 1_u32..2500,
            steps in prop::collection::vec((0_u8..50, any::<u16>(), 1_u16..5), 1..3000),
        ) {
            let (mut slots_max, mut own, mut floor) = (slots_max, 0, 0);
            let mut slots = Slots::new(SlotCount(slots_max));
            let mut map = BTreeMap::<u32, (u16, u64)>::new();
            for (stamp, (verb, pick, users)) in (1_u64..).zip(steps) {
                if verb == 49 {
                    let above = map.keys().next_back().map_or(0, |last| last + 1);
                    floor = floor.max(above);
                    prop_assert_eq!(slots.lend(), SlotId(floor));
                } else if verb == 48 && pick % 2 == 0 {
                    let mut freed = Vec::new();
                    slots.take_back(|slot| freed.push(slot.0));
                    let free: Vec<_> =
                        (own..floor).filter(|slot| !map.contains_key(slot)).collect();
                    prop_assert_eq!(freed, free);
                    floor = own;
                } else if verb == 48 && pick % 16 == 1 && map.keys().all(|slot| *slot < floor) {
                    slots_max = floor + u32::from(pick) % 2000;
                    own = floor;
                    prop_assert_eq!(slots.inherit(SlotCount(slots_max)), SlotId(own));
                } else if verb < 40 {
                    let lowest = (floor..slots_max).find(|slot| !map.contains_key(slot));
                    let users = NonZeroU16::new(users).unwrap();
                    prop_assert_eq!(slots.take(users, stamp), lowest.map(SlotId));
                    lowest.map(|slot| map.insert(slot, (users.get(), stamp)));
                } else if !map.is_empty() {
                    let nth = pick as usize % map.len();
                    let (&slot, &(users, stamp)) = map.iter().nth(nth).unwrap();
                    let is_free = users == 1 && slot >= floor;
                    prop_assert_eq!(slots.leave(SlotId(slot)), is_free);
                    prop_assert_eq!(slots.stamp(SlotId(slot)), stamp);
                    map.insert(slot, (users - 1, stamp));
                    map.retain(|_, (users, _)| *users > 0);
                }
                prop_assert_eq!(slots.used().0 as usize, map.len());
                let above = map.keys().filter(|slot| **slot >= floor).count();
                prop_assert_eq!(slots.is_full(), above == (slots_max - floor) as usize);
                prop_assert_eq!(slots.is_lent(), floor > own);
            }
            for slot in 0..slots_max {
                let found = map.get(&slot).copied();
                prop_assert_eq!(slots.users(SlotId(slot)), found.map_or(0, |(users, _)| users));
                if let Some((_, stamp)) = found {
                    prop_assert_eq!(slots.stamp(SlotId(slot)), stamp);
                }
            }
        }
    }
}
