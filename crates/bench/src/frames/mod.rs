//! Whole huge pages: traces of frame allocations, replayed on one zone and on two.
//!
//! [`trace`] reads them from files, [`generate`] makes traces by a model, [`replay`]
//! drives several of them at once and asks for blocks of 2 MiB, and `naive` is the simplest
//! allocator to compare with.

pub(crate) mod generate;
#[cfg(test)]
mod naive;
pub(crate) mod replay;
pub(crate) mod trace;

use coldpress_sys::page::FRAMES_PER_BLOCK;

pub(crate) use coldpress_mem::frames::Mobility;

/// The number of frames in a huge page.
pub(crate) const BLOCK_FRAMES: usize = FRAMES_PER_BLOCK;
/// The order of a huge page.
pub(crate) const BLOCK_ORDER: u8 = BLOCK_FRAMES.trailing_zeros() as u8;

/// A function that moves the contents of a frame and makes its owner use the other frame: from, to,
/// the owner's number. Returns false when the frame cannot be moved now.
pub(crate) type Migrate<'a> = dyn FnMut(u32, u32, u32) -> bool + 'a;

/// An allocator of frames, as a replay sees it. Frames have numbers; a chunk of `1 << order` frames
/// has the number of its first.
pub(crate) trait FrameSource: Sync {
    /// Allocates a chunk of frames; `None` when there is none.
    fn alloc(&self, mobility: Mobility, order: u8) -> Option<u32>;

    /// Takes a chunk back.
    ///
    /// # Safety
    /// The chunk came from this source's [`FrameSource::alloc`] with this order and was not freed
    /// since.
    unsafe fn free(&self, chunk: u32, order: u8);

    /// Sets the owner of a frame.
    ///
    /// # Safety
    /// The frame is a single, easily reclaimed frame of this source that was not freed since, and
    /// the owner can use another frame instead.
    unsafe fn set_owner(&self, frame: u32, owner: u32);

    /// Takes back the free frames that are kept for single processors.
    fn drain(&self);

    /// Empties blocks by moving frames that have an owner, as many blocks as it can, and leaves
    /// them free.
    ///
    /// # Safety
    /// `migrate` knows every owner that was set, and no thread uses or frees such frames meanwhile.
    unsafe fn compact(&self, migrate: &mut Migrate<'_>);

    /// Returns the number of frames that are not handed out.
    fn free_frames(&self) -> usize;

    /// Walks all structures. Panics when something does not add up.
    fn check(&self);
}
