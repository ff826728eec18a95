//! Compaction, and the table of classes.
//!
//! Idea (Linux mm/zsmalloc.c, `__zs_compact`): class by class, the largest first, objects of the
//! emptiest zspage move to the fullest that is not full, while that frees anything. The last object
//! of a zspage goes first, so that its frames become free one by one. An object that finds no other
//! zspage moves to the front of its own. Objects in use stay.
//!
//! Compaction ends: a move to a zspage with no fewer objects increases the sum of the squares of
//! their numbers; a move inside a zspage keeps that sum and decreases the sum of the slots'
//! numbers.

use coldpress_sys::{Bytes, PageCount};

use super::super::bounce::Bounce;
use super::super::handles::HandleTable;
use super::super::pin::Pinned;
use super::super::{ClassStats, MOVE_COST};
use super::Zsmalloc;
use super::lists::ZspageRef;
use super::object::{self, Location, ObjectPlace};
use super::zspage::Locked;

/// The result of one call of compaction.
pub(super) struct Moves {
    pub(super) bytes: Bytes,
    /// Frames taken for the moves, less those given back.
    pub(super) frames: isize,
    /// Whether nothing more can be done.
    pub(super) is_all: bool,
}

impl Zsmalloc<'_> {
    /// Moves objects until the work reaches `budget` (the last one may exceed it), or nothing more
    /// can be done.
    pub(super) fn move_objects(&self, budget: Bytes) -> Moves {
        let mut moves = Moves { bytes: Bytes(0), frames: 0, is_all: false };
        let mut work = Bytes(0);
        for number in 0..self.sizes.count() {
            while work < budget {
                // The lock is held for one object only: other threads need the class too.
                let mut class = self.lock(number);
                let before = class.lists.counts.frames;
                if class.freeable() == PageCount(0) {
                    break;
                }
                let Some(bytes) = class.move_one(&self.handles) else { break };
                moves.frames += class.lists.counts.frames as isize - before as isize;
                (moves.bytes, work) = (moves.bytes + bytes, work + bytes + MOVE_COST);
            }
        }
        Moves { is_all: work < budget, ..moves }
    }
}

impl Locked<'_, '_> {
    /// Returns the frames that the class could do without.
    fn freeable(&self) -> PageCount {
        let counts = self.lists.counts;
        let least = self.class.frames_for(counts.objects as usize);
        PageCount(counts.frames as usize).saturating_sub(PageCount(least))
    }

    /// Moves the last object of the emptiest zspage, of those that no thread uses. Returns `None`
    /// when there is no better place for it, or no frame to make one.
    fn move_one(&mut self, handles: &HandleTable<'_>) -> Option<Bytes> {
        let from = self.emptiest()?;
        let (slot, pinned) = self.last_unused(handles, from)?;
        let to = match self.take_listed_slot(from) {
            Some(other) => other,
            None => (from, self.take_slot(from, slot, true)?),
        };
        let bytes = self.move_object(pinned, (from, slot), to);
        self.put_place(ObjectPlace::Slot(from, slot));
        Some(bytes)
    }

    /// Returns the last slot of a zspage whose object no thread uses, and its pin.
    fn last_unused<'h>(
        &self,
        handles: &'h HandleTable<'_>,
        zspage: ZspageRef,
    ) -> Option<(u16, Pinned<'h>)> {
        let mut end = self.class.objects;
        while let Some(slot) = self.slots(zspage).last_used(end) {
            if let Some(pinned) = handles.try_pin(self.name(zspage, slot)) {
                return Some((slot, pinned));
            }
            end = slot;
        }
        None
    }

    /// Copies an object to another slot of its class, and makes its name lead there.
    fn move_object(
        &mut self,
        mut pinned: Pinned<'_>,
        (from, from_slot): (ZspageRef, u16),
        (to, to_slot): (ZspageRef, u16),
    ) -> Bytes {
        let location = Location::from_word(pinned.word());
        let (source, target) = (ObjectPlace::Slot(from, from_slot), ObjectPlace::Slot(to, to_slot));
        assert_eq!(location.place, source, "an object's name leads to it");
        let length = usize::from(location.size);
        let mut bounce = Bounce::new();
        // SAFETY: the object is pinned, and no name leads to its new slot yet.
        unsafe {
            let (first, second) = self.zspages.object(source, self.class, length);
            bounce.push(first);
            bounce.push(second);
            object::fill(self.zspages.object(target, self.class, length), bounce.bytes());
        }
        self.set_name(target, self.name(from, from_slot));
        pinned.set(Location { place: target, ..location }.to_word());
        location.bytes()
    }

    /// Returns the figures of the class. `None` when it holds nothing.
    pub(super) fn stats(&self) -> Option<ClassStats> {
        let counts = self.lists.counts;
        if counts.frames == 0 {
            return None;
        }
        let (mut almost_full, mut almost_empty, mut holes) = (0, 0, 0);
        self.for_each_not_full(|zspage| {
            let in_use = usize::from(self.get(zspage).in_use.get());
            let is_almost_empty = in_use * 4 <= usize::from(self.class.objects);
            *(if is_almost_empty { &mut almost_empty } else { &mut almost_full }) += 1;
            holes += self.slots(zspage).holes();
        });
        Some(ClassStats {
            class: self.number,
            size: Bytes(self.class.size.into()),
            almost_full,
            almost_empty,
            obj_allocated: counts.objects as usize + holes,
            obj_used: counts.objects as usize,
            pages_used: PageCount(counts.frames as usize),
            pages_per_zspage: self.class.chain.into(),
            freeable: self.freeable(),
        })
    }
}
