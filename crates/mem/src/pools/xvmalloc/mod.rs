//! xvmalloc: each object in one block of one frame, found by size in constant time.
//!
//! Idea (N. Gupta, drivers/staging/zram/xvmalloc.c, Linux 2.6.33 to 3.3; TLSF of M. Masmano et al.
//! inside one page): free blocks are listed by size in steps of eight bytes, and a two-level bitmap
//! finds the first list whose blocks are all large enough. The excess of a block is cut off; freed
//! blocks merge with their neighbours. Objects never cross a frame, so two objects larger than half
//! a frame take a frame each: the limit that xcfmalloc was made to remove. Linux's xvmalloc names
//! an object by frame and offset, so it can never move. This pool is the baseline, so its objects
//! stay where they are too, and its frames are core frames.
//!
//! ```text
//! handle word -----------.
//! frame  [h| object ][h| object   ][h| free, with links  ][h| object ]
//!         h: size, start of the block before, whether this and that are free
//! ```
//!
//! Unlike in Linux's xvmalloc, an object's name is a handle, whose word has the object's place and
//! size: a name that is not in use is noticed. Objects beyond 4092 bytes, which Linux's xvmalloc
//! refuses, take a frame without a header.
//!
//! Invariants:
//! 1. While no thread has the lock of the blocks, every used handle word names a block in use that
//!    holds the object, or a frame of its own; no two words name the same.
//! 2. After a failed allocation nothing has changed.

mod blocks;
#[cfg(test)]
mod tests;

use coldpress_sys::Bytes;
use coldpress_sys::sync::SpinLock;

use super::handles::HandleTable;
use super::{
    AllocError, ClassStats, Compacted, Handle, Nobody, OBJECT_MAX, Pool, PoolStats, UnknownHandle,
    check_size,
};
use crate::frames::{FrameAllocator, Shrunk};
use blocks::{BlockPlace, Blocks, PAYLOAD_MAX};

/// The place and size of an object, as kept in its handle word. The low 16 bits are never zero.
#[derive(Clone, Copy)]
struct Location {
    place: BlockPlace,
    /// The requested size, 1 to 4096.
    size: u16,
}

impl Location {
    fn to_word(self) -> u64 {
        let BlockPlace { frame, offset } = self.place;
        u64::from(frame) << 32 | u64::from(offset) << 16 | u64::from(self.size)
    }

    fn from_word(word: u64) -> Self {
        let place = BlockPlace { frame: (word >> 32) as u32, offset: (word >> 16) as u16 };
        Self { place, size: word as u16 }
    }

    fn size(self) -> usize {
        self.size.into()
    }
}

/// A pool of blocks that never cross a frame.
pub struct Xvmalloc<'f> {
    frames: &'f FrameAllocator,
    handles: HandleTable<'f>,
    blocks: SpinLock<Blocks<'f>>,
}

impl<'f> Xvmalloc<'f> {
    /// Makes an empty pool; it holds no frame yet. The structure is about 5 KiB: make it in place.
    pub const fn new(frames: &'f FrameAllocator) -> Self {
        Self {
            frames,
            handles: HandleTable::new(frames),
            blocks: SpinLock::new(Blocks::new(frames)),
        }
    }

    /// Calls `f` with the object's bytes, which no other thread uses meanwhile.
    fn with_bytes<R>(
        &self,
        handle: Handle,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, UnknownHandle> {
        let pinned = self.handles.pin(handle)?;
        let Location { place, size } = Location::from_word(pinned.word());
        // SAFETY: the word names a block of this size (invariant 1), which is pinned until `f`
        // returns.
        Ok(f(unsafe { place.bytes(self.frames, size.into()) }))
    }

    /// Calls `f` with each frame that is cut into blocks, once.
    fn for_each_frame(&self, blocks: &Blocks<'_>, mut f: impl FnMut(u32)) {
        self.handles.for_each(|_, word| {
            let Location { place, size } = Location::from_word(word);
            if usize::from(size) > PAYLOAD_MAX {
                return;
            }
            // A frame is visited with the first object in it.
            let first = blocks.blocks_of(place.frame).find(|(_, header)| !header.is_free());
            if first.is_some_and(|(first, _)| first == place) {
                f(place.frame);
            }
        });
    }
}

impl Pool for Xvmalloc<'_> {
    fn alloc(&self, size: Bytes) -> Result<Handle, AllocError> {
        check_size(size)?;
        let mut blocks = self.blocks.lock();
        let place = blocks.take(size.0).ok_or(AllocError::NoFrame)?;
        let word = Location { place, size: size.0 as u16 }.to_word();
        let Some((handle, _pinned)) = self.handles.insert(word) else {
            blocks.give(place, size.0);
            return Err(AllocError::NoFrame);
        };
        Ok(handle)
    }

    fn free(&self, handle: Handle) -> Result<(), UnknownHandle> {
        let pinned = self.handles.pin(handle)?;
        let location = Location::from_word(pinned.word());
        let mut blocks = self.blocks.lock();
        self.handles.remove(handle.name, pinned);
        blocks.give(location.place, location.size());
        Ok(())
    }

    fn size(&self, handle: Handle) -> Result<Bytes, UnknownHandle> {
        let word = self.handles.get(handle)?;
        Ok(Bytes(Location::from_word(word).size()))
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle> {
        self.with_bytes(handle, |object| {
            assert_eq!(bytes.len(), object.len(), "an object is written whole");
            object.copy_from_slice(bytes);
        })
    }

    fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle> {
        self.with_bytes(handle, |object| f(object))
    }

    fn stats(&self) -> PoolStats {
        PoolStats { frames: self.blocks.lock().frames_held(), ..self.handles.stats::<Self>() }
    }

    /// Visits one class of all objects, in which a free block counts as one more object.
    fn classes(&self, visit: &mut dyn FnMut(ClassStats)) {
        let blocks = self.blocks.lock();
        let objects = self.handles.stats::<Self>().objects;
        if objects == 0 {
            return;
        }
        let mut class = ClassStats {
            size: OBJECT_MAX,
            obj_allocated: objects,
            obj_used: objects,
            pages_used: blocks.frames_held(),
            pages_per_zspage: 1,
            ..ClassStats::default()
        };
        self.for_each_frame(&blocks, |frame| {
            let free = blocks.blocks_of(frame).filter(|(_, header)| header.is_free());
            let (mut count, mut bytes) = (0, 0);
            for (_, header) in free {
                (count, bytes) = (count + 1, bytes + usize::from(header.size));
            }
            class.obj_allocated += count;
            let nearly_empty = bytes >= PAYLOAD_MAX * 3 / 4;
            class.almost_empty += usize::from(nearly_empty);
            class.almost_full += usize::from(count > 0 && !nearly_empty);
        });
        drop(blocks);
        visit(class);
    }

    /// Does nothing: the objects never move.
    fn compact(&self, _: Bytes) -> Compacted {
        Compacted::default()
    }

    fn shrink_frames(&self, online: Bytes) -> Shrunk {
        // SAFETY: `Nobody` moves no frame, so `shrink_to` touches free frames only.
        unsafe { self.frames.shrink_to(online, &mut Nobody) }
    }

    fn check(&mut self) {
        let mut blocks = self.blocks.lock();
        let (mut objects, mut frames) = (0, 0);
        self.handles.for_each(|name, word| {
            let location = Location::from_word(word);
            objects += 1;
            if location.size() > PAYLOAD_MAX {
                frames += 1;
                return;
            }
            let header = blocks.header(location.place);
            let fits = usize::from(header.size) == location.size().next_multiple_of(4);
            assert!(!header.is_free() && fits, "{name:?} lies in no block of its size");
        });
        let (mut used, mut listed) = (frames, 0);
        self.for_each_frame(&blocks, |frame| {
            frames += 1;
            listed += blocks.check_frame(frame);
            used += blocks.blocks_of(frame).filter(|(_, header)| !header.is_free()).count();
        });
        assert_eq!(frames, blocks.frames_held().0, "frames with objects");
        assert_eq!(used, objects, "blocks and names differ");
        assert_eq!(listed, blocks.check_lists(), "free blocks and lists differ");
        drop(blocks);
        self.handles.check();
    }
}

impl Drop for Xvmalloc<'_> {
    fn drop(&mut self) {
        let Self { handles, blocks, .. } = self;
        handles.for_each(|_, word| {
            let location = Location::from_word(word);
            blocks.get_mut().give(location.place, location.size());
        });
    }
}
