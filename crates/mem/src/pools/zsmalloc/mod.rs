//! zsmalloc: objects of like size side by side in chains of frames.
//!
//! Idea (Linux mm/zsmalloc.c): a size class fixes the object size and the length of its zspages,
//! chosen so that next to nothing is left over at the end. A new object goes into the fullest
//! zspage that has room; an empty zspage gives its frames back at once. An object is named by a
//! handle, whose word in the handle table says which zspage it lies in, where, and how long it is.
//! Unlike the kernel's, objects carry no copy of their handle.
//!
//! Invariants:
//! 1. A zspage is on exactly one list: that of its class and its fullness. None is empty.
//! 2. Every used handle word names a live zspage of the class of its size, and an object that is
//!    out; no two words name the same.
//! 3. After a failed allocation nothing has changed.

mod size_class;
mod zspage;

use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use super::handles::HandleTable;
use super::{AllocError, Handle, OBJECT_MAX, Pool, PoolStats};
use crate::frames::{FrameAllocator, FrameId, Migrate, Shrunk};
pub use size_class::CHAIN_MAX;
use size_class::{CLASSES, SizeClass, SizeClasses};
use zspage::{ZspageRef, Zspages};

/// Groups of fullness: sevenths, and the full ones. The kernel has twelve.
const GROUPS: usize = 8;
const FULL: usize = GROUPS - 1;

/// Where an object lies, as kept in its handle word. The low 16 bits are never zero.
#[derive(Clone, Copy)]
struct Location {
    zspage: ZspageRef,
    object: u16,
    /// The size asked for, 1 to 4096.
    size: u16,
}

impl Location {
    fn to_word(self) -> u64 {
        u64::from(self.zspage.to_word()) << 32 | u64::from(self.object) << 16 | u64::from(self.size)
    }

    fn from_word(word: u64) -> Self {
        let zspage = ZspageRef::from_word((word >> 32) as u32);
        Self { zspage, object: (word >> 16) as u16, size: word as u16 }
    }
}

/// A pool of zspages.
pub struct Zsmalloc<'f> {
    classes: SizeClasses,
    /// First zspage of each class and group of fullness.
    lists: [[ZspageRef; GROUPS]; CLASSES],
    zspages: Zspages<'f>,
    handles: HandleTable<'f>,
    objects: usize,
    bytes_stored: Bytes,
    /// Where an object that crosses a seam is put together to be read.
    bounce: [u8; PAGE_BYTES],
}

impl<'f> Zsmalloc<'f> {
    /// An empty pool with zspages of up to `chain_max` frames, 1 to [`CHAIN_MAX`]; it holds no
    /// frame yet. Longer chains pack denser and keep more frames open per class.
    ///
    /// The structure is about 12 KiB: make it in place, for example in a `static`.
    pub const fn new(frames: &'f FrameAllocator, chain_max: usize) -> Self {
        Self {
            classes: SizeClasses::new(chain_max),
            lists: [[ZspageRef::NONE; GROUPS]; CLASSES],
            zspages: Zspages::new(frames),
            handles: HandleTable::new(frames),
            objects: 0,
            bytes_stored: Bytes(0),
            bounce: [0; PAGE_BYTES],
        }
    }

    /// Takes frames offline until at most `online` bytes are, by moving the pool's objects out of
    /// their blocks: [`FrameAllocator::shrink_to`]. Of pools on one allocator only the first moves.
    pub fn shrink_frames(&mut self, online: Bytes) -> Shrunk {
        let frames = self.zspages.frames();
        let mover: &mut dyn Migrate = if self.zspages.are_movable() { self } else { &mut Nobody };
        // SAFETY: with the claim, the movable frames of the allocator are all ours, and we are
        // borrowed mutably, so nobody else uses them; without it, nothing is moved.
        unsafe { frames.shrink_to(online, mover) }
    }

    /// Walks all structures. Panics when an invariant is broken; for tests.
    pub fn check(&mut self) {
        self.check_lists();
        let mut frames = 0;
        self.for_each_zspage(|zspages, zspage, class| {
            zspages.get_mut(zspage).seen = (0, 0);
            frames += usize::from(class.chain);
        });
        assert_eq!(PageCount(frames), self.zspages.frames_held(), "frames in zspages");
        let (mut objects, mut bytes) = (0, 0);
        let Self { handles, zspages, classes, .. } = self;
        handles.for_each(|handle, word| {
            let Location { zspage, object, size } = Location::from_word(word);
            let number = usize::from(zspages.get(zspage).class);
            let size = Bytes(size.into());
            assert_eq!(number, classes.class_of(size), "{handle:?} lies in the wrong class");
            let head = zspages.get_mut(zspage);
            head.seen = (head.seen.0 + 1, head.seen.1 + u32::from(object));
            (objects, bytes) = (objects + 1, bytes + size.0);
        });
        assert_eq!((objects, Bytes(bytes)), (self.objects, self.bytes_stored), "objects stored");
        // Two words with the same object, or one with a free object, would spoil count or sum.
        self.for_each_zspage(|zspages, zspage, class| {
            let (free_sum, sum) = zspages.check_chain(zspage, class);
            let head = zspages.get(zspage);
            assert_eq!(head.seen, (head.in_use, sum - free_sum), "handles and objects differ");
        });
        self.handles.check();
        self.zspages.check_descriptors();
    }

    /// Calls `f` with every zspage; it may destroy it.
    fn for_each_zspage(&mut self, mut f: impl FnMut(&mut Zspages<'f>, ZspageRef, SizeClass)) {
        for (number, groups) in self.lists[..self.classes.count()].iter().enumerate() {
            let class = self.classes.class(number);
            for list in groups {
                let mut next = *list;
                while next.is_some() {
                    let zspage = next;
                    next = self.zspages.get(zspage).next;
                    f(&mut self.zspages, zspage, class);
                }
            }
        }
    }

    /// Checks that all zspages are on the lists they belong on, and the links.
    fn check_lists(&self) {
        for (number, groups) in self.lists.iter().enumerate() {
            for (group, list) in groups.iter().enumerate() {
                let (mut zspage, mut prev) = (*list, ZspageRef::NONE);
                while zspage.is_some() {
                    let head = self.zspages.get(zspage);
                    assert_eq!(head.prev, prev, "broken list");
                    assert_eq!((head.class.into(), head.group.into()), (number, group));
                    let class = self.classes.class(number);
                    assert_eq!(group_of(head.in_use, class), group, "on the wrong list");
                    (prev, zspage) = (zspage, head.next);
                }
            }
        }
    }

    /// A zspage of the class with room: the fullest there is, else a new one, on its list.
    fn zspage_with_room(&mut self, number: usize) -> Option<ZspageRef> {
        let lists = &self.lists[number][..FULL];
        if let Some(zspage) = lists.iter().rev().find(|zspage| zspage.is_some()) {
            return Some(*zspage);
        }
        let zspage = self.zspages.create(number, self.classes.class(number))?;
        self.list(zspage, number, 0);
        Some(zspage)
    }

    /// Takes an object back, and its zspage's frames with the last one.
    fn put_object(&mut self, zspage: ZspageRef, object: u16) {
        let number = usize::from(self.zspages.get(zspage).class);
        let class = self.classes.class(number);
        self.zspages.put_object(zspage, class, object);
        if self.zspages.get(zspage).in_use == 0 {
            self.unlist(zspage);
            self.zspages.destroy(zspage, class);
        } else {
            self.relist(zspage, class);
        }
    }

    /// Moves a zspage to the list of its fullness.
    fn relist(&mut self, zspage: ZspageRef, class: SizeClass) {
        let head = self.zspages.get(zspage);
        let group = group_of(head.in_use, class);
        if group != usize::from(head.group) {
            let number = usize::from(head.class);
            self.unlist(zspage);
            self.list(zspage, number, group);
        }
    }

    fn list(&mut self, zspage: ZspageRef, number: usize, group: usize) {
        let next = core::mem::replace(&mut self.lists[number][group], zspage);
        if next.is_some() {
            self.zspages.get_mut(next).prev = zspage;
        }
        let head = self.zspages.get_mut(zspage);
        (head.next, head.prev, head.group) = (next, ZspageRef::NONE, group as u8);
    }

    fn unlist(&mut self, zspage: ZspageRef) {
        let head = self.zspages.get(zspage);
        let (next, prev) = (head.next, head.prev);
        let (number, group) = (usize::from(head.class), usize::from(head.group));
        if next.is_some() {
            self.zspages.get_mut(next).prev = prev;
        }
        if prev.is_some() {
            self.zspages.get_mut(prev).next = next;
        } else {
            self.lists[number][group] = next;
        }
    }

    fn locate(&self, handle: Handle) -> (Location, SizeClass) {
        let word = self.handles.get(handle).expect("the handle is allocated");
        let location = Location::from_word(word);
        let number = self.zspages.get(location.zspage).class;
        (location, self.classes.class(number.into()))
    }
}

/// The group of a zspage with `in_use` objects out.
fn group_of(in_use: u16, class: SizeClass) -> usize {
    usize::from(in_use) * FULL / usize::from(class.objects)
}

impl Pool for Zsmalloc<'_> {
    fn alloc(&mut self, size: Bytes) -> Result<Handle, AllocError> {
        if size.0 == 0 || size > OBJECT_MAX {
            return Err(AllocError::BadSize { size });
        }
        let number = self.classes.class_of(size);
        let class = self.classes.class(number);
        let zspage = self.zspage_with_room(number).ok_or(AllocError::NoFrame)?;
        let object = self.zspages.take_object(zspage, class);
        let location = Location { zspage, object, size: size.0 as u16 };
        let Some(handle) = self.handles.insert(location.to_word()) else {
            self.put_object(zspage, object);
            return Err(AllocError::NoFrame);
        };
        self.relist(zspage, class);
        self.objects += 1;
        self.bytes_stored += size;
        Ok(handle)
    }

    fn free(&mut self, handle: Handle) {
        let word = self.handles.remove(handle).expect("the handle is allocated");
        let location = Location::from_word(word);
        self.put_object(location.zspage, location.object);
        self.objects -= 1;
        self.bytes_stored -= Bytes(location.size.into());
    }

    fn size(&self, handle: Handle) -> Bytes {
        let word = self.handles.get(handle).expect("the handle is allocated");
        Bytes(Location::from_word(word).size.into())
    }

    fn write(&mut self, handle: Handle, bytes: &[u8]) {
        let (Location { zspage, object, size }, class) = self.locate(handle);
        assert_eq!(bytes.len(), usize::from(size), "an object is written whole");
        let (first, second) = self.zspages.object_mut(zspage, class, object, bytes.len());
        let (start, end) = bytes.split_at(first.len());
        first.copy_from_slice(start);
        second.copy_from_slice(end);
    }

    fn read<R>(&mut self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> R {
        let (Location { zspage, object, size }, class) = self.locate(handle);
        let (first, second) = self.zspages.object(zspage, class, object, size.into());
        if second.is_empty() {
            return f(first);
        }
        let (start, rest) = self.bounce.split_at_mut(first.len());
        start.copy_from_slice(first);
        rest[..second.len()].copy_from_slice(second);
        f(&self.bounce[..usize::from(size)])
    }

    fn stats(&self) -> PoolStats {
        let tables = self.handles.frames() + self.zspages.descriptor_frames();
        PoolStats {
            objects: self.objects,
            bytes_stored: self.bytes_stored,
            frames: self.zspages.frames_held(),
            metadata: tables.bytes() + Bytes(size_of::<Self>()),
        }
    }
}

impl Migrate for Zsmalloc<'_> {
    unsafe fn migrate(&mut self, from: FrameId, to: FrameId, owner: u32, index: u8) -> bool {
        // SAFETY: `Zspages::create` set this owner and index for a frame of a zspage, which lives
        // as long as its frames; `to` is handed out to us.
        unsafe { self.zspages.move_frame(ZspageRef::from_word(owner), index.into(), from, to) }
    }
}

/// Moves nothing, for a pool whose frames cannot be moved.
struct Nobody;

impl Migrate for Nobody {
    unsafe fn migrate(&mut self, _: FrameId, _: FrameId, _: u32, _: u8) -> bool {
        false
    }
}

impl Drop for Zsmalloc<'_> {
    fn drop(&mut self) {
        self.for_each_zspage(|zspages, zspage, class| zspages.destroy(zspage, class));
    }
}
