//! zsmalloc: objects of like size side by side in chains of frames.
//!
//! Idea (Linux mm/zsmalloc.c): a size class fixes the size of slots and the length of its zspages,
//! chosen so that next to nothing is left over at the end. A new object goes into the fullest
//! zspage that has room; compaction moves objects from the emptiest to the fullest. An object is
//! named by a handle, whose word in the handle table says which zspage it lies in, where, and how
//! long it is; the handle is kept with the object, so that it can move.
//!
//! Unlike the kernel's, a zspage holds only the frames that its objects need. So a class that holds
//! little does not pay for long chains, and compaction ends with less than a frame to spare in each
//! class, not less than a zspage.
//!
//! Invariants:
//! 1. A zspage is on exactly one list: that of its class and its fullness. None is empty.
//! 2. Every used handle word names a live zspage of the class of its size, and a used slot of it
//!    that holds the handle; or a frame, whose owner is the handle if frames can move.
//! 3. After a failed allocation nothing has changed.

mod compact;
mod held;
mod lists;
mod object;
mod size_class;
mod slots;
#[cfg(test)]
mod tests;
mod zspage;

use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use super::handles::HandleTable;
use super::{AllocError, ClassStats, Compacted, Handle, Nobody, Pool, PoolStats, check_size};
use crate::frames::{FrameAllocator, FrameId, Migrate, Shrunk};
use held::{Held, Owner};
use lists::Lists;
use object::{Location, Place};
pub use size_class::CHAIN_MAX;
use size_class::{CLASSES, SizeClass, SizeClasses};
use zspage::{Zspage, ZspageRef, Zspages};

/// A pool of zspages.
pub struct Zsmalloc<'f> {
    classes: SizeClasses,
    lists: Lists,
    zspages: Zspages<'f>,
    handles: HandleTable<'f>,
    /// Frames that compaction took to move objects into, and has not made up for.
    owed: PageCount,
    /// Where an object that crosses a seam is put together.
    bounce: [u8; PAGE_BYTES],
}

impl<'f> Zsmalloc<'f> {
    /// An empty pool with zspages of up to `chain_max` frames, 1 to [`CHAIN_MAX`]; it holds no
    /// frame yet. Longer chains pack denser.
    ///
    /// The structure is about 14 KiB: make it in place, for example in a `static`.
    pub const fn new(frames: &'f FrameAllocator, chain_max: usize) -> Self {
        Self {
            classes: SizeClasses::new(chain_max),
            lists: Lists::EMPTY,
            zspages: Zspages::new(frames),
            handles: HandleTable::new(frames),
            owed: PageCount(0),
            bounce: [0; PAGE_BYTES],
        }
    }

    /// Room for an object of a class.
    fn take_place(&mut self, number: usize) -> Option<Place> {
        let class = self.classes.class(number);
        if class.is_huge() {
            return self.zspages.take_huge(number).map(Place::Frame);
        }
        let Self { lists, zspages, .. } = self;
        if let Some((zspage, slot)) = lists.take_slot(zspages, number, class, ZspageRef::NONE) {
            return Some(Place::Slot(zspage, slot));
        }
        let zspage = zspages.create(number, class)?;
        let Some(slot) = zspages.take_slot(zspage, class, class.objects, true) else {
            zspages.destroy(zspage, class);
            return None;
        };
        lists.insert(zspages, zspage, class);
        Some(Place::Slot(zspage, slot))
    }

    /// Takes the room of an object back, and the frames that are not needed without it.
    fn put_place(&mut self, place: Place) {
        let Self { lists, zspages, .. } = self;
        let (zspage, slot) = match place {
            Place::Frame(frame) => return zspages.put_huge(HUGE, frame),
            Place::Slot(zspage, slot) => (zspage, slot),
        };
        let class = self.classes.class(zspages.get(zspage).class.into());
        zspages.put_slot(zspage, class, slot);
        if zspages.get(zspage).in_use == 0 {
            lists.remove(zspages, zspage);
            zspages.destroy(zspage, class);
        } else {
            lists.update(zspages, zspage, class);
        }
    }

    fn locate(&self, handle: Handle) -> (Location, SizeClass) {
        let word = self.handles.get(handle).expect("the handle is allocated");
        let location = Location::from_word(word);
        (location, self.classes.class(self.number_of(location.place)))
    }

    /// The number of the class of an object.
    fn number_of(&self, place: Place) -> usize {
        match place {
            Place::Frame(_) => HUGE,
            Place::Slot(zspage, _) => self.zspages.get(zspage).class.into(),
        }
    }
}

/// The number of the huge class.
const HUGE: usize = 0;

impl Pool for Zsmalloc<'_> {
    fn alloc(&mut self, size: Bytes) -> Result<Handle, AllocError> {
        check_size(size)?;
        let number = self.classes.class_of(size);
        let place = self.take_place(number).ok_or(AllocError::NoFrame)?;
        let location = Location { place, size: size.0 as u16 };
        let Some(handle) = self.handles.insert(location.to_word()).map(|(handle, _)| handle) else {
            self.put_place(place);
            return Err(AllocError::NoFrame);
        };
        self.zspages.set_handle(place, self.classes.class(number), handle);
        Ok(handle)
    }

    fn free(&mut self, handle: Handle) {
        let word = self.handles.take(handle).expect("the handle is allocated");
        let location = Location::from_word(word);
        self.put_place(location.place);
    }

    fn size(&self, handle: Handle) -> Bytes {
        let word = self.handles.get(handle).expect("the handle is allocated");
        Location::from_word(word).bytes()
    }

    fn write(&mut self, handle: Handle, bytes: &[u8]) {
        let (location, class) = self.locate(handle);
        assert_eq!(Bytes(bytes.len()), location.bytes(), "an object is written whole");
        object::split(bytes, self.zspages.object_mut(location.place, class, bytes.len()));
    }

    fn read<R>(&mut self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> R {
        let (location, class) = self.locate(handle);
        let parts = self.zspages.object(location.place, class, location.size.into());
        if parts.1.is_empty() { f(parts.0) } else { f(object::join(&mut self.bounce, parts)) }
    }

    fn stats(&self) -> PoolStats {
        let names = self.handles.stats::<Self>();
        let metadata = names.metadata + self.zspages.descriptor_frames().bytes();
        PoolStats { frames: self.zspages.held.count(), metadata, ..names }
    }

    fn classes(&self, visit: &mut dyn FnMut(ClassStats)) {
        (0..self.classes.count()).filter_map(|number| self.class_stats(number)).for_each(visit);
    }

    fn compact(&mut self, budget: Bytes) -> Compacted {
        let before = self.zspages.held.count();
        let (moved, is_done) = self.move_objects(budget);
        // Frames are reported when what was taken for the moves is made up for.
        let due = self.zspages.held.count() + self.owed;
        self.owed = if is_done { PageCount(0) } else { due.saturating_sub(before) };
        Compacted { moved, freed: before.saturating_sub(due) }
    }

    fn shrink_frames(&mut self, online: Bytes) -> Shrunk {
        let frames = self.zspages.held.allocator;
        let is_ours = self.zspages.held.are_movable();
        let mover: &mut dyn Migrate = if is_ours { self } else { &mut Nobody };
        // SAFETY: with the claim, the movable frames of the allocator are all ours, and we are
        // borrowed mutably, so nobody else uses them; without it, nothing is moved.
        unsafe { frames.shrink_to(online, mover) }
    }

    fn check(&mut self) {
        let mut held = [Held::default(); CLASSES];
        let Self { lists, zspages, classes, .. } = self;
        lists.check(zspages, classes);
        lists.for_each(zspages, classes, |zspages, zspage, class| {
            let Zspage { class: number, in_use, .. } = *zspages.get(zspage);
            let frames = zspages.slots(zspage, class).check(in_use);
            held[usize::from(number)].add(in_use.into(), frames);
        });
        let mut objects = 0;
        self.handles.for_each(|handle, word| {
            let location = Location::from_word(word);
            let number = self.number_of(location.place);
            assert_eq!(number, self.classes.class_of(location.bytes()), "{handle:?} in its class");
            let class = self.classes.class(number);
            let known = self.zspages.handle_of(location.place, class);
            assert!(known.is_none_or(|known| known == handle), "{handle:?} is not {known:?}");
            if class.is_huge() {
                held[number].add(1, 1);
            }
            objects += 1;
        });
        // Every object knows its own handle, so no two words name the same one.
        assert_eq!(held, self.zspages.held.classes, "objects and frames of the classes");
        let all = held.iter().fold(Held::default(), |mut all, held| {
            all.add(held.objects, held.frames);
            all
        });
        assert_eq!(all.objects as usize, objects, "objects without a handle");
        assert_eq!(PageCount(all.frames as usize), self.zspages.held.count(), "frames held");
        self.handles.check();
        self.zspages.check_descriptors();
    }
}

impl Migrate for Zsmalloc<'_> {
    unsafe fn migrate(&mut self, from: FrameId, to: FrameId, owner: u32, index: u8) -> bool {
        match Owner::decode(owner, index) {
            Owner::Zspage(zspage, index) => {
                let class = self.classes.class(self.zspages.get(zspage).class.into());
                // SAFETY: the zspage became the frame's owner when it took it, and lives as long as
                // it has it; `to` is handed out to us.
                unsafe { self.zspages.move_frame((zspage, index), class, (from, to)) }
            }
            Owner::Huge(handle) => {
                let Some(word) = self.handles.get(handle) else { return false };
                let location = Location::from_word(word);
                if location.place != Place::Frame(from) {
                    return false;
                }
                // SAFETY: `from` is the object's; `to` is handed out to us.
                unsafe { self.zspages.held.replace(from, to, Owner::Huge(handle)) };
                let moved = Location { place: Place::Frame(to), ..location };
                self.handles.set(handle, moved.to_word());
                true
            }
        }
    }
}

impl Drop for Zsmalloc<'_> {
    fn drop(&mut self) {
        let Self { lists, zspages, classes, handles, .. } = self;
        handles.for_each(|_, word| {
            if let Place::Frame(frame) = Location::from_word(word).place {
                zspages.put_huge(HUGE, frame);
            }
        });
        lists.for_each(zspages, classes, |zspages, zspage, class| zspages.destroy(zspage, class));
    }
}
