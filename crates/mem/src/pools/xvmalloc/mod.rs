//! xvmalloc: each object in one block of one frame, found by size in constant time.
//!
//! Idea (N. Gupta, drivers/staging/zram/xvmalloc.c, Linux 2.6.33 to 3.3; TLSF of M. Masmano et al.
//! inside one page): free blocks are listed by size in steps of eight bytes, and a two-level bitmap
//! finds the first list whose blocks are all large enough. What a block has too much is cut off;
//! freed blocks merge with their neighbours. Objects never cross a frame, so of two that are larger
//! than half of one each takes a frame: the limit that xcfmalloc was made against. The reference
//! names an object by frame and offset, so it can never move; this is the baseline, so its objects
//! stay where they are too, and its frames are core frames.
//!
//! ```text
//! handle word -----------.
//! frame  [h| object ][h| object   ][h| free, with links  ][h| object ]
//!         h: size, start of the block before, whether this and that are free
//! ```
//!
//! Unlike the reference, an object's name is a handle, whose word says where it lies and how long
//! it is: a name that is not in use is noticed. Objects beyond 4092 bytes, which the reference
//! refuses, take a frame without a header.
//!
//! Invariants:
//! 1. Every used handle word names a block in use that holds the object, or a frame of its own; no
//!    two words name the same.
//! 2. After a failed allocation nothing has changed.

mod blocks;
#[cfg(test)]
mod tests;

use coldpress_sys::Bytes;

use super::handles::HandleTable;
use super::{
    AllocError, ClassStats, Compacted, Handle, Nobody, OBJECT_MAX, Pool, PoolStats, check_size,
};
use crate::frames::{FrameAllocator, Shrunk};
use blocks::{Blocks, PAYLOAD_MAX, Place};

/// Where an object lies, as kept in its handle word. The low 16 bits are never zero.
#[derive(Clone, Copy)]
struct Location {
    place: Place,
    /// The size asked for, 1 to 4096.
    size: u16,
}

impl Location {
    fn to_word(self) -> u64 {
        let Place { frame, offset } = self.place;
        u64::from(frame) << 32 | u64::from(offset) << 16 | u64::from(self.size)
    }

    fn from_word(word: u64) -> Self {
        let place = Place { frame: (word >> 32) as u32, offset: (word >> 16) as u16 };
        Self { place, size: word as u16 }
    }

    fn size(self) -> usize {
        self.size.into()
    }
}

/// A pool of blocks that never cross a frame.
pub struct Xvmalloc<'f> {
    blocks: Blocks<'f>,
    handles: HandleTable<'f>,
}

impl<'f> Xvmalloc<'f> {
    /// An empty pool; it holds no frame yet. The structure is about 5 KiB: make it in place.
    pub const fn new(frames: &'f FrameAllocator) -> Self {
        Self { blocks: Blocks::new(frames), handles: HandleTable::new(frames) }
    }

    fn locate(&self, handle: Handle) -> Location {
        Location::from_word(self.handles.get(handle).expect("the handle is allocated"))
    }

    /// Calls `f` with each frame that is cut into blocks, once.
    fn for_each_frame(&self, mut f: impl FnMut(u32)) {
        self.handles.for_each(|_, word| {
            let Location { place, size } = Location::from_word(word);
            if usize::from(size) > PAYLOAD_MAX {
                return;
            }
            // A frame is seen with the first object in it.
            let first = self.blocks.blocks_of(place.frame).find(|(_, header)| !header.is_free());
            if first.is_some_and(|(first, _)| first == place) {
                f(place.frame);
            }
        });
    }
}

impl Pool for Xvmalloc<'_> {
    fn alloc(&mut self, size: Bytes) -> Result<Handle, AllocError> {
        check_size(size)?;
        let place = self.blocks.take(size.0).ok_or(AllocError::NoFrame)?;
        let word = Location { place, size: size.0 as u16 }.to_word();
        let Some(handle) = self.handles.insert(word) else {
            self.blocks.give(place, size.0);
            return Err(AllocError::NoFrame);
        };
        Ok(handle)
    }

    fn free(&mut self, handle: Handle) {
        let word = self.handles.take(handle).expect("the handle is allocated");
        let location = Location::from_word(word);
        self.blocks.give(location.place, location.size());
    }

    fn size(&self, handle: Handle) -> Bytes {
        Bytes(self.locate(handle).size())
    }

    fn write(&mut self, handle: Handle, bytes: &[u8]) {
        let location = self.locate(handle);
        assert_eq!(bytes.len(), location.size(), "an object is written whole");
        self.blocks.bytes_mut(location.place, bytes.len()).copy_from_slice(bytes);
    }

    fn read<R>(&mut self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> R {
        let location = self.locate(handle);
        f(self.blocks.bytes(location.place, location.size()))
    }

    fn stats(&self) -> PoolStats {
        PoolStats { frames: self.blocks.frames_held(), ..self.handles.stats::<Self>() }
    }

    /// All objects are of one class; a free block counts as one more.
    fn classes(&self, visit: &mut dyn FnMut(ClassStats)) {
        let objects = self.stats().objects;
        if objects == 0 {
            return;
        }
        let mut class = ClassStats {
            size: OBJECT_MAX,
            obj_allocated: objects,
            obj_used: objects,
            pages_used: self.blocks.frames_held(),
            pages_per_zspage: 1,
            ..ClassStats::default()
        };
        self.for_each_frame(|frame| {
            let free = self.blocks.blocks_of(frame).filter(|(_, header)| header.is_free());
            let (mut blocks, mut bytes) = (0, 0);
            for (_, header) in free {
                (blocks, bytes) = (blocks + 1, bytes + usize::from(header.size));
            }
            class.obj_allocated += blocks;
            let nearly_empty = bytes >= PAYLOAD_MAX * 3 / 4;
            class.almost_empty += usize::from(nearly_empty);
            class.almost_full += usize::from(blocks > 0 && !nearly_empty);
        });
        visit(class);
    }

    /// Does nothing: the objects never move.
    fn compact(&mut self, _: Bytes) -> Compacted {
        Compacted::default()
    }

    fn shrink_frames(&mut self, online: Bytes) -> Shrunk {
        // SAFETY: `Nobody` moves no frame, so `shrink_to` touches only what is free.
        unsafe { self.blocks.frames().shrink_to(online, &mut Nobody) }
    }

    fn check(&mut self) {
        let (mut objects, mut frames) = (0, 0);
        self.handles.for_each(|handle, word| {
            let location = Location::from_word(word);
            objects += 1;
            if location.size() > PAYLOAD_MAX {
                frames += 1;
                return;
            }
            let header = self.blocks.header(location.place);
            let fits = usize::from(header.size) == location.size().next_multiple_of(4);
            assert!(!header.is_free() && fits, "{handle:?} lies in no block of its size");
        });
        let (mut used, mut listed) = (frames, 0);
        self.for_each_frame(|frame| {
            frames += 1;
            listed += self.blocks.check_frame(frame);
            used += self.blocks.blocks_of(frame).filter(|(_, header)| !header.is_free()).count();
        });
        assert_eq!(frames, self.blocks.frames_held().0, "frames with objects");
        assert_eq!(used, objects, "blocks and handles differ");
        assert_eq!(listed, self.blocks.check_lists(), "free blocks and lists differ");
        self.handles.check();
    }
}

impl Drop for Xvmalloc<'_> {
    fn drop(&mut self) {
        let Self { handles, blocks, .. } = self;
        handles.for_each(|_, word| {
            let location = Location::from_word(word);
            blocks.give(location.place, location.size());
        });
    }
}
