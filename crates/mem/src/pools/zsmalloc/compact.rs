//! Compaction, and the table of classes.
//!
//! Idea (Linux mm/zsmalloc.c, `__zs_compact`): class by class, the largest first, objects of the
//! emptiest zspage move to the fullest that is not full, while that frees anything. The last object
//! of a zspage goes first, so that its frames become free one by one. An object that finds no other
//! zspage moves to the front of its own.
//!
//! It ends: a move to a zspage with no fewer objects makes the sum of the squares of their numbers
//! larger, a move inside a zspage keeps it and makes the sum of the slots' numbers smaller.

#![forbid(unsafe_code)]

use coldpress_sys::{Bytes, PageCount};

use super::super::{ClassStats, MOVE_COST};
use super::Zsmalloc;
use super::object::{self, Location, Place};
use super::size_class::SizeClass;
use super::zspage::ZspageRef;

impl Zsmalloc<'_> {
    /// Moves objects until the work comes to `budget` (the last one may go beyond), or nothing more
    /// can be done. How many bytes were moved, and whether it was all.
    pub(super) fn move_objects(&mut self, budget: Bytes) -> (Bytes, bool) {
        let (mut moved, mut work) = (Bytes(0), Bytes(0));
        for number in 0..self.classes.count() {
            while work < budget && self.freeable(number) > PageCount(0) {
                let Some(bytes) = self.move_one(number) else { break };
                (moved, work) = (moved + bytes, work + bytes + MOVE_COST);
            }
        }
        (moved, work < budget)
    }

    /// Frames that a class could do without.
    fn freeable(&self, number: usize) -> PageCount {
        let held = self.zspages.held.classes[number];
        let least = self.classes.class(number).frames_for(held.objects as usize);
        PageCount(held.frames as usize).saturating_sub(PageCount(least))
    }

    /// Moves the last object of the emptiest zspage of a class. `None` when there is no better
    /// place for it, or no frame to make one.
    fn move_one(&mut self, number: usize) -> Option<Bytes> {
        let class = self.classes.class(number);
        let Self { lists, zspages, .. } = self;
        let from = lists.emptiest(zspages, number)?;
        let last = zspages.slots(from, class).last_used()?;
        let other = lists.take_slot(zspages, number, class, from);
        let to = other.or_else(|| Some((from, zspages.take_slot(from, class, last, true)?)))?;
        let bytes = self.move_object(class, (from, last), to);
        self.put_place(Place::Slot(from, last));
        Some(bytes)
    }

    /// Copies an object to another slot of its class, and makes its handle name that.
    fn move_object(
        &mut self,
        class: SizeClass,
        (from, from_slot): (ZspageRef, u16),
        (to, to_slot): (ZspageRef, u16),
    ) -> Bytes {
        let handle = self.zspages.handle(from, from_slot, class);
        let word = self.handles.get(handle).expect("an object that is held is allocated");
        let location = Location::from_word(word);
        let (source, target) = (Place::Slot(from, from_slot), Place::Slot(to, to_slot));
        let length = usize::from(location.size);
        let parts = self.zspages.object(source, class, length);
        let bytes = object::join(&mut self.bounce, parts);
        object::split(bytes, self.zspages.object_mut(target, class, length));
        self.zspages.set_handle(target, class, handle);
        self.handles.set(handle, Location { place: target, ..location }.to_word());
        location.bytes()
    }

    /// How full a class is. `None` when it holds nothing.
    pub(super) fn class_stats(&self, number: usize) -> Option<ClassStats> {
        let held = self.zspages.held.classes[number];
        if held.frames == 0 {
            return None;
        }
        let class = self.classes.class(number);
        let (mut almost_full, mut almost_empty, mut holes) = (0, 0, 0);
        self.lists.for_each_not_full(&self.zspages, number, |zspage| {
            let in_use = self.zspages.get(zspage).in_use;
            let is_almost_empty = usize::from(in_use) * 4 <= usize::from(class.objects);
            *(if is_almost_empty { &mut almost_empty } else { &mut almost_full }) += 1;
            holes += self.zspages.slots(zspage, class).holes();
        });
        Some(ClassStats {
            class: number,
            size: Bytes(class.size.into()),
            almost_full,
            almost_empty,
            obj_allocated: held.objects as usize + holes,
            obj_used: held.objects as usize,
            pages_used: PageCount(held.frames as usize),
            pages_per_zspage: class.chain.into(),
            freeable: self.freeable(number),
        })
    }
}
