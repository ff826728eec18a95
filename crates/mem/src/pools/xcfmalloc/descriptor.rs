//! Descriptors: a slab object of 16 bytes for each block, and the bytes it speaks for.
//!
//! Idea: a descriptor says where its block lies, how long it is, and what comes before it in its
//! frame; the header in the frame names the descriptor. So neighbours are found from a block's
//! place, and a block is moved by changing its descriptor. The reference's takes 24 bytes on 32
//! bits and 32 on 64: naming slab objects and frames by 32 bits halves that.
//!
//! Everything that reaches the memory of a descriptor, or of a block, is here.

use core::alloc::{GlobalAlloc, Layout};
use core::mem::size_of;
use core::ptr::NonNull;
use core::slice;

use coldpress_sys::PAGE_BYTES;

use super::super::descriptor_ref::DescriptorRef;
use super::blocks::Blocks;
use crate::frames::FrameId;

/// The smallest granule a pool can be made with.
pub(super) const GRANULE_MIN: usize = 16;
/// What stands in a frame before each block: the ref of its descriptor.
pub(super) const HEADER: usize = size_of::<BlockRef>();
/// The most one block holds.
pub(super) const PAYLOAD_MAX: usize = PAGE_BYTES - HEADER;
const DESCRIPTOR: Layout = Layout::new::<Block>();

/// Names a block, by its descriptor.
pub(super) type BlockRef = DescriptorRef;

/// Where a block lies: its frame in the upper 24 bits, its first granule below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
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

/// The descriptor of a block.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) place: Place,
    /// The neighbours on the list of free blocks, or in the chain of an object.
    pub(super) next: BlockRef,
    pub(super) prev: BlockRef,
    /// Bytes of the object in the block, if it is used; granules of the block, if it is free.
    pub(super) length: u16,
    /// Granules of the block before this one in the frame; zero for the first.
    pub(super) before: u8,
    pub(super) is_free: bool,
}

const _: () = assert!(size_of::<Block>() == 16 && PAGE_BYTES / GRANULE_MIN <= 256);

impl Blocks<'_> {
    /// Granules of a frame.
    pub(super) fn granules(&self) -> usize {
        PAGE_BYTES / self.config.granularity.0
    }

    /// Granules of a block that holds so many bytes.
    pub(super) fn granules_for(&self, bytes: usize) -> usize {
        (HEADER + bytes).div_ceil(self.config.granularity.0)
    }

    /// Granules of a block.
    pub(super) fn granules_of(&self, block: &Block) -> usize {
        let length = usize::from(block.length);
        if block.is_free { length } else { self.granules_for(length) }
    }

    /// The block behind one, in the same frame.
    pub(super) fn after(&self, block: BlockRef) -> Option<BlockRef> {
        let block = self.get(block);
        let end = block.place.granule() + self.granules_of(block);
        (end < self.granules()).then(|| self.block_at(Place::new(block.place.frame(), end)))
    }

    /// The block before one, in the same frame.
    pub(super) fn before(&self, block: BlockRef) -> Option<BlockRef> {
        let Block { place, before, .. } = *self.get(block);
        let before = usize::from(before);
        (before > 0).then(|| self.block_at(Place::new(place.frame(), place.granule() - before)))
    }

    /// Makes a descriptor and names it in the frame.
    pub(super) fn add_descriptor(&mut self, block: Block) -> Option<BlockRef> {
        // SAFETY: the layout is not empty.
        let descriptor = NonNull::new(unsafe { self.slab.alloc(DESCRIPTOR) })?;
        // SAFETY: the slab object has this layout, and nobody knows it yet.
        unsafe { descriptor.cast::<Block>().write(block) };
        self.descriptors += 1;
        let name = BlockRef::of(descriptor, self.frames);
        self.set_header(block.place, name);
        Some(name)
    }

    /// Drops a descriptor that nothing names any more.
    pub(super) fn drop_descriptor(&mut self, block: BlockRef) {
        self.descriptors -= 1;
        let descriptor = self.address(block).cast::<u8>().as_ptr();
        // SAFETY: `add_descriptor` allocated it with this layout; no header, chain or list names
        // it any more.
        unsafe { self.slab.dealloc(descriptor, DESCRIPTOR) };
    }

    /// The block that begins at a place.
    pub(super) fn block_at(&self, place: Place) -> BlockRef {
        // SAFETY: a header is four aligned bytes at the start of a granule, in a frame of ours.
        unsafe { self.start(place).cast().read() }
    }

    /// Names the block that begins at a place.
    pub(super) fn set_header(&mut self, place: Place, block: BlockRef) {
        // SAFETY: as in `block_at`, and we are borrowed mutably.
        unsafe { self.start(place).cast().write(block) }
    }

    /// The part of an object that lies in this block.
    pub(super) fn bytes(&self, block: BlockRef) -> &[u8] {
        let (start, length) = self.payload(block);
        // SAFETY: the bytes are in a frame of ours (see `payload`) and change by `&mut self` only.
        unsafe { slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// As [`Blocks::bytes`], to change it.
    pub(super) fn bytes_mut(&mut self, block: BlockRef) -> &mut [u8] {
        let (start, length) = self.payload(block);
        // SAFETY: as in `bytes`, and we are borrowed mutably.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    fn payload(&self, block: BlockRef) -> (NonNull<u8>, usize) {
        let Block { place, length, is_free, .. } = *self.get(block);
        let (offset, length) = (place.granule() * self.config.granularity.0, usize::from(length));
        assert!(!is_free && offset + HEADER + length <= PAGE_BYTES, "an object's block");
        // SAFETY: a block and its header end in the frame.
        (unsafe { self.start(place).add(HEADER) }, length)
    }

    fn start(&self, place: Place) -> NonNull<u8> {
        let offset = place.granule() * self.config.granularity.0;
        assert!(offset < PAGE_BYTES);
        // SAFETY: the offset is inside the frame.
        unsafe { self.frames.address(FrameId::from_index(place.frame())).add(offset) }
    }

    /// The descriptor of a block.
    pub(super) fn get(&self, block: BlockRef) -> &Block {
        // SAFETY: the ref names a live descriptor (invariant 3); it changes by `&mut self` only.
        unsafe { self.address(block).as_ref() }
    }

    /// The descriptor of a block, to change it.
    pub(super) fn get_mut(&mut self, block: BlockRef) -> &mut Block {
        // SAFETY: as in `get`, and we are borrowed mutably.
        unsafe { self.address(block).as_mut() }
    }

    fn address(&self, block: BlockRef) -> NonNull<Block> {
        block.address(self.frames).cast()
    }
}
