//! zsmalloc: objects of like size side by side in chains of frames.
//!
//! Idea (Linux mm/zsmalloc.c): a size class fixes the size of slots and the length of its zspages,
//! chosen so that next to nothing is left over at the end. A new object goes into the fullest
//! zspage that has room; compaction moves objects from the emptiest to the fullest. A handle names
//! an object; the handle's word in the handle table has its zspage, its slot and its length. The
//! object's name is kept with the object, so that it can move.
//!
//! Unlike in zsmalloc of Linux, a zspage holds only the frames that its objects need. So a class
//! that holds little does not pay for long chains, and compaction ends with less than a frame to
//! spare in each class, not less than a zspage.
//!
//! A class has a lock of its own. Readers take none: a pinned word leads to a zspage that stays, in
//! frames that stay.
//!
//! Invariants, of a class while no thread has its lock:
//! 1. A zspage is on exactly one list: the one of its class and its fullness. None is empty.
//! 2. Every used handle word names a live zspage of the class of its size, or of the base of that
//!    class, and a used slot of it that holds the name; or a frame, whose owner is the name if
//!    frames can move.
//! 3. After a failed allocation nothing has changed, except that a class may begin.

mod compact;
mod fullness;
mod held;
mod lists;
mod object;
mod size_class;
mod slots;
#[cfg(test)]
mod tests;
mod zspage;

use coldpress_sys::sync::{SpinGuard, SpinLock};
use coldpress_sys::{Bytes, PageCount};

use super::bounce::Bounce;
use super::handles::HandleTable;
use super::pin::Pinned;
use super::{
    AllocError, ClassStats, Compacted, Handle, Pool, PoolStats, UnknownHandle, check_size,
};
use crate::frames::{FrameAllocator, FrameId, Migrate, Shrunk};
use held::Owner;
use lists::{ClassCounts, Lists, ZspageRef};
use object::{Location, ObjectPlace};
pub(super) use size_class::CHAIN_MAX;
use size_class::{BEGINNERS, CLASSES, SizeClasses};
use zspage::{Locked, Zspages};

/// A pool of zspages.
pub struct Zsmalloc<'f> {
    sizes: SizeClasses,
    classes: [SpinLock<Lists>; CLASSES],
    zspages: Zspages<'f>,
    handles: HandleTable<'f>,
    /// Frames that compaction took to move objects into, and has not yet made up for. A thread that
    /// compacts has the lock.
    owed: SpinLock<PageCount>,
}

impl<'f> Zsmalloc<'f> {
    /// Makes an empty pool with zspages of up to `chain_max` frames, 1 to 16; it holds
    /// no frame yet. Longer chains pack denser.
    ///
    /// The structure is about 12 KiB: make it in place, for example in a `static`.
    pub const fn new(frames: &'f FrameAllocator, chain_max: usize) -> Self {
        Self {
            sizes: SizeClasses::new(chain_max),
            classes: [const { SpinLock::new(Lists::EMPTY) }; CLASSES],
            zspages: Zspages::new(frames),
            handles: HandleTable::new(frames),
            owed: SpinLock::new(PageCount(0)),
        }
    }

    /// Locks the class of a number.
    fn lock(&self, number: usize) -> Locked<'_, 'f> {
        self.locked(number, self.classes[number].lock())
    }

    fn locked<'a>(&'a self, number: usize, lists: SpinGuard<'a, Lists>) -> Locked<'a, 'f> {
        Locked { zspages: &self.zspages, lists, number, class: self.sizes.class(number) }
    }

    /// Locks the class that a new object goes to.
    fn lock_for(&self, size: Bytes) -> Locked<'_, 'f> {
        let number = self.sizes.class_of(size);
        let mut class = self.lock(number);
        match self.sizes.base_of(number) {
            Some(base) if class.lists.given_away < BEGINNERS => {
                class.lists.given_away += 1;
                drop(class);
                self.lock(base)
            }
            _ => class,
        }
    }

    /// Returns the number of the class of an object, which the caller has pinned.
    fn class_at(&self, place: ObjectPlace) -> usize {
        match place {
            ObjectPlace::Slot(zspage, _) => self.zspages.class_of(zspage),
            ObjectPlace::Frame(_) => HUGE,
        }
    }

    /// Waits until no other thread uses an object, pins it, and returns its location.
    fn pin(&self, handle: Handle) -> Result<(Pinned<'_>, Location), UnknownHandle> {
        let pinned = self.handles.pin(handle)?;
        let location = Location::from_word(pinned.word());
        Ok((pinned, location))
    }

    /// Returns the bytes of an object: the part in its first frame, and the part in the next.
    ///
    /// # Safety
    /// The caller has the object pinned for as long as the slices live.
    #[expect(clippy::mut_from_ref, reason = "the pin is what makes the bytes the caller's")]
    unsafe fn object(&self, location: Location) -> (&mut [u8], &mut [u8]) {
        let class = self.sizes.class(self.class_at(location.place));
        // SAFETY: the caller promises that the object is pinned.
        unsafe { self.zspages.object(location.place, class, location.size.into()) }
    }
}

impl Locked<'_, '_> {
    /// Takes room for an object of the class.
    fn take_place(&mut self) -> Option<ObjectPlace> {
        if self.class.is_huge() {
            return self.take_huge().map(ObjectPlace::Frame);
        }
        if let Some((zspage, slot)) = self.take_listed_slot(ZspageRef::NONE) {
            return Some(ObjectPlace::Slot(zspage, slot));
        }
        let zspage = self.create()?;
        let Some(slot) = self.take_slot(zspage, self.class.objects, true) else {
            self.destroy(zspage);
            return None;
        };
        self.list(zspage);
        Some(ObjectPlace::Slot(zspage, slot))
    }

    /// Gives back the room of an object, and the frames that are not needed without it.
    fn put_place(&mut self, place: ObjectPlace) {
        let (zspage, slot) = match place {
            ObjectPlace::Frame(frame) => return self.put_huge(frame),
            ObjectPlace::Slot(zspage, slot) => (zspage, slot),
        };
        self.put_slot(zspage, slot);
        if self.get(zspage).in_use.get() == 0 {
            self.unlist(zspage);
            self.destroy(zspage);
        } else {
            self.relist(zspage);
        }
    }
}

/// The number of the huge class.
const HUGE: usize = 0;

impl Pool for Zsmalloc<'_> {
    fn alloc(&self, size: Bytes) -> Result<Handle, AllocError> {
        check_size(size)?;
        let mut class = self.lock_for(size);
        let place = class.take_place().ok_or(AllocError::NoFrame)?;
        let location = Location { place, size: size.0 as u16 };
        let Some((handle, _pinned)) = self.handles.insert(location.to_word()) else {
            class.put_place(place);
            return Err(AllocError::NoFrame);
        };
        class.set_name(place, handle.name);
        Ok(handle)
    }

    fn free(&self, handle: Handle) -> Result<(), UnknownHandle> {
        let (pinned, location) = self.pin(handle)?;
        let mut class = self.lock(self.class_at(location.place));
        self.handles.remove(handle.name, pinned);
        class.put_place(location.place);
        Ok(())
    }

    fn size(&self, handle: Handle) -> Result<Bytes, UnknownHandle> {
        let word = self.handles.get(handle)?;
        Ok(Location::from_word(word).bytes())
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle> {
        let (_pinned, location) = self.pin(handle)?;
        assert_eq!(Bytes(bytes.len()), location.bytes(), "an object is written whole");
        // SAFETY: the object is pinned until we return.
        object::fill(unsafe { self.object(location) }, bytes);
        Ok(())
    }

    fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle> {
        let (_pinned, location) = self.pin(handle)?;
        // SAFETY: the object is pinned until we return.
        let (first, second) = unsafe { self.object(location) };
        if second.is_empty() {
            return Ok(f(first));
        }
        let mut bounce = Bounce::new();
        bounce.push(first);
        bounce.push(second);
        Ok(f(bounce.bytes()))
    }

    fn stats(&self) -> PoolStats {
        let names = self.handles.stats::<Self>();
        let metadata = names.metadata + self.zspages.descriptor_frames().bytes();
        PoolStats { frames: self.frames(), metadata, ..names }
    }

    #[inline]
    fn frames(&self) -> PageCount {
        self.zspages.held.count()
    }

    fn classes(&self, visit: &mut dyn FnMut(ClassStats)) {
        (0..self.sizes.count()).filter_map(|number| self.lock(number).stats()).for_each(visit);
    }

    /// Moves objects as the trait says; does nothing while another thread compacts.
    fn compact(&self, budget: Bytes) -> Compacted {
        let Some(mut owed) = self.owed.try_lock() else { return Compacted::default() };
        let moves = self.move_objects(budget);
        // Freed frames are reported only once the frames taken for the moves are made up for.
        let due = owed.0 as isize + moves.frames;
        *owed = PageCount(if moves.is_all { 0 } else { due.max(0) as usize });
        Compacted { moved: moves.bytes, freed: PageCount((-due).max(0) as usize) }
    }

    fn shrink_frames(&self, online: Bytes) -> Shrunk {
        let mut mover = self;
        // SAFETY: `migrate` moves for every owner while we have the claim, and nothing without it.
        unsafe { self.zspages.held.allocator.shrink_to(online, &mut mover) }
    }

    fn give_up_moves(&mut self) {
        self.zspages.held.give_up_moves();
    }

    fn check(&mut self) {
        let mut counts = [ClassCounts::default(); CLASSES];
        let (mut all, mut objects) = (ClassCounts::default(), 0);
        for (number, counts) in counts[..self.sizes.count()].iter_mut().enumerate() {
            let mut class = self.lock(number);
            class.check_lists();
            class.for_each(|class, zspage| {
                let in_use = class.get(zspage).in_use.get();
                counts.add(in_use.into(), class.slots(zspage).check(in_use));
            });
        }
        self.handles.for_each(|name, word| {
            let location = Location::from_word(word);
            let (own, number) =
                (self.sizes.class_of(location.bytes()), self.class_at(location.place));
            assert!(number == own || Some(number) == self.sizes.base_of(own), "{location:?}");
            if number == HUGE {
                counts[HUGE].add(1, 1);
            }
            let known = self.lock(number).name_of(location.place);
            assert!(known.is_none_or(|known| known == name), "{name:?} is not {known:?}");
            objects += 1;
        });
        for (number, counts) in counts[..self.sizes.count()].iter().enumerate() {
            assert_eq!(*counts, self.lock(number).lists.counts, "objects and frames of the class");
            all.add(counts.objects, counts.frames);
        }
        // Every object knows its own name, so no two words name the same one.
        assert_eq!(all.objects as usize, objects, "objects without a name");
        assert_eq!(PageCount(all.frames as usize), self.zspages.held.count(), "frames held");
        self.handles.check();
        self.zspages.check_descriptors();
    }
}

impl Migrate for &Zsmalloc<'_> {
    unsafe fn migrate(&mut self, from: FrameId, to: FrameId, owner: u32, index: u8) -> bool {
        let owner = Owner::decode(owner, index);
        match owner {
            Owner::Zspage(zspage, index) => {
                // The zspage lives while it has the frame, and then while we hold the lock of its
                // class. The lock is only tried: its holder may be waiting to give the frame back.
                let locked = self.zspages.held.if_owned(from, owner, || {
                    let number = self.zspages.class_of(zspage);
                    self.classes[number].try_lock().map(|lists| self.locked(number, lists))
                });
                locked.is_some_and(|mut class| {
                    // SAFETY: `to` is handed out to us.
                    unsafe { class.move_frame(&self.handles, (zspage, index), (from, to)) }
                })
            }
            Owner::Huge(name) => {
                let Some(mut pinned) = self.handles.try_pin(name) else { return false };
                let location = Location::from_word(pinned.word());
                if location.place != ObjectPlace::Frame(from) {
                    return false;
                }
                // SAFETY: `from` belongs to the object, which is pinned; `to` is handed out to us.
                unsafe { self.zspages.held.replace(from, to, owner) };
                pinned.set(Location { place: ObjectPlace::Frame(to), ..location }.to_word());
                true
            }
        }
    }
}

impl Drop for Zsmalloc<'_> {
    fn drop(&mut self) {
        let mut huge = self.lock(HUGE);
        self.handles.for_each(|_, word| {
            if let ObjectPlace::Frame(frame) = Location::from_word(word).place {
                huge.put_huge(frame);
            }
        });
        drop(huge);
        for number in 0..self.sizes.count() {
            self.lock(number).for_each(|class, zspage| class.destroy(zspage));
        }
    }
}
