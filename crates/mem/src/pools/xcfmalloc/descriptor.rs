//! Descriptors: a slab object of 16 bytes for each block, and the bytes of the block.
//!
//! Idea: a descriptor has the place of its block, its length, and the length of the block before it
//! in the frame; the header in the frame names the descriptor. So neighbours are found from a
//! block's place, and changing its descriptor moves a block. The descriptor in xcfmalloc's mail of
//! 2011 takes 24 bytes on 32 bits and 32 on 64: naming slab objects and frames by 32 bits halves
//! that.
//!
//! All code that finds the memory of a descriptor, or of a block, is here; `blocks` changes
//! descriptors and headers.

use core::cell::Cell;
use core::mem::size_of;
use core::ptr::NonNull;
use core::slice;

use coldpress_sys::{Bytes, PAGE_BYTES};

use super::super::bounce::Bounce;
use super::super::descriptor_ref::DescriptorRef;
use super::super::handle::Name;
use crate::frames::{FrameAllocator, FrameId};

/// The smallest granule that a pool can be made with.
pub(super) const GRANULE_MIN: usize = 16;
/// Bytes before each block in its frame: the ref of its descriptor.
pub(super) const HEADER: usize = size_of::<BlockRef>();
/// The maximum bytes that one block holds.
pub(super) const PAYLOAD_MAX: usize = PAGE_BYTES - HEADER;
/// Bytes of a cache line, and the number of lines that are prefetched.
const LINE: usize = 64;
const LINES_AHEAD: usize = 4;

/// The name of a block: the ref of its descriptor.
pub(super) type BlockRef = DescriptorRef;

/// The place of a block: its frame in the upper 24 bits, its first granule below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockPlace(u32);

impl BlockPlace {
    pub(super) fn new(frame: u32, granule: usize) -> Self {
        Self(frame << 8 | granule as u32)
    }

    pub(super) fn frame(self) -> u32 {
        self.0 >> 8
    }

    pub(super) fn granule(self) -> usize {
        (self.0 & 0xff) as usize
    }
}

/// The use of a block.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Free,
    /// The block holds the beginning of an object.
    First,
    /// The block holds a later part of an object.
    Later,
}

/// The descriptor of a block. Readers of an object look at its blocks without the lock, but not at
/// `before`: everything else changes only for a block whose object the changing thread has pinned,
/// or that has none.
#[repr(C)]
#[derive(Clone)]
pub(super) struct Block {
    pub(super) place: BlockPlace,
    /// The neighbours on the list of free blocks, or in the chain of an object.
    pub(super) next: BlockRef,
    /// In the first block of an object, the object's name.
    pub(super) prev: BlockRef,
    /// Bytes of the object in the block, if it is used; granules of the block, if it is free.
    pub(super) length: u16,
    /// Granules of the block before this one in the frame; zero for the first.
    pub(super) before: Cell<u8>,
    pub(super) role: Role,
}

impl Block {
    pub(super) fn is_free(&self) -> bool {
        self.role == Role::Free
    }

    /// Returns the name of the object that begins here.
    pub(super) fn name(&self) -> Name {
        assert_eq!(self.role, Role::First, "the first block knows the name");
        Name(self.prev.to_word())
    }
}

const _: () = assert!(size_of::<Block>() == 16 && PAGE_BYTES / GRANULE_MIN <= 256);

/// The memory of blocks and descriptors.
#[derive(Clone, Copy)]
pub(super) struct Space<'f> {
    pub(super) frames: &'f FrameAllocator,
    pub(super) granularity: Bytes,
}

impl Space<'_> {
    /// Returns the descriptor of a block.
    pub(super) fn get(&self, block: BlockRef) -> &Block {
        // SAFETY: the ref names a live descriptor (invariant 3 of `blocks`). Its cell is used under
        // the lock of the blocks; the rest does not change while another thread may look at it.
        unsafe { block.address(self.frames).cast().as_ref() }
    }

    /// Copies an object to the end of `bounce`. Each block is prefetched before the one ahead of it
    /// is copied: it lies elsewhere, and so the processor waits for both at once.
    ///
    /// # Safety
    /// `first` is the first block of an object that the caller has pinned.
    pub(super) unsafe fn gather(&self, first: BlockRef, bounce: &mut Bounce) {
        // SAFETY: the caller has the object pinned, with all blocks of the chain.
        let mut pieces = self.chain(first).map(|block| unsafe { self.bytes(block) }).peekable();
        while let Some(piece) = pieces.next() {
            if let Some(next) = pieces.peek() {
                prefetch(next);
            }
            bounce.push(piece);
        }
    }

    /// Fills an object of this size.
    ///
    /// # Safety
    /// As for [`Space::gather`].
    pub(super) unsafe fn scatter(&self, first: BlockRef, mut bytes: &[u8]) {
        for block in self.chain(first) {
            // SAFETY: the caller has the object pinned.
            let part = unsafe { self.bytes(block) };
            let here = bytes.split_off(..part.len()).expect("an object is as long as its blocks");
            part.copy_from_slice(here);
        }
    }

    /// Returns a block and those behind it in its chain, or on its list.
    pub(super) fn chain(&self, first: BlockRef) -> impl Iterator<Item = BlockRef> {
        core::iter::successors(Some(first), |block| {
            Some(self.get(*block).next).filter(|next| next.is_some())
        })
    }

    /// Returns the part of an object that lies in this block.
    ///
    /// # Safety
    /// The caller has the object pinned for as long as the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the pin is what makes the bytes the caller's")]
    pub(super) unsafe fn bytes(&self, block: BlockRef) -> &mut [u8] {
        let block = self.get(block);
        let (offset, length) = (self.offset(block.place), usize::from(block.length));
        assert!(!block.is_free() && offset + HEADER + length <= PAGE_BYTES, "an object's block");
        // SAFETY: a block and its header end in the frame. Only the thread that has the object
        // pinned reaches its bytes.
        unsafe { slice::from_raw_parts_mut(self.start(block.place).add(HEADER).as_ptr(), length) }
    }

    fn offset(&self, place: BlockPlace) -> usize {
        place.granule() * self.granularity.0
    }

    pub(super) fn start(&self, place: BlockPlace) -> NonNull<u8> {
        let offset = self.offset(place);
        assert!(offset < PAGE_BYTES);
        // SAFETY: the offset is inside the frame.
        unsafe { self.frames.address(FrameId::from_index(place.frame())).add(offset) }
    }
}

/// The places of blocks. Only the holder of the lock of the blocks asks for them, because headers
/// and `before` change under it.
impl Space<'_> {
    /// Returns the granules of a frame.
    pub(super) fn granules(&self) -> usize {
        PAGE_BYTES / self.granularity.0
    }

    /// Returns the granules of a block that holds this number of bytes.
    pub(super) fn granules_for(&self, bytes: usize) -> usize {
        (HEADER + bytes).div_ceil(self.granularity.0)
    }

    /// Returns the granules of a block.
    pub(super) fn granules_of(&self, block: &Block) -> usize {
        let length = usize::from(block.length);
        if block.is_free() { length } else { self.granules_for(length) }
    }

    /// Returns how many bytes fit into a free block.
    pub(super) fn capacity(&self, block: BlockRef) -> usize {
        usize::from(self.get(block).length) * self.granularity.0 - HEADER
    }

    /// Returns the block behind `block` in the same frame.
    pub(super) fn after(&self, block: BlockRef) -> Option<BlockRef> {
        let block = self.get(block);
        let end = block.place.granule() + self.granules_of(block);
        (end < self.granules()).then(|| self.block_at(BlockPlace::new(block.place.frame(), end)))
    }

    /// Returns the block before `block` in the same frame.
    pub(super) fn before(&self, block: BlockRef) -> Option<BlockRef> {
        let Block { place, before, .. } = self.get(block);
        let before = usize::from(before.get());
        (before > 0)
            .then(|| self.block_at(BlockPlace::new(place.frame(), place.granule() - before)))
    }

    /// Returns the block that begins at a place.
    pub(super) fn block_at(&self, place: BlockPlace) -> BlockRef {
        // SAFETY: a header is four aligned bytes at the start of a granule, in a frame of ours. It
        // changes under the lock alone, which the caller has.
        unsafe { self.start(place).cast().read() }
    }

    /// Returns the first block of the object that a block is part of.
    pub(super) fn first_of(&self, mut block: BlockRef) -> BlockRef {
        while self.get(block).role != Role::First {
            block = self.get(block).prev;
        }
        block
    }

    /// Returns the blocks of a frame, in order.
    pub(super) fn blocks_of(&self, frame: u32) -> impl Iterator<Item = BlockRef> {
        core::iter::successors(Some(self.block_at(BlockPlace::new(frame, 0))), |block| {
            self.after(*block)
        })
    }

    /// Returns the granules of a frame that are in use.
    pub(super) fn used_in(&self, frame: u32) -> usize {
        let blocks = self.blocks_of(frame).map(|block| self.get(block));
        blocks.filter(|block| !block.is_free()).map(|block| self.granules_of(block)).sum()
    }

    pub(super) fn address(&self, block: BlockRef) -> NonNull<Block> {
        block.address(self.frames).cast()
    }
}

/// Prefetches the first cache lines of some bytes; the processor continues by itself when they are
/// read.
fn prefetch(bytes: &[u8]) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in bytes.chunks(LINE).take(LINES_AHEAD) {
        // SAFETY: a prefetch touches nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}
